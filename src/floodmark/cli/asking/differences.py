"""What of a statement the engine's own plan answers otherwise than SQL does, without an error; an operator answers it as SQL does."""

from __future__ import annotations

from sqlglot import exp

from floodmark.sql.reading.spellings import Composed


def differs(tree: exp.Expr) -> bool:
    """Whether a statement has IN of several columns that is more than a condition of WHERE, ON, HAVING or QUALIFY, in which the engine takes nulls for unequal, or a list of values in an order, which it leaves out."""
    return any(map(_reads_nulls, tree.find_all(exp.In))) or any(
        "sort_array" in node.args["form"] for node in tree.find_all(Composed)
    )


def _reads_nulls(node: exp.In) -> bool:
    """Whether an IN (SELECT ...) of several columns stands behind NOT or in an expression, for which null is another value than false."""
    if not isinstance(node.this, exp.Tuple) or node.args.get("query") is None:
        return False
    around = node.parent
    while isinstance(around, (exp.And, exp.Or, exp.Paren)):
        around = around.parent
    return not isinstance(around, (exp.Where, exp.Having, exp.Qualify, exp.Join))
