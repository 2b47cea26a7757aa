"""The check of one row against a contract without conversions that alter a value: ``"007"`` and ``true`` are no whole number.

Where a field has a validator of its own that runs before the check, and where a field or the contract declares ``strict=False``, values are
converted as pydantic does.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator, Mapping
from datetime import date
from decimal import Decimal
from enum import Enum
from functools import cache, partial
from typing import Any

from pydantic_core import PydanticCustomError, SchemaValidator, ValidationError

from floodmark.connectors.entries import Form
from floodmark.spec.rows.contract import Contract
from floodmark.spec.values.annotations import Digits

_UNREAD = {"metadata", "serialization", "config", "default", "expected", "keys_schema"}
"""Parts of a core schema that are no schemas of values; keys of maps are always text in JSON."""
_OWN = {"function-before", "function-wrap"}
"""Kinds of schema that are a function of the author's, which may return a text where a number is expected."""
_LARGEST_EXACT = 1 << 53
"""Whole numbers up to this are exact as a float."""
_FRACTION = re.compile(rb"[0-9]+\.[0-9]+(?:[eE][-+]?[0-9]+)?|[0-9]+[eE][-+]?[0-9]+")
"""Text of a number that JSON reads as a float."""
_SAFE = 15
"""Number of digits up to which a float holds every number."""
_DIGITS = re.compile(r"\s*[-+]?[0-9]+\.?[0-9]*\s*")
_DAY = re.compile(r"(19|20)[0-9]{2}((0[1-9]|1[0-2])((0[1-9]|[12][0-9]|3[01])([01][0-9]|2[0-3])?([0-5][0-9]){0,2})?)?")
"""A year, month or day without signs between them, perhaps with a time of day."""
_DAY_DIGITS = 8
_MILLISECONDS, _LONGER_THAN_DAY = 10**12, 10**14
"""The least numbers of 13 and of 15 digits. ``_DAY`` has 14 at most, and an even number of them, so that most times in milliseconds are told apart without a text."""
_NOT_FINITE = {"NaN", "Infinity", "-Infinity"}
"""Texts that stand for numbers JSON cannot write."""
_CONVERTED = "Field(strict=False) converts it"


@cache
def check_of(contract: type[Contract], form: Form) -> Callable[[Any], Any]:
    """The check of a row in ``form``: (JSON or dictionary) -> the row as an instance of the contract.

    The check raises ValidationError where the row breaks the contract.
    """
    contract.model_rebuild()
    slow = _built(contract, form, native=False)
    if form != "json":
        return slow.validate_python
    native, of_dictionaries = _built(contract, form, native=True), _built(contract, "python", native=False)
    decimals = any(node["type"] == "decimal" for node in _nodes(contract.__pydantic_core_schema__))

    def check(text: bytes) -> Any:
        if decimals and _longer(text) and (row := _with_digits(text)) is not None:
            return of_dictionaries.validate_python(row)
        try:
            return native.validate_json(text)
        except ValidationError:  # the native check is faster and refuses more, as 1.0 for a whole number
            return slow.validate_json(text)

    return check


def _longer(text: bytes) -> bool:
    """Whether a number in JSON has more digits than a float holds."""
    return any(len(number) > _SAFE and isinstance(exact(number.decode()), Digits) for number in _FRACTION.findall(text))


def _with_digits(text: bytes) -> object:
    """JSON as Python values, each number with all its digits; None if the text is no JSON."""
    try:
        return json.loads(text, parse_float=exact)
    except ValueError:
        return None


def exact(text: str) -> float | Digits:
    """(text of a number) -> the number as a float if that holds all its digits, else as ``Digits``."""
    number = float(text)
    if repr(number) == text:
        return number
    digits = Digits(text)
    return number if math.isfinite(number) and Decimal(repr(number)) == digits else digits


def _built(contract: type[Contract], form: Form, *, native: bool) -> SchemaValidator:
    schema = contract.__pydantic_core_schema__
    if contract.model_config.get("strict") is not False:
        schema = _strict(schema, form, native=native)
    return SchemaValidator(schema, _use_prebuilt=False)  # prebuilt validators of nested models are not strict


def _nodes(schema: Any) -> Iterator[Mapping[str, Any]]:
    """Every schema within a schema, and that schema."""
    if isinstance(schema, Mapping):
        if isinstance(schema.get("type"), str):
            yield schema
        for name, inner in schema.items():
            if name not in _UNREAD:
                yield from _nodes(inner)
    elif isinstance(schema, list | tuple):
        for inner in schema:
            yield from _nodes(inner)


