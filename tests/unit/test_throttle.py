"""A backfill with a budget: cut into asset partitions, and kept waiting while a stream beside it lags too far."""

from __future__ import annotations

import threading
from dataclasses import replace

import pytest
from histories import day, dwelling, hourly, of_hours, partitioned

from floodmark.core.errors import LifecycleError
from floodmark.core.time import Interval
from floodmark.lake.folder.paths import Lake
from floodmark.lake.results import throttle
from floodmark.lake.results.throttle import Throttle, with_upstream
from floodmark.spec.values.budget import Budget

MINUTE = 60_000


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(throttle, "_POLL_SECONDS", 0)


def made(said: list[str], *, running: bool = True) -> Throttle:
    return Throttle(
        operator=of_hours,
        lake=Lake("nowhere"),
        budget=Budget(lag=MINUTE),
        say=said.append,
        running=lambda _, name: running and name == "hourly",
    )


def test_it_waits_for_a_stream_upstream_and_says_so_once(monkeypatch: pytest.MonkeyPatch) -> None:
    lags, said = [5 * MINUTE, 2 * MINUTE, MINUTE], list[str]()
    monkeypatch.setattr(throttle, "lag", lambda operator, _: lags.pop(0) if operator.name == "hourly" else 9 * MINUTE)
    made(said).wait()
    assert (said, lags) == (["waiting: the stream of 'hourly' lags 5 minutes, more than 1 minute"], [])


def test_a_stream_that_is_not_at_work_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    said = list[str]()
    monkeypatch.setattr(throttle, "lag", lambda *_: 9 * MINUTE)
    made(said, running=False).wait()
    replace(made(said), budget=Budget(cores=1)).wait()
    assert not said


def test_a_wait_ends_when_the_run_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(throttle, "lag", lambda *_: 9 * MINUTE)
    waiting, stop = made([]), threading.Event()
    stop.set()
    with pytest.raises(LifecycleError, match="LIFECYCLE-206 .*it goes on behind what it has computed"):
        replace(waiting, stop=stop).wait()


def test_a_stretch_is_cut_at_asset_partitions_unless_each_of_them_reads_all() -> None:
    days = replace(made([]), operator=partitioned(hourly)).pieces([Interval(start=day(0).start + 1, end=day(2).end)])
    assert days == [Interval(start=day(0).start + 1, end=day(0).end), day(1), day(2)]
    assert replace(made([]), operator=partitioned(dwelling)).pieces([day(0, 3)]) == [day(0, 3)]
    assert replace(made([]), operator=partitioned(hourly)).pieces([Interval()]) == [Interval()]


def test_all_upstream_operators_are_found_once() -> None:
    assert [operator.name for operator in with_upstream(of_hours)] == ["of_hours", "hourly"]
