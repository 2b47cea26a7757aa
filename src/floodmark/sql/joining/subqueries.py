"""Subqueries in WHERE as joins: ``x IN (SELECT ...)`` and ``EXISTS (SELECT ...)`` are semi-joins, with NOT they are anti-joins."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlglot import exp

from floodmark.sql.refusals import check_clauses, unsayable
from floodmark.sql.text import Text


@dataclass(frozen=True, slots=True)
class SubqueryJoin:
    """A condition of WHERE that is a join.

    Args:
        node: the join, of kind SEMI or ANTI.
        compared: for IN, the value that is compared with the subquery's only column; None for EXISTS.
    """

    node: exp.Join
    compared: exp.Expr | None


def subquery_joins(text: Text, conditions: Sequence[exp.Expr]) -> tuple[list[SubqueryJoin], list[exp.Expr]]:
    """(conditions of WHERE) -> the joins that some of them are, and the other conditions.

    Raises:
        DefinitionError: DEFINITION-382, a subquery of another form.
    """
    joins, others = [], []
    for number, condition in enumerate(conditions):
        join = _join(text, condition, f"subquery_{number}")
        if join is None:
            others.append(condition)
        else:
            joins.append(join)
    return joins, others


def _join(text: Text, condition: exp.Expr, alias: str) -> SubqueryJoin | None:
    node, kind = condition, "SEMI"
    while isinstance(node, (exp.Not, exp.Paren)):
        kind = ("ANTI" if kind == "SEMI" else "SEMI") if isinstance(node, exp.Not) else kind
        node = node.this
    if isinstance(node, exp.In) and node.args.get("query") is not None:
        query = node.args["query"]
        query = query.this if isinstance(query, exp.Subquery) else query
        table = exp.Subquery(this=query, alias=exp.TableAlias(this=exp.to_identifier(alias)))
        table.meta.update(query.meta)
        return SubqueryJoin(exp.Join(this=table, kind=kind, side="LEFT"), node.this)
    if isinstance(node, exp.Exists):
        query = node.this.this if isinstance(node.this, exp.Subquery) else node.this
        return SubqueryJoin(_of_rows(text, query, kind), None)
    return None


def _of_rows(text: Text, query: exp.Expr, kind: str) -> exp.Join:
    """The join with the rows of a subquery, whose WHERE may name columns of the statement around it."""
    plain = isinstance(query, exp.Select) and not any(
        query.args.get(name) for name in ("group", "having", "joins", "distinct", "with_", "qualify", "limit")
    )
    if not plain or query.args.get("from_") is None:
        fix = "Read one table in it, SELECT 1 FROM t WHERE t.k = outer.k; or write a join: LEFT SEMI JOIN, LEFT ANTI JOIN."
        raise unsayable(text, query, "another subquery in EXISTS", fix)
    check_clauses(text, query)
    where = query.args.get("where")
    table = query.args["from_"].this
    return exp.Join(this=table, kind=kind, side="LEFT", on=where.this if where is not None else None)
