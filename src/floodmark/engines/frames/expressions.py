"""Expressions of the user over stamped rows, as SQL text that has one meaning in sessions of Spark and of Sail.

Markers, ticks and quarantined rows (``_kind`` above 0) have no values of their own, so no expression is computed for them: a division by
``coalesce(n, 0)`` would fail for a marker although it fails for no row. ``CASE`` keeps Spark from computing a branch for other rows:
neither the optimizer nor the elimination of common subexpressions moves an expression out of a branch. But the optimizer decides a
condition whose value it can derive, so no step behind an expression may filter by an equality such as ``_kind = 0``: the optimizer would
put the 0 into the guard.

``pyspark.sql.functions`` makes columns of one kind of session only, so that a column is made by ``expr`` for its frame.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from floodmark.engines.frames.client import is_connected, is_sail
from floodmark.semantics.kernels.attempts import is_column
from floodmark.spec.expressions import quoted
from floodmark.spec.values.schema import ROW, Schema

Rendering = Callable[[str, Schema], str]
"""(an expression of the user, the columns over which it is computed) -> the SQL text for a kind of session."""


def as_written(text: str, schema: Schema) -> str:  # noqa: ARG001 - another session may need the types
    """The expression as SQL text for Spark."""
    return quoted(text)


def on_sail(frame: DataFrame) -> bool:
    """Whether Sail computes a DataFrame."""
    return is_sail(frame.sparkSession)


def expr(frame: DataFrame, text: str) -> Column:
    """A column from SQL text, of the kind of the frame's session."""
    if not is_connected(frame):
        return F.expr(text)
    from pyspark.sql.connect import functions  # noqa: PLC0415 - needs grpcio, which Spark alone does not

    return functions.expr(text)


def with_columns(rows: DataFrame, texts: Mapping[str, str]) -> DataFrame:
    """Rows with columns added, or replaced, from SQL text."""
    return rows.withColumns({name: expr(rows, text) for name, text in texts.items()}) if texts else rows


def value(text: str, kind: str, schema: Schema, rendering: Rendering = as_written) -> str:
    """SQL text of an expression's value as a type; null for markers. A plain column gets no guard, so that filters on it reach the files.

    Args:
        text: Spark SQL.
        kind: Spark SQL type.
        schema: columns over which the expression is computed.
        rendering: of the session.
    """
    if is_column(text, schema):
        return typed(text, kind)
    cast = f"CAST(({rendering(text, schema)}) AS {kind})"
    return guarded(cast) if rendering is as_written else guarded_on_sail(cast, kind)


def guarded(text: str, otherwise: str = "NULL") -> str:
    """SQL text that computes an expression for rows only.

    Args:
        text: of the expression.
        otherwise: SQL text of the value for markers.
    """
    return f"CASE WHEN `_kind` > {ROW} THEN {otherwise} ELSE ({text}) END"


def guarded_on_sail(text: str, kind: str) -> str:
    """``guarded`` for Sail. A boolean is computed as a number: Sail turns a ``CASE`` of booleans into an ``AND`` and computes both sides.

    Args:
        text: of the expression.
        kind: type of the expression.
    """
    return f"({guarded(f'CAST(({text}) AS int)')}) <> 0" if kind == "boolean" else guarded(text)


def typed(text: str, kind: str) -> str:
    """SQL text, for Spark, of an expression cast to a type."""
    return f"CAST(({quoted(text)}) AS {kind})"
