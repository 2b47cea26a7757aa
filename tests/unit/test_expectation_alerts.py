"""Alerts about expectations: each change of whether an asset partition meets one is told once, with the rows that do not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from floodmark import Expectation
from floodmark.control.health.expecting import tell
from floodmark.control.state.messages import Messages
from floodmark.control.state.records import Deployment, StreamId, Watch
from floodmark.control.state.store import Store
from floodmark.core.time import Interval
from floodmark.observe.checking import Checked

HERE, DAY = StreamId("hourly", "/lake"), 86_400_000
FEW = {"unexpected_count": 2, "element_count": 9, "unexpected, for example": "2670, 2700"}


def day(number: int, days: int = 1) -> Interval:
    return Interval(start=number * DAY, end=(number + days) * DAY)


def deployed(folder: Path, alerts: int) -> Store:
    store = Store(f"sqlite:///{folder}/control.db")
    about = {"root": "/", "lake": "/lake", "environment": "dev", "package": "p", "version": "hourly@1"}
    store.deploy(Deployment(operator="hourly", desired="running", watch=Watch(table="/t", alerts=alerts), **about))
    return store


def no_rows(_: object, __: object) -> Any:
    raise AssertionError


def judged(store: Store, name: str, interval: Interval, *, passed: bool, blocking: bool = True) -> bool:
    expectation = Expectation("column_values_to_be_between", column="n", name=name, blocking=blocking)
    checked = Checked(rows=no_rows, expectations=(expectation,), stream="hourly", table="/lake/outputs/hourly")
    numbers: dict[str, Any] = {} if passed else FEW
    return tell(store, HERE, checked, (expectation, passed, numbers), f"{interval.start // DAY}", interval)


@pytest.mark.feature("Z7", "Z8")
def test_a_partition_that_does_not_meet_an_expectation_is_told_once_and_once_more_when_it_does(tmp_path: Path) -> None:
    store = deployed(tmp_path, alerts=2)
    assert not judged(store, "small", day(1), passed=True), "nobody is told of what was never wrong"
    assert judged(store, "small", day(1), passed=False)
    assert not judged(store, "small", day(1), passed=False)
    assert judged(store, "small", day(2), passed=False), "another partition"
    assert judged(store, "odd", day(1), passed=False, blocking=False), "another expectation"
    assert not judged(store, "small", day(3), passed=True)
    assert judged(store, "small", day(1, days=2), passed=True), "both, checked together, are one change"
    assert not judged(store, "small", day(1), passed=True)
    assert judged(store, "small", day(1), passed=False), "wrong again"
    changes = [one.change for one in Messages(store).of(HERE)][::-2]
    told = [(one.expectation, one.partition, one.level_before, one.level, one.condition) for one in changes]
    assert told == [
        ("small", "1", "ok", "error", "unmet"),
        ("small", "2", "ok", "error", "unmet"),
        ("odd", "1", "ok", "warning", "unmet"),
        ("small", "1", "error", "ok", "met"),
        ("small", "1", "ok", "error", "unmet"),
    ]
    assert len({one.key for one in Messages(store).of(HERE) for one in [one.change]}) == 2 * len(changes)
    assert (changes[0].asset, changes[0].sample) == ("hourly", "2670, 2700")
    assert changes[0].reason == ("partition 1 of 'hourly': check 'small' failed: 2 of 9 rows, for example 2670, 2700")
    assert "job checks_hourly" in changes[0].mend


def test_nobody_is_told_where_no_alerts_are_declared_or_no_stream_was_started(tmp_path: Path) -> None:
    store = deployed(tmp_path, alerts=0)
    assert not judged(store, "small", day(1), passed=False)
    store.want(HERE, "stopped")
    assert Messages(store).of(HERE) == []
