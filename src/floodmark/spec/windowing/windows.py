"""Window assigners. Half-open [start, end), event time, milliseconds."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import timedelta
from typing import Any, Literal

from attrs import Attribute, field, frozen

from floodmark.core.code import class_of
from floodmark.core.errors import DefinitionError
from floodmark.core.fingerprint import Declared
from floodmark.core.time import describe_span, span, zone
from floodmark.spec.rows.checks import converting, written
from floodmark.spec.windowing.partitions import Daily, Hourly, Partitions

_DAY = 86_400_000
_LONGEST = 365_250 * _DAY


def _offset(value: str | timedelta, window: object = None, setting: Any = None) -> int:
    return span(value, f"{type(window).__name__}, {setting.name}")


def _length(value: str | timedelta, window: object = None, setting: Any = None) -> int:
    return _checked_length(value, type(window).__name__, setting.name)


@frozen(field_transformer=converting)
class Tumbling(Declared):
    """Windows of one size, one after the other: start = t - ((t - offset) mod size), floor modulo.

    Source: Flink ``TumblingEventTimeWindows``.

    Args:
        size: length, more than 0; stored in ms.
        offset: shift of the starts against 1970-01-01T00:00Z; stored in ms.

    Raises:
        DefinitionError: DEFINITION-030, a size of zero or less.
    """

    entry = "kind"
    size: int = field(converter=_length)
    offset: int = field(default=written("0 s"), converter=_offset)

    @property
    def slide(self) -> int:
        """A tumbling window slides by its size."""
        return self.size


@frozen(field_transformer=converting)
class Sliding(Declared):
    """Windows of one size that begin every ``slide``; a row is in size/slide of them. Source: Flink ``SlidingEventTimeWindows``.

    Args:
        size: length, more than 0; stored in ms.
        slide: distance of the starts, more than 0; more than ``size`` leaves gaps whose rows are in no window.
        offset: shift of the starts against 1970-01-01T00:00Z.
    """

    entry = "kind"
    size: int = field(converter=_length)
    slide: int = field(converter=_length)
    offset: int = field(default=written("0 s"), converter=_offset)


@frozen(field_transformer=converting)
class Cumulative(Declared):
    """Windows that begin together every ``size`` and grow by ``step``: a row is in those that end behind it. Source: Flink ``CUMULATE``.

    ``Cumulative("1 day", "1 hour")`` has the result of each day so far at every hour.

    Args:
        size: length of the longest, a multiple of ``step``; stored in ms.
        step: length of the shortest, and by how much each is longer than the one before; stored in ms.
        offset: shift of the starts against 1970-01-01T00:00Z.

    Raises:
        DefinitionError: DEFINITION-030, a length of zero or less, or a size that is no multiple of the step.
    """

    entry = "kind"
    size: int = field(converter=_length)
    step: int = field(converter=_length)
    offset: int = field(default=written("0 s"), converter=_offset)

    @step.validator
    def _divides_the_size(self, _: Attribute[Any], step: int) -> None:
        if self.size % step:
            fix = 'For example Cumulative("1 day", "1 hour").'
            got = f"{describe_span(self.size)} in steps of {describe_span(step)}"
            raise DefinitionError(
                "Cumulative window", "a size that is a multiple of the step", got, fix, code="DEFINITION-030"
            )


@frozen(field_transformer=converting)
class Calendar(Declared):
    """Days, weeks (from Monday) or months of a time zone: a day has 23, 24 or 25 hours, as its clocks say.

    Args:
        unit: ``"day"``, ``"week"`` or ``"month"``.
        timezone: IANA name.
        offset: elapsed time from local midnight to the begin of the day; at most 12 hours. Stored in ms.
    """

    entry = "kind"
    unit: Literal["day", "week", "month"] = field()
    timezone: str = field(default="UTC")
    offset: int = field(default=written("0 s"), converter=_offset)

    @unit.validator
    def _is_unit(self, _: Attribute[Any], unit: object) -> None:
        if unit not in ("day", "week", "month"):
            fix = "For hours and minutes use Tumbling."
            raise DefinitionError("Calendar", '"day", "week" or "month"', repr(unit), fix, code="DEFINITION-031")

    @timezone.validator
    def _is_zone(self, _: Attribute[Any], timezone: str) -> None:
        zone(timezone, "Calendar")

    @offset.validator
    def _is_within_half_a_day(self, _: Attribute[Any], offset: int) -> None:
        if abs(offset) > _DAY // 2:
            fix = "Take the time zone in which the day begins there."
            got = describe_span(offset)
            raise DefinitionError("Calendar, offset", "12 hours at most", got, fix, code="DEFINITION-031")

    @property
    def longest(self) -> int:
        """An upper bound of a window's length."""
        return {"day": 27, "week": 8 * 24, "month": 32 * 24}[self.unit] * 3_600_000


