"""State in the canonical format of savepoints, divided among another number of key groups. Neither a key group nor all of them need fit into memory."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow.fs import FileSelector

from floodmark.engines.frames.sorting import sorted_batches
from floodmark.engines.frames.spilled import SpilledStore
from floodmark.lake.folder.storage import file_system
from floodmark.lake.restore.canonical import ROWS
from floodmark.semantics.kernels.regrouping import Piece, join, pieces, shared
from floodmark.semantics.kernels.stage import AnyStage
from floodmark.spec.graph.stages import first_group
from floodmark.spec.graph.steps import MOST_KEY_GROUPS

GroupsOf = Callable[[AnyStage, pa.Table], pa.ChunkedArray]
"""(stage, its key columns, and the column ``place``) -> key group of each row, in the order of ``place``."""

_MEMORY = 1 << 27
"""Most bytes of state in memory at a time, about."""
_TOGETHER = 1 << 24
"""Bytes of parts of key groups that are written, and of keys whose groups are computed, at a time."""
_PIECE = 4_000_000
"""Most bytes of a chunk in one row."""
_ANY = 1 << 62
_PARTS = pa.schema(
    [("group", pa.int32()), ("place", pa.int64()), ("deadline", pa.int64()), ("part", pa.large_binary())]
)
_INDEX = -(1 << 62)
"""Place of the index among the chunks of a group."""


def regroup(stages: Sequence[AnyStage], source: str, target: str, groups: int, groups_of: GroupsOf) -> None:
    """Write the state rows of a canonical savepoint with another number of key groups.

    Args:
        stages: of the state, in their order.
        source: folder of the state rows.
        target: folder to create.
        groups: the number.
        groups_of: by the other number.
    """
    store, path = file_system(target)
    store.create_dir(path)
    with pq.ParquetWriter(f"{path}/0.parquet", ROWS, filesystem=store, compression="zstd") as writer:
        for number, stage in enumerate(stages):
            first = first_group(number)
            stores = _stores(source, first)
            parts = sorted_batches(_divided(stage, stores, groups, groups_of), ("group", "place"), _MEMORY)
            for batch in _together(row | {"group": first + row["group"]} for row in _joined(stage, parts)):
                writer.write_batch(batch)


def _divided(
    stage: AnyStage, stores: Iterator[tuple[int | None, SpilledStore]], groups: int, groups_of: GroupsOf
) -> Iterator[pa.RecordBatch]:
    """The parts of all key groups of a stage as ``_PARTS``, by their new group."""
    numbers, first = itertools.count(), True
    pending, size = list[tuple[int | None, Piece]](), 0
    for deadline, store in stores:
        for part in shared(stage, store) if first else ():
            row: dict[str, Any] = {"place": next(numbers), "deadline": deadline, "part": part}
            yield pa.RecordBatch.from_pylist([row | {"group": group} for group in range(groups)], _PARTS)
        first = False
        for piece in pieces(stage, store):
            pending.append((deadline, piece))
            size += piece.size
            if size > _TOGETHER:
                yield from _parts(stage, pending, groups_of, numbers)
                pending, size = [], 0
    if pending:
        yield from _parts(stage, pending, groups_of, numbers)


def _parts(
    stage: AnyStage, pending: list[tuple[int | None, Piece]], groups_of: GroupsOf, numbers: Iterator[int]
) -> Iterator[pa.RecordBatch]:
    """Parts of pieces; the groups of all keys are computed at once."""
    keys = pa.concat_tables(piece.keys for _, piece in pending)
    keys = keys.set_column(keys.num_columns - 1, "place", pa.array(np.arange(keys.num_rows)))
    groups, first = groups_of(stage, keys).to_numpy(), 0
    for deadline, piece in pending:
        own = groups[first : first + piece.keys.num_rows]
        first += piece.keys.num_rows
        for group in np.unique(own).tolist():
            row = {"group": group, "place": next(numbers), "deadline": deadline, "part": piece.part(own == group)}
            yield pa.RecordBatch.from_pylist([row], _PARTS)


def _stores(source: str, first: int) -> Iterator[tuple[int | None, SpilledStore]]:
    """The deadline and the state of each key group of a stage. A store is closed when the next one is asked for.

    Args:
        source: folder of the state rows.
        first: number of the stage's first key group.
    """
    rows = sorted_batches(_read(source, first), ("group", "number", "piece"), _MEMORY)
    for _, run in _runs(rows):
        store, deadline, cut = SpilledStore(_TOGETHER, _ANY), None, list[bytes]()
        for row in itertools.chain.from_iterable(batch.to_pylist() for batch in run):
            if row["index"] is not None:
                deadline = row["deadline"]
                store.put_index(row["index"])
                continue
            cut.append(row["chunk"])
            if len(cut) == row["pieces"]:
                store.put(row["number"], b"".join(cut))
                cut = []
        yield deadline, store
        store.close()


def _read(source: str, first: int) -> Iterator[pa.RecordBatch]:
    """The state rows of a stage, where the index of a group comes first."""
    store, folder = file_system(source)
    files = [info.path for info in store.get_file_info(FileSelector(folder)) if info.path.endswith(".parquet")]
    for path in sorted(files):
        with store.open_input_file(path) as content:
            for batch in pq.ParquetFile(content).iter_batches(batch_size=256):
                groups = batch.column("group")
                rows = batch.filter(pc.and_(pc.greater_equal(groups, first), pc.less(groups, first + MOST_KEY_GROUPS)))
                numbers = pc.fill_null(rows.column("number"), _INDEX)
                places = pc.fill_null(rows.column("piece"), 0)
                columns = dict(zip(rows.schema.names, rows.columns, strict=True))
                columns |= {"number": numbers, "piece": places}
                yield pa.RecordBatch.from_pydict({name: columns[name] for name in ROWS.names}, ROWS)


def _joined(stage: AnyStage, parts: Iterator[pa.RecordBatch]) -> Iterator[dict[str, Any]]:
    """Sorted parts -> state rows."""
    for group, run in _runs(parts):
        store, deadlines = SpilledStore(_TOGETHER, _ANY), list[int]()
        join(stage, store, _noted(run, deadlines))
        index = store.index()
        if index is not None:
            yield {"group": group, "deadline": min(deadlines, default=None), "index": index}
        for number in sorted({*store.chunks, *store.spilled}):
            value = store.get(number)
            cut = [value[start : start + _PIECE] for start in range(0, len(value), _PIECE)]
            for piece, chunk in enumerate(cut):
                yield {"group": group, "number": number, "piece": piece, "pieces": len(cut), "chunk": chunk}
        store.close()


def _noted(run: Iterator[pa.RecordBatch], deadlines: list[int]) -> Iterator[bytes]:
    """The parts of a group; their deadlines are noted. Something of the new group waits for none before the first of them."""
    for batch in run:
        for row in batch.to_pylist():
            if row["deadline"] is not None:
                deadlines.append(row["deadline"])
            yield row["part"]


def _runs(batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[int, Iterator[pa.RecordBatch]]]:
    """Sorted batches -> each group and its rows, which are to be read before the next group."""
    return (
        (group, (batch for _, batch in run)) for group, run in itertools.groupby(_cut(batches), lambda pair: pair[0])
    )


def _cut(batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Batches of one group each."""
    for batch in batches:
        groups = batch.column(batch.schema.get_field_index("group")).to_numpy()
        if not len(groups):
            continue
        bounds = [0, *(np.flatnonzero(groups[1:] != groups[:-1]) + 1).tolist(), len(groups)]
        for start, stop in itertools.pairwise(bounds):
            yield int(groups[start]), batch.slice(start, stop - start)


def _together(rows: Iterator[dict[str, Any]]) -> Iterator[pa.RecordBatch]:
    """State rows in batches."""
    pending, size = list[dict[str, Any]](), 0
    for row in rows:
        pending.append(row)
        size += len(row.get("chunk") or row["index"])
        if size >= _TOGETHER:
            yield pa.RecordBatch.from_pylist(pending, ROWS)
            pending, size = [], 0
    if pending:
        yield pa.RecordBatch.from_pylist(pending, ROWS)
