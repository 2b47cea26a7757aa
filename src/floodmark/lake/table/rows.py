"""The row format of logs and outputs: declared columns, stamps, and the marker row."""

from __future__ import annotations

import pyarrow as pa

from floodmark.semantics.encoding.columns import arrow_schema
from floodmark.spec.values.schema import MARKER, STAMPS, Schema

INSTANT = pa.timestamp("us", tz="UTC")
"""The type of ``_event_time`` and ``_ingest_time``."""
STAMP_SCHEMA = pa.schema(
    [
        ("_event_time", INSTANT),
        ("_watermark", pa.int64()),
        ("_progress", pa.int64()),
        ("_sequence", pa.int64()),
        ("_ingest_time", INSTANT),
        ("_kind", pa.int32()),
    ]
)
"""The columns of ``STAMPS``, in order."""


def row_schema(schema: Schema) -> pa.Schema:
    """The columns of a stamped row: the declared columns, then the stamps."""
    return pa.schema([*arrow_schema(schema), *STAMP_SCHEMA])


def marker(schema: Schema, *, watermark: int, sequence: int | None, now: int) -> pa.RecordBatch:
    """The marker: a row that carries a commit's progress, without payload and event time.

    Args:
        schema: the table's declared columns.
        watermark: watermark and progress of the row, ms.
        sequence: ``_sequence`` of the row; None for outputs.
        now: ingestion time, ms UTC.
    """
    stamps = dict(zip(STAMPS, (None, watermark, watermark, sequence, now * 1000, MARKER), strict=True))
    return pa.RecordBatch.from_pylist([stamps], schema=row_schema(schema))


def plain_type(kind: pa.DataType) -> pa.DataType:
    """The type without views and large offsets, which other writers produce and some pyarrow kernels do not support. Nested fields are nullable."""
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(f.name, plain_type(f.type)) for f in kind])
    if pa.types.is_map(kind):
        return pa.map_(plain_type(kind.key_type), plain_type(kind.item_type))
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_list_view(kind):
        return pa.list_(pa.field("element", plain_type(kind.value_type)))
    if pa.types.is_string_view(kind) or pa.types.is_large_string(kind):
        return pa.string()
    if pa.types.is_binary_view(kind) or pa.types.is_large_binary(kind):
        return pa.binary()
    return pa.timestamp("us", kind.tz) if pa.types.is_timestamp(kind) else kind
