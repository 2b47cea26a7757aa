"""Grouping Arrow tables by columns: aggregated, or as a dense number per row."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from floodmark.semantics.aggregates.numbers import normal


def grouped(table: pa.Table, dims: Sequence[str], plan: Sequence[tuple[str, str]]) -> pa.Table:
    """Group by ``dims``; ``plan`` is (column, Arrow's aggregate). Columns keep their names and order."""
    options = {"sum": pc.ScalarAggregateOptions(min_count=0)}
    result = table.group_by(list(dims), use_threads=False).aggregate([(n, f, options.get(f)) for n, f in plan])
    return result.select([*dims, *(f"{n}_{f}" for n, f in plan)]).rename_columns([*dims, *(n for n, _ in plan)])


def group_ids(table: pa.Table, dims: Sequence[str]) -> tuple[npt.NDArray[np.int64], pa.Table]:
    """A dense number per row for its dimensions, and the dimensions by number; null is a value, and so is NaN."""
    codes = np.zeros(table.num_rows, dtype=np.int64)
    count = min(table.num_rows, 1)
    for dim in dims:
        numbers, size = _codes(normal(table[dim]))
        if size > 1:
            combined = numbers if count <= 1 else codes * size + numbers
            codes, count = (combined, size) if count <= 1 else _codes(pa.chunked_array([pa.array(combined)]))
    first = np.zeros(count, dtype=np.int64)
    first[codes[::-1]] = np.arange(table.num_rows, dtype=np.int64)[::-1]
    return codes, table.select([*dims]).take(pa.array(first))


def _codes(column: pa.ChunkedArray) -> tuple[npt.NDArray[np.int64], int]:
    """A number per value in order of appearance, and how many there are."""
    if not column.num_chunks:
        return np.zeros(0, dtype=np.int64), 0
    encoded = pc.dictionary_encode(pa.concat_arrays(column.chunks), null_encoding="encode")
    return encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64), len(encoded.dictionary)


def aligned(main: pa.Table, dims: Sequence[str], groups: pa.Table, column: pa.ChunkedArray) -> pa.ChunkedArray:
    """``column``, which belongs to ``groups``, in the row order of ``main``; null where a group is missing."""
    return column.take(positions(main, dims, groups))


def positions(main: pa.Table, dims: Sequence[str], groups: pa.Table) -> pa.Array:
    """For each row of ``main`` the row of ``groups`` with its dimensions; null where there is none."""
    both = pa.concat_tables([groups.select([*dims]), main.select([*dims])])
    ids, _ = group_ids(both, dims)
    rows = np.full(int(ids.max(initial=-1)) + 1, -1, dtype=np.int64)
    rows[ids[: groups.num_rows]] = np.arange(groups.num_rows)
    wanted = rows[ids[groups.num_rows :]]
    return pa.array(wanted, mask=wanted < 0)


def quotient(top: pa.ChunkedArray, count: pa.ChunkedArray) -> pa.ChunkedArray:
    """``top / count`` as double; null where the count is not positive."""
    some = pc.greater(count, 0)
    safe = pc.if_else(some, count, pa.scalar(1, count.type))
    return pc.if_else(
        some,
        pc.divide(top.cast(pa.float64(), safe=False), safe.cast(pa.float64(), safe=False)),
        pa.scalar(None, pa.float64()),
    )
