"""Tables of last values, ``<output>__current``: the last value per key of an output that refires revise, for people and BI.

Operators read the changelog, which is the output's own table. No stream reads a table into which rows are merged.
"""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable
from functools import partial, reduce
from operator import and_
from typing import Any

from deltalake import DeltaTable as DeltaRs
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from floodmark.core import crash
from floodmark.core.time import NEVER, Interval
from floodmark.engines.spark.delta import tables
from floodmark.engines.spark.delta.appender import retried
from floodmark.lake.folder.bucket import is_bucket
from floodmark.lake.folder.paths import Lake, is_local, is_reached
from floodmark.lake.results.tables import fits
from floodmark.lake.stream import last_values, plans
from floodmark.lake.stream.checkpoint import checkpoint_at
from floodmark.lake.stream.timeline import FOLLOWERS, Timeline
from floodmark.lake.table import entries, history
from floodmark.lake.table.commits import BoundedRun, MicroBatch
from floodmark.lake.table.files import Written
from floodmark.lake.table.outputs import check_there
from floodmark.lake.writing import merging as lake_merging
from floodmark.lake.writing.writer import Writer
from floodmark.spec.graph.operator import Operator, Output
from floodmark.spec.values.schema import RETRACTION, ROW

VALUES = "_kind <> 1"
"""SQL condition for the rows of a changelog without its markers."""
_OF_STREAM = f"{VALUES} AND _progress IS NOT NULL"
"""SQL condition for the rows that a stream has written; a bounded run writes its own rows to the table of last values itself."""


class Stopped(Exception):  # noqa: N818 - not an error: the way out of a query between two micro-batches
    """Raised inside a micro-batch that has not begun: the run was asked to stop."""


def latest(rows: DataFrame, output: Output) -> DataFrame:
    """The last row of each key of a changelog; a retraction if the key has no value at the end. Of a multiset the rows that are not retracted."""
    if not output.keys:
        return _remaining(rows, output)
    order = F.struct("_sequence", "_kind")
    picked = rows.groupBy(*(f"`{k}`" for k in output.keys)).agg(F.max_by(F.struct("*"), order).alias("row"))
    return picked.select("row.*")


def _remaining(rows: DataFrame, output: Output) -> DataFrame:
    """The rows of a changelog that are not retracted, each as often as it counts."""
    own = Window.partitionBy(*(f"`{name}`" for name in output.schema.names))
    sign = F.when(F.col("_kind") == ROW, 1).otherwise(-1)
    counted = rows.withColumn("_left", F.sum(sign).over(own)).withColumn(
        "_copy", F.row_number().over(own.orderBy(F.desc("_kind"), F.desc("_sequence")))
    )
    return counted.filter((F.col("_kind") == ROW) & (F.col("_copy") <= F.col("_left"))).drop("_left", "_copy")


def _copies_that_go(table: DataFrame, rows: DataFrame, output: Output) -> DataFrame:
    """The rows of a table with a copy for each retraction that no row of the changelog cancels, as retractions with their ``_sequence``."""
    names = [f"`{name}`" for name in output.schema.names]
    sign = F.when(F.col("_kind") == ROW, -1).otherwise(1)
    less = rows.groupBy(*names).agg(F.sum(sign).alias("_less")).filter("_less > 0").alias("d")
    same = [F.col(f"t.{name}").eqNullSafe(F.col(f"d.{name}")) for name in names]
    own = Window.partitionBy(*(f"t.{name}" for name in names)).orderBy("t._sequence")
    matches = (
        table.alias("t")
        .join(F.broadcast(less), reduce(and_, same))
        .select("t.*", "d._less", F.row_number().over(own).alias("_copy"))
    )
    return matches.filter("_copy <= _less").drop("_less", "_copy").withColumn("_kind", F.lit(RETRACTION).cast("int"))


def replace(
    spark: SparkSession,
    operator: Operator,
    lake: Lake,
    output: Output,
    rows: DataFrame,
    run: BoundedRun,
    files: Written | None = None,
) -> None:
    """Replace the interval of a bounded run in a table of last values by the last values of the run's changelog.

    A table that a rollback has left with other columns is made anew first, as the stream does at its next start.

    Args:
        spark: session.
        operator: of the output.
        lake: of the tables.
        output: with the changelog.
        rows: of the changelog, complete.
        run: the bounded run.
        files: of the rows, on a local disk, if they are written already.
    """
    current, interval = output.current, run.interval
    assert current is not None
    if not interval.everything and not _fits(spark, lake.output(current.table), current):
        timeline = Timeline.current(lake, operator.name)
        if not checkpoint_at(timeline.folder(FOLLOWERS, output.table)).begun():
            _rebuilt(spark, operator, timeline, output)
    path = tables.ensure(spark, lake, operator, current, replace=interval.everything)
    values = latest(rows, current).filter(F.col("_kind") == ROW)
    record = dataclasses.replace(run, table=current.table)
    changed = interval.everything and not fits(path, current)
    same = None
    if files is not None and not changed and not current.keys and set(files.kinds()) <= {ROW} and is_local(path):
        same = files.copied(path)  # every row is left: the same files, without a plan that looks for copies
    tables.replace(values, path, current, interval, lambda: record, anew=changed, files=same)


