"""Many results at once, of one snapshot: as lines of JSON, as a stream of Arrow, or as a file of Parquet. DuckDB merges the files of the copy in the order of keys."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq

from floodmark.core.sql import quoted
from floodmark.deliveries.documents import document
from floodmark.deliveries.results import HAS
from floodmark.semantics.encoding.columns import arrow_schema
from floodmark.semantics.encoding.dates import rows_of
from floodmark.serve.copies import engine
from floodmark.serve.readable import Readable
from floodmark.serve.runs import Key
from floodmark.serve.snapshot import Snapshot

MEDIA = {
    "json": "application/x-ndjson",
    "arrow": "application/vnd.apache.arrow.stream",
    "parquet": "application/vnd.apache.parquet",
}
"""Format -> its media type."""
_ROWS = 16_384
"""Rows of a piece."""


def pieces(
    readable: Readable, snapshot: Snapshot, lower: Key, upper: Key, kind: str, as_of: dict[str, Any], folder: Path
) -> Iterator[bytes]:
    """The results with lower <= key < upper, in pieces.

    Args:
        readable: the output.
        snapshot: its results.
        lower: the first key.
        upper: the key behind the last.
        kind: one of ``MEDIA``.
        as_of: the moment of the results, which stands in the metadata of Arrow and Parquet.
        folder: for what memory does not hold, and for the file of Parquet.
    """
    schema = arrow_schema(readable.output.schema).with_metadata({"floodmark.as_of": json.dumps(as_of)})
    batches = _batches(readable, snapshot, lower, upper, schema, folder)
    match kind:
        case "json":
            yield from _lines(batches)
        case "arrow":
            yield from _stream(batches, schema)
        case _:
            yield from _file(batches, schema, folder)


def _batches(
    readable: Readable, snapshot: Snapshot, lower: Key, upper: Key, schema: pa.Schema, folder: Path
) -> Iterator[pa.RecordBatch]:
    tables = [table for run in snapshot.runs if (table := run.sliced(lower, upper)) is not None]
    if not tables:
        return
    names = ", ".join(map(quoted, snapshot.names))
    keys = ", ".join(map(quoted, readable.key_names))
    order = ", ".join(f"{quoted(name)} NULLS FIRST" for name in readable.key_names)
    with engine(folder) as database:
        for age, table in enumerate(tables):
            database.register(f"run{age}", table)
        rows = " UNION ALL ".join(f"SELECT *, {age} AS _age FROM run{age}" for age in range(len(tables)))
        if len(tables) > 1:
            rows = f"SELECT * FROM ({rows}) QUALIFY row_number() OVER (PARTITION BY {keys} ORDER BY _age) = 1"
        by = f" ORDER BY {order}" if len(tables) > 1 else ""  # one run is in order
        selected = database.sql(f"SELECT {names} FROM ({rows}) WHERE {HAS}{by}")
        for batch in selected.to_arrow_reader(_ROWS):
            yield from pa.Table.from_batches([batch]).cast(schema).combine_chunks().to_batches()


def _lines(batches: Iterator[pa.RecordBatch]) -> Iterator[bytes]:
    for batch in batches:
        for first in range(0, batch.num_rows, 1_000):
            rows = rows_of(batch.slice(first, 1_000))
            yield "".join(f"{document(row)}\n" for row in rows).encode()


def _stream(batches: Iterator[pa.RecordBatch], schema: pa.Schema) -> Iterator[bytes]:
    sink = _Pieces()
    with pa.ipc.new_stream(pa.PythonFile(sink, "w"), schema) as writer:
        for batch in batches:
            writer.write_batch(batch)
            yield sink.taken()
    yield sink.taken()


def _file(batches: Iterator[pa.RecordBatch], schema: pa.Schema, folder: Path) -> Iterator[bytes]:
    file = folder / f"{uuid4().hex}.parquet"
    try:
        with pq.ParquetWriter(file, schema, compression="zstd") as writer:
            for batch in batches:
                writer.write_batch(batch)
        with file.open("rb") as content:
            while piece := content.read(1 << 20):
                yield piece
    finally:
        file.unlink(missing_ok=True)


class _Pieces:
    """A file to write to, whose content is taken piece by piece."""

    closed = False

    def __init__(self) -> None:
        self._pieces: list[bytes] = []

    def write(self, data: Any) -> int:
        """Keep a piece."""
        self._pieces.append(bytes(data))
        return len(self._pieces[-1])

    def flush(self) -> None:
        """Nothing: pieces are taken."""

    def close(self) -> None:
        """Nothing, as above."""

    def taken(self) -> bytes:
        """What was written since the last call."""
        pieces, self._pieces = self._pieces, []
        return b"".join(pieces)
