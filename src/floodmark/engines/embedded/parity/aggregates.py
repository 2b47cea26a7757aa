"""SQL of aggregates for Sail."""

from __future__ import annotations

from floodmark.core.types import parse
from floodmark.engines.embedded.parity.signatures import general
from floodmark.engines.embedded.parity.table import table
from floodmark.semantics.aggregates.table import sql_of
from floodmark.spec.windowing.aggregates import AnyAggregate, Builtin

KEY = "group by"
"""Name under which the table lists the types that may be keys."""


def sail_aggregate(aggregate: AnyAggregate, value: str, kind: str, error: str) -> str | None:
    """As ``semantics.aggregates.table.sql_of``: SQL with which Sail gives Spark's answer; None if there is no such SQL.

    Args:
        aggregate: of the window.
        value: SQL of its values.
        kind: type of the values.
        error: SQL text of the overflow's message.
    """
    if not isinstance(aggregate, Builtin) or not agrees(aggregate.function, kind):
        return None
    return written(aggregate, value, kind, error)


def written(aggregate: Builtin, value: str, kind: str, error: str) -> str | None:
    """The SQL of an aggregate, also if the comparison with Spark has refused it."""
    if parse(kind).is_floating and aggregate.function in {"min", "max"}:
        value = f"nanvl({value}, CAST('NaN' AS {kind}))"  # one NaN, without a sign
        return _least(value, kind) if aggregate.function == "min" else _greatest(value, kind)
    sql = sql_of(aggregate, value, kind, error)
    if sql is not None and parse(kind).is_floating and aggregate.function in {"sum", "mean"}:
        return f"nanvl({sql}, CAST('NaN' AS double))"  # one NaN, without a sign
    return sql


def agrees(function: str, kind: str) -> bool:
    """Whether Sail's SQL of a built-in aggregate gives Spark's answer.

    Args:
        function: of the aggregate, or ``KEY``.
        kind: type of its values.
    """
    entry = table().functions.get(f"aggregate {function}")
    return entry is not None and entry.verdict(general(kind)) in {"agrees", "rewritten", "close"}


def _least(value: str, kind: str) -> str:
    """Sail's own ``min`` of infinities alone is the largest number."""
    infinity, nan = f"CAST('Infinity' AS {kind})", f"CAST('NaN' AS {kind})"
    finite = f"CASE WHEN {value} < {infinity} THEN {value} END"
    return (
        f"CASE WHEN count({finite}) > 0 THEN min({finite}) WHEN count(CASE WHEN {value} = {infinity} THEN 1 END) > 0 THEN {infinity} "
        f"WHEN count({value}) > 0 THEN {nan} END"
    )


def _greatest(value: str, kind: str) -> str:
    """Sail's own ``max`` of negative infinities alone is the smallest number."""
    nan, lowest = f"CAST('NaN' AS {kind})", f"CAST('-Infinity' AS {kind})"
    above = f"CASE WHEN {value} > {lowest} AND {value} <> {nan} THEN {value} END"
    return (
        f"CASE WHEN count(CASE WHEN {value} = {nan} THEN 1 END) > 0 THEN {nan} WHEN count({above}) > 0 THEN max({above}) "
        f"WHEN count({value}) > 0 THEN {lowest} END"
    )
