"""The differences of two versions of a table as data: rows, columns, windows, samples. ``observe.comparison`` computes them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """What one side holds in a column.

    Args:
        nulls: rows without a value.
        distinct: number of different values, estimated (HyperLogLog, a few percent); None in a comparison by steps, which does not count them.
        least: the least value in the order of the type; None for a type without an order, and for a column of nulls.
        greatest: the greatest value; None likewise.
        mean: of numbers that are neither NaN nor infinite.
        deviation: standard deviation of the same.
        quantiles: share -> value, about (t-digest), of the same.
    """

    nulls: int
    distinct: int | None
    least: Any = None
    greatest: Any = None
    mean: float | None = None
    deviation: float | None = None
    quantiles: Mapping[float, float] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Drift:
    """The mean difference of one column per window, with an anytime-valid confidence sequence.

    The interval contains the true mean difference in all steps at once, with a probability of 1 - ``level``: a person may look at the interval
    after every step and stop an experiment because of it. The interval holds for many windows, and for differences that are independent from
    one window to the next; it says nothing about single rows, about later windows unlike these, or about whether a difference matters.

    Args:
        windows: number of windows with numbers on both sides.
        mean: right minus left, averaged over the windows with equal weight.
        low: lower end of the interval; None while there are too few windows.
        high: upper end of the interval; None likewise.
        level: probability that the interval ever excludes the true mean difference.
    """

    windows: int
    mean: float
    low: float | None
    high: float | None
    level: float

    @property
    def apart(self) -> bool:
        """Whether zero is outside the interval."""
        return self.low is not None and self.high is not None and not self.low <= 0 <= self.high

    def __str__(self) -> str:
        what = f"mean difference per window {self.mean:+.4g} over {self.windows:,} windows"
        if self.low is None or self.high is None:
            return f"{what}; too few to tell it from chance"
        sure = f"{100 * (1 - self.level):.4g}% sure between {self.low:+.4g} and {self.high:+.4g} at every look"
        return f"{what}, {sure}" + ("" if self.apart else "; that may be chance")


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnDifference:
    """One column that both sides have.

    Args:
        name: of the column.
        type: in Spark SQL.
        exact: pairs of rows whose values are the same; null is the same as null, NaN as NaN.
        within: pairs whose values differ, and count as the same by the tolerance.
        different: all other pairs.
        left: profile of the left side's values.
        right: profile of the right side's values.
        shift: mean of right minus left over the pairs, for numbers; None for other types and without pairs.
        most: greatest absolute value of right minus left.
        distance: distance of the two distributions, 0 to 1: the Kolmogorov-Smirnov statistic over bins for numbers and instants, total
            variation over the most frequent values for other types; None where the type has neither.
        top: (left, right, pairs) of the pairs that differ, the most frequent first.
        drift: mean difference per window, for numbers in a comparison by steps; None elsewhere.
    """

    name: str
    type: str
    exact: int
    within: int
    different: int
    left: Profile
    right: Profile
    shift: float | None = None
    most: float | None = None
    distance: float | None = None
    top: tuple[tuple[Any, Any, int], ...] = ()
    drift: Drift | None = None

    @property
    def share(self) -> float:
        """Pairs that are the same, of all pairs, 0 to 1; 1 where there is none."""
        pairs = self.exact + self.within + self.different
        return (self.exact + self.within) / pairs if pairs else 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """Rows by the outcome of their comparison.

    Args:
        equal: pairs that are the same in every column.
        within: pairs that differ, and count as the same by the tolerances.
        different: all other pairs.
        only_left: rows of the left side without a partner.
        only_right: rows of the right side without a partner.
    """

    equal: int = 0
    within: int = 0
    different: int = 0
    only_left: int = 0
    only_right: int = 0

    @property
    def left(self) -> int:
        """Rows of the left side."""
        return self.equal + self.within + self.different + self.only_left

    @property
    def right(self) -> int:
        """Rows of the right side."""
        return self.equal + self.within + self.different + self.only_right

    @property
    def match(self) -> float:
        """Pairs that count as the same, of all pairs and all rows without a partner, 0 to 1; 1 where there is nothing."""
        return (self.equal + self.within) / self.rows if self.rows else 1.0

    @property
    def rows(self) -> int:
        """Pairs, and rows of either side without a partner."""
        return self.left + self.only_right

    @property
    def unlike(self) -> int:
        """Pairs that differ, and rows without a partner."""
        return self.different + self.only_left + self.only_right

    @property
    def same(self) -> bool:
        """Whether nothing differs that counts."""
        return not self.unlike


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowDifference:
    """A window in which rows differ; a day of event time if rows have no window.

    Args:
        start: ms UTC.
        end: ms UTC, exclusive.
        different: pairs that differ.
        only_left: rows of the left side without a partner.
        only_right: rows of the right side without a partner.
    """

    start: int
    end: int
    different: int
    only_left: int
    only_right: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaDifference:
    """A column that only one side has, or whose type differs between the sides.

    Args:
        name: of the column.
        left: type in Spark SQL; None where the side lacks it.
        right: likewise.
    """

    name: str
    left: str | None
    right: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """Rows to look at.

    Args:
        left: the row; None where only the right side has it.
        right: likewise.
        why: the known reason for the difference, in words; empty if unknown.
    """

    left: Row | None
    right: Row | None
    why: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Two sides, compared once.

    Args:
        left: name for people, with the version.
        right: likewise.
        upto: rows before this event time were compared, ms UTC; None for all.
        grain: columns by which rows were paired; empty where whole rows were paired.
        counts: of rows.
        schema: columns that were not compared.
        columns: the compared columns in the order of the left side, without the columns of the grain.
        windows: windows that differ, the latest first; ``more_windows`` others are not listed.
        more_windows: number of windows that differ and are not listed.
        samples: some of the rows that differ, by grain.
        seconds: duration of the comparison.
    """

    left: str
    right: str
    upto: int | None
    grain: tuple[str, ...]
    counts: Counts
    schema: tuple[SchemaDifference, ...]
    columns: tuple[ColumnDifference, ...]
    windows: tuple[WindowDifference, ...]
    more_windows: int
    samples: tuple[Sample, ...]
    seconds: float

    @property
    def same(self) -> bool:
        """Whether rows and columns are the same, apart from differences within tolerances."""
        return self.counts.same and not self.schema

    @property
    def not_compared(self) -> tuple[SchemaDifference, ...]:
        """The columns of the left side that the right side lacks or has with another type."""
        return tuple(column for column in self.schema if column.left is not None)

    @property
    def changed(self) -> tuple[ColumnDifference, ...]:
        """The columns whose values or distributions differ."""
        return tuple(one for one in self.columns if one.different or one.within or one.distance)


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """The outcome of one call of a comparison by steps.

    Args:
        number: of the last step, from 1 on.
        until: event time before which all rows were compared, ms.
        cells: number of closed cells of event time with rows that were compared.
        revised: number of cells that were compared again because new rows arrived for them.
        counts: rows of all steps together.
        read: number of files that held the rows of the last step.
    """

    number: int
    until: int
    cells: int
    revised: int
    counts: Counts
    read: int
