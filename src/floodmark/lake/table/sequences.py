"""The files of a table in order of their rows' sequences, and the position of a reader in that order."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from floodmark.lake.folder.paths import Lake
from floodmark.lake.folder.storage import read, write
from floodmark.lake.table import entries, history
from floodmark.lifecycle.savepoint import TableVersion
from floodmark.spec.graph.operator import Input
from floodmark.spec.values.schema import MARKER

FAR_BEHIND = 1_000
"""Lag in commits above which a starting stream reads a table's current files instead of its commits."""


@dataclass(frozen=True, slots=True, order=True)
class SequencedFile:
    """A file of a log or an output. Sorts in the order in which a new stream reads the files of a version.

    Args:
        modified: modification time in its commit, ms.
        path: path in the table's folder, as in its commit.
        size: size, bytes.
        first: the smallest ``_sequence`` of its rows; for a file of markers, one more than the last of all earlier rows.
        last: the largest ``_sequence`` of its rows.
    """

    modified: int
    path: str
    size: int
    first: int
    last: int


def in_order(table: DeltaTable) -> list[SequencedFile] | None:
    """The files of a log by modification time and path; None if their sequences overlap or do not ascend in that order, or are unknown.

    Source: ``DeltaSource`` of Delta 4, which reads the start version of a stream in this order.
    """
    actions = pa.table(table.get_add_actions(flatten=True))
    columns = ["modification_time", "path", "size_bytes", "min._sequence", "max._sequence"]
    if table.metadata().partition_columns or not set(columns) <= set(actions.column_names):
        return [] if not actions.num_rows else None
    times = actions["modification_time"].cast(pa.int64())
    rows = zip(times.to_pylist(), *(actions[name].to_pylist() for name in columns[1:]), strict=True)
    files = sorted(SequencedFile(*row) for row in rows if None not in row)
    apart = all(one.last < other.first for one, other in pairwise(files))
    return files if apart and len(files) == actions.num_rows else None


def results_in_order(table: DeltaTable) -> list[SequencedFile] | None:
    """The files of an output by modification time and path; None if they are not in order.

    Markers of outputs have no sequence, so files are in order if both sequences of rows and progress ascend. Rows of bounded runs carry no progress: an
    output that contains such rows gives None.
    """
    actions = pa.table(table.get_add_actions(flatten=True))
    if not actions.num_rows:
        return []
    if table.metadata().partition_columns:
        return None
    index = actions.schema.get_field_index("modification_time")
    actions = actions.set_column(index, "modification_time", actions["modification_time"].cast(pa.int64()))
    files, reached, last = list[SequencedFile](), None, -1
    for action in actions.sort_by([("modification_time", "ascending"), ("path", "ascending")]).to_pylist():
        low, high = action.get("min._progress"), action.get("max._progress")
        first, until = action.get("min._sequence"), action.get("max._sequence")
        marks = action.get("min._kind") == action.get("max._kind") == MARKER
        if None in (low, high) or action.get("null_count._progress") or (reached is not None and low < reached):
            return None
        if (first is None or until is None) and not marks:
            return None
        first, until = (last + 1, last + 1) if first is None or until is None else (first, until)
        if first <= last:
            return None
        files.append(SequencedFile(action["modification_time"], action["path"], action["size_bytes"], first, until))
        reached, last = high, last if marks else until
    return files


def ordered(path: str, table: DeltaTable, input_: Input) -> list[SequencedFile] | None:
    """The files of an input's table in order, by ``in_order`` for logs and ``results_in_order`` for outputs; None if they are not in order.

    Sequences do not ascend in an output whose stream has followed a rebuild: steps without state keep those of their input, which begin anew.
    """
    if input_.upstream is None:
        return in_order(table)
    return None if history.revised(path, int(table.version())) else results_in_order(table)


