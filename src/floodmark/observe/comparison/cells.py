"""Cells of event time that a step of a comparison reads: cells that have closed or changed since the last step, and the files that hold their rows.

A cell is a stretch of event time of one length for the whole comparison. All rows of a window have the event time of the window's last
millisecond, so a window is in one cell.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from urllib.parse import unquote

import duckdb
import numpy as np
import pyarrow as pa

from floodmark.core.errors import LifecycleError
from floodmark.core.sql import literal
from floodmark.core.time import END, NEVER
from floodmark.lake.table.files import Changed, changed_files
from floodmark.observe.comparison.sides import Side
from floodmark.spec.values.schema import MARKER

_MOMENT = "epoch_ms(_event_time::TIMESTAMPTZ)"


@dataclass(frozen=True, slots=True)
class Files:
    """The files of a side that hold rows, at the version of its open table.

    Args:
        names: paths relative to the table's.
        first: least event time in each file, ms.
        last: greatest event time in each file, ms.
    """

    names: tuple[str, ...]
    first: np.ndarray
    last: np.ndarray

    @staticmethod
    def of(side: Side) -> Files:
        """Read the files from the statistics in the log. A file without statistics may hold any event time."""
        actions = pa.table(side.table.get_add_actions(flatten=True))
        names = [unquote(name) for name in actions["path"].to_pylist()]
        first, last = (_bounds(actions, edge, other) for edge, other in (("min", NEVER), ("max", END)))
        rows = _column(actions, "num_records", -1)
        nulls = _column(actions, "null_count._event_time", -2)
        with_rows = np.flatnonzero(rows != nulls)  # all other files hold markers alone
        return Files(tuple(names[place] for place in with_rows), first[with_rows], last[with_rows])

    def between(self, first: int, behind: int) -> list[str]:
        """Files that can hold event times in [first, behind), ms."""
        return self._at(np.flatnonzero((self.last >= first) & (self.first < behind)))

    def holding(self, starts: Sequence[int], length: int) -> list[str]:
        """Files that can hold event times of cells.

        Args:
            starts: starts of the cells, ms, sorted.
            length: length of a cell, ms.
        """
        known = np.asarray(starts, dtype=np.int64)
        before = np.searchsorted(known, self.first - self.first % length, side="left")
        return self._at(np.flatnonzero(before < np.searchsorted(known, self.last, side="right")))

    def _at(self, places: np.ndarray) -> list[str]:
        return [self.names[place] for place in places]


def _bounds(actions: pa.Table, edge: str, other: int) -> np.ndarray:
    name = f"{edge}._event_time"
    if name not in actions.column_names:
        return np.full(actions.num_rows, other, dtype=np.int64)
    return _column(
        actions.set_column(0, name, actions[name].cast(pa.timestamp("ms", "UTC"), safe=False).cast(pa.int64())),
        name,
        other,
    )


def _column(actions: pa.Table, name: str, other: int) -> np.ndarray:
    if name not in actions.column_names:
        return np.full(actions.num_rows, other, dtype=np.int64)
    index = actions.column_names.index(name)
    return np.asarray(actions.column(index).cast(pa.int64()).fill_null(other).to_numpy(), dtype=np.int64)


def cell(moment: str, length: int) -> str:
    """Start of the cell of an event time, both ms, in SQL."""
    return f"({moment} - ({moment} % {length} + {length}) % {length})"


def of_row(length: int) -> str:
    """Start of the cell of a row, ms, in SQL."""
    return cell(_MOMENT, length)


def closed(
    connection: duckdb.DuckDBPyConnection,
    side: Side,
    files: Files,
    span: tuple[int, int],
    length: int,
    most: int,
) -> list[int]:
    """Starts of the first cells with rows in a span of event time, ms, in order.

    Args:
        connection: DuckDB.
        side: the side to read.
        files: the files of the side.
        span: (start of the first cell, end of the last cell), ms.
        length: length of a cell, ms.
        most: most cells to return.
    """
    first, behind = span
    some = files.between(first, behind)
    return _starts(connection, side, some, f"{_MOMENT} >= {first} AND {_MOMENT} < {behind}", length, most)


def revised(
    connection: duckdb.DuckDBPyConnection, side: Side, files: Files, before: int, done: int, length: int
) -> list[int]:
    """Starts of cells before ``done`` in which rows were added since a version of a side's table, ms.

    Args:
        connection: DuckDB.
        side: the side to read.
        files: the files of the side.
        before: the version.
        done: event time up to which all cells were compared, ms.
        length: length of a cell, ms.

    Raises:
        LifecycleError: LIFECYCLE-086, rows were removed from the table since the version, or the table's log does not reach back to it.
    """
    version = side.table.version()
    if version == before:
        return []
    changes = changed_files(side.path, before, version)
    if changes is None or version < before or not all(one.come for one in changes.values()):
        got = "one whose commits since are gone" if changes is None else "one with rows taken out or replaced"
        fix = "A rollback, a rebuild or a bounded run has replaced its results: begin a new comparison. Compare once: floodmark diff"
        raise LifecycleError(
            f"table '{side.name}'",
            f"one to which rows were only added since version {before}",
            got,
            fix,
            code="LIFECYCLE-086",
        )
    there, starts = set(files.names), set[int]()
    own = [name for one in changes if (name := unquote(one)) in there]
    if own:
        starts.update(_starts(connection, side, own, f"{_MOMENT} < {done}", length))
    for name, change in changes.items():  # merged with other files since: all cells in the file's range count
        if unquote(name) not in there and (change.first is not None or change.last is not None):
            first, behind = _range(change, done)
            held = f"{_MOMENT} >= {first} AND {_MOMENT} < {behind}"
            starts.update(_starts(connection, side, files.between(first, behind), held, length))
    return sorted(starts)


def _range(change: Changed, done: int) -> tuple[int, int]:
    first, last = (_milliseconds(one) for one in (change.first, change.last))
    return NEVER if first is None else first, done if last is None else min(done, last + 1)


def _milliseconds(moment: datetime | None) -> int | None:
    return None if moment is None else round(moment.timestamp() * 1000)


def _starts(
    connection: duckdb.DuckDBPyConnection,
    side: Side,
    some: Sequence[str],
    where: str,
    length: int,
    most: int | None = None,
) -> list[int]:
    if not some:
        return []
    query = f"SELECT DISTINCT {of_row(length)} AS start FROM {side.source(connection, some)} WHERE _kind <> {MARKER} AND {where} ORDER BY start"
    rows = connection.sql(query + (f" LIMIT {most}" if most is not None else "")).fetchall()
    return [int(start) for (start,) in rows]


def chosen(first: int, last: int, length: int) -> str:
    """SQL condition for the rows of the cells in the table ``cells``. The range of event times lets DuckDB skip parts of files.

    Args:
        first: start of the first cell, ms.
        last: start of the last cell, ms.
        length: length of a cell, ms.
    """
    low, high = (
        f"{literal(str(np.datetime64(at, 'ms')))}::TIMESTAMP AT TIME ZONE 'UTC'" for at in (first, last + length)
    )
    held = f"_event_time::TIMESTAMPTZ >= {low} AND _event_time::TIMESTAMPTZ < {high}"
    return f"{held} AND {of_row(length)} IN (SELECT start FROM cells)"
