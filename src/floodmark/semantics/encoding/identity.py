"""The bytes that name a key in state: equal keys have equal bytes, in every process, Python release and time zone.

``repr`` does not do: it writes a text by the Unicode tables of the Python at work, a point in time by the class of its time zone, and a
decimal by its trailing zeros.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001 - aware ones lose their zone first
_MICROSECOND = timedelta(microseconds=1)


def identity(key: Sequence[Any]) -> bytes:
    """A key's values, as plain Python has those of Spark SQL types, as bytes.

    Numbers are named by value within their type (there is one NaN and one zero; 1.0 and 1.00 are one decimal), points in time by the
    instant. Values of two types are two: a key column has one type.

    Raises:
        TypeError: a value that no key column holds.
    """
    return b"".join(map(_value, key))


def identities(column: Sequence[Any]) -> list[bytes]:
    """As ``identity``, of keys of one value each."""
    kinds = set(map(type, column))
    if kinds == {int}:
        return [f"i{len(text)}:{text}".encode() for text in map(str, column)]
    if kinds == {str}:
        return [_sized(b"s", text.encode("utf-8", "surrogatepass")) for text in column]
    return [identity((value,)) for value in column]


def key_of(name: bytes) -> tuple[Any, ...]:
    """A key with that identity: its values are equal to those of each key with it."""
    values, offset = [], 0
    while offset < len(name):
        value, offset = _read(name, offset)
        values.append(value)
    return tuple(values)


def _read(name: bytes, offset: int) -> tuple[Any, int]:
    """The value at an offset, and the offset behind it."""
    kind = name[offset : offset + 1]
    if kind in _SINGLE:
        return _SINGLE[kind], offset + 1
    if kind == b"d":
        return struct.unpack_from(">d", name, offset + 1)[0], offset + 9
    colon = name.index(b":", offset)
    end = colon + 1 + int(name[offset + 1 : colon])
    return _READERS[kind](name[colon + 1 : end]), end


def _value(value: Any) -> bytes:
    if type(value) is str:
        return _sized(b"s", value.encode("utf-8", "surrogatepass"))
    if type(value) is int:
        return _sized(b"i", b"%d" % value)
    return _other(value)


def _other(value: Any) -> bytes:
    match value:
        case None:
            return b"n"
        case bool():
            return b"t" if value else b"f"
        case float():
            return b"d" + struct.pack(">d", math.nan if math.isnan(value) else value + 0.0)  # -0.0 + 0.0 is 0.0
        case Decimal():
            return _sized(b"D", _decimal(value))
        case datetime():
            return _datetime(value)
        case date():
            return _sized(b"a", b"%d" % value.toordinal())
        case timedelta():
            return _sized(b"p", b"%d" % (value // _MICROSECOND))
        case bytes() | bytearray():
            return _sized(b"b", bytes(value))
        case list() | tuple():
            return _sized(b"l", identity(value))
    msg = f"a key of {type(value).__name__}"
    raise TypeError(msg)


def _sized(kind: bytes, data: bytes) -> bytes:
    """With its length in front: what one value holds cannot be taken for the next."""
    return b"%b%d:%b" % (kind, len(data), data)


def _datetime(value: datetime) -> bytes:
    offset = value.utcoffset()
    naive = value.replace(tzinfo=None) if offset is None else value.replace(tzinfo=None) - offset
    return _sized(b"N" if offset is None else b"T", b"%d" % ((naive - _EPOCH) // _MICROSECOND))


def _decimal(value: Decimal) -> bytes:
    """Sign, digits and exponent without trailing zeros, whatever the precision of the context."""
    sign, digits, exponent = value.as_tuple()
    if not isinstance(exponent, int):
        return str(exponent).encode()
    text = "".join(map(str, digits))
    short = text.rstrip("0")
    if not short:
        return b"0"
    return f"{'-' if sign else ''}{short.lstrip('0')}e{exponent + len(text) - len(short)}".encode()


_SINGLE = {b"n": None, b"t": True, b"f": False}
_READERS: dict[bytes, Callable[[bytes], Any]] = {
    b"s": lambda data: data.decode("utf-8", "surrogatepass"),
    b"i": int,
    b"D": lambda data: Decimal(data.decode()),
    b"N": lambda data: _EPOCH + int(data) * _MICROSECOND,
    b"T": lambda data: _EPOCH.replace(tzinfo=UTC) + int(data) * _MICROSECOND,
    b"a": lambda data: date.fromordinal(int(data)),
    b"p": lambda data: int(data) * _MICROSECOND,
    b"b": bytes,
    b"l": lambda data: list(key_of(data)),
}
