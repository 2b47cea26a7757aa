"""Two outputs that grow as a stream writes them: windows per key, revised by late rows; no engine runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

from floodmark.observe.comparison.sides import Side
from floodmark.spec.values.schema import RETRACTION, ROW

START = datetime(2026, 1, 1, tzinfo=UTC)
STAMPED = [
    ("_event_time", pa.timestamp("us", tz="UTC")),
    ("_watermark", pa.int64()),
    ("_progress", pa.int64()),
    ("_sequence", pa.int64()),
    ("_ingest_time", pa.timestamp("us", tz="UTC")),
    ("_kind", pa.int32()),
]
OWN = [
    ("key", pa.string()),
    ("window_start", pa.timestamp("us", tz="UTC")),
    ("window_end", pa.timestamp("us", tz="UTC")),
    ("n", pa.int64()),
    ("mean", pa.float64()),
    ("carrier", pa.string()),
]
SCHEMA = pa.schema([*OWN, *STAMPED])
GRAIN = ("key", "window_start", "window_end")
Row = dict[str, Any]


def ms(hours: float) -> int:
    """Event time so many hours after the start, ms."""
    return round((START + timedelta(hours=hours)).timestamp() * 1000)


def result(key: str, hour: int, n: int = 1, mean: float | None = 0.5, carrier: str = "AA") -> Row:
    """A result of the window of an hour."""
    start = START + timedelta(hours=hour)
    return {
        "key": key,
        "window_start": start,
        "window_end": start + timedelta(hours=1),
        "n": n,
        "mean": mean,
        "carrier": carrier,
    }


@dataclass
class Output:
    """One growing output; ``rows`` is what holds in it, by key and window.

    Args:
        path: of its table.
        keyed: its results are revised, by key and window.
    """

    path: str
    keyed: bool = True
    rows: dict[tuple[Any, ...], Row] = field(default_factory=dict)
    sequence: int = 0

    def write(self, *rows: Row) -> None:
        """A commit; a row of a known key and window takes back the one before it."""
        lines = []
        for row in rows:
            identity = tuple(row[name] for name in GRAIN)
            if identity in self.rows:
                lines.append(self._stamped(self.rows[identity], RETRACTION))
            lines.append(self._stamped(row, ROW))
            self.rows[identity] = row
            self.sequence += 1
        write_deltalake(self.path, pa.Table.from_pylist(lines, schema=SCHEMA), mode="append")

    def take_back(self, row: Row) -> None:
        """A commit that takes a row back and puts none in its place."""
        self.rows.pop(tuple(row[name] for name in GRAIN))
        line = self._stamped(row, RETRACTION)
        self.sequence += 1
        write_deltalake(self.path, pa.Table.from_pylist([line], schema=SCHEMA), mode="append")

    def _stamped(self, row: Row, kind: int) -> Row:
        moment = row["window_end"] - timedelta(milliseconds=1)
        stamps = {"_event_time": moment, "_watermark": 0, "_progress": 0, "_sequence": self.sequence}
        return row | stamps | {"_ingest_time": moment, "_kind": kind}

    def side(self) -> Side:
        """As it is now."""
        keys = GRAIN if self.keyed else ()
        return replace(Side.of(self.path, None, None), keys=keys, grain=GRAIN)

    def compact(self) -> None:
        """Merge its files, without a change of rows."""
        DeltaTable(self.path).optimize.compact()


def pair(folder: Path) -> tuple[Output, Output]:
    """Two empty outputs."""
    return Output(str(folder / "left")), Output(str(folder / "right"))


def brute(left: Output, right: Output, hours: float, tolerance: float = 0.0) -> Counter[str]:
    """Rows of windows that end by an hour, by what became of them."""
    sides = [
        {identity: row for identity, row in one.rows.items() if row["window_end"] <= START + timedelta(hours=hours)}
        for one in (left, right)
    ]
    counts = Counter[str]()
    for identity in sides[0].keys() | sides[1].keys():
        a, b = (side.get(identity) for side in sides)
        if a is None or b is None:
            counts["only_right" if a is None else "only_left"] += 1
        elif a == b:
            counts["equal"] += 1
        else:
            close = all(a[name] == b[name] for name in ("n", "carrier")) and None not in {a["mean"], b["mean"]}
            counts["within" if close and abs(a["mean"] - b["mean"]) <= tolerance else "different"] += 1
    return counts


def counted(
    counts: object, names: Sequence[str] = ("equal", "within", "different", "only_left", "only_right")
) -> Counter[str]:
    """Counts of a comparison, without zeros."""
    return Counter({name: value for name in names if (value := getattr(counts, name))})
