"""Formats: lines of text, CSV and Parquet, parsed from bytes to records with their raw text and line."""

from __future__ import annotations

import codecs
import csv
import gzip
import io
import re
import sys
import zlib
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import IO

import pyarrow as pa
import pyarrow.parquet as pq

from floodmark.connectors.entries import Columns, Record
from floodmark.connectors.formats.cells import Cells
from floodmark.connectors.unit import Unreadable
from floodmark.core.errors import ConnectorError, closest
from floodmark.spec.rows.contract import inputs_of, takes_unknown

_BUFFER = 1 << 20
_PARQUET_ROWS = 65_536
_LONGEST_RECORD_LINES = 10_000
"""Lines of a record beyond which its quoted field counts as a quote that is not closed."""
_GZIP_MAGIC = b"\x1f\x8b"
_UTF16 = (b"\xff\xfe", b"\xfe\xff")
_BOM = b"\xef\xbb\xbf"
_BINARY = {
    b"PAR1": 'it is a Parquet file: rename it to .parquet, or Files(..., format="parquet")',
    b"PK\x03\x04": "it is a workbook of Excel or an archive: export it as CSV",
    _GZIP_MAGIC: "it is compressed: rename it to .csv.gz",
}
"""First bytes of a file that is no CSV -> what it is and what to do."""
_SEPARATOR = re.compile(rb"sep=.\r?\n?", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Csv:
    """How to read a CSV text.

    Args:
        cells: how to read the texts of a row.
        delimiter: between fields.
        where: for messages.
        header: names of the columns, for a text without a header line; empty for a text with one.
        skip: lines before the header.
    """

    cells: Cells
    delimiter: str
    where: str
    header: tuple[str, ...] = ()
    skip: int = 0

    def as_json(self) -> dict[str, object]:
        """The settings, beside the header, that are needed to read one record again."""
        return {"delimiter": self.delimiter, **self.cells.as_json()}


def lines_of(stream: io.RawIOBase, name: str, encoding: str = "utf-8") -> Iterator[bytes]:
    """The lines of a file as UTF-8, decompressed if its name ends with ``.gz``. Bytes that are no text in ``encoding`` make a line invalid UTF-8."""
    lines = io.BufferedReader(stream, _BUFFER)
    if name.endswith(".gz"):
        # buffered, as lines of a bare GzipFile come ten times as slowly
        lines = io.BufferedReader(gzip.GzipFile(fileobj=lines), _BUFFER)  # type: ignore[arg-type]  # typeshed: GzipFile is no RawIOBase
    if codecs.lookup(encoding).name == "utf-8":
        return lines
    text = io.TextIOWrapper(lines, encoding=encoding, errors="surrogateescape", newline="\n")
    return (line.encode(errors="surrogateescape") for line in text)


@contextmanager
def whole() -> Iterator[None]:
    """Raise Unreadable for the errors that a cut or damaged file raises."""
    try:
        yield
    except (EOFError, gzip.BadGzipFile, zlib.error, UnicodeError) as error:
        raise Unreadable(str(error)) from error


def header_of(lines: Iterator[bytes], settings: Csv) -> tuple[list[str], int]:
    """The names of the columns, and the number of the line after the header.

    Raises:
        Unreadable: there is no header.
        ConnectorError: CONNECTOR-010, a required column is missing; CONNECTOR-011, a name twice.
    """
    for _ in range(settings.skip):
        next(lines, None)
    if settings.header:
        return _checked(list(settings.header), settings), settings.skip + 1
    first, number = next(lines, b""), settings.skip + 2
    if first.startswith(_UTF16):
        msg = 'it is UTF-16: Files(..., encoding="utf-16")'
        raise Unreadable(msg)
    if (kind := next((kind for magic, kind in _BINARY.items() if first.startswith(magic)), None)) is not None:
        raise Unreadable(kind)
    if _SEPARATOR.fullmatch(first.removeprefix(_BOM)):  # a hint of Excel's for itself
        first, number = next(lines, b""), number + 1
    text = first.removeprefix(_BOM).decode(errors="backslashreplace")
    if not text.strip():
        msg = "it has no header line" if first else "it is empty"
        raise Unreadable(msg)
    try:
        names = [name.strip() for name in next(csv.reader([text], delimiter=settings.delimiter, strict=True))]
    except csv.Error as error:
        msg = f"its header cannot be read ({error})"
        raise Unreadable(msg) from error
    return _checked(names, settings), number


def _checked(names: list[str], settings: Csv) -> list[str]:
    """The names, if all required columns of the contract are among them, each once.

    Raises:
        ConnectorError: CONNECTOR-010 or CONNECTOR-011 otherwise.
    """
    twice = sorted(
        {name for name in names if name and names.count(name) > 1 and name in inputs_of(settings.cells.contract)}
    )
    if twice:
        fix = "Rename one of the two columns in the file."
        raise ConnectorError(settings.where, "each column once", f"'{twice[0]}' twice", fix, code="CONNECTOR-011")
    for name, field in inputs_of(settings.cells.contract).items():
        if field.is_required() and name not in names:
            fix = f"{closest(name, names)}Rename the column in the file, or the field of {settings.cells.contract.__name__}."
            if len(names) == 1 and (other := next((sign for sign in ";\t|," if sign in names[0]), None)):
                fix = f"The delimiter looks like another one: Files(..., delimiter={other!r})."
            got = f"columns {', '.join(names)}"
            raise ConnectorError(settings.where, f"a column '{name}'", got, fix, code="CONNECTOR-010")
    return names


def csv_records(
    lines: Iterator[bytes],
    names: Sequence[str],
    settings: Csv,
    *,
    first_line: int = 2,
    default_nulls: Counter[str] | None = None,
) -> Iterator[Record]:
    """Records below a header, each with its raw lines; a quoted field may hold line ends.

    Of a record whose quotes do not match only the first line is lost: the next record begins at its second line.

    Args:
        lines: of the text.
        names: of the columns.
        settings: how to read the text.
        first_line: number of the first of the lines.
        default_nulls: counter of column and text that are read as null by default.
    """
    csv.field_size_limit(sys.maxsize)
    known, takes_all = inputs_of(settings.cells.contract), takes_unknown(settings.cells.contract)
    wanted = [(index, name) for index, name in enumerate(names) if name in known or (takes_all and name)]
    reader, width = settings.cells.reader(default_nulls), len(names)
    feed, number = _Feed(lines), first_line
    rows = csv.reader(feed.texts(), delimiter=settings.delimiter, strict=True)
    while True:
        try:
            row = next(rows)
        except StopIteration:
            return
        except csv.Error as error:
            raw = feed.give_back()
            yield Record(number, raw, None, f"expected a CSV record, got a broken one ({error})")
            number += 1
            rows = csv.reader(feed.texts(), delimiter=settings.delimiter, strict=True)
            continue
        at, (raw, count, is_text) = number, feed.take()
        number += count
        if not is_text:
            yield Record(at, raw, None, "expected UTF-8 text, got other bytes (shown as \\xNN)")
        elif len(row) == width:
            yield Record(at, raw, reader({name: row[index] for index, name in wanted}))
        elif row:
            yield Record(at, raw, None, f"expected {width} fields as in the header, got {len(row)}")


class _Feed:
    """The lines that the CSV parser reads; holds the lines of the record that is being parsed."""

    def __init__(self, lines: Iterator[bytes]) -> None:
        self._lines = lines
        self._again: deque[bytes] = deque()
        self._taken: list[bytes] = []
        self._is_text = True

    def texts(self) -> Iterator[str]:
        while (line := self._again.popleft() if self._again else next(self._lines, None)) is not None:
            self._taken.append(line)
            if len(self._taken) > _LONGEST_RECORD_LINES:
                msg = f"a quote that is not closed within {_LONGEST_RECORD_LINES:,} lines"
                raise csv.Error(msg)
            try:
                yield line.decode()
            except UnicodeDecodeError:
                self._is_text = False
                yield line.decode(errors="backslashreplace")

    def take(self) -> tuple[bytes, int, bool]:
        """The record's bytes, its number of lines, and whether its lines are UTF-8."""
        taken, is_text = self._taken, self._is_text
        self._taken, self._is_text = [], True
        return (taken[0] if len(taken) == 1 else b"".join(taken)).rstrip(b"\r\n"), len(taken), is_text

    def give_back(self) -> bytes:
        """The record's first line; the parser reads its other lines once more."""
        first, *others = self._taken
        self._again.extendleft(reversed(others))
        self._taken, self._is_text = [], True
        return first.rstrip(b"\r\n")


def parquet_columns(file: pa.NativeFile | IO[bytes]) -> Iterator[Columns]:
    """The rows of a Parquet file in file order, ``_PARQUET_ROWS`` at a time."""
    try:
        opened, number = pq.ParquetFile(file), 0
        for batch in opened.iter_batches(batch_size=_PARQUET_ROWS):
            yield Columns(number + 1, batch)
            number += len(batch)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, OSError) as error:
        if isinstance(error, OSError) and error.errno is not None:  # of the disk; Arrow's of broken pages has none
            raise
        raise Unreadable(str(error).split("\n")[0]) from error
