"""Appends of DataFrames to a Delta table, once each: Spark writes the files, the table's writer commits them.

Spark also commits if the table is neither on a local disk nor in a bucket, where delta-rs would need a library of its own.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from floodmark.engines.spark.delta import parquet
from floodmark.lake.folder.bucket import is_bucket
from floodmark.lake.folder.paths import is_reached
from floodmark.lake.table.commits import Record, encode
from floodmark.lake.table.files import Written
from floodmark.lake.writing import conflicts, synced
from floodmark.lake.writing.writer import Writer, check_open

Result = TypeVar("Result")

_CONFLICTS = re.compile(r"DELTA_(CONCURRENT|METADATA_CHANGED|PROTOCOL_CHANGED)\w*")


@dataclass(slots=True)
class Appender:
    """Appends to one table, and replaces stretches of event time in it.

    Args:
        path: of an existing table.
    """

    path: str
    writer: Writer = field(init=False)

    def __post_init__(self) -> None:
        self.writer = Writer(self.path)

    def append(
        self,
        rows: DataFrame,
        app: str,
        number: int,
        record: Record,
        *,
        partition_by: tuple[str, ...] = (),
        modified: int | None = None,
        write: Callable[[], Written] | None = None,
    ) -> bool:
        """Append once: False, and nothing is written, if ``app`` has committed ``number`` or a later number.

        Args:
            rows: with the columns of the table.
            app: application id of the transaction.
            number: version of the transaction; grows.
            record: of the commit.
            partition_by: the table's partition columns.
            modified: of the files, as in ``Writer.append``; ignored if Spark commits.
            write: gives the files of the rows; by default ``write`` of this class.

        Raises:
            LifecycleError: LIFECYCLE-004 another writer came in between, LIFECYCLE-057 a rollback has ended this one.
        """
        if is_reached(self.path):
            write = partial(self.write, rows, partition_by) if write is None else write
            return self.writer.append(write, record, (app, number), modified=modified)
        if not check_open(self.path, app, number, committed_by_spark(rows.sparkSession, self.path, app)):
            return False
        append_by_spark(rows, self.path, app, number, record)
        return True

    def append_arrow(
        self, rows: pa.Table, app: str, number: int, record: Record, *, partition_by: tuple[str, ...] = ()
    ) -> bool:
        """Append a few rows in Arrow, once, as ``append``. No job of Spark is started."""
        return self.writer.append(partial(synced.written, self.path, rows, partition_by), record, (app, number))

    def write(self, rows: DataFrame, partition_by: tuple[str, ...] = ()) -> Written:
        """Write the files of rows into a new folder of the table."""
        if is_bucket(self.path):
            return parquet.upload(rows, self.path, partition_by)
        folder = Path(self.path) / uuid.uuid4().hex
        writer = rows.write.option("mapreduce.fileoutputcommitter.marksuccessfuljobs", "false")
        writer = writer.option("parquet.enable.dictionary#_sequence", "false")  # all values differ
        writer.partitionBy(*partition_by).parquet(str(folder))
        return Written(folder=folder, partition_by=partition_by)

    def replace(self, written: Written, first: datetime, last: datetime, record: Record) -> bool:
        """Replace the table's files with event times in [first, last] by written files; as ``Writer.replace``."""
        return self.writer.replace(written, first, last, record)


def committed_by_spark(spark: SparkSession, path: str, app: str) -> int | None:
    """The last version that an application id has committed to a table, read by Spark from any storage; None if there is none.

    Spark silently skips an append whose version is not above that version, also in a fenced table.
    """
    jvm: Any = spark._jvm  # noqa: SLF001 - Delta has no Python for it
    log = jvm.org.apache.spark.sql.delta.DeltaLog.forTable(spark._jsparkSession, path)  # noqa: SLF001 - as above
    snapshot = log.update(False, jvm.scala.Option.empty(), jvm.scala.Option.empty())
    version = snapshot.transactions().get(app)
    return int(version.get()) if version.isDefined() else None


def append_by_spark(rows: DataFrame, path: str, app: str, number: int, record: Record, *, widen: bool = False) -> None:
    """Append rows through Spark, once; with ``widen``, nullable columns that the table lacks are added."""
    writer = rows.write.format("delta").mode("append").option("txnAppId", app).option("txnVersion", number)
    writer.option("mergeSchema", str(widen).lower()).option("userMetadata", encode(record)).save(path)


def retried(write: Callable[[], Result], path: str) -> Result:
    """Run a write of Spark's, and retry it after conflicts with other writers.

    Raises:
        LifecycleError: LIFECYCLE-004, every try has conflicted.
    """
    return conflicts.retried(write, path, _conflict)


def _conflict(error: Exception) -> bool:
    return isinstance(error, PySparkException | Py4JError) and bool(_CONFLICTS.search(str(error)))
