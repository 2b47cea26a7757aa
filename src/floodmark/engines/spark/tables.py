"""Output tables: created with their stamps, written exactly once, with what was done in the commit's metadata."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeVar

from delta.tables import DeltaTable
from deltalake.exceptions import DeltaError
from py4j.protocol import Py4JError
from pyarrow.fs import FileType
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from floodmark.connectors.storage import file_system
from floodmark.core.errors import ExecutionError, LifecycleError, PlanError
from floodmark.core.time import END, NEVER, Interval, describe
from floodmark.engines.spark.lake import Lake
from floodmark.spec import partitions
from floodmark.spec.operator import Operator, Output
from floodmark.spec.schema import MARKER, PARTITION, STAMP_DDL, STAMPS

Result = TypeVar("Result")

ROWS_PER_FILE = 1_000_000
_CONFLICTS = re.compile(r"DELTA_(CONCURRENT|METADATA_CHANGED|PROTOCOL_CHANGED)\w*")
TRIES = 5


def added(output: Output) -> tuple[str, ...]:
    """The columns an output's table has beside its own."""
    return (*STAMPS, PARTITION) if output.partitions else STAMPS


def partition_by(output: Output) -> tuple[str, ...]:
    """The columns an output's table is divided by."""
    return (PARTITION,) if output.partitions else ()


def predicate(output: Output, interval: Interval) -> str:
    """The rows of an interval; markers are never among them."""
    if output.partitions:
        return partitions.predicate(output.partitions, interval)
    if interval.everything:
        return f"_kind <> {MARKER}"
    start, end = (
        f"timestamp'{describe(ms).replace('Z', '+00:00')}'"
        for ms in (max(interval.start, NEVER + 1), min(interval.end, END))
    )
    return f"_event_time >= {start} AND _event_time < {end}"


def ensure(spark: SparkSession, lake: Lake, operator: Operator, output: Output, *, replace: bool = False) -> str:
    """Create an output's table, or check that it has the columns it should have. Its path.

    Raises:
        PlanError: PLAN-002, the table has other columns.
    """
    path = lake.output(output.table)
    if not DeltaTable.isDeltaTable(spark, path):
        builder = (
            DeltaTable.createIfNotExists(spark)
            .location(path)
            .addColumns(spark.createDataFrame([], _ddl(output)).schema)
            .partitionedBy(*partition_by(output))
        )
        builder = builder.property("delta.checkpointInterval", "100").property("floodmark.operator", operator.name)
        builder.execute()
        return path
    found = {f.name: f.dataType.simpleString() for f in spark.read.format("delta").load(path).schema}
    wanted = output.schema.types
    if {k: v for k, v in found.items() if k not in added(output)} != wanted and not replace:
        fix = f"Compute all of it anew, which replaces the table: floodmark run {operator.name} --force (without --from and --to)."
        got = ", ".join(f"{k} {v}" for k, v in found.items() if k not in STAMPS)
        got += ", not divided into asset partitions" if output.partitions and PARTITION not in found else ""
        raise PlanError(f"table {path}", output.schema.describe(), got, fix, code="PLAN-002")
    return path


def _ddl(output: Output) -> str:
    return f"{output.schema.ddl()}, {STAMP_DDL}" + (f", {PARTITION} string" if output.partitions else "")


def require(spark: SparkSession, path: str, what: str, fix: str) -> None:
    """Raise ExecutionError EXECUTION-002 when a table is not there (any more)."""
    if not DeltaTable.isDeltaTable(spark, path):
        raise ExecutionError(what, f"a Delta table at {path}", "none", fix, code="EXECUTION-002")


def check_there(path: str, what: str, fix: str) -> None:
    """As ``require``, without Spark: cheap enough for every micro-batch."""
    files, place = file_system(f"{path}/_delta_log")
    if files.get_file_info(place).type == FileType.NotFound:
        raise ExecutionError(what, f"a Delta table at {path}", "none", fix, code="EXECUTION-002")


