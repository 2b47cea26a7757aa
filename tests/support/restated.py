"""A stream whose results late rows revise, with other steps behind its windows in each version, a stream that reads it, and what they should say."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from typing import Annotated, Any

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable
from events import Event, disorder
from pydantic import Field

from floodmark import Contract, Operator, Stream, Tumbling, count, max, operator, sum
from floodmark.core.time import to_ms
from floodmark.engines.embedded.memory.run import MemoryRun
from floodmark.engines.upgrading import upgrade
from floodmark.lake.folder.paths import Lake
from floodmark.lake.stream.timeline import Timeline
from floodmark.spec.values.schema import MARKER, PARTITION, ROW, STAMPS
from floodmark.testing.lakes import land
from floodmark.testing.log import Log

LATENESS = 40 * 60_000


class Told(Contract):
    """What Python makes of a result."""

    key: str
    n: int
    total: int
    high: int
    window_start: datetime
    window_end: datetime
    text: str


def _told(row: Any) -> Any:
    yield {**row, "text": f"{row['n']} rows"}
    if row["n"] > 1:
        yield {**row, "text": "more than one"}


class Part(Contract):
    """A value in a value."""

    half: float | None


class Odd(Contract):
    """Nulls, NaN, decimals, nested values."""

    key: str
    n: int
    total: int
    high: int
    window_start: datetime
    window_end: datetime
    ratio: float | None
    price: Annotated[Decimal, Field(max_digits=20, decimal_places=4)]
    part: Part | None
    several: list[int | None]
    labels: dict[str, int]


def _odd(divided: int) -> Callable[[Any], Any]:
    def odd(row: Any) -> Any:
        total = row["total"]
        yield {
            **row,
            "ratio": (math.nan, None, total / divided)[total % 3],
            "price": round(Decimal(total) / divided, 4),
            "part": None if total % 2 else {"half": (math.nan, total / divided)[total % 4 == 0]},
            "several": [row["n"], None, total % divided],
            "labels": {"total": total, "rest": total % divided},
        }

    return odd


_BEHIND = {
    "plain": lambda found: found,
    "filter": lambda found: found.filter("total % 2 = 0"),
    "few": lambda found: found.filter("total % 7 = 0"),
    "wider": lambda found: found.filter("total % 2 = 0 OR total % 3 = 0"),
    "double": lambda found: found.with_columns(euros="total * 2"),
    "half": lambda found: found.with_columns(euros="total * 5"),
    "more": lambda found: found.with_columns(euros="total * 5", cents="total * 100"),
    "odd": lambda found: found.flat_map(_odd(7), schema=Odd),
    "odder": lambda found: found.flat_map(_odd(9), schema=Odd),
    "python": lambda found: found.flat_map(_told, schema=Told),
}
"""Version -> the steps behind the windows."""


def totals(behind: str) -> Operator:
    """One version of the stream."""

    def totals(events: Stream[Event]) -> Stream:
        windowed = events.key_by("key").window(Tumbling("10 minutes"), allowed_lateness="40 minutes")
        return _BEHIND[behind](windowed.aggregate(n=count(), total=sum("value"), high=max("value")))

    return operator(totals)


def halves(behind: str) -> Operator:
    """One version of a stream that reads it, whose results its revisions revise, and leave empty."""

    def halves(totals: Stream) -> Stream:
        windowed = totals.key_by("key").window(Tumbling("30 minutes"), allowed_lateness="1 hour")
        return _BEHIND[behind](windowed.aggregate(n=count(), total=sum("total"), high=max("high")))

    return operator(halves, inputs={"totals": totals("plain")})


def days() -> Operator:
    """A stream that reads it row by row: sums over its results."""

    def days(totals: Stream) -> Stream:
        windowed = totals.key_by("key").window(Tumbling("1 day"), allowed_lateness="1 day")
        return windowed.aggregate(results=count(), total=sum("total"))

    return operator(days, inputs={"totals": totals("plain")})


def standing(path: str, version: int | None = None) -> Counter[tuple[Any, ...]]:
    """Rows of a changelog net of retractions, with their event time: how often each is there; those that are not are left out."""
    found = Counter[tuple[Any, ...]]()
    for row in DeltaTable(path, version=version).to_pyarrow_table().to_pylist():
        if row["_kind"] != MARKER:
            found[_row(to_ms(row["_event_time"]), row)] += 1 if row["_kind"] == ROW else -1
    return Counter({row: n for row, n in found.items() if n})


def _row(at: int, row: Mapping[str, Any]) -> tuple[Any, ...]:
    names = sorted(name for name in row if name not in {*STAMPS, PARTITION} and row[name] is not None)
    return at, *((name, _plain(row[name])) for name in names)


def _plain(value: Any) -> Any:
    match value:
        case float() if math.isnan(value):
            return "NaN"
        case list():
            return tuple(map(_plain, value))
        case dict():
            return tuple((name, _plain(one)) for name, one in value.items())
        case _:
            return value


def reached(lake: Lake, name: str) -> int:
    """How far a stream is, ms."""
    checkpoint = Timeline.current(lake, name).checkpoint
    return checkpoint.final_progress(checkpoint.last_committed())


@dataclass
class Story:
    """A stream over an ended log in disorder, whose definition changes on the way.

    Args:
        lake: it runs in.
        log: of its input.
        said: (event time from which on results may still be revised then, the version) of each definition, in order.
        read: entries of the log that have landed.
    """

    lake: Lake
    log: Log = field(default_factory=lambda: disorder(totals("plain"), 7, 200))
    said: list[tuple[int, str]] = field(default_factory=list)
    read: int = 0

    def land(self, until: int, pieces: int = 3) -> None:
        """More of the log, in as many commits."""
        step = (until - self.read) / pieces
        for number in range(pieces):
            last = until if number == pieces - 1 else self.read + round(step)
            land(self.lake, totals("plain"), self.log, self.read, last)
            self.read = last

    def begin(self, behind: str) -> Operator:
        """The first definition."""
        self.said.append((-(1 << 62), behind))
        return totals(behind)

    def upgrade(self, behind: str) -> Operator:
        """Another one, from the state there is."""
        self.said.append((reached(self.lake, "totals") - LATENESS + 1, behind))
        upgrade(totals(behind), self.lake)
        return totals(behind)

    def kept(self) -> int:
        """How many windows could still be revised at the last change of the definition."""
        return len({row[0] for row in standing(self.lake.output("totals")) if row[0] >= self.said[-1][0]})

    def expected(self, until: int | None = None) -> Counter[tuple[Any, ...]]:
        """What stands in the end, or when so many entries are read: each result as the last definition says under which it could be revised."""
        found = Counter[tuple[Any, ...]]()
        for number, (first, behind) in enumerate(self.said):
            last = self.said[number + 1][0] if number + 1 < len(self.said) else 1 << 62
            answer = MemoryRun(totals(behind)).batch({"events": self.log.table(0, until)})[""]
            for row in answer.to_pylist():
                if row["_kind"] != MARKER and first <= row["_event_time"] < last:
                    found[_row(row["_event_time"], row)] += 1 if row["_kind"] == ROW else -1
        return Counter({row: n for row, n in found.items() if n})


def of_halves(lake: Lake, said: Sequence[tuple[int, str]]) -> Counter[tuple[Any, ...]]:
    """What ``halves`` should say of all that it has read, by its definitions as ``Story.said``."""
    rows = DeltaTable(lake.output("totals")).to_pyarrow_table().drop_columns(["_ingest_time"])
    moments = pc.divide(rows["_event_time"].cast(pa.int64()), 1000)
    rows = rows.set_column(rows.column_names.index("_event_time"), "_event_time", moments)
    rows = rows.sort_by([("_sequence", "ascending"), ("_kind", "ascending")])  # markers last
    found = Counter[tuple[Any, ...]]()
    for number, (first, behind) in enumerate(said):
        last = said[number + 1][0] if number + 1 < len(said) else 1 << 62
        for row in MemoryRun(halves(behind)).batch({"totals": rows})[""].to_pylist():
            if row["_kind"] != MARKER and first <= row["_event_time"] < last:
                found[_row(row["_event_time"], row)] += 1 if row["_kind"] == ROW else -1
    return Counter({row: n for row, n in found.items() if n})


def daily(rows: Counter[tuple[Any, ...]]) -> dict[str, tuple[int, int]]:
    """Results -> key -> how many there are, and the sum of their totals."""
    found = dict[str, tuple[int, int]]()
    for row, n in rows.items():
        values = dict(row[1:])
        results, total = found.get(values["key"], (0, 0))
        found[values["key"]] = results + n, total + n * values["total"]
    return {key: one for key, one in found.items() if one[0]}


def told(rows: Counter[tuple[Any, ...]]) -> dict[str, tuple[int, int]]:
    """The same, as ``days`` says it."""
    found = dict[str, tuple[int, int]]()
    for row, n in rows.items():
        values = dict(row[1:])
        results, total = found.get(values["key"], (0, 0))
        found[values["key"]] = results + n * values["results"], total + n * values["total"]
    return found


def versions(path: str) -> Iterator[Counter[tuple[Any, ...]]]:
    """What stands in a table at each of its versions."""
    for version in range(1, DeltaTable(path).version() + 1):
        yield standing(path, version)


def never_less_than_nothing(path: str) -> None:
    """At no version a row is taken back that is not there."""
    for number, rows in enumerate(versions(path), 1):
        assert all(n > 0 for n in rows.values()), (number, [row for row, n in rows.items() if n < 0])


def values_of(lake: Lake, keys: Sequence[str]) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The table of last values, and the last values of the changelog, each sorted by its keys."""
    rows = [one for one in DeltaTable(lake.output("totals")).to_pyarrow_table().to_pylist() if one["_kind"] != MARKER]
    last = {tuple(one[k] for k in keys): one for one in sorted(rows, key=lambda one: (one["_sequence"], one["_kind"]))}
    changelog = [one for one in last.values() if one["_kind"] == ROW]
    current = DeltaTable(lake.output("totals__current")).to_pyarrow_table().to_pylist()
    both = []
    for table in (current, changelog):
        plain = [{name: _plain(value) for name, value in one.items() if name not in STAMPS} for one in table]
        both.append(sorted(plain, key=lambda one: tuple(str(one[k]) for k in keys)))
    return both[0], both[1]
