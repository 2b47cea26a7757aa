"""The workers of Spark for landing: they read, check and write units."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace

import pyarrow as pa
from pyspark import StorageLevel, TaskContext
from pyspark.sql import DataFrame, SparkSession

from floodmark.connectors.judging.validation import Rules
from floodmark.connectors.unit import Reader, Unit
from floodmark.engines.frames.client import active
from floodmark.engines.landing import judging, quarantine
from floodmark.engines.landing.judging import Refused
from floodmark.engines.landing.spool import SpooledBlobs, spooled
from floodmark.engines.landing.stamping import Stamping
from floodmark.engines.landing.units import ROWS, Report, blobs_in_turn, blobs_of
from floodmark.engines.spark.delta import tables
from floodmark.engines.spark.delta.appender import Appender
from floodmark.engines.spark.landing import blobs as of_spark
from floodmark.engines.spark.landing import expecting, punctuation
from floodmark.engines.spark.landing.blobs import SparkBlobs, reports_of
from floodmark.engines.spark.session import shipping
from floodmark.engines.spark.session.tasks import is_elsewhere, parallelism
from floodmark.lake.folder.paths import Lake, is_reached
from floodmark.lake.logs import log
from floodmark.lake.table.commits import Landing
from floodmark.lake.table.outputs import table_schema
from floodmark.lake.writing.writer import Writer
from floodmark.spec.rows.source import Punctuated, Source
from floodmark.spec.values.schema import Schema

_TASKS_PER_CORE = 4
_AT_HAND_BYTES = 4 << 20
"""Most bytes of the units of a commit that this process reads itself if Spark's workers are on its machine: jobs of Spark would take ten times as long."""
_AT_HAND_ROWS = 10_000
"""The same of units of which the number of rows is known, and not their size, such as messages."""
_READ_BYTES = 64 << 20
"""Most bytes of rows that this process gives Spark for expectations, as all of them are in the memory of both; workers read units with more."""


@dataclass(slots=True)
class SparkWorkers:
    """The workers of Spark during one landing.

    Args:
        spark: a session of ``spark_session``.
    """

    spark: SparkSession
    _appenders: dict[str, Appender] = field(default_factory=dict)
    _writers: dict[str, Writer] = field(default_factory=dict)
    _in_place: bool = field(default=False, init=False)
    """Whether workers are on this machine, and this process writes the lake without Spark."""
    _row_bytes: float = field(default=0.0, init=False)
    """Bytes per row of the units without a known size that this process has read last."""

    def check(self, source: Source, lake: Lake) -> None:
        """As ``port.Workers``. Spark lands every source; modules that workers cannot import are shipped with the contract."""
        shipping.by_value(self.spark, source.contract)
        self._in_place = is_reached(lake.root) and not is_elsewhere(self.spark)

    def create_log(self, source: Source, path: str) -> None:
        """As ``port.Workers``."""
        tables.create(self.spark, path, table_schema(source.schema), properties=log.properties(source))

    def parsed(self, reader: Reader, units: Sequence[Unit], source: Source, now: int) -> SparkBlobs | SpooledBlobs:
        """As ``port.Workers``."""
        if self._are_at_hand(units, source):
            blobs = self._read_here(reader, units, source, now)
            if blobs is not None:
                return blobs

        def parsed(refused: Refused) -> DataFrame:
            return _parsed(self.spark, reader, units, Rules(source, now, refused))

        refused, counts = _expected(parsed, source)
        rows, reports = punctuation.judged(lambda later: parsed(judging.after(refused, later)), source, _reported)
        return SparkBlobs(rows, judging.counted(reports, counts), self._appenders)

    def _are_at_hand(self, units: Sequence[Unit], source: Source) -> bool:
        rows = _rows_without_size(units)
        return (
            self._in_place
            and not isinstance(source.watermark, Punctuated)
            and all(unit.size or unit.rows for unit in units)  # of others nothing is known
            and sum(unit.size for unit in units) <= _AT_HAND_BYTES
            and rows <= _AT_HAND_ROWS
            and rows * self._row_bytes <= _READ_BYTES
        )

    def _read_here(self, reader: Reader, units: Sequence[Unit], source: Source, now: int) -> SpooledBlobs | None:
        """The blobs of few rows, read by this process as a worker would; Spark computes the expectations. None if the rows are too long for that."""

        def parse(refused: Refused) -> SpooledBlobs:
            read = spooled(blobs_in_turn(reader, units, Rules(source, now, refused)))
            return replace(read, writers=self._writers)

        read = parse({})
        if rows := _rows_without_size(units):
            self._row_bytes = read.size / rows
        if not judging.criteria_of(source):
            return read
        if read.size > _READ_BYTES:
            read.release()
            return None
        blobs = ((unit, 0, kind, data) for unit, kind, data in read.pieces() if kind == ROWS)
        refused, counts = expecting.expected_of_few(punctuation.exploded_here(self.spark, blobs, source), source)
        if refused:
            read.release()
            read = parse(refused)
        return replace(read, reports=judging.counted(read.reports, counts))

    def replayed(self, path: str, source: Source, now: int) -> SparkBlobs:
        """As ``port.Workers``."""
        waiting = self.spark.read.format("delta").load(path).where(f"{quarantine.OPEN} AND _replay IS NOT NULL")
        # not persist(): the MERGE of the marks changes the table of these rows, after which Spark would read them again

        def parsed(refused: Refused) -> DataFrame:
            return _read_again(waiting, Rules(source, now, refused))

        refused, _ = _expected(parsed, source)

        def checkpointed(frame: DataFrame) -> DataFrame:
            with active(self.spark):
                return frame.localCheckpoint()

        rows = punctuation.judged(lambda later: parsed(judging.after(refused, later)), source, checkpointed)
        return SparkBlobs(rows, reports_of(rows), self._appenders)

    def append_marker(
        self, path: str, landing: Landing, schema: Schema, plan: Stamping, *, modified: int, widen: bool
    ) -> None:
        """As ``port.Workers``."""
        frame = of_spark.marker(self.spark, schema, plan)
        of_spark.append(self._appenders, frame, path, landing, modified=modified, widen=widen, schema=schema)

    def boundary(self, where: str, again: str) -> AbstractContextManager[None]:
        """As ``port.Workers``."""
        return tables.spark_boundary(where, again)


