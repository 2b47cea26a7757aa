"""Texts of JSON as columns, parsed by Arrow: the fast way for contracts of plain fields where Arrow reads every text as pydantic does.

Texts that Arrow may read otherwise are left to the check of each row: lone surrogates, numbers that are not finite, objects over several lines, deep ones.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cache
from types import MappingProxyType
from typing import Any

import annotated_types
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import json
from pydantic_core import from_json

from floodmark.connectors.judging import columnar
from floodmark.connectors.judging.columnar import Check
from floodmark.spec.rows.contract import Contract, inputs_of, rescued_field, takes_unknown

NOTHING: Mapping[str, Sequence[Any]] = MappingProxyType({})
_SETTINGS = {"frozen", "title", "extra"}
"""Settings of a contract that change no value."""
_LOOKED_AT = 16
"""Texts that tell whether the times of a field are texts or numbers."""
_DEEP = 150
"""Brackets in a text; pydantic reads up to 200 levels."""
_LONG = 4_000
"""Digits in a text; pydantic reads whole numbers of up to 4,300."""
_MOST = 1 << 30
"""Bytes that Arrow takes as one block, whose size is a number of 32 bits."""
_NO_DIGITS = bytes(set(range(256)) - set(b"0123456789"))
_NOT_FINITE = re.compile(rb"[:,\[\s]-?(?:NaN|Inf)")
_LEAST, _BEHIND = 10**12, 10**13
"""Whole numbers that are read as milliseconds, whatever else a number may say."""
_TIME = r"^[12][0-9]{3}-[0-9]{2}-[0-9]{2}[T ][0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,6})?"
_WITH_OFFSET, _WITHOUT_OFFSET = _TIME + r"(Z|[+-][0-9]{2}:[0-9]{2})$", _TIME + "$"
_DAY = r"^[12][0-9]{3}-[0-9]{2}-[0-9]{2}$"
_PYTHON: Mapping[str, set[type]] = {"int64": {int}, "double": {int, float}, "bool": {bool}, "string": {str}}
"""Type in which Arrow reads a field of JSON -> types of values that JSON writes so."""
_INSTANT, _EXACT = pa.timestamp("us", tz="UTC"), 1 << 53


def rows_of(
    contract: type[Contract], texts: Sequence[bytes], added: Mapping[str, Sequence[Any]] = NOTHING
) -> pa.RecordBatch | None:
    """The texts as rows of the contract if each is one that keeps the contract; None if they have to be checked one by one.

    Args:
        contract: of the rows.
        texts: of the rows.
        added: as of ``JsonTexts``.
    """
    checks = _checks(contract)
    if checks is None or not texts or (lines := _lines(texts)) is None:
        return None
    wanted = _schema({name: check for name, check in checks.items() if name not in added}, texts)
    try:
        table = json.read_json(
            pa.BufferReader(lines),
            read_options=json.ReadOptions(use_threads=False, block_size=len(lines) + 1),
            parse_options=json.ParseOptions(explicit_schema=wanted, unexpected_field_behavior="ignore"),
        )
    except pa.ArrowInvalid:  # the check of each row says what is wrong
        return None
    if table.num_rows != len(texts):
        return None
    columns = []
    for check in checks.values():
        values = added.get(check.column_name)
        read = table[check.column_name].combine_chunks() if values is None else _array(check, values)
        column = None if read is None else _converted(check, read)
        if column is None or (column.null_count and check.name in _without_default(contract)):
            return None
        columns.append(column)
    return columnar.rows_of(contract, pa.RecordBatch.from_arrays(columns, names=list(checks)))


def _lines(texts: Sequence[bytes]) -> bytes | None:
    """The texts as lines; None if Arrow would read one of the texts otherwise than pydantic.

    As each text begins and ends with a brace and has no line break within, no value of JSON lies over two lines.
    """
    if sum(map(len, texts)) > _MOST:
        return None
    lines = b"\n".join(texts)
    if not (lines[:1] == b"{" and lines[-1:] == b"}"):
        return None
    if not lines.count(b"\n") == lines.count(b"}\n{") == len(texts) - 1:
        return None
    if b"\0" in lines or any(len(text) > _LONG and len(text.translate(None, _NO_DIGITS)) > _LONG for text in texts):
        return None
    brackets = lines.count(b"[") + lines.count(b"{")
    if brackets > len(texts) + _DEEP and max(text.count(b"[") + text.count(b"{") for text in texts) > _DEEP:
        return None
    if (b"Inf" in lines or b"NaN" in lines) and _NOT_FINITE.search(lines):
        return None
    if not lines.isascii():
        try:
            lines.decode()
        except UnicodeDecodeError:
            return None
    return lines


def _schema(checks: Mapping[str, Check], texts: Sequence[bytes]) -> pa.Schema:
    """The columns as Arrow reads them: times and dates as text, or times as numbers, as they are in the first texts."""
    rows = []
    for text in texts[:_LOOKED_AT]:
        try:
            rows.append(from_json(text))
        except ValueError:  # Arrow finds it, too
            break
    fields = []
    for name, check in checks.items():
        values = (row.get(name) for row in rows if isinstance(row, dict))
        fields.append((name, _read_type(check, next((value for value in values if value is not None), None))))
    return pa.schema(fields)


def _array(check: Check, values: Sequence[Any]) -> pa.Array | None:
    """Values of one field as Arrow would read them from JSON; None if it would not."""
    kinds = set(map(type, values)) - {type(None)}
    read = _read_type(check, next((value for value in values if value is not None), None))
    try:
        return pa.array(values, type=read) if kinds <= _PYTHON[str(read)] else None
    except (pa.ArrowInvalid, OverflowError):  # a whole number that the type does not hold exactly
        return None


def _read_type(check: Check, example: object) -> pa.DataType:
    """The type in which Arrow reads a field: times and dates as text, or times as numbers."""
    kind = check.type.arrow
    if pa.types.is_timestamp(kind):
        return pa.int64() if type(example) is int else pa.string()
    return pa.string() if pa.types.is_date(kind) else kind


def _converted(check: Check, column: pa.Array) -> pa.Array | None:
    """A column that Arrow has read, in the field's type; None if pydantic may read one of the values otherwise."""
    kind = check.type.arrow
    if pa.types.is_floating(kind):
        numbers = column.drop_null().to_numpy(zero_copy_only=False)
        whole_zero = (numbers == 0) & np.signbit(numbers)  # -0, which pydantic reads as 0 and Arrow as -0.0
        return column if np.isfinite(numbers).all() and not whole_zero.any() else None
    if pa.types.is_date(kind):
        return _cast(column, kind) if _match(column, _DAY) else None
    if not pa.types.is_timestamp(kind):
        return column
    if pa.types.is_integer(column.type):
        numbers = column.drop_null().to_numpy(zero_copy_only=False)
        if not ((numbers >= _LEAST) & (numbers < _BEHIND)).all():
            return None
        return pc.multiply(column, 1000).cast(_INSTANT)
    if _match(column, _WITH_OFFSET):
        return _cast(column, _INSTANT)
    local = _cast(column, pa.timestamp("us")) if _match(column, _WITHOUT_OFFSET) else None
    return None if local is None else local.cast(_INSTANT)


