"""The first rows of files: columns of texts from CSV, columns of Arrow values from Parquet, or JSON objects."""

from __future__ import annotations

import csv
import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from statistics import median
from tempfile import NamedTemporaryFile
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

from floodmark.cli.new.inference.files import Found, ending
from floodmark.connectors.formats.documents import json_records
from floodmark.connectors.formats.tabular import lines_of, whole
from floodmark.connectors.formats.text import fields_of
from floodmark.connectors.judging.strictness import exact
from floodmark.connectors.unit import Unreadable
from floodmark.core.errors import ConnectorError, shown
from floodmark.lake.folder.storage import open_hashed

ROWS = 100_000
"""Most rows that are inspected."""
_SNIFFED = 2_000
"""Lines from which the dialect of a CSV text is inferred."""
_SIGNS = ",;\t|"
_FIELDS = 3
"""Least number of lines, and of fields per line, for a space to be a delimiter."""
_TITLED = 200
"""Lines in which the header is looked for."""
_HEADED = 0.6
"""Least share of the fields of most lines that a header names."""
_TYPED = re.compile(r"\s*([-+]?[0-9][0-9.,:/T -]*)?\s*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """The dialect of a CSV text.

    Args:
        delimiter: text between fields.
        skip: number of lines before the header; before the first row if ``header`` is set.
        header: names of the columns, if the text has no header or repeats a name; else empty.
    """

    delimiter: str = ","
    skip: int = 0
    header: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """The first rows of files.

    Args:
        columns: rows of CSV (as texts) and Parquet; None for JSON.
        objects: rows of JSON.
        whole: whether these are all rows.
        dialect: dialect of CSV; None for other formats.
    """

    columns: pa.Table | None = None
    objects: Sequence[Mapping[str, Any]] = field(default=())
    whole: bool
    dialect: Dialect | None = None

    @property
    def rows(self) -> int:
        """The number of rows."""
        return len(self.objects) if self.columns is None else self.columns.num_rows


def read(files: Found) -> Sample:
    """Read the first rows of files.

    Raises:
        ConnectorError: CONNECTOR-082, a file cannot be read; CONNECTOR-083, no rows; CONNECTOR-084, a single object that holds the rows;
            CONNECTOR-203, the pattern matches no line.
    """
    where = f"--from {files.paths[0]}"
    if not any(path.stat().st_size for path in files.paths):
        raise _without_rows(where, "an empty file")
    try:
        match files.format:
            case "csv":
                sample = _csv(files)
            case "json":
                sample = _json(files, where)
            case "parquet":
                sample = _parquet(files)
            case "text" | "logfmt":
                sample = _text(files, where)
    except (pa.ArrowException, duckdb.Error, Unreadable, OSError, EOFError, ValueError) as error:
        got, fix = str(error).split("\n")[0], "Mend the file, or start with a smaller part of it."
        raise ConnectorError(where, "a file that can be read", got, fix, code="CONNECTOR-082") from error
    if not sample.rows or (sample.columns is not None and not sample.columns.num_columns):
        raise _without_rows(where, "none")
    return sample


def _without_rows(where: str, got: str) -> ConnectorError:
    fix = "Give it at least one row; types are inferred from values."
    return ConnectorError(where, "rows", got, fix, code="CONNECTOR-083")


def _lines(path: Path, encoding: str) -> Iterator[bytes]:
    with whole():
        yield from lines_of(open_hashed(str(path)), path.name, encoding)


def _parquet(files: Found) -> Sample:
    batches = (batch for path in files.paths for batch in pq.ParquetFile(path).iter_batches())
    taken, rows = list[pa.Table](), 0
    for batch in batches:
        taken.append(pa.Table.from_batches([batch]).slice(0, ROWS - rows))
        rows += taken[-1].num_rows
        if rows >= ROWS:
            break
    table = pa.concat_tables(taken, promote_options="permissive") if taken else pa.table({})
    return Sample(columns=table, whole=rows < ROWS)


def _json(files: Found, where: str) -> Sample:
    records = (record for path in files.paths for record in json_records(_lines(path, files.encoding)))
    values = [_value(record.raw) for record in islice(records, ROWS)]
    objects = [value for value in values if isinstance(value, dict)]
    if len(objects) == 1 and next(records, None) is None:
        _refuse_single(objects[0], where)
    return Sample(objects=objects, whole=len(values) < ROWS)


def _value(raw: bytes) -> object:
    """The JSON value of a record; None for a broken record, which a landing would quarantine."""
    try:
        return json.loads(raw, parse_float=exact)
    except ValueError:
        return None


def _text(files: Found, where: str) -> Sample:
    fields = fields_of(files.pattern)
    texts = (line.decode(errors="replace") for path in files.paths for line in _lines(path, files.encoding))
    lines = [stripped for line in texts if (stripped := line.removeprefix("\ufeff").rstrip("\r\n")).strip()]
    looked_at = lines[:ROWS]
    rows = [row for line in looked_at if (row := fields(line)) is not None]
    if looked_at and not rows:
        got, fix = f"none, as in: {shown(looked_at[0])}", "Correct --pattern; it is matched against the whole line."
        raise ConnectorError(where, f"lines that match {files.pattern or 'logfmt'}", got, fix, code="CONNECTOR-203")
    names = dict.fromkeys(name for row in rows for name in row)
    columns = {name: pa.array([row.get(name) or None for row in rows], pa.string()) for name in names}
    return Sample(columns=pa.table(columns), whole=len(lines) <= ROWS)


def _refuse_single(value: Mapping[str, Any], where: str) -> None:
    """Raise CONNECTOR-084 for one object that holds the rows in a list."""
    name, most = max(
        ((n, len(v)) for n, v in value.items() if isinstance(v, list)), key=lambda p: p[1], default=("", 0)
    )
    if most > 1 and isinstance(value[name][0], dict):
        fix = f"Take them out: jq -c '.{name}[]' FILE > {name}.jsonl"
        got = f"one object that holds {most:,} of them in '{name}'"
        raise ConnectorError(where, "objects, one per line or in an array", got, fix, code="CONNECTOR-084")


def _csv(files: Found) -> Sample:
    first = list(islice(_lines(files.paths[0], files.encoding), _SNIFFED))
    dialect = dialect_of(first, tabs=ending(files.paths[0]) == ".tsv")
    tables, rows, ended = list[pa.Table](), 0, True
    for path in files.paths:
        lines = _lines(path, files.encoding)
        text = b"".join(islice(lines, ROWS - rows + dialect.skip + 1))
        ended = ended and next(lines, None) is None
        tables.append(_texts(text, dialect))
        rows += tables[-1].num_rows
        if rows >= ROWS:
            ended = ended and path == files.paths[-1]
            break
    table = pa.concat_tables(tables, promote_options="default") if tables else pa.table({})
    return Sample(columns=table, whole=ended, dialect=dialect)


def _texts(text: bytes, dialect: Dialect) -> pa.Table:
    """The table of a CSV text with every column as text: the type of a column depends on all its values."""
    lines = text.removeprefix(b"\xef\xbb\xbf").split(b"\n", dialect.skip + 1)
    names = list(dialect.header) or _split(lines[dialect.skip].decode(errors="replace"), dialect.delimiter)
    body = lines[dialect.skip + (0 if dialect.header else 1) :]
    content = b"\n".join(body)
    if not content.strip():
        return pa.table({name: pa.array([], pa.string()) for name in dict.fromkeys(names)})
    return pyarrow.csv.read_csv(
        pa.BufferReader(content.decode(errors="replace").encode()),
        read_options=pyarrow.csv.ReadOptions(column_names=names, block_size=64 << 20),
        parse_options=pyarrow.csv.ParseOptions(
            delimiter=dialect.delimiter, newlines_in_values=True, invalid_row_handler=lambda _: "skip"
        ),
        convert_options=pyarrow.csv.ConvertOptions(
            column_types=dict.fromkeys(names, pa.string()), null_values=[""], strings_can_be_null=True
        ),
    )


def dialect_of(lines: Sequence[bytes], *, tabs: bool) -> Dialect:
    """(first lines of a CSV text) -> its dialect: DuckDB's guess, where the lines confirm the guess.

    Args:
        lines: first lines of the text.
        tabs: whether the delimiter is known to be a tab.

    Raises:
        ValueError: the text is empty.
    """
    texts = [line.decode(errors="replace").removeprefix("\ufeff").rstrip("\r\n") for line in lines]
    if not any(texts):
        msg = "it is empty"
        raise ValueError(msg)
    hint = 1 if re.fullmatch(r"sep=.", texts[0], re.IGNORECASE) else 0
    delimiter, skip, has_header = _sniffed(texts[hint:])
    fields = {sign: _fields(texts[hint:], sign) for sign in _SIGNS}
    regular = max(fields, key=lambda sign: fields[sign])
    doubtful = skip * 2 > len(texts) > _FIELDS or fields[regular] > 2 * fields.get(delimiter, 0)
    if tabs or doubtful or not any(delimiter in text for text in texts):
        skip, delimiter = 0, "\t" if tabs else regular
        if not any(delimiter in text for text in texts) and _spaced(texts[hint:]):
            delimiter, has_header = " ", False
    titles = _titles(texts[hint:], delimiter)
    if titles > skip:
        skip, (_, _, has_header) = titles, _sniffed(texts[hint + titles :])
    skip = min(skip, len(texts) - hint - 1)
    names = _split(texts[hint + skip], delimiter)
    if not has_header and any(name and _TYPED.fullmatch(name) for name in names):
        return Dialect(
            delimiter=delimiter, skip=hint + skip, header=tuple(f"column_{n}" for n in range(1, len(names) + 1))
        )
    if len(set(names)) < len(names):
        return Dialect(delimiter=delimiter, skip=hint + skip + 1, header=tuple(_different(names)))
    return Dialect(delimiter=delimiter, skip=hint + skip)


def _fields(texts: Sequence[str], sign: str) -> int:
    """The number of fields between a sign in the lines that have the most common number of that sign; 0 if these are less than half of the lines."""
    counts = Counter(count for text in texts if (count := text.count(sign)))
    most = max(counts.items(), key=lambda pair: (pair[1], pair[0]), default=(0, 0))
    return most[0] * most[1] if most[1] * 2 >= sum(map(bool, texts)) else 0


def _titles(texts: Sequence[str], delimiter: str) -> int:
    """The number of lines above the header: empty lines, and lines with far fewer fields than most lines have."""
    filled, ends = list[int](), [0]
    reader = csv.reader([f"{text}\n" for text in texts[:_TITLED]], delimiter=delimiter)
    try:
        for row in reader:
            filled.append(sum(bool(field.strip()) for field in row))
            ends.append(reader.line_num)
    except csv.Error:
        return 0
    most = median(count for count in filled if count) if any(filled) else 0
    if most < _FIELDS - 1:
        return 0
    above = next((n for n, count in enumerate(filled) if count >= most), 0)
    begin = max((n + 1 for n, count in enumerate(filled[:above]) if not count), default=0)  # behind the last empty line
    rows = zip(ends[begin:], filled[begin:], strict=False)
    return next((end for end, count in rows if count >= _HEADED * most), 0)


def _spaced(texts: Sequence[str]) -> bool:
    """True if spaces divide every line into the same number of fields, as they do not in prose."""
    counts = {len(text.split(" ")) for text in texts if text.strip()}
    return len(counts) == 1 and counts.pop() >= _FIELDS and len(texts) >= _FIELDS


def _different(names: Iterable[str]) -> Iterator[str]:
    """The names, made unique by numbers; an empty name becomes ``column_N``."""
    seen: dict[str, int] = {}
    for name in (name or f"column_{place}" for place, name in enumerate(names, start=1)):
        seen[name] = seen.get(name, 0) + 1
        yield name if seen[name] == 1 else f"{name}_{seen[name]}"


def _sniffed(texts: Sequence[str]) -> tuple[str, int, bool]:
    """(delimiter, number of lines before the header, True if there is a header), as DuckDB guesses."""
    with NamedTemporaryFile("w", suffix=".csv", encoding="utf-8", newline="") as file, duckdb.connect() as connection:
        file.write("\n".join(texts) + "\n")
        file.flush()
        try:
            row = connection.execute("SELECT Delimiter, SkipRows, HasHeader FROM sniff_csv(?)", [file.name]).fetchone()
        except duckdb.Error:  # no dialect fits
            row = None
    return (str(row[0]), int(row[1]), bool(row[2])) if row else ("", 0, True)


def _split(line: str, delimiter: str) -> list[str]:
    """The names in a header."""
    return [name.strip() for name in next(csv.reader([line.rstrip("\r\n")], delimiter=delimiter), [])]