@frozen
class Global(Declared):
    """One window per key, closed by the end of input. Source: Flink ``GlobalWindows`` with ``EndOfStreamTrigger``.

    In an asset with partitions, one window per key and partition, closed by the end of the partition: as ``Global.per(partitions)``.
    """

    entry = "kind"

    @staticmethod
    def per(partitions: Partitions) -> Calendar | Tumbling:
        """(asset partitions) -> the window that holds all rows of one of them, per key: a day of the time zone, or an hour.

        The first and the last partition do not count: a row outside of them is in the window of its own day or hour.

        Raises:
            DefinitionError: DEFINITION-230, neither ``Daily`` nor ``Hourly``.
        """
        match partitions:
            case Daily():
                return Calendar("day", partitions.timezone)
            case Hourly():
                return Tumbling(timedelta(hours=1), offset=timedelta(milliseconds=partitions.shift))
        fix = 'Write Global.per(Daily("2013-01-01", timezone="America/New_York")), or Global() for one window over all of time.'
        raise DefinitionError("Global.per", "Daily(...) or Hourly(...)", repr(partitions), fix, code="DEFINITION-230")


_PARTITIONS: ContextVar[Partitions | None] = ContextVar("_PARTITIONS", default=None)
"""Asset partitions of the operator whose function is called now; None where ``Global()`` is over all of time."""


@contextmanager
def global_per(partitions: Partitions | None) -> Iterator[None]:
    """While an operator's function is called: ``Global()`` is one window per asset partition; None for one over all of time."""
    token = _PARTITIONS.set(partitions)
    try:
        yield
    finally:
        _PARTITIONS.reset(token)


def declared(window: Window) -> Window:
    """The window that an operator's function declares: ``Global()`` as one per asset partition, within ``global_per``."""
    partitions = _PARTITIONS.get()
    return Global.per(partitions) if partitions is not None and isinstance(window, Global) else window


@frozen(init=False)
class Session(Declared):
    """A row opens [t, t + gap); windows of one key that overlap or touch become one. Its end is ``gap`` after its last row.

    Source: Flink ``EventTimeSessionWindows``; touching windows merge as there.

    Args:
        gap: time without rows that ends a session, more than 0, stored in ms; or Spark SQL over the row's columns for a gap per row, in ms:
            a number more than 0, cut to whole ms. A session ends at the end of time at the latest.
        longest: greatest length of a session that a bounded run over an interval assumes: it reads rows up to ``longest`` and a gap around
            the interval. By default a day, or the gap if that is more. Unbounded runs and runs over all of time do not use it.
        per_row: ``gap`` is an expression; bounded runs over an interval assume that no gap is more than ``longest``.
    """

    entry = "kind"
    gap: int | str
    longest: int

    def __init__(self, gap: str | timedelta, longest: str | timedelta | None = None, *, per_row: bool = False) -> None:
        length = 0 if per_row else _checked_length(gap, "Session", "gap")
        most = max(length, _DAY) if longest is None else _checked_length(longest, "Session", "longest")
        if most < length:
            got = f"longest {describe_span(most)}, gap {describe_span(length)}"
            fix = "A session of one row is as long as the gap: raise longest."
            raise DefinitionError("Session window", "longest of at least the gap", got, fix, code="DEFINITION-030")
        self.__attrs_init__(str(gap) if per_row else length, most)

    @property
    def margin(self) -> int:
        """Greatest distance from an interval of the rows that decide its sessions, ms."""
        return self.longest + (self.gap if isinstance(self.gap, int) else self.longest)


