"""Markers beside the inputs: at restarts of operators with several inputs, and whenever the clock has to move without rows.

A small table per timeline, ``starts``, is read beside every input; each start appends one marker per
input with the progress that input had reached. Spark forgets it, and an input that has ended would hold the others back for ever. An
operator that waits for processing time gets a micro-batch from such a marker when its time has come.
"""

from __future__ import annotations

import pyarrow as pa
from delta.tables import DeltaTable
from deltalake import write_deltalake
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from floodmark.core.time import NEVER
from floodmark.engines.spark.delta import tables
from floodmark.engines.spark.state.checkpoint import checkpoint_of
from floodmark.lake import positions
from floodmark.lake.history import progress
from floodmark.lake.paths import is_local
from floodmark.lake.timeline import STARTS, Timeline
from floodmark.lifecycle.plan import reading
from floodmark.spec.operator import Input, Operator
from floodmark.spec.schema import MARKER, STAMPS

_DDL = "input string, progress bigint"
_NAMES = ["input", "progress"]


def begin(spark: SparkSession, operator: Operator, timeline: Timeline) -> None:
    """Before a start: one marker per input, with the progress it had at the last committed micro-batch; with one input, what is owed."""
    if not _needed(operator):
        checkpoint_of(timeline).owe()
        return
    path, checkpoint = timeline.folder(STARTS), timeline.checkpoint
    if not DeltaTable.isDeltaTable(spark, path):
        tables.create(spark, path, tables.columns(_DDL))
    graph = operator.canonical()
    checkpoint_of(timeline).read_beside(len(reading(graph)))
    by_name = {given.name: given for given in operator.inputs}
    reached = dict.fromkeys(by_name, NEVER)
    for name, place in positions.of_inputs(graph, checkpoint.positions(checkpoint.last_committed())).items():
        found = progress(timeline.lake.input(by_name[name]), place.version)
        reached[name] = NEVER if found is None else found
    _say(spark, path, list(reached.items()))


def wake(spark: SparkSession, operator: Operator, timeline: Timeline) -> None:
    """Make the running stream take a micro-batch; no input gets further by it."""
    _say(spark, timeline.folder(STARTS), [(operator.inputs[0].name, NEVER)])


def with_starts(
    spark: SparkSession, operator: Operator, timeline: Timeline, given: Input, rows: DataFrame
) -> DataFrame:
    """The rows of an input and the markers of the starts."""
    if not _needed(operator):
        return rows
    starts = spark.readStream.format("delta").option("startingVersion", 0).load(timeline.folder(STARTS))
    mine = (F.col("input") == given.name) | F.col("input").isNull()
    stamps = {
        "_event_time": F.lit(None).cast("timestamp"),
        "_watermark": F.col("progress"),
        "_progress": F.col("progress"),
        "_sequence": F.lit(None).cast("bigint"),
        "_ingest_time": F.lit(None).cast("timestamp"),
        "_kind": F.lit(MARKER).cast("int"),
    }
    payload = [F.lit(None).cast(column.type).alias(column.name) for column in given.schema.columns]
    return rows.unionByName(starts.filter(mine).select(*payload, *(stamps[name].alias(name) for name in STAMPS)))


def _needed(operator: Operator) -> bool:
    """With one input Spark's own memory is enough."""
    return len(operator.inputs) > 1 or (operator.stateful is not None and operator.stateful.clocked)


def _say(spark: SparkSession, path: str, progress: list[tuple[str, int]]) -> None:
    if is_local(path):  # a commit of Spark's takes a second
        names, reached = zip(*progress, strict=True)
        write_deltalake(
            path, pa.table([pa.array(names, pa.string()), pa.array(reached, pa.int64())], _NAMES), mode="append"
        )
        return
    spark.createDataFrame(progress, _DDL).coalesce(1).write.format("delta").mode("append").save(path)
