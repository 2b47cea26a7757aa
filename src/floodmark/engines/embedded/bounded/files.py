"""Parquet files by which the rows of a bounded run are passed between Sail and the kernels."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from floodmark.engines.embedded.bounded.groups import RESULTS, Work, computed
from floodmark.lake.table.rows import plain_type, row_schema
from floodmark.spec.values.schema import Schema

BUCKET = "_bucket"
"""The column that divides key groups among buckets."""


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
    results = computed(work, _rows(bucket.source))
    for output, schema in outputs(work).items():
        if batches := results.tables.get(output):
            table = pa.Table.from_batches(batches, row_schema(schema))
            pq.write_table(
                table, folder_of(work, bucket.target, output) / f"{bucket.number}.parquet", compression="zstd"
            )
    return results.late, results.dropped


def _rows(folder: str) -> Iterator[pa.RecordBatch]:
    """The rows of a bucket with the types that kernels get from Spark."""
    dataset = ds.dataset(folder, format="parquet")
    schema = pa.schema([pa.field(f.name, plain_type(f.type)) for f in dataset.schema if f.name != BUCKET])
    for batch in dataset.to_batches(columns=schema.names, batch_size=1 << 16):
        if batch.num_rows:
            yield from pa.Table.from_batches([batch]).cast(schema).to_batches()
