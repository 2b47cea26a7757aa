"""Times that Python has no dates for, and most other programs have neither: before the year 1, or behind 9999. As text they have a year of as many digits as it needs."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

_YEAR_1, _YEAR_10000 = -62_135_596_800_000_000, 253_402_300_800_000_000
"""Microseconds since 1970 between which Python has dates."""
_DAY = 86_400_000_000
_NO_FRACTION = ".000000"
_INSTANT = re.compile(r"([+-][0-9]{4,6}-[01][0-9]-[0-3][0-9]T[0-2][0-9]:[0-5][0-9]:[0-5][0-9](?:\.[0-9]{1,6})?)Z")
_DATE = re.compile(r"[+-][0-9]{4,7}-[01][0-9]-[0-3][0-9]")


_UNSUITED = (OverflowError, UnicodeDecodeError, KeyError)
"""Errors of Arrow where Python has no date, no text, or no dictionary of a value."""


def has_dates(column: pa.Array) -> bool:
    """Whether Python has all points in time of a column of timestamps as dates."""
    bounds: Any = pc.min_max(column.cast(pa.int64())).as_py()
    return bounds["min"] is None or (bounds["min"] >= _YEAR_1 and bounds["max"] < _YEAR_10000)


def rows_of(batch: pa.RecordBatch) -> list[dict[str, Any]]:
    """The rows as Python has them, maps as dictionaries.

    A time that Python has no date for is a text, ``+10000-01-01T00:00:00Z``; a text that is no UTF-8 is bytes, and a map with a key twice a list of pairs.
    """
    try:
        rows: list[dict[str, Any]] = batch.to_pylist(maps_as_pydicts="strict")
    except _UNSUITED:
        columns = [[_value(cell) for cell in column] for column in batch.columns]
        rows = [dict(zip(batch.schema.names, cells, strict=True)) for cells in zip(*columns, strict=True)]
    return rows


def row_of(batch: pa.RecordBatch, row: int, names: tuple[str, ...] | None = None) -> dict[str, Any]:
    """(batch, number of a row, columns, all by default) -> the row, as ``rows_of`` has rows."""
    return {name: _cell(batch.column(name)[row]) for name in names or batch.schema.names}


def first_beyond(batch: pa.RecordBatch) -> tuple[int, str, str] | None:
    """Row, name of the column and the time of the first row with a time that Python has no date for, also within an array, map or struct; None if all have dates."""
    for row in range(len(batch)):
        for name in batch.schema.names:
            for text in _beyond(batch[name][row]):
                return row, name, text
    return None


def instant_of(text: str) -> int | None:
    """(text of an instant as ``rows_of`` writes one without a date) -> microseconds since 1970; None for another text."""
    named = _INSTANT.fullmatch(text)
    return None if named is None else _number(named[1], "us")


def day_of(text: str) -> int | None:
    """(text of a date as ``rows_of`` writes one that Python does not have) -> days since 1970; None for another text."""
    return _number(text, "D") if _DATE.fullmatch(text) else None


def _number(text: str, unit: Literal["us", "D"]) -> int | None:
    try:
        return int(np.datetime64(text, unit).astype(np.int64))
    except ValueError:
        return None


def _cell(cell: pa.Scalar) -> Any:
    try:
        return cell.as_py(maps_as_pydicts="strict")
    except _UNSUITED:
        return _value(cell)


def _value(cell: pa.Scalar) -> Any:
    """A value as Python has it, and as a text where Python has no date for it."""
    kind = cell.type
    if not cell.is_valid:
        return None
    if pa.types.is_timestamp(kind) or pa.types.is_date(kind):
        return _text(cell) or cell.as_py()
    if pa.types.is_map(kind):
        pairs = [(_value(pair["key"]), _value(pair["value"])) for pair in cell.values]
        return dict(pairs) if len({key for key, _ in pairs}) == len(pairs) else pairs
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return [_value(part) for part in cell.values]
    if pa.types.is_struct(kind):
        return {field.name: _value(cell[number]) for number, field in enumerate(kind)}
    try:
        return cell.as_py()
    except UnicodeDecodeError:
        return bytes(cell.as_buffer())


def _beyond(cell: pa.Scalar) -> Iterator[str]:
    """The times of a value that Python has no dates for, as text."""
    kind = cell.type
    if not cell.is_valid:
        return
    if pa.types.is_timestamp(kind) or pa.types.is_date(kind):
        if (text := _text(cell)) is not None:
            yield text
    elif pa.types.is_map(kind) or pa.types.is_list(kind) or pa.types.is_large_list(kind):
        for part in cell.values:
            yield from _beyond(part)
    elif pa.types.is_struct(kind):
        for number in range(kind.num_fields):
            yield from _beyond(cell[number])


def _text(cell: pa.Scalar) -> str | None:
    """A time as text if Python has no date for it. Arrow's own text has another year from 32,768 on."""
    is_instant = pa.types.is_timestamp(cell.type)
    unit: Any = cell.type.unit if is_instant else "D" if pa.types.is_date32(cell.type) else "ms"
    if _YEAR_1 <= cell.value * _microseconds(unit) < _YEAR_10000:
        return None
    text = str(np.datetime_as_string(np.datetime64(cell.value, unit)))
    text = text if text.startswith("-") else f"+{text}"
    return f"{text.removesuffix(_NO_FRACTION)}Z" if is_instant else text.partition("T")[0]


def _microseconds(unit: str) -> float:
    return {"D": _DAY, "s": 1e6, "ms": 1e3, "us": 1, "ns": 1e-3}[unit]
