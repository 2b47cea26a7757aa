"""A case on real Spark: a log written by hand as a Delta table, an operator run over it, what its tables hold."""

from __future__ import annotations

import shutil
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
from pyspark.sql import SparkSession

from floodmark.core.time import Interval
from floodmark.engines.spark.bounded.run import run_bounded
from floodmark.engines.spark.unbounded.run import run_unbounded
from floodmark.lake import ticks
from floodmark.lake.paths import Lake
from floodmark.spec.operator import Operator
from floodmark.spec.run import RunResult
from floodmark.testing import lakes
from floodmark.testing.log import Log


@dataclass(slots=True)
class SparkCase:
    """One operator with a lake of its own.

    Args:
        spark: session.
        operator: reads logs only.
        folder: of the lake, empty.
    """

    spark: SparkSession
    operator: Operator
    folder: str
    lake: Lake = field(init=False)

    def __post_init__(self) -> None:
        self.lake = Lake(self.folder)

    def land(self, log: Log, start: int = 0, stop: int | None = None, *, name: str | None = None) -> None:
        """Append entries of a log to an input's table, by default the first's, in one commit; ticks are no rows there."""
        lakes.land(self.lake, self.operator, log, start, stop, name=name)

    def replay(self, other: SparkCase) -> None:
        """Take over the clock that another run has recorded, where it has."""
        recorded = Path(ticks.folder(other.operator, other.lake))
        if recorded.exists():
            shutil.copytree(recorded, ticks.folder(self.operator, self.lake))

    def run_unbounded(self, clock: int | None = None) -> RunResult:
        """As a stream, until it has caught up.

        Args:
            clock: processing time to run at, ms; the machine's by default.
        """
        return run_unbounded(self.spark, self.operator, self.lake, until_caught_up=True, clock=clock)

    def run_bounded(self, interval: Interval | None = None) -> RunResult:
        """Over an interval, by default all of time."""
        return run_bounded(self.spark, self.operator, self.lake, interval)

    def outputs(self) -> dict[str, pa.Table]:
        """Output name -> its table as it is, in order."""
        return lakes.outputs(self.lake, self.operator)
