"""The example of clicks: what it says of hourly batches, of a lambda pair and of floodmark, against counts of the test's own."""

from __future__ import annotations

import itertools
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from console_pages import ran

HOURS = 5
CLICKS = Path(__file__).parents[2] / "examples" / "clicks"
MODULES = ("arrivals", "compare", "follow", "hourly", "pair", "workspace")


@pytest.fixture(scope="module")
def compare() -> Iterator[Any]:
    """Its module, with its folder where Python looks for modules as long as the tests run."""
    sys.path.insert(0, str(CLICKS))
    try:
        import compare

        yield compare
    finally:
        sys.path.remove(str(CLICKS))
        for name in MODULES:
            sys.modules.pop(name, None)


@pytest.mark.feature("R1", "R2", "R3", "Y12")
def test_hourly_batches_and_a_pair_are_wrong_where_they_say_and_one_operator_is_right(
    compare: Any, tmp_path: Path
) -> None:
    batches, pair, stream = compare.compare(HOURS, tmp_path)
    ran("python compare.py")
    made = stream.made
    right = Counter((click.at.hour, click.campaign) for click in made)
    arrived = Counter((click.arrived.hour, click.campaign) for click in made)

    assert {(hour.hour, campaign): number for (hour, campaign), number in stream.last.items()} == right
    assert (stream.wrong, stream.misfiled, stream.wrong_hours()) == (0, 0, 0)
    assert len(stream.views) == len(compare.ticks(HOURS)), "it went on after the kill where it was"
    gaps = Counter[int]()
    for user in {click.user for click in made}:
        times = sorted(click.at for click in made if click.user == user)
        gaps[user] = 1 + sum(
            later - earlier >= compare.timedelta(minutes=10) for earlier, later in itertools.pairwise(times)
        )
    assert stream.visits == pair.visits == gaps.total()

    assert {(hour.hour, campaign): number for (hour, campaign), number in batches.last.items()} == arrived
    assert batches.misfiled == (arrived - right).total() > 0
    assert batches.visits > stream.visits, "visits over a border are counted twice"
    assert pair.wrong == 0, "the nightly batch is right"
    assert pair.wrong_hours() > 0, "but until the night the hour of the crash lacked clicks"
    assert max(stream.minutes_to_alert()) <= 10
    assert max(batches.minutes_to_alert()) > 10
    assert (stream.texts, pair.texts) == (1, 2)
