"""Judges drift: one query for the number of an asset partition and those of the partitions before it, on either engine."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from floodmark.spec.rows.criterion import Judged
from floodmark.spec.rows.drift import KINDS, Drift
from floodmark.spec.rows.expectation import Expectation
from floodmark.spec.values.schema import PARTITION

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def split_off(expectations: Sequence[Expectation]) -> tuple[list[Expectation], list[Expectation]]:
    """(those of drift, the others)."""
    return [one for one in expectations if one.kind in KINDS], [one for one in expectations if one.kind not in KINDS]


def longest(expectations: Sequence[Expectation]) -> int:
    """Number of partitions before that are read."""
    return max(Drift.of_expectation(one, one.name).last for one in expectations)


def drifts(rows: DataFrame, expectations: Sequence[Expectation], key: str) -> list[Judged]:
    """Judge expectations of drift of an asset partition.

    Args:
        rows: of the partition and of those before it, with the partition column.
        expectations: of drift, at least one.
        key: value of the partition column of the judged partition.
    """
    from floodmark.engines.frames.expressions import expr  # noqa: PLC0415 - definitions load without an engine

    wanted = [Drift.of_expectation(one, one.name) for one in expectations]
    numbers = rows.groupBy(PARTITION).agg(*(expr(rows, one.sql).alias(f"n{at}") for at, one in enumerate(wanted)))
    table = sorted(numbers.toArrow().to_pylist(), key=lambda row: str(row[PARTITION]))
    results: list[Judged] = []
    for at, (expectation, drift) in enumerate(zip(expectations, wanted, strict=True)):
        before = [row[f"n{at}"] for row in table if row[PARTITION] < key and row[f"n{at}"] is not None]
        now = next((row[f"n{at}"] for row in table if row[PARTITION] == key), None)
        now = 0.0 if now is None and drift.column is None else now
        results.append((expectation, *drift.verdict(now, before[-drift.last :])))
    return results
