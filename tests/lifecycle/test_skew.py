"""The share of rows that the hottest key group has, as the commits of a stream record it."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest
from events import START
from streams import PAIRED, PLAIN, WATCHED, WINDOWED

from floodmark import Operator
from floodmark.control.processes.engine import Computing
from floodmark.lake.folder.paths import Lake
from floodmark.lake.table.commits import Hottest, MicroBatch, decode, encode
from floodmark.observe.skew import Skew, newest_skew, skew_of
from floodmark.testing.lakes import land
from floodmark.testing.log import Log

ROWS = 40
HOT = 29_216
"""The key group of the key ``hot`` among 32,768: XXH64 of its text with the seed 42, modulo their number."""


def lopsided(code: Operator) -> Log:
    """Rows on time, three of four of one key."""
    log = Log(code.inputs[0].schema)
    rows = [
        {"at": START + timedelta(minutes=n), "key": f"k{n}" if n % 4 == 0 else "hot", "value": 7 * n + 1}
        for n in range(ROWS)
    ]
    log.rows(rows, "at", 60_000)
    return log


@pytest.mark.feature("K10")
@pytest.mark.parametrize("code", [WINDOWED, WATCHED, PAIRED], ids=lambda code: code.name)
def test_the_hottest_key_group_has_the_rows_of_the_hot_key(engine: Computing, tmp_path: Path, code: Operator) -> None:
    lake = Lake(str(tmp_path / "lake"))
    land(lake, code, lopsided(code), 0, ROWS)
    engine.run_unbounded(code.grouped(1 << 15), lake, until_caught_up=True)
    skew = newest_skew(code, lake)
    assert skew is not None
    times = 2 if code is PAIRED else 1  # each row comes to both of its inputs
    assert (skew.group, skew.share, skew.rows) == (HOT, 0.75, times * ROWS)


@pytest.mark.feature("K10")
def test_a_stream_whose_rows_are_not_divided_has_none(engine: Computing, tmp_path: Path) -> None:
    lake = Lake(str(tmp_path / "lake"))
    land(lake, PLAIN, lopsided(PLAIN), 0, ROWS)
    engine.run_unbounded(PLAIN, lake, until_caught_up=True)
    assert newest_skew(PLAIN, lake) is None


def test_a_group_that_is_hot_once_among_few_rows_is_not_taken_for_hot() -> None:
    hot = (Hottest(3, 1, 1), Hottest(5, 600, 1_000), Hottest(5, 400, 999), None)
    batches = [MicroBatch.of(WATCHED, "watched", timeline=0, batch=n, progress=0, hottest=h) for n, h in enumerate(hot)]
    skew = skew_of(WATCHED, [decode(encode(batch), "here") for batch in batches])
    assert skew == Skew(5, 0.5, 2_000)
    assert skew.matters
    assert str(skew) == "key group 5 has 50% of the newest 2,000 rows, which one core computes"
