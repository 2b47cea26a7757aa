"""Units in Spark: parsed in workers into blobs, small facts to the driver, stamped in workers again.

A blob is a row of (_unit, _part, _kind, _data): a piece of a unit's rows as an Arrow file, its broken rows, or its report. Blobs
are what is persisted between reading and writing, so that nothing is read twice and no row passes through the driver.
"""

from __future__ import annotations

import json
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from floodmark.connectors.unit import Content, Reader, Unit, Unreadable
from floodmark.connectors.validation import Broken, Rules, trace_of
from floodmark.core.errors import FloodmarkError
from floodmark.lake.commits import Status
from floodmark.semantics.watermarks import Trace, compress

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

BLOB_DDL = "_unit int, _part int, _kind int, _data binary"
ROWS, BROKEN, REPORT = 0, 1, 2
_TASKS_PER_CORE = 4
_MICROSECONDS = pa.timestamp("us", tz="UTC")
BLOB = pa.schema([("_unit", pa.int32()), ("_part", pa.int32()), ("_kind", pa.int32()), ("_data", pa.binary())])
_QUARANTINED = pa.schema(
    [
        ("source", pa.string()),
        ("file", pa.string()),
        ("position", pa.int64()),
        ("reason", pa.string()),
        ("raw", pa.string()),
        ("_landing", pa.int64()),
        ("_quarantined_at", _MICROSECONDS),
        ("_replayed", pa.int64()),
        ("_replay", pa.string()),
    ]
)
QUARANTINE_DDL = (
    "source string, file string, position bigint, reason string, raw string, "
    "_landing bigint, _quarantined_at timestamp, _replayed bigint, _replay string"
)

Blob = tuple[int, int, int, bytes]


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What a worker says of a unit.

    Args:
        unit: its place among the units of the commit.
        status: see :class:`~floodmark.connectors.unit.Landed`.
        rows: good ones.
        broken: broken ones.
        size: bytes read.
        digest: of the content.
        reason: why it did not land, for people.
        trace: of its rows, compressed.
        error: a FloodmarkError that stops the landing, as its parts.
    """

    unit: int
    status: Status
    rows: int = 0
    broken: int = 0
    size: int = 0
    digest: str = ""
    reason: str = ""
    trace: Trace | None = None
    error: dict[str, str] | None = None

    def as_blob(self, part: int) -> Blob:
        """The last blob of a unit."""
        fields = {name: getattr(self, name) for name in self.__slots__}
        trace = None if self.trace is None else self.trace.as_json()
        return self.unit, part, REPORT, json.dumps({**fields, "trace": trace}).encode()

    @staticmethod
    def from_json(text: bytes) -> Report:
        """The report in a blob."""
        fields = json.loads(text)
        trace = None if fields["trace"] is None else Trace.from_json(fields["trace"])
        return Report(**{**fields, "trace": trace})


def parsed(spark: SparkSession, reader: Reader, units: Sequence[Unit], rules: Rules) -> DataFrame:
    """Blobs of all units; consecutive units stay in order within and across tasks."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for index in batch.column(0).to_pylist():
                for blob in blobs_of(index, reader, units[index], rules):
                    yield blob_batch(blob)

    tasks = min(len(units), _TASKS_PER_CORE * spark.sparkContext.defaultParallelism)
    return spark.range(0, len(units), 1, tasks).mapInArrow(run, BLOB_DDL)


def reports_of(blobs: DataFrame) -> list[Report]:
    """What the workers say, by unit."""
    rows = blobs.where(f"_kind = {REPORT}").select("_data").collect()
    return sorted((Report.from_json(bytes(row["_data"])) for row in rows), key=lambda report: report.unit)


def blob_batch(blob: Blob) -> pa.RecordBatch:
    """One blob on its way to Spark."""
    return pa.RecordBatch.from_arrays(
        [pa.array([value], type=f.type) for value, f in zip(blob, BLOB, strict=True)], schema=BLOB
    )


