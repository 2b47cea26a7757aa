"""Times among results that Python has no dates for, and most programs that are delivered to neither: before the year 1, or behind 9999."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

_YEAR_1, _YEAR_10000 = -62_135_596_800_000_000, 253_402_300_800_000_000
"""Microseconds since 1970 between which Python has dates."""
_DAY = 86_400_000_000


def has_dates(column: pa.Array) -> bool:
    """Whether Python has all points in time of a column of timestamps as dates."""
    bounds: Any = pc.min_max(column.cast(pa.int64())).as_py()
    return bounds["min"] is None or (bounds["min"] >= _YEAR_1 and bounds["max"] < _YEAR_10000)


def first_beyond(batch: pa.RecordBatch) -> tuple[int, str, str] | None:
    """Row, name of the column and the time of the first row with a time that Python has no date for, also within an array, map or struct; None if all have dates."""
    for row in range(len(batch)):
        for name in batch.schema.names:
            for text in _beyond(batch[name].slice(row, 1)):
                return row, name, text
    return None


def shown_row(batch: pa.RecordBatch, row: int) -> dict[str, Any]:
    """The values of a row, for people; in place of one that has a time without a date, that time."""
    shown = {}
    for name in batch.schema.names:
        value = batch[name].slice(row, 1)
        shown[name] = next(_beyond(value), None) or value[0].as_py()
    return shown


def _beyond(column: pa.Array) -> Iterator[str]:
    """The times of a column that Python has no dates for, as text."""
    kind = column.type
    if pa.types.is_timestamp(kind) or pa.types.is_date(kind):
        unit = 1 if pa.types.is_timestamp(kind) else _DAY
        numbers = column.cast(pa.int64() if unit == 1 else pa.int32())
        for value, text in zip(numbers.to_pylist(), column.cast(pa.string()).to_pylist(), strict=True):
            if value is not None and not _YEAR_1 <= value * unit < _YEAR_10000:
                yield text
    elif pa.types.is_map(kind):
        for pairs in column:
            if pairs.is_valid:
                yield from _beyond(pairs.values)
    elif pa.types.is_list(kind) or pa.types.is_large_list(kind):
        yield from _beyond(column.flatten())
    elif pa.types.is_struct(kind):
        for part in column.flatten():
            yield from _beyond(part)
