"""The types of columns and values: each once, with its forms in Spark SQL, Arrow, Python and DuckDB beside each other."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from decimal import Decimal
from functools import cache, cached_property
from typing import Any, NamedTuple

from floodmark.core.errors import DefinitionError, closest
from floodmark.core.sql import quoted

MAX_DIGITS = 38
"""Digits of the widest decimal."""


class Form(NamedTuple):
    """One scalar type in all its forms.

    Args:
        name: name in Spark SQL, as ``typeof`` and ``simpleString`` spell it.
        python: Python type of the values. If several scalars share a Python type, a contract's field gets the last of them in ``SCALARS``.
        arrow: Arrow's name of the type in which Spark exchanges the values, in a UTC session.
        duckdb: name in DuckDB's SQL.
        bits: width of an integer; 0 for other types.
        aliases: other names in Spark SQL.
        narrower: Arrow types whose every value is, unchanged, a value of this type.
        ordered: whether Spark, Arrow and Python order the values alike (floating-point values except NaN).
        column: whether a table may have a column of the type; if not, only parts of expressions have the type.
    """

    name: str
    python: type
    arrow: str
    duckdb: str
    bits: int = 0
    aliases: tuple[str, ...] = ()
    narrower: tuple[str, ...] = ()
    ordered: bool = True
    column: bool = True


_INSTANTS = ("timestamp[ms, tz=UTC]", "timestamp[s, tz=UTC]", "timestamp[us]", "timestamp[ms]", "timestamp[s]")

SCALARS = (
    Form("tinyint", int, "int8", "TINYINT", bits=8, aliases=("byte",)),
    Form("smallint", int, "int16", "SMALLINT", bits=16, aliases=("short",), narrower=("int8",)),
    Form("int", int, "int32", "INTEGER", bits=32, aliases=("integer",), narrower=("int16", "int8")),
    Form("bigint", int, "int64", "BIGINT", bits=64, aliases=("long",), narrower=("int32", "int16", "int8")),
    Form("float", float, "float", "FLOAT", aliases=("real",)),
    Form("double", float, "double", "DOUBLE", narrower=("float",)),
    Form("boolean", bool, "bool", "BOOLEAN"),
    Form("string", str, "string", "VARCHAR", narrower=("large_string",)),
    Form("binary", bytes, "binary", "BLOB", ordered=False),
    Form("date", date, "date32[day]", "DATE"),
    Form("timestamp_ntz", datetime, "timestamp[us]", "TIMESTAMP", column=False),
    Form("timestamp", datetime, "timestamp[us, tz=UTC]", "TIMESTAMPTZ", aliases=("timestamp_ltz",), narrower=_INSTANTS),
    Form("interval day to second", timedelta, "duration[us]", "INTERVAL", column=False),
    Form("interval year to month", object, "month_day_nano_interval", "INTERVAL", ordered=False, column=False),
    Form("void", type(None), "null", '"NULL"', ordered=False, column=False),
)
"""Every scalar type except decimals. Decimals, arrays, maps and structs have no ``Form``, only a ``Type``."""

_FORMS = {form.name: form for form in SCALARS}
_NAMES = {alias: form.name for form in SCALARS for alias in (form.name, *form.aliases)}
_PYTHON = {form.python: form.name for form in SCALARS if form.python is not object}
_MADE = ("decimal", "array", "map", "struct")


@dataclass(frozen=True)
class Type:
    """One type; its ``str`` is its name in Spark SQL.

    Args:
        name: name of a scalar in ``SCALARS``, or ``decimal``, ``array``, ``map``, ``struct``.
        precision: digits of a decimal.
        scale: digits of a decimal after the point.
        inner: type of an array's elements; of a map's keys and values; of a struct's fields.
        names: names of a struct's fields.
    """

    name: str
    precision: int = 0
    scale: int = 0
    inner: tuple[Type, ...] = ()
    names: tuple[str, ...] = ()

    def __str__(self) -> str:
        match self.name:
            case "decimal":
                return f"decimal({self.precision},{self.scale})"
            case "struct":
                fields = (f"{_named(n)}:{t}" for n, t in zip(self.names, self.inner, strict=True))
                return f"struct<{','.join(fields)}>"
            case "array" | "map":
                return f"{self.name}<{','.join(map(str, self.inner))}>"
            case _:
                return self.name

    @property
    def is_integer(self) -> bool:
        """``tinyint`` to ``bigint``."""
        return self.name in _FORMS and _FORMS[self.name].bits > 0

    @property
    def is_floating(self) -> bool:
        """``float`` or ``double``, the types with NaN and infinities."""
        return self.name in {"float", "double"}

    @property
    def is_decimal(self) -> bool:
        """A decimal of any precision."""
        return self.name == "decimal"

    @property
    def is_numeric(self) -> bool:
        """Integers, decimals, ``float`` and ``double``."""
        return self.is_integer or self.is_decimal or self.is_floating

    @property
    def is_exact(self) -> bool:
        """Integers and decimals, whose sums are exact."""
        return self.is_integer or self.is_decimal

    @property
    def is_orderable(self) -> bool:
        """Spark, Arrow and Python order the values alike, so that least and greatest value are defined."""
        return self.is_decimal or (self.name in _FORMS and _FORMS[self.name].ordered)

    @property
    def is_groupable(self) -> bool:
        """Values may be a key: not for arrays, maps, structs and types that no column has."""
        return self.is_decimal or (self.name in _FORMS and _FORMS[self.name].column)

    @property
    def is_column(self) -> bool:
        """A table may have a column of the type; if not, only parts of expressions have the type."""
        return _FORMS[self.name].column if self.name in _FORMS else all(t.is_column for t in self.inner)

    @property
    def bounds(self) -> tuple[int, int] | None:
        """(least, greatest) value of an integer type, or of a decimal in units of its last digit; None for other types."""
        if self.is_decimal:
            return 1 - 10**self.precision, 10**self.precision - 1
        if not self.is_integer:
            return None
        half = 1 << (_FORMS[self.name].bits - 1)
        return -half, half - 1

    @property
    def python(self) -> type:
        """The Python type of the values."""
        made: dict[str, type] = {"decimal": Decimal, "array": list, "map": dict, "struct": dict}
        return made[self.name] if self.name in made else _FORMS[self.name].python

    @property
    def duckdb(self) -> str:
        """The type in DuckDB's SQL."""
        inner = [t.duckdb for t in self.inner]
        match self.name:
            case "decimal":
                return f"DECIMAL({self.precision},{self.scale})"
            case "array":
                return f"{inner[0]}[]"
            case "map":
                return f"MAP({inner[0]}, {inner[1]})"
            case "struct":
                fields = zip(map(quoted, self.names), inner, strict=True)
                return f"STRUCT({', '.join(f'{n} {t}' for n, t in fields)})"
            case _:
                return _FORMS[self.name].duckdb

    @cached_property
    def arrow(self) -> Any:
        """The ``pyarrow.DataType``. All parts may be null, as in the tables."""
        import pyarrow as pa  # noqa: PLC0415 - definitions alone need no Arrow

        inner = [t.arrow for t in self.inner]
        match self.name:
            case "decimal":
                return pa.decimal128(self.precision, self.scale)
            case "array":
                return pa.list_(inner[0])
            case "map":
                return pa.map_(inner[0], inner[1])
            case "struct":
                return pa.struct(list(zip(self.names, inner, strict=True)))
            case _:
                return _arrow(_FORMS[self.name].arrow)

    @property
    def readable(self) -> frozenset[Any]:
        """The Arrow types whose every value is, unchanged, a value of this type; ``arrow`` is among them."""
        narrower = _FORMS[self.name].narrower if self.name in _FORMS else ()
        return frozenset({self.arrow, *map(_arrow, narrower)})

    def widens_to(self, other: Type) -> bool:
        """True if every value of this type is, unchanged, a value of ``other``."""
        if self == other:
            return True
        if self.is_integer and other.is_integer:
            return _FORMS[self.name].bits < _FORMS[other.name].bits
        return other.name == "double" and self.name in {"tinyint", "smallint", "int", "float"}


