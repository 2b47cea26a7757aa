"""The matrix of aggregates and odd values on Spark, bounded (as SQL where there is such a form) and unbounded; one key per case.

The same values in every form and cut without Spark: ``tests/unit/test_aggregate_matrix.py``.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Annotated, Any

import pytest
from pydantic import Field
from pyspark.sql import SparkSession

from floodmark import Contract, EventTime, Stream, Tumbling, operator, sum
from floodmark.core.errors import ExecutionError
from floodmark.semantics.aggregates.table import TABLE
from floodmark.spec.windowing.aggregates import LAWS, Builtin
from floodmark.testing.runs import RUNS, Run
from tests.support.aggregate_forms import declared
from tests.support.oracle_aggregates import OVERFLOW, answer, same, tolerance
from tests.unit.test_aggregate_matrix import CASES

SPARK = [run for run in RUNS if run.engine == "spark"]
BOUNDED = SPARK[0]
COLUMNS = {"d": "double", "i": "bigint", "x": "decimal(38,0)", "y": "decimal(9,2)"}
IN_SQL = ("count", "sum", "min", "max", "mean", "count_distinct")


class Odd(Contract):
    """A value of one case."""

    at: EventTime
    case: str
    d: float | None = None
    i: int | None = None
    x: Annotated[Decimal, Field(max_digits=38, decimal_places=0)] | None = None
    y: Annotated[Decimal, Field(max_digits=9, decimal_places=2)] | None = None


def rows() -> list[dict[str, Any]]:
    """The values of every case whose sum fits, in its column."""
    begun, found = datetime(2024, 1, 1, tzinfo=UTC), []
    for case, (kind, values) in CASES.items():
        column = next((name for name, known in COLUMNS.items() if known == kind), None)
        if column is not None and answer("sum", kind, values) != OVERFLOW:
            found += [{"case": case, column: value} for value in values]
    return [row | {"at": begun + timedelta(seconds=n)} for n, row in enumerate(found)]


def aggregates(functions: Any, columns: str) -> dict[str, Builtin]:
    """Each function of each column."""
    return {f"{function}_{column}": declared(function, column, column) for column in columns for function in functions}


@operator
def in_sql(odd: Stream[Odd]) -> Stream[Any]:
    """What a bounded run computes in SQL."""
    return (
        odd.key_by("case").window(Tumbling("1 day")).aggregate(**aggregates(IN_SQL, "diy") | aggregates(["min"], "x"))
    )


@operator
def in_columns(odd: Stream[Odd]) -> Stream[Any]:
    """All that need no order."""
    unordered = [name for name, law in LAWS.items() if not law.in_order]
    return odd.key_by("case").window(Tumbling("1 day")).aggregate(**aggregates(unordered, "dix"))


@operator
def by_row(odd: Stream[Odd]) -> Stream[Any]:
    """All."""
    return odd.key_by("case").window(Tumbling("1 day"), order="arrival").aggregate(**aggregates(TABLE, "dix"))


@operator
def totals(odd: Stream[Odd]) -> Stream[Any]:
    """What may overflow."""
    return odd.key_by("case").window(Tumbling("1 day")).aggregate(total=sum("i"))


@operator
def decimal_totals(odd: Stream[Odd]) -> Stream[Any]:
    """What may overflow in decimals."""
    return odd.key_by("case").window(Tumbling("1 day")).aggregate(total=sum("x"))


@pytest.mark.parametrize(
    ("op", "run"),
    [
        pytest.param(in_sql, BOUNDED, marks=pytest.mark.soak),
        (in_columns, SPARK[1]),
        *(
            pytest.param(op, run, marks=pytest.mark.soak)
            for op, run in ((in_columns, BOUNDED), *((by_row, run) for run in SPARK))
        ),
    ],
    ids=str,
)
def test_every_aggregate_of_odd_values_is_the_oracles_in_both_modes(spark: SparkSession, op: Any, run: Run) -> None:
    del spark
    given = rows()
    found = {row["case"]: row for row in run(op, {"odd": given})[""]}
    step = op.stateful
    assert found.keys() == {row["case"] for row in given}
    for case, row in found.items():
        for name, aggregate in step.aggregates:
            kind = COLUMNS[aggregate.expression]
            values = [r.get(aggregate.expression) for r in given if r["case"] == case]
            wanted, scale = answer(aggregate.function, kind, values), tolerance(aggregate.function, values)
            assert same(row[name], wanted, scale), f"{name} of {case}: {row[name]!r}, not {wanted!r}"


@pytest.mark.parametrize(
    ("op", "run", "column", "case"),
    [
        (totals, BOUNDED, "i", "2^63-1 and 1"),
        pytest.param(totals, SPARK[1], "i", "2^63-1 and 1", marks=pytest.mark.soak),
        pytest.param(decimal_totals, BOUNDED, "x", "decimal 4 over", marks=pytest.mark.soak),
    ],
    ids=str,
)
def test_a_total_that_does_not_fit_is_the_same_error_in_both_modes(
    spark: SparkSession, op: Any, run: Run, column: str, case: str
) -> None:
    del spark
    at = datetime(2024, 1, 1, tzinfo=UTC)
    with pytest.raises(ExecutionError, match=f"EXECUTION-001 sum 'total' of '{column}' of key case=it's"):
        run(op, {"odd": [{"at": at, "case": "it's", column: value} for value in CASES[case][1]]})