def blobs_of(index: int, reader: Reader, unit: Unit, rules: Rules) -> Iterator[Blob]:
    """Read one unit; the last blob is its report."""
    parts = count()
    try:
        content = reader.open(unit)
        if unit.replaces:
            _, digest = content.fingerprint()
            reason = "the file was replaced after landing; to land the new content give it a new name"
            report = Report(unit=index, status="replaced", reason=reason, size=unit.size, digest=digest)
        else:
            report = yield from _read(index, content, rules, parts)
            if report.size != unit.size:  # somebody is still writing it
                report = replace(report, status="changing")
    except FileNotFoundError:  # taken away since it was listed
        report = Report(unit=index, status="changing")
    except FloodmarkError as error:
        report = Report(unit=index, status="changing", error={**error.as_json(), "kind": type(error).__name__})
    except OSError as error:
        problem = {
            "where": f"file {unit.name}",
            "expected": "a readable file",
            "got": str(error),
            "fix": "Give floodmark the right to read it.",
        }
        report = Report(
            unit=index, status="changing", error={**problem, "code": "CONNECTOR-007", "kind": "ConnectorError"}
        )
    yield report.as_blob(next(parts))


def _read(index: int, content: Content, rules: Rules, parts: Iterator[int]) -> Generator[Blob, None, Report]:
    rows, broken, reason = 0, 0, ""
    status: Status = "landed"
    traces: list[Trace] = []
    try:
        for batch in rules.batches(content.records(), content.form, rules.refusals(index)):
            if len(batch.rows):
                traces.append(compress(trace_of(batch.rows, rules.source.partition_by)))
                yield index, next(parts), ROWS, arrow_file(batch.rows)
            if batch.broken:
                yield index, next(parts), BROKEN, _broken(batch.broken, content.replay)
            rows, broken = rows + len(batch.rows), broken + len(batch.broken)
    except Unreadable as error:
        status, reason = "unreadable", str(error)
    size, digest = content.fingerprint()
    if reason:
        reason = (
            f"the file cannot be read to its end: {reason}; {rows + broken:,} rows of its {size:,} bytes could be read and "
            "none of them landed; replace it by a whole one"
        )
    trace = compress(joined(traces)) if traces else None
    return Report(
        unit=index, status=status, rows=rows, broken=broken, size=size, digest=digest, reason=reason, trace=trace
    )


def joined(traces: Sequence[Trace]) -> Trace:
    """Traces one after the other."""
    keys = None if traces[0].partitions is None else [key for trace in traces for key in trace.partitions or ()]
    return Trace(np.concatenate([trace.candidates for trace in traces]), keys)


def arrow_file(rows: pa.RecordBatch) -> bytes:
    """Rows as the data of a blob."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write_batch(rows)
    return sink.getvalue().to_pybytes()  # type: ignore[no-any-return]


def rows_of(data: bytes) -> pa.RecordBatch:
    """The rows in the data of a blob."""
    return pa.ipc.open_stream(data).read_next_batch()


def _broken(rows: Sequence[Broken], replay: str | None) -> bytes:
    return json.dumps(
        [[row.position, row.raw, row.reason, replay if row.replayable else None] for row in rows]
    ).encode()


def each(batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[int, int, bytes]]:
    """(unit, kind, data) of blobs in a worker."""
    for batch in batches:
        columns = (batch.column(name).to_pylist() for name in ("_unit", "_kind", "_data"))
        yield from zip(*columns, strict=True)


def quarantined(
    blobs: DataFrame, units: Sequence[Unit], reports: Mapping[int, Report], *, source: str, ordinal: int, now: int
) -> DataFrame:
    """Rows for the quarantine table: the broken rows of units that land, one entry for each that does not."""
    names = {index: units[index].name for index in reports}
    whole = {index: report.reason for index, report in reports.items() if report.status in {"unreadable", "replaced"}}
    landing = {index for index, report in reports.items() if report.status == "landed"}

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for unit, kind, data in each(batches):
            if kind == BROKEN and unit in landing:
                yield _entries(source, names[unit], json.loads(data), ordinal, now)
            elif kind == REPORT and unit in whole:
                yield _entries(source, names[unit], [(0, "", whole[unit], None)], ordinal, now)

    return blobs.where(f"_kind in ({BROKEN}, {REPORT})").mapInArrow(run, QUARANTINE_DDL)


def _entries(
    source: str, file: str, rows: list[tuple[int, str, str, str | None]], ordinal: int, now: int
) -> pa.RecordBatch:
    positions, raws, reasons, replays = zip(*rows, strict=True)
    size = len(rows)
    values = [
        [source] * size,
        [file] * size,
        positions,
        reasons,
        raws,
        [ordinal] * size,
        [now * 1000] * size,
        [None] * size,
        replays,
    ]
    arrays = [pa.array(value, type=column.type) for value, column in zip(values, _QUARANTINED, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=_QUARANTINED)
