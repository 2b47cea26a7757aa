"""Cumulative windows: windows that begin together, each a step longer than the one before, up to a size. Slices are steps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from floodmark.core.time import END, NEVER
from floodmark.semantics.windows.extent import within
from floodmark.semantics.windows.kinds import EndsApart, Instants, Placed


@dataclass(frozen=True, slots=True)
class Cumulative(EndsApart):
    """Windows whose starts are ``size`` apart and whose ends are ``slide`` apart, of which ``size`` is a multiple."""

    size: int
    slide: int
    offset: int

    # ---- row by row

    def of_row(self, time: int, values: tuple[Any, ...], row: Any) -> Placed:  # noqa: ARG002 - one shape for all
        """Those that begin at the last start and end behind the time."""
        start = time - (time - self.offset) % self.size
        first = time - (time - self.offset) % self.slide + self.slide
        windows = [(start, end) for end in range(first, start + self.size + 1, self.slide)]
        if start < NEVER or start + self.size > END + 1:
            return [within(start, end) for start, end in windows]
        return windows

    # ---- in SQL

    @property
    def overlaps(self) -> bool:
        """Whether a row may be in several windows."""
        return self.slide != self.size

    def sql_last_end(self, time: str) -> str:
        """The end of the longest window that holds a time."""
        return f"({time}) - pmod(({time}) - ({self.offset}), {self.size}) + {self.size}"

    def sql_ends(self, time: str) -> str:
        """The ends of all windows that hold a time, an array."""
        first = f"({time}) - pmod(({time}) - ({self.offset}), {self.slide}) + {self.slide}"
        return f"sequence({first}, {self.sql_last_end(time)}, CAST({self.slide} AS bigint))"

    def sql_start(self, end: str) -> str:
        """The start of the window that ends there."""
        return f"({end}) - 1 - pmod(({end}) - 1 - ({self.offset}), {self.size})"

    def sql_maybe_dropped(self, time: str, lateness: int, stamp: str) -> str:
        """Exact: the longest window holds the row, and is gone."""
        return f"({self.sql_last_end(time)}) - 1 + {lateness} <= {stamp}"

    # ---- in columns

    def slices(self, times: Instants) -> Instants:
        """Steps."""
        return times - np.mod(times - self.offset, self.slide)

    def first_end(self, slices: Instants) -> Instants:
        """The end of the step."""
        return slices + self.slide

    def last_end(self, slices: Instants) -> Instants:
        """The end of the longest window."""
        return slices - np.mod(slices - self.offset, self.size) + self.size

    def start(self, end: int) -> int:
        """The last start before the end."""
        return end - 1 - (end - 1 - self.offset) % self.size
