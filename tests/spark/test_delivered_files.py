"""Spark reads the files of a delivery that are divided among folders."""

from __future__ import annotations

from pathlib import Path

import small_lake
from pyspark.sql import SparkSession
from small_lake import TOTALS, row

from floodmark import ToFiles
from floodmark.deliveries.run import deliver
from floodmark.spec.assets.delivery import routes


def test_spark_reads_the_names_of_the_folders(spark: SparkSession, tmp_path: Path) -> None:
    lake, folder = small_lake.make(tmp_path / "lake"), tmp_path / "out"
    keys = [None, "a/b=c", "größe 漢", "100%", "007", "x\ny", 'say "yes"', " ", "null"]
    small_lake.batch(lake, 2, [row(key, number, 20 + number) for number, key in enumerate(keys)])
    delivery = ToFiles(str(folder), changes=True, partition_by="key")
    deliver(routes(TOTALS, [delivery], "test")[0], lake, until_caught_up=True)
    rows = spark.read.parquet(str(folder)).filter("_change = 'upsert'").collect()
    assert {row.key: row.total for row in rows} == {"a": 10, "b": 2} | {key: n for n, key in enumerate(keys)}
