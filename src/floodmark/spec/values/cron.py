"""Cron expressions, checked where they are written: five fields, each within its range, and a day that exists in one of the months."""

from __future__ import annotations

import re
from calendar import monthrange
from datetime import UTC, datetime

from floodmark.core.errors import DefinitionError

_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_DAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
_FIELDS: tuple[tuple[str, int, int, tuple[str, ...]], ...] = (
    ("minute", 0, 59, ()),
    ("hour", 0, 23, ()),
    ("day of month", 1, 31, ()),
    ("month", 1, 12, _MONTHS),
    ("day of week", 0, 7, _DAYS),
)
_LEAP = 2024
_PART = re.compile(r"(\*|(?P<low>\w+)(-(?P<high>\w+))?)(/(?P<step>\d+))?")


def check_cron(text: str, where: str, example: str) -> None:
    """Refuse a text that is no cron expression of five fields.

    Args:
        text: ``"0 3 * * sun"``: lists, ranges, steps, names of months and days.
        where: of the error: where the text is written.
        example: a valid expression as the user would write it, for the error.

    Raises:
        DefinitionError: DEFINITION-098, another number of fields, a field outside its range, or a day that none of its months has.
    """
    fields = text.split() if isinstance(text, str) else []
    wrong = "" if len(fields) == len(_FIELDS) else repr(text)
    if not wrong:
        field_values = _values(text)
        for field_text, numbers, (name, *_) in zip(fields, field_values, _FIELDS, strict=True):
            if not numbers:
                wrong = wrong or f"{text!r}, whose {name} is {field_text!r}"
        if not wrong and min(field_values[2]) > max(monthrange(_LEAP, month)[1] for month in field_values[3]):
            wrong = f"{text!r}, a day that no month of it has"
    if wrong:
        fix = f"Minute, hour, day of month, month, day of week: {example} is three at night on Sundays."
        raise DefinitionError(where, "a cron expression", wrong, fix, code="DEFINITION-098")


def fires(text: str, since: float, until: float) -> bool:
    """True if a cron expression, in UTC, names a minute after one time and not after another, s since 1970.

    A day fits if its day of the month or of the week does, where both are restricted, as everywhere with cron.
    """
    minutes, hours, days, months, weekdays = _values(text)
    first, last = int(since // 60) + 1, int(until // 60)
    moment = first
    while moment <= last:
        at = datetime.fromtimestamp(moment * 60, UTC)
        until_midnight = 24 * 60 - at.hour * 60 - at.minute
        if at.month in months and _is_day(text, at, days, weekdays):
            begin = at.hour * 60 + at.minute
            named = (hour * 60 + minute for hour in sorted(hours) for minute in sorted(minutes))
            following = next((one for one in named if one >= begin), None)
            if following is not None:
                return moment + following - begin <= last
        moment += until_midnight
    return False


def _is_day(text: str, at: datetime, days: set[int], weekdays: set[int]) -> bool:
    _, _, of_month, _, of_week = text.split()
    by_month, by_week = at.day in days, (at.isoweekday() % 7) in {one % 7 for one in weekdays}
    return by_month or by_week if "*" not in {of_month[0], of_week[0]} else by_month and by_week


def _values(text: str) -> list[set[int]]:
    """The numbers of each field; empty for a field with an invalid part."""
    every = []
    for field_text, (_, low, high, names) in zip(text.split(), _FIELDS, strict=True):
        parts = [_numbers(part, low, high, names) for part in field_text.lower().split(",")]
        every.append(set().union(*parts) if all(parts) else set())
    return every


def _numbers(part: str, low: int, high: int, names: tuple[str, ...]) -> set[int]:
    """The numbers of a part of a field, empty if the part is invalid. A range whose end is before its begin wraps around."""
    match = _PART.fullmatch(part)
    if match is None or match["step"] == "0":
        return set()
    if match["low"] is None:
        first, last = low, high
    else:
        begin = _number(match["low"], low, names)
        end = begin if match["high"] is None else _number(match["high"], low, names)
        if begin is None or end is None or not (low <= begin <= high and low <= end <= high):
            return set()
        first, last = begin, high if match["high"] is None and match["step"] else end
    every = range(first, last + 1) if first <= last else [*range(first, high + 1), *range(low, last + 1)]
    return set(every[:: int(match["step"] or 1)])


def _number(text: str, low: int, names: tuple[str, ...]) -> int | None:
    if text in names:
        return names.index(text) + low
    return int(text) if text.isdecimal() else None
