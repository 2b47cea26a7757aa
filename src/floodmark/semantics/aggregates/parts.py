"""Aggregates in Arrow columns: the parts of a value in the table ``main``, how they are grouped, and the results.

A ``Part`` owns the columns ``<prefix><value>`` of one value. Rows and parts of rows go through the same group by: ``rows`` and ``plan``
give columns and Arrow's aggregates, ``stored`` converts their result to the stored columns.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from floodmark.core.types import parse
from floodmark.semantics.aggregates.grouping import group_ids, positions, quotient
from floodmark.semantics.aggregates.numbers import (
    carried,
    decimal_fits,
    halves,
    ranks,
    spread_groups,
    unranked,
    whole,
    whole_as_double,
    whole_fits,
)
from floodmark.semantics.encoding.columns import arrow_type

Aggregated = dict[str, tuple[pa.ChunkedArray, str]]
"""Column name -> what goes into the group by, and Arrow's aggregate."""

_NARROW = 28
"""Digits of decimals whose sum stays within decimal128 for 10^10 rows."""


class Part:
    """A part of one value's state; ``prefixes`` are its column names without the number of the value."""

    prefixes: tuple[str, ...] = ()

    def rows(self, j: int, column: pa.ChunkedArray, sign: pa.ChunkedArray | None, kind: str) -> Aggregated:
        """The columns to aggregate of rows: ``column`` is normal, ``sign`` is 1 or -1 if rows may be retracted, else None."""
        raise NotImplementedError

    def plan(self, j: int) -> list[tuple[str, str]]:
        """The columns to aggregate of parts: (column, Arrow's aggregate)."""
        return [(f"{prefix}{j}", "sum") for prefix in self.prefixes]

    def stored(self, j: int, main: pa.Table) -> pa.Table:
        """The stored columns, from the result of the group by."""
        del j
        return main


@dataclass(frozen=True, slots=True)
class Count(Part):
    """The number of values that are not null."""

    prefixes = ("count",)

    def rows(self, j: int, column: pa.ChunkedArray, sign: pa.ChunkedArray | None, kind: str) -> Aggregated:  # noqa: ARG002 - of all types
        """One or none per row."""
        valid = pc.cast(pc.is_valid(column), pa.int64())
        return {f"count{j}": (valid if sign is None else pc.multiply(valid, sign), "sum")}


@dataclass(frozen=True, slots=True)
class Whole(Part):
    """The total of integers, in halves."""

    prefixes = ("high", "low")

    def rows(self, j: int, column: pa.ChunkedArray, sign: pa.ChunkedArray | None, kind: str) -> Aggregated:
        """One sum where no group of these rows can overflow, else halves."""
        wide = column.cast(pa.int64())
        if _bounded(wide, kind):
            return {f"sum{j}": (wide if sign is None else pc.multiply(wide, sign), "sum")}
        parts = halves(wide)
        return {
            f"{prefix}{j}": (part if sign is None else pc.multiply(part, sign), "sum")
            for prefix, part in zip(self.prefixes, parts, strict=True)
        }

    def stored(self, j: int, main: pa.Table) -> pa.Table:
        """Halves, the low one in [0, 2^32)."""
        if f"sum{j}" in main.column_names:
            high, low = halves(main[f"sum{j}"])
            return main.drop_columns([f"sum{j}"]).append_column(f"high{j}", high).append_column(f"low{j}", low)
        high, low = carried(main[f"high{j}"], main[f"low{j}"])
        return _replaced(_replaced(main, f"high{j}", high), f"low{j}", low)


@dataclass(frozen=True, slots=True)
class Digits(Part):
    """The total of decimals, in 76 digits."""

    prefixes = ("digits",)

    def rows(self, j: int, column: pa.ChunkedArray, sign: pa.ChunkedArray | None, kind: str) -> Aggregated:
        """Sums of few digits are quicker in 38."""
        decimal = arrow_type(kind)
        narrow = decimal.precision <= _NARROW
        wide = column.cast(pa.decimal128(38, decimal.scale) if narrow else pa.decimal256(76, decimal.scale))
        return {f"digits{j}": (wide if sign is None else _signed(wide, sign), "sum")}

    def stored(self, j: int, main: pa.Table) -> pa.Table:
        """76 digits."""
        column = main[f"digits{j}"]
        return _replaced(main, f"digits{j}", column.cast(pa.decimal256(76, column.type.scale)))


@dataclass(frozen=True, slots=True)
class Double(Part):
    """The total of floats, as doubles add up."""

    prefixes = ("double",)

    def rows(self, j: int, column: pa.ChunkedArray, sign: pa.ChunkedArray | None, kind: str) -> Aggregated:  # noqa: ARG002 - of all types
        """The column as double; if rows may be retracted, a bag is used instead."""
        assert sign is None
        return {f"double{j}": (column.cast(pa.float64(), safe=False), "sum")}


@dataclass(frozen=True, slots=True)
class Extreme(Part):
    """The smallest or the largest value, floats as integers of their order."""

    prefixes: tuple[str, ...]

    def rows(self, j: int, column: pa.ChunkedArray, sign: pa.ChunkedArray | None, kind: str) -> Aggregated:  # noqa: ARG002 - of all types
        """The ranks of the column; if rows may be retracted, a bag is used instead."""
        assert sign is None
        return {f"{self.prefixes[0]}{j}": (ranks(column), self.prefixes[0])}

    def plan(self, j: int) -> list[tuple[str, str]]:
        """The extreme of extremes."""
        return [(f"{self.prefixes[0]}{j}", self.prefixes[0])]


