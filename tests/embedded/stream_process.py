"""A stream on the embedded engine in a process of its own, which a test may kill: stream_process.py LAKE OPERATOR [CLOCK]."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))
from events import Event

from floodmark import Daily, Operator, Stream, Tumbling, count, operator, sum
from floodmark.engines.embedded.session import Sail
from floodmark.engines.embedded.unbounded.run import run_unbounded
from floodmark.lake.paths import Lake


def _windowed(events: Stream[Event]) -> Stream:
    """Results that are revised, and rows that are too late."""
    keyed = events.filter("value % 7 <> 0").key_by("key")
    windowed = keyed.window(Tumbling("10 minutes"), allowed_lateness="15 minutes", late="side_output")
    return windowed.aggregate(n=count(), total=sum("value"))


def _plain(events: Stream[Event]) -> Stream:
    """No state."""
    return events.filter("value % 3 = 0").with_columns(double="value * 2")


WINDOWED: Operator = operator(_windowed, name="windowed")
PLAIN: Operator = operator(_plain, name="plain")

DIVIDED: Operator = replace(WINDOWED, name="divided", partitions=Daily("2020-01-01", timezone="Asia/Kolkata"))
UNCOMMITTED: Operator = replace(WINDOWED, name="uncommitted", isolation="read_uncommitted")


def _clocked(events: Stream[Event]) -> Stream:
    """Seconds of processing time."""
    return events.key_by("key").window(Tumbling("1 second"), time="processing").aggregate(n=count(), total=sum("value"))


CLOCKED: Operator = operator(_clocked, name="clocked")


def main(folder: str, name: str, clock: str = "") -> None:
    """Run until caught up."""
    code = {one.name: one for one in (WINDOWED, PLAIN, DIVIDED, UNCOMMITTED, CLOCKED)}[name]
    sail, at = Sail(memory=300), int(clock) if clock else None
    run_unbounded(sail, code, Lake(folder), until_caught_up=True, files_per_batch=1, clock=at)
    sail.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
