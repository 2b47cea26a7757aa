"""Output tables: created with their stamps, written exactly once, with what was done in the commit's metadata."""

from __future__ import annotations

import json
import re
import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType
from typing import Any

from delta.tables import DeltaTable
from deltalake import DeltaTable as DeltaRs
from deltalake import Schema as DeltaSchema
from deltalake.exceptions import DeltaError
from py4j.protocol import Py4JError
from pyarrow.fs import FileType
from pyspark import StorageLevel
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from floodmark.connectors.storage import file_system
from floodmark.core import machine
from floodmark.core.errors import ExecutionError, PlanError
from floodmark.core.time import END, NEVER, Interval, from_ms
from floodmark.engines.spark import division, zones
from floodmark.engines.spark.appender import Appender
from floodmark.engines.spark.conflicts import retried
from floodmark.engines.spark.lake import Lake, is_local
from floodmark.spec import partitions
from floodmark.spec.operator import Input, Operator, Output
from floodmark.spec.partitions import literal
from floodmark.spec.schema import MARKER, PARTITION, RETRACTION, ROW, STAMP_DDL, STAMPS

ROWS_PER_FILE = 1_000_000
_PROPERTIES = {"delta.checkpointInterval": "100"}


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
    low = f"_event_time >= {literal(interval.start)}" if interval.start > NEVER else f"_kind <> {MARKER}"
    return low + (f" AND _event_time < {literal(interval.end)}" if interval.end <= END else "")


def ensure(spark: SparkSession, lake: Lake, operator: Operator, output: Output, *, replace: bool = False) -> str:
    """Create an output's table, or check that it has the columns it should have. Its path.

    Raises:
        PlanError: PLAN-002, the table has other columns.
    """
    path = lake.output(output.table)
    if not DeltaTable.isDeltaTable(spark, path):
        create(spark, path, _schema(output), partition_by(output), _PROPERTIES)
        return path
    found, wanted = _columns(spark, path), output.schema.types
    if not replace:
        division.check(path, operator, output)
    if {k: v for k, v in found.items() if k not in added(output)} != wanted and not replace:
        fix = f"Compute all of it anew, which replaces the table: floodmark run {operator.name} --force (without --from and --to)."
        got = ", ".join(f"{k} {v}" for k, v in found.items() if k not in {*STAMPS, PARTITION})
        raise PlanError(f"table {path}", output.schema.describe(), got, fix, code="PLAN-002")
    return path


def create(
    spark: SparkSession,
    path: str,
    columns: StructType,
    partitioned: tuple[str, ...] = (),
    properties: Mapping[str, str] = MappingProxyType({}),
) -> None:
    """Create an empty table where there is none."""
    if is_local(path):
        schema = DeltaSchema.from_json(columns.json())
        DeltaRs.create(path, schema, mode="ignore", partition_by=list(partitioned), configuration=dict(properties))
        return
    builder = DeltaTable.createIfNotExists(spark).location(path).addColumns(columns).partitionedBy(*partitioned)
    for name, value in properties.items():
        builder = builder.property(name, value)
    builder.execute()


def _schema(output: Output) -> StructType:
    found = structure(f"{output.schema.ddl()}, {STAMP_DDL}")
    return found.add(PARTITION, "string", metadata=division.metadata(output.partitions)) if output.partitions else found


def structure(ddl: str) -> StructType:
    """Columns from their DDL."""
    found = StructType.fromDDL(ddl)
    assert isinstance(found, StructType)
    return found


def fits(spark: SparkSession, path: str, output: Output) -> bool:
    """Whether a table has exactly the columns it should have, and no more, and is divided as it should be."""
    if division.other(path, output) is not None:
        return False
    found, wanted = _columns(spark, path), output.schema.types | dict.fromkeys(added(output))
    return found.keys() == wanted.keys() and all(found[n] == t for n, t in wanted.items() if t)


def _columns(spark: SparkSession, path: str) -> dict[str, str]:
    return {f.name: f.dataType.simpleString() for f in spark.read.format("delta").load(path).schema}


def set_aside(operator: Operator, rows: Mapping[str, int]) -> tuple[str, ...]:
    """What to say of rows and panes a run has put into the quarantine."""
    table = next((o.table for o in operator.outputs if o.side == "quarantine" and rows.get(o.table)), None)
    if table is None:
        return ()
    text = (
        f"functions of '{operator.name}' failed for {rows[table]:,} rows or panes, which were set aside. "
        f"See them: floodmark quarantine show {operator.name}"
    )
    return (text,)


