"""The rows of a log and of an output: the stamps beside their own columns, and the marker."""

from __future__ import annotations

import pyarrow as pa

from floodmark.semantics.columns import arrow_schema
from floodmark.spec.schema import MARKER, STAMPS, Schema

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
    """The columns of a stamped row: its own, then the stamps."""
    return pa.schema([*arrow_schema(schema), *STAMP_SCHEMA])


def marker(schema: Schema, *, watermark: int, sequence: int | None, now: int) -> pa.RecordBatch:
    """The row that says how far time has come after a commit: no payload, no event time.

    Args:
        schema: of the table's own columns.
        watermark: ms; also the row's progress.
        sequence: of the row.
        now: ingestion time, ms UTC.
    """
    stamps = dict(zip(STAMPS, (None, watermark, watermark, sequence, now * 1000, MARKER), strict=True))
    return pa.RecordBatch.from_pylist([stamps], schema=row_schema(schema))
