"""The files of a landing commit: written in order, and synced to disk, or sent to the bucket, before the log names them."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.parquet as pq

from floodmark.engines.landing import port
from floodmark.lake.folder import staging
from floodmark.lake.folder.bucket import is_bucket
from floodmark.lake.folder.storage import sync_all
from floodmark.lake.table.files import Written

_GROUP_ROWS = 1 << 17
"""Rows of a row group."""


def write(path: str, batches: Iterator[pa.RecordBatch], schema: pa.Schema) -> Written:
    """Write rows into a new folder of a table, about ``port.ONE_FILE_ROWS`` per file.

    Args:
        path: of the table.
        batches: in the order of the log.
        schema: of the batches.
    """
    folder = staging.new_folder(path)
    names = [name for name in schema.names if name != "_sequence"]  # whose values all differ
    for number, groups in enumerate(_files(batches, schema)):
        file = folder / f"part-{number:05d}.parquet"
        with pq.ParquetWriter(file, schema, compression="zstd", use_dictionary=names, version="2.6") as writer:
            for group in groups:
                writer.write_table(group)
    written = Written(folder=folder)
    if is_bucket(path):
        return written.send(path)
    sync_all([*folder.iterdir(), folder, folder.parent])
    return written


def _files(batches: Iterator[pa.RecordBatch], schema: pa.Schema) -> Iterator[Iterator[pa.Table]]:
    """The row groups of each file."""
    pending = _Pending(batches, schema)
    while not pending.over:
        yield pending.file()


class _Pending:
    """Rows that are to be written."""

    def __init__(self, batches: Iterator[pa.RecordBatch], schema: pa.Schema) -> None:
        self._batches, self._schema = batches, schema
        self._next = next(batches, None)

    @property
    def over(self) -> bool:
        """Whether all rows were written."""
        return self._next is None

    def file(self) -> Iterator[pa.Table]:
        """The row groups of the next file."""
        rows, group, size = 0, list[pa.RecordBatch](), 0
        while self._next is not None and rows < port.ONE_FILE_ROWS:
            batch, self._next = self._next, next(self._batches, None)
            group.append(batch)
            rows, size = rows + len(batch), size + len(batch)
            if size >= _GROUP_ROWS:
                yield pa.Table.from_batches(group, self._schema)
                group, size = [], 0
        if group:
            yield pa.Table.from_batches(group, self._schema)
