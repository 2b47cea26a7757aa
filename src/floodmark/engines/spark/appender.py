"""Appends to a Delta table, once each: Spark writes the files, one small commit names them.

A commit through Spark computes the table's whole state first when it carries a transaction id (0.6 s of a 1 s append of 6,500 rows,
measured), and more with every file. On a local disk the commit goes through delta-rs instead: the same protocol, conflict rules and
transaction ids, in 10 ms. Elsewhere, where delta-rs would need credentials of its own, Spark commits.
"""

from __future__ import annotations

import json
import time
import uuid
from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import CommitProperties, DeltaTable, Transaction
from deltalake.exceptions import CommitFailedError
from deltalake.transaction import AddAction, RemoveAction
from pyspark.sql import DataFrame, SparkSession

from floodmark.core.errors import LifecycleError
from floodmark.engines.spark.conflicts import interrupted, retried
from floodmark.engines.spark.fence import FENCE
from floodmark.engines.spark.lake import is_local

_LONGEST = 32
"""Characters of a text that is kept as a statistic; a longer one says nothing about its file."""
_TO_NEXT = timedelta(microseconds=999)
"""Added before cutting to milliseconds, it rounds up; the last instant there is has no microseconds to lose."""
_NO_PARTITION = "__HIVE_DEFAULT_PARTITION__"


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """Files Spark has put into a folder of a table; they count once a commit names them.

    Args:
        folder: new, in the table's.
        partition_by: the table's partition columns.
    """

    folder: Path
    partition_by: tuple[str, ...] = ()

    @property
    def files(self) -> list[Path]:
        """The data files, in order."""
        return [file for file in sorted(self.folder.rglob("*.parquet")) if not file.name.startswith((".", "_"))]

    def kinds(self) -> Counter[int]:
        """Rows per ``_kind``."""
        found: Counter[int] = Counter()
        for file in self.files:
            with file.open("rb") as stream:
                kinds = pq.ParquetFile(stream).read(columns=["_kind"])["_kind"]
            found.update({pair["values"]: pair["counts"] for pair in kinds.value_counts().to_pylist()})
        return found


@dataclass(slots=True)
class Appender:
    """Appends to one table, and replaces stretches of event time in it.

    Args:
        path: of an existing table.
    """

    path: str
    _table: DeltaTable | None = field(default=None, init=False)

    def append(
        self, rows: DataFrame, app: str, number: int, metadata: str, *, partition_by: tuple[str, ...] = ()
    ) -> bool:
        """Append once: False, and nothing is written, when ``app`` has committed ``number`` or a later one.

        Args:
            rows: with the columns of the table.
            app: application id of the transaction.
            number: its version; grows.
            metadata: the commit's ``userMetadata``.
            partition_by: the table's partition columns.

        Raises:
            LifecycleError: LIFECYCLE-004 another writer came in between, LIFECYCLE-057 a rollback has ended this one.
        """
        local = is_local(self.path)
        done = (
            self._current().transaction_version(app) if local else committed_by_spark(rows.sparkSession, self.path, app)
        )
        if done is not None and done >= FENCE:
            fix = "This process can go. See which one the stream is now: floodmark status"
            where, got = f"transaction '{app}' of table {self.path}", "one that was ended by a rollback or a rebuild"
            raise LifecycleError(where, "a timeline that goes on", got, fix, code="LIFECYCLE-057")
        if done is not None and done >= number:
            return False
        if not local:
            append_by_spark(rows, self.path, app, number, metadata)
            return True
        table, written = self._current(), self.write(rows, partition_by)
        said = CommitProperties(custom_metadata={"userMetadata": metadata}, app_transactions=[Transaction(app, number)])
        try:
            self._commit(table, written, [], said)
        except CommitFailedError as error:
            raise interrupted(self.path, f"one: {error}") from error
        return True

    def write(self, rows: DataFrame, partition_by: tuple[str, ...] = ()) -> Written:
        """Write the files of rows into a new folder of the table."""
        folder = Path(self.path) / uuid.uuid4().hex
        writer = rows.write.option("mapreduce.fileoutputcommitter.marksuccessfuljobs", "false")
        writer = writer.option("parquet.enable.dictionary#_sequence", "false")  # every value is another one
        writer.partitionBy(*partition_by).parquet(str(folder))
        return Written(folder=folder, partition_by=partition_by)

    def replace(self, written: Written, first: datetime, last: datetime, metadata: str) -> bool:
        """Put written files in place of those with event times in [first, last], in one commit.

        False, and nothing is done, when a file there holds other event times too, or a marker: then rows have to be written anew.

        Raises:
            LifecycleError: LIFECYCLE-004, another writer came in between every time.
        """
        said = CommitProperties(custom_metadata={"userMetadata": metadata})

        def attempt() -> bool:
            table = self._current()
            old = _inside(table, first, last)
            if old is None:
                return False
            self._commit(table, written, old, said)
            return True

        return retried(attempt, self.path)

    def _current(self) -> DeltaTable:
        if self._table is None:
            self._table = DeltaTable(self.path)
        else:
            self._table.update_incremental()
        return self._table

    def _commit(self, table: DeltaTable, written: Written, old: list[RemoveAction], said: CommitProperties) -> None:
        footers = {file: pq.read_metadata(file) for file in written.files}
        added = [_added(written, file, footer) for file, footer in footers.items() if footer.num_rows]
        table.create_write_transaction(
            [*old, *added], "append", table.schema(), list(written.partition_by), commit_properties=said
        )


