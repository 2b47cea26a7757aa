"""Expressions of the user over stamped rows, as SQL text, so that they mean the same to a session of Spark and to one of Sail.

Markers, ticks and rows set aside (``_kind`` above 0) have no values of their own, so no expression is computed for them: a division by
``coalesce(n, 0)`` would fail for a marker although it fails for no row. ``CASE`` is what keeps Spark from computing its branches for other
rows: neither the optimizer nor the elimination of common subexpressions moves an expression out of a branch. The optimizer does decide a
branch that it knows, so nothing behind an expression may filter by an equality, such as ``_kind = 0``: it would put the 0 into the guard.

``pyspark.sql.functions`` makes columns of one kind of session only, so that a column is made by ``expr`` for the frame it belongs to.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from floodmark.semantics.attempts import is_column
from floodmark.spec.expressions import quoted
from floodmark.spec.schema import ROW, Schema

Rendering = Callable[[str, Schema], str]
"""An expression of the user and the columns it is computed over -> the text for the session it runs on."""


def as_written(text: str, schema: Schema) -> str:  # noqa: ARG001 - another session may need the types
    """The text for Spark."""
    return quoted(text)


def connected(frame: DataFrame) -> bool:
    """Whether a DataFrame belongs to a Spark Connect session, as those of Sail do."""
    return type(frame).__module__.startswith("pyspark.sql.connect")


def expr(frame: DataFrame, text: str) -> Column:
    """A column from SQL text, of the kind the frame can take."""
    if not connected(frame):
        return F.expr(text)
    from pyspark.sql.connect import functions  # noqa: PLC0415 - needs grpcio, which Spark alone does not

    return functions.expr(text)


def with_columns(rows: DataFrame, texts: Mapping[str, str]) -> DataFrame:
    """Rows with columns added, or replaced, from SQL text."""
    return rows.withColumns({name: expr(rows, text) for name, text in texts.items()}) if texts else rows


def value(text: str, kind: str, schema: Schema, rendering: Rendering = as_written) -> str:
    """An expression's value of a type; null for markers. A column itself needs no guard, and stays visible to the reader of files.

    Args:
        text: Spark SQL.
        kind: Spark SQL type.
        schema: columns it is computed over.
        rendering: of the session.
    """
    if is_column(text, schema):
        return typed(text, kind)
    cast = f"CAST(({rendering(text, schema)}) AS {kind})"
    return guarded(cast) if rendering is as_written else guarded_on_sail(cast, kind)


def guarded(text: str, otherwise: str = "NULL") -> str:
    """An expression that is computed for rows alone.

    Args:
        text: of rows.
        otherwise: its value for markers.
    """
    return f"CASE WHEN `_kind` > {ROW} THEN {otherwise} ELSE ({text}) END"


def guarded_on_sail(text: str, kind: str) -> str:
    """The same for Sail, whose optimizer makes a ``CASE`` of booleans an ``AND``, of which both sides are computed; one of numbers it leaves.

    Args:
        text: of rows.
        kind: its type.
    """
    return f"({guarded(f'CAST(({text}) AS int)')}) <> 0" if kind == "boolean" else guarded(text)


def typed(text: str, kind: str) -> str:
    """An expression as a value of a type, Spark SQL."""
    return f"CAST(({quoted(text)}) AS {kind})"
