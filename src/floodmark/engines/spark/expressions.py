"""Expressions of the user as columns over stamped rows.

Markers, ticks and rows set aside (``_kind`` above 0) have no values of their own, so no expression is computed for them: a division by
``coalesce(n, 0)`` would fail for a marker although it fails for no row. ``CASE`` is what keeps Spark from computing its branches for other
rows: neither the optimizer nor the elimination of common subexpressions moves an expression out of a branch. The optimizer does decide a
branch that it knows, so nothing behind an expression may filter by an equality, such as ``_kind = 0``: it would put the 0 into the guard.
"""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as F

from floodmark.spec.expressions import quoted
from floodmark.spec.schema import ROW, Schema


def value(text: str, kind: str, schema: Schema) -> Column:
    """An expression's value of a type; null for markers. A column itself needs no guard, and stays visible to the reader of files.

    Args:
        text: Spark SQL.
        kind: Spark SQL type.
        schema: columns it is computed over.
    """
    typed = f"CAST(({quoted(text)}) AS {kind})"
    return F.expr(typed if text.strip("`") in schema else f"CASE WHEN `_kind` > {ROW} THEN NULL ELSE {typed} END")


def condition(text: str, *, otherwise: bool) -> Column:
    """A condition of rows.

    Args:
        text: Spark SQL.
        otherwise: what it is for markers.
    """
    return F.expr(f"CASE WHEN `_kind` > {ROW} THEN {str(otherwise).lower()} ELSE ({quoted(text)}) END")
