"""Quarantine of a source: shows the rows that broke their contract and why, and lands them once they keep the contract."""

from __future__ import annotations

import json
import time
import typing
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from typing import TypedDict

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
from deltalake import CommitProperties, DeltaTable

from floodmark.connectors.entries import Form, Record
from floodmark.connectors.formats.cells import Cells
from floodmark.connectors.formats.tabular import Csv, csv_records
from floodmark.connectors.formats.text import Lines, text_records
from floodmark.connectors.judging.validation import Rules, of_partition, partition_key, trace_of
from floodmark.core import crash
from floodmark.core.errors import LifecycleError
from floodmark.engines.landing import units
from floodmark.engines.landing.lander import Lander, reader_of
from floodmark.engines.landing.port import Workers
from floodmark.engines.landing.run import locked
from floodmark.engines.landing.units import KEYS, ROWS, Blob, Report
from floodmark.lake.folder.paths import Lake
from floodmark.lake.logs import log, quarantines
from floodmark.lake.table import entries
from floodmark.lake.table.commits import Landing
from floodmark.lake.writing.confirmed import revise
from floodmark.semantics.time import stretches
from floodmark.semantics.time.stretches import Stretch
from floodmark.semantics.time.watermarks import Trace, compress
from floodmark.spec.rows.source import Source

_FORMS: dict[str, Form] = {"json": "json", "csv": "text", "text": "text", "logfmt": "text"}
"""Format of a quarantined row -> form of its value; the value of any other format is a dictionary of typed values."""

