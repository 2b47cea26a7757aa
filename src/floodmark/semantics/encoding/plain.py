"""Plain data as the bytes that lie in state, and back: nothing these bytes name can run."""

from __future__ import annotations

import io
import pickle
from collections.abc import Mapping
from datetime import date, datetime
from decimal import Decimal
from types import MappingProxyType
from typing import Any
from zoneinfo import ZoneInfo

from floodmark.core.errors import StateError, UserCodeError

_ALLOWED = {
    ("decimal", "Decimal"),
    ("datetime", "datetime"),
    ("datetime", "date"),
    ("datetime", "timezone"),
    ("datetime", "timedelta"),
    ("builtins", "set"),
    ("zoneinfo", "ZoneInfo"),
}


_OFTEN = {Decimal, date, datetime}
"""Some of these, for which nothing needs to be asked."""


_BY_NAME = pickle.STACK_GLOBAL
"""The operation that names a class or function, the only one in this protocol; the byte may also be part of a number or text."""


class _Pickler(pickle.Pickler):
    """Refuses on the way in what the other way would refuse to read."""

    def reducer_override(self, obj: Any) -> Any:
        if type(obj) in _OFTEN:
            return NotImplemented
        kind = obj if isinstance(obj, type) else type(obj)
        if kind is ZoneInfo and obj is not ZoneInfo:
            return ZoneInfo, (obj.key,)
        if (kind.__module__, kind.__qualname__) not in _ALLOWED:
            fix = "Keep numbers, texts, times, lists, sets and dictionaries; of a numpy value take .item()."
            got = f"a {kind.__module__}.{kind.__qualname__}"
            raise UserCodeError("what a function keeps in its state", "plain data", got, fix, code="USER-003")
        return NotImplemented


class _ColumnsPickler(pickle.Pickler):
    """As ``_Pickler``, of values of columns, none of which needs to be refused: without a call of Python for each instant."""

    dispatch_table = MappingProxyType({ZoneInfo: lambda zone: (ZoneInfo, (zone.key,))})


class _Unpickler(pickle.Unpickler):
    """Plain data only: nothing a chunk names can run."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _ALLOWED:
            fix = "Run with the floodmark release that wrote it."
            raise StateError("state chunk", "plain data", f"{module}.{name}", fix, code="STATE-001")
        return super().find_class(module, name)


class Packer:
    """Packs values that are alike, as ``pack``: where one names a class, such as that of an instant, the next probably does.

    Args:
        of_columns: values are those of columns of tables, in lists, tuples and dictionaries.
    """

    __slots__ = ("named", "pickler")

    def __init__(self, *, of_columns: bool = False) -> None:
        self.named = False
        self.pickler = _ColumnsPickler if of_columns else _Pickler

    def __call__(self, value: Any) -> bytes:
        """As ``pack``."""
        if not self.named:
            try:
                data = pickle.dumps(value, protocol=5)
            except Exception:  # noqa: BLE001 - of an object of the user's; refused below
                data = _BY_NAME
            if _BY_NAME not in data:
                return data  # no class is named: all of it is plain
        out = io.BytesIO()
        self.pickler(out, protocol=5).dump(value)
        data = out.getvalue()
        self.named = _BY_NAME in data
        return data


def pack(value: Any) -> bytes:
    """Plain data (numbers, texts, times, lists, dictionaries) as bytes.

    Raises:
        UserCodeError: USER-003, anything else.
    """
    return Packer()(value)


def packed_bytes(entries: Mapping[bytes, tuple[int, int, bytes]]) -> bytes:
    """As ``pack``, of bytes and numbers only, among which no class can be."""
    return pickle.dumps(entries, protocol=5)


def unpack(data: bytes) -> Any:
    """What ``pack`` made of it."""
    return _Unpickler(io.BytesIO(data)).load()