def _inside(table: DeltaTable, first: datetime, last: datetime) -> list[RemoveAction] | None:
    """The files whose rows all lie in [first, last]; None when another one holds such rows too, or that is not known."""
    actions = pa.table(table.get_add_actions())
    found = []
    now = time.time_ns() // 1_000_000
    for action in actions.to_pylist():
        rows = action["num_records"]
        nulls = (action.get("null_count") or {}).get("_event_time")
        low, high = ((action.get(side) or {}).get("_event_time") for side in ("min", "max"))
        if rows is not None and rows in {nulls, 0}:
            continue  # markers
        if low is None or high is None or nulls is None:
            return None
        if high < first or low > last:
            continue
        if low < first or high > last or nulls:
            return None
        values = action.get("partition") or {}
        found.append(RemoveAction(action["path"], True, now, action["size_bytes"], values))
    return found


def committed_by_spark(spark: SparkSession, path: str, app: str) -> int | None:
    """The last version an application id has committed to a table, as Spark reads it wherever the table lies; None for none.

    Spark skips an append whose version is behind that one without a word, also behind a fence.
    """
    jvm: Any = spark._jvm  # noqa: SLF001 - Delta has no Python for it
    log = jvm.org.apache.spark.sql.delta.DeltaLog.forTable(spark._jsparkSession, path)  # noqa: SLF001 - as above
    snapshot = log.update(False, jvm.scala.Option.empty(), jvm.scala.Option.empty())
    version = snapshot.transactions().get(app)
    return int(version.get()) if version.isDefined() else None


def append_by_spark(rows: DataFrame, path: str, app: str, number: int, metadata: str, *, widen: bool = False) -> None:
    """The same through Spark, which can add nullable columns to the table on the way."""
    writer = rows.write.format("delta").mode("append").option("txnAppId", app).option("txnVersion", number)
    writer.option("mergeSchema", str(widen).lower()).option("userMetadata", metadata).save(path)


def _added(written: Written, file: Path, footer: pq.FileMetaData) -> AddAction:
    """A file with its partition values and statistics."""
    place = file.relative_to(written.folder.parent)
    pairs = (part.split("=", 1) for part in place.parts[1:-1])
    values = {name: None if text == _NO_PARTITION else unquote(text) for name, text in pairs}
    return AddAction(
        place.as_posix(), file.stat().st_size, values, time.time_ns() // 1_000_000, True, statistics(footer)
    )


def statistics(footer: pq.FileMetaData) -> str:
    """Delta's statistics of a Parquet file: rows, nulls, and the range of numbers, instants and short texts."""
    nulls: dict[str, int] = {}
    ranges: dict[str, tuple[Any, Any]] = {}
    unknown: set[str] = set()
    for group in (footer.row_group(i) for i in range(footer.num_row_groups)):
        for column in (group.column(i) for i in range(group.num_columns)):
            name, found = column.path_in_schema, column.statistics
            if "." in name or found is None or not found.has_null_count:
                unknown.add(name)
                continue
            nulls[name] = nulls.get(name, 0) + found.null_count
            if found.null_count == group.num_rows:
                continue
            if not found.has_min_max or not _ordered(found.min) or not _ordered(found.max):
                unknown.add(name)
                continue
            low, high = ranges.get(name, (found.min, found.max))
            ranges[name] = min(low, found.min), max(high, found.max)
    known = {name: pair for name, pair in ranges.items() if name not in unknown}
    told = {
        "numRecords": footer.num_rows,
        "minValues": {name: _text(low, timedelta()) for name, (low, _) in known.items()},
        "maxValues": {n: text for n, (_, high) in known.items() if (text := _text(high, _TO_NEXT)) is not None},
        "nullCount": {name: count for name, count in nulls.items() if name in known or name not in unknown},
    }
    return json.dumps(told)


def _ordered(value: object) -> bool:
    """Whether a value is a bound Delta and Parquet agree on."""
    return (isinstance(value, str) and len(value) <= _LONGEST) or (
        isinstance(value, int | date | datetime) and not isinstance(value, bool)
    )


def _text(value: Any, to_next: timedelta) -> int | str | None:
    """A bound as Delta writes it; instants in whole milliseconds, rounded outwards; None for one that is then behind the year 9999."""
    if not isinstance(value, datetime):
        return value.isoformat() if isinstance(value, date) else value
    try:
        value = (value.astimezone(UTC) if value.tzinfo else value.replace(tzinfo=UTC)) + to_next
    except OverflowError:
        return None
    return f"{value.year:04d}-{value:%m-%dT%H:%M:%S}.{value.microsecond // 1000:03d}Z"