READ = ("file", "position", "_landing", "raw", "_replay")
"""Columns of a quarantine table from which its rows are read again."""
ORDER = ("_landing", "file", "position")
"""Columns that order the rows of a quarantine table as they were quarantined."""
MARKS = pa.schema(
    [("file", pa.string()), ("position", pa.int64()), ("_landing", pa.int64()), ("now_broken", pa.string())]
)
"""Outcome of quarantined rows that were checked again: their key, and why they are still broken; null for a row that lands."""
OPEN = "_replayed IS NULL"
"""SQL condition for the open rows of a quarantine table: those that no replay has landed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A quarantined row, or a file that could not be landed.

    Args:
        file: the unit of the row.
        position: line or row number in the unit, from 1; 0 is the file itself.
        reason: field, expected, got.
        raw: text of the row.
        landing: ordinal of the landing commit that quarantined the row.
        at: time of that commit, ms UTC.
    """

    file: str
    position: int
    reason: str
    raw: str
    landing: int
    at: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Quarantine:
    """The open rows in the quarantine of a source.

    Args:
        source: name of the source.
        rows: number of open rows.
        by_reason: (reason without the offending value, count), most frequent first.
        newest: some of the open rows, newest first.
    """

    source: str
    rows: int
    by_reason: tuple[tuple[str, int], ...]
    newest: tuple[Entry, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Replayed:
    """The result of a replay.

    Args:
        source: name of the source.
        landed: rows that keep the contract now and are in the log.
        still_broken: rows that stay in the quarantine, with their new reason.
        not_replayable: entries that are no row of their own: files, bytes that are no text.
        late: rows of ``landed`` behind the watermark at the time of the replay.
        ordinal: of the landing commit; None if nothing landed.
    """

    source: str
    landed: int
    still_broken: int
    not_replayable: int
    late: int
    ordinal: int | None


def show(source: str, lake: Lake, *, limit: int = 20) -> Quarantine:
    """The open rows in the quarantine of a source. No engine is needed.

    Args:
        source: name of the source.
        lake: in which the source lands.
        limit: most rows in ``newest``.
    """
    path, nothing = lake.quarantine(source), Quarantine(source=source, rows=0, by_reason=(), newest=())
    if not entries.is_table(path):
        return nothing
    with duckdb.connect(config={"threads": 1}) as connection:  # several threads take longer to open many small files
        connection.execute(
            f"""
            CREATE TABLE waiting AS
            SELECT _landing, filename, regexp_replace(reason, ', got [^;]*', '', 'g') AS reason, count(*) AS n
            FROM {quarantines.relation(connection, path, quarantines.files_of(path))} WHERE {OPEN} GROUP BY ALL
            """
        )
        counted = connection.sql(
            "SELECT reason, sum(n)::BIGINT AS n FROM waiting GROUP BY reason ORDER BY n DESC, reason"
        ).fetchall()
        holders = connection.sql(
            f"""
            WITH newest AS (FROM waiting ORDER BY _landing DESC LIMIT {limit})
            SELECT DISTINCT filename FROM waiting WHERE _landing >= (SELECT min(_landing) FROM newest)
            """
        ).fetchall()
        if not counted:
            return nothing
        newest = connection.sql(
            f"""
            SELECT file, position, reason, raw, _landing, epoch_ms(_quarantined_at)
            FROM {quarantines.relation(connection, path, [name for (name,) in holders if name])}
            WHERE {OPEN} ORDER BY _landing DESC, file, position LIMIT {limit}
            """
        ).fetchall()
    shown = tuple(
        Entry(file=file, position=position, reason=reason, raw=raw, landing=landing, at=at)
        for file, position, reason, raw, landing, at in newest
    )
    return Quarantine(source=source, rows=sum(n for _, n in counted), by_reason=tuple(counted), newest=shown)


def check_replay(source: Source, lake: Lake) -> None:
    """The checks of a replay that need no engine.

    Raises:
        LifecycleError: LIFECYCLE-011, there is a quarantine and the source has ended.
    """
    path = lake.log(source.name)
    if DeltaTable.is_deltatable(lake.quarantine(source.name)) and DeltaTable.is_deltatable(path):
        _refuse_ended(source, log.newest(path))


def _refuse_ended(source: Source, last: Landing | None) -> None:
    if last is not None and last.ended:
        where = f"source '{source.name}'"
        fix = (
            f"Every row would be late. Take the end back, if no stream has read it: floodmark land {source.name} --reopen. Otherwise land the "
            "mended rows under a new source name, or into a new lake."
        )
        raise LifecycleError(where, "a source that has not ended", "its end of input", fix, code="LIFECYCLE-011")


class Again(TypedDict, total=False):
    """The arguments of ``replay`` by name."""

    clock: Callable[[], int]
    workspace: Path | None


def replay(
    workers: Workers,
    source: Source,
    lake: Lake,
    *,
    clock: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    workspace: Path | None = None,
) -> Replayed:
    """Check the quarantined rows against the contract of today and land those that keep it, as one commit.

    Time: rows behind the log's current watermark are late.

    Raises:
        LifecycleError: LIFECYCLE-003 a landing runs, LIFECYCLE-011 the source has ended.
    """
    workers.check(source, lake)
    with locked(lake, source):
        lander = Lander.open(workers, source, lake, clock=clock, workspace=workspace)
        return _replay(lander)


def _replay(lander: Lander) -> Replayed:
    source, path = lander.source, lander.lake.quarantine(lander.source.name)
    nothing = Replayed(source=source.name, landed=0, still_broken=0, not_replayable=0, late=0, ordinal=None)
    if not DeltaTable.is_deltatable(path):
        return nothing
    _refuse_ended(source, lander.last)
    lander.recover()
    whole = pc.is_null(pc.field("_replayed")) & pc.is_null(pc.field("_replay"))
    nothing = replace(nothing, not_replayable=DeltaTable(path).to_pyarrow_dataset().count_rows(filter=whole))
    now = lander.clock()
    blobs = lander.workers.replayed(path, source, now)
    try:
        reports = {report.unit: report for report in blobs.reports}
        landed = sum(report.rows for report in reports.values())
        broken = sum(report.broken for report in reports.values())
        if landed:
            quarantines.announce(path, source.name, lander.last.ordinal + 1)
        if landed + broken:
            crash.point("replay.before_mark")
            blobs.mark(path, lander.last.ordinal + 1)
            crash.point("replay.after_mark")
        if not landed:
            return replace(nothing, still_broken=broken)
        crash.point("replay.before_log")
        done = lander.write(blobs, reports, lander.next(), now, last=max(reports), again=True)
        crash.point("replay.after_log")
    finally:
        blobs.release()
    late = _late(lander.lake.log(source.name), done)
    return replace(nothing, landed=landed, still_broken=broken, late=late, ordinal=done.ordinal)


def _late(path: str, landing: Landing) -> int:
    """The number of rows of a landing commit that are behind their watermark."""
    first = landing.next_sequence - landing.rows - 1
    with duckdb.connect() as connection:
        rows = connection.register("log", DeltaTable(path).to_pyarrow_dataset()).table("log")
        late = rows.filter(f"_kind = 0 AND _sequence >= {first} AND epoch_ms(_event_time) <= _watermark")
        (count,) = late.aggregate("count(*)").fetchall()[0]
    return int(count)


def marks(pieces: Iterable[bytes]) -> Iterator[pa.RecordBatch]:
    """Batches of ``MARKS`` for the quarantine table.

    Args:
        pieces: data of blobs of the kind ``KEYS``.
    """
    for data in pieces:
        columns = zip(*json.loads(data), strict=True)
        arrays = [pa.array(values, type=kind) for values, kind in zip(columns, MARKS.types, strict=True)]
        yield pa.RecordBatch.from_arrays(arrays, schema=MARKS)


def mark(path: str, ordinal: int, outcomes: Callable[[], Iterator[pa.RecordBatch]]) -> None:
    """Mark quarantined rows that land as replayed, and give the others their new reason, by delta-rs. Repeated marks change nothing.

    Args:
        path: of the quarantine.
        ordinal: of the landing commit.
        outcomes: () -> batches of ``MARKS``.

    Raises:
        LifecycleError: LIFECYCLE-004, every attempt conflicted with another writer, such as upkeep.
    """

    def merge(table: DeltaTable, properties: CommitProperties) -> None:
        merger = table.merge(
            pa.RecordBatchReader.from_batches(MARKS, outcomes()),
            "q.file = k.file AND q.position = k.position AND q._landing = k._landing",
            source_alias="k",
            target_alias="q",
            commit_properties=properties,
        )
        merger = merger.when_matched_update({"_replayed": str(ordinal)}, "k.now_broken IS NULL")
        merger.when_matched_update({"reason": "k.now_broken"}, "k.now_broken <> q.reason").execute()

    revise(path, merge)


def blobs_of(unit: int, batches: Iterable[pa.RecordBatch], rules: Rules) -> Iterator[Blob]:
    """Blobs of quarantined rows, which are checked anew; the last blob is their report.

    Args:
        unit: number of the unit that the rows become.
        batches: of the columns ``READ``, in the order ``ORDER``.
        rules: to keep.
    """
    rows = (row for batch in batches for row in batch.to_pylist())
    part, good, broken = 0, 0, 0
    traces: list[Trace] = []
    times: tuple[Stretch, ...] = ()
    refusals = rules.refusals(unit)
    partition_of = rules.source.connector.partition_of
    for (replayed, partition), group in groupby(
        rows, key=lambda row: (row["_replay"], partition_of(row["file"]))
    ):  # `keys[i]`: the key of the i-th record, None once it is reported
        settings = json.loads(replayed)
        form = _FORMS.get(settings["format"], "python")
        keys: list[tuple[str, int, int] | None] = []
        for batch in rules.batches(_records(group, settings, rules, keys), form, refusals):
            reasons = {row.position: row.reason for row in batch.broken}
            if len(batch.rows):
                divided = of_partition(batch.rows, partition_key(partition).encode())
                traces.append(compress(trace_of(divided, rules.source.partition_by)))
                yield unit, part, ROWS, units.arrow_file(divided)
            times = stretches.joined(times, [_located(stretch, keys[stretch.position]) for stretch in batch.times])
            outcomes = dict[tuple[str, int, int], str | None]()
            for index, key in enumerate(keys):
                if key is not None:
                    outcomes[key] = reasons.get(index) or outcomes.get(key)
            yield unit, part + 1, KEYS, json.dumps([[*key, reason] for key, reason in outcomes.items()]).encode()
            keys[:] = [None] * len(keys)  # reported; later records are counted on from here
            part, good, broken = part + 2, good + len(batch.rows), broken + len(batch.broken)
    trace = units.joined(traces) if traces else None
    report = Report(
        unit=unit, status="landed", rows=good, broken=broken, trace=compress(trace) if trace else None, times=times
    )
    yield report.as_blob(part)


def _located(stretch: Stretch, key: tuple[str, int, int] | None) -> Stretch:
    """A stretch whose first row has the file and position of the unit from which it was quarantined."""
    return stretch if key is None else replace(stretch, file=key[0], position=key[1])


def _records(
    rows: Iterator[dict[str, object]],
    settings: dict[str, object],
    rules: Rules,
    keys: list[tuple[str, int, int] | None],
) -> Iterator[Record]:
    """Records of quarantined rows of one form, whose positions are indices into ``keys``; the key of each is appended there."""
    again = reader_of(rules.source).again() if settings["format"] == "reader" else None
    for row in rows:
        index = len(keys)
        keys.append((str(row["file"]), int(str(row["position"])), int(str(row["_landing"]))))
        raw = str(row["raw"]).encode()
        match settings["format"]:
            case "csv":
                cells = Cells.from_json(rules.source.contract, settings)
                read = Csv(cells=cells, delimiter=str(settings["delimiter"]), where="quarantine")
                names = list(settings["header"])  # type: ignore[call-overload]  # likewise
                empty = Record(index, raw, None, "expected a row, got an empty line")
                yield next(csv_records(iter([raw + b"\n"]), names, read), empty)._replace(position=index)
            case "json":
                yield Record(index, raw, raw)
            case "text" | "logfmt":
                cells = Cells.from_json(rules.source.contract, settings)
                pattern = typing.cast("str | None", settings.get("pattern"))
                lines = Lines(cells=cells, pattern=pattern, where="quarantine")
                yield next(text_records([raw], lines))._replace(position=index)
            case "reader" if again is not None:
                for part, record in enumerate(again(raw)):
                    if part:
                        keys.append(keys[index])
                    yield record._replace(position=len(keys) - 1)
            case _:
                yield Record(index, raw, json.loads(raw))
