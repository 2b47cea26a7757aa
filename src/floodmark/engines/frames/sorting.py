"""Sorting of more rows than fit into memory: sorted runs on disk, merged."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

_PIECE = 1 << 20
"""Bytes of a batch of a run on disk; one of each run is in memory while runs are merged."""


def sorted_batches(batches: Iterable[pa.RecordBatch], by: Sequence[str], memory: int) -> Iterator[pa.RecordBatch]:
    """All rows of some batches, sorted.

    Args:
        batches: of one schema.
        by: names of columns of integers without nulls.
        memory: most bytes of rows in memory at a time, about.
    """
    with tempfile.TemporaryDirectory(prefix="floodmark-sort-") as folder:
        runs, held, weight = list[Path](), list[pa.RecordBatch](), 0
        for batch in batches:
            held.append(batch)
            weight += batch.nbytes
            if weight > memory // 4:  # the rows, their copy in order, and what is being written
                runs.append(_written(_sorted(held, by), Path(folder, f"{len(runs)}.arrow")))
                held, weight = [], 0
        if not runs:
            yield from _sorted(held, by).to_batches() if held else ()
            return
        if held:
            runs.append(_written(_sorted(held, by), Path(folder, f"{len(runs)}.arrow")))
        del held
        yield from _merged([_read(run) for run in runs], by)


def _sorted(batches: Sequence[pa.RecordBatch], by: Sequence[str]) -> pa.Table:
    table = pa.Table.from_batches(batches)
    return table.take(pc.sort_indices(table, [(name, "ascending") for name in by]))


def _written(rows: pa.Table, path: Path) -> Path:
    piece = max(1, rows.num_rows * _PIECE // max(rows.nbytes, 1))
    options = pa.ipc.IpcWriteOptions(compression="lz4")
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_stream(file, rows.schema, options=options) as writer:
        writer.write_table(rows, max_chunksize=piece)
    return path


def _read(path: Path) -> Iterator[pa.RecordBatch]:
    with pa.OSFile(str(path)) as file, pa.ipc.open_stream(file) as reader:
        yield from reader


def _merged(runs: Sequence[Iterator[pa.RecordBatch]], by: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """The rows of sorted runs, sorted: again and again all rows up to the least of the runs' last rows in memory."""
    heads = {number: batch for number, run in enumerate(runs) if (batch := next(run, None)) is not None}
    while len(heads) > 1:
        least = min(heads, key=lambda number: _sort_key(heads[number], -1, by))
        bound, ready = _sort_key(heads[least], -1, by), list[pa.RecordBatch]()
        for number, batch in list(heads.items()):
            count = _up_to(batch, bound, by)
            ready += [batch.slice(0, count)] if count else []
            remaining = batch.slice(count) if count < batch.num_rows else next(runs[number], None)
            if remaining is None:
                del heads[number]
            else:
                heads[number] = remaining
        yield from _sorted(ready, by).combine_chunks().to_batches()
    for number, batch in heads.items():
        yield batch
        yield from runs[number]


def _sort_key(batch: pa.RecordBatch, row: int, by: Sequence[str]) -> tuple[int, ...]:
    return tuple(batch.column(batch.schema.get_field_index(name))[row].as_py() for name in by)


def _up_to(batch: pa.RecordBatch, bound: tuple[int, ...], by: Sequence[str]) -> int:
    """The number of rows of a sorted batch that are not after a place."""
    first, stop = 0, batch.num_rows
    for name, value in zip(by[:-1], bound[:-1], strict=True):  # narrows to the rows that are equal so far
        values = batch.column(batch.schema.get_field_index(name)).slice(first, stop - first).to_numpy()
        first, stop = (first + int(np.searchsorted(values, value, side)) for side in ("left", "right"))
    values = batch.column(batch.schema.get_field_index(by[-1])).slice(first, stop - first).to_numpy()
    return first + int(np.searchsorted(values, bound[-1], "right"))
