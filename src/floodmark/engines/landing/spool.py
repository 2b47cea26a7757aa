"""Blobs in a temporary file of this process, which is in memory while it is small."""

from __future__ import annotations

import os
import pickle
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from tempfile import SpooledTemporaryFile

import pyarrow as pa

from floodmark.engines.landing import files, quarantine, stamping, units
from floodmark.engines.landing.stamping import Stamping
from floodmark.engines.landing.units import KEYS, REPORT, Blob, Piece, Report
from floodmark.lake.logs import log, quarantines
from floodmark.lake.results import tables
from floodmark.lake.table import entries
from floodmark.lake.table.commits import Landing
from floodmark.lake.table.files import Written
from floodmark.lake.table.rows import row_schema
from floodmark.lake.writing.writer import Writer
from floodmark.semantics.time.delays import Delays
from floodmark.spec.values.schema import Schema

_IN_MEMORY = 64 << 20
"""Most bytes of blobs that are in memory; larger files are on disk."""


@dataclass(frozen=True, slots=True)
class SpooledBlobs:
    """Blobs of one commit.

    Args:
        file: of all blobs, one pickled tuple after the other.
        reports: of all units.
        writers: of tables, by path; a landing opens each table once.
    """

    file: SpooledTemporaryFile[bytes]
    reports: list[Report]
    writers: dict[str, Writer] = field(default_factory=dict)

    @property
    def size(self) -> int:
        """Bytes of all blobs. Not while they are iterated over."""
        self.file.seek(0, os.SEEK_END)
        return self.file.tell()

    def pieces(self) -> Iterator[Piece]:
        """The pieces of all blobs, in order. Only one reader at a time may iterate."""
        self.file.seek(0)
        while True:
            try:
                unit, _, kind, data = pickle.load(self.file)  # noqa: S301 - this process has written it
            except EOFError:
                return
            yield unit, kind, data

    def measured(self, plan: Stamping) -> Delays:
        """As ``port.Blobs``."""
        return stamping.measured(self.pieces(), plan)

    def set_aside(
        self, path: str, names: Sequence[str], reports: Mapping[int, Report], *, source: str, ordinal: int, now: int
    ) -> None:
        """As ``port.Blobs``."""
        if not entries.is_table(path):
            tables.create(path, quarantines.table_schema(), (), {})

        def write() -> Written:
            rows = units.entries(self.pieces(), names, reports, source=source, ordinal=ordinal, now=now)
            return files.write(path, rows, quarantines.COLUMNS)

        quarantines.append(self.writers.setdefault(path, Writer(path)), write, source, ordinal)

    def mark(self, path: str, ordinal: int) -> None:
        """As ``port.Blobs``. The next landing undoes the marks if the log commit is missing."""
        quarantine.mark(
            path, ordinal, lambda: quarantine.marks(data for _, kind, data in self.pieces() if kind == KEYS)
        )

    def append(
        self, path: str, landing: Landing, schema: Schema, plan: Stamping, *, modified: int, widen: bool
    ) -> None:
        """As ``port.Blobs``."""
        writer, rows = self.writers.setdefault(path, Writer(path)), stamping.stamped(self.pieces(), schema, plan)
        append(writer, rows, landing, schema, modified=modified, widen=widen)

    def release(self) -> None:
        """As ``port.Blobs``."""
        self.file.close()


def spooled(blobs: Iterable[Blob]) -> SpooledBlobs:
    """Write blobs to a temporary file, which exists until the blobs are released."""
    file, reports = SpooledTemporaryFile[bytes](_IN_MEMORY), []
    try:
        for blob in blobs:
            pickle.dump(blob, file)
            if blob[2] == REPORT:
                reports.append(Report.from_json(blob[3]))
    except BaseException:
        file.close()
        raise
    return SpooledBlobs(file, sorted(reports, key=lambda report: report.unit))


def append(
    writer: Writer,
    rows: Iterator[pa.RecordBatch],
    landing: Landing,
    schema: Schema,
    *,
    modified: int,
    widen: bool,
) -> None:
    """Append stamped rows to a log, once."""
    columns, once = row_schema(schema), (log.application(landing.source), landing.ordinal)
    if widen:
        writer.append_wider(pa.RecordBatchReader.from_batches(columns, rows), landing, once)
    else:
        writer.append(lambda: files.write(writer.path, rows, columns), landing, once, modified=modified)