SPREAD = ("mean", "residue", "squares")
"""Columns of deviations, beside the count; see ``numbers.spread_groups``. Computed apart from the group by, as they need two passes."""


def with_spread(main: pa.Table, items: pa.Table, dims: list[str], j: int, *, rows: bool) -> pa.Table:
    """``main`` with the deviations of rows, or of parts of rows."""
    ids, groups = group_ids(items, dims)
    if rows:
        column = items[f"v{j}"].cast(pa.float64(), safe=False)
        count = pc.is_valid(column).to_numpy().astype(np.float64)
        parts = [pc.fill_null(column, 0.0).to_numpy(), np.zeros(len(ids)), np.zeros(len(ids))]
    else:
        count = items[f"count{j}"].to_numpy().astype(np.float64)
        parts = [items[f"{prefix}{j}"].to_numpy() for prefix in SPREAD]
    rows_of = positions(main, dims, groups)
    for prefix, values in zip(SPREAD, spread_groups(ids, groups.num_rows, count, *parts), strict=True):
        main = main.append_column(f"{prefix}{j}", pa.array(values).take(rows_of))
    return main


# ---- results: (main, number of the value, its type) -> column, and where it fits


def counted(main: pa.Table, j: int, kind: str) -> pa.ChunkedArray:  # noqa: ARG001 - one shape for all
    """The number of values."""
    return main[f"count{j}"]


def total(main: pa.Table, j: int, kind: str) -> pa.ChunkedArray:
    """The total; null without values. Valid where ``total_fits`` is true."""
    if parse(kind).is_floating:
        column = main[f"double{j}"]
    elif parse(kind).is_decimal:
        fitting = pc.if_else(decimal_fits(main[f"digits{j}"]), main[f"digits{j}"], pa.scalar(None))
        column = fitting.cast(pa.decimal128(38, fitting.type.scale))
    else:
        column = whole(main[f"high{j}"], main[f"low{j}"])
    return pc.if_else(pc.greater(main[f"count{j}"], 0), column, pa.scalar(None, column.type))


def total_fits(main: pa.Table, j: int, kind: str) -> pa.ChunkedArray | None:
    """Per row whether the total fits its type; None for floats, whose totals always fit."""
    if parse(kind).is_floating:
        return None
    return decimal_fits(main[f"digits{j}"]) if parse(kind).is_decimal else whole_fits(main[f"high{j}"])


def average(main: pa.Table, j: int, kind: str) -> pa.ChunkedArray:
    """The total as a double, divided once."""
    if parse(kind).is_floating:
        column = main[f"double{j}"]
    elif parse(kind).is_decimal:
        column = main[f"digits{j}"]
    else:
        column = whole_as_double(main[f"high{j}"], main[f"low{j}"])
    return quotient(column, main[f"count{j}"])


def deviation(main: pa.Table, j: int, kind: str) -> pa.ChunkedArray:  # noqa: ARG001 - one shape for all
    """The standard deviation; null for fewer than two values."""
    return pc.sqrt(quotient(main[f"squares{j}"], pc.subtract(main[f"count{j}"], 1)))


def smallest(main: pa.Table, j: int, kind: str) -> pa.ChunkedArray:
    """The smallest value."""
    return unranked(main[f"min{j}"], arrow_type(kind))


def largest(main: pa.Table, j: int, kind: str) -> pa.ChunkedArray:
    """The largest value."""
    return unranked(main[f"max{j}"], arrow_type(kind))


def totals_of(kind: str) -> tuple[Part, ...]:
    """The parts a total or a mean needs."""
    if parse(kind).is_floating:
        return (Count(), Double())
    return (Count(), Digits() if parse(kind).is_decimal else Whole())


def counts_of(kind: str) -> tuple[Part, ...]:  # noqa: ARG001 - one shape for all
    """A count."""
    return (Count(),)


def least_of(kind: str) -> tuple[Part, ...]:  # noqa: ARG001 - one shape for all
    """The smallest value."""
    return (Extreme(("min",)),)


def greatest_of(kind: str) -> tuple[Part, ...]:  # noqa: ARG001 - one shape for all
    """The largest value."""
    return (Extreme(("max",)),)


def _bounded(column: pa.ChunkedArray, kind: str) -> bool:
    """Whether no sum of these rows can leave bigint."""
    if kind != "bigint" or not len(column):
        return True
    ends = pc.min_max(column)
    largest = max(abs(ends["min"].as_py() or 0), abs(ends["max"].as_py() or 0))
    return bool(largest * len(column) < 1 << 63)


def _signed(values: pa.ChunkedArray, sign: pa.ChunkedArray) -> pa.ChunkedArray:
    """The values, negated for retractions; a product with the sign would need twice the digits."""
    return pc.if_else(pc.less(sign, 0), pc.negate(values), values)


def _replaced(table: pa.Table, name: str, column: pa.ChunkedArray) -> pa.Table:
    return table.set_column(table.column_names.index(name), name, column)
