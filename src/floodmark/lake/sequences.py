"""The files of a log in the order of the sequences of their rows, and how far a reader has got in it."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise

import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from floodmark.lake import entries
from floodmark.lake.paths import Lake
from floodmark.lake.storage import read, write
from floodmark.lifecycle.savepoint import TableVersion

FAR_BEHIND = 1_000
"""Commits, from which on a stream that starts reads the files of a log that are there now instead of commit by commit."""


@dataclass(frozen=True, slots=True, order=True)
class LogFile:
    """A file of a log; they are ordered as a stream reads them that begins with a version.

    Args:
        modified: modification time its commit says, ms.
        path: in the table's folder, as its commit says.
        size: bytes.
        first: the smallest ``_sequence`` of its rows.
        last: the largest one.
    """

    modified: int
    path: str
    size: int
    first: int
    last: int


def in_order(table: DeltaTable) -> list[LogFile] | None:
    """The files of a log, ordered by modification time and path; None where that is not the order of their sequences, or that is not known.

    Source: a Delta stream reads the version it begins with in this order, ``DeltaSource`` of Delta 4.
    """
    actions = pa.table(table.get_add_actions(flatten=True))
    columns = ["modification_time", "path", "size_bytes", "min._sequence", "max._sequence"]
    if table.metadata().partition_columns or not set(columns) <= set(actions.column_names):
        return [] if not actions.num_rows else None
    times = actions["modification_time"].cast(pa.int64())
    rows = zip(times.to_pylist(), *(actions[name].to_pylist() for name in columns[1:]), strict=True)
    files = sorted(LogFile(*row) for row in rows if None not in row)
    apart = all(one.last < other.first for one, other in pairwise(files))
    return files if apart and len(files) == actions.num_rows else None


def last_read(path: str, version: int, file: int) -> int | None:
    """The last ``_sequence`` a reader of a log has read; -1 for none, None where the log does not tell any more.

    Args:
        path: of the log.
        version: that is read completely.
        file: number of the last file read of the commit behind it; -1 for none.
    """
    try:
        files = in_order(DeltaTable(path, version=version)) if version >= 0 else []
    except DeltaError:
        return None
    entry = entries.entry(path, version + 1) if file >= 0 else None
    if files is None or (entry is None and file >= 0):
        return None
    actions = (action.get("add") for action in (entries.actions(entry) if entry is not None else ()))
    added = [action for action in actions if action and action["dataChange"]][: file + 1]
    lasts: list[int] = [json.loads(action["stats"])["maxValues"]["_sequence"] for action in added]
    return max([-1, *(one.last for one in files[-1:]), *lasts])


def note(file: str, lake: Lake, inputs: Iterable[TableVersion]) -> None:
    """Write down the last ``_sequence`` that is read of each log: its own log cannot tell for ever.

    Args:
        file: to write.
        lake: of the logs.
        inputs: how far each is read; those that are no logs, or whose files have no order, are left out.
    """
    known = {one.id: (one.version, one.file, last) for one in inputs if (last := _last_read(lake, one)) is not None}
    write(file, json.dumps(known).encode())


def noted(file: str, given: TableVersion) -> int | None:
    """The last ``_sequence`` that is read of a log, by what ``note`` has written of just that position; None where it has not."""
    content = read(file)
    version, of_file, last = json.loads(content or b"{}").get(given.id, (None, None, None))
    return last if (version, of_file) == (given.version, given.file) else None


def _last_read(lake: Lake, given: TableVersion) -> int | None:
    path = lake.log(given.table)
    if not DeltaTable.is_deltatable(path) or entries.id_of(path) != given.id:
        return None
    return last_read(path, given.version, given.file)
