"""Spark's types as text, and which type two of them have in common (ANSI mode).

``void`` is the type of NULL; an empty text is a type that is not known.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from floodmark.core.types import MAX_DIGITS, Type, known
from floodmark.core.types import SCALARS as FORMS
from floodmark.spec.expressions.tree import Literal, Node

_COLUMNS = [Type(form.name) for form in FORMS if form.column]
INTEGERS = tuple(kind.name for kind in _COLUMNS if kind.is_integer)
FLOATS = tuple(kind.name for kind in _COLUMNS if kind.is_floating)
SCALARS = frozenset(kind.name for kind in _COLUMNS)
_DIGITS = {"tinyint": 3, "smallint": 5, "int": 10, "bigint": 20}
_LEAST_SCALE = 6


def digits(kind: str) -> tuple[int, int] | None:
    """Precision and scale of a decimal; None for another type."""
    parsed = known(kind)
    return (parsed.precision, parsed.scale) if parsed is not None and parsed.is_decimal else None


def as_decimal(kind: str, node: Node | None = None) -> tuple[int, int] | None:
    """The decimal that holds every value of an integer type, or just this literal; None for other types."""
    if isinstance(node, Literal) and isinstance(node.value, int) and kind in INTEGERS:
        return len(str(abs(node.value))), 0
    return (_DIGITS[kind], 0) if kind in INTEGERS else digits(kind)


def is_number(kind: str) -> bool:
    """Integers, floats, decimals."""
    parsed = known(kind)
    return parsed is not None and parsed.is_numeric


def element(kind: str) -> str | None:
    """The type of an array's elements; None for another type."""
    parsed = known(kind)
    return str(parsed.inner[0]) if parsed is not None and parsed.name == "array" else None


def members(kind: str) -> list[tuple[str, str]]:
    """The fields of a struct (name, type), or a map's ``key`` and ``value``; empty for another type."""
    parsed = known(kind)
    if parsed is None or parsed.name not in {"map", "struct"}:
        return []
    names = parsed.names or ("key", "value")
    return [(name, str(inner)) for name, inner in zip(names, parsed.inner, strict=True)]


def bounded(precision: int, scale: int) -> str:
    """A decimal of at most 38 digits; the fraction is cut last."""
    return f"decimal({min(precision, MAX_DIGITS)},{min(scale, MAX_DIGITS)})"


def adjusted(precision: int, scale: int) -> str:
    """The type of decimal arithmetic: above 38 digits the fraction is cut, to 6 digits at least (``allowPrecisionLoss``)."""
    if precision <= MAX_DIGITS:
        return f"decimal({precision},{scale})"
    whole = precision - scale
    return f"decimal({MAX_DIGITS},{max(MAX_DIGITS - whole, min(scale, _LEAST_SCALE))})"


def arithmetic(operator: str, left: tuple[int, int], right: tuple[int, int]) -> str:
    """The decimal that ``left operator right`` has."""
    (p1, s1), (p2, s2) = left, right
    match operator:
        case "+" | "-":
            scale = max(s1, s2)
            return adjusted(max(p1 - s1, p2 - s2) + scale + 1, scale)
        case "*":
            return adjusted(p1 + p2 + 1, s1 + s2)
        case "/":
            scale = max(_LEAST_SCALE, s1 + p2 + 1)
            return adjusted(p1 - s1 + s2 + scale, scale)
        case _:
            scale = max(s1, s2)
            return adjusted(min(p1 - s1, p2 - s2) + scale, scale)


def common(left: str, right: str) -> str | None:
    """The type that both types are widened to in CASE, coalesce, IN and comparisons; None if they have none."""
    if right in {left, "void"}:
        return left
    if left == "void":
        return right
    if not left or not right:
        return ""
    if is_number(left) and is_number(right):
        return _common_number(left, right)
    if {left, right} == {"date", "timestamp"}:
        return "timestamp"
    if "string" in {left, right}:
        return _of_string(right if left == "string" else left)
    inner = element(left), element(right)
    if inner[0] is not None and inner[1] is not None:
        of = common(inner[0], inner[1])
        return of if of is None or not of else f"array<{of}>"
    if left.startswith(("struct", "map", "interval")) and right.startswith(("struct", "map", "interval")):
        return "" if re.split("[< ]", left, maxsplit=1)[0] == re.split("[< ]", right, maxsplit=1)[0] else None
    if {left, right} <= {*SCALARS} or "array" in {left[:5], right[:5]}:
        return None
    return ""


def _common_number(left: str, right: str) -> str:
    if left in INTEGERS and right in INTEGERS:
        return max(left, right, key=INTEGERS.index)
    if left in FLOATS or right in FLOATS:
        return "double"  # also of float and a whole number
    left_digits, right_digits = as_decimal(left), as_decimal(right)
    assert left_digits is not None
    assert right_digits is not None
    scale, whole = (
        max(left_digits[1], right_digits[1]),
        max(left_digits[0] - left_digits[1], right_digits[0] - right_digits[1]),
    )
    excess = max(0, whole + scale - MAX_DIGITS)
    return f"decimal({min(whole + scale, MAX_DIGITS)},{max(0, scale - excess)})"


def _of_string(other: str) -> str | None:
    """What a string becomes beside a value of another type."""
    if other in INTEGERS:
        return "bigint"
    if is_number(other):
        return "double"
    return other if other in SCALARS else None if element(other) is not None else ""


def common_of(kinds: Sequence[str]) -> str | None:
    """``common`` of any number."""
    result = "void"
    for kind in sorted(kinds, key=lambda k: k == "string") if kinds else ():
        widened = common(result, kind)
        if widened is None:
            return None
        result = widened
        if not result:
            return ""
    return result


def alike(kinds: Sequence[str]) -> str | None:
    """``common_of`` where no text is read as a value of another type: in ``greatest``, and of an array and its elements."""
    inner = {_innermost(kind) for kind in kinds} - {"void", ""}
    return None if "string" in inner and len(inner) > 1 else common_of(kinds)


def _innermost(kind: str) -> str:
    of = element(kind)
    return kind if of is None else _innermost(of)
