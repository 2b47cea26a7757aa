"""Cache of values of expressions by row, as tests and proofs compute the same rows again and again, cut in other ways."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

MOST_AT_ONCE = 2_000
"""Rows up to which a look-up is faster than a query."""
_MOST = 20_000
_CHUNKS = 50


@dataclass(slots=True)
class Remembered:
    """The values of some expressions by the values of the columns that they read, on which alone they depend.

    Args:
        compute: rows -> the expressions' values, a column each.
    """

    compute: Callable[[pa.Table], pa.Table]
    _places: dict[tuple[Any, ...], int] = field(default_factory=dict)
    _values: pa.Table | None = None

    def of(self, rows: pa.Table) -> pa.Table:
        """The values for rows.

        Args:
            rows: with exactly the columns that the expressions read.
        """
        keys = _keys(rows) if rows.num_rows <= MOST_AT_ONCE else None
        if keys is None:
            return self.compute(rows)
        if len(self._places) > _MOST:
            self._places.clear()
            self._values = None
        missing = {key: place for place, key in enumerate(keys) if key not in self._places}
        if missing:
            computed = self.compute(rows.take(pa.array(missing.values(), pa.int64())))
            self._places.update({key: len(self._places) + i for i, key in enumerate(missing)})
            self._values = computed if self._values is None else pa.concat_tables([self._values, computed])
            if self._values.num_columns and self._values.column(0).num_chunks > _CHUNKS:
                self._values = self._values.combine_chunks()
        assert self._values is not None
        return self._values.take(pa.array([self._places[key] for key in keys], pa.int64()))


def _keys(rows: pa.Table) -> list[tuple[Any, ...]] | None:
    """A key per row, equal only for equal rows; None if a column has nested values."""
    columns = []
    for column in rows.columns:
        if pa.types.is_nested(column.type):
            return None
        columns.append(_bits(column).to_pylist())
    return list(zip(*columns, strict=True)) if columns else [()] * rows.num_rows


def _bits(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Values in a form in which Python compares them bit by bit: -0.0 and 0.0 differ, NaN equals NaN, times may be before the year 1."""
    if pa.types.is_float64(column.type):
        return pa.chunked_array([chunk.view(pa.int64()) for chunk in column.chunks], pa.int64())
    if pa.types.is_float32(column.type):
        return pa.chunked_array([chunk.view(pa.int32()) for chunk in column.chunks], pa.int32())
    if pa.types.is_date32(column.type):
        return column.cast(pa.int32())
    return pc.cast(column, pa.int64()) if pa.types.is_timestamp(column.type) else column
