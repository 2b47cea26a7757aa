"""The recorded clock of a stream on Spark, in the table of ``lake/stream/ticks``."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

import delta
from pyspark.sql import SparkSession

from floodmark.core.time import NEVER
from floodmark.engines.spark.delta import tables
from floodmark.engines.spark.delta.appender import Appender
from floodmark.lake.folder.paths import is_reached
from floodmark.lake.stream import ticks
from floodmark.lake.stream.timeline import TICKS, Timeline
from floodmark.lake.table.commits import Ticked

_DDL = ", ".join(f"{name} bigint" for name in ticks.COLUMNS.names)


@dataclass(slots=True)
class Ticks:
    """The recorded clock of one unbounded run.

    Args:
        timeline: of an operator that waits for processing time.
        clock: processing time to run at, ms; None for the clock of Spark's micro-batches.
    """

    timeline: Timeline
    clock: int | None = None
    due: int | None = field(default=None, init=False)
    """The clock, ms, for which the operator waits; None if it waits for none."""
    _reached: int = field(default=NEVER, init=False)

    @staticmethod
    def open(spark: SparkSession, timeline: Timeline, clock: int | None = None) -> Ticks:
        """The recorded clock, continued from the table's last row; the table is created if there is none."""
        path = timeline.folder(TICKS)
        opened = Ticks(timeline, clock)
        if not delta.DeltaTable.isDeltaTable(spark, path):
            tables.create(spark, path, ticks.schema())
            return opened
        opened._reached = ticks.reached(path)
        return opened

    def waits_no_longer(self) -> bool:
        """Whether ``due`` has passed; True once per ``due``. Always False with a fixed clock."""
        if self.clock is not None or self.due is None or self.due > time.time_ns() // 1_000_000:
            return False
        self.due = None
        return True

    def record(self, spark: SparkSession, batch: int, clock: int, progress: int, positions: list[int]) -> None:
        """Record the clock of a micro-batch, before its outputs are written. A repeated micro-batch finds its row, and adds none.

        Args:
            spark: session.
            batch: number of the micro-batch.
            clock: processing time of the micro-batch, ms.
            progress: before its first row.
            positions: last sequence that each key group has seen in the micro-batch.
        """
        reached = max(self._reached, *positions)
        if is_reached(self.timeline.folder(TICKS)):  # Spark would plan a query and start a job for the one row
            tick = ticks.Recorded(clock=clock, progress=progress, sequence=self._reached, reached=reached)
            ticks.record(self.timeline, batch, tick)
            self._reached = reached
            return
        row = spark.createDataFrame([(batch, clock, progress, self._reached, reached)], _DDL).coalesce(1)
        record = Ticked(operator=self.timeline.operator, batch=batch)
        Appender(self.timeline.folder(TICKS)).append(row, *ticks.application(self.timeline, batch), record)
        self._reached = reached
