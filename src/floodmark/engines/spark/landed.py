"""Which units of a source have landed: a small table beside the log, behind it by a few commits at most."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import astuple, dataclass, field
from typing import TYPE_CHECKING

from floodmark.connectors.unit import Landed
from floodmark.core import crash
from floodmark.engines.spark import log
from floodmark.engines.spark.lake import Lake
from floodmark.engines.spark.log import Landing

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_DDL = "name string, size bigint, modified bigint, digest string, status string, ordinal bigint"
_FLUSH_AFTER = 20


@dataclass(slots=True)
class LandedUnits:
    """The names a source has landed, read once per run. The log's own metadata is the truth; this saves reading all of it."""

    spark: SparkSession
    path: str
    known: dict[str, Landed] = field(default_factory=dict)
    _unwritten: list[Landed] = field(default_factory=list)
    _ordinals: int = 0

    @staticmethod
    def load(spark: SparkSession, lake: Lake, last: Landing) -> LandedUnits:
        """Read the table, then what the log has landed since it was last written (a crash, or simply not yet)."""
        path, log_path = lake.internal("sources", last.source, "files"), lake.log(last.source)
        units, written = LandedUnits(spark, path), -1
        if log.exists(spark, path):
            rows = spark.read.format("delta").load(path).orderBy("ordinal").collect()
            units._merge(Landed(**row.asDict()) for row in rows)
            written = max((row.ordinal for row in rows), default=-1)
        if written < last.ordinal:
            for landing in reversed(list(log.landings(log_path, after=written))):
                units.add(landing.units)
        return units

    def add(self, units: Iterable[Landed]) -> None:
        """Remember what became of units; written to the table every now and then."""
        units = list(units)
        self._merge(units)
        self._unwritten += units
        self._ordinals += 1
        if self._ordinals >= _FLUSH_AFTER:
            self.flush()

    def flush(self) -> None:
        """Write what is not written yet."""
        if self._unwritten:
            crash.point("landing.before_files")
            rows = [astuple(unit) for unit in self._unwritten]
            frame = self.spark.createDataFrame(rows, _DDL).coalesce(1)
            frame.write.format("delta").mode("append").save(self.path)
            crash.point("landing.after_files")
            self._unwritten.clear()
        self._ordinals = 0

    def _merge(self, units: Iterable[Landed]) -> None:
        self.known |= {unit.name: unit for unit in units if unit.status != "changing"}
