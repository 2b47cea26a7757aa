"""Tumbling and sliding windows. Start for offset o: t - ((t - o) mod slide), floor modulo."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from floodmark.core.time import END, NEVER
from floodmark.semantics.windows.extent import within
from floodmark.semantics.windows.kinds import EndsApart, Instants, Placed


@dataclass(frozen=True, slots=True)
class Grid(EndsApart):
    """Windows of one size that begin every ``slide``."""

    size: int
    slide: int
    offset: int

    # ---- row by row

    def of_row(self, time: int, values: tuple[Any, ...], row: Any) -> Placed:  # noqa: ARG002 - one shape for all
        """Those that begin in (time - size, time]."""
        last = time - (time - self.offset) % self.slide
        windows = [(start, start + self.size) for start in range(last, time - self.size, -self.slide)][::-1]
        if windows and (windows[0][0] < NEVER or windows[-1][1] > END + 1):
            return [within(start, end) for start, end in windows]
        return windows

    # ---- in SQL

    @property
    def overlaps(self) -> bool:
        """Whether a row may be in several windows, or in none."""
        return self.slide != self.size

    def sql_last_end(self, time: str) -> str:
        """The end of the last window that begins at or before a time; it holds the time if it is more."""
        return f"({time}) - pmod(({time}) - ({self.offset}), {self.slide}) + {self.size}"

    def sql_ends(self, time: str) -> str:
        """The ends of all windows that hold a time, an array."""
        last = self.sql_last_end(time)
        lowest = f"({time}) + 1 + pmod(({last}) - ({time}) - 1, {self.slide})"
        return f"CASE WHEN ({last}) > ({time}) THEN sequence({lowest}, {last}, CAST({self.slide} AS bigint)) ELSE array() END"

    def sql_start(self, end: str) -> str:
        """The start of the window that ends there."""
        return f"({end}) - {self.size}"

    def sql_maybe_dropped(self, time: str, lateness: int, stamp: str) -> str:
        """Exact: the last window holds the row, and is gone."""
        last = self.sql_last_end(time)
        late = f"({last}) - 1 + {lateness} <= {stamp}"
        return f"({last}) > ({time}) AND {late}" if self.slide > self.size else late

    # ---- in columns

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

    def start(self, end: int) -> int:
        """All windows have one size."""
        return end - self.size
