"""Stretches of event time: where the rows of a source lie, and which few of them lie far from all others.

A stretch is a set of rows between whose event times is no gap of a year. Nearly every source has one. A row of year 1, or of 9999, is a
stretch of its own. The stretches of two sets of rows can be joined, so that a log keeps those of all its rows in the metadata of commits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from floodmark.semantics.delays import Milliseconds

GAP = 365 * 86_400_000
"""Without rows for so long, ms, one stretch ends and another one begins."""
_MOST = 16
"""Stretches that are kept apart; of more, those with the smallest gaps between them are taken for one."""
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
    """Of some rows, in order of time. Rows within a year cost a look for the first and the last.

    Args:
        moments: event times in arrival order, ms.
        position: place among the rows -> position in the unit.
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
    found = []
    for places in np.split(order, cuts + 1):
        first, times = int(places.min()), moments[places]
        found.append(
            Stretch(start=int(times[0]), end=int(times[-1]), rows=len(places), earlier=first, position=position(first))
        )
    return tuple(found)


def joined(before: Sequence[Stretch], after: Sequence[Stretch]) -> tuple[Stretch, ...]:
    """The stretches of rows and of those that land behind them, in order of time."""
    landed = sum(one.rows for one in before)
    found: list[Stretch] = []
    moved = [replace(one, earlier=one.earlier + landed) for one in after]
    for one in sorted([*before, *moved], key=lambda one: one.start):
        if found and one.start - found[-1].end < GAP:
            found[-1] = _united(found[-1], one)
        else:
            found.append(one)
    while len(found) > _MOST:
        at = min(range(len(found) - 1), key=lambda at: found[at + 1].start - found[at].end)
        found[at : at + 2] = [_united(found[at], found[at + 1])]
    return tuple(found)


def _united(one: Stretch, other: Stretch) -> Stretch:
    first = min(one, other, key=lambda one: one.earlier)
    end, rows = max(one.end, other.end), one.rows + other.rows
    return replace(first, start=min(one.start, other.start), end=end, rows=rows)


def apart(found: Sequence[Stretch]) -> tuple[Stretch | None, Stretch | None, Stretch | None]:
    """The few rows far before all others, the others, and the few rows far ahead of them; None where there are none.

    Rows are far from others if the gap between them is more than twice as wide as any gap among the others.
    """
    if not found:
        return None, None, None
    rows = [one.rows for one in found]
    few, gaps = max(sum(rows) // _FEW, 1), [later.start - earlier.end for earlier, later in pairwise(found)]
    low = max((at for at in range(len(found)) if sum(rows[:at]) <= few), default=0)
    high = min((at for at in range(low + 1, len(found) + 1) if sum(rows[at:]) <= few), default=len(found))
    if sum(rows) <= 2:  # noqa: PLR2004 - of two rows none is among others
        low, high = 0, len(found)
    while low and gaps[low - 1] <= 2 * max(gaps[low : high - 1], default=0):
        low -= 1
    while high < len(found) and gaps[high - 1] <= 2 * max(gaps[low : high - 1], default=0):
        high += 1
    return _whole(found[:low]), _whole(found[low:high]), _whole(found[high:])


def _whole(some: Sequence[Stretch]) -> Stretch | None:
    """Several stretches as if they were one."""
    whole = None
    for one in some:
        whole = one if whole is None else _united(whole, one)
    return whole
