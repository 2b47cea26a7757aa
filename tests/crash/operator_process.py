"""A run of one operator, in a process of its own that a test may kill: python operator_process.py bounded|unbounded|clocked|early|threefold|staged LAKE LOGS ENGINE."""

from __future__ import annotations

import sys
from datetime import UTC, datetime, timedelta
from typing import cast

from floodmark import (
    BoundedOutOfOrderness,
    Contract,
    EventTime,
    Outputs,
    Rows,
    Source,
    Stream,
    Tumbling,
    count,
    operator,
    operator_asset,
    sum,
)
from floodmark import max as greatest
from floodmark.control.processes.engine import computing
from floodmark.core.time import Interval
from floodmark.lake.folder.paths import Lake
from floodmark.spec.workspace import Engine, Settings

START = datetime(2020, 1, 1, tzinfo=UTC)


class Event(Contract):
    """A keyed number."""

    at: EventTime
    key: str
    value: int


@operator
def revised(events: Stream[Event]) -> Stream:
    """Refires, drops and has a late output: every kind of write there is."""
    windowed = events.key_by("key").window(Tumbling("10 minutes"), allowed_lateness="15 minutes", late="side_output")
    return windowed.aggregate(n=count(), total=sum("value"))


@operator
def clocked(events: Stream[Event]) -> Stream:
    """Windows of processing time, which only a record of the clock repeats."""
    windowed = events.key_by("key").window(Tumbling("200 milliseconds"), time="processing")
    return windowed.aggregate(n=count(), total=sum("value"))


@operator
def threefold(events: Stream[Event]) -> Outputs:
    """Three named outputs: what the stateful step emits, and two of steps that follow it."""
    counted = events.key_by("key").window(Tumbling("10 minutes")).aggregate(n=count(), total=sum("value"))
    odd = counted.filter("total % 2 = 1")
    return Outputs(all=counted, odd=odd, sums=counted.select("key", "window_end", total="total + n"))


@operator
def staged(events: Stream[Event]) -> Outputs:
    """Two stages: sums of ten minutes, late rows revising them no more, and the greatest of them within half an hour."""
    tens = events.key_by("key").window(Tumbling("10 minutes"), late="side_output").aggregate(total=sum("value"))
    hours = tens.key_by("key").window(Tumbling("30 minutes")).aggregate(n=count(), most=greatest("total"))
    return Outputs(hours=hours, tens=tens.filter("total % 2 = 0"))


EARLY = operator_asset(revised, isolation="read_uncommitted").operator
"""Its table of last values is written before anything is committed."""


def source(commits: int) -> Source:
    """Thirty rows per commit; every fifth 20 minutes late, every eleventh an hour."""
    rows = []
    for i in range(30 * commits):
        at = START + timedelta(minutes=i) - timedelta(minutes=60 if i % 11 == 5 else 20 if i % 5 == 3 else 0)
        rows.append({"at": at.isoformat(), "key": "abc"[i % 3], "value": i})
    return Source("events", contract=Event, connector=Rows(rows), watermark=BoundedOutOfOrderness("5 minutes"))


def main(mode: str, root: str, logs: str, name: Engine) -> None:
    """Run the operator until it has caught up."""
    if name == "spark":
        from borrowed import borrow

        borrow()
    engine, lake = computing(Settings(memory=300), engine=name, app="victim"), Lake(root, logs=logs)
    if mode == "bounded":
        engine.run_bounded(revised, lake, Interval())
    else:
        what = {"clocked": clocked, "early": EARLY, "threefold": threefold, "staged": staged}.get(mode, revised)
        engine.run_unbounded(what, lake, until_caught_up=True, files_per_batch=1)


if __name__ == "__main__":
    main(*sys.argv[1:4], cast("Engine", sys.argv[4]))
