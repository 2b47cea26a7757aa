"""Parquet files of rows in Arrow, written by the Python workers that make the rows: Java need not turn each value into its own form and back.

For 125,000 rows that is most of what writing them costs. Which values a file holds, and which statistics, is the same.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark import TaskContext
from pyspark.sql import DataFrame

from floodmark.lake.table.files import Written

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
        path: of the table, on a disk that workers share with this process.
    """
    folder = Path(path, uuid.uuid4().hex)
    folder.mkdir()

    def run(arriving: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        task = context.partitionId() if context is not None else 0
        count = _filed(folder / f"part-{task:05d}.parquet", batches(arriving), schema)
        yield pa.RecordBatch.from_pydict({"rows": [count]})

    frame.mapInArrow(run, "rows bigint").collect()
    return Written(folder=folder)


def _filed(file: Path, batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> int:
    """Write a file, which has its name once it is whole: a task that Spark repeats replaces it. No file without rows."""
    groups, count = _groups(batches, schema), 0
    first = next(groups, None)
    if first is None:
        return 0
    unfinished = file.with_name(f".{file.name}.{uuid.uuid4().hex}")
    names = [name for name in schema.names if name != "_sequence"]  # all values of a sequence differ
    with pq.ParquetWriter(unfinished, schema, version="2.6", compression="zstd", use_dictionary=names) as writer:
        group: pa.Table | None = first
        while group is not None:
            writer.write_table(group, row_group_size=group.num_rows)
            count += group.num_rows
            group = next(groups, None)
    unfinished.replace(file)
    return count


def _groups(batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> Iterator[pa.Table]:
    waiting: list[pa.Table] = []
    rows = size = 0
    for batch in batches:
        if not batch.num_rows:
            continue
        table = pa.Table.from_batches([batch])
        waiting.append(table if table.schema.equals(schema) else table.select(schema.names).cast(schema))
        rows, size = rows + batch.num_rows, size + batch.nbytes
        if rows >= _GROUP_ROWS or size >= _GROUP_BYTES:
            yield pa.concat_tables(waiting)
            waiting, rows, size = [], 0, 0
    if waiting:
        yield pa.concat_tables(waiting)
