"""Numbers and intervals as Spark reads them."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from datetime import UTC, date, datetime
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


_DAY = r"[+-]?(?P<year>\d{4,7})(?:-(?P<month>\d\d?)(?:-(?P<day>\d\d?)(?P<behind>[ T].*)?)?)?"
_TIME = r"(?P<hour>\d\d?)(?::(?P<minute>\d\d?)(?::(?P<second>\d\d?)(?:\.\d*)?)?)?"
_ZONE = r"\s*(?:Z|[A-Z][\w+-]*(?:/[\w+-]+)*(?::\d\d)?|[+-](?P<offset>\d\d?)(?::?\d\d?){0,2})?"
_CLOCK = r"(?:now|today|tomorrow|yesterday)\b.*"
_LATEST = {"hour": 23, "minute": 59, "second": 59, "offset": 18}
_FIX = "Write a day that exists, as YYYY-MM-DD."
_WHOLE_DAY = r"\d{4}-\d\d-\d\d"
_WHOLE_TIME = rf"{_WHOLE_DAY}(?:[ T]\d\d(?::\d\d(?::\d\d(?:\.\d+)?)?)?(?:Z|[+-]\d\d(?::?\d\d)?)?)?"


def check_day(kind: str, text: str) -> None:
    """Refuse a DATE or TIMESTAMP that Spark cannot read, and words of the clock (``today``), as a literal is the same every day.

    Raises:
        Unreadable: such as ``2020-02-30``, ``foo``, ``today``, ``12:00``.
    """
    written = text.strip()
    if re.fullmatch(_CLOCK, written, re.IGNORECASE) or (kind != "DATE" and re.fullmatch(f"T?{_TIME}{_ZONE}", written)):
        raise Unreadable(repr(text), "Write current_date() or current_timestamp(); a literal is the same every day.")
    if written.lower() == "epoch":
        return
    day = re.fullmatch(_DAY, written, re.DOTALL)
    if day is None:
        raise Unreadable(f"{kind} {text!r}", _FIX)
    try:
        date(int(day["year"]) % 400 + 2000, int(day["month"] or 1), int(day["day"] or 1))
    except ValueError as error:
        raise Unreadable(f"{text!r}: {error}", _FIX) from None
    if kind != "DATE" and day["behind"] is not None:
        _check_time(kind, text, day["behind"][1:])


def moment(kind: str, text: str) -> date | datetime | None:
    """The value of a constant of type ``date`` or ``timestamp``; None of a text in another form than ISO 8601, which only an engine reads.

    Args:
        kind: of the constant.
        text: such as ``2026-01-01`` or ``2026-01-01 12:00:00.5+01:00``; a time without an offset is in UTC.
    """
    if not re.fullmatch(_WHOLE_DAY if kind == "date" else _WHOLE_TIME, text, re.ASCII):
        return None
    try:
        check_day(kind.upper(), text)
        value = datetime.fromisoformat(text)
    except (Unreadable, ValueError):
        return None
    if kind == "date":
        return value.date()
    return value if value.tzinfo else value.replace(tzinfo=UTC)


def _check_time(kind: str, text: str, written: str) -> None:
    time = re.fullmatch(_TIME + _ZONE, written)
    if time is None or any(int(time[part] or 0) > latest for part, latest in _LATEST.items()):
        raise Unreadable(f"{kind} {text!r}", "Write a time that exists, as YYYY-MM-DD hh:mm:ss.")
