"""Chunks of state: tables as Arrow's own streams, byte for byte, and back."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from floodmark.semantics.encoding.columns import decode, encode


def _stream(*tables: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, tables[0].schema) as writer:
        for table in tables:
            writer.write_table(table)
    written: bytes = sink.getvalue().to_pybytes()
    return written


def _table(rows: int) -> pa.Table:
    columns: dict[str, Any] = {
        "text": pa.array(["x" * n for n in range(rows)], pa.string()),
        "exact": pa.array([None] * rows, pa.decimal128(9, 2)),
        "many": pa.array([[1, None]] * rows, pa.list_(pa.int64())),
        "parts": pa.array([{"x": 1}] * rows, pa.struct([("x", pa.int32())])),
        "at": pa.array(range(rows), pa.timestamp("us", "UTC")),
    }
    return pa.table(columns)


@pytest.mark.parametrize("rows", [0, 1, 3, 1_000])
def test_a_table_is_the_stream_that_arrow_writes(rows: int) -> None:
    table = _table(rows)
    for whole in (table, pa.concat_tables([table, table]), table.slice(rows // 2)):
        chunk = encode({"first": whole, "second": table})
        assert chunk.endswith(_stream(whole.combine_chunks()) + _stream(table.combine_chunks()))
        read = decode(chunk)
        assert read["first"].equals(whole.combine_chunks())
        assert read["first"].schema == whole.schema
        assert read["second"].equals(table)


def test_a_stream_of_several_batches_is_read_whole() -> None:
    table = _table(3)
    header = encode({"rows": table})
    stream = _stream(table, table)
    size = len(_stream(table))
    text = header[4:-size].replace(str(size).encode(), str(len(stream)).encode())
    read = decode(len(text).to_bytes(4, "little") + text + stream)
    assert read["rows"].equals(pa.concat_tables([table, table]))