def decimal(precision: int, scale: int = 0) -> Type:
    """``decimal(precision,scale)``."""
    return Type("decimal", precision, scale)


def array(element: Type) -> Type:
    """``array<element>``."""
    return Type("array", inner=(element,))


def of_python(kind: object) -> Type | None:
    """(Python type of a contract's field) -> the field's type; None if no scalar column type matches. ``Decimal`` gives None: its digits are unknown."""
    name = _PYTHON.get(kind) if isinstance(kind, type) else None
    return Type(name) if name is not None and _FORMS[name].column else None


@cache
def known(text: str) -> Type | None:
    """(type in Spark SQL) -> the ``Type``; None if the text names no type."""
    try:
        parser = _Parser(_tokens(text))
        kind = parser.type()
    except _NoTypeError:
        return None
    return kind if parser.done else None


def parse(text: str, where: str = "type") -> Type:
    """(type in Spark SQL) -> the ``Type``: ``bigint``, ``LONG``, ``array<decimal(10, 2)>``, ``struct<a: int, b: string>``.

    Raises:
        DefinitionError: DEFINITION-136, the text names no type.
    """
    kind = known(text) if isinstance(text, str) else None
    if kind is None:
        near = closest(re.split(r"[(<\s]", str(text).lower())[0], (*_NAMES, *_MADE))
        fix = f"{near}For example bigint, double, string, timestamp, decimal(10,2) or array<bigint>."
        raise DefinitionError(where, "a type of Spark SQL", repr(text), fix, code="DEFINITION-136")
    return kind


