"""A whole expression: its SQL, or the refusal that a test reads."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

from floodmark.core.errors import CapabilityError
from floodmark.engines.local.casts import NotTranslated
from floodmark.engines.local.translation import arrays, conditions, digests, numbers, texts, times
from floodmark.engines.local.translation.operand import Operand, Rule
from floodmark.spec.expressions import Expression

RULES: Mapping[str, Rule] = {
    **conditions.RULES,
    **numbers.RULES,
    **texts.RULES,
    **digests.RULES,
    **times.RULES,
    **arrays.RULES,
}
"""Function or operator -> its translation. Names that are missing are refused."""


def duckdb_sql(expression: Expression, where: str) -> str:
    """The DuckDB SQL of an expression; its DuckDB type is the one of its Spark type.

    Raises:
        CapabilityError: CAPABILITY-030, DuckDB does not compute the expression as Spark does.
    """
    translated = _translated(expression)
    if isinstance(translated, NotTranslated):
        raise unlike(where, f"{translated} in {expression.text!r}")
    return translated


@lru_cache(maxsize=4096)
def _translated(expression: Expression) -> str | NotTranslated:
    try:
        return Operand(expression.tree, RULES).sql()
    except NotTranslated as refusal:
        return refusal


def unlike(where: str, got: str) -> CapabilityError:
    """CAPABILITY-030: the local engine would answer otherwise than Spark."""
    fix = (
        "The local engine refuses what it would answer otherwise: run this test on Spark, by floodmark prove NAME --spark or "
        "floodmark.testing.spark.SparkCase."
    )
    return CapabilityError(
        where, "an expression the local engine computes as Spark does", got, fix, code="CAPABILITY-030"
    )
