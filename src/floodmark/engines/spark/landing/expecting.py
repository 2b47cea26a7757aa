"""Expectations at landing on Spark: Spark SQL says of each row which of them it does not meet."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from pyspark.sql import DataFrame

from floodmark.engines.frames.expressions import as_written, expr
from floodmark.engines.landing import judging
from floodmark.engines.landing.judging import Count, Refused
from floodmark.engines.landing.units import ROWS
from floodmark.engines.spark.landing.punctuation import ROW
from floodmark.spec.rows.criterion import SHOWN, RowCriterion
from floodmark.spec.rows.source import Source


def expected(opened: DataFrame, source: Source) -> tuple[Refused, judging.Counts]:
    """(rows that are set aside, what the expectations come to over the others) of the units of a commit.

    Args:
        opened: rows of the units with the coordinates of their blobs, which are read more than once.
        source: with expectations that its landing judges.
    """
    criteria = judging.criteria_of(source)
    rows = opened.where(f"`_kind` = {ROWS}").selectExpr("*", *_conditions(criteria, source))
    aside = [number for number, one in enumerate(criteria) if one.expectation.on_fail == "quarantine"]
    refusing = " OR ".join(f"_u{number}" for number in aside) or "false"
    refused: dict[int, dict[int, str]] = {}
    for row in rows.where(refusing).select("_unit", ROW, *(f"_u{number}" for number in aside)).collect():
        number = next(number for number in aside if row[f"_u{number}"])
        refused.setdefault(row["_unit"], {})[row[ROW]] = judging.reason(criteria[number])
    stays = rows.where(f"NOT ({refusing})")
    return refused, _counted(stays, criteria)


def expected_of_few(opened: DataFrame, source: Source) -> tuple[Refused, judging.Counts]:
    """``expected`` of few rows, in one query, of which this process counts the answers."""
    criteria = judging.criteria_of(source)
    rows = opened.where(f"`_kind` = {ROWS}").selectExpr("*", *_conditions(criteria, source))
    names = [f"_{kind}{number}" for number in range(len(criteria)) for kind in "un"]
    answers = rows.select("_unit", ROW, *names).toArrow()
    flags = {name: answers[name].to_numpy() for name in names}
    unit, index_in_unit = answers["_unit"].to_numpy(), answers[ROW].to_numpy()
    aside = [number for number, one in enumerate(criteria) if one.expectation.on_fail == "quarantine"]
    first = np.full(len(unit), -1)
    for number in reversed(aside):
        first[flags[f"_u{number}"]] = number
    refused: dict[int, dict[int, str]] = {}
    for index in np.flatnonzero(first >= 0).tolist():
        refused.setdefault(int(unit[index]), {})[int(index_in_unit[index])] = judging.reason(criteria[first[index]])
    counts: dict[int, dict[str, Count]] = {}
    stays = rows.where(f"NOT ({' OR '.join(f'_u{number}' for number in aside) or 'false'})")
    for number, criterion in enumerate(criteria):
        examples: tuple[str, ...] = ()
        if flags[f"_u{number}"][first < 0].any():
            examples = _examples(stays, number, criterion)
        for number_of_unit in np.unique(unit[first < 0]).tolist():
            mine = (first < 0) & (unit == number_of_unit)
            counted, unexpected = (int(flags[f"_{kind}{number}"][mine].sum()) for kind in "nu")
            count = Count(int(mine.sum()), counted, unexpected, examples if unexpected else ())
            counts.setdefault(number_of_unit, {})[criterion.expectation.name] = count
    return refused, counts


def _examples(rows: DataFrame, number: int, criterion: RowCriterion) -> tuple[str, ...]:
    """Texts of some of the rows that do not meet a criterion."""
    unexpected = rows.where(f"_u{number}").select(*(f"`{name}`" for name in criterion.columns)).limit(SHOWN)
    return tuple(criterion.example(row.asDict()) for row in unexpected.collect())


def _counted(rows: DataFrame, criteria: Sequence[RowCriterion]) -> judging.Counts:
    sums = [
        f"sum(CAST(_{kind}{number} AS bigint)) AS _{kind}{number}" for number in range(len(criteria)) for kind in "un"
    ]
    table = rows.groupBy("_unit").agg(*(expr(rows, text) for text in ("count(1) AS _rows", *sums))).collect()
    counts: dict[int, dict[str, Count]] = {}
    for number, criterion in enumerate(criteria):
        examples: tuple[str, ...] = ()
        if any(row[f"_u{number}"] for row in table):
            examples = _examples(rows, number, criterion)
        for row in table:
            count = Count(row["_rows"], row[f"_n{number}"], row[f"_u{number}"], examples if row[f"_u{number}"] else ())
            counts.setdefault(row["_unit"], {})[criterion.expectation.name] = count
    return counts


def _conditions(criteria: Sequence[RowCriterion], source: Source) -> list[str]:
    texts = []
    for number, criterion in enumerate(criteria):
        unexpected = as_written(criterion.unexpected, source.schema)
        counted = as_written(criterion.counted or "true", source.schema)
        texts.append(f"coalesce(({unexpected}), false) AS _u{number}")
        texts.append(f"coalesce(({counted}), false) AS _n{number}")
    return texts