@frozen(init=False)
class Count(Declared):
    """The last ``size`` rows of a key, at every ``slide``-th row; by default each row is in one window.

    Source: Flink ``countWindow(size, slide)``. The rows of a key that never receives ``slide`` more rows stay in state: for a time-out use
    ``Global()`` with ``any_of(AfterCount(n), AfterDelay("1 hour"))``.

    Args:
        size: rows, at least 1.
        slide: rows between results, at least 1.
    """

    entry = "kind"
    size: int
    slide: int

    def __init__(self, size: int, slide: int | None = None) -> None:
        slide = size if slide is None else slide
        if not all(isinstance(n, int) and not isinstance(n, bool) and n > 0 for n in (size, slide)):
            fix = "Count(100) or Count(100, 10)."
            got = f"size={size!r}, slide={slide!r}"
            raise DefinitionError("Count window", "numbers of rows, 1 or more", got, fix, code="DEFINITION-030")
        self.__attrs_init__(size, slide)


class WindowAssigner:
    """Windows of your own: subclass it and write ``assign``.

    Settings are plain attributes; they and the class's source are part of the operator's version.

    Example:
        >>> class Shift(WindowAssigner):
        ...     def assign(self, time, row):
        ...         length = 8 * 3_600_000
        ...         start = time - (time - 6 * 3_600_000) % length
        ...         return [(start, start + length)]
    """

    def assign(self, time: int, row: Mapping[str, Any]) -> Iterable[tuple[int, int]]:
        """The half-open windows a row is in, as (start, end): whole milliseconds, the start before the end, between the years 1 and 9999.

        Args:
            time: event time of the row (processing time where the step runs on that), ms UTC.
            row: its columns, read only.
        """
        raise NotImplementedError

    def canonical(self) -> dict[str, object]:
        """As ``Declared.canonical``; the class is identified by its code."""
        return {"kind": type(self).__name__} | class_of(self, "window assigner")

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and vars(self) == vars(other)

    def __hash__(self) -> int:
        return hash(type(self).__qualname__)


Grid = Tumbling | Sliding | Cumulative | Calendar | Global
"""Windows that do not depend on the rows: columnar kernels can compute them."""

Window = Grid | Session | Count | WindowAssigner


def bounded_in_time(window: Window) -> bool:
    """Whether windows of this kind have a start and an end in time."""
    return not isinstance(window, (Global, Count))


def describe_window(window: Window) -> str:
    """``Tumbling 1 hour``: for explain and errors."""
    match window:
        case Tumbling():
            text = f"Tumbling {describe_span(window.size)}"
        case Sliding():
            text = f"Sliding {describe_span(window.size)} every {describe_span(window.slide)}"
        case Cumulative():
            text = f"Cumulative {describe_span(window.size)} by {describe_span(window.step)}"
        case Calendar():
            text = f"Calendar {window.unit} in {window.timezone}"
        case Session():
            return f"Session {window.gap if isinstance(window.gap, str) else describe_span(window.gap)}"
        case Count():
            return f"Count {window.size}" + (f" every {window.slide}" if window.slide != window.size else "")
        case WindowAssigner():
            return type(window).__name__
        case Global():
            return "Global"
    return text + (f", offset {describe_span(window.offset)}" if window.offset else "")


def _checked_length(value: str | timedelta, kind: str, name: str) -> int:
    milliseconds = span(value, f"{kind}, {name}")
    if milliseconds <= 0:
        fix = f'Set {name} to at least 1 millisecond, for example {kind}("1 hour"), or use Global().'
        got = describe_span(milliseconds)
        raise DefinitionError(f"{kind} window", f"a positive {name}", got, fix, code="DEFINITION-030")
    if milliseconds > _LONGEST:
        fix = "For a window that lasts as long as its input use Global()."
        got = describe_span(milliseconds)
        raise DefinitionError(f"{kind} window", f"a {name} of at most 1,000 years", got, fix, code="DEFINITION-030")
    return milliseconds
