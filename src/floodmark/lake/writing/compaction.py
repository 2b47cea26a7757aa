"""Compaction of logs, quarantines and outputs: merges neighbouring small files in order of ``_sequence``, concurrently with readers and writers.

The commit sets ``dataChange=false``: a stream that reads commit by commit skips the commit, and the files it has yet to read stay in place until they are
vacuumed. A new stream reads the newest version file by file in order of modification time, so a merged file has the modification time of its last part.

In an output, empty files and redundant markers are removed. Each row carries its progress, so a reader of files needs only the marker with the greatest
progress, and only if no row has that progress.
"""

from __future__ import annotations

import time
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake import DeltaTable
from deltalake.transaction import AddAction, RemoveAction

from floodmark.core import crash
from floodmark.core.time import NEVER
from floodmark.lake.folder.storage import file_system
from floodmark.lake.table.files import statistics
from floodmark.lake.table.sequences import in_order
from floodmark.lake.writing.writer import Writer
from floodmark.spec.values.schema import MARKER

TARGET = 128 * 2**20
"""Largest size of a merged file, bytes."""
_ROWS = 65_536
"""Rows per row group, and rows held in memory at a time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class File:
    """A data file of a table, described by its commit.

    Args:
        path: path in the table's folder, URL-encoded as in the commit.
        size: size, bytes.
        modified: modification time, ms.
        values: (partition column, value) pairs.
        first: the smallest ``_sequence`` of its rows; None if no row has one, or if unknown.
        last: the largest ``_sequence`` of its rows; None as for ``first``.
        empty: True if the file has no rows.
        marker: True if all its rows are markers.
        progress: the largest ``_progress`` of its rows, ms; None as for ``first``.
    """

    path: str
    size: int
    modified: int
    values: tuple[tuple[str, str | None], ...] = ()
    first: int | None = None
    last: int | None = None
    empty: bool = False
    marker: bool = False
    progress: int | None = None


@dataclass(frozen=True, slots=True)
class Plan:
    """The files that a compaction merges and removes.

    Args:
        runs: runs of neighbouring files; each run becomes one file.
        gone: files that are removed without replacement.
        keep_markers: True to retain markers in merged files; False to retain only a marker beyond all rows.
    """

    runs: tuple[tuple[File, ...], ...] = ()
    gone: tuple[File, ...] = ()
    keep_markers: bool = True

    @property
    def fewer(self) -> int:
        """Number of files by which the plan shrinks the table."""
        return len(self.gone) + sum(len(run) - 1 for run in self.runs)


def of_log(table: DeltaTable, target: int = TARGET) -> Plan:
    """Plan merges of neighbouring files of a log. The plan is empty if the order of the files is unknown.

    Args:
        table: the log.
        target: largest size of a merged file, bytes.
    """
    if in_order(table) is None:
        return Plan()
    files = sorted(files_of(table), key=lambda file: (file.modified, file.path))
    return Plan(tuple(runs_of(files, target)))


def of_quarantine(table: DeltaTable, target: int = TARGET) -> Plan:
    """Plan merges of neighbouring files of a source's quarantine. Its rows carry their own order.

    Args:
        table: the quarantine.
        target: largest size of a merged file, bytes.
    """
    files = sorted(files_of(table), key=lambda file: (file.modified, file.path))
    return Plan(tuple(runs_of(files, target)))


def of_output(table: DeltaTable, target: int = TARGET) -> Plan:
    """Plan merges of neighbouring files of an output, within each asset partition, and the removal of redundant markers.

    Neighbours are adjacent in modification time. If the sequences of the files overlap in that order, as after bounded runs, neighbours are adjacent
    in their smallest ``_sequence``.

    Args:
        table: the output.
        target: largest size of a merged file, bytes.
    """
    files = files_of(table)
    farthest = max((file for file in files if file.progress is not None), key=_progress_order, default=None)
    gone = tuple(file for file in files if file.empty or (file.marker and _is_redundant(file, farthest)))
    going, parts = set(gone), defaultdict[tuple[tuple[str, str | None], ...], list[File]](list)
    for file in files:
        if file not in going:
            parts[file.values].append(file)
    runs = (run for part in parts.values() for run in runs_of(_neighbours(part), target))
    return Plan(tuple(runs), gone, keep_markers=not any(field.name == "_kind" for field in table.schema().fields))


def _progress_order(file: File) -> tuple[int, bool, int, str]:
    """Sort key of the file with the greatest progress; among equals, files with rows are preferred, then later ones."""
    return NEVER if file.progress is None else file.progress, not file.marker, file.modified, file.path


def _is_redundant(file: File, farthest: File | None) -> bool:
    """True if another file carries at least the progress of a file of markers."""
    return file.progress is not None and farthest is not None and file is not farthest


def compact(path: str, target: int = TARGET, plan: Callable[[DeltaTable, int], Plan] = of_log) -> int:
    """Merge neighbouring files of a table.

    Args:
        path: path of the table.
        target: largest size of a merged file, bytes; 128 MiB by default.
        plan: (table, target) -> files to merge and to remove; by default the plan for a log.

    Returns:
        Number of files by which the table shrank.

    Raises:
        LifecycleError: LIFECYCLE-004, every attempt conflicted with another writer.
    """
    writer = Writer(path)
    return carry_out(writer, plan(writer.table(), target))


def carry_out(writer: Writer, plan: Plan) -> int:
    """Execute a plan. Skips files that another writer has replaced since. Returns and raises as ``compact``."""
    fewer = 0
    if plan.gone:
        crash.point("markers.before_commit")
        fewer += len(plan.gone) if writer.rewrite(_removals(plan.gone), []) else 0
        crash.point("markers.after_commit")
    for neighbours in plan.runs:
        merged = _merged(writer.path, writer.table(), neighbours, keep_markers=plan.keep_markers)
        crash.point("compaction.before_commit")
        fewer += len(neighbours) - 1 if writer.rewrite(_removals(neighbours), [merged]) else 0
        crash.point("compaction.after_commit")
    return fewer


def without(
    path: str,
    table: DeltaTable,
    file: File,
    unwanted: Callable[[pa.RecordBatch], pa.Array],
    *,
    empty: bool = False,
) -> tuple[list[RemoveAction], list[AddAction]]:
    """The actions that remove rows from a file of a log: the file is replaced by a file with its other rows, if there are any.

    Args:
        path: path of the log.
        table: the opened log.
        file: the file that contains the rows.
        unwanted: rows -> for each row, True to remove it.
        empty: True if no other rows are in the file.
    """
    if empty:
        return _removals([file]), []

    def wanted(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return (batch.filter(pc.invert(pc.fill_null(unwanted(batch), False))) for batch in batches)

    return _removals([file]), [_written(path, table, [file], wanted)]


def files_of(table: DeltaTable) -> list[File]:
    """The files of the opened version of a table, with statistics from its log."""
    divided = table.metadata().partition_columns
    actions = pa.table(table.get_add_actions(flatten=True)).to_pylist()
    return [_file(action, divided) for action in actions]


def _file(action: Mapping[str, object], divided: Sequence[str]) -> File:
    known = {
        name: int(value)
        for name in ("min._sequence", "max._sequence", "max._progress", "min._kind", "max._kind", "num_records")
        if isinstance(value := action.get(name), int)
    }
    values = ((name, action[f"partition.{name}"]) for name in divided)
    modified, size = action["modification_time"], action["size_bytes"]
    assert isinstance(modified, int)
    assert isinstance(size, int)
    return File(
        path=str(action["path"]),
        size=size,
        modified=modified,
        values=tuple((name, None if value is None else str(value)) for name, value in values),
        first=known.get("min._sequence"),
        last=known.get("max._sequence"),
        empty=known.get("num_records") == 0,
        marker=known.get("min._kind") == known.get("max._kind") == MARKER,
        progress=known.get("max._progress"),
    )


def _neighbours(files: Iterable[File]) -> list[File]:
    """Files of an output by modification time if their sequences ascend in that order, else by sequence."""
    came = sorted(files, key=lambda file: (file.modified, file.path))
    numbered = [(file.first, file.last) for file in came if file.first is not None and file.last is not None]
    if all(one[1] < other[0] for one, other in pairwise(numbered)):
        return came
    return sorted(came, key=lambda file: (file.first is None, file.first, file.last))


def runs_of(files: Sequence[File], target: int) -> Iterator[tuple[File, ...]]:
    """Runs of neighbouring files that become one file each.

    Leading files of a run that are larger than all later files together are not merged. So each byte is rewritten at most logarithmically often, however
    often the table is compacted.

    Args:
        files: files in order.
        target: largest size of a merged file, bytes.
    """
    run, size = list[File](), 0
    for file in files:
        if size + file.size > target:
            yield from _worthwhile(run, size)
            run, size = [], 0
        run.append(file)
        size += file.size
    yield from _worthwhile(run, size)


def _worthwhile(run: Sequence[File], size: int) -> Iterator[tuple[File, ...]]:
    """The run without leading files that are larger than all later ones together; nothing if fewer than two files remain.

    Args:
        run: neighbouring files.
        size: their total size, bytes.
    """
    for first, file in enumerate(run[:-1]):
        size -= file.size
        if file.size <= size:
            yield tuple(run[first:])
            return


def _merged(path: str, table: DeltaTable, files: Sequence[File], *, keep_markers: bool) -> AddAction:
    """Write the rows of files into a new file, which no commit names yet."""
    return _written(path, table, files, iter if keep_markers else _without_markers)


def _written(
    path: str,
    table: DeltaTable,
    files: Sequence[File],
    retain: Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]],
) -> AddAction:
    values = dict(files[0].values)
    whole = pa.schema(table.schema().to_arrow())
    schema = pa.schema([field for field in whole if field.name not in values])
    folders = [part for part in Path(unquote(files[0].path)).parts[:-1] if "=" in part]
    name = "/".join([*folders, f"compacted-{uuid.uuid4().hex}.parquet"])
    store, file_path = file_system(f"{path}/{name}")
    store.create_dir(file_path.rsplit("/", 1)[0])
    columns = [
        column for column in schema.names if column != "_sequence"
    ]  # all its values differ: a dictionary would not help
    footers: list[pq.FileMetaData] = []
    with pq.ParquetWriter(
        file_path, schema, filesystem=store, compression="zstd", use_dictionary=columns, metadata_collector=footers
    ) as writer:
        for group in _groups(retain(_rows(path, files, schema))):
            writer.write_table(group)
    size, modified = store.get_file_info(file_path).size, max(file.modified for file in files)
    return AddAction(name, size, values, modified, False, statistics(footers[0]))


def _groups(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    """The batches combined into row groups of at least ``_ROWS`` rows, except the last. The Parquet writer would make a row group of each batch."""
    group, size = list[pa.RecordBatch](), 0
    for batch in batches:
        group.append(batch)
        size += batch.num_rows
        if size >= _ROWS:
            yield pa.Table.from_batches(group)
            group, size = [], 0
    if group:
        yield pa.Table.from_batches(group)


def _rows(path: str, files: Sequence[File], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    for file in files:
        source, at = file_system(f"{path}/{unquote(file.path)}")
        with source.open_input_file(at) as content:
            for batch in pq.ParquetFile(content).iter_batches(_ROWS):
                yield _with_columns(batch, schema)


def _without_markers(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """All rows except markers, followed by the marker with the greatest progress if it is beyond the progress of all rows."""
    reached, farthest = NEVER - 1, None
    for batch in batches:
        marks = pc.equal(batch["_kind"], MARKER)
        rows = batch.filter(pc.invert(marks))
        if rows.num_rows:
            reached = max(reached, pc.max(rows["_progress"]).as_py() or reached)
            yield rows
        for mark in _farthest(batch.filter(marks)):
            if farthest is None or _progress(mark) > _progress(farthest):
                farthest = mark
    if farthest is not None and _progress(farthest) > reached:
        yield farthest


def _farthest(marks: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    if marks.num_rows:
        at = pc.index(marks["_progress"], pc.max(marks["_progress"])).as_py()
        yield marks.slice(max(at, 0), 1)


def _progress(mark: pa.RecordBatch) -> int:
    progress = mark["_progress"][0].as_py()
    return NEVER if progress is None else int(progress)


def _with_columns(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """A batch with the columns of the table. Columns added after the file was written are null."""
    columns = [
        batch.column(column.name).cast(column.type)
        if column.name in batch.schema.names
        else pa.nulls(batch.num_rows, column.type)
        for column in schema
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _removals(files: Sequence[File]) -> list[RemoveAction]:
    now = time.time_ns() // 1_000_000
    return [RemoveAction(unquote(file.path), False, now, file.size, dict(file.values)) for file in files]
