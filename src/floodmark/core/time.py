"""Instants, spans and intervals: integer milliseconds, UTC, half-open."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from fractions import Fraction
from functools import cache
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from floodmark.core.errors import DefinitionError, LifecycleError

NEVER = -62_135_596_800_000
"""0001-01-01: the watermark before any row."""
END = 253_402_300_799_999
"""9999-12-31T23:59:59.999: the watermark at the end of input."""

_UNITS = {"ms": 1, "millisecond": 1, "s": 1_000, "second": 1_000, "m": 60_000, "min": 60_000, "minute": 60_000}
_UNITS |= {"h": 3_600_000, "hour": 3_600_000, "d": 86_400_000, "day": 86_400_000, "w": 604_800_000, "week": 604_800_000}
_PART = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([a-zA-Z]+)")
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def span(text: str | timedelta, where: str = "duration") -> int:
    """(text or timedelta) -> a length of time in milliseconds.

    Args:
        text: ``"1 hour"``, ``"90 seconds"``, ``"1h 30m"``, ``"500ms"``, or a ``timedelta``; may be negative.
        where: the setting, for the error.

    Raises:
        DefinitionError: DEFINITION-001, not a duration, or finer than a millisecond.
    """
    expected = 'a duration such as "1 hour", "90 seconds" or "500ms"'
    if isinstance(text, timedelta):
        micros = text // timedelta(microseconds=1)
        if micros % 1000 == 0:
            return micros // 1000
    elif isinstance(text, str):
        sign, unsigned = (-1, text.strip()[1:]) if text.strip().startswith("-") else (1, text)
        total, position = Fraction(0), 0
        while match := _PART.match(unsigned, position):
            unit = match[2].lower()
            unit = unit if unit in _UNITS else unit.removesuffix("s")
            if unit not in _UNITS:
                break
            total, position = total + Fraction(match[1]) * _UNITS[unit], match.end()
        if position and not unsigned[position:].strip() and total.denominator == 1:
            return sign * int(total)
    fix = "Units are ms, seconds, minutes, hours, days and weeks; months and years are Calendar windows."
    raise DefinitionError(where, expected, repr(text), fix, code="DEFINITION-001")


def describe_span(milliseconds: int) -> str:
    """``3600000`` -> ``1 hour``: a length of time in ms as text, exact, largest units first."""
    if milliseconds == 0:
        return "0 s"
    parts, remaining = [], abs(milliseconds)
    for name, size in (("day", 86_400_000), ("hour", 3_600_000), ("minute", 60_000), ("second", 1000), ("ms", 1)):
        count, remaining = divmod(remaining, size)
        if count:
            parts.append(f"{count} {name}{'s' if count > 1 and name != 'ms' else ''}")
    return ("-" if milliseconds < 0 else "") + " ".join(parts)


def describe_roughly(seconds: float) -> str:
    """``12345.6`` -> ``3 h 25 min``: a length of time as short text, its two largest units."""
    parts, remaining = list[str](), max(0, round(seconds))
    for name, size in (("d", 86_400), ("h", 3600), ("min", 60), ("s", 1)):
        count, remaining = divmod(remaining, size)
        if count or parts:
            parts.append(f"{count} {name}" if count else "")
    return " ".join(part for part in parts[:2] if part) or "0 s"


@cache
def zone(name: str, where: str = "time zone") -> ZoneInfo:
    """(name, where) -> the IANA time zone of that name.

    Raises:
        DefinitionError: DEFINITION-002, there is no such time zone.
    """
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError, TypeError) as error:
        fix = 'Use an IANA name such as "America/New_York" or "UTC".'
        raise DefinitionError(where, "an IANA time zone", repr(name), fix, code="DEFINITION-002") from error


def to_ms(moment: datetime) -> int:
    """Milliseconds since 1970 UTC, floored; a naive datetime is UTC."""
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return (moment - EPOCH) // timedelta(milliseconds=1)


def from_ms(milliseconds: int) -> datetime:
    """The aware UTC datetime of an instant between NEVER and END."""
    return EPOCH + timedelta(milliseconds=milliseconds)


def describe(milliseconds: int) -> str:
    """An instant for people: ISO 8601, or words for the two ends of time."""
    if milliseconds <= NEVER:
        return "the beginning (no row yet)"
    if milliseconds >= END:
        return "the end of input"
    return iso(milliseconds)


def iso(milliseconds: int) -> str:
    """An instant between NEVER and END in ISO 8601, UTC."""
    moment = from_ms(milliseconds)
    text = f"{moment.year:04d}-{moment:%m-%dT%H:%M:%S}"
    return f"{text}.{milliseconds % 1000:03d}Z" if milliseconds % 1000 else f"{text}Z"


def parse_instant(text: str | date | datetime | int, where: str, timezone: str = "UTC") -> int:
    """(date, or date and time, as the user writes it) -> the instant in ms UTC. An integer is such an instant already.

    Args:
        text: ISO 8601 if a string.
        where: the option or setting, for the error.
        timezone: of a date or time without an offset.

    Raises:
        LifecycleError: LIFECYCLE-002, a string that is no ISO 8601 date or time.
        DefinitionError: DEFINITION-002, no such time zone.
    """
    if isinstance(text, int):
        return text
    try:
        moment = datetime.fromisoformat(text) if isinstance(text, str) else text
    except ValueError:
        fix = 'Write a date "2013-03-01" or a time "2013-03-01T06:00:00" (optionally with an offset).'
        raise LifecycleError(where, "an ISO 8601 date or time", repr(text), fix, code="LIFECYCLE-002") from None
    if not isinstance(moment, datetime):
        moment = datetime(moment.year, moment.month, moment.day)  # noqa: DTZ001 - given its zone in the next line
    return to_ms(moment if moment.tzinfo else moment.replace(tzinfo=zone(timezone)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """A half-open stretch of event time, in ms UTC. The default is all of time.

    Raises:
        LifecycleError: LIFECYCLE-001, ``start`` is not before ``end``.
    """

    start: int = NEVER
    end: int = END + 1

    def __post_init__(self) -> None:
        if self.start >= self.end:
            fix = "Swap --from and --to." if self.start > self.end else "Name a later --to: it is exclusive."
            got = f"from {describe(self.start)} to {describe(self.end)}"
            raise LifecycleError("interval", "a start before its end", got, fix, code="LIFECYCLE-001")

    @property
    def everything(self) -> bool:
        """True for all of time."""
        return self.start <= NEVER and self.end > END

    def __str__(self) -> str:
        return f"[{describe(self.start)}, {describe(self.end)})" if not self.everything else "all of time"

    def meets(self, other: Interval) -> bool:
        """True if both have an instant in common."""
        return self.start < other.end and other.start < self.end

    def holds(self, other: Interval) -> bool:
        """True if every instant of the other is in this one."""
        return self.start <= other.start and other.end <= self.end

    def minus(self, others: list[Interval]) -> list[Interval]:
        """This interval less ``others``: the remaining intervals, in time order."""
        left = [self]
        for other in others:
            left = [
                Interval(start=a, end=b)
                for piece in left
                for a, b in ((piece.start, min(piece.end, other.start)), (max(piece.start, other.end), piece.end))
                if a < b
            ]
        return sorted(left, key=lambda piece: piece.start)


class Intervals:
    """A set of intervals, stored as disjoint ranges in order."""

    def __init__(self) -> None:
        self._starts, self._ends = list[int](), list[int]()

    def add(self, interval: Interval) -> bool:
        """Add an interval. Returns False if the set contains all of it already."""
        if self.contains(interval):
            return False
        first, last = bisect_left(self._ends, interval.start), bisect_right(self._starts, interval.end)
        self._starts[first:last] = [min([interval.start, *self._starts[first:last]])]
        self._ends[first:last] = [max([interval.end, *self._ends[first:last]])]
        return True

    def contains(self, interval: Interval) -> bool:
        """True if every instant of the interval is in the set."""
        before = bisect_right(self._starts, interval.start) - 1
        return before >= 0 and self._ends[before] >= interval.end

    def overlap(self, interval: Interval) -> bool:
        """True if an instant of the interval is in the set."""
        before = bisect_left(self._starts, interval.end) - 1
        return before >= 0 and self._ends[before] > interval.start

    def ranges(self) -> list[Interval]:
        """The set as disjoint intervals that do not touch, in order."""
        return [Interval(start=start, end=end) for start, end in zip(self._starts, self._ends, strict=True)]
