"""Parquet files of rows in Arrow, written by the Python workers that make the rows: Java need not turn each value into its own form and back.

For 125,000 rows that is most of what writing them costs. Which values a file holds, and which statistics, is the same.

Workers put the files of a table in a bucket there themselves, each under a name of its own, and tell the driver which: no rename and no listing, and what
a lost or repeated task has put is named by nobody.
"""

from __future__ import annotations

import itertools
import tempfile
import uuid
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from urllib.parse import quote

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark import TaskContext
from pyspark.sql import DataFrame

from floodmark.lake.folder import bucket, staging
from floodmark.lake.table.files import NO_PARTITION, Uploaded, Written
from floodmark.lake.table.rows import plain_type

Batches = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]

_GROUP_ROWS = 1 << 18
_GROUP_BYTES = 64_000_000
"""Rows and bytes in memory from which a worker writes a row group; few, as groups of a few rows are slow to read."""


def write(frame: DataFrame, batches: Batches, schema: pa.Schema, path: str) -> Written:
    """Write the rows that a function makes of a frame, one file per task, into a new folder of a table.

    Args:
        frame: that the function reads.
        batches: batches of the frame -> batches of rows.
        schema: of the rows.
        path: of the table, on a disk that workers share with this process, or in a bucket.
    """
    if bucket.is_bucket(path):
        return _upload(frame, batches, path, schema)
    folder = Path(path, uuid.uuid4().hex)
    folder.mkdir()

    def run(arriving: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        count = filed(folder / f"part-{_task():05d}.parquet", batches(arriving), schema)
        yield pa.RecordBatch.from_pydict({"rows": [count]})

    frame.mapInArrow(run, "rows bigint").collect()
    return Written(folder=folder)


def upload(rows: DataFrame, path: str, partition_by: tuple[str, ...] = ()) -> Written:
    """Write the files of rows into a new folder of a table in a bucket.

    Args:
        rows: with the columns of the table.
        path: URI of the table.
        partition_by: the table's partition column; a task has its rows in the order of this column.
    """
    if partition_by:
        rows = rows.sortWithinPartitions(*partition_by)

    def as_they_are(arriving: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return arriving

    return _upload(rows, as_they_are, path, None, partition_by)


def _upload(
    frame: DataFrame, batches: Batches, path: str, schema: pa.Schema | None, partition_by: tuple[str, ...] = ()
) -> Written:
    """``write`` to a bucket; without ``schema`` the rows have their own columns."""
    folder = uuid.uuid4().hex

    def run(arriving: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        name = f"part-{_task():05d}-{uuid.uuid4().hex[:8]}.parquet"
        with tempfile.TemporaryDirectory() as scratch:
            for partition, rows in _partitions(batches(arriving), partition_by):
                file = Path(scratch, name)
                if not filed(file, rows, schema):
                    continue
                within = "".join(
                    f"{column}={NO_PARTITION if text is None else quote(text, safe='')}/"
                    for column, text in partition.items()
                )
                uploaded = Uploaded.of(file, f"{folder}/{within}{name}", partition)
                bucket.write(f"{path}/{uploaded.path}", file)
                yield pa.RecordBatch.from_pydict({"uploaded": [uploaded.to_json()]})

    uploads = [Uploaded.from_json(row["uploaded"]) for row in frame.mapInArrow(run, "uploaded string").collect()]
    uploads.sort(key=lambda uploaded: uploaded.path)
    return Written(folder=staging.folder_of(path, folder), partition_by=partition_by, uploaded=tuple(uploads))


def _task() -> int:
    context = TaskContext.get()
    return context.partitionId() if context is not None else 0


def _partitions(
    batches: Iterator[pa.RecordBatch], partition_by: tuple[str, ...]
) -> Iterator[tuple[dict[str, str | None], Iterator[pa.RecordBatch]]]:
    """Partition column -> value, and the rows of this partition without the column. Rows come in the order of the column."""
    if not partition_by:
        yield {}, batches
        return
    (column,) = partition_by
    for value, group in itertools.groupby(_runs(batches, column), key=lambda run: run[0]):
        yield {column: value}, (rows for _, rows in group)


def _runs(batches: Iterator[pa.RecordBatch], column: str) -> Iterator[tuple[str | None, pa.RecordBatch]]:
    """Slices of batches in which a column has one value."""
    for batch in batches:
        runs, start = pc.run_end_encode(batch.column(column)), 0
        rows = batch.drop_columns([column])
        for value, end in zip(runs.values.to_pylist(), runs.run_ends.to_pylist(), strict=True):
            yield value, rows.slice(start, end - start)
            start = end


def filed(file: Path, batches: Iterable[pa.RecordBatch], schema: pa.Schema | None) -> int:
    """Write a file, which has its name once it is whole: a task that Spark repeats replaces it. No file without rows."""
    groups, count = _groups(batches, schema), 0
    first = next(groups, None)
    if first is None:
        return 0
    unfinished = file.with_name(f".{file.name}.{uuid.uuid4().hex}")
    names = [name for name in first.schema.names if name != "_sequence"]  # all values of a sequence differ
    with pq.ParquetWriter(unfinished, first.schema, version="2.6", compression="zstd", use_dictionary=names) as writer:
        group: pa.Table | None = first
        while group is not None:
            writer.write_table(group, row_group_size=group.num_rows)
            count += group.num_rows
            group = next(groups, None)
    unfinished.replace(file)
    return count


def _groups(batches: Iterable[pa.RecordBatch], schema: pa.Schema | None) -> Iterator[pa.Table]:
    waiting: list[pa.Table] = []
    rows = size = 0
    for batch in batches:
        if not batch.num_rows:
            continue
        if schema is None:
            schema = pa.schema([pa.field(field.name, plain_type(field.type)) for field in batch.schema])
        table = pa.Table.from_batches([batch])
        waiting.append(table if table.schema.equals(schema) else table.select(schema.names).cast(schema))
        rows, size = rows + batch.num_rows, size + batch.nbytes
        if rows >= _GROUP_ROWS or size >= _GROUP_BYTES:
            yield pa.concat_tables(waiting)
            waiting, rows, size = [], 0, 0
    if waiting:
        yield pa.concat_tables(waiting)
