"""Judges rows by criteria: a whole list of expectations is one aggregate over the rows, on either engine."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pyspark.sql import DataFrame

from floodmark.core.types import parse
from floodmark.engines.frames.compile import plain_key
from floodmark.engines.frames.expressions import Rendering, as_written, expr, with_columns
from floodmark.engines.frames.fast.windows import Measured
from floodmark.semantics.aggregates.table import sql_of
from floodmark.spec.expressions import check
from floodmark.spec.graph.operator import Operator, Output
from floodmark.spec.rows.criteria import compiled
from floodmark.spec.rows.criterion import (
    EXAMPLES,
    SHOWN,
    Criterion,
    Judged,
    Measure,
    RowCriterion,
    repeats_columns,
    with_counts,
)
from floodmark.spec.values.schema import ROW, Column, Schema
from floodmark.spec.windowing.aggregates import Builtin

ROWS_ONLY = f"`_kind` = {ROW}"
"""SQL condition for the rows of an output that are judged: neither markers nor retractions."""


def judged(
    rows: DataFrame,
    schema: Schema,
    criteria: Sequence[Criterion],
    rendering: Rendering = as_written,
    measured: Measured = sql_of,
    only: str = "true",
) -> list[Judged]:
    """Judge rows: one aggregate, and a query for examples of each criterion that rows do not meet.

    Args:
        rows: to judge.
        schema: their columns, without stamps.
        criteria: at least one, compiled for the schema.
        rendering: of expressions, for the session of the rows.
        measured: rendering of aggregates.
        only: SQL condition for the rows that count. With ``ROWS_ONLY`` nothing is judged if there are none.
    """
    whole, wide = with_repeats(rows, schema, criteria, only)
    texts = aggregates(criteria, wide, rendering, measured, only)
    (numbers,) = measures(whole, texts).toArrow().to_pylist()
    if only == ROWS_ONLY and not numbers["m0"]:
        return []
    return verdicts(criteria, texts, numbers, lambda criterion: examples(whole, criterion, wide, rendering, only))


def criteria_of(operator: Operator, output: Output) -> tuple[Criterion, ...]:
    """The criteria with which the rows of an output are judged before they are committed."""
    return tuple(compiled(expectation, output.schema) for expectation in operator.watched.get(output.name, ()))


def verdicts(
    criteria: Sequence[Criterion],
    texts: Mapping[str, list[tuple[int, str]]],
    numbers: Mapping[str, Any],
    shown: Callable[[RowCriterion], list[str]],
) -> list[Judged]:
    """The results of criteria.

    Args:
        criteria: in the order of the results.
        texts: as ``aggregates``, or ``conditions``.
        numbers: ``m0``, ``m1`` ... -> value of the aggregate, or number of the rows, of that place in ``texts``.
        shown: (criterion that rows do not meet) -> texts of some of these rows.
    """
    values: list[dict[str, Any]] = [{} for _ in criteria]
    for index, of in enumerate(texts.values()):
        for number, name in of:
            values[number][name] = numbers[f"m{index}"]
    results: list[Judged] = []
    for criterion, measures in zip(criteria, values, strict=True):
        met, result = criterion.verdict(measures)
        if isinstance(criterion, RowCriterion) and result["unexpected_count"]:
            result[EXAMPLES] = ", ".join(shown(criterion))
        results.append((criterion.expectation, met, result))
    return results


def with_repeats(
    rows: DataFrame, schema: Schema, criteria: Sequence[Criterion], only: str = "true"
) -> tuple[DataFrame, Schema]:
    """Rows with a column of the number of rows that have the same values, for each criterion that needs one; and the schema with it."""
    columns = {name: keys for criterion in criteria for name, keys in repeats_columns(criterion).items()}
    texts = {
        name: f"count(1) OVER (PARTITION BY ({only}), {', '.join(plain_key(rows, key) for key in keys)})"
        for name, keys in columns.items()
    }
    return with_columns(rows, texts), with_counts(schema, criteria)


def aggregates(
    criteria: Sequence[Criterion], schema: Schema, rendering: Rendering, measured: Measured, only: str
) -> dict[str, list[tuple[int, str]]]:
    """SQL of an aggregate -> (number of the criterion, name of the measure) that it is for; the first one is the number of rows."""
    texts: dict[str, list[tuple[int, str]]] = {_sql(Measure("rows", "true"), schema, rendering, measured, only): []}
    for number, criterion in enumerate(criteria):
        for name, measure in criterion.measures.items():
            texts.setdefault(_sql(measure, schema, rendering, measured, only), []).append((number, name))
    return texts


def conditions(
    criteria: Sequence[Criterion], schema: Schema, rendering: Rendering
) -> dict[str, list[tuple[int, str]]] | None:
    """As ``aggregates``, of criteria that only count rows: SQL condition of the rows that are counted -> what it is for. None for other criteria."""
    texts: dict[str, list[tuple[int, str]]] = {"true": []}
    for number, criterion in enumerate(criteria):
        for name, measure in criterion.measures.items():
            if measure.function != "rows" or criterion.repeats:
                return None
            texts.setdefault(rendering(measure.value, schema), []).append((number, name))
    return texts


def _sql(measure: Measure, schema: Schema, rendering: Rendering, measured: Measured, only: str) -> str:
    text = rendering(measure.value, schema)
    if measure.function == "rows":
        return f"count(CASE WHEN ({only}) AND ({text}) THEN 1 END)"
    kind = check(measure.value, schema, "an expectation")
    value = f"CASE WHEN ({only}) THEN ({text}) END"
    value = f"{value} + CAST(0 AS {kind})" if parse(kind).is_floating else value
    if measure.function == "stddev":
        return f"nanvl(stddev_samp({value}), CAST('NaN' AS double))"
    sql = measured(Builtin(measure.function, measure.value), f"({value})", kind, "''")
    assert sql is not None
    return sql


def measures(rows: DataFrame, texts: Mapping[str, Any]) -> DataFrame:
    """The one row of the aggregates ``m0``, ``m1`` ... of ``aggregates``."""
    return rows.agg(*(expr(rows, text).alias(f"m{number}") for number, text in enumerate(texts)))


def examples(rows: DataFrame, criterion: RowCriterion, schema: Schema, rendering: Rendering, only: str) -> list[str]:
    """Texts of some rows that do not meet an expectation; arguments as of ``examples_of``."""
    unexpected = examples_of(rows, criterion, schema, rendering, only).toArrow()
    return [criterion.example(row) for row in unexpected.to_pylist()]


def examples_of(rows: DataFrame, criterion: RowCriterion, schema: Schema, rendering: Rendering, only: str) -> DataFrame:
    """Some rows that do not meet an expectation: the columns of an example.

    Args:
        rows: with the columns of ``with_repeats``.
        criterion: of the expectation.
        schema: of ``with_repeats``.
        rendering: of expressions, for the session of the rows.
        only: SQL condition for the rows that count.
    """
    condition = f"({only}) AND ({rendering(criterion.unexpected, schema)})"
    return rows.filter(condition).selectExpr(*(f"`{name}`" for name in criterion.columns)).limit(SHOWN)


def schema_of(rows: DataFrame) -> Schema:
    """The schema of a data frame."""
    return Schema(tuple(Column(name=name, type=kind) for name, kind in rows.dtypes))
