"""A total order of values of one type: the same in every process, in every Python, and whatever a library prints of them.

Null comes first; false before true; numbers by value, -0.0 before 0.0 and NaN last, as Spark SQL has it; texts by code point; lists by
their elements; rows by their columns, the first column first.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Mapping
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from functools import lru_cache
from typing import Any, cast

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def order_key(value: Any) -> tuple[Any, ...]:
    """A key to sort by: values of one type compare by value, those of different types by their type."""
    if value is None:
        return (-1,)
    known = _known(cast("Hashable", type(value)))
    if known is not None:
        return known[0], known[1](value)
    return len(_KEYS), type(value).__qualname__, str(value)


@lru_cache(100)
def _known(kind: Hashable) -> tuple[int, Callable[[Any], Any]] | None:
    """The rank of a type, and how its values compare."""
    return next(((rank, key) for rank, (types, key) in enumerate(_KEYS) if issubclass(cast("type", kind), types)), None)


def _number(value: Any) -> tuple[Any, ...]:
    if value != value or (isinstance(value, Decimal) and value.is_nan()):  # noqa: PLR0124 - which NaN alone is not
        return 1, 0, 0.0
    return 0, value, 1.0 if isinstance(value, int) else math.copysign(1.0, value)


def _moment(value: datetime) -> timedelta:
    return (value if value.tzinfo else value.replace(tzinfo=UTC)) - _EPOCH


_KEYS: tuple[tuple[type | tuple[type, ...], Callable[[Any], Any]], ...] = (
    (bool, int),
    ((int, float, Decimal), _number),
    (str, str),
    (bytes, bytes),
    (datetime, _moment),
    (date, date.toordinal),
    (time, time.isoformat),
    (timedelta, lambda value: value),
    (Mapping, lambda value: [(str(name), order_key(value[name])) for name in value]),
    ((list, tuple), lambda value: [order_key(one) for one in value]),
)
"""Types in their order, and how values of each compare; a subclass before its base."""