def marker(spark: SparkSession, output: Output, progress: int) -> DataFrame:
    """The one row without payload that tells readers how far they may go."""
    empty = [F.lit(None).cast(c.type).alias(c.name) for c in output.schema.columns]
    stamps = [
        F.lit(None).cast("timestamp").alias("_event_time"),
        F.lit(progress).cast("bigint").alias("_watermark"),
        F.lit(progress).cast("bigint").alias("_progress"),
        F.lit(None).cast("bigint").alias("_sequence"),
        F.current_timestamp().alias("_ingest_time"),
        F.lit(MARKER).cast("int").alias("_kind"),
    ]
    return divided(spark.range(1).select(*empty, *stamps), output)


def stamped(rows: DataFrame, output: Output, progress: int | None) -> DataFrame:
    """Rows with all columns of the table in order; ``_event_time`` may come as ms."""
    if dict(rows.dtypes)["_event_time"] == "bigint":
        rows = rows.withColumn("_event_time", F.expr("timestamp_millis(`_event_time`)"))
    rows = rows.withColumn("_progress", F.lit(progress).cast("bigint")).withColumn(
        "_ingest_time", F.current_timestamp()
    )
    return divided(rows.select(*(f"`{name}`" for name in (*output.schema.names, *STAMPS))), output)


def divided(rows: DataFrame, output: Output) -> DataFrame:
    """Rows with the name of their asset partition, where the output's table is divided by it."""
    return rows.withColumn(PARTITION, F.expr(output.partitions.sql())) if output.partitions else rows


def in_tasks(rows: DataFrame, output: Output, tasks: int) -> DataFrame:
    """Rows in so many write tasks; those of one asset partition stay together, and several are written at a time."""
    if output.partitions is None:
        return rows.coalesce(tasks)
    return rows.repartition(max(tasks, rows.sparkSession.sparkContext.defaultParallelism), PARTITION)


def said(metadata: Mapping[str, Any]) -> str:
    """What a commit says of itself, as its ``userMetadata``."""
    return json.dumps({"floodmark": metadata})


def replace(
    rows: DataFrame, path: str, output: Output, interval: Interval, metadata: Mapping[str, Any], *, anew: bool = False
) -> None:
    """Replace an interval, atomically; conflicts with other writers are tried again. ``anew`` replaces the table, columns and all."""
    writer = rows.write.format("delta").mode("overwrite").option("userMetadata", said(metadata))
    if anew:
        writer = writer.option("overwriteSchema", "true").partitionBy(*partition_by(output))
    else:
        writer = writer.option("replaceWhere", predicate(output, interval))
    retried(lambda: writer.save(path), path)


def retried(write: Callable[[], Result], path: str) -> Result:
    """Run a write again when another writer came in between.

    Raises:
        LifecycleError: LIFECYCLE-004, it came in between every time.
    """
    for left in reversed(range(TRIES)):
        try:
            return write()
        except (PySparkException, Py4JError) as error:
            if not _CONFLICTS.search(str(error)):
                raise
            if not left:
                fix = "Run it again when the other writer has finished."
                raise LifecycleError(
                    f"table {path}", "no other writer", "one each time", fix, code="LIFECYCLE-004"
                ) from error
    raise AssertionError


@contextmanager
def spark_boundary(where: str, again: str) -> Iterator[None]:
    """What Spark, its Java or the disk raises becomes an error for people; the original stays its cause.

    Raises:
        ExecutionError: EXECUTION-003.
    """
    try:
        yield
    except (PySparkException, Py4JError, DeltaError, OSError) as error:
        fix = f"Nothing is lost or there twice. Mend the cause, then go on: {again}"
        raise ExecutionError(where, "to get through", text_of(error), fix, code="EXECUTION-003") from error


def text_of(error: BaseException) -> str:
    """The lines of a Spark exception that say what happened and why, without the stack."""
    text = str(error)
    ours = re.findall(r"floodmark\.core\.errors\.(\w+: [^\n]*)", text)
    if ours:
        return str(ours[-1])
    lines = [line.strip() for line in text.splitlines() if line.strip()] or [type(error).__name__]
    conditions = [line for line in lines if re.search(r"\[[A-Z][A-Z0-9_.]+\]", line)]
    causes = [line for line in lines if line.startswith("Caused by: ")]
    told = dict.fromkeys([(conditions or lines)[0 if conditions else -1], *causes[-1:]])
    return "; ".join(told)[:2000]