def grows(input_: Input) -> bool:
    """True if each row appended to an input's table has a larger ``_sequence`` than all earlier appended rows."""
    if input_.upstream is None:
        return True
    operator = input_.upstream.operator
    output = operator.output(input_.upstream.name)
    if output.side in {"late", "quarantine"}:
        return False
    return operator.stateful is not None or (len(operator.inputs) == 1 and grows(operator.inputs[0]))


def files_of(path: str, version: int, input_: Input) -> list[SequencedFile] | None:
    """The files of a version of an input's table in order; None if they are not in order or the version is no longer retained."""
    try:
        return ordered(path, DeltaTable(path, version=version), input_)
    except DeltaError:
        return None


def begins_in_order(path: str, input_: Input) -> tuple[int, list[SequencedFile]] | None:
    """(newest version, its files in order) of an input's table for a new stream; None if a new stream must read commit by commit.

    A new stream reads what an output's stream wrote, even if a bounded run replaced it since, unless the table was restored or cleaned.
    """
    newest = DeltaTable(path)
    files = ordered(path, newest, input_)
    if files is None or (input_.upstream is not None and history.replaced(path, -1) and not history.rewritten(path)):
        return None
    return newest.version(), files


def files_behind(path: str, version: int, input_: Input) -> tuple[int, list[SequencedFile]] | None:
    """(newest version, its files in order) of an input's table, for a reader that has read a version up to a known last row.

    None if the last row does not separate read rows from unread ones: the files are not in order, or rows after the version were replaced.
    """
    if not DeltaTable.is_deltatable(path) or not grows(input_):
        return None
    newest = DeltaTable(path)
    files = ordered(path, newest, input_)
    if files is None or (input_.upstream is not None and history.replaced(path, version)):
        return None
    return newest.version(), files


def last_read(path: str, version: int, file: int, input_: Input | None = None) -> int | None:
    """The last ``_sequence`` a reader has read; -1 if it has read none; None if the needed log entries were removed or the files are not in order.

    Args:
        path: path of the table.
        version: the last version that is read completely.
        file: index of the last file read of the next commit; -1 for none.
        input_: the input that reads the table; None for a log.
    """
    entry = entries.entry(path, version + 1) if file >= 0 else None
    if entry is None and file >= 0:
        return None
    try:
        table = DeltaTable(path, version=version) if version >= 0 else None
    except DeltaError:
        return None
    if table is not None and (in_order(table) if input_ is None else ordered(path, table, input_)) is None:
        return None
    actions = (action.get("add") for action in (entries.actions(entry) if entry is not None else ()))
    added = [json.loads(action["stats"]) for action in actions if action and action["dataChange"]][: file + 1]
    lasts = [said["maxValues"].get("_sequence") for said in added]
    files = None if table is None else pa.table(table.get_add_actions(flatten=True))
    if files is not None and "max._sequence" in files.column_names:
        lasts.append(pc.max(files["max._sequence"]).as_py())
    return max([-1, *(int(last) for last in lasts if last is not None)])


def note(file: str, lake: Lake, inputs: Iterable[TableVersion]) -> None:
    """Store the last ``_sequence`` read of each log, because the log's old entries may be removed.

    Args:
        file: path of the file to write.
        lake: lake of the logs.
        inputs: positions of the readers. Skips tables that are no logs or whose files are not in order.
    """
    known = {one.id: (one.version, one.file, last) for one in inputs if (last := _last_read(lake, one)) is not None}
    write(file, json.dumps(known).encode())


def noted(file: str, table_version: TableVersion) -> int | None:
    """The last ``_sequence`` that ``note`` stored for exactly this position; None if it stored none."""
    content = read(file)
    version, of_file, last = json.loads(content or b"{}").get(table_version.id, (None, None, None))
    return last if (version, of_file) == (table_version.version, table_version.file) else None


def _last_read(lake: Lake, table_version: TableVersion) -> int | None:
    path = lake.log(table_version.table)
    if not entries.is_table(path) or entries.id_of(path) != table_version.id:
        return None
    return last_read(path, table_version.version, table_version.file)
