"""Canonical savepoints of streams on the embedded engine (``lake/restore/canonical``): state exported as rows, and such rows imported as state."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow.fs import FileSelector

from floodmark.core.time import NEVER
from floodmark.engines.embedded.state import files, segment
from floodmark.engines.embedded.state.batch import Batch, file_of
from floodmark.engines.embedded.state.checkpoint import NAME, Checkpoint
from floodmark.engines.embedded.state.segment import INDEX, Key
from floodmark.engines.embedded.state.store import State, fronted, parted, stood_for
from floodmark.engines.starting import check_savepoint
from floodmark.lake.folder.paths import Lake
from floodmark.lake.folder.storage import file_system
from floodmark.lake.restore import canonical
from floodmark.lake.restore.canonical import ROWS, BatchMetadata, Fold, Passed
from floodmark.lake.restore.savepoints import Savepoint
from floodmark.lake.stream import positions
from floodmark.lake.stream.carrier import progress_of, watermark_of
from floodmark.lake.stream.checkpoint import Position
from floodmark.lake.table import history
from floodmark.lake.table.outputs import input_path
from floodmark.lifecycle.savepoint import Manifest

_PIECE = 4_000_000
"""Most bytes of a chunk in one row."""
_TOGETHER = 64_000_000
"""Bytes of state that are in memory at a time, and in one file."""


def export(savepoint: Savepoint, target: str) -> str:
    """Write a savepoint of this engine to another folder or store in the canonical format; returns the folder written.

    Raises:
        StateError: STATE-021 the savepoint is damaged, STATE-041 another engine has made it.
    """
    check_savepoint(savepoint, NAME)
    return canonical.export(savepoint, target, unfold)


def import_savepoint(lake: Lake, source: str) -> Savepoint:
    """Import a canonical savepoint into a lake as a savepoint for this engine.

    Raises:
        StateError: STATE-020 the source is of a newer format, STATE-021 the source is damaged or no savepoint.
        LifecycleError: LIFECYCLE-003, another savepoint of the operator is being made.
    """
    return canonical.import_savepoint(lake, source, NAME, folding(lake))


def folding(lake: Lake) -> Fold:
    """The function that makes a checkpoint from a canonical savepoint.

    Args:
        lake: of the inputs.
    """

    def fold(state: str | None, checkpoint: object, manifest: Manifest, marks: BatchMetadata) -> None:
        assert isinstance(checkpoint, Checkpoint)
        tables = {name: table for name, table, *_ in manifest.graph["inputs"]}
        batch, by_input = manifest.batch, positions.of_inputs(manifest.graph, marks.positions)
        checkpoint.begin()
        segments = list(_segments(checkpoint, state)) if state is not None else []
        after = progress_of(marks.after)
        made = Batch(
            number=batch,
            progress=progress_of(marks.before) if state is not None else after,
            reached={name: max(after, _reached(lake, tables[name], position)) for name, position in by_input.items()},
            clock=marks.clock,
            positions=tuple(by_input.values()),
            owed=(),
            segments=tuple(segments),
            next_merge=len(segments),
            behind={
                name: marks.passed[position.table].sequence
                for name, position in by_input.items()
                if position.table in marks.passed
            },
        )
        folder = files.local(checkpoint.path)
        segment.write(folder, file_of(batch), made.as_json(), {})
        files.replace(checkpoint.path, folder, file_of(batch))
        checkpoint.mark(batch)

    return fold


def write_readable(state: str | None, folder: str, batch: int, marks: BatchMetadata) -> None:
    """Write a checkpoint that is only read: it has no positions, from which a stream could resume.

    Args:
        state: folder of state rows; None without state.
        folder: of the checkpoint.
        batch: the micro-batch.
        marks: of the micro-batch.
    """
    checkpoint = Checkpoint(folder)
    checkpoint.begin()
    segments = tuple(_segments(checkpoint, state)) if state is not None else ()
    progress = progress_of(marks.before)
    made = Batch(
        number=batch, progress=progress, reached={}, clock=marks.clock, positions=(), owed=(), segments=segments
    )
    segment.write(folder, file_of(batch), made.as_json(), {})


def _reached(lake: Lake, table: str, position: Position) -> int:
    """The progress of an input at a position."""
    progress = history.progress(input_path(lake, table), position.version) if position.table else None
    return NEVER if progress is None else progress


def unfold(folder: str, batch: int, target: str) -> BatchMetadata:
    """Write the state of a checkpoint in the canonical format; returns the marks of the micro-batch."""
    state = State(Checkpoint(folder))
    last = state.batch
    assert last is not None
    assert last.number == batch
    keys = sorted(state.keys())
    if keys:
        store, path = file_system(target)
        store.create_dir(path)
        with pq.ParquetWriter(f"{path}/0.parquet", ROWS, filesystem=store, compression="zstd") as writer:
            for rows in _batches(_rows(state, keys)):
                writer.write_table(pa.Table.from_pylist(rows, ROWS))
    watermark = watermark_of(last.progress)
    reached = watermark_of(max(last.progress, min(last.reached.values())))
    ids = dict(zip(last.reached, last.positions, strict=True))
    passed = {ids[name].table: Passed(sequence, ids[name].version) for name, sequence in last.behind.items()}
    return BatchMetadata(watermark, reached, last.clock, list(last.positions), passed)


def _rows(state: State, keys: list[Key]) -> Iterator[dict[str, Any]]:
    """The values of all key groups, each with its own: the format knows no group that stands for others."""
    for (group, number), at in itertools.chain(((key, key) for key in keys if key[0] >= 0), _of_stand_ins(keys)):
        value = state.get(at)
        assert value is not None
        if number == INDEX:
            deadline, index = parted(value)
            yield {"group": group, "deadline": deadline, "index": index}
            continue
        cut = [value[start : start + _PIECE] for start in range(0, len(value), _PIECE)]
        for piece, part in enumerate(cut):
            yield {"group": group, "number": number, "piece": piece, "pieces": len(cut), "chunk": part}


def _of_stand_ins(keys: list[Key]) -> Iterator[tuple[Key, Key]]:
    """(key of a key group without state of its own, where its value is)."""
    held, numbers = {group for group, _ in keys}, dict[int, list[int]]()
    for group, number in keys:
        if group < 0:
            numbers.setdefault(group, []).append(number)
    for stand_in, own in numbers.items():
        for group in stood_for(stand_in):
            if group not in held:
                yield from (((group, number), (stand_in, number)) for number in own)


def _batches(rows: Iterator[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    pending, size = list[dict[str, Any]](), 0
    for row in rows:
        pending.append(row)
        size += len(row.get("chunk") or row["index"])
        if size >= _TOGETHER:
            yield pending
            pending, size = [], 0
    if pending:
        yield pending


def _segments(checkpoint: Checkpoint, state: str) -> Iterator[str]:
    """Write rows of state as files of a checkpoint; yields the names of the files."""
    values, size = dict[Key, bytes | None](), 0
    number = 0
    for key, value in _values(state):
        values[key] = value
        size += len(value)
        if size >= _TOGETHER:
            yield _segment(checkpoint, number, values)
            values, size, number = {}, 0, number + 1
    if values:
        yield _segment(checkpoint, number, values)


def _segment(checkpoint: Checkpoint, number: int, values: Mapping[Key, bytes | None]) -> str:
    file = f"merged/{number}"
    with files.working(checkpoint.path, ()) as folder:
        segment.write(folder, file, {"format": 1, "of": []}, values)
        files.replace(checkpoint.path, folder, file)
    return file


def _values(state: str) -> Iterator[tuple[Key, bytes]]:
    """Key and value of each value of which all pieces exist; the pieces of one value are in one file."""
    store, folder = file_system(state)
    files = [info.path for info in store.get_file_info(FileSelector(folder)) if info.path.endswith(".parquet")]
    for file in sorted(files):
        cut = dict[Key, dict[int, bytes]]()
        with store.open_input_file(file) as content:
            for rows in pq.ParquetFile(content).iter_batches(batch_size=1024):
                for row in rows.to_pylist():
                    if row["index"] is not None:
                        yield (row["group"], INDEX), fronted(row["deadline"], row["index"])
                        continue
                    key = row["group"], row["number"]
                    pieces = cut.setdefault(key, {})
                    pieces[row["piece"]] = row["chunk"]
                    if len(pieces) == row["pieces"]:
                        yield key, b"".join(pieces[piece] for piece in range(len(pieces)))
                        del cut[key]
