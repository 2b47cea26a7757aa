"""Blobs as a DataFrame: units are read in workers, small facts go to the driver, rows are stamped in workers again."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial, reduce

import pyarrow as pa
from deltalake import Schema as TableSchema
from pyspark.sql import DataFrame, SparkSession

from floodmark.engines.frames.client import is_connected
from floodmark.engines.landing import port, quarantine, stamping, units
from floodmark.engines.landing.stamping import Stamping
from floodmark.engines.landing.units import BROKEN, KEYS, REPORT, ROWS, Blob, Piece, Report
from floodmark.engines.spark.delta import parquet
from floodmark.engines.spark.delta.appender import Appender, append_by_spark, retried
from floodmark.lake.folder.bucket import is_bucket
from floodmark.lake.folder.paths import is_reached
from floodmark.lake.logs import log, quarantines
from floodmark.lake.results.tables import create
from floodmark.lake.table import entries
from floodmark.lake.table.commits import Landing
from floodmark.lake.table.files import Written
from floodmark.lake.table.rows import row_schema
from floodmark.semantics.time.delays import Delays
from floodmark.spec.values.schema import STAMP_DDL, Schema

DDL = "_unit int, _part int, _kind int, _data binary"
BLOB = pa.schema([("_unit", pa.int32()), ("_part", pa.int32()), ("_kind", pa.int32()), ("_data", pa.binary())])
_QUARANTINE_DDL = (
    "source string, file string, position bigint, reason string, raw string, "
    "_landing bigint, _quarantined_at timestamp, _replayed bigint, _replay string"
)
_MARKS_DDL = "file string, position bigint, _landing bigint, now_broken string"


def batch_of(blob: Blob) -> pa.RecordBatch:
    """One blob as a batch of Spark's."""
    return pa.RecordBatch.from_arrays(
        [pa.array([value], type=f.type) for value, f in zip(blob, BLOB, strict=True)], schema=BLOB
    )


def pieces(batches: Iterator[pa.RecordBatch]) -> Iterator[Piece]:
    """The pieces of blobs, from batches of Spark's."""
    for batch in batches:
        columns = (batch.column(name).to_pylist() for name in ("_unit", "_kind", "_data"))
        yield from zip(*columns, strict=True)


def reports_of(blobs: DataFrame) -> list[Report]:
    """The reports of the workers, in order of their units."""
    rows = blobs.where(f"_kind = {REPORT}").select("_data").collect()
    return sorted((Report.from_json(bytes(row["_data"])) for row in rows), key=lambda report: report.unit)


@dataclass(frozen=True, slots=True)
class SparkBlobs:
    """Blobs that Spark holds.

    Args:
        rows: the blobs.
        reports: of all units.
        appenders: to logs, by path.
    """

    rows: DataFrame
    reports: list[Report]
    appenders: dict[str, Appender]

    def measured(self, plan: Stamping) -> Delays:
        """As ``port.Blobs``."""

        def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            delays = stamping.measured(pieces(batches), plan)
            yield pa.RecordBatch.from_pydict({"delays": [json.dumps(delays.as_json())]})

        rows = self.rows.where(f"_kind = {ROWS}").mapInArrow(run, "delays string").collect()
        return reduce(Delays.plus, (Delays.from_json(json.loads(row["delays"])) for row in rows), Delays())

    def set_aside(
        self, path: str, names: Sequence[str], reports: Mapping[int, Report], *, source: str, ordinal: int, now: int
    ) -> None:
        """As ``port.Blobs``."""

        def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            yield from units.entries(pieces(batches), names, reports, source=source, ordinal=ordinal, now=now)

        rows = self.rows.where(f"_kind in ({BROKEN}, {REPORT})").mapInArrow(run, _QUARANTINE_DDL)
        rows = rows.coalesce(1)
        if not is_reached(path):
            rows.write.format("delta").mode("append").save(path)
            return
        if not entries.is_table(path):
            create(path, quarantines.table_schema(), (), {})
        appender = self.appenders.setdefault(path, Appender(path))
        quarantines.append(appender.writer, lambda: appender.write(rows), source, ordinal)

    def mark(self, path: str, ordinal: int) -> None:
        """As ``port.Blobs``. The next landing undoes the marks if the log commit is missing."""
        if is_bucket(path) or is_connected(
            self.rows.sparkSession
        ):  # no commit in a bucket is Spark's; a client has no MERGE
            keys = self.rows.where(f"_kind = {KEYS}").select("_data")
            quarantine.mark(
                path, ordinal, lambda: quarantine.marks(bytes(row["_data"]) for row in keys.toLocalIterator())
            )
            return

        def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for batch in batches:
                yield from quarantine.marks(batch.column(0).to_pylist())

        from delta.tables import DeltaTable as Table  # noqa: PLC0415 - behind Spark Connect it need not be installed

        outcomes = self.rows.where(f"_kind = {KEYS}").select("_data").mapInArrow(run, _MARKS_DDL)
        same = "q.file = k.file AND q.position = k.position AND q._landing = k._landing"

        def attempt() -> None:
            merge = Table.forPath(self.rows.sparkSession, path).alias("q").merge(outcomes.alias("k"), same)
            merge = merge.whenMatchedUpdate("k.now_broken IS NULL", {"_replayed": str(ordinal)})
            merge.whenMatchedUpdate("k.now_broken <> q.reason", {"reason": "k.now_broken"}).execute()

        retried(attempt, path)  # upkeep may have merged its files meanwhile

    def append(
        self, path: str, landing: Landing, schema: Schema, plan: Stamping, *, modified: int, widen: bool
    ) -> None:
        """As ``port.Blobs``."""

        def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            yield from stamping.stamped(pieces(batches), schema, plan)

        blobs = self.rows
        if landing.rows <= port.ONE_FILE_ROWS:
            blobs = blobs.coalesce(1).sortWithinPartitions("_unit", "_part")
        chosen = blobs.where(f"_kind in ({ROWS}, {REPORT})")
        rows = chosen.mapInArrow(run, f"{schema.ddl()}, {STAMP_DDL}")
        write = partial(parquet.write, chosen, run, row_schema(schema), path)
        append(self.appenders, rows, path, landing, modified=modified, widen=widen, schema=schema, write=write)

    def release(self) -> None:
        """As ``port.Blobs``."""
        self.rows.unpersist()


def marker(spark: SparkSession, schema: Schema, plan: Stamping) -> DataFrame:
    """The marker of a commit without rows, as a frame."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in batches:
            yield stamping.only_marker(schema, plan)

    return spark.range(0, 1, 1, 1).mapInArrow(run, f"{schema.ddl()}, {STAMP_DDL}")


def append(
    appenders: dict[str, Appender],
    rows: DataFrame,
    path: str,
    landing: Landing,
    *,
    modified: int,
    widen: bool,
    schema: Schema,
    write: Callable[[], Written] | None = None,
) -> None:
    """Append rows to a log, once; ``write`` as of ``Appender.append``. In a bucket, columns that the log lacks are added by a commit before."""
    app = log.application(landing.source)
    if widen and not is_bucket(path):
        append_by_spark(rows, path, app, landing.ordinal, landing, widen=True)
        return
    appender = appenders.setdefault(path, Appender(path))
    if widen:
        appender.writer.widen(TableSchema.from_arrow(row_schema(schema)))
    appender.append(rows, app, landing.ordinal, landing, modified=modified, write=write)
