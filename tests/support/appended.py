"""A table of numbers, one file of one row for each commit, divided by day."""

from __future__ import annotations

import uuid
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable
from records import micro_batch

from floodmark.lake.table.files import Written
from floodmark.lake.writing.writer import Writer

SCHEMA = pa.schema([("n", pa.int64()), ("day", pa.string()), ("_kind", pa.int32())])


def create(path: str, interval: int = 10) -> None:
    """An empty table with a checkpoint each so many commits."""
    configuration = {"delta.checkpointInterval": str(interval)}
    DeltaTable.create(path, SCHEMA, partition_by=["day"], configuration=configuration)


def written(path: str, number: int) -> Written:
    """A file of one row."""
    folder = Path(path, uuid.uuid4().hex, "day=2024-01-01" if number % 2 else "day=__HIVE_DEFAULT_PARTITION__")
    folder.mkdir(parents=True)
    pq.write_table(pa.table({"n": [number], "_kind": pa.array([0], pa.int32())}), folder / "part.parquet")
    return Written(folder=folder.parent, partition_by=("day",))


def append(writer: Writer, number: int, app: str = "app") -> bool:
    """Commit a number; it is version ``number + 1`` where there is one writer."""
    return writer.append(lambda: written(writer.path, number), micro_batch(batch=number), (app, number))


def numbers(path: str, version: int | None = None) -> list[tuple[int, str | None]]:
    """The numbers and days of a version."""
    rows = DeltaTable(path, version=version).to_pyarrow_table().sort_by("n").to_pylist()
    return [(row["n"], row["day"]) for row in rows]


def checkpoints(path: str) -> list[int]:
    """The versions that have a checkpoint."""
    return sorted(int(file.name[:20]) for file in Path(path, "_delta_log").glob("*.checkpoint.parquet"))
