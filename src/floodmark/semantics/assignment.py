"""Which windows a row is in, and for which of them it is late: vectorised integer arithmetic on milliseconds.

Windows are kept in *slices*: the longest stretches no window boundary falls into, so that overlapping windows share the work.
A window is named by its end.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Protocol, assert_never

import numpy as np
import numpy.typing as npt

from floodmark.core.time import END, NEVER, from_ms, to_ms, zone
from floodmark.spec.windows import Calendar, Count, Global, Session, Sliding, Tumbling, Window, WindowAssigner
from floodmark.spec.windows import Grid as GridWindow

_LONGEST = 400 * 86_400_000
"""More than any calendar window; so close to the beginning of time there is no calendar."""

Instants = npt.NDArray[np.int64]
Booleans = npt.NDArray[np.bool_]


class Assigner(Protocol):
    """Windows as arithmetic. All arrays are int64 milliseconds."""

    def slices(self, times: Instants) -> Instants:
        """The start of the slice each instant is in."""

    def first_end(self, slices: Instants) -> Instants:
        """The end of the first window that holds each slice."""

    def last_end(self, slices: Instants) -> Instants:
        """The end of the last window that holds each slice; less than the first end when none does."""

    def next_end(self, ends: Instants, after: Instants) -> Instants:
        """The smallest window end of the grid of ``ends`` that is >= both ``ends`` and ``after``."""

    def ends(self, first: int, last: int) -> list[int]:
        """All window ends from ``first`` to ``last``, both ends of windows themselves."""

    def expand(self, slices: Instants, from_ends: Instants, after: int, upto: int) -> tuple[Instants, Instants]:
        """Each slice once per window it is in, on time from ``from_ends`` on, that ends in (after, upto]: index and end."""

    def start(self, end: int) -> int:
        """The start of the window that ends there."""


@dataclass(frozen=True, slots=True)
class Grid:
    """Tumbling and sliding windows. Start for offset o: t - ((t - o) mod slide), floor modulo."""

    size: int
    slide: int
    offset: int

    def slices(self, times: Instants) -> Instants:
        """Slices are gcd(size, slide) long."""
        return times - np.mod(times - self.offset, math.gcd(self.size, self.slide))

    def first_end(self, slices: Instants) -> Instants:
        """The first window begins after slice - size, so that it still holds the slice."""
        length = math.gcd(self.size, self.slide)
        return slices + length + np.mod(self.offset + self.size - slices - length, self.slide)

    def last_end(self, slices: Instants) -> Instants:
        """The last window begins at or before the slice."""
        return slices - np.mod(slices - self.offset, self.slide) + self.size

    def next_end(self, ends: Instants, after: Instants) -> Instants:
        """Ends are ``slide`` apart."""
        found: Instants = ends + np.maximum(0, -((ends - after) // self.slide)) * self.slide
        return found

    def ends(self, first: int, last: int) -> list[int]:
        """Ends are ``slide`` apart."""
        return list(range(first, last + 1, self.slide))

    def expand(self, slices: Instants, from_ends: Instants, after: int, upto: int) -> tuple[Instants, Instants]:
        """Ends are ``slide`` apart."""
        low = self.next_end(from_ends, np.full_like(from_ends, after + 1))
        high = np.minimum(self.last_end(slices), upto)
        times = np.maximum(0, (high - low) // self.slide + 1)
        rows = np.repeat(np.arange(len(slices), dtype=np.int64), times)
        steps = np.arange(len(rows), dtype=np.int64) - np.repeat(np.cumsum(times) - times, times)
        return rows, low[rows] + steps * self.slide

    def start(self, end: int) -> int:
        """All windows have one size."""
        return end - self.size


@dataclass(frozen=True, slots=True)
class Days:
    """Calendar windows: each slice is a window, its bounds are local midnights."""

    window: Calendar

    def slices(self, times: Instants) -> Instants:
        """The last boundary at or before each instant."""
        bounds = self._bounds(times)
        return bounds[np.searchsorted(bounds, times, side="right") - 1]

    def first_end(self, slices: Instants) -> Instants:
        """The next boundary."""
        bounds = self._bounds(slices)
        return bounds[np.searchsorted(bounds, slices, side="right")]

    last_end = first_end

    def next_end(self, ends: Instants, after: Instants) -> Instants:
        """A slice is in one window: past it there is none (the result is then more than ``last_end``)."""
        return np.where(after > ends, after, ends)

    def ends(self, first: int, last: int) -> list[int]:
        """A slice is in one window."""
        return [first] if first == last else []

    def expand(self, slices: Instants, from_ends: Instants, after: int, upto: int) -> tuple[Instants, Instants]:
        """A slice is in one window."""
        return _single(self.last_end(slices), from_ends, after, upto)

    def start(self, end: int) -> int:
        """The boundary before."""
        return int(self.slices(np.array([end - 1], dtype=np.int64))[0])

    def _bounds(self, times: Instants) -> Instants:
        first, last = (int(times.min()), int(times.max())) if len(times) else (0, 0)
        return _calendar(self.window, from_ms(first).year, from_ms(last).year)


@dataclass(frozen=True, slots=True)
class Forever:
    """One window for all of time; it closes at the end of input."""

    def slices(self, times: Instants) -> Instants:
        """One slice."""
        return np.zeros_like(times)

    def first_end(self, slices: Instants) -> Instants:
        """Just after the end of time, so that it closes when progress reaches END."""
        return np.full_like(slices, END + 1)

    last_end = first_end

    def next_end(self, ends: Instants, after: Instants) -> Instants:
        """There is no other."""
        return np.where(after > ends, after, ends)

    def ends(self, first: int, last: int) -> list[int]:
        """There is one."""
        return [first] if first == last else []

    def expand(self, slices: Instants, from_ends: Instants, after: int, upto: int) -> tuple[Instants, Instants]:
        """There is one window."""
        return _single(self.last_end(slices), from_ends, after, upto)

    def start(self, end: int) -> int:  # noqa: ARG002 - the same for all
        """It has no start; slices are at 0."""
        return 0


def _single(ends: Instants, from_ends: Instants, after: int, upto: int) -> tuple[Instants, Instants]:
    rows = np.flatnonzero((ends > after) & (ends <= upto) & (from_ends <= ends)).astype(np.int64)
    return rows, ends[rows]


def assigner(window: GridWindow) -> Assigner:
    """The arithmetic of a window definition."""
    match window:
        case Tumbling() | Sliding():
            return Grid(window.size, window.slide, window.offset)
        case Calendar():
            return Days(window)
        case Global():
            return Forever()
        case _:
            assert_never(window)


def first_needed(window: Window, moment: int) -> int:
    """The first instant whose rows are in a window that ends after ``moment``: at or before it."""
    if isinstance(window, (Global, Count, WindowAssigner)) or moment < NEVER + _LONGEST:
        return NEVER
    if isinstance(window, Session):
        return max(moment - window.margin, NEVER)
    grid = assigner(window)
    end = grid.first_end(grid.slices(np.array([moment], dtype=np.int64)))
    return min(moment, grid.start(int(end[0])))


@dataclass(frozen=True, slots=True)
class Judgement:
    """Rows against their windows, each judged by its own stamp.

    Args:
        slices: start of the slice of each row.
        from_end: end of the first window the row is on time for.
        on_time: whether there is one.
        late: index of a row, once per window it is late but not dropped for ...
        late_end: ... and the end of that window.
        dropped: index of a row, once per window it is dropped for ...
        dropped_end: ... and the end of that window.
        side: rows in at least one window that are dropped for all of them.
    """

    slices: Instants
    from_end: Instants
    on_time: Booleans
    late: Instants
    late_end: Instants
    dropped: Instants
    dropped_end: Instants
    side: Booleans


def judge(assigner: Assigner, lateness: int, times: Instants, stamps: Instants) -> Judgement:
    """Lateness as a column comparison: late iff end - 1 <= stamp, dropped iff end - 1 + lateness <= stamp.

    Args:
        assigner: of the windows.
        lateness: allowed lateness.
        times: event times; at least one row.
        stamps: the ``_watermark`` of each row.
    """
    slices = assigner.slices(times)
    first, last = assigner.first_end(slices), assigner.last_end(slices)
    from_end = assigner.next_end(first, stamps + 2)
    on_time = from_end <= last
    rows = np.flatnonzero((first <= stamps + 1) & (first <= last))
    late: list[tuple[int, int]] = []
    dropped: list[tuple[int, int]] = []
    for row in rows.tolist():  # late rows are few; the others never come here
        stamp = int(stamps[row])
        for end in assigner.ends(int(first[row]), int(last[row])):
            if end - 1 > stamp:
                break
            (dropped if end - 1 + lateness <= stamp else late).append((row, end))
    side = (first <= last) & (last - 1 + lateness <= stamps)
    pairs = [np.array(p, dtype=np.int64).reshape(-1, 2) for p in (late, dropped)]
    return Judgement(slices, from_end, on_time, pairs[0][:, 0], pairs[0][:, 1], pairs[1][:, 0], pairs[1][:, 1], side)


@lru_cache(maxsize=64)
def _calendar(window: Calendar, first_year: int, last_year: int) -> Instants:
    """The boundaries of a calendar from the year before to the year after these, ascending."""
    local = zone(window.timezone)
    day = datetime(max(first_year - 1, 1), 1, 1)  # noqa: DTZ001 - local midnights, given their zone below
    stop = datetime(min(last_year + 2, 9999), 1, 1)  # noqa: DTZ001
    if window.unit == "week":
        day += timedelta(days=-day.weekday() % 7)
    found = []
    while day < stop:
        found.append(to_ms(day.replace(tzinfo=local).astimezone(UTC)) + window.offset)
        if window.unit == "month":
            day = (day + timedelta(days=32)).replace(day=1)
        else:
            day += timedelta(days=7 if window.unit == "week" else 1)
    return np.unique(np.array(found, dtype=np.int64))
