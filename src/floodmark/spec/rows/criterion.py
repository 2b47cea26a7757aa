"""Criteria: what expectations that are compiled to SQL measure, and how their verdict follows from it. A list of them is one aggregate over the rows.

Source: Great Expectations 1.24, its metrics for Spark: how ``mostly`` is judged, what a result holds.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any, Literal

from floodmark.spec.rows.expectation import Expectation
from floodmark.spec.values.schema import Column, Schema

Function = Literal["rows", "min", "max", "sum", "mean", "stddev", "count_distinct"]
Judged = tuple[Expectation, bool, dict[str, Any]]
"""(expectation, True if the rows meet the expectation, {name: value} of the result)."""
SHOWN = 10
"""Most examples of unexpected rows."""
EXAMPLES = "unexpected, for example"
"""Name of the examples among the numbers of a result."""
ROWS, COUNTED, UNEXPECTED = "rows", "counted", "unexpected"
"""Names of the measures of a ``RowCriterion``."""
REPEATS = "_repeats"
"""Beginning of the name of a column with the number of rows that have the values of a row."""


@dataclass(frozen=True, slots=True)
class Measure:
    """One aggregate over the rows.

    Args:
        function: ``rows`` counts the rows for which ``value`` is true; the others aggregate the values that are not null.
        value: Spark SQL over the columns of the rows, and of ``repeats``.
    """

    function: Function
    value: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RowCriterion:
    """An expectation that each row meets or does not meet.

    Args:
        expectation: that was compiled.
        counted: SQL condition for the rows that can meet the expectation or not: those with a value. None for all rows.
        unexpected: SQL condition for the rows that do not meet the expectation; never null, false for rows that are not counted.
        columns: of an example of an unexpected row.
        repeats: columns whose values no two rows may share; the column ``REPEATS`` of them is part of ``unexpected``. Empty for a criterion
            that looks at one row alone.
    """

    expectation: Expectation
    counted: str | None
    unexpected: str
    columns: tuple[str, ...]
    repeats: tuple[str, ...] = ()

    @property
    def measures(self) -> dict[str, Measure]:
        """Name -> measure."""
        counted = {} if self.counted is None else {COUNTED: Measure("rows", self.counted)}
        return {ROWS: Measure("rows", "true"), **counted, UNEXPECTED: Measure("rows", self.unexpected)}

    def verdict(self, values: Mapping[str, Any]) -> tuple[bool, dict[str, Any]]:
        """(measure -> value) -> (whether the rows meet the expectation, the numbers of the result)."""
        rows, unexpected = values[ROWS], values[UNEXPECTED]
        counted = values.get(COUNTED, rows)
        mostly = self.expectation.values.get("mostly", 1.0)
        met = counted == 0 or (float(counted) - float(unexpected)) / float(counted) >= mostly
        numbers: dict[str, Any] = {"element_count": rows, "unexpected_count": unexpected}
        if rows and counted:
            numbers["unexpected_percent"] = unexpected / counted * 100
        if self.counted is None:
            return met, numbers
        numbers["missing_count"] = rows - counted
        if rows:
            numbers["missing_percent"] = (rows - counted) / rows * 100
            numbers["unexpected_percent_total"] = unexpected / rows * 100
            if counted:
                numbers["unexpected_percent_nonmissing"] = numbers["unexpected_percent"]
        return met, numbers

    def example(self, row: Mapping[str, Any]) -> str:
        """(an unexpected row) -> the text of its values."""
        values = [_shown(row[name]) for name in self.columns]
        if len(values) == 1:
            return str(values[0])
        return str(
            tuple(values) if "column_A" in self.expectation.values else dict(zip(self.columns, values, strict=True))
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class NumberCriterion:
    """An expectation of one number of all rows.

    Args:
        expectation: that was compiled.
        measures: name -> measure.
        observed: (measure -> value) -> the number; None if the rows have none.
        exact: the number that is expected; None for limits.
    """

    expectation: Expectation
    measures: Mapping[str, Measure]
    observed: Callable[[Mapping[str, Any]], Any]
    repeats: tuple[str, ...] = ()

    def verdict(self, values: Mapping[str, Any]) -> tuple[bool, dict[str, Any]]:
        """(measure -> value) -> (whether the rows meet the expectation, the numbers of the result)."""
        observed, wanted = self.observed(values), self.expectation.values
        if observed is None or (isinstance(observed, float) and math.isnan(observed)):
            return False, {"observed_value": "None"}
        if "value" in wanted:
            return observed == wanted["value"], {"observed_value": observed}
        low, high = (_like(wanted.get(name), observed) for name in ("min_value", "max_value"))
        above = low is None or (observed > low if wanted.get("strict_min") else observed >= low)
        below = high is None or (observed < high if wanted.get("strict_max") else observed <= high)
        plain = float(observed) if isinstance(observed, Decimal) else observed  # a number that is plotted
        plain = plain if isinstance(plain, bool | int | float | str) else str(_shown(plain))
        return bool(above and below), {"observed_value": plain}


Criterion = RowCriterion | NumberCriterion


def repeats_columns(criterion: Criterion) -> dict[str, tuple[str, ...]]:
    """The column of numbers of rows with the same values that a criterion needs -> the columns of these values; empty if it needs none."""
    return {"_".join([REPEATS, *criterion.repeats]): criterion.repeats} if criterion.repeats else {}


def with_counts(schema: Schema, criteria: Iterable[Criterion]) -> Schema:
    """The schema with the columns of ``repeats_columns``."""
    names = dict.fromkeys(name for criterion in criteria for name in repeats_columns(criterion))
    return Schema((*schema.columns, *(Column(name=name, type="bigint") for name in names)))


def _like(limit: Any, observed: Any) -> Any:
    """A limit, as JSON has it, as a value of the type of what was observed."""
    if isinstance(limit, str) and isinstance(observed, datetime):
        instant = datetime.fromisoformat(limit)
        return instant.replace(tzinfo=UTC) if instant.tzinfo is None else instant
    if isinstance(limit, str) and isinstance(observed, date):
        return date.fromisoformat(limit)
    return limit


def _shown(value: Any) -> Any:
    """A value as results show it: instants in UTC, without offset."""
    return str(value.replace(tzinfo=None)) if isinstance(value, datetime) else value
