"""Formats: CSV, JSON lines and Parquet, from bytes to records with their raw text and line."""

from __future__ import annotations

import csv
import gzip
import io
import sys
import zlib
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.parquet as pq

from floodmark.connectors.unit import Record, Unreadable
from floodmark.connectors.validation import inputs_of, texts_of_literals
from floodmark.core.errors import ConnectorError, closest
from floodmark.spec.contract import Contract

_BUFFER = 1 << 20
_LONGEST_RECORD_LINES = 10_000
"""A quoted field over more lines than this is taken for a quote nobody closed."""
_GZIP_MAGIC = b"\x1f\x8b"
_UTF16 = (b"\xff\xfe", b"\xfe\xff")
_BOM = b"\xef\xbb\xbf"


@dataclass(frozen=True, slots=True, kw_only=True)
class Csv:
    """How to read a CSV text.

    Args:
        contract: its fields are looked for in the header.
        delimiter: between fields.
        null_values: texts that mean null.
        where: for messages.
    """

    contract: type[Contract]
    delimiter: str
    null_values: tuple[str, ...]
    where: str

    def as_json(self) -> dict[str, object]:
        """What reading one record again takes, beside the header."""
        return {"delimiter": self.delimiter, "null_values": list(self.null_values)}


def lines_of(stream: io.RawIOBase, name: str) -> io.BufferedReader:
    """The lines of a file, decompressed when its name says so."""
    buffered = io.BufferedReader(stream, _BUFFER)
    if name.endswith(".gz"):
        return io.BufferedReader(gzip.GzipFile(fileobj=buffered), _BUFFER)  # type: ignore[arg-type]  # it has readinto
    return buffered


@contextmanager
def whole() -> Iterator[None]:
    """Turn what a cut or damaged file raises into Unreadable."""
    try:
        yield
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise Unreadable(str(error)) from error


def json_records(lines: Iterator[bytes]) -> Iterator[Record]:
    """One record per line that is not blank."""
    for number, line in enumerate(lines, start=1):
        raw = line.rstrip(b"\r\n")
        if raw.strip():
            raw = raw.removeprefix(_BOM) if number == 1 else raw
            yield Record(number, raw, raw)


def header_of(lines: Iterator[bytes], settings: Csv) -> list[str]:
    """The names in the first line.

    Raises:
        Unreadable: there is no header.
        ConnectorError: CONNECTOR-010, a required column is missing; CONNECTOR-011, a name twice.
    """
    first = next(lines, b"")
    if first.startswith(_UTF16):
        msg = "it is UTF-16; write it as UTF-8"
        raise Unreadable(msg)
    text = first.removeprefix(_BOM).decode(errors="backslashreplace")
    if not text.strip():
        msg = "it has no header line" if first else "it is empty"
        raise Unreadable(msg)
    try:
        names = [name.strip() for name in next(csv.reader([text], delimiter=settings.delimiter, strict=True))]
    except csv.Error as error:
        msg = f"its header cannot be read ({error})"
        raise Unreadable(msg) from error
    twice = sorted({name for name in names if name and names.count(name) > 1 and name in inputs_of(settings.contract)})
    if twice:
        fix = "Rename one of the two columns in the file."
        raise ConnectorError(settings.where, "each column once", f"'{twice[0]}' twice", fix, code="CONNECTOR-011")
    for name, field in inputs_of(settings.contract).items():
        if field.is_required() and name not in names:
            fix = f"{closest(name, names)}Rename the column in the file, or the field of {settings.contract.__name__}."
            got = f"columns {', '.join(names)}"
            raise ConnectorError(settings.where, f"a column '{name}'", got, fix, code="CONNECTOR-010")
    return names


def csv_records(lines: Iterator[bytes], names: Sequence[str], settings: Csv, *, first_line: int = 2) -> Iterator[Record]:
    """Records below a header, each with its raw lines; a quoted field may hold line ends.

    A record whose quotes do not match costs its first line only: reading goes on at the second.
    """
    csv.field_size_limit(sys.maxsize)
    wanted = [(place, name) for place, name in enumerate(names) if name in inputs_of(settings.contract)]
    literals = texts_of_literals(settings.contract)
    nulls, width = frozenset(settings.null_values), len(names)
    waiting: deque[bytes] = deque()
    taken: list[bytes] = []
    undecodable = False

    def feed() -> Iterator[str]:
        nonlocal undecodable
        while (line := waiting.popleft() if waiting else next(lines, None)) is not None:
            taken.append(line)
            if len(taken) > _LONGEST_RECORD_LINES:
                msg = f"a quote that is not closed within {_LONGEST_RECORD_LINES:,} lines"
                raise csv.Error(msg)
            try:
                yield line.decode()
            except UnicodeDecodeError:
                undecodable = True
                yield line.decode(errors="backslashreplace")

    number, rows = first_line, csv.reader(feed(), delimiter=settings.delimiter, strict=True)
    while True:
        try:
            row = next(rows)
        except StopIteration:
            return
        except csv.Error as error:
            yield Record(number, taken[0].rstrip(b"\r\n"), None, f"expected a CSV record, got a broken one ({error})")
            waiting.extendleft(reversed(taken[1:]))
            taken, undecodable, number = [], False, number + 1
            rows = csv.reader(feed(), delimiter=settings.delimiter, strict=True)
            continue
        raw = (taken[0] if len(taken) == 1 else b"".join(taken)).rstrip(b"\r\n")
        at, number, taken = number, number + len(taken), []
        if undecodable:
            undecodable = False
            yield Record(at, raw, None, "expected UTF-8 text, got other bytes (shown as \\xNN)")
        elif len(row) != width:
            if row:
                yield Record(at, raw, None, f"expected {width} fields as in the header, got {len(row)}")
        else:
            yield Record(at, raw, _values(row, wanted, nulls, literals))


def _values(
    row: list[str], wanted: list[tuple[int, str]], nulls: frozenset[str], literals: dict[str, dict[str, object]]
) -> dict[str, object]:
    values: dict[str, object] = {name: row[place] for place, name in wanted}
    if not nulls.isdisjoint(row):
        values = {name: None if value in nulls else value for name, value in values.items()}
    for name, known in literals.items():
        if name in values:
            values[name] = known.get(str(values[name]), values[name])
    return values


def parquet_records(file: pa.NativeFile) -> Iterator[Record]:
    """One record per row, in file order."""
    try:
        opened, number = pq.ParquetFile(file), 0
        for batch in opened.iter_batches(batch_size=8192):
            for row in batch.to_pylist():
                number += 1
                yield Record(number, b"", row)
    except pa.ArrowInvalid as error:
        raise Unreadable(str(error).split("\n")[0]) from error

