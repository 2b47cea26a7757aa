"""Values as they are sorted: NaN behind all numbers, nulls first or last, ascending or descending."""

from __future__ import annotations

import math
from functools import total_ordering
from typing import Any


@total_ordering
class _Descending:
    """A value that is sorted the other way round."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value

    def __lt__(self, other: _Descending) -> bool:
        return bool(other.value < self.value)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Descending) and bool(self.value == other.value)

    __hash__ = None  # type: ignore[assignment]  # never a key


def ordered(value: Any, *, descending: bool, nulls_first: bool) -> tuple[int, Any]:
    """What a value is sorted by."""
    if value is None:
        return (0 if nulls_first else 2), 0
    if isinstance(value, float):
        plain: Any = (True, 0.0) if math.isnan(value) else (False, value + 0.0)
    else:
        plain = value
    return 1, _Descending(plain) if descending else plain
