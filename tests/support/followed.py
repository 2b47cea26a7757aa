"""A stream that is rebuilt, and streams that read it, directly and through each other, whose results do not depend on event time."""

from __future__ import annotations

import os
import sys
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import forked
from borrowed import lend, take_back
from deltalake import DeltaTable
from events import Event, disorder
from processes import paths
from restated import standing

from floodmark import Operator, Stream, Tumbling, count, max, operator, sum
from floodmark.core import crash
from floodmark.lake.folder.paths import Lake
from floodmark.lake.stream.timeline import Timeline
from floodmark.lake.table import history
from floodmark.lake.table.commits import MicroBatch
from floodmark.spec.values.schema import MARKER
from floodmark.testing.lakes import land
from floodmark.testing.log import Log

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def totals(version: str) -> Operator:
    """A version of the stream that is rebuilt.

    Args:
        version: ``plain``, ``same`` by other code, ``few`` rows, ``wide`` windows, ``double`` values, a column ``more``, or ``final`` results.
    """

    def totals(events: Stream[Event]) -> Stream:
        kept = events.filter({"few": "value % 3 <> 0", "same": "value >= 0"}.get(version, "true"))
        length, lateness = (
            "20 minutes" if version == "wide" else "10 minutes",
            "0 seconds" if version == "final" else "40 minutes",
        )
        windowed = kept.key_by("key").window(Tumbling(length), allowed_lateness=lateness)
        found = windowed.aggregate(
            n=count(), total=sum("value * 2" if version == "double" else "value"), high=max("value")
        )
        return found.with_columns(more="n + 1") if version == "more" else found

    return operator(totals)


def evens(version: str = "plain", divisor: int = 2) -> Operator:
    """Steps without state, behind a version of the rebuilt stream."""

    def evens(totals: Stream) -> Stream:
        return totals.filter(f"total % {divisor} = 0").with_columns(half="total DIV 2")

    return operator(evens, inputs={"totals": totals(version)})


def sums() -> Operator:
    """Aggregates over all rows of the stream without state."""

    def sums(evens: Stream) -> Stream:
        return evens.key_by("key").rolling(results=count(), halves=sum("half"), most=max("n"))

    return operator(sums, inputs={"evens": evens()})


def pairs() -> Operator:
    """A join of the rebuilt stream with what comes of it."""

    def pairs(totals: Stream, sums: Stream) -> Stream:
        return totals.key_by("key").regular_join(sums.key_by("key"), kind="left")

    return operator(pairs, inputs={"totals": totals("plain"), "sums": sums()})


READERS = {"evens": evens, "sums": sums, "pairs": pairs}
"""The streams that follow, upstream first: name -> definition."""
FOLLOWERS = tuple(READERS)


def hours() -> Operator:
    """Windows, which have freed what a difference may take back."""

    def hours(totals: Stream) -> Stream:
        return totals.key_by("key").window(Tumbling("1 hour"), allowed_lateness="1 hour").aggregate(n=sum("n"))

    return operator(hours, inputs={"totals": totals("plain")})


def half_days() -> Operator:
    """Windows of the stream without state."""

    def half_days(evens: Stream) -> Stream:
        return evens.key_by("key").window(Tumbling("12 hours"), allowed_lateness="1 hour").aggregate(n=sum("n"))

    return operator(half_days, inputs={"evens": evens()})


def log(seed: int = 7, rows: int = 200) -> Log:
    """Events in disorder, with an end."""
    return disorder(totals("plain"), seed, rows)


def land_some(lake: Lake, events: Log, first: int, last: int, pieces: int = 3) -> None:
    """Entries of the log, in as many commits."""
    bounds = [first + round((last - first) * number / pieces) for number in range(pieces + 1)]
    for low, high in pairwise(bounds):
        land(lake, totals("plain"), events, low, high)


def results(lake: Lake, table: str) -> Counter[tuple[Any, ...]]:
    """Rows of a table net of retractions, without their event times, which for aggregates over all rows are those of the last change."""
    found = Counter[tuple[Any, ...]]()
    for row, n in standing(lake.output(table)).items():
        found[row[1:]] += n
    return Counter({row: n for row, n in found.items() if n})


def current(lake: Lake, table: str) -> list[dict[str, Any]]:
    """The last values of a table, sorted."""
    rows = DeltaTable(lake.output(f"{table}__current")).to_pyarrow_table().to_pylist()
    own = [{name: row[name] for name in row if not name.startswith("_")} for row in rows if row["_kind"] != MARKER]
    return sorted(own, key=repr)


def differences(lake: Lake) -> list[MicroBatch]:
    """The commits by which the difference of a rebuild was appended, newest first."""
    records = (commit.record for commit in history.every(lake.output("totals")))
    return [record for record in records if isinstance(record, MicroBatch) and record.restated]


def timelines(lake: Lake) -> list[int]:
    """The timeline of each stream that follows."""
    return [Timeline.current(lake, name).number for name in FOLLOWERS]


SWITCH = (
    *crash.POINTS["difference"],
    "step.restore_values",
    "step.restore_table",
    "graft.before_commit",
    "step.make_current",
    "step.done",
    "switch.after_journal",
)
"""Points of a rebuild's switch."""


def process(
    lake: Lake, action: str, name: str, engine: str = "embedded", *, at: str = "", java: SparkSession | None = None
) -> int:
    """The exit status of ``followed_process.py``, which is killed at a point.

    Args:
        lake: in which it works.
        action: ``rebuild`` or ``run``.
        name: of a version, or of a reader.
        engine: it works with.
        at: the point; empty, it is not killed.
        java: whose Java it works on.
    """
    command = [sys.executable, str(Path(__file__).with_name("followed_process.py")), lake.root, action, name, engine]
    lent = {} if java is None else lend(java)
    status = forked.run(command, env={**os.environ, "PYTHONPATH": paths(), crash.VARIABLE: at, **lent}).returncode
    if java is not None:
        take_back(java)
    return status
