"""Rows of a bounded run on their way between Sail and the kernels, as Parquet files."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from floodmark.engines.embedded.bounded.groups import RESULTS, Work, computed
from floodmark.lake.rows import plain_type, row_schema
from floodmark.spec.schema import Schema

BUCKET = "_bucket"
"""The column by which key groups are dealt out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bucket:
    """Some of the key groups.

    Args:
        number: of it.
        source: folder with its rows, as Sail has written them.
        target: folder of a folder per output.
    """

    number: int
    source: str
    target: str


def counted(folder: str) -> int:
    """The rows of all files below a folder."""
    return sum(pq.read_metadata(file).num_rows for file in Path(folder).rglob("*.parquet"))


def outputs(work: Work) -> dict[str, Schema]:
    """``RESULTS`` and the side outputs, in the order of their folders, with their columns."""
    return {RESULTS: work.stage.step.schema, **{name: schema for name, (_, schema) in work.sides.items()}}


def folder_of(work: Work, target: str, output: str) -> Path:
    """Where the rows of an output are."""
    return Path(target) / str(list(outputs(work)).index(output))


def write_empty(work: Work, target: str) -> None:
    """A file without rows for each output, so that there is one."""
    for output, schema in outputs(work).items():
        folder = folder_of(work, target, output)
        folder.mkdir(parents=True)
        pq.write_table(row_schema(schema).empty_table(), folder / "empty.parquet")


def fill(work: Work, bucket: Bucket) -> tuple[int, int]:
    """Compute a bucket and write its rows; the same files again where it was begun before.

    Returns:
        How many were late and how many dropped.
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
    """The rows of a bucket with the types that Spark hands over."""
    dataset = ds.dataset(folder, format="parquet")
    schema = pa.schema([pa.field(f.name, plain_type(f.type)) for f in dataset.schema if f.name != BUCKET])
    for batch in dataset.to_batches(columns=schema.names, batch_size=1 << 16):
        if batch.num_rows:
            yield from pa.Table.from_batches([batch]).cast(schema).to_batches()
