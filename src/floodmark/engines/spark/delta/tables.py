"""Output tables of Spark: created with their stamps, written exactly once, with the record of the work in the commit's metadata."""

from __future__ import annotations

import dataclasses
import json
import shutil
import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from functools import partial
from types import MappingProxyType

import pyarrow as pa
from deltalake import Schema as TableSchema
from deltalake.exceptions import DeltaError
from py4j.protocol import Py4JError
from pyspark import StorageLevel
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from floodmark.core import machine
from floodmark.core.time import Interval, from_ms
from floodmark.engines.frames import zones
from floodmark.engines.frames.messages import text_of
from floodmark.engines.spark.delta.appender import Appender, retried
from floodmark.engines.spark.session.tasks import parallelism
from floodmark.lake.folder.bucket import is_bucket
from floodmark.lake.folder.paths import Lake, is_local, is_reached
from floodmark.lake.results import tables
from floodmark.lake.table import division
from floodmark.lake.table.commits import BoundedRun, encode
from floodmark.lake.table.files import Written
from floodmark.lake.table.outputs import partition_by, predicate, table_schema
from floodmark.lake.table.rows import marker as marker_row
from floodmark.spec.graph.operator import Operator, Output
from floodmark.spec.values.schema import PARTITION, RETRACTION, ROW, STAMP_DDL, STAMPS

ROWS_PER_FILE = 1_000_000


def ensure(spark: SparkSession, lake: Lake, operator: Operator, output: Output, *, replace: bool = False) -> str:
    """As ``lake.results.tables.ensure``, also for a lake that only Spark reaches."""
    return tables.ensure(lake, operator, output, partial(create, spark), replace=replace)


def create(
    spark: SparkSession,
    path: str,
    columns: TableSchema,
    partitioned: tuple[str, ...] = (),
    properties: Mapping[str, str] = MappingProxyType({}),
) -> None:
    """Create an empty table if there is none."""
    if is_reached(path):
        tables.create(path, columns, partitioned, properties)
        return
    from delta.tables import DeltaTable  # noqa: PLC0415 - behind Spark Connect it need not be installed

    fields = StructType.fromJson(json.loads(columns.to_json()))
    builder = DeltaTable.createIfNotExists(spark).location(path).addColumns(fields).partitionedBy(*partitioned)
    for name, value in properties.items():
        builder = builder.property(name, value)
    builder.execute()


def structure(ddl: str) -> StructType:
    """Columns, as Spark's type, from their DDL."""
    fields = StructType.fromDDL(ddl)
    assert isinstance(fields, StructType)
    return fields


def columns(ddl: str) -> TableSchema:
    """Columns, as delta-rs' schema, from their DDL."""
    return TableSchema.from_json(structure(ddl).json())


def marked(output: Output, progress: int) -> pa.Table:
    """A marker: one row of the output's table without payload, from which readers learn the progress of the stream."""
    now = time.time_ns() // 1_000_000
    row = marker_row(output.schema, watermark=progress, sequence=None, now=now)
    return division.divided(pa.Table.from_batches([row]), output)


def marker(spark: SparkSession, output: Output, progress: int) -> DataFrame:
    """A marker, as ``marked``, as a frame that Spark writes together with other rows."""
    (row,) = marked(output, progress).to_pylist()
    types = {field.name: field.dataType for field in structure(f"{output.schema.ddl()}, {STAMP_DDL}")}
    return divided(spark.range(1).select(*(F.lit(row[n]).cast(kind).alias(n) for n, kind in types.items())), output)


def stamped(rows: DataFrame, output: Output, progress: int | None) -> DataFrame:
    """Rows with all columns of the output's table in order; ``_event_time`` may be ms or timestamp."""
    if dict(rows.dtypes)["_event_time"] == "bigint":
        rows = rows.withColumn("_event_time", F.expr("timestamp_millis(`_event_time`)"))
    rows = rows.withColumn("_progress", F.lit(progress).cast("bigint")).withColumn(
        "_ingest_time", F.current_timestamp()
    )
    return divided(rows.select(*(f"`{name}`" for name in (*output.schema.names, *STAMPS))), output)


def divided(rows: DataFrame, output: Output) -> DataFrame:
    """Rows with the name of their asset partition, if the output's table is divided by asset partition."""
    if output.partitions is None:
        return rows
    zones.check(rows.sparkSession, output.partitions)
    name = F.expr(output.partitions.sql()).alias(PARTITION, metadata=division.metadata(output.partitions))
    return rows.select("*", name)


