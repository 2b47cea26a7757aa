"""Cron expressions: whether one names a minute of a stretch of time, against Dagster's own."""

from __future__ import annotations

import random

import pytest
from dagster._utils.schedules import cron_string_iterator

from floodmark.spec.values.cron import fires

EXPRESSIONS = (
    "* * * * *", "0 * * * *", "*/7 * * * *", "30 3 * * *", "0 3 * * sun", "0 3 * * 7", "15 4 1 * *", "0 0 29 2 *", "5-10/2 22-23 * * mon-fri",
    "0 12 13 * fri", "59 23 31 12 *", "0,30 0 1,15 jan,jul *",
)  # fmt: skip
START = 1_750_000_000


@pytest.mark.parametrize("text", EXPRESSIONS)
def test_a_minute_is_named_as_dagster_names_it(text: str) -> None:
    chance = random.Random(text)
    for _ in range(200):
        since = START + chance.random() * 200 * 86_400
        until = since + chance.choice((0, 1, 60, 3600, 86_400, 40 * 86_400)) * chance.random()
        following = next(cron_string_iterator(since + 0.001, text, "UTC")).timestamp()
        assert fires(text, since, until) == (following <= until), (since, until)


def test_the_minute_in_which_a_process_was_started_does_not_start_it_again() -> None:
    assert not fires("* * * * *", 60.0, 119.9)
    assert fires("* * * * *", 60.0, 120.0)
    assert not fires("0 0 1 1 *", 1.0, 0.0)