def _strict(schema: Any, form: Form, *, native: bool) -> Any:
    """A schema whose scalars are read without conversions.

    Args:
        schema: as pydantic made it.
        form: of the values.
        native: whether pydantic's own strictness is used where it refuses all that is refused without it, and perhaps more.
    """
    if isinstance(schema, list | tuple):
        return type(schema)(_strict(inner, form, native=native) for inner in schema)
    if not isinstance(schema, Mapping):
        return schema
    kind = schema.get("type")
    if not isinstance(kind, str):  # names of fields
        return {name: _strict(inner, form, native=native) for name, inner in schema.items()}
    if kind in _OWN or schema.get("strict") is not None or schema.get("config", {}).get("strict") is False:
        return schema
    read = {n: inner if n in _UNREAD else _strict(inner, form, native=native) for n, inner in schema.items()}
    if kind in {"literal", "enum"} and form != "text":
        kinds = {type(value) for value in schema.get("expected") or [m.value for m in schema["members"]]}
        return read if kinds == {str} else _wrapped(read, partial(_one_of, frozenset(kinds)))
    if kind in _DATES:
        return _wrapped(read, _DATES[kind])
    if kind in _SCALARS and form != "text":
        return {**read, "strict": True} if native else _wrapped(read, _SCALARS[kind])
    return read


def _wrapped(schema: dict[str, Any], function: Callable[..., Any]) -> dict[str, Any]:
    return {"type": "function-wrap", "function": {"type": "no-info", "function": function}, "schema": schema}


def _refused(kind: str, expected: str, value: object) -> PydanticCustomError:
    got = {bool: "true or false", str: "text", int: "a number", float: "a number", Digits: "a number"}.get(
        type(value), type(value).__name__
    )
    message = "Input should be {expected}, not {kind} ({fix})"
    return PydanticCustomError(kind, message, {"expected": expected, "kind": got, "fix": _CONVERTED})


def _whole(value: Any, handler: Callable[[object], object]) -> object:
    number = handler(value)
    inexact = isinstance(value, float | Decimal) and not -_LARGEST_EXACT <= value <= _LARGEST_EXACT
    if isinstance(value, bool | str | bytes) or inexact:
        raise _refused("int_type", "a valid integer", value)
    return number


def _number(value: object, handler: Callable[[object], object]) -> object:
    number = handler(value)
    if isinstance(value, bool | bytes) or (isinstance(value, str) and value not in _NOT_FINITE):
        raise _refused("float_type", "a valid number", value)
    return number


def _flag(value: object, handler: Callable[[object], object]) -> object:
    flag = handler(value)
    if not isinstance(value, bool):
        raise _refused("bool_type", "a valid boolean", value)
    return flag


def _one_of(kinds: frozenset[type], value: object, handler: Callable[[object], object]) -> object:
    chosen = handler(value)
    if not isinstance(value, Enum) and type(value) not in kinds:
        raise _refused("literal_error", "of the type of the allowed values", value)
    return chosen


def _day(value: object, handler: Callable[[object], object]) -> object:
    day = handler(value)
    if not isinstance(value, date) and (not isinstance(value, str) or _DIGITS.fullmatch(value)):
        raise _undated("date_type", "a date in ISO 8601", value)
    return day


def _instant(value: object, handler: Callable[[object], object]) -> object:
    instant = handler(value)
    if type(value) is int and (_MILLISECONDS <= value < 10 * _MILLISECONDS or value >= _LONGER_THAN_DAY):
        return instant
    digits = value.strip() if isinstance(value, str) else str(value) if type(value) is int else ""
    if digits.isdigit() and _DAY.fullmatch(digits) and (isinstance(value, str) or len(digits) >= _DAY_DIGITS):
        raise _undated("datetime_type", "a time in ISO 8601, or a number since 1970", value)
    return instant


def _undated(kind: str, expected: str, value: object) -> PydanticCustomError:
    form = {4: "%Y", 6: "%Y%m", 8: "%Y%m%d", 14: "%Y%m%d%H%M%S"}.get(len(str(value).strip()), "%Y%m%d")
    form = form if "d" in form else "%Y%m%d"
    message = "Input should be {expected}; else TimeFormat says how it is written, as TimeFormat('{form}')"
    return PydanticCustomError(kind, message, {"expected": expected, "form": form})


_DATES: Mapping[str, Callable[..., Any]] = {"date": _day, "datetime": _instant}
_SCALARS: Mapping[str, Callable[..., Any]] = {"int": _whole, "float": _number, "bool": _flag}
