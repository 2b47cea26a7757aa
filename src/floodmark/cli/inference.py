"""A first contract by looking at data: names, types, nulls, and which column could be the event time."""

from __future__ import annotations

import gzip
import json
import keyword
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet

from floodmark.core.errors import ConnectorError

ROWS = 500_000
"""So many rows are looked at, at most."""
_NULLS = ("", "NA")
_KEYS = 50
"""A text column with at most so many different values is taken as an example key."""
_TIME_NAMES = re.compile(r"(^|_)(event_?time|time(stamp)?|ts|at|when|datetime|created|occurred|observed|epoch)($|_)")
_TAKEN = {"count", "operator", "settings", "workspace", "annotations"}
_PATTERNS = (
    ("int", r"^-?(0|[1-9][0-9]{0,17})$"),
    ("float", r"^[-+]?((0|[1-9][0-9]*)(\.[0-9]*)?|\.[0-9]+)([eE][-+]?[0-9]+)?$"),
    ("bool", r"^([tT]rue|[fF]alse|TRUE|FALSE)$"),
    ("date", r"^[0-9]{4}-[0-9]{2}-[0-9]{2}$"),
    (
        "datetime",
        r"^[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9]{2}:[0-9]{2}(:[0-9]{2}(\.[0-9]{1,9})?)?(Z|[-+][0-9]{2}:?[0-9]{2})?$",
    ),
)
_EPOCH = (946_684_800, 4_102_444_800)
"""2000 to 2100, in seconds: a whole number between them, named like a time, is one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LookedField:
    """One column as a field.

    Args:
        column: its name in the data.
        name: the field's; differs where the column's is no Python name.
        type: Python text.
        nullable: nulls were seen.
        digits: precision and scale of a decimal.
        note: a comment for the author.
    """

    column: str
    name: str
    type: str
    nullable: bool
    digits: tuple[int, int] | None = None
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Looked:
    """What was seen in a file.

    Args:
        path: absolute.
        source: a name for it.
        fields: in the file's order.
        event_time: the field that could be it; None when there is none.
        key: a field with few different values.
        rows: looked at.
        whole: these were all.
        delimiter: of a CSV file.
        left_out: columns a contract cannot hold, and why.
    """

    path: Path
    source: str
    fields: tuple[LookedField, ...]
    event_time: str | None
    key: str | None
    rows: int
    whole: bool
    delimiter: str | None = None
    left_out: tuple[str, ...] = ()

    @property
    def contract(self) -> str:
        """A name for the contract."""
        return "".join(part.capitalize() for part in self.source.split("_")) + "Row"


def look(path: Path) -> Looked:
    """Look at a CSV, JSON lines or Parquet file.

    Raises:
        ConnectorError: CONNECTOR-080 no such file, 081 another kind of file, 082 it cannot be read, 083 no rows.
    """
    path = path.expanduser().absolute()
    if not path.is_file():
        fix = "Give --from a file; a folder of such files is set in assets/ afterwards."
        raise ConnectorError("--from", "a file", f"no file {path}", fix, code="CONNECTOR-080")
    read = _reader(path)
    try:
        table, whole, delimiter = read(path)
    except (pa.ArrowException, OSError, EOFError, ValueError) as error:
        got, fix = str(error).split("\n")[0], "Mend the file, or start with a smaller part of it."
        raise ConnectorError(f"--from {path}", "a file that can be read", got, fix, code="CONNECTOR-082") from error
    if not table.num_rows or not table.num_columns:
        fix = "Give it at least one row; types are inferred from values."
        raise ConnectorError(f"--from {path}", "rows", "none", fix, code="CONNECTOR-083")
    return _looked(path, table, whole=whole, delimiter=delimiter)


Read = tuple[pa.Table, bool, str | None]


def _reader(path: Path) -> Any:
    kind = Path(path.name.removesuffix(".gz")).suffix.lower()
    readers = dict.fromkeys((".csv", ".tsv"), _csv) | dict.fromkeys((".json", ".jsonl", ".ndjson"), _json)
    readers |= {".parquet": _parquet}
    if kind not in readers or (kind == ".parquet" and path.name.endswith(".gz")):
        expected = "a file ending in .csv, .tsv, .json, .jsonl, .ndjson (each also with .gz) or .parquet"
        raise ConnectorError("--from", expected, path.name, "Convert or rename it.", code="CONNECTOR-081")
    return readers[kind]


def _csv(path: Path) -> Read:
    """Every column as text; what it means is decided by all of its values."""
    with pa.input_stream(str(path), compression="detect") as stream:
        head = stream.read(64 << 10).removeprefix(b"\xef\xbb\xbf").decode(errors="replace").splitlines()
    header = head[0] if head else ""
    delimiter = "\t" if ".tsv" in path.name else max(",;\t|", key=header.count)
    names = [name.strip().strip('"') for name in header.split(delimiter)]
    reader = pa.csv.open_csv(
        pa.input_stream(str(path), compression="detect"),
        read_options=pa.csv.ReadOptions(block_size=8 << 20),
        parse_options=pa.csv.ParseOptions(
            delimiter=delimiter, newlines_in_values=True, invalid_row_handler=lambda _: "skip"
        ),
        convert_options=pa.csv.ConvertOptions(
            column_types=dict.fromkeys(names, pa.string()), null_values=list(_NULLS), strings_can_be_null=True
        ),
    )
    return *_first(reader), delimiter


def _parquet(path: Path) -> Read:
    file = pa.parquet.ParquetFile(path)
    return *_first(file.iter_batches()), None


def _first(batches: Iterable[pa.RecordBatch]) -> tuple[pa.Table, bool]:
    taken: list[pa.RecordBatch] = []
    rows = 0
    for batch in batches:
        if rows >= ROWS:
            return pa.Table.from_batches(taken), False
        taken.append(batch)
        rows += batch.num_rows
    return pa.Table.from_batches(taken) if taken else pa.table({}), True


def _json(path: Path) -> Read:
    with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as stream:
        lines = (line for line in stream if line.strip())
        rows = [row for row in map(_object, islice(lines, ROWS)) if row is not None]
        whole = next(lines, None) is None
    columns = list(dict.fromkeys(name for row in rows for name in row))
    arrays = [_array([row.get(name) for row in rows]) for name in columns]
    return pa.table(dict(zip(columns, arrays, strict=True))), whole, None


def _object(line: bytes) -> dict[str, Any] | None:
    """A broken line is none; landing will quarantine it."""
    try:
        value = json.loads(line)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


def _array(values: Sequence[Any]) -> pa.Array:
    try:
        return pa.array(values)
    except (pa.ArrowInvalid, pa.ArrowTypeError):  # several kinds of values in one column
        numbers = all(isinstance(v, (int, float)) and not isinstance(v, bool) for v in values if v is not None)
        if numbers:
            return pa.array(values, pa.float64())
        return pa.array([None if v is None else v if isinstance(v, str) else json.dumps(v) for v in values])


def _looked(path: Path, table: pa.Table, *, whole: bool, delimiter: str | None) -> Looked:
    fields: list[LookedField] = []
    left_out: list[str] = []
    for column, values in zip(table.column_names, table.columns, strict=True):
        kind = _kind(values)
        name = _name(column, {f.name for f in fields})
        if kind is None or not column:
            left_out.append(f"'{column}' ({values.type if column else 'no name'})")
            continue
        digits = (values.type.precision, values.type.scale) if kind == "Decimal" else None
        fields.append(LookedField(column=column, name=name, type=kind, nullable=values.null_count > 0, digits=digits))
    event_time = _event_time(fields, table)
    fields = [_noted(f, table[f.column]) if f.name == event_time else f for f in fields]
    return Looked(
        path=path,
        source=_source(path),
        fields=tuple(fields),
        event_time=event_time,
        key=next((f.name for f in fields if f.type == "str" and not f.nullable and _few(table[f.column])), None),
        rows=table.num_rows,
        whole=whole,
        delimiter=delimiter,
        left_out=tuple(left_out),
    )


def _kind(values: pa.ChunkedArray) -> str | None:
    """The Python type of a column, as text; None for one that a contract cannot hold."""
    kind = values.type
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return _kind_of_texts(values)
    if pa.types.is_list(kind):
        inner = _kind(pa.chunked_array([pa.array([], kind.value_type)]))
        return f"list[{inner}]" if inner else None
    for is_kind, name in (
        (pa.types.is_null, "str"),
        (pa.types.is_boolean, "bool"),
        (pa.types.is_integer, "int"),
        (pa.types.is_floating, "float"),
        (pa.types.is_date, "date"),
        (pa.types.is_timestamp, "datetime"),
        (pa.types.is_decimal, "Decimal"),
        (pa.types.is_binary, "bytes"),
    ):
        if is_kind(kind):
            return name
    return None


def _kind_of_texts(values: pa.ChunkedArray) -> str:
    some = values.drop_null()
    if len(some) == 0:
        return "str"
    return next((name for name, pattern in _PATTERNS if pc.all(pc.match_substring_regex(some, pattern)).as_py()), "str")


def _event_time(fields: Sequence[LookedField], table: pa.Table) -> str | None:
    """The best candidate: a time without nulls, then an epoch, then a date; names like `ordered_at` first."""

    def rank(field: LookedField) -> tuple[int, bool] | None:
        named = _TIME_NAMES.search(field.name.lower()) is not None
        if field.nullable:
            return None
        if field.type in {"datetime", "date"}:
            return (0 if field.type == "datetime" else 2, not named)
        return (1, False) if field.type == "int" and named and _epoch(table[field.column]) else None

    ranked = [(rank(field), field.name) for field in fields]
    return min(((r, at, name) for at, (r, name) in enumerate(ranked) if r is not None), default=(None, 0, None))[2]


def _epoch(values: pa.ChunkedArray) -> bool:
    low, high = pc.min_max(values.cast(pa.int64())).as_py().values()
    return any(_EPOCH[0] * unit <= low and high <= _EPOCH[1] * unit for unit in (1, 1000))


def _noted(field: LookedField, values: pa.ChunkedArray) -> LookedField:
    if field.type == "date":
        return replace(field, note="a date: midnight UTC")
    if pa.types.is_string(values.type):
        zoned = pc.all(pc.match_substring_regex(values, r"(Z|[-+][0-9]{2}:?[0-9]{2})$")).as_py()
    else:
        zoned = not pa.types.is_timestamp(values.type) or values.type.tz is not None
    note = 'without an offset, so read as UTC; else Annotated[EventTime, LocalTime("Europe/Berlin")]'
    return field if zoned or field.type == "int" else replace(field, note=note)


def _few(values: pa.ChunkedArray) -> bool:
    return bool(pa.types.is_string(values.type)) and 1 < pc.count_distinct(values).as_py() <= min(
        _KEYS, len(values) // 2
    )


def _name(column: str, taken: set[str]) -> str:
    """A Python name for a column that the contract may use."""
    name = (
        column
        if column.isidentifier() and not column.startswith("_")
        else re.sub(r"\W+", "_", column).strip("_").lower()
    )
    name = f"column_{name}" if not name or not name[0].isalpha() else name
    name = f"{name}_" if keyword.iskeyword(name) or name.startswith("model_") or name in _RESERVED else name
    while name in taken:
        name += "_"
    return name


_RESERVED = {"copy", "json", "dict", "schema", "construct", "validate", "date", "datetime"}


def _source(path: Path) -> str:
    stem = path.name.split(".")[0].lower()
    name = re.sub(r"[^a-z0-9]+", "_", stem).strip("_") or "data"
    name = f"data_{name}" if not name[0].isalpha() else name
    return f"{name}_rows" if keyword.iskeyword(name) or name in _TAKEN else name
