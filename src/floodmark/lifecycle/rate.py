"""The rate of bounded runs: how long one takes by the rows that it reads, from what past runs of the operator took."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

NEWEST = 20
"""Most past runs that a rate is made of."""
_LEAST_SECONDS = 0.001


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

        The line minimises the squares of relative errors, so that a short run counts as much as a long one, and has no negative part.
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
    """(rows, seconds) of runs -> (fixed, per row), neither negative. Runs of one size alone give a time that grows with the rows."""
    xs, ys = [1 / seconds for _, seconds in points], [rows / seconds for rows, seconds in points]
    xx, yy, xy = (
        sum(a * b for a, b in zip(left, right, strict=True)) for left, right in ((xs, xs), (ys, ys), (xs, ys))
    )
    x, y = sum(xs), sum(ys)
    steepest = y / yy
    determinant = xx * yy - xy * xy
    if len({rows for rows, _ in points}) == 1 or determinant <= 0:
        return 0.0, steepest
    fixed, per_row = (x * yy - y * xy) / determinant, (y * xx - x * xy) / determinant
    if fixed < 0:
        return 0.0, steepest
    return (fixed, per_row) if per_row >= 0 else (x / xx, 0.0)
