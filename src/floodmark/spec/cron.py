"""Cron expressions, checked where they are written: five fields, each within its range."""

from __future__ import annotations

import re

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
_PART = re.compile(r"(\*|(?P<low>\w+)(-(?P<high>\w+))?)(/(?P<step>\d+))?")


def check_cron(text: str, where: str, example: str) -> None:
    """Refuse what is no cron expression of five fields.

    Args:
        text: ``"0 3 * * sun"``: lists, ranges, steps, names of months and days.
        where: it is written.
        example: of a right one, as the user would write it.

    Raises:
        DefinitionError: DEFINITION-098, it has another number of fields, or a field is outside its range.
    """
    fields = text.split() if isinstance(text, str) else []
    wrong = "" if len(fields) == len(_FIELDS) else repr(text)
    if not wrong:
        for given, (name, low, high, names) in zip(fields, _FIELDS, strict=True):
            if not all(_fits(part, low, high, names) for part in given.lower().split(",")):
                wrong = f"{text!r}, whose {name} is {given!r}"
                break
    if wrong:
        fix = f"Minute, hour, day of month, month, day of week: {example} is three at night on Sundays."
        raise DefinitionError(where, "a cron expression", wrong, fix, code="DEFINITION-098")


def _fits(part: str, low: int, high: int, names: tuple[str, ...]) -> bool:
    found = _PART.fullmatch(part)
    if found is None or found["step"] == "0":
        return False
    ends = [_number(one, low, names) for one in (found["low"], found["high"]) if one is not None]
    return all(end is not None and low <= end <= high for end in ends)


def _number(text: str, low: int, names: tuple[str, ...]) -> int | None:
    if text in names:
        return names.index(text) + low
    return int(text) if text.isdecimal() else None
