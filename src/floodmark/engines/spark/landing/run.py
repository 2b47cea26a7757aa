"""Landing and replay of a quarantine on Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING, Unpack

from floodmark.engines.landing import quarantine
from floodmark.engines.landing import run as landing
from floodmark.engines.landing.quarantine import Again, Replayed
from floodmark.engines.landing.run import How
from floodmark.engines.landing.session import LandingResult
from floodmark.engines.spark.landing.workers import SparkWorkers
from floodmark.lake.folder.paths import Lake
from floodmark.spec.rows.source import Source

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def land(spark: SparkSession, source: Source, lake: Lake, **how: Unpack[How]) -> LandingResult:
    """Land the pending units of a source; as ``engines.landing.run.land``.

    Args:
        spark: a session of ``spark_session``.
        source: contract, connector, watermark strategy.
        lake: where the log is.
        how: the further arguments.
    """
    return landing.land(SparkWorkers(spark), source, lake, **how)


def replay(spark: SparkSession, source: Source, lake: Lake, **how: Unpack[Again]) -> Replayed:
    """Land the quarantined rows that keep the contract now; as ``engines.landing.quarantine.replay``."""
    return quarantine.replay(SparkWorkers(spark), source, lake, **how)
