"""Tasks on all cores of a session's workers, whether the driver of the session is this process or a server of Spark Connect.

Where the driver is this process its context is enough, which is there before the session.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import cache

import pyarrow as pa
from pyspark import SparkContext
from pyspark.sql import SparkSession

from floodmark.engines.frames.client import is_connected
from floodmark.engines.spark.session import executors
from floodmark.engines.spark.setup.master import is_cluster

_ROWS = 1 << 12
"""More rows than there are cores."""


def _context(spark: SparkSession | SparkContext) -> SparkContext | None:
    """The context of a driver in this process; None behind Spark Connect."""
    if isinstance(spark, SparkContext):
        return spark
    return None if is_connected(spark) else spark.sparkContext


def parallelism(spark: SparkSession | SparkContext) -> int:
    """The tasks into which Spark divides rows that nothing divides: its cores."""
    context = _context(spark)
    return _behind(spark) if context is None else int(context.defaultParallelism)


@cache
def _behind(spark: SparkSession) -> int:
    return spark.range(_ROWS).selectExpr("spark_partition_id() AS task").distinct().count()


def is_elsewhere(spark: SparkSession) -> bool:
    """Whether workers may be on other machines."""
    return is_connected(spark) or is_cluster(str(spark.sparkContext.master))


def application(spark: SparkSession | SparkContext) -> str:
    """The id of what ends with the session's executors: of the application, or of the session on a server."""
    context = _context(spark)
    return str(spark.session_id if context is None else context.applicationId)  # type: ignore[union-attr]  # of a session of Spark Connect


def workers(spark: SparkSession | SparkContext) -> int:
    """Executors that are known to be there; 1 behind Spark Connect, which tells no number."""
    context = _context(spark)
    return 1 if context is None else executors.count(context)


def answers(spark: SparkSession | SparkContext, answer: Callable[[Iterable[int]], Iterator[str]]) -> list[str]:
    """What a function says in tasks on all free cores at once.

    Args:
        spark: session, or its context.
        answer: numbers of a task's rows -> texts. Travels by value.
    """
    tasks, context = max(parallelism(spark), workers(spark)), _context(spark)
    if context is not None:
        return list(context.parallelize(range(tasks), tasks).mapPartitions(answer).collect())

    def worded(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as arrow  # noqa: PLC0415 - on the worker

        for batch in batches:
            for text in answer(batch.column(0).to_pylist()):
                yield arrow.RecordBatch.from_pydict({"text": [text]})

    rows = spark.range(0, tasks, 1, tasks).mapInArrow(worded, "text string")  # type: ignore[union-attr]  # a session
    return [row["text"] for row in rows.collect()]


def python(spark: SparkSession | SparkContext) -> str:
    """The Python of the workers, for errors."""
    context = _context(spark)
    return "its Python" if context is None else str(context.pythonExec)
