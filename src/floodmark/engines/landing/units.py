"""Blobs: units after they are read and checked, in the form in which an engine holds them until they are written.

A blob is (unit, part, kind, data): a piece of a unit's rows as an Arrow file, its broken rows, or its report. By them no unit is read
twice, and no row has to pass through the driver.
"""

from __future__ import annotations

import json
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any

import numpy as np
import pyarrow as pa

from floodmark.connectors.judging.validation import ASKED, Broken, Rules, of_partition, partition_key, trace_of
from floodmark.connectors.unit import Content, Gone, Reader, Unit, Unreadable
from floodmark.core.errors import ConnectorError, FloodmarkError
from floodmark.core.time import NEVER
from floodmark.lake.logs.quarantines import COLUMNS
from floodmark.lake.table.commits import Status
from floodmark.lake.table.default_nulls import DefaultNulls
from floodmark.lake.table.left_out import LeftOut
from floodmark.semantics.time import stretches
from floodmark.semantics.time.stretches import Stretch
from floodmark.semantics.time.watermarks import Trace, compress
from floodmark.spec.rows.contract import tells_unknown
from floodmark.spec.rows.source import Source

ROWS, BROKEN, REPORT, KEYS = 0, 1, 2, 3
"""Kinds of blobs; ``KEYS`` holds the outcome of quarantined rows that were checked again."""
EXAMPLES = 3
"""Broken rows of a unit that the error shows if a landing stops because of them."""

Blob = tuple[int, int, int, bytes]
Piece = tuple[int, int, bytes]
"""Unit, kind and data of a blob."""

