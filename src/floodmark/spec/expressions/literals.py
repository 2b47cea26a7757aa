"""Numbers and intervals as Spark reads them."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from datetime import date
from decimal import Decimal

from floodmark.spec.expressions.tokens import Unreadable
from floodmark.spec.expressions.tree import Literal

_DIGITS = 38
_LONGEST = 1000
_LARGEST = "A double holds numbers up to 1.8e308."
_BITS = {"Y": (8, "tinyint"), "S": (16, "smallint"), "L": (64, "bigint")}
_UNITS = ("YEAR", "MONTH", "DAY", "HOUR", "MINUTE", "SECOND")
_FINER = {"WEEK": "DAY", "MILLISECOND": "SECOND", "MICROSECOND": "SECOND"}


def number(text: str, *, negative: bool = False) -> Literal:
    """A number with its type: ``1`` int, ``1L`` bigint, ``1.5`` decimal(2,1), ``1e3`` and ``1D`` double.

    Raises:
        Unreadable: a number no type holds.
    """
    match = re.fullmatch(r"(.*?)(BD|[LSYDF])?", text.upper())
    assert match is not None
    digits, suffix = match[1], match[2] or ""
    signed = f"-{digits}" if negative else digits
    if len(digits) > _LONGEST:
        raise Unreadable(f"a number of {len(digits)} characters", "No type holds it; write 1e40 for a double.")
    if suffix in {"D", "F"}:
        if math.isinf(float(signed)):
            raise Unreadable(text, _LARGEST)
        return Literal(float(signed), "double" if suffix == "D" else "float")
    if suffix in _BITS:
        bits, kind = _BITS[suffix]
        if not digits.isdigit() or not -(1 << bits - 1) <= int(signed) < 1 << bits - 1:
            raise Unreadable(text, f"{kind} holds whole numbers of {bits} bits.")
        return Literal(int(signed), kind)
    if "E" in digits and suffix != "BD":
        if math.isinf(float(signed)):
            raise Unreadable(text, _LARGEST)
        return Literal(float(signed), "double")
    if digits.isdigit() and suffix != "BD":
        value = int(signed)
        if -(1 << 63) <= value < 1 << 63:
            return Literal(value, "int" if -(1 << 31) <= value < 1 << 31 else "bigint")
    return Literal(Decimal(signed), decimal_type(Decimal(signed)))


def decimal_type(value: Decimal) -> str:
    """The type of a decimal literal.

    Raises:
        Unreadable: more than 38 digits.
    """
    _, figures, exponent = value.as_tuple()
    assert isinstance(exponent, int)
    scale = max(0, -exponent)
    precision = max(len(figures) + max(0, exponent), scale)
    if precision > _DIGITS:
        raise Unreadable(
            f"a number of {precision} digits", f"A decimal holds {_DIGITS} digits; write 1e40 for a double."
        )
    return f"decimal({precision},{scale})"


_KNOWN_UNITS = "Units are YEAR, MONTH, WEEK, DAY, HOUR, MINUTE and SECOND."


def interval_type(units: Sequence[str]) -> str:
    """The type of an interval of these units.

    Raises:
        Unreadable: months beside days.
    """
    names = [_FINER.get(unit.upper().removesuffix("S"), unit.upper().removesuffix("S")) for unit in units]
    if unknown := [name for name in names if name not in _UNITS]:
        raise Unreadable(f"an interval of {unknown[0]!r}", _KNOWN_UNITS)
    if not names:
        raise Unreadable("an interval without a unit", _KNOWN_UNITS)
    order = sorted({_UNITS.index(name) for name in names})
    months = _UNITS.index("MONTH")
    if order[0] <= months < order[-1]:
        raise Unreadable("an interval of months and of days", "Add two intervals, one after the other.")
    first, last = _UNITS[order[0]].lower(), _UNITS[order[-1]].lower()
    return f"interval {first}" if first == last else f"interval {first} to {last}"


def check_day(text: str) -> None:
    """Refuse a DATE or TIMESTAMP of the clock, and one that begins with a day no calendar has.

    Raises:
        Unreadable: such as ``2020-02-30``, ``today``.
    """
    if text.strip().lower() in {"now", "today", "tomorrow", "yesterday"}:
        raise Unreadable(repr(text), "Write current_date() or current_timestamp(); a literal is the same every day.")
    if match := re.match(r"(\d{4})-(\d\d?)-(\d\d?)(?!\d)", text.strip()):
        try:
            date(*(int(part) for part in match.groups()))
        except ValueError as error:
            raise Unreadable(f"{text!r}: {error}", "Write a day that exists, as YYYY-MM-DD.") from None
