"""Parquet files by which the rows of a bounded run are passed between Sail and the kernels."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from floodmark.core.memory import worker_memory
from floodmark.engines.embedded.bounded.groups import RESULTS, Results, Work, computed
from floodmark.engines.frames.portions import AT
from floodmark.engines.frames.sorting import sorted_batches
from floodmark.lake.table.rows import plain_type, row_schema
from floodmark.semantics.kernels.columnar import Stage
from floodmark.spec.values.schema import Schema

BUCKET = "_bucket"
"""The column that divides key groups among buckets."""
_SORTED, _READ, _BATCH = 1 << 29, 1 << 20, 1 << 22
"""Most bytes of rows that are sorted in memory, however much there is; bytes of a column, and of rows, that are read at a time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bucket:
    """Some of the key groups.

    Args:
        number: of the bucket.
        source: folder with the bucket's rows, as Sail has written them.
        target: folder in which each output has a folder.
    """

    number: int
    source: str
    target: str


def counted(folder: str) -> int:
    """The number of rows in all files below a folder."""
    return sum(pq.read_metadata(file).num_rows for file in Path(folder).rglob("*.parquet"))


def outputs(work: Work) -> dict[str, Schema]:
    """``RESULTS`` and the side outputs, in the order of their folders, with their columns."""
    return {RESULTS: work.stage.step.schema, **{name: schema for name, (_, schema) in work.sides.items()}}


def folder_of(work: Work, target: str, output: str) -> Path:
    """The folder of an output's rows."""
    return Path(target) / str(list(outputs(work)).index(output))


def write_empty(work: Work, target: str) -> None:
    """Write a file without rows for each output, so that each output has a file to read."""
    for output, schema in outputs(work).items():
        folder = folder_of(work, target, output)
        folder.mkdir(parents=True)
        pq.write_table(row_schema(schema).empty_table(), folder / "empty.parquet")


def fill(work: Work, bucket: Bucket) -> tuple[int, int]:
    """Compute a bucket and write its rows. A repeated call writes the same files.

    Returns:
        Number of late rows and of dropped (row, window) pairs.
    """
    rows, memory = _rows(bucket.source), work.memory or worker_memory()
    if not isinstance(work.stage, Stage):
        rows = sorted_batches(rows, ("group", AT), min(memory // 4, _SORTED))
    with ExitStack() as writers:
        results = Results(partial(_write, work, bucket, writers, {}))
        computed(work, rows, results)
    return results.late, results.dropped


def _write(
    work: Work,
    bucket: Bucket,
    writers: ExitStack,
    opened: dict[str, pq.ParquetWriter],
    output: str,
    batches: Sequence[pa.RecordBatch],
) -> None:
    """Append rows to the file of an output, which the first rows create."""
    schema = row_schema(outputs(work)[output])
    if output not in opened:
        path = folder_of(work, bucket.target, output) / f"{bucket.number}.parquet"
        opened[output] = writers.enter_context(pq.ParquetWriter(path, schema, compression="zstd"))
    opened[output].write_table(pa.Table.from_batches(batches, schema))


def _rows(folder: str) -> Iterator[pa.RecordBatch]:
    """The rows of a bucket with the types that kernels get from Spark."""
    for path in sorted(Path(folder).rglob("*.parquet")):
        with pq.ParquetFile(path, pre_buffer=False, buffer_size=_READ) as file:
            fields = [pa.field(f.name, plain_type(f.type)) for f in file.schema_arrow if f.name != BUCKET]
            schema = pa.schema(fields)
            size = max(1, min(1 << 14, _BATCH * file.metadata.num_rows // _bytes(file.metadata)))
            for batch in file.iter_batches(batch_size=size, columns=schema.names, use_threads=False):
                if batch.num_rows:
                    yield from pa.Table.from_batches([batch]).cast(schema).to_batches()


def _bytes(metadata: pq.FileMetaData) -> int:
    """Bytes of the rows of a file, before they are compressed."""
    return 1 + sum(int(metadata.row_group(number).total_byte_size) for number in range(metadata.num_row_groups))
