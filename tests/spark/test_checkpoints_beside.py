"""What Spark reads of a table whose checkpoints were written beside its commits, at the versions around each."""

from __future__ import annotations

from pathlib import Path

from appended import append, checkpoints, create
from pyspark.sql import SparkSession

from floodmark.lake.table.entries import LOG, entry_of
from floodmark.lake.writing.checkpointer import Checkpointer
from floodmark.lake.writing.writer import Writer


def read(spark: SparkSession, path: str, version: int) -> list[int]:
    rows = spark.read.format("delta").option("versionAsOf", version).load(path)
    return sorted(row["n"] for row in rows.select("n").collect())


def test_spark_reads_every_version_around_a_checkpoint(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    create(path)
    with Checkpointer() as beside:
        writer = Writer(path, beside)
        assert all(append(writer, number) for number in range(25))
    assert beside.failures() == ()
    assert checkpoints(path) == [9, 19]
    for version in (8, 9, 10, 20, 25):
        assert read(spark, path, version) == list(range(version)), version
    for version in range(19):
        Path(path, LOG, entry_of(version)).unlink()
    for version in (19, 25):
        assert read(spark, path, version) == list(range(version)), version
