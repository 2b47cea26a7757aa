"""Window assigners. Half-open [start, end), event time, milliseconds."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Literal

from floodmark.core.errors import DefinitionError
from floodmark.core.time import describe_span, span, zone


@dataclass(frozen=True, slots=True, init=False)
class Tumbling:
    """Windows of one size, one after the other: start = t - ((t - offset) mod size), floor modulo.

    Source: Flink ``TumblingEventTimeWindows``.

    Args:
        size: length, more than 0.
        offset: shift of the starts against 1970-01-01T00:00Z.

    Raises:
        DefinitionError: DEFINITION-030, a size of zero or less.
    """

    size: int
    offset: int

    def __init__(self, size: str | timedelta, offset: str | timedelta = "0 s") -> None:
        object.__setattr__(self, "size", _length(size, "Tumbling", "size"))
        object.__setattr__(self, "offset", span(offset, "Tumbling, offset"))

    @property
    def slide(self) -> int:
        """A tumbling window slides by its size."""
        return self.size


@dataclass(frozen=True, slots=True, init=False)
class Sliding:
    """Windows of one size that begin every ``slide``; a row is in size/slide of them. Source: Flink ``SlidingEventTimeWindows``.

    Args:
        size: length, more than 0.
        slide: distance of the starts, more than 0; more than ``size`` leaves gaps whose rows are in no window.
        offset: shift of the starts against 1970-01-01T00:00Z.
    """

    size: int
    slide: int
    offset: int

    def __init__(self, size: str | timedelta, slide: str | timedelta, offset: str | timedelta = "0 s") -> None:
        object.__setattr__(self, "size", _length(size, "Sliding", "size"))
        object.__setattr__(self, "slide", _length(slide, "Sliding", "slide"))
        object.__setattr__(self, "offset", span(offset, "Sliding, offset"))


@dataclass(frozen=True, slots=True, init=False)
class Calendar:
    """Days, weeks (from Monday) or months of a time zone: a day has 23, 24 or 25 hours, as its clocks say.

    Args:
        unit: ``"day"``, ``"week"`` or ``"month"``.
        timezone: IANA name.
        offset: the day begins this much after local midnight, elapsed time; at most 12 hours.
    """

    unit: Literal["day", "week", "month"]
    timezone: str
    offset: int

    def __init__(
        self, unit: Literal["day", "week", "month"], timezone: str = "UTC", offset: str | timedelta = "0 s"
    ) -> None:
        if unit not in {"day", "week", "month"}:
            fix = "For hours and minutes use Tumbling."
            raise DefinitionError("Calendar", '"day", "week" or "month"', repr(unit), fix, code="DEFINITION-031")
        zone(timezone, "Calendar")
        object.__setattr__(self, "unit", unit)
        object.__setattr__(self, "timezone", timezone)
        object.__setattr__(self, "offset", span(offset, "Calendar, offset"))

    @property
    def longest(self) -> int:
        """An upper bound of a window's length."""
        return {"day": 27, "week": 8 * 24, "month": 32 * 24}[self.unit] * 3_600_000


@dataclass(frozen=True, slots=True)
class Global:
    """One window per key, closed by the end of input. Source: Flink ``GlobalWindows`` with ``EndOfStreamTrigger``."""


Window = Tumbling | Sliding | Calendar | Global


def canonical_window(window: Window) -> dict[str, object]:
    """For fingerprints: the kind and its settings."""
    return {"kind": type(window).__name__} | {slot: getattr(window, slot) for slot in window.__slots__}


def describe_window(window: Window) -> str:
    """``Tumbling 1 hour``: for explain and errors."""
    match window:
        case Tumbling():
            text = f"Tumbling {describe_span(window.size)}"
        case Sliding():
            text = f"Sliding {describe_span(window.size)} every {describe_span(window.slide)}"
        case Calendar():
            text = f"Calendar {window.unit} in {window.timezone}"
        case Global():
            return "Global"
    return text + (f", offset {describe_span(window.offset)}" if window.offset else "")


def _length(value: str | timedelta, kind: str, name: str) -> int:
    milliseconds = span(value, f"{kind}, {name}")
    if milliseconds <= 0:
        fix = f'Set {name} to at least 1 millisecond, for example {kind}("1 hour"), or use Global().'
        got = describe_span(milliseconds)
        raise DefinitionError(f"{kind} window", f"a positive {name}", got, fix, code="DEFINITION-030")
    return milliseconds
