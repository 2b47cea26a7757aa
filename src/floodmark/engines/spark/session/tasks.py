"""Tasks on all cores of a session's workers, whether the driver of the session is this process or a server of Spark Connect."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import cache

import pyarrow as pa
from pyspark.sql import SparkSession

from floodmark.engines.frames.client import is_connected
from floodmark.engines.spark.session import executors
from floodmark.engines.spark.setup.master import is_cluster

_ROWS = 1 << 12
"""More rows than there are cores."""


def parallelism(spark: SparkSession) -> int:
    """The tasks into which Spark divides rows that nothing divides: its cores."""
    return _behind(spark) if is_connected(spark) else int(spark.sparkContext.defaultParallelism)


@cache
def _behind(spark: SparkSession) -> int:
    return spark.range(_ROWS).selectExpr("spark_partition_id() AS task").distinct().count()


def is_elsewhere(spark: SparkSession) -> bool:
    """Whether workers may be on other machines."""
    return is_connected(spark) or is_cluster(str(spark.sparkContext.master))


def application(spark: SparkSession) -> str:
    """The id of what ends with the session's executors: of the application, or of the session on a server."""
    return str(spark.session_id if is_connected(spark) else spark.sparkContext.applicationId)  # type: ignore[attr-defined]  # of a session of Spark Connect


def workers(spark: SparkSession) -> int:
    """Executors that are known to be there; 1 behind Spark Connect, which tells no number."""
    return 1 if is_connected(spark) else executors.count(spark.sparkContext)


def answers(spark: SparkSession, answer: Callable[[Iterable[int]], Iterator[str]]) -> list[str]:
    """What a function says in tasks on all free cores at once.

    Args:
        spark: session.
        answer: numbers of a task's rows -> texts. Travels by value.
    """
    tasks = max(parallelism(spark), workers(spark))
    if not is_connected(spark):
        return list(spark.sparkContext.parallelize(range(tasks), tasks).mapPartitions(answer).collect())

    def worded(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as arrow  # noqa: PLC0415 - on the worker

        for batch in batches:
            for text in answer(batch.column(0).to_pylist()):
                yield arrow.RecordBatch.from_pydict({"text": [text]})

    return [row["text"] for row in spark.range(0, tasks, 1, tasks).mapInArrow(worded, "text string").collect()]


def python(spark: SparkSession) -> str:
    """The Python of the workers, for errors."""
    return "its Python" if is_connected(spark) else str(spark.sparkContext.pythonExec)
