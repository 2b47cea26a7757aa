"""Spark SQL types as Arrow types, and tables of them as bytes."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from functools import cache, lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from floodmark.core.errors import StateError
from floodmark.core.time import Interval
from floodmark.core.types import parse
from floodmark.spec.values.schema import Schema

CODEC = 2
"""Version of the byte format of a chunk; it stands in every chunk's header."""


def arrow_type(kind: str) -> pa.DataType:
    """The Arrow type of a Spark SQL type, as Spark itself exchanges it in a UTC session."""
    return parse(kind).arrow


def arrow_schema(schema: Schema) -> pa.Schema:
    """All columns nullable, as in the tables."""
    return pa.schema([pa.field(column.name, arrow_type(column.type)) for column in schema.columns])


def fitted(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    """Values from a user's function as a column. A whole number for an instant is milliseconds UTC, as ``ctx.timestamp`` is.

    Raises:
        TypeError, ValueError: some value is not of the type; Arrow alone would cut the fraction off a number.
    """
    kinds = set(map(type, values))
    if kinds <= _PLAIN:
        return pa.array(values, kind)
    _check_whole(values, kind)
    return pa.array([_timed(value, kind) for value in values] if _has_instants(kind) else values, kind)


_PLAIN = {type(None), str, datetime}
"""Types of values that Arrow takes or refuses as we do."""


@cache
def _has_instants(kind: pa.DataType) -> bool:
    """Whether values of a type are instants, or hold some."""
    parts = (kind.field(place).type for place in range(kind.num_fields))
    return pa.types.is_timestamp(kind) or any(_has_instants(part) for part in parts)


def _timed(value: Any, kind: pa.DataType) -> Any:
    """A value with milliseconds, where they stand for instants, as Arrow's microseconds."""
    if value is None or not _has_instants(kind):
        return value
    if pa.types.is_timestamp(kind):
        return int(value) * 1000 if isinstance(value, (int, np.integer)) and not isinstance(value, bool) else value
    if pa.types.is_struct(kind) and isinstance(value, Mapping):
        fields = {field.name: field.type for field in kind}
        return {name: _timed(part, fields[name]) if name in fields else part for name, part in value.items()}
    if pa.types.is_map(kind) and isinstance(value, (Mapping, list, tuple)):
        pairs = value.items() if isinstance(value, Mapping) else value
        return [(_timed(key, kind.key_type), _timed(item, kind.item_type)) for key, item in pairs]
    if pa.types.is_list(kind) and isinstance(value, (list, tuple)):
        return [_timed(part, kind.value_type) for part in value]
    return value


def _check_whole(values: Sequence[Any], kind: pa.DataType) -> None:
    if pa.types.is_integer(kind):
        if any(issubclass(own, (float, Decimal, np.floating)) for own in set(map(type, values))):
            wrong = next(v for v in values if isinstance(v, (float, Decimal, np.floating)))
            msg = f"{wrong!r} is no whole number"
            raise TypeError(msg)
    elif pa.types.is_list(kind):
        for value in values:
            if isinstance(value, (list, tuple)):
                _check_whole(value, kind.value_type)


def table_fitted(rows: Sequence[Mapping[str, Any]], schema: Schema) -> pa.Table:
    """Rows from a user's function as a table of a contract; a nullable column may be missing.

    Raises:
        TypeError, ValueError: a name that is no column, no value for a column that is not nullable, or as ``fitted``.
    """
    check_names(rows, schema)
    row_schema = arrow_schema(schema)
    return pa.table(
        [fitted([row.get(field.name) for row in rows], field.type) for field in row_schema], schema=row_schema
    )


def check_names(rows: Sequence[Mapping[str, Any]], schema: Schema) -> None:
    """Raise ValueError for a name that is no column, or for a missing value of a column that is not nullable."""
    known, needed = set(schema.names), [column.name for column in schema.columns if not column.nullable]
    for row in rows:
        other = next((name for name in row if name not in known), None)
        if other is not None:
            msg = f"{other!r} is no column; there are {', '.join(schema.names)}"
            raise ValueError(msg)
        missing = next((name for name in needed if row.get(name) is None), None)
        if missing is not None:
            msg = f"nothing for '{missing}', which is never null"
            raise ValueError(msg)


def result_schema(schema: Schema) -> pa.Schema:
    """Columns of rows that a kernel emits: the step's columns, then ``_event_time`` and ``_watermark`` in ms, ``_kind``, ``_order``."""
    stamps = [("_event_time", pa.int64()), ("_watermark", pa.int64()), ("_kind", pa.int32()), ("_order", pa.int64())]
    return pa.schema([*arrow_schema(schema), *(pa.field(*stamp) for stamp in stamps)])


def inside(table: pa.Table, times: pa.ChunkedArray, interval: Interval) -> pa.Table:
    """The rows of a table whose ``times``, in ms, lie in an interval."""
    return table.filter(pc.and_(pc.greater_equal(times, interval.start), pc.less(times, interval.end)))


def encode(tables: dict[str, pa.Table]) -> bytes:
    """Named tables as one chunk: a JSON header with version and lengths, then an Arrow stream each."""
    streams = [_stream(table) for table in tables.values()]
    return b"".join((_front(*tables, *map(len, streams)), *streams))


def decode(chunk: bytes) -> dict[str, pa.Table]:
    """The tables of a chunk.

    Raises:
        StateError: STATE-001, the chunk has another version of the format.
    """
    (length,) = struct.unpack_from("<I", chunk)
    position, tables, view = 4 + length, {}, memoryview(chunk)
    for name, size in _lengths(bytes(view[4:position])):
        tables[name] = _read(view[position : position + size])
        position += size
    return tables


@lru_cache(10_000)
def _front(*names_and_sizes: str | int) -> bytes:
    """(names of tables, lengths of their streams) -> the header of a chunk, behind its length. Chunks of few rows are often of one length."""
    count = len(names_and_sizes) // 2
    tables = dict(zip(names_and_sizes[:count], names_and_sizes[count:], strict=True))
    header = json.dumps({"codec": CODEC, "tables": tables}).encode()
    return struct.pack("<I", len(header)) + header


@lru_cache(10_000)
def _lengths(header: bytes) -> tuple[tuple[str, int], ...]:
    """(header of a chunk) -> name and length of the stream of each table."""
    content = json.loads(header)
    if content["codec"] != CODEC:
        fix = "Run with the floodmark release that wrote it."
        got = f"version {content['codec']}"
        raise StateError("state chunk", f"chunk format version {CODEC}", got, fix, code="STATE-001")
    return tuple(content["tables"].items())


_END = struct.pack("<iI", -1, 0)
"""The end of an Arrow stream."""
_PREFIX = struct.Struct("<iI")
"""Before the metadata of each message of an Arrow stream: -1, and its length."""


@lru_cache(1_000)
def _schema(head: bytes) -> pa.Schema:
    """The schema of an Arrow stream with this first message."""
    return pa.ipc.read_schema(pa.py_buffer(head))


def _stream(table: pa.Table) -> bytes:
    """A table as an Arrow stream: the bytes that ``pa.ipc.new_stream`` writes, in half of the time for few rows."""
    batches = [batch.serialize().to_pybytes() for batch in table.combine_chunks().to_batches()]
    return b"".join((table.schema.serialize().to_pybytes(), *batches, _END))


def _read(stream: memoryview) -> pa.Table:
    """The table of an Arrow stream without dictionaries, in which the schema is read once in a process."""
    _, length = _PREFIX.unpack_from(stream)
    schema, batches = _schema(bytes(stream[: (position := _PREFIX.size + length)])), []
    with pa.BufferReader(pa.py_buffer(stream[position:])) as messages:
        while messages.tell() < len(stream) - position - len(_END):
            batches.append(pa.ipc.read_record_batch(messages, schema))
    return pa.Table.from_batches(batches, schema)


_EARLIEST, _LATEST = -62_135_596_800_000_000, 253_402_300_799_999_999
"""Years 1 to 9999 in microseconds: the instants that Python has."""


_MANY = 100
"""Instants among which equal ones are looked for."""


def python_values(column: pa.ChunkedArray | pa.Array) -> list[Any]:
    """``column.to_pylist()``: instants in a quarter of the time, rows as a whole from their columns."""
    kind = column.type
    if pa.types.is_struct(kind) and kind.num_fields:
        whole = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
        names = [field.name for field in kind]
        rows = [dict(zip(names, row, strict=True)) for row in zip(*map(python_values, whole.flatten()), strict=True)]
        if not whole.null_count:
            return rows
        return [row if there else None for row, there in zip(rows, whole.is_valid().to_pylist(), strict=True)]
    if not pa.types.is_timestamp(kind) or kind.unit != "us" or kind.tz not in {None, "UTC"}:
        return column.to_pylist()  # type: ignore[no-any-return]
    if len(column) > _MANY:
        encoded = (column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column).dictionary_encode()
        if len(encoded.dictionary) * 2 < len(column):  # an object for each different instant
            different = [*python_values(encoded.dictionary), None]
            return [different[place] for place in pc.fill_null(encoded.indices, len(different) - 1).to_pylist()]
    extent = pc.min_max(column.cast(pa.int64()))
    first, last = extent["min"].as_py(), extent["max"].as_py()
    if first is None or first < _EARLIEST or last > _LATEST:
        return column.to_pylist()  # type: ignore[no-any-return]
    naive = (
        column.cast(pa.timestamp("us"))
        .to_numpy(**({} if isinstance(column, pa.ChunkedArray) else {"zero_copy_only": False}))
        .tolist()
    )
    if kind.tz is None:
        return naive  # type: ignore[no-any-return]
    zone = pa.scalar(0, kind).as_py().tzinfo
    return [None if value is None else value.replace(tzinfo=zone) for value in naive]