def _match(column: pa.Array, pattern: str) -> bool:
    return bool(pc.all(pc.match_substring_regex(column, pattern), min_count=0).as_py())


def _cast(column: pa.Array, kind: pa.DataType) -> pa.Array | None:
    try:
        return column.cast(kind)
    except pa.ArrowInvalid:  # a day or an hour that there is not
        return None


@cache
def _checks(contract: type[Contract]) -> Mapping[str, Check] | None:
    """Name in the source -> check of the field; None if Arrow cannot read one of the fields as pydantic does."""
    checks = columnar.checks_of(contract)
    if checks is None or takes_unknown(contract) or rescued_field(contract) is not None:
        return None
    if contract.model_config.keys() - _SETTINGS or any(not _is_plain(check) for check in checks):
        return None
    if any(not isinstance(field.validation_alias, str | None) for field in contract.model_fields.values()):
        return None
    named = {check.column_name: check for check in checks}
    return named if len(named) == len(checks) == len(inputs_of(contract)) else None


def _is_plain(check: Check) -> bool:
    """Whether Arrow reads values of the type and compares them with the field's bounds as Python does."""
    kind = check.type.arrow
    readable = (
        pa.types.is_int64(kind)
        or pa.types.is_float64(kind)
        or pa.types.is_boolean(kind)
        or pa.types.is_string(kind)
        or pa.types.is_date(kind)
        or kind == _INSTANT
    )
    return readable and all(_is_exact(rule, kind) for rule in check.rules)


def _is_exact(rule: Any, kind: pa.DataType) -> bool:
    bound = next(
        getattr(rule, name)
        for name, one in (
            ("ge", annotated_types.Ge),
            ("gt", annotated_types.Gt),
            ("le", annotated_types.Le),
            ("lt", annotated_types.Lt),
        )
        if isinstance(rule, one)
    )
    if pa.types.is_integer(kind):
        return type(bound) is int and -(1 << 63) <= bound < 1 << 63
    return type(bound) is float or (type(bound) is int and -_EXACT <= bound <= _EXACT)


@cache
def _without_default(contract: type[Contract]) -> frozenset[str]:
    """Fields of which a row without the field is not a row with null."""
    return frozenset(
        name for name, field in contract.model_fields.items() if field.is_required() or field.default is not None
    )