def follow(
    spark: SparkSession, operator: Operator, timeline: Timeline, output: Output, current: Output, ended: threading.Event
) -> Any:
    """A stream from the changelog of ``output`` into ``current``; the caller sets its trigger and starts the stream.

    No micro-batch begins after ``ended`` is set. A rollback or a rebuild has put the last values of its changelog into ``current``, and has
    recorded the version from which to follow. ``current`` is made anew first if its rows are of unknown origin, as after a lost checkpoint.
    """
    lake, checkpoint = timeline.lake, timeline.folder(FOLLOWERS, output.table)
    plans.resume(checkpoint)
    app, path = timeline.app(f"current/{output.table}"), lake.output(current.table)
    # at a start Spark plans the last micro-batch again, the first from this version: not from before the commits of a rollback
    first = last_values.follows_from(timeline, output.table)
    if first is None:
        begun = checkpoint_at(checkpoint).begun()
        first = _rebuilt(spark, operator, timeline, output) if not begun and _filled(spark, path) else 0
        last_values.followed(timeline, output.table, first)
    if first > 0:
        _reach(operator, timeline, output, first)
    tables.ensure(spark, lake, operator, current)
    reader = spark.readStream.format("delta").option("startingVersion", first).option("skipChangeCommits", "true")
    rows = reader.load(lake.output(output.table)).filter(_OF_STREAM)

    into = merging(operator, lake, output, current, app)

    def merge(batch: DataFrame, number: int) -> None:
        if ended.is_set():
            raise Stopped
        if batch.isEmpty():
            return  # only markers: a merge of no rows takes as long as a merge of many
        plans.agree(checkpoint, number)
        session = batch.sparkSession
        crash.point("micro_batch.before_current")
        session.conf.set("spark.databricks.delta.write.txnAppId", app)
        session.conf.set("spark.databricks.delta.write.txnVersion", str(number))
        try:
            into(batch, number)
        finally:
            session.conf.unset("spark.databricks.delta.write.txnAppId")
            session.conf.unset("spark.databricks.delta.write.txnVersion")
        crash.point("micro_batch.after_current")

    return rows.writeStream.foreachBatch(merge).option("checkpointLocation", checkpoint)


def merging(
    operator: Operator, lake: Lake, output: Output, current: Output, app: str | None = None
) -> Callable[[DataFrame, int], None]:
    """The function that merges the last values of rows of ``output`` into ``current``. A repeated call with the same rows changes nothing.

    Args:
        operator: of the output.
        lake: of the tables.
        output: with a changelog.
        current: its table of last values.
        app: application id of the transactions; the number of the micro-batch is their version. None for merges that no rollback fences.
    """
    path, fix = lake.output(current.table), f"Run it again: floodmark run {operator.name} --unbounded"
    keys = output.keys or ("_sequence",)
    same = " AND ".join(f"t.`{k}` <=> s.`{k}`" for k in keys)
    opened: dict[str, DeltaRs] = {}

    def into(rows: DataFrame, number: int) -> None:
        require = partial(check_there, path, f"current table of '{output.table}'", fix)
        require()
        changes = rows.filter(VALUES)
        values = latest(changes, output)
        if not output.keys:
            table = rows.sparkSession.read.format("delta").load(path)
            values = values.unionByName(_copies_that_go(table, changes, output).select(*values.columns))
        if is_bucket(path):  # by delta-rs: no commit there is Spark's
            last_rows = values.toArrow()
            if last_rows.num_rows:
                lake_merging.merge(path, last_rows, keys, opened, None if app is None else (app, number))
            return
        from delta.tables import DeltaTable  # noqa: PLC0415 - behind Spark Connect it need not be installed

        merge = DeltaTable.forPath(rows.sparkSession, path).alias("t").merge(values.alias("s"), same)
        merge = merge.whenMatchedDelete(f"s._kind = {RETRACTION}").whenMatchedUpdateAll()
        merge = merge.whenNotMatchedInsertAll(f"s._kind = {ROW}")
        try:
            retried(merge.execute, path)
        except Exception:
            require()  # if the table is gone, its error says more
            raise

    return into


def _fits(spark: SparkSession, path: str, current: Output) -> bool:
    return not _is_table(spark, path) or fits(path, current)


def _filled(spark: SparkSession, path: str) -> bool:
    return _is_table(spark, path) and bool(spark.read.format("delta").load(path).take(1))


def _is_table(spark: SparkSession, path: str) -> bool:
    if is_reached(path):
        return entries.is_table(path)
    from delta.tables import DeltaTable  # noqa: PLC0415 - as above

    return DeltaTable.isDeltaTable(spark, path)


def _rebuilt(spark: SparkSession, operator: Operator, timeline: Timeline, output: Output) -> int:
    """Compute the table of last values from all of its changelog; returns the version of the changelog from which to follow."""
    path = timeline.lake.output(output.table)
    version = DeltaRs(path).version()
    rows = spark.read.format("delta").option("versionAsOf", version).load(path).filter(VALUES)
    run = BoundedRun(
        operator=operator.name,
        version=operator.version,
        fingerprint=operator.fingerprint,
        table=output.table,
        interval=Interval(),
        late_rows="as_landed",
        inputs={output.table: {"version": version}},
    )
    replace(spark, operator, timeline.lake, output, rows, run)
    return version + 1


def _reach(operator: Operator, timeline: Timeline, output: Output, first: int) -> None:
    """Commit a marker if the changelog lacks the version with which its follower begins, as a stream can only begin with an existing version."""
    path = timeline.lake.output(output.table)
    if DeltaRs(path).version() < first:
        progress = history.progress(path)
        record = MicroBatch.of(
            operator,
            output.table,
            timeline=timeline.number,
            batch=timeline.checkpoint.last_committed(),
            progress=NEVER if progress is None else progress,
            settled=True,
            engine="spark",
        )
        Writer(path).note(record)