class _NoTypeError(Exception):
    """The text names no type."""


_TOKEN = re.compile(r"\s*(?:`((?:[^`]|``)+)`|(\w+)|([<>(),:]))")
_PARTS = ("day", "hour", "minute", "second"), ("year", "month")
_TEXTS = ("varchar", "char")


def _tokens(text: str) -> list[str]:
    """Words, numbers and signs. A name in backticks is one token that begins with a backtick."""
    tokens, position = [], 0
    while match := _TOKEN.match(text, position):
        quoted, word, sign = match.groups()
        tokens.append(f"`{quoted.replace('``', '`')}" if quoted else word or sign)
        position = match.end()
    if text[position:].strip():
        raise _NoTypeError
    return tokens


class _Parser:
    """Types by recursive descent over ``_tokens``."""

    def __init__(self, tokens: list[str]) -> None:
        self.tokens, self.position = tokens, 0

    @property
    def done(self) -> bool:
        return self.position == len(self.tokens)

    def type(self) -> Type:
        name = self._next().lower()
        match name:
            case "array":
                return array(*self._inner(1))
            case "map":
                return Type("map", inner=self._inner(2))
            case "struct":
                return self._struct()
            case "decimal" | "dec" | "numeric":
                return self._decimal()
            case "interval":
                return self._interval()
        if name in _TEXTS:
            self._numbers()
            return Type("string")
        if name not in _NAMES:
            raise _NoTypeError
        return Type(_NAMES[name])

    def _next(self) -> str:
        if self.done:
            raise _NoTypeError
        self.position += 1
        return self.tokens[self.position - 1]

    def _is(self, *tokens: str) -> bool:
        """True if these tokens come next, in any case; then the position moves past the tokens."""
        ahead = [token.lower() for token in self.tokens[self.position : self.position + len(tokens)]]
        self.position += len(tokens) if ahead == list(tokens) else 0
        return ahead == list(tokens)

    def _want(self, token: str) -> None:
        if not self._is(token):
            raise _NoTypeError

    def _inner(self, number: int) -> tuple[Type, ...]:
        self._want("<")
        inner = [self.type()]
        while self._is(","):
            inner.append(self.type())
        self._want(">")
        if len(inner) != number:
            raise _NoTypeError
        return tuple(inner)

    def _struct(self) -> Type:
        self._want("<")
        names: list[str] = []
        inner: list[Type] = []
        while not names or self._is(","):
            names.append(self._next().removeprefix("`"))
            self._is(":")
            inner.append(self.type())
            self._is("not", "null")
        self._want(">")
        return Type("struct", inner=tuple(inner), names=tuple(names))

    def _numbers(self) -> list[int]:
        numbers: list[int] = []
        if self._is("("):
            while not numbers or self._is(","):
                number = self._next()
                if not number.isdecimal():
                    raise _NoTypeError
                numbers.append(int(number))
            self._want(")")
        return numbers

    def _decimal(self) -> Type:
        numbers = self._numbers() or [10]
        precision, scale = numbers[0], (numbers[1] if len(numbers) > 1 else 0)
        if numbers[2:] or not (0 < precision <= MAX_DIGITS and scale <= precision):
            raise _NoTypeError
        return decimal(precision, scale)

    def _interval(self) -> Type:
        first = self._next().lower()
        last = self._next().lower() if self._is("to") else first
        days, months = ({first, last} <= set(parts) for parts in _PARTS)
        if not days and not months:
            raise _NoTypeError
        return Type("interval day to second" if days else "interval year to month")


def _arrow(name: str) -> Any:
    """(Arrow's name of a scalar type) -> the ``pyarrow.DataType``."""
    import pyarrow as pa  # noqa: PLC0415 - definitions alone need no Arrow

    if name == "month_day_nano_interval":
        return pa.month_day_nano_interval()
    unit = re.fullmatch(r"timestamp\[(\w+), tz=UTC\]", name)
    return pa.timestamp(unit[1], "UTC") if unit else pa.type_for_alias(name)


def _named(name: str) -> str:
    """(name of a struct's field) -> the name in Spark SQL, in backticks unless it is a plain identifier."""
    return name if re.fullmatch(r"[A-Za-z_]\w*", name, re.ASCII) else "`" + name.replace("`", "``") + "`"


def is_same(value: Any, other: Any) -> bool:
    """Whether two values are one in a row: NaN is one, in lists and rows too."""
    if isinstance(value, (list, tuple)) and isinstance(other, (list, tuple)):
        return len(value) == len(other) and all(map(is_same, value, other))
    if isinstance(value, Mapping) and isinstance(other, Mapping):
        return value.keys() == other.keys() and all(is_same(value[key], other[key]) for key in value)
    return bool(value == other or (value != value and other != other))  # noqa: PLR0124 - NaN