def _rows_without_size(units: Sequence[Unit]) -> int:
    """Rows of the units whose size is not known."""
    return sum(unit.rows for unit in units if not unit.size)


def _parsed(spark: SparkSession, reader: Reader, units: Sequence[Unit], rules: Rules) -> DataFrame:
    """Blobs of all units, in the order of the units within and across tasks."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for index in batch.column(0).to_pylist():
                for blob in blobs_of(index, reader, units[index], rules):
                    yield of_spark.batch_of(blob)

    tasks = min(len(units), _TASKS_PER_CORE * parallelism(spark))
    return spark.range(0, len(units), 1, tasks).mapInArrow(run, of_spark.DDL)


def _expected(parsed: Callable[[Refused], DataFrame], source: Source) -> tuple[Refused, judging.Counts]:
    """As ``expecting.expected``, of a source whose landing judges expectations; its units are read one time more."""
    if not judging.criteria_of(source):
        return {}, {}
    frame = parsed({}).persist(StorageLevel.MEMORY_AND_DISK)
    try:
        return expecting.expected(punctuation.exploded(frame, source), source)
    finally:
        frame.unpersist()


def _reported(frame: DataFrame) -> tuple[DataFrame, list[Report]]:
    """(blobs) -> the same, cached until they are written, and the reports of the workers."""
    frame = frame.persist(StorageLevel.MEMORY_AND_DISK)
    try:
        return frame, reports_of(frame)
    except BaseException:
        frame.unpersist()
        raise


def _read_again(waiting: DataFrame, rules: Rules) -> DataFrame:
    """Blobs of the quarantined rows, in the order in which they were quarantined; the rows of a task are one unit."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        unit = context.partitionId() if context is not None else 0
        for blob in quarantine.blobs_of(unit, batches, rules):
            yield of_spark.batch_of(blob)

    return waiting.orderBy(*quarantine.ORDER).select(*quarantine.READ).mapInArrow(run, of_spark.DDL)
