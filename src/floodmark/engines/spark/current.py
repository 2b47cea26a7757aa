"""``<output>__current``: the last value per key of an output that is revised by refires, for people and BI.

The changelog beside it is what operators read. No stream reads a table that is merged into.
"""

from __future__ import annotations

from typing import Any

from delta.tables import DeltaTable
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from floodmark.core import crash
from floodmark.core.time import Interval
from floodmark.engines.spark import tables
from floodmark.engines.spark.conflicts import retried
from floodmark.engines.spark.lake import Lake
from floodmark.spec.operator import Operator, Output
from floodmark.spec.schema import RETRACTION, ROW


def latest(rows: DataFrame, output: Output) -> DataFrame:
    """The last row per key of a changelog; a retraction alone at the end means there is no value."""
    order = F.struct("_sequence", "_kind")
    picked = rows.groupBy(*(f"`{k}`" for k in output.keys)).agg(F.max_by(F.struct("*"), order).alias("row"))
    return picked.select("row.*")


def replace(
    spark: SparkSession, operator: Operator, lake: Lake, current: Output, rows: DataFrame, interval: Interval
) -> None:
    """After a bounded run: the last values of its changelog ``rows`` in place of what is there for the interval."""
    path = tables.ensure(spark, lake, operator, current, replace=interval.everything)
    values = latest(rows, current).filter(F.col("_kind") == ROW)
    metadata = {
        "operator": operator.name,
        "version": operator.version,
        "mode": "bounded",
        "from": interval.start,
        "to": interval.end,
    }
    changed = interval.everything and not tables.fits(spark, path, current)
    tables.replace(values, path, current, interval, lambda: metadata, anew=changed)


def follow(
    spark: SparkSession, operator: Operator, lake: Lake, output: Output, current: Output, checkpoint: str
) -> Any:
    """A stream from the changelog of ``output`` into ``current``; the caller sets its trigger and starts it."""
    path = tables.ensure(spark, lake, operator, current)
    app = f"current/{operator.name}/{output.table}"
    reader = spark.readStream.format("delta").option("startingVersion", 0).option("skipChangeCommits", "true")
    rows = reader.load(lake.output(output.table)).filter("_kind <> 1 AND _progress IS NOT NULL")

    def merge(batch: DataFrame, number: int) -> None:
        session = batch.sparkSession
        tables.require(
            session,
            path,
            f"current table of '{output.table}'",
            f"Run it again: floodmark run {operator.name} --unbounded",
        )
        crash.point("micro_batch.before_current")
        same = " AND ".join(f"t.`{k}` <=> s.`{k}`" for k in output.keys)
        session.conf.set("spark.databricks.delta.write.txnAppId", app)
        session.conf.set("spark.databricks.delta.write.txnVersion", str(number))
        try:
            merge = DeltaTable.forPath(session, path).alias("t").merge(latest(batch, output).alias("s"), same)
            merge = merge.whenMatchedDelete(f"s._kind = {RETRACTION}").whenMatchedUpdateAll()
            merge = merge.whenNotMatchedInsertAll(f"s._kind = {ROW}")
            retried(merge.execute, path)
        finally:
            session.conf.unset("spark.databricks.delta.write.txnAppId")
            session.conf.unset("spark.databricks.delta.write.txnVersion")
        crash.point("micro_batch.after_current")

    return rows.writeStream.foreachBatch(merge).option("checkpointLocation", checkpoint)
