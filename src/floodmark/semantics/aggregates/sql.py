"""Aggregates as Spark SQL text; None if SQL's answer may differ from that of the other forms."""

from __future__ import annotations

from floodmark.core.types import parse
from floodmark.spec.windowing.aggregates import Builtin

_HALF = 1 << 32
_SUMMED_EXACTLY = 28
"""Digits of decimals that Spark adds up to 38 without an overflow, however many rows there are."""


def counts(aggregate: Builtin, value: str, kind: str, error: str) -> str | None:  # noqa: ARG001 - one shape for all
    """Rows, or values."""
    return "count(1)" if aggregate.expression is None else f"count({value})"


def totals(aggregate: Builtin, value: str, kind: str, error: str) -> str | None:  # noqa: ARG001 - one shape for all
    """Integers exactly: a bigint in two halves, which cannot overflow on the way."""
    if kind == "bigint":
        high, low = _halves(value)
        fits = f"{high} >= -{_HALF // 2} AND {high} < {_HALF // 2}"
        return (
            f"CASE WHEN count({value}) = 0 THEN NULL WHEN {fits} THEN {high} * {_HALF}L + {low} "
            f"ELSE CAST(raise_error({error}) AS bigint) END"
        )
    if not parse(kind).is_exact:
        return f"sum(CAST({value} AS double))"
    return f"sum({value})" if _plain(kind) else None


def means(aggregate: Builtin, value: str, kind: str, error: str) -> str | None:  # noqa: ARG001 - one shape for all
    """An exact total of integers and decimals, divided at the end."""
    if kind == "bigint":
        high, low = _halves(value)
        return f"(CAST({high} AS double) * {_HALF}D + CAST({low} AS double)) / nullif(count({value}), 0)"
    if not parse(kind).is_exact:
        return f"avg(CAST({value} AS double))"
    return f"CAST(sum({value}) AS double) / nullif(count({value}), 0)" if _plain(kind) else None


def least(aggregate: Builtin, value: str, kind: str, error: str) -> str | None:  # noqa: ARG001 - one shape for all
    """The smallest value."""
    return f"min({value})"


def greatest(aggregate: Builtin, value: str, kind: str, error: str) -> str | None:  # noqa: ARG001 - one shape for all
    """The largest value; NaN is the largest."""
    return f"max({value})"


def distinct_counts(aggregate: Builtin, value: str, kind: str, error: str) -> str | None:  # noqa: ARG001 - one shape for all
    """Exact."""
    return f"count(DISTINCT {value})"


def none(aggregate: Builtin, value: str, kind: str, error: str) -> str | None:  # noqa: ARG001 - one shape for all
    """SQL has no form with the same answer."""
    return None


def _halves(value: str) -> tuple[str, str]:
    """SQL of the two halves of a bigint total, as ``numbers.carried``."""
    high, low = f"sum(shiftright({value}, 32))", f"sum({value} & {_HALF - 1}L)"
    return f"({high} + shiftright({low}, 32))", f"({low} & {_HALF - 1}L)"


def _plain(kind: str) -> bool:
    """Whether Spark's own sum cannot overflow."""
    return parse(kind).precision <= _SUMMED_EXACTLY
