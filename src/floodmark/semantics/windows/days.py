"""Calendar windows: days, weeks and months between the local midnights of a time zone. Each slice is a window."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from datetime import date, datetime
from functools import lru_cache
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np

from floodmark.core.time import EPOCH, Interval, to_ms, zone
from floodmark.semantics.windows.extent import within
from floodmark.semantics.windows.kinds import Instants, OnePerSlice, Placed
from floodmark.spec.windowing.windows import Calendar

_DAY = 86_400_000
_BLOCK_DAYS = 366
_MARGIN_DAYS = 34
"""More than a month, and half a day, and any zone's distance from UTC: so far around a block there is a boundary on each side."""
_EPOCH_ORDINAL = EPOCH.toordinal()
_CYCLE_DAYS = 146_097
"""400 years: dates, weekdays and so the rules of all zones repeat."""
_MONDAY = 4
"""Days from 1970-01-01, a Thursday, to a Monday."""


@dataclass(frozen=True, slots=True)
class Days(OnePerSlice):
    """The windows of a calendar."""

    window: Calendar

    # ---- row by row

    def of_row(self, time: int, values: tuple[Any, ...], row: Any) -> Placed:  # noqa: ARG002 - one shape for all
        """The window from the boundary at or before the time to the next boundary."""
        boundaries = _listed(self.window, time // (_BLOCK_DAYS * _DAY))
        position = bisect_right(boundaries, time)
        return [within(boundaries[position - 1], boundaries[position])]

    # ---- in SQL

    def sql_maybe_dropped(self, time: str, lateness: int, stamp: str) -> str:
        """A condition that holds for every dropped row, as a window ends after its rows."""
        return f"({time}) + {lateness} <= {stamp}"

    # ---- in columns

    def slices(self, times: Instants) -> Instants:
        """The last boundary at or before each instant."""
        boundaries = self._around(times)
        return boundaries[np.searchsorted(boundaries, times, side="right") - 1]

    def first_end(self, slices: Instants) -> Instants:
        """The next boundary."""
        boundaries = self._around(slices)
        return boundaries[np.searchsorted(boundaries, slices, side="right")]

    def start(self, end: int) -> int:
        """The boundary before."""
        return int(self.slices(np.array([end - 1], dtype=np.int64))[0])

    def _around(self, times: Instants) -> Instants:
        """Boundaries, ascending: for each time the last at or before it and the next, and others."""
        blocks = np.unique(times // (_BLOCK_DAYS * _DAY)).tolist() if len(times) else [0]
        parts = [_boundaries(self.window, block) for block in blocks]
        return parts[0] if len(parts) == 1 else np.unique(np.concatenate(parts))


@dataclass(frozen=True, slots=True)
class ListedDays:
    """The windows of a calendar that end in an interval, in SQL: their boundaries are listed, as no SQL knows the rules of all zones alike.

    Args:
        boundaries: the start of the first window, then the end of each, ascending.
    """

    boundaries: tuple[int, ...]

    @staticmethod
    def of(window: Calendar, interval: Interval, most: int) -> ListedDays | None:
        """The windows whose last millisecond lies in an interval; None if there are more than ``most`` or none."""
        days, boundaries = Days(window), list[int]()
        moment = interval.start
        while len(boundaries) <= most:
            end = int(days.first_end(days.slices(np.array([moment], dtype=np.int64)))[0])
            if end > interval.end:
                return ListedDays(tuple(boundaries)) if boundaries else None
            boundaries = boundaries or [days.start(end)]
            boundaries.append(end)
            moment = end
        return None

    def sql_last_end(self, time: str) -> str:
        """The end of the window that holds a time; null for a time in none of these windows."""
        first, last = self.boundaries[0], self.boundaries[-1]
        searched = self._sql(time, 1, len(self.boundaries) - 1, 0)
        return f"CASE WHEN ({time}) >= {first} AND ({time}) < {last} THEN {searched} END"

    def sql_start(self, end: str) -> str:
        """The start of the window that ends there."""
        return self._sql(f"({end}) - 1", 1, len(self.boundaries) - 1, -1)

    def _sql(self, time: str, low: int, high: int, shift: int) -> str:
        """By halves: the boundary ``shift`` places from the first of ``low`` to ``high`` that is after a time."""
        if low == high:
            return f"CAST({self.boundaries[low + shift]} AS bigint)"
        middle = (low + high) // 2
        earlier, later = self._sql(time, low, middle, shift), self._sql(time, middle + 1, high, shift)
        return f"CASE WHEN ({time}) < {self.boundaries[middle]} THEN {earlier} ELSE {later} END"


@lru_cache(maxsize=4096)
def _boundaries(window: Calendar, block: int) -> Instants:
    """The boundaries in and around a block of days, ascending."""
    first = block * _BLOCK_DAYS - _MARGIN_DAYS
    last = (block + 1) * _BLOCK_DAYS + _MARGIN_DAYS
    days = np.arange(first, last)
    if window.unit == "week":
        days = days[(days - _MONDAY) % 7 == 0]
    elif window.unit == "month":
        days = days[days.astype("M8[D]").astype("M8[M]").astype("M8[D]") == days.astype("M8[D]")]
    local = zone(window.timezone)
    return np.unique(np.array([_midnight(day, local) + window.offset for day in days.tolist()], dtype=np.int64))


@lru_cache(maxsize=4096)
def _listed(window: Calendar, block: int) -> list[int]:
    return _boundaries(window, block).tolist()  # type: ignore[no-any-return]


def _midnight(day: int, local: ZoneInfo) -> int:
    """The instant a local day begins, ms; also of days near and beyond the years 1 and 9999, which Python's dates do not reach."""
    ordinal, shift = day + _EPOCH_ORDINAL, 0
    if ordinal < _BLOCK_DAYS:
        shift = _CYCLE_DAYS
    elif ordinal > date.max.toordinal() - _BLOCK_DAYS:
        shift = -_CYCLE_DAYS
    return to_ms(datetime.fromordinal(ordinal + shift).replace(tzinfo=local)) - shift * _DAY
