"""The three differences on Spark's own Structured Streaming. Each answer is {hour: cents}."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

from arrivals import arrive, forget
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

Answer = dict[str, int]
Aggregate = Callable[[str], Column]
SCHEMA = "at TIMESTAMP, cents BIGINT"


def hourly(orders: DataFrame, aggregate: Aggregate) -> DataFrame:
    """One value per hour; an order more than ten minutes behind the newest is late."""
    windows = orders.withWatermark("at", "10 minutes").groupBy(F.window("at", "1 hour"))
    return windows.agg(aggregate("cents").alias("cents")).select(
        F.date_format("window.start", "HH:mm").alias("hour"), "cents"
    )


def stream(spark: SparkSession, folder: Path, aggregate: Aggregate, checkpoint: str = "checkpoint") -> Answer:
    """Read what has arrived, file by file, from a checkpoint of the folder; the last value of each hour that was updated."""
    answer: Answer = {}

    def remember(batch: DataFrame, _: int) -> None:
        answer.update({row["hour"]: row["cents"] for row in batch.collect()})

    orders = spark.readStream.schema(SCHEMA).option("header", True).option("maxFilesPerTrigger", 1)
    writer = hourly(orders.csv(str(folder / "inbox")), aggregate).writeStream.outputMode("update")
    writer = writer.option("checkpointLocation", str(folder / checkpoint)).trigger(availableNow=True)
    writer.foreachBatch(remember).start().awaitTermination()
    return answer


def batch(spark: SparkSession, folder: Path, aggregate: Aggregate) -> Answer:
    """The same query over all files as a batch."""
    orders = spark.read.schema(SCHEMA).option("header", True).csv(str(folder / "inbox"))
    return {row["hour"]: row["cents"] for row in hourly(orders, aggregate).collect()}


def differences(spark: SparkSession, folder: Path) -> dict[str, Answer]:
    """Answer by answer: a stream whose sum became a maximum, the stream as it was, a batch, and a rebuild when the source has forgotten."""
    for number in (0, 1):
        arrive(folder / "inbox", number)
    sums = stream(spark, folder, F.sum)
    shutil.copytree(folder / "checkpoint", folder / "edited")
    arrive(folder / "inbox", 2)
    answers = {
        "changed": stream(spark, folder, F.max, "edited"),
        "stream": sums | stream(spark, folder, F.sum),
        "batch": batch(spark, folder, F.sum),
    }
    forget(folder / "inbox")
    return answers | {"rebuilt": stream(spark, folder, F.max, "anew")}
