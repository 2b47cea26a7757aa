"""Expectations at landing on Spark: Spark SQL says of each row which of them it does not meet."""

from __future__ import annotations

from collections.abc import Sequence

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


def _counted(rows: DataFrame, criteria: Sequence[RowCriterion]) -> judging.Counts:
    sums = [
        f"sum(CAST(_{kind}{number} AS bigint)) AS _{kind}{number}" for number in range(len(criteria)) for kind in "un"
    ]
    table = rows.groupBy("_unit").agg(*(expr(rows, text) for text in ("count(1) AS _rows", *sums))).collect()
    counts: dict[int, dict[str, Count]] = {}
    for number, criterion in enumerate(criteria):
        examples: tuple[str, ...] = ()
        if any(row[f"_u{number}"] for row in table):
            unexpected = rows.where(f"_u{number}").select(*(f"`{name}`" for name in criterion.columns)).limit(SHOWN)
            examples = tuple(criterion.example(row.asDict()) for row in unexpected.collect())
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
