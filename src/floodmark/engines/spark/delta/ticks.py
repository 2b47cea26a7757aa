"""Processing time is data too: where the clock stood at each micro-batch is recorded, and a bounded run replays it.

A small table per timeline of an operator that waits for processing time, ``ticks``, has a row per micro-batch: the clock
before its first row, the progress in force, and the last sequence of all rows before it.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field

import delta
from pyspark.sql import SparkSession

from floodmark.core.time import NEVER
from floodmark.engines.spark.delta import tables
from floodmark.engines.spark.delta.appender import Appender
from floodmark.lake import marks
from floodmark.lake.commits import Ticked
from floodmark.lake.timeline import TICKS, Timeline

_DDL = "batch bigint, clock bigint, progress bigint, sequence bigint, reached bigint"
"""``sequence``: of the last row before the micro-batch; ``reached``: of its own last row."""


@dataclass(slots=True)
class Ticks:
    """The recorded clock of one unbounded run.

    Args:
        timeline: of an operator that waits for processing time.
        clock: to run at, ms; None for that of Spark's micro-batches.
    """

    timeline: Timeline
    clock: int | None = None
    due: int | None = field(default=None, init=False)
    """The clock the operator waits for."""
    _reached: int = field(default=NEVER, init=False)

    @staticmethod
    def open(spark: SparkSession, timeline: Timeline, clock: int | None = None) -> Ticks:
        """Make the table, or go on from it."""
        path = timeline.folder(TICKS)
        found = Ticks(timeline, clock)
        if not delta.DeltaTable.isDeltaTable(spark, path):
            tables.create(spark, path, tables.columns(_DDL))
            return found
        reached = marks.reached(path)
        found._reached = NEVER if reached is None else reached
        return found

    def waits_no_longer(self) -> bool:
        """Whether the time has come that something waits for; said once."""
        if self.clock is not None or self.due is None or self.due > time.time_ns() // 1_000_000:
            return False
        self.due = None
        return True

    def record(self, spark: SparkSession, batch: int, clock: int, progress: int, positions: list[int]) -> None:
        """Before the outputs of a micro-batch are written; a repeated one finds its row there.

        Args:
            spark: session.
            batch: its number.
            clock: it ran at.
            progress: before its first row.
            positions: last sequence each key group has seen in it.
        """
        reached = max(self._reached, *positions)
        row = spark.createDataFrame([(batch, clock, progress, self._reached, reached)], _DDL).coalesce(1)
        operator = self.timeline.operator
        record = Ticked(operator=operator, batch=batch)
        Appender(self.timeline.folder(TICKS)).append(row, f"{operator}/ticks", batch, record)
        self._reached = reached
