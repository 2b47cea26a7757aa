"""What two versions of a table differ in, as data: rows, columns, windows, samples. ``observe.comparison`` finds it."""

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
        distinct: different values, about (HyperLogLog, a few percent); None in a comparison by steps, which does not know it.
        least: in the order of the type; None where it has none, and for a column of nulls.
        greatest: likewise.
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
    """By how much the means of one column differ from window to window, with what may be said of it at any time.

    The interval holds the true mean difference in all steps at once, with a probability of 1 - ``level``: it may be looked at after every step,
    and an experiment may be stopped because of it. Its limits hold for many windows, and for differences that do not hang together from one window to the
    next; it says nothing of single rows, of windows to come that are unlike these, or of whether a difference matters.

    Args:
        windows: with numbers on both sides.
        mean: of right minus left over the windows, each counting the same.
        low: end of the interval; None while there are too few windows to say.
        high: likewise.
        level: probability of leaving out the true mean difference at any time.
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
        left: what it holds.
        right: likewise.
        shift: mean of right minus left over the pairs, of numbers; None for others and where there is no pair.
        most: greatest amount of that.
        distance: how far the two distributions are apart, 0 to 1: of numbers and instants the Kolmogorov-Smirnov statistic over
            bins, of others total variation over the most frequent values; None where the type has neither.
        top: (left, right, pairs) of the pairs that differ, the most frequent first.
        drift: of numbers, in a comparison by steps; None elsewhere.
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
    """Rows by what became of them.

    Args:
        equal: pairs that are the same in every column.
        within: pairs that differ, and count as the same by the tolerances.
        different: all other pairs.
        only_left: rows without a partner.
        only_right: likewise.
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
        every = self.equal + self.within + self.unlike
        return (self.equal + self.within) / every if every else 1.0

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
    """A window, or a day of event time where rows have none, in which something differs.

    Args:
        start: ms UTC.
        end: ms UTC, behind its last instant.
        different: pairs.
        only_left: rows without a partner.
        only_right: likewise.
    """

    start: int
    end: int
    different: int
    only_left: int
    only_right: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaDifference:
    """A column that only one side has, or that has another type there.

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
        why: the two differ, as far as that is known, in words.
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
        grain: columns by which rows were paired; empty where whole rows were.
        counts: of rows.
        schema: columns that were not compared.
        columns: all that were, in the order of the left side, without those of the grain.
        windows: those that differ, the latest first; ``more_windows`` are not listed.
        more_windows: how many.
        samples: some of what differs, by grain.
        seconds: it took.
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
        """Whether rows and columns are the same, but for what is within tolerances."""
        return self.counts.same and not self.schema

    @property
    def changed(self) -> tuple[ColumnDifference, ...]:
        """The columns in which something differs, if only their distributions."""
        return tuple(one for one in self.columns if one.different or one.within or one.distance)


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """What one call of a comparison by steps has done.

    Args:
        number: of the last step, from 1 on.
        until: event time before which all was compared, ms.
        cells: of event time with rows that have closed, and were compared.
        revised: cells that were compared again, as rows came for them.
        counts: of rows of all steps together.
        read: files that held the rows of the last step.
    """

    number: int
    until: int
    cells: int
    revised: int
    counts: Counts
    read: int