def check_there(path: str, what: str, fix: str) -> None:
    """Raise ExecutionError EXECUTION-002 when a table is not there (any more); without Spark, and cheap enough for every micro-batch."""
    files, place = file_system(f"{path}/_delta_log")
    if files.get_file_info(place).type == FileType.NotFound:
        raise ExecutionError(what, f"a Delta table at {path}", "none", fix, code="EXECUTION-002")


def require_columns(rows: DataFrame, operator: Operator, given: Input) -> DataFrame:
    """The rows of an input, which have all columns the operator reads.

    Raises:
        ExecutionError: EXECUTION-005, they have not.
    """
    missing = [name for name in given.schema.names if name not in rows.columns]
    if not missing:
        return rows
    fix = (
        f"A column its contract has gained comes into the log with the next rows: floodmark land {given.table}"
        if given.upstream is None
        else f"Is '{given.upstream.operator}' of another version? See: floodmark plan {given.upstream.operator}, floodmark plan {operator.name}"
    )
    where, got = f"input '{given.name}' of {operator.version}", f"a table without {', '.join(missing)}"
    raise ExecutionError(where, f"the columns of '{given.table}'", got, fix, code="EXECUTION-005")


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
    if output.partitions is None:
        return rows
    zones.check(rows.sparkSession, output.partitions)
    name = F.expr(output.partitions.sql()).alias(PARTITION, metadata=division.metadata(output.partitions))
    return rows.select("*", name)


def in_tasks(rows: DataFrame, output: Output, tasks: int | None = None) -> DataFrame:
    """Rows in so many write tasks, or as they are; those of one asset partition stay together, and several are written at a time."""
    if output.partitions is not None:
        return rows.repartition(max(tasks or 1, rows.sparkSession.sparkContext.defaultParallelism), PARTITION)
    return rows if tasks is None else rows.coalesce(tasks)


def said(metadata: Mapping[str, Any]) -> str:
    """What a commit says of itself, as its ``userMetadata``."""
    return json.dumps({"floodmark": metadata})


def replace(
    rows: DataFrame,
    path: str,
    output: Output,
    interval: Interval,
    metadata: Callable[[], Mapping[str, Any]],
    *,
    anew: bool = False,
) -> Counter[int]:
    """Replace an interval, atomically; conflicts with other writers are tried again.

    Args:
        rows: with all columns of the table.
        path: of the table.
        output: whose table it is.
        interval: of event time.
        metadata: of the commit, asked for once the rows are computed; how many rows and retractions were written is added.
        anew: replace the table, columns and all.

    Returns:
        Rows written per ``_kind``.
    """
    appender = Appender(path)
    if anew or not is_local(path):
        rows = rows.persist(StorageLevel.MEMORY_AND_DISK)
        kinds = Counter({row["_kind"]: row["count"] for row in rows.groupBy("_kind").count().collect()})
        tasks = max(1, kinds.total() // ROWS_PER_FILE)
        _replace_by_spark(in_tasks(rows, output, tasks), path, output, interval, _counted(metadata(), kinds), anew=anew)
        rows.unpersist()
        return kinds
    written = appender.write(in_tasks(rows, output), partition_by(output))
    kinds = written.kinds()
    first, last = from_ms(interval.start), from_ms(interval.end - 1)
    if not appender.replace(written, first, last, _counted(metadata(), kinds)):
        spark = rows.sparkSession  # some file there holds other rows too: Spark writes those anew
        again = spark.read.schema(rows.schema).option("basePath", str(written.folder)).parquet(str(written.folder))
        again = again.select(*rows.columns)
        _replace_by_spark(again, path, output, interval, _counted(metadata(), kinds), anew=False)
        shutil.rmtree(written.folder)
    return kinds


def _counted(metadata: Mapping[str, Any], kinds: Counter[int]) -> str:
    return said({**metadata, "rows": kinds[ROW], "retractions": kinds[RETRACTION]})


def _replace_by_spark(
    rows: DataFrame, path: str, output: Output, interval: Interval, metadata: str, *, anew: bool
) -> None:
    writer = rows.write.format("delta").mode("overwrite").option("userMetadata", metadata)
    if anew:
        writer = writer.option("overwriteSchema", "true").partitionBy(*partition_by(output))
    else:
        writer = writer.option("replaceWhere", predicate(output, interval))
    retried(lambda: writer.save(path), path)


@contextmanager
def spark_boundary(where: str, again: str) -> Iterator[None]:
    """What Spark, its Java or the disk raises becomes an error for people; the original stays its cause.

    Raises:
        ExecutionError: EXECUTION-003.
        SetupError: SETUP-050..057, the machine refuses: the disk is full, or cannot be written.
    """
    try:
        yield
    except (PySparkException, Py4JError, DeltaError, OSError) as error:
        refusal = machine.refused(error, where, f"Nothing is lost or there twice; go on with: {again}")
        if refusal is not None:
            raise refusal from error
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
