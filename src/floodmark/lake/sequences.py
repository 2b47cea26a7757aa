"""The files of a table in the order of the sequences of their rows, and how far a reader has got in it."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from floodmark.lake import entries, history
from floodmark.lake.paths import Lake
from floodmark.lake.storage import read, write
from floodmark.lifecycle.savepoint import TableVersion
from floodmark.spec.operator import Input
from floodmark.spec.schema import MARKER

FAR_BEHIND = 1_000
"""Commits, from which on a stream that starts reads the files of a table that are there now instead of commit by commit."""


@dataclass(frozen=True, slots=True, order=True)
class SequencedFile:
    """A file of a log or an output; they are ordered as a stream reads them that begins with a version.

    Args:
        modified: modification time its commit says, ms.
        path: in the table's folder, as its commit says.
        size: bytes.
        first: the smallest ``_sequence`` of its rows; of one with markers alone the one behind all rows before it.
        last: the largest one.
    """

    modified: int
    path: str
    size: int
    first: int
    last: int


def in_order(table: DeltaTable) -> list[SequencedFile] | None:
    """The files of a log, ordered by modification time and path; None where that is not the order of their sequences, or that is not known.

    Source: a Delta stream reads the version it begins with in this order, ``DeltaSource`` of Delta 4.
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
    """The same of an output, of which markers have no sequence: they stand in order where the progress of all files does.

    None as well where bounded runs have put rows between those of the stream: these say no progress.
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


def ordered(table: DeltaTable, input_: Input) -> list[SequencedFile] | None:
    """The files of an input's table in their order; None where there is none."""
    return in_order(table) if input_.upstream is None else results_in_order(table)


def grows(input_: Input) -> bool:
    """Whether each row that comes to an input's table has a larger ``_sequence`` than those that came before it, whatever else is in there."""
    if input_.upstream is None:
        return True
    operator = input_.upstream.operator
    output = operator.output(input_.upstream.name)
    if output.side in {"late", "quarantine"}:
        return False
    return operator.stateful is not None or (len(operator.inputs) == 1 and grows(operator.inputs[0]))


def files_of(path: str, version: int, input_: Input) -> list[SequencedFile] | None:
    """The files of a version of an input's table; None as ``ordered``, and where the log does not tell any more."""
    try:
        return ordered(DeltaTable(path, version=version), input_)
    except DeltaError:
        return None


def begins_in_order(path: str, input_: Input) -> tuple[int, list[SequencedFile]] | None:
    """The newest version of an input's table and its files in order, for a stream that has read nothing yet; None where it cannot begin with these.

    A stream reads what an output's stream has written, also where a bounded run has put something else in its place since, unless the
    table was taken back or cleaned.
    """
    newest = DeltaTable(path)
    files = ordered(newest, input_)
    if files is None or (input_.upstream is not None and history.replaced(path, -1) and not history.rewritten(path)):
        return None
    return newest.version(), files


def files_behind(path: str, version: int, input_: Input) -> tuple[int, list[SequencedFile]] | None:
    """The newest version of an input's table and its files in order, for a reader that has read a version and knows its last row.

    None where what is read is not told apart by that row from what is not: the files have no order, or rows behind the version were replaced.
    """
    if not DeltaTable.is_deltatable(path) or not grows(input_):
        return None
    newest = DeltaTable(path)
    files = ordered(newest, input_)
    if files is None or (input_.upstream is not None and history.replaced(path, version)):
        return None
    return newest.version(), files


def last_read(path: str, version: int, file: int, input_: Input | None = None) -> int | None:
    """The last ``_sequence`` a reader has read; -1 for none, None where the table's log does not tell any more.

    Args:
        path: of the table.
        version: that is read completely.
        file: number of the last file read of the commit behind it; -1 for none.
        input_: the input whose table it is; None for a log.
    """
    entry = entries.entry(path, version + 1) if file >= 0 else None
    if entry is None and file >= 0:
        return None
    try:
        table = DeltaTable(path, version=version) if version >= 0 else None
    except DeltaError:
        return None
    if table is not None and (in_order(table) if input_ is None else ordered(table, input_)) is None:
        return None
    actions = (action.get("add") for action in (entries.actions(entry) if entry is not None else ()))
    added = [json.loads(action["stats"]) for action in actions if action and action["dataChange"]][: file + 1]
    lasts = [said["maxValues"].get("_sequence") for said in added]
    files = None if table is None else pa.table(table.get_add_actions(flatten=True))
    if files is not None and "max._sequence" in files.column_names:
        lasts.append(pc.max(files["max._sequence"]).as_py())
    return max([-1, *(int(last) for last in lasts if last is not None)])


def note(file: str, lake: Lake, inputs: Iterable[TableVersion]) -> None:
    """Write down the last ``_sequence`` that is read of each log: its own log cannot tell for ever.

    Args:
        file: to write.
        lake: of the logs.
        inputs: how far each is read; those that are no logs, or whose files have no order, are left out.
    """
    known = {one.id: (one.version, one.file, last) for one in inputs if (last := _last_read(lake, one)) is not None}
    write(file, json.dumps(known).encode())


def noted(file: str, table_version: TableVersion) -> int | None:
    """The last ``_sequence`` that is read of a log, by what ``note`` has written of just that position; None where it has not."""
    content = read(file)
    version, of_file, last = json.loads(content or b"{}").get(table_version.id, (None, None, None))
    return last if (version, of_file) == (table_version.version, table_version.file) else None


def _last_read(lake: Lake, table_version: TableVersion) -> int | None:
    path = lake.log(table_version.table)
    if not entries.is_table(path) or entries.id_of(path) != table_version.id:
        return None
    return last_read(path, table_version.version, table_version.file)
