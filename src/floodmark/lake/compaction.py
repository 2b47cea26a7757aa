"""Compaction of a log: neighbouring small files become one, in order of ``_sequence``, while streams read it and landings append to it.

The commit says ``dataChange=false``: a stream that reads commit by commit passes over it, and finds the files it has yet to read where they
were. A stream that begins reads the newest version file by file, in order of their modification times, so the new file has the time of the last
one it is made of.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator, Sequence
from functools import partial
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable
from deltalake.transaction import AddAction, RemoveAction

from floodmark.core import crash
from floodmark.lake.conflicts import retried
from floodmark.lake.files import statistics
from floodmark.lake.sequences import LogFile, in_order
from floodmark.lake.storage import file_system
from floodmark.lake.writer import Writer

TARGET = 128 * 2**20
"""Bytes up to which neighbours become one file."""
_ROWS = 65_536
"""Of a row group, and in memory at a time."""


def compact(path: str, target: int = TARGET) -> int:
    """Merge neighbouring files of a log.

    Args:
        path: of the log.
        target: bytes up to which files are merged.

    Returns:
        By how many files the log has fewer now; 0 as well where the files have no order that is known.

    Raises:
        LifecycleError: LIFECYCLE-004, another writer came in between every time.
    """
    writer = Writer(path)
    fewer = 0
    for neighbours in _runs(in_order(writer.table()) or [], target):
        merged = _merged(path, writer.table(), neighbours)
        crash.point("compaction.before_commit")
        retried(partial(writer.rewrite, _removals(neighbours), [merged]), path)
        crash.point("compaction.after_commit")
        fewer += len(neighbours) - 1
    return fewer


def _runs(files: Sequence[LogFile], target: int) -> Iterator[list[LogFile]]:
    """Neighbours that become one file each.

    A file larger than all behind it in its run is left alone: with each of its bytes at least one other is written, so each byte is written a
    logarithm of times, however often a log is compacted.
    """
    run: list[LogFile] = []
    for file in [*files, None]:
        if file is not None and sum(one.size for one in run) + file.size <= target:
            run.append(file)
            continue
        while len(run) > 1 and run[0].size > sum(one.size for one in run[1:]):
            run.pop(0)
        if len(run) > 1:
            yield run
        run = [file] if file is not None else []


def _merged(path: str, table: DeltaTable, files: Sequence[LogFile]) -> AddAction:
    """Write the rows of files into a new one, which nothing names yet."""
    schema = pa.schema(table.schema().to_arrow())
    name = f"compacted-{uuid.uuid4().hex}.parquet"
    store, place = file_system(f"{path}/{name}")
    columns = [column for column in schema.names if column != "_sequence"]  # every value of that is another one
    footers: list[pq.FileMetaData] = []
    with pq.ParquetWriter(
        place, schema, filesystem=store, compression="zstd", use_dictionary=columns, metadata_collector=footers
    ) as writer:
        for file in files:
            source, at = file_system(f"{path}/{unquote(file.path)}")
            with source.open_input_file(at) as content:
                for batch in pq.ParquetFile(content).iter_batches(_ROWS):
                    writer.write_batch(_fitted(batch, schema))
    size = store.get_file_info(place).size
    return AddAction(name, size, {}, files[-1].modified, False, statistics(footers[0]))


def _fitted(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """With the columns of the table; one that was added after the file was written is null."""
    columns = [
        batch.column(column.name).cast(column.type)
        if column.name in batch.schema.names
        else pa.nulls(batch.num_rows, column.type)
        for column in schema
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _removals(files: Sequence[LogFile]) -> list[RemoveAction]:
    now = time.time_ns() // 1_000_000
    return [RemoveAction(file.path, False, now, file.size, {}) for file in files]
