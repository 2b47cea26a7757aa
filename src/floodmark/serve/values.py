"""Values of key columns: as texts of a URL or JSON, and in the order in which the copies hold them."""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal, localcontext
from typing import Any

import pyarrow as pa

from floodmark.core.errors import shown
from floodmark.core.types import Type, parse
from floodmark.semantics.encoding.dates import day_of, instant_of
from floodmark.serve.refusals import Malformed
from floodmark.spec.values.schema import Column

Ordered = tuple[Any, ...]
"""A value as it is compared: null first, NaN last, -0.0 as 0.0; instants in microseconds, dates in days."""

NULL: Ordered = (-1,)
NAN: Ordered = (1,)
HIGHEST: Ordered = (2,)
"""Greater than every value."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_WHOLE = re.compile(r"[+-]?[0-9]{1,40}")
_DECIMAL = re.compile(r"[+-]?([0-9]{1,80}(\.[0-9]{0,80})?|\.[0-9]{1,80})")
_NUMBER = re.compile(r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]{1,6})?|nan|[+-]?inf(inity)?", re.IGNORECASE)


def ordered(value: Any) -> Ordered:
    """(value as ``stored`` has it) -> the value as it is compared."""
    if value is None:
        return NULL
    if type(value) is float:
        return NAN if value != value else (0, value + 0.0)  # noqa: PLR0124 - NaN
    return 0, value


def python_value(column: KeyColumn, value: Ordered) -> Any:
    """(key column, value as it is compared) -> the value as Python has it."""
    if value == NULL:
        return None
    if value == NAN:
        return math.nan
    if column.type.name == "timestamp":
        return _EPOCH + value[1] * _MICROSECOND
    return date(1970, 1, 1) + timedelta(days=value[1]) if column.type.name == "date" else value[1]


def plain_key(values: Sequence[Any]) -> tuple[Ordered, ...]:
    """The values of a key as Python has them -> as they are compared."""
    return tuple(ordered(_as_stored(value)) for value in values)


def _as_stored(value: Any) -> Any:
    if isinstance(value, datetime):
        return ((value if value.tzinfo else value.replace(tzinfo=UTC)) - _EPOCH) // _MICROSECOND
    return (value - date(1970, 1, 1)).days if isinstance(value, date) else value


def stored(column: pa.Array) -> pa.Array:
    """A key column with instants as microseconds and dates as days: Python's own have less range than tables."""
    if pa.types.is_timestamp(column.type):
        return column.view(pa.int64())
    if pa.types.is_date32(column.type):
        return column.view(pa.int32())
    return column


@dataclass(frozen=True, slots=True)
class KeyColumn:
    """A column by which results are asked for.

    Args:
        name: of the column.
        type: of the values.
        read: text -> value as ``stored`` has it. Raises ValueError, with what is expected, for another text.
    """

    name: str
    type: Type
    read: Callable[[str], Any]

    def parsed(self, text: object) -> Ordered:
        """The value that a text of a URL or a value of JSON names.

        Raises:
            Malformed: SERVE-002, no value of the column's type.
        """
        if isinstance(text, bool):
            text = "true" if text else "false"
        elif isinstance(text, int | float):
            text = repr(text)
        try:
            if not isinstance(text, str):
                msg = "a text or a number"
                raise ValueError(msg)  # noqa: TRY301, TRY004 - as of the readers
            return ordered(self.read(text))
        except ValueError as error:
            fix = f"Write a value of {self.type}, as answers do; for a null: null={self.name}."
            raise Malformed(
                f"key column {self.name} {self.type}", str(error), shown(text), fix, code="SERVE-002"
            ) from error


def key_columns(columns: Sequence[Column]) -> tuple[KeyColumn, ...] | None:
    """The columns as they are asked for; None if one of them has values that no text names, such as arrays."""
    made = [(column.name, parse(column.type)) for column in columns]
    readers = [_reader(kind) for _, kind in made]
    if any(reader is None for reader in readers):
        return None
    return tuple(KeyColumn(name, kind, read) for (name, kind), read in zip(made, readers, strict=True) if read)


def _reader(kind: Type) -> Callable[[str], Any] | None:
    if kind.is_integer:
        bits = {"tinyint": 8, "smallint": 16, "int": 32, "bigint": 64}[kind.name]
        return lambda text: _integer(text, bits)
    if kind.name == "decimal":
        return lambda text: _decimal(text, kind.precision, kind.scale)
    return _READERS.get(kind.name)


def _integer(text: str, bits: int) -> int:
    limit = 1 << (bits - 1)
    if not _WHOLE.fullmatch(text) or not -limit <= int(text) < limit:
        msg = f"a whole number from {-limit} to {limit - 1}"
        raise ValueError(msg)
    return int(text)


def _decimal(text: str, precision: int, scale: int) -> Decimal:
    msg = f"a number of at most {precision - scale} digits before the point and {scale} behind it"
    if not _DECIMAL.fullmatch(text):
        raise ValueError(msg)
    with localcontext() as context:
        context.prec = 200
        value = Decimal(text)
        rounded = value.quantize(Decimal(1).scaleb(-scale))
    if rounded != value or len(rounded.as_tuple().digits) > precision:
        raise ValueError(msg)
    return rounded or Decimal(0)  # no negative zero; a sum would round to the digits of the context


def _double(text: str) -> float:
    if not _NUMBER.fullmatch(text):
        msg = "a number, NaN, inf or -inf"
        raise ValueError(msg)
    value = float(text)
    if math.isinf(value) and "inf" not in text.lower():
        msg = "a number within the range of the type"
        raise ValueError(msg)
    return value


def _single(text: str) -> float:
    value = _double(text)
    try:
        single = float(struct.unpack("f", struct.pack("f", value))[0])
    except OverflowError:
        single = math.inf
    if math.isinf(single) and not math.isinf(value):
        msg = "a number within the range of the type"
        raise ValueError(msg)
    return single


def _boolean(text: str) -> bool:
    if text not in {"true", "false"}:
        msg = "true or false"
        raise ValueError(msg)
    return text == "true"


def _text(text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError:
        msg = "a text of UTF-8"
        raise ValueError(msg) from None
    return text


def _binary(text: str) -> bytes:
    try:
        return bytes.fromhex(text)
    except ValueError:
        msg = "bytes in hexadecimal digits"
        raise ValueError(msg) from None


def _date(text: str) -> int:
    if (day := day_of(text)) is not None and abs(day) < 1 << 31:
        return day
    try:
        return (date.fromisoformat(text) - date(1970, 1, 1)).days
    except ValueError:
        msg = "a date, 2025-01-31"
        raise ValueError(msg) from None


def _timestamp(text: str) -> int:
    msg = "an instant with its offset, 2025-01-31T09:00:00Z"
    if (instant := instant_of(text)) is not None:
        return instant
    try:
        value = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(msg) from None
    if value.tzinfo is None:
        raise ValueError(msg)
    return (value - _EPOCH) // _MICROSECOND


_READERS: Mapping[str, Callable[[str], Any]] = {
    "double": _double,
    "float": _single,
    "boolean": _boolean,
    "string": _text,
    "binary": _binary,
    "date": _date,
    "timestamp": _timestamp,
}
