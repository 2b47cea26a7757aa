"""Quarantine: rows that broke their contract, why, and landing them once the contract takes them."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import pyarrow as pa
from delta.tables import DeltaTable as Table
from deltalake import DeltaTable
from pyspark import TaskContext

from floodmark.connectors.formats import Csv, csv_records
from floodmark.connectors.unit import Record
from floodmark.connectors.validation import Rules, trace_of
from floodmark.core import crash
from floodmark.core.errors import LifecycleError
from floodmark.core.time import to_ms
from floodmark.engines.spark.landing import punctuation, units
from floodmark.engines.spark.landing.lander import Lander
from floodmark.engines.spark.landing.run import locked
from floodmark.engines.spark.landing.units import ROWS, Blob, Report
from floodmark.lake import log
from floodmark.lake.commits import Landing
from floodmark.lake.paths import Lake
from floodmark.semantics.watermarks import Trace, compress
from floodmark.spec.source import Source

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

KEYS = 3
"""The kind of a blob that says what became of quarantined rows."""
_KEYS_DDL = "file string, position bigint, _landing bigint, now_broken string"
_OPEN = "_replayed IS NULL"


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A quarantined row, or a file that could not be landed.

    Args:
        file: the unit it came in.
        position: line or row number in it, from 1; 0 is the file itself.
        reason: field, expected, got.
        raw: its text.
        landing: the landing commit that set it aside.
        at: ms UTC.
    """

    file: str
    position: int
    reason: str
    raw: str
    landing: int
    at: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Quarantine:
    """What is in the quarantine of a source and has not been replayed.

    Args:
        source: its name.
        rows: all of them.
        by_reason: (reason without the value that was found, count), most first.
        newest: some of them, newest first.
    """

    source: str
    rows: int
    by_reason: tuple[tuple[str, int], ...]
    newest: tuple[Entry, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Replayed:
    """What a replay did.

    Args:
        source: its name.
        landed: rows that keep the contract now and are in the log.
        still_broken: rows that stay, with their reason of today.
        not_replayable: entries that are no row of their own: files, bytes that are no text.
        late: rows of ``landed`` behind the watermark in force at this moment.
        ordinal: of the landing commit; None when nothing landed.
    """

    source: str
    landed: int
    still_broken: int
    not_replayable: int
    late: int
    ordinal: int | None


def show(spark: SparkSession, source: str, lake: Lake, *, limit: int = 20) -> Quarantine:
    """What waits in the quarantine of a source."""
    path = lake.quarantine(source)
    if not Table.isDeltaTable(spark, path):
        return Quarantine(source=source, rows=0, by_reason=(), newest=())
    table = spark.read.format("delta").load(path).where(_OPEN)
    reasons = table.selectExpr("regexp_replace(reason, ', got [^;]*', '') AS reason").groupBy("reason").count()
    counted = tuple(
        (row["reason"], row["count"]) for row in reasons.orderBy("count", "reason", ascending=[False, True]).collect()
    )
    newest = table.orderBy("_landing", "file", "position", ascending=[False, True, True]).limit(limit)
    entries = tuple(
        Entry(
            file=row.file,
            position=row.position,
            reason=row.reason,
            raw=row.raw,
            landing=row["_landing"],
            at=to_ms(row["_quarantined_at"]),
        )
        for row in newest.collect()
    )
    return Quarantine(source=source, rows=sum(count for _, count in counted), by_reason=counted, newest=entries)


def check_replay(source: Source, lake: Lake) -> None:
    """Everything that can be said of a replay before Spark is needed.

    Raises:
        LifecycleError: LIFECYCLE-011, there is a quarantine and the source has ended.
    """
    path = lake.log(source.name)
    if DeltaTable.is_deltatable(lake.quarantine(source.name)) and DeltaTable.is_deltatable(path):
        _refuse_ended(source, log.newest(path))


def _refuse_ended(source: Source, last: Landing | None) -> None:
    if last is not None and last.ended:
        where, fix = (
            f"source '{source.name}'",
            "Every row would be late. Land the mended rows under a new source name, or into a new lake.",
        )
        raise LifecycleError(where, "a source that goes on", "its end of input", fix, code="LIFECYCLE-011")


def replay(
    spark: SparkSession,
    source: Source,
    lake: Lake,
    *,
    clock: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    workspace: Path | None = None,
) -> Replayed:
    """Check the quarantined rows against the contract of today and land those that keep it, as one commit.

    Time: they are judged by the watermark in force now; those behind it are late, and stay late.

    Raises:
        LifecycleError: LIFECYCLE-003 a landing is at work, LIFECYCLE-011 the source has ended.
    """
    with locked(lake, source):
        lander = Lander.open(spark, source, lake, clock=clock, workspace=workspace)
        return _replay(lander)


def _replay(lander: Lander) -> Replayed:
    spark, source, path = lander.spark, lander.source, lander.lake.quarantine(lander.source.name)
    nothing = Replayed(source=source.name, landed=0, still_broken=0, not_replayable=0, late=0, ordinal=None)
    if not Table.isDeltaTable(spark, path):
        return nothing
    _refuse_ended(source, lander.last)
    lander.recover()
    waiting = spark.read.format("delta").load(path).where(_OPEN)
    nothing = replace(nothing, not_replayable=waiting.where("_replay IS NULL").count())
    now = lander.clock()
    replayable = waiting.where("_replay IS NOT NULL")
    # not persist(): the MERGE below changes the table these rows come from, upon which Spark would read them again
    blobs = punctuation.judged(
        lambda refused: _blobs(replayable, Rules(source, now, refused)), source, lambda blobs: blobs.localCheckpoint()
    )
    reports = {report.unit: report for report in units.reports_of(blobs)}
    landed = sum(report.rows for report in reports.values())
    broken = sum(report.broken for report in reports.values())
    if landed + broken:
        crash.point("replay.before_mark")
        _mark(spark, path, blobs, lander.last.ordinal + 1)
        crash.point("replay.after_mark")
    if not landed:
        return replace(nothing, still_broken=broken)
    crash.point("replay.before_log")
    done = lander.write(blobs, reports, lander.next(), now, last=max(reports), again=True)
    crash.point("replay.after_log")
    rows = spark.read.format("delta").load(lander.lake.log(source.name))
    first = done.next_sequence - done.rows - 1
    late = rows.where(f"_kind = 0 AND _sequence >= {first} AND unix_millis(_event_time) <= _watermark").count()
    return replace(nothing, landed=landed, still_broken=broken, late=late, ordinal=done.ordinal)


def _blobs(waiting: DataFrame, rules: Rules) -> DataFrame:
    """Blobs of the quarantined rows in the order in which they were set aside; a task's rows are one unit."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        unit = context.partitionId() if context is not None else 0
        for blob in _task(unit, batches, rules):
            yield units.blob_batch(blob)

    ordered = waiting.orderBy("_landing", "file", "position").select("file", "position", "_landing", "raw", "_replay")
    return ordered.mapInArrow(run, units.BLOB_DDL)


def _task(unit: int, batches: Iterator[pa.RecordBatch], rules: Rules) -> Iterator[Blob]:
    rows = (row for batch in batches for row in batch.to_pylist())
    part, good, broken = 0, 0, 0
    traces: list[Trace] = []
    refusals = rules.refusals(unit)
    for replayed, group in groupby(rows, key=lambda row: row["_replay"]):
        settings = json.loads(replayed)
        form: Literal["json", "python"] = "json" if settings["format"] == "json" else "python"
        keys: list[tuple[str, int, int] | None] = []
        for batch in rules.batches(_records(group, settings, rules, keys), form, refusals):
            reasons = {row.position: row.reason for row in batch.broken}
            if len(batch.rows):
                traces.append(compress(trace_of(batch.rows, rules.source.partition_by)))
                yield unit, part, ROWS, units.arrow_file(batch.rows)
            told = [[*key, reasons.get(place)] for place, key in enumerate(keys) if key is not None]
            yield unit, part + 1, KEYS, json.dumps(told).encode()
            keys[:] = [None] * len(keys)  # told; their places go on counting
            part, good, broken = part + 2, good + len(batch.rows), broken + len(batch.broken)
    trace = units.joined(traces) if traces else None
    report = Report(unit=unit, status="landed", rows=good, broken=broken, trace=compress(trace) if trace else None)
    yield report.as_blob(part)


def _records(
    rows: Iterator[dict[str, object]],
    settings: dict[str, object],
    rules: Rules,
    keys: list[tuple[str, int, int] | None],
) -> Iterator[Record]:
    for row in rows:
        place = len(keys)
        keys.append((str(row["file"]), int(str(row["position"])), int(str(row["_landing"]))))
        raw = str(row["raw"]).encode()
        match settings["format"]:
            case "csv":
                read = Csv(
                    contract=rules.source.contract,
                    delimiter=str(settings["delimiter"]),
                    null_values=tuple(settings["null_values"]),  # type: ignore[arg-type]  # a list of texts, written by Csv.as_json
                    where="quarantine",
                )
                names = list(settings["header"])  # type: ignore[call-overload]  # likewise
                empty = Record(place, raw, None, "expected a row, got an empty line")
                yield next(csv_records(iter([raw + b"\n"]), names, read), empty)._replace(position=place)
            case "json":
                yield Record(place, raw, raw)
            case _:
                yield Record(place, raw, json.loads(raw))


def _mark(spark: SparkSession, path: str, blobs: DataFrame, ordinal: int) -> None:
    """Note which rows land with the coming commit, and why the others do not. Taken back if it never comes."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for data in batch.column(0).to_pylist():
                columns = zip(*json.loads(data), strict=True)
                types = (pa.string(), pa.int64(), pa.int64(), pa.string())
                arrays = [pa.array(values, type=kind) for values, kind in zip(columns, types, strict=True)]
                yield pa.RecordBatch.from_arrays(arrays, names=["file", "position", "_landing", "now_broken"])

    told = blobs.where(f"_kind = {KEYS}").select("_data").mapInArrow(run, _KEYS_DDL)
    same = "q.file = k.file AND q.position = k.position AND q._landing = k._landing"
    merge = Table.forPath(spark, path).alias("q").merge(told.alias("k"), same)
    merge = merge.whenMatchedUpdate("k.now_broken IS NULL", {"_replayed": str(ordinal)})
    merge.whenMatchedUpdate("k.now_broken <> q.reason", {"reason": "k.now_broken"}).execute()
