"""A pattern that has changed, on a real engine: the rows that are open are matched again, and go back with the old pattern."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest
from engines import embedded
from events import START, Event, source

from floodmark import Operator, Stream, begin, operator
from floodmark.control.processes.engine import Computing
from floodmark.core.errors import StateError
from floodmark.engines.upgrading import check, upgrade
from floodmark.lake.folder.paths import Lake
from floodmark.lake.restore import savepoints
from floodmark.lake.restore.rollback import roll_back
from floodmark.testing.lakes import outputs
from floodmark.testing.runs import final

VALUES = {0: 1, 1: 7, 2: 30, 40: 2, 41: 700, 42: 60}
"""Minute -> value."""


def version(low: int, high: str) -> Operator:
    """A low value, and the next high one within an hour."""

    def alarms(events: Stream[Event]) -> Stream:
        pattern = begin("low").where(f"value < {low}").followed_by("high").where(high).within("1 hour")
        return events.key_by("key").pattern(pattern).select(since="low.at", until="high.at")

    return operator(alarms)


BEFORE, AFTER = version(3, "value > 500"), version(10, "value > 50 AND value < 500")


def put(lake: Lake, until: int, *, end: bool = False) -> None:
    """Land the rows of minutes before ``until``."""
    rows = [
        {"at": (START + timedelta(minutes=minute)).isoformat(), "key": "a", "value": value}
        for minute, value in sorted(VALUES.items())
        if minute < until
    ]
    embedded().land(source(rows), lake, end=end)


def told(lake: Lake, code: Operator) -> list[tuple[int, ...]]:
    """Minutes of each match."""

    def minute(at: datetime) -> int:
        return (at - START) // timedelta(minutes=1)

    rows = final([outputs(lake, code)[""]])
    return sorted((minute(row["since"]), minute(row["until"])) for row in rows)


@pytest.mark.feature("C1", "C3", "V4")
def test_a_changed_pattern_matches_open_rows_again_and_goes_back(engine: Computing, lake: Lake) -> None:
    put(lake, 42)
    engine.run_unbounded(BEFORE, lake, until_caught_up=True)
    assert told(lake, BEFORE) == []
    with pytest.raises(StateError, match=r"STATE-003 .*floodmark apply alarms"):
        engine.run_unbounded(AFTER, lake, until_caught_up=True)
    assert check(AFTER, lake).verdict == "compatible state"
    done = upgrade(AFTER, lake)
    put(lake, 100, end=True)
    engine.run_unbounded(AFTER, lake, until_caught_up=True)
    assert told(lake, AFTER) == [(0, 42), (1, 42), (40, 42)]
    roll_back(lake, savepoints.find(lake, str(done.savepoint)))
    engine.run_unbounded(BEFORE, lake, until_caught_up=True)
    assert told(lake, BEFORE) == [(0, 41), (40, 41)]
