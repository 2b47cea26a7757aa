"""The process from which Spark forks its Python workers, started ahead: its imports take a second, beside which a stream is prepared and planned."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import pyarrow as pa
from pyspark import SparkContext, inheritable_thread_target
from pyspark.sql import SparkSession

_started: set[str] = set()
"""Ids of the applications that have one."""


def note(context: SparkContext) -> None:
    """The workers of an application have the process: they have done something in Python."""
    _started.add(context.applicationId)


def started(spark: SparkSession) -> Future[None] | None:
    """Let a worker pass a row on, in the background: Spark then has the process for those that follow. None if it has one already."""
    application = spark.sparkContext.applicationId
    if application in _started:
        return None
    _started.add(application)

    def passed(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return batches

    def start() -> None:
        spark.range(0, 1, 1, 1).mapInArrow(passed, "id bigint").collect()

    with_settings = inheritable_thread_target(spark)
    pool = ThreadPoolExecutor(1, "workers")
    try:
        return pool.submit(with_settings(start))
    finally:
        pool.shutdown(wait=False)
