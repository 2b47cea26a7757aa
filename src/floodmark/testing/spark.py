"""A case on real Spark: an operator runs over a hand-written log in a Delta table; its output tables are the result."""

from __future__ import annotations

from pyspark.sql import SparkSession

from floodmark.core.time import Interval
from floodmark.engines.spark.bounded.run import run_bounded
from floodmark.engines.spark.unbounded.run import run_unbounded
from floodmark.spec.graph.operator import Operator
from floodmark.spec.values.run import LateRows, RunResult
from floodmark.testing.lakes import LakeCase


class SparkCase(LakeCase):
    """One operator on Spark, with a lake of its own.

    Args:
        spark: session.
        operator: reads logs only.
        folder: of the lake, empty.
    """

    def __init__(self, spark: SparkSession, operator: Operator, folder: str) -> None:
        super().__init__(operator, folder)
        self.spark = spark

    def run_unbounded(self, clock: int | None = None, files_per_batch: int | None = None) -> RunResult:
        """Run unbounded until the stream has caught up.

        Args:
            clock: processing time to run at, ms; the machine's by default.
            files_per_batch: most commits of an input that one micro-batch reads.
        """
        return run_unbounded(
            self.spark, self.operator, self.lake, until_caught_up=True, clock=clock, files_per_batch=files_per_batch
        )

    def run_bounded(self, interval: Interval | None = None, late_rows: LateRows = "as_landed") -> RunResult:
        """Run bounded over an interval, by default all of time; late rows as the stream took them, or all on time."""
        return run_bounded(self.spark, self.operator, self.lake, interval, late_rows=late_rows)
