"""Stretches of event time: where the rows of a source lie, and which few of them lie far from all others.

A stretch is a set of rows between whose event times is no gap of a year. Nearly every source has one. A row of year 1, or of 9999, is a
stretch of its own. The stretches of two sets of rows can be joined, so that a log keeps those of all its rows in the metadata of commits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from floodmark.semantics.time.delays import Milliseconds

GAP = 365 * 86_400_000
"""Least time without rows that separates two stretches, ms."""
_MOST = 16
"""Greatest number of stretches; if there are more, those with the smallest gaps between them are merged."""
_FEW = 10
"""Rows are few if they are at most a tenth of all rows, or one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretch:
    """Rows without a gap of a year between their event times.

    Args:
        start: the first event time, ms.
        end: the last event time, ms.
        rows: how many.
        earlier: rows of the log, of any stretch, that landed before the first row of this one.
        file: unit of the first row that landed; empty where that is not known.
        position: of that row in its unit.
    """

    start: int
    end: int
    rows: int
    earlier: int
    file: str = ""
    position: int = 0

    def as_json(self) -> list[int | str]:
        """The fields, in order."""
        return [self.start, self.end, self.rows, self.earlier, self.file, self.position]

    @staticmethod
    def from_json(value: Sequence[int | str]) -> Stretch:
        """The stretch that :meth:`as_json` wrote."""
        start, end, rows, earlier, file, position = value
        return Stretch(
            start=int(start),
            end=int(end),
            rows=int(rows),
            earlier=int(earlier),
            file=str(file),
            position=int(position),
        )


def stretches(moments: Milliseconds, position: Callable[[int], int]) -> tuple[Stretch, ...]:
    """The stretches of rows, in order of time. Rows within a year cost only their minimum and maximum.

    Args:
        moments: event times in arrival order, ms.
        position: index among the rows -> position in the unit.
    """
    if not len(moments):
        return ()
    start, end = int(moments.min()), int(moments.max())
    if end - start < GAP:
        return (Stretch(start=start, end=end, rows=len(moments), earlier=0, position=position(0)),)
    order = np.argsort(moments, kind="stable")
    gaps = np.diff(moments[order])
    cuts = np.flatnonzero(gaps >= GAP)
    cuts = np.sort(cuts[np.argsort(gaps[cuts], kind="stable")[-_MOST + 1 :]])
    parts = []
    for places in np.split(order, cuts + 1):
        first, times = int(places.min()), moments[places]
        parts.append(
            Stretch(start=int(times[0]), end=int(times[-1]), rows=len(places), earlier=first, position=position(first))
        )
    return tuple(parts)


def joined(before: Sequence[Stretch], after: Sequence[Stretch]) -> tuple[Stretch, ...]:
    """The stretches of landed rows and of rows that land after them, merged, in order of time."""
    landed = sum(stretch.rows for stretch in before)
    united: list[Stretch] = []
    moved = [replace(stretch, earlier=stretch.earlier + landed) for stretch in after]
    for stretch in sorted([*before, *moved], key=lambda stretch: stretch.start):
        if united and stretch.start - united[-1].end < GAP:
            united[-1] = _united(united[-1], stretch)
        else:
            united.append(stretch)
    while len(united) > _MOST:
        at = min(range(len(united) - 1), key=lambda at: united[at + 1].start - united[at].end)
        united[at : at + 2] = [_united(united[at], united[at + 1])]
    return tuple(united)


def _united(left: Stretch, right: Stretch) -> Stretch:
    first = min(left, right, key=lambda left: left.earlier)
    end, rows = max(left.end, right.end), left.rows + right.rows
    return replace(first, start=min(left.start, right.start), end=end, rows=rows)


def apart(parts: Sequence[Stretch]) -> tuple[Stretch | None, Stretch | None, Stretch | None]:
    """The few rows far before all others, the others, and the few rows far ahead of them; None where there are none.

    Rows are far from others if the gap between them is more than twice as wide as any gap among the others.
    """
    if not parts:
        return None, None, None
    rows = [one.rows for one in parts]
    few, gaps = max(sum(rows) // _FEW, 1), [later.start - earlier.end for earlier, later in pairwise(parts)]
    low = max((at for at in range(len(parts)) if sum(rows[:at]) <= few), default=0)
    high = min((at for at in range(low + 1, len(parts) + 1) if sum(rows[at:]) <= few), default=len(parts))
    if sum(rows) <= 2:  # noqa: PLR2004 - of two rows none is among others
        low, high = 0, len(parts)
    while low and gaps[low - 1] <= 2 * max(gaps[low : high - 1], default=0):
        low -= 1
    while high < len(parts) and gaps[high - 1] <= 2 * max(gaps[low : high - 1], default=0):
        high += 1
    return _whole(parts[:low]), _whole(parts[low:high]), _whole(parts[high:])


def _whole(some: Sequence[Stretch]) -> Stretch | None:
    """Several stretches merged into one; None if there are none."""
    whole = None
    for stretch in some:
        whole = stretch if whole is None else _united(whole, stretch)
    return whole
