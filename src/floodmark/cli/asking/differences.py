"""What of a statement the engine's own plan answers otherwise than SQL does, without an error; an operator answers it as SQL does."""

from __future__ import annotations

from sqlglot import exp

from floodmark.sql.reading.spellings import Composed


def differs(tree: exp.Expr) -> bool:
    """Whether a statement has NOT IN of several columns, in which the engine takes nulls for unequal, or a list of values in an order, which it leaves out."""
    return any(map(_is_negated, tree.find_all(exp.In))) or any(
        "sort_array" in node.args["form"] for node in tree.find_all(Composed)
    )


def _is_negated(node: exp.In) -> bool:
    """Whether an IN (SELECT ...) of several columns stands behind NOT, or in an expression, which may negate it."""
    return (
        isinstance(node.this, exp.Tuple)
        and node.args.get("query") is not None
        and node.find_ancestor(exp.Not) is not None
    )
