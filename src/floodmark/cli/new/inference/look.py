"""Inspects files: their fields, the field with the event time, and an example of a key."""

from __future__ import annotations

import keyword
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from floodmark.cli.new.inference.fields import Fields, LookedField, Model, in_ascii
from floodmark.cli.new.inference.files import Found, find
from floodmark.cli.new.inference.sample import Dialect, Sample, read
from floodmark.cli.new.inference.times import FINER, TOLERATED, epoch_of, named_like_time
from floodmark.spec.rows.connector import Files
from floodmark.spec.values.annotations import TimeFormat

_NUMBERS = {"int", "float", "Decimal", "str"}
"""Types of fields that may hold times since 1970."""
_NUMBER = re.compile(r"[0-9]+(\.[0-9]+)?")
_KEYS = 50
"""Most different values of a text column that serves as an example key."""
_TAKEN = {"count", "operator", "settings", "workspace", "annotations"}
_IMPORTED = {
    "Contract",
    "Amount",
    "EventTime",
    "JsonText",
    "Stream",
    "TimeFormat",
    "Tumbling",
    "Annotated",
    "BaseModel",
    "Field",
    "AliasPath",
    "Decimal",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Looked:
    """The result of inspecting files.

    Args:
        files: the inspected files.
        source: a name for the source.
        fields: fields in the data's order.
        models: nested models, inner models first.
        event_time: name of the field that can be the event time; None if there is none.
        key: name of a text field with few different values; None if there is none.
        rows: number of rows inspected.
        whole: whether these are all rows.
        connector: the connector that reads the files.
        left_out: columns that a contract cannot hold, with reasons.
        times: (name, number of rows without a time) of other fields that hold times.
    """

    files: Found
    source: str
    fields: tuple[LookedField, ...]
    models: tuple[Model, ...]
    event_time: str | None
    key: str | None
    rows: int
    whole: bool
    connector: Files
    left_out: tuple[str, ...] = ()
    times: tuple[tuple[str, int], ...] = ()

    @property
    def contract(self) -> str:
        """The name of the contract."""
        return contract_name(self.source)


def contract_name(source: str) -> str:
    """(name of a source) -> the name of its contract: ``web_orders`` -> ``WebOrdersRow``."""
    return "".join(part.capitalize() for part in source.split("_")) + "Row"


def look(
    path: str | Path, time_formats: Sequence[str] = (), decimal: str | None = None, pattern: str | None = None
) -> Looked:
    """Inspect a file, or the files of a folder or glob.

    Args:
        path: the file, the folder or the glob.
        time_formats: formats of times, as of ``TimeFormat``, tried before all others.
        decimal: sign between whole and fraction, for columns of numbers that can be read with either.
        pattern: of a line of text, as of ``Files``.

    Raises:
        ConnectorError: CONNECTOR-080, no file; CONNECTOR-081, files of another kind; CONNECTOR-082, a file cannot be read; CONNECTOR-083, no
            rows; CONNECTOR-084, a single object that holds the rows; CONNECTOR-200, numbers that can be read in two ways;
            CONNECTOR-203, a pattern that matches no line.
        DefinitionError: DEFINITION-150, an invalid format of times; DEFINITION-201, an invalid pattern.
    """
    for form in time_formats:
        TimeFormat(form)
    if pattern is not None:
        Files("inbox", format="text", pattern=pattern)
    files = find(str(path), pattern)
    sample, source = read(files), _source(files.name)
    inference = Fields(
        time_formats=time_formats,
        decimal=decimal,
        between=sample.dialect.delimiter if sample.dialect else "",
        taken={*_IMPORTED, contract_name(source)},
    )
    fields = (
        inference.of_objects(sample.objects)
        if sample.columns is None
        else inference.of_table(sample.columns, typed=files.format == "parquet")
    )
    event_time, fields = _event_time(fields, sample)
    fields = [_noted(one) if one.name == event_time else replace(one, note=_alternative(one)) for one in fields]
    return Looked(
        files=files,
        source=source,
        fields=tuple(fields),
        models=tuple(inference.models),
        event_time=event_time,
        key=next((f.name for f in fields if f.type == "str" and not f.nullable and _few(sample, f)), None),
        rows=sample.rows,
        whole=sample.whole,
        connector=_connector(files, sample.dialect, inference),
        left_out=tuple(inference.left_out),
        times=tuple((f.name, f.absent + f.misfits) for f in fields if f.type == "datetime" and f.name != event_time),
    )


def _alternative(field: LookedField) -> str:
    return field.note if field.note.startswith(("or is it", "several currencies", FINER)) else ""


def _connector(files: Found, dialect: Dialect | None, inference: Fields) -> Files:
    dialect = dialect or Dialect()
    tabs = files.paths[0].name.removesuffix(".gz").lower().endswith(".tsv")
    return Files(
        files.glob,
        format=files.format if files.explicit_format else None,
        missing_values=tuple(sorted(inference.missing)) or None,
        delimiter="," if tabs and dialect.delimiter == "\t" else dialect.delimiter,
        decimal="," if inference.comma else ".",
        encoding=files.encoding,
        header=dialect.header,
        skip=dialect.skip,
        pattern=files.pattern,
    )


def _event_time(fields: list[LookedField], sample: Sample) -> tuple[str | None, list[LookedField]]:
    """(name of the event time, or None; the fields). Candidates are times, then numbers since 1970, then dates.

    Among equals, a field whose values differ comes first, then a field without gaps, then a field named like a time. If no column is a
    candidate, a field deeper in the documents can be the event time, and is added as the first field.
    """
    ranked = []
    for position, field in enumerate(fields):
        rank = _rank(field, sample)
        if rank is not None:
            ranked.append((rank, position))
    if ranked:
        _, position = min(ranked)
        chosen = fields[position]
        if chosen.type in _NUMBERS:
            chosen = _since_1970(chosen, _epoch(chosen, sample))
        return chosen.name, [chosen if n == position else field for n, field in enumerate(fields)]
    for field in fields:
        if (inner := _deeper(field, sample)) is not None:
            if inner.name in {f.name for f in fields}:
                inner = replace(inner, name=f"{field.name}_{inner.name}")
            return inner.name, [inner, *fields]
    return None, fields


def _rank(field: LookedField, sample: Sample) -> tuple[int, bool, bool, bool] | None:
    gaps = field.absent + field.misfits
    if gaps > TOLERATED * sample.rows:
        return None
    named = named_like_time(field.name)
    if field.type in {"datetime", "date"}:
        return (0 if field.type == "datetime" else 2, _same(field, sample), gaps > 0, not named)
    return (
        (1, _same(field, sample), gaps > 0, False)
        if field.type in _NUMBERS and named and _epoch(field, sample)
        else None
    )


def _same(field: LookedField, sample: Sample) -> bool:
    """True if several rows all have the same value: such a time is when the file was written, not when its rows happened."""
    return sample.rows > 1 and len(set(map(str, _values(field, sample)))) == 1


def _values(field: LookedField, sample: Sample) -> list[Any]:
    if sample.columns is None:
        return [value for one in sample.objects if (value := one.get(field.column)) is not None]
    return sample.columns[field.column].drop_null().to_pylist()  # type: ignore[no-any-return]


def _epoch(field: LookedField, sample: Sample) -> str | None:
    """The format of a column of numbers that are instants: ``epoch ms``; None if the numbers are not."""
    return _unit(_values(field, sample))


def _unit(values: Sequence[Any]) -> str | None:
    """The format in which the values are instants, all but a few; None if there is no such format."""
    numbers = [float(value) for value in values if _is_number(value)]
    return epoch_of(numbers, len(values)) if numbers else None


def _is_number(value: object) -> bool:
    return not isinstance(value, bool) and (
        isinstance(value, int | float) or (isinstance(value, str) and _NUMBER.fullmatch(value) is not None)
    )


def _since_1970(field: LookedField, form: str | None) -> LookedField:
    """The field of numbers as times since 1970."""
    note = FINER if form == "epoch ns" else field.note
    return replace(field, type="datetime", format=form, digits=None, amount=None, note=note)


def _deeper(field: LookedField, sample: Sample) -> LookedField | None:
    """A time one or two levels below a field, in nearly every document; None if there is none."""
    if sample.columns is not None or field.type in {"JsonText", "str"} or field.type.startswith(("list", "dict")):
        return None
    return _inside([one.get(field.column) for one in sample.objects], (field.column,))


def _inside(values: Sequence[object], path: tuple[str, ...]) -> LookedField | None:
    objects = [value for value in values if isinstance(value, Mapping)]
    if len(objects) < (1 - TOLERATED) * len(values):
        return None
    for field in Fields().of_objects(objects):
        if field.type in _NUMBERS and named_like_time(field.name):
            unit = _unit([value for row in objects if (value := row.get(field.column)) is not None])
            field = _since_1970(field, unit) if unit else field  # noqa: PLW2901 - the same field
        if field.type == "datetime" and field.absent + field.misfits + len(values) - len(objects) <= TOLERATED * len(
            values
        ):
            whole = (*path, field.column)
            return replace(field, column=".".join(whole), path=whole, absent=field.absent + len(values) - len(objects))
    for name in dict.fromkeys(name for row in objects for name in row) if len(path) == 1 else ():
        if (deeper := _inside([row.get(name) for row in objects], (*path, name))) is not None:
            return deeper
    return None


_NOTES = {
    "a date": "a date: midnight UTC",
    "without an offset": 'without an offset, so read as UTC; else Annotated[EventTime, LocalTime("Europe/Berlin")]',
}


def _noted(field: LookedField) -> LookedField:
    return replace(field, note=_NOTES.get(field.note, field.note))


def _few(sample: Sample, field: LookedField) -> bool:
    if sample.columns is None:
        different, size = len(set(_values(field, sample))), sample.rows
    else:
        values = sample.columns[field.column]
        if not pa.types.is_string(values.type):
            return False
        different, size = pc.count_distinct(values).as_py(), len(values)
    return bool(1 < different <= min(_KEYS, size // 2))


def _source(name: str) -> str:
    stem = in_ascii(name.split(".", maxsplit=1)[0]).lower()
    source = re.sub(r"[^a-z0-9]+", "_", stem).strip("_") or "data"
    source = f"data_{source}" if not source[0].isalpha() else source
    return f"{source}_rows" if keyword.iskeyword(source) or source in _TAKEN else source
