"""Expressions of the user as columns over stamped rows.

Markers, ticks and rows set aside (``_kind`` above 0) have no values of their own, so no expression is computed for them: a division by
``coalesce(n, 0)`` would fail for a marker although it fails for no row. ``CASE`` is what keeps Spark from computing its branches for other
rows: neither the optimizer nor the elimination of common subexpressions moves an expression out of a branch. The optimizer does decide a
branch that it knows, so nothing behind an expression may filter by an equality, such as ``_kind = 0``: it would put the 0 into the guard.
"""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as F

from floodmark.semantics.attempts import is_column
from floodmark.spec.expressions import quoted
from floodmark.spec.schema import ROW, Schema


def value(text: str, kind: str, schema: Schema) -> Column:
    """An expression's value of a type; null for markers. A column itself needs no guard, and stays visible to the reader of files.

    Args:
        text: Spark SQL.
        kind: Spark SQL type.
        schema: columns it is computed over.
    """
    found = F.expr(typed(text, kind))
    return found if is_column(text, schema) else guarded(found)


def condition(text: str, *, otherwise: bool) -> Column:
    """A condition of rows.

    Args:
        text: Spark SQL.
        otherwise: what it is for markers.
    """
    return guarded(F.expr(quoted(text)), F.lit(otherwise))


def guarded(column: Column, otherwise: Column | None = None) -> Column:
    """A column that is computed for rows alone.

    Args:
        column: of rows.
        otherwise: its value for markers; null by default.
    """
    return F.when(F.col("_kind") > ROW, F.lit(None) if otherwise is None else otherwise).otherwise(column)


def typed(text: str, kind: str) -> str:
    """An expression as a value of a type, Spark SQL."""
    return f"CAST(({quoted(text)}) AS {kind})"
