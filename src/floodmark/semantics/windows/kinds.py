"""The interfaces of windows: row by row for every kind, in columns for windows that do not depend on the rows.

Windows consist of *slices*: the longest intervals without a window boundary inside, so that overlapping windows share the work.
A window is named by its end. All arrays are int64 milliseconds.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

Instants = npt.NDArray[np.int64]
Booleans = npt.NDArray[np.bool_]

Placed = Sequence[tuple[int | None, int | None]]
"""Windows as (start, end); None for one without bounds."""


class Kind(Protocol):
    """One window definition, row by row."""

    def of_row(self, time: int, values: tuple[Any, ...], row: Any) -> Placed:
        """The windows of one row, in the order of their starts; sessions are not merged here.

        Args:
            time: event time.
            values: of the step's expressions.
            row: all columns, where the step has them.
        """

    def sql_maybe_dropped(self, time: str, lateness: int, stamp: str) -> str:
        """A SQL condition that is true for every row that is dropped for all its windows."""


class Assigner(Kind, Protocol):
    """A window definition that does not depend on the rows."""

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


class OnePerSlice:
    """The part of ``Assigner`` shared by definitions in which each slice is in one window."""

    __slots__ = ()

    def first_end(self, slices: Instants) -> Instants:
        """The end of the window that holds each slice."""
        raise NotImplementedError

    def last_end(self, slices: Instants) -> Instants:
        """The end of the same window."""
        return self.first_end(slices)

    def next_end(self, ends: Instants, after: Instants) -> Instants:
        """The window's end, or ``after`` if that is greater: no window, as it is greater than ``last_end``."""
        return np.where(after > ends, after, ends)

    def ends(self, first: int, last: int) -> list[int]:
        """The only end, if ``first`` is ``last``; else none."""
        return [first] if first == last else []

    def expand(self, slices: Instants, from_ends: Instants, after: int, upto: int) -> tuple[Instants, Instants]:
        """As ``Assigner.expand``; each slice at most once."""
        ends = self.last_end(slices)
        rows = np.flatnonzero((ends > after) & (ends <= upto) & (from_ends <= ends)).astype(np.int64)
        return rows, ends[rows]


class EndsApart:
    """The part of ``Assigner`` shared by definitions in which the ends of a slice's windows are ``slide`` apart."""

    __slots__ = ()
    slide: int

    def last_end(self, slices: Instants) -> Instants:
        """The end of the last window that holds each slice."""
        raise NotImplementedError

    def next_end(self, ends: Instants, after: Instants) -> Instants:
        """Ends are ``slide`` apart."""
        next_ends: Instants = ends + np.maximum(0, -((ends - after) // self.slide)) * self.slide
        return next_ends

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
