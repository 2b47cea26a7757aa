"""The rate of bounded runs: how long one takes by the rows that it reads, from what past runs of the operator took."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from math import log

NEWEST = 20
"""Most past runs that a rate is made of."""
_LEAST_SECONDS = 0.001
_OLDER = 0.9
"""How much a run counts, of the one after it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """What one interval of a bounded run has read and written, and how long it took.

    Args:
        engine: the engine that computed the interval.
        at: when it was committed, ms UTC.
        files: files of the inputs that hold rows of the interval.
        rows: rows of the inputs that the interval is computed from.
        size: bytes of the files.
        seconds: from the first look at the inputs to the last commit.
        rows_written: rows and retractions added to all tables of the operator.
        size_written: bytes added to all tables of the operator.
    """

    engine: str
    at: int
    files: int
    rows: int
    size: int
    seconds: float
    rows_written: int
    size_written: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Rate:
    """A line through past runs: a fixed time for each interval, and a time for each row that it reads.

    Args:
        fixed: seconds for each interval.
        per_row: seconds for each row read.
        rows_per_row: rows written for each row read.
        size_per_row: bytes written for each row read.
        runs: number of past runs.
    """

    fixed: float
    per_row: float
    rows_per_row: float
    size_per_row: float
    runs: int

    @staticmethod
    def of(costs: Sequence[Cost]) -> Rate | None:
        """The rate of the newest past runs; None without a past run that read a row.

        The line has the least sum of factors by which it misses the runs, as logarithms: one run that met a cold disk or a busy machine moves it no further than
        any other, and a short run counts as much as a long one. Older runs count less, as machines and code change. No part of the line is negative.
        """
        known = [cost for cost in costs if cost.rows][-NEWEST:]
        if not known:
            return None
        fixed, per_row = _line([(cost.rows, max(cost.seconds, _LEAST_SECONDS)) for cost in known])
        read = sum(cost.rows for cost in known)
        return Rate(
            fixed=fixed,
            per_row=per_row,
            rows_per_row=sum(cost.rows_written for cost in known) / read,
            size_per_row=sum(cost.size_written for cost in known) / read,
            runs=len(known),
        )

    def seconds(self, rows: int, intervals: int = 1) -> float:
        """The expected duration of a run over a number of intervals that together read a number of rows."""
        return self.fixed * intervals + self.per_row * rows


def _line(points: Sequence[tuple[int, float]]) -> tuple[float, float]:
    """(rows, seconds) of runs, oldest first -> (fixed, per row), neither negative. Runs of one size alone give a time that grows with the rows.

    Source: least absolute deviations, whose best line passes through two of the points; of logarithms, it is looked for among these.
    """
    weights = [_OLDER**age for age in reversed(range(len(points)))]

    def missed(line: tuple[float, float]) -> float:
        fixed, per_row = line
        weighted = zip(weights, points, strict=True)
        return sum(weight * abs(log(seconds / (fixed + per_row * rows))) for weight, (rows, seconds) in weighted)

    lines = [(0.0, seconds / rows) for rows, seconds in points]
    if len({rows for rows, _ in points}) > 1:
        lines += [(seconds, 0.0) for _, seconds in points]
    for (rows, seconds), (larger, longer) in combinations(sorted(points), 2):
        per_row = (longer - seconds) / (larger - rows) if larger > rows else 0.0
        if per_row > 0 and (fixed := seconds - per_row * rows) > 0:
            lines.append((fixed, per_row))
    return min(lines, key=missed)