def in_tasks(rows: DataFrame, output: Output, tasks: int | None = None) -> DataFrame:
    """Rows in at most ``tasks`` write tasks, or as they are; divided rows in at least that many, each asset partition in one task."""
    if output.partitions is not None:
        return rows.repartition(max(tasks or 1, parallelism(rows.sparkSession)), PARTITION)
    return rows if tasks is None else rows.coalesce(tasks)


def written(rows: DataFrame, path: str, output: Output) -> Written:
    """Compute rows and write them into files of a table on a local disk, which ``replace`` commits."""
    return Appender(path).write(in_tasks(rows, output), partition_by(output))


def read_back(rows: DataFrame, files: Written) -> DataFrame:
    """The rows in files, as ``rows``, of which they were written."""
    reader = rows.sparkSession.read.schema(rows.schema).option("basePath", str(files.folder))
    return reader.parquet(str(files.folder)).select(*rows.columns)


def replace(
    rows: DataFrame,
    path: str,
    output: Output,
    interval: Interval,
    record: Callable[[], BoundedRun],
    *,
    anew: bool = False,
    files: Written | None = None,
) -> Counter[int]:
    """Replace an interval of a table atomically; conflicts with other writers are retried.

    Args:
        rows: with all columns of the table.
        path: of the table.
        output: of the table.
        interval: of event time.
        record: makes the record of the commit, called after the rows are computed; the numbers of rows and retractions are added.
        anew: replace the whole table, columns too.
        files: of the rows, on a local disk, if they are written already.

    Returns:
        Rows written per ``_kind``.
    """
    appender = Appender(path)
    if is_bucket(path):
        return _replace_in_bucket(appender, rows, output, interval, record, anew=anew)
    if anew or not is_local(path):
        rows = rows.persist(StorageLevel.MEMORY_AND_DISK)
        kinds = Counter({row["_kind"]: row["count"] for row in rows.groupBy("_kind").count().collect()})
        tasks = max(1, kinds.total() // ROWS_PER_FILE)
        _replace_by_spark(in_tasks(rows, output, tasks), path, output, interval, _counted(record(), kinds), anew=anew)
        rows.unpersist()
        return kinds
    files = written(rows, path, output) if files is None else files
    kinds = files.kinds()
    first, last = from_ms(interval.start), from_ms(interval.end - 1)
    if not appender.replace(files, first, last, _counted(record(), kinds)):
        # a file of the table also holds rows outside the interval: Spark writes these rows anew
        _replace_by_spark(read_back(rows, files), path, output, interval, _counted(record(), kinds), anew=False)
        shutil.rmtree(files.folder)
    return kinds


def _replace_in_bucket(
    appender: Appender,
    rows: DataFrame,
    output: Output,
    interval: Interval,
    record: Callable[[], BoundedRun],
    *,
    anew: bool,
) -> Counter[int]:
    """``replace`` in a bucket, where no commit is Spark's."""
    files, writer = appender.write(in_tasks(rows, output), partition_by(output)), appender.writer
    kinds = files.kinds()
    counted, first, last = _counted(record(), kinds), from_ms(interval.start), from_ms(interval.end - 1)
    if anew:
        writer.renew(files, table_schema(output.schema, output.partitions), counted)
    elif not writer.replace(files, first, last, counted):
        writer.replace_rows(files, first, last, counted)
    return kinds


def _counted(record: BoundedRun, kinds: Counter[int]) -> BoundedRun:
    return dataclasses.replace(record, rows=kinds[ROW], retractions=kinds[RETRACTION])


def _replace_by_spark(
    rows: DataFrame, path: str, output: Output, interval: Interval, record: BoundedRun, *, anew: bool
) -> None:
    writer = rows.write.format("delta").mode("overwrite").option("userMetadata", encode(record))
    if anew:
        writer = writer.option("overwriteSchema", "true").partitionBy(*partition_by(output))
    else:
        writer = writer.option("replaceWhere", predicate(output, interval))
    retried(lambda: writer.save(path), path)


def spark_boundary(where: str, again: str) -> AbstractContextManager[None]:
    """``machine.boundary`` for exceptions of Spark, its Java or the disk."""
    return machine.boundary(where, again, (PySparkException, Py4JError, DeltaError, OSError), text_of)