_NEXT_UNITS = 8
"""Units that a reader is told of before they are opened."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """A worker's report of a unit.

    Args:
        unit: index among the units of the commit.
        status: see :class:`~floodmark.connectors.unit.Landed`.
        rows: good ones.
        broken: broken ones.
        size: bytes read.
        digest: of the content.
        position: of the source partition behind the unit, where only its content tells it.
        reason: why the unit did not land, for people.
        trace: of its rows, compressed.
        times: stretches of event time in which its rows lie.
        left_out: fields of its rows that the contract does not name.
        default_nulls: texts of its rows that were read as null by default.
        examples: its first broken rows, for people.
        judged: expectation -> what it comes to over its rows; set in the driver, of a source whose expectations are judged at landing.
        error: a FloodmarkError that stops the landing, as its parts.
    """

    unit: int
    status: Status
    rows: int = 0
    broken: int = 0
    size: int = 0
    digest: str = ""
    position: str = ""
    reason: str = ""
    trace: Trace | None = None
    times: Sequence[Stretch] = ()
    left_out: LeftOut = field(default_factory=LeftOut)
    default_nulls: DefaultNulls = field(default_factory=DefaultNulls)
    examples: Sequence[str] = ()
    judged: Mapping[str, Any] = field(default_factory=dict)
    error: dict[str, str] | None = None

    def as_blob(self, part: int) -> Blob:
        """The report as the last blob of a unit."""
        fields = {name: getattr(self, name) for name in self.__slots__}
        trace = None if self.trace is None else self.trace.as_json()
        times = [stretch.as_json() for stretch in self.times]
        return (
            self.unit,
            part,
            REPORT,
            json.dumps(
                {
                    **fields,
                    "trace": trace,
                    "times": times,
                    "left_out": self.left_out.as_json(),
                    "default_nulls": dict(self.default_nulls.rows),
                }
            ).encode(),
        )

    @staticmethod
    def from_json(text: bytes | str) -> Report:
        """The report in a blob."""
        fields = json.loads(text)
        trace = None if fields["trace"] is None else Trace.from_json(fields["trace"])
        times = tuple(Stretch.from_json(stretch) for stretch in fields["times"])
        left_out = LeftOut.from_json(fields["left_out"])
        nulls = DefaultNulls(fields["default_nulls"])
        return Report(**{**fields, "trace": trace, "times": times, "left_out": left_out, "default_nulls": nulls})


def blobs_in_turn(reader: Reader, units: Sequence[Unit], rules: Rules) -> Iterator[Blob]:
    """Read units one after the other, while the reader fetches what comes next."""
    try:
        for index, unit in enumerate(units):
            reader.ahead(units[index : index + _NEXT_UNITS])
            yield from blobs_of(index, reader, unit, rules)
    finally:
        reader.ahead(())


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
            report = yield from _read(index, content, rules, parts, rules.source.connector.partition_of(unit.name))
            report = replace(report, times=[replace(stretch, file=unit.name) for stretch in report.times])
            if report.size != unit.size:  # the file is still being written
                report = replace(report, status="changing")
    except FloodmarkError as error:
        report = Report(unit=index, status="changing", error={**error.as_json(), "kind": type(error).__name__})
    except OSError as error:
        if isinstance(error, FileNotFoundError) and reader.vanishing:  # gone, or on another machine
            report = Report(unit=index, status="changing", reason=str(error))
        else:
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


def _read(
    index: int, content: Content, rules: Rules, parts: Iterator[int], partition: str
) -> Generator[Blob, None, Report]:
    rows, broken, reason, examples = 0, 0, "", list[str]()
    status: Status = "landed"
    gone = False
    traces: list[Trace] = []
    times: tuple[Stretch, ...] = ()
    left_out = LeftOut()
    try:
        for batch in rules.batches(content.records(), content.form, rules.refusals(index)):
            if len(batch.rows):
                of_unit = of_partition(batch.rows, partition_key(partition).encode())
                traces.append(compress(trace_of(of_unit, rules.source.partition_by)))
                yield index, next(parts), ROWS, arrow_file(of_unit)
            if batch.broken:
                yield index, next(parts), BROKEN, _broken(batch.broken, content.replay)
            examples += [f"row {row.position}: {row.reason}" for row in batch.broken[: EXAMPLES - len(examples)]]
            rows, broken = rows + len(batch.rows), broken + len(batch.broken)
            times, left_out = stretches.joined(times, batch.times), left_out.plus(batch.left_out)
    except Unreadable as error:
        status, reason, gone = "unreadable", str(error), isinstance(error, Gone)
    if broken and not rows:
        _refuse_pattern(rules.source, broken, examples)
    size, digest = content.fingerprint()
    if content.left_out is not None and tells_unknown(rules.source.contract):
        left_out = LeftOut(rows=dict.fromkeys(content.left_out, rows + broken), looked_at=rows + broken)
    if reason and not gone:
        reason = (
            f"the file cannot be read to its end: {reason}; {rows + broken:,} rows of its {size:,} bytes could be read and "
            "none of them landed; replace it by a whole one"
        )
    trace = compress(joined(traces)) if traces else None
    return Report(
        unit=index,
        status=status,
        rows=rows,
        broken=broken,
        size=size,
        digest=digest,
        position=content.position,
        reason=reason,
        trace=trace,
        times=times,
        left_out=left_out,
        default_nulls=DefaultNulls(content.default_nulls),
        examples=examples,
    )


def _refuse_pattern(source: Source, lines: int, examples: Sequence[str]) -> None:
    """Raise ConnectorError CONNECTOR-202 if no line of a text was read: its pattern is wrong rather than the lines.

    A source that sets aside any share of its rows sets aside these, too.
    """
    pattern = source.connector.pattern_of_lines
    if pattern and source.max_quarantine_share < 1:
        got = f"{lines:,} lines, none of which does: {'; '.join(examples)}"
        fix = "Correct pattern= of Files(...); to set such lines aside: Source(..., max_quarantine_share=1)."
        where = f"source '{source.name}'"
        raise ConnectorError(where, f"lines that keep {pattern} and the contract", got, fix, code="CONNECTOR-202")


def joined(traces: Sequence[Trace]) -> Trace:
    """Traces one after the other."""
    keys = None if traces[0].partitions is None else [key for trace in traces for key in trace.partitions or ()]
    return Trace(np.concatenate([trace.candidates for trace in traces]), keys)


def retraced(opened: Iterable[tuple[Blob, pa.RecordBatch | None]], partition_by: str | None) -> Iterator[Blob]:
    """Blobs of rows whose candidate watermarks have changed, with the traces in their reports computed anew.

    Args:
        opened: blobs; a blob of rows together with its rows.
        partition_by: of the source.
    """
    traces: dict[int, list[Trace]] = {}
    for (unit, part, kind, data), rows in opened:
        if rows is not None:
            traces.setdefault(unit, []).append(compress(trace_of(rows, partition_by)))
            yield unit, part, kind, arrow_file(rows)
        elif kind == REPORT and unit in traces:
            yield replace(Report.from_json(data), trace=compress(joined(traces[unit]))).as_blob(part)
        else:
            yield unit, part, kind, data


def moving(rows: pa.RecordBatch, moves: Any) -> pa.RecordBatch:
    """Rows of which only some can advance the watermark.

    Args:
        rows: with ``ASKED``.
        moves: a boolean per row: whether the row can.
    """
    asked = np.where(moves, rows.column(ASKED).to_numpy(), NEVER)
    return rows.set_column(rows.schema.get_field_index(ASKED), ASKED, pa.array(asked))


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


def entries(
    pieces: Iterable[Piece], files: Sequence[str], reports: Mapping[int, Report], *, source: str, ordinal: int, now: int
) -> Iterator[pa.RecordBatch]:
    """Rows for the quarantine table: the broken rows of units that land, and one entry for each unit that does not land.

    Args:
        pieces: of the commit.
        files: names of all its units.
        reports: unit -> its report, of decided units.
        source: name of the source.
        ordinal: of the landing commit.
        now: ms UTC.
    """
    whole = {index: report.reason for index, report in reports.items() if report.status in {"unreadable", "replaced"}}
    landing = {index for index, report in reports.items() if report.status == "landed"}
    for unit, kind, data in pieces:
        if kind == BROKEN and unit in landing:
            yield _entries(source, files[unit], json.loads(data), ordinal, now)
        elif kind == REPORT and unit in whole:
            yield _entries(source, files[unit], [(0, "", whole[unit], None)], ordinal, now)


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
    arrays = [pa.array(value, type=column.type) for value, column in zip(values, COLUMNS, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=COLUMNS)
