"""Compaction of logs, quarantines and outputs: neighbouring small files become one, in order of ``_sequence``, while streams read them and others write.

The commit says ``dataChange=false``: a stream that reads commit by commit passes over it, and finds the files it has yet to read where they
were. A stream that begins reads the newest version file by file, in order of their modification times, so the new file has the time of the last
one it is made of.

Of an output, markers and files without rows go. Each row says itself how far time had come, so to who reads the files only the farthest marker
says something, and that only where no row has come so far.
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
from floodmark.lake.files import statistics
from floodmark.lake.sequences import in_order
from floodmark.lake.storage import file_system
from floodmark.lake.writer import Writer
from floodmark.spec.schema import MARKER

TARGET = 128 * 2**20
"""Bytes up to which neighbours become one file."""
_ROWS = 65_536
"""Of a row group, and in memory at a time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class File:
    """A file of a table.

    Args:
        path: in the table's folder, as its commit says.
        size: bytes.
        modified: modification time its commit says, ms.
        values: of the columns the table is divided by.
        first: the smallest ``_sequence`` of its rows; None without one, or where that is not known.
        last: the largest one.
        empty: there is no row in it.
        marker: all its rows are markers.
        progress: the largest one of its rows, ms; None without one, or where that is not known.
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
    """What compaction does to a table.

    Args:
        runs: neighbours, each run of which becomes one file.
        gone: files that go, and nothing comes in their place.
        keep_markers: all that is in the files stays in them.
    """

    runs: tuple[tuple[File, ...], ...] = ()
    gone: tuple[File, ...] = ()
    keep_markers: bool = True

    @property
    def fewer(self) -> int:
        """By how many files the table has fewer then."""
        return len(self.gone) + sum(len(run) - 1 for run in self.runs)


def of_log(table: DeltaTable, target: int = TARGET) -> Plan:
    """What merges neighbours of a log up to so many bytes; nothing where its files have no order that is known."""
    if in_order(table) is None:
        return Plan()
    files = sorted(files_of(table), key=lambda file: (file.modified, file.path))
    return Plan(tuple(runs_of(files, target)))


def of_quarantine(table: DeltaTable, target: int = TARGET) -> Plan:
    """What merges neighbours of the quarantine of a source up to so many bytes; its rows say themselves in which order they came."""
    files = sorted(files_of(table), key=lambda file: (file.modified, file.path))
    return Plan(tuple(runs_of(files, target)))


def of_output(table: DeltaTable, target: int = TARGET) -> Plan:
    """What merges neighbours of an output up to so many bytes, of each asset partition its own, and lets old markers go.

    Where the files have no order that is known, as bounded runs have put rows between those of a stream, neighbours are next to each other by
    the sequences of their rows.
    """
    files = files_of(table)
    farthest = max((file for file in files if file.progress is not None), key=_reach, default=None)
    gone = tuple(file for file in files if file.empty or (file.marker and _is_redundant(file, farthest)))
    going, parts = set(gone), defaultdict[tuple[tuple[str, str | None], ...], list[File]](list)
    for file in files:
        if file not in going:
            parts[file.values].append(file)
    runs = (run for part in parts.values() for run in runs_of(_neighbours(part), target))
    return Plan(tuple(runs), gone, keep_markers=not any(field.name == "_kind" for field in table.schema().fields))


def _reach(file: File) -> tuple[int, bool, int, str]:
    """By which the farthest of files is found: of several the one with rows, and then the last one."""
    return NEVER if file.progress is None else file.progress, not file.marker, file.modified, file.path


def _is_redundant(file: File, farthest: File | None) -> bool:
    """Whether another file says what a file with markers alone says."""
    return file.progress is not None and farthest is not None and file is not farthest


def compact(path: str, target: int = TARGET, plan: Callable[[DeltaTable, int], Plan] = of_log) -> int:
    """Merge neighbouring files of a table.

    Args:
        path: of the table.
        target: bytes up to which files are merged.
        plan: what is done; by default that of a log.

    Returns:
        By how many files the table has fewer now; 0 as well where nothing is to do.

    Raises:
        LifecycleError: LIFECYCLE-004, another writer came in between every time.
    """
    writer = Writer(path)
    return carry_out(writer, plan(writer.table(), target))


def carry_out(writer: Writer, plan: Plan) -> int:
    """Do what is planned, but leave alone what somebody has replaced meanwhile. Returns, and raises, what ``compact`` does."""
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


def without(path: str, table: DeltaTable, file: File, sequence: int) -> tuple[list[RemoveAction], list[AddAction]]:
    """What takes one row out of a file of a log: the file goes, and one with its other rows comes, where there are any."""
    if file.first == file.last == sequence:
        return _removals([file]), []
    return _removals([file]), [_written(path, table, [file], lambda rows: _without_row(rows, sequence))]


def files_of(table: DeltaTable) -> list[File]:
    """The files of a table's newest version, by what its log says of them."""
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
    """Files of an output in the order in which they came, or else in that of their sequences."""
    came = sorted(files, key=lambda file: (file.modified, file.path))
    numbered = [(file.first, file.last) for file in came if file.first is not None and file.last is not None]
    if all(one[1] < other[0] for one, other in pairwise(numbered)):
        return came
    return sorted(came, key=lambda file: (file.first is None, file.first, file.last))


def runs_of(files: Sequence[File], target: int) -> Iterator[tuple[File, ...]]:
    """Neighbours that become one file each.

    A file larger than all behind it in its run is left alone: with each of its bytes at least one other is written, so each byte is written a
    logarithm of times, however often a table is compacted.
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
    """The run without the files at its start that are larger than all behind them; nothing where fewer than two files are left.

    Args:
        run: neighbours.
        size: of all of them, bytes.
    """
    for first, file in enumerate(run[:-1]):
        size -= file.size
        if file.size <= size:
            yield tuple(run[first:])
            return


def _merged(path: str, table: DeltaTable, files: Sequence[File], *, keep_markers: bool) -> AddAction:
    """Write the rows of files into a new one, which nothing names yet."""
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
    columns = [column for column in schema.names if column != "_sequence"]  # every value of that is another one
    footers: list[pq.FileMetaData] = []
    with pq.ParquetWriter(
        file_path, schema, filesystem=store, compression="zstd", use_dictionary=columns, metadata_collector=footers
    ) as writer:
        for group in _groups(retain(_rows(path, files, schema))):
            writer.write_table(group)
    size, modified = store.get_file_info(file_path).size, max(file.modified for file in files)
    return AddAction(name, size, values, modified, False, statistics(footers[0]))


def _groups(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    """The same rows in row groups of ``_ROWS`` rows or more, but for the last one: of each batch the writer would make a row group of its own."""
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
                yield _fitted(batch, schema)


def _without_row(batches: Iterable[pa.RecordBatch], sequence: int) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        yield batch.filter(pc.fill_null(pc.not_equal(batch["_sequence"], sequence), True))


def _without_markers(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Rows, and behind them the farthest marker, where no row has come so far."""
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


def _fitted(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """With the columns of the table; one that was added after the file was written is null."""
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
