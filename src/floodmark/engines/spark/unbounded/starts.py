"""Markers of starts, in a small table per timeline, ``starts``, that is read beside every input of an operator with several inputs.

Each start appends one marker per input with the progress that the input had reached. Spark does not keep this progress, and an input that
has ended would hold the others back for ever. Such a marker also starts a micro-batch of an operator whose processing time is due.
"""

from __future__ import annotations

import pyarrow as pa
from delta.tables import DeltaTable
from deltalake import DeltaTable as DeltaRs
from deltalake import write_deltalake
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from floodmark.core.time import NEVER
from floodmark.engines.spark.delta import tables
from floodmark.engines.spark.state.checkpoint import checkpoint_of
from floodmark.lake.folder.paths import is_reached
from floodmark.lake.stream import positions
from floodmark.lake.stream.timeline import STARTS, Timeline
from floodmark.lake.table.history import progress
from floodmark.lake.writing.confirmed import confirmed
from floodmark.lake.writing.conflicts import retried
from floodmark.lifecycle.plan import reading
from floodmark.spec.graph.operator import Input, Operator
from floodmark.spec.values.schema import MARKER, STAMPS

_DDL = "input string, progress bigint"
_NAMES = ["input", "progress"]


def begin(spark: SparkSession, operator: Operator, timeline: Timeline) -> None:
    """Prepare a start: append one marker per input, with the input's progress at the last committed micro-batch.

    An operator that needs no markers gets the planned micro-batch of ``Checkpoint.owe`` instead.
    """
    if not _needed(operator):
        checkpoint_of(timeline).plan_timer_batch()
        return
    path, checkpoint = timeline.folder(STARTS), timeline.checkpoint
    if not DeltaTable.isDeltaTable(spark, path):
        tables.create(spark, path, tables.columns(_DDL))
    graph = operator.canonical()
    checkpoint_of(timeline).read_beside(len(reading(graph)))
    by_name = {input_.name: input_ for input_ in operator.inputs}
    reached = dict.fromkeys(by_name, NEVER)
    for name, position in positions.of_inputs(graph, checkpoint.positions(checkpoint.last_committed())).items():
        input_progress = progress(timeline.lake.input(by_name[name]), position.version)
        reached[name] = NEVER if input_progress is None else input_progress
    _append(spark, path, list(reached.items()))


def wake(spark: SparkSession, operator: Operator, timeline: Timeline) -> None:
    """Make the running stream start a micro-batch, by a marker that advances no input."""
    _append(spark, timeline.folder(STARTS), [(operator.inputs[0].name, NEVER)])


def with_starts(
    spark: SparkSession, operator: Operator, timeline: Timeline, input_: Input, rows: DataFrame
) -> DataFrame:
    """The rows of an input and the markers of the starts."""
    if not _needed(operator):
        return rows
    starts = spark.readStream.format("delta").option("startingVersion", 0).load(timeline.folder(STARTS))
    mine = (F.col("input") == input_.name) | F.col("input").isNull()
    stamps = {
        "_event_time": F.lit(None).cast("timestamp"),
        "_watermark": F.col("progress"),
        "_progress": F.col("progress"),
        "_sequence": F.lit(None).cast("bigint"),
        "_ingest_time": F.lit(None).cast("timestamp"),
        "_kind": F.lit(MARKER).cast("int"),
    }
    payload = [F.lit(None).cast(column.type).alias(column.name) for column in input_.schema.columns]
    return rows.unionByName(starts.filter(mine).select(*payload, *(stamps[name].alias(name) for name in STAMPS)))


def _needed(operator: Operator) -> bool:
    """Whether an operator needs markers of starts: with several inputs, or if it waits for processing time."""
    return len(operator.inputs) > 1 or (operator.stateful is not None and operator.stateful.clocked)


def _append(spark: SparkSession, path: str, progress: list[tuple[str, int]]) -> None:
    if not is_reached(path):
        spark.createDataFrame(progress, _DDL).coalesce(1).write.format("delta").mode("append").save(path)
        return
    names, reached = zip(*progress, strict=True)
    rows = pa.table([pa.array(names, pa.string()), pa.array(reached, pa.int64())], _NAMES)

    def attempt() -> None:  # by delta-rs, as a commit of Spark's takes a second
        table = DeltaRs(path)
        confirmed(
            table, path, lambda properties: write_deltalake(table, rows, mode="append", commit_properties=properties)
        )

    retried(attempt, path)
