"""Other spellings of what Spark's expressions say: ``FLOOR(t TO HOUR)``, ``ARRAY[1, 2]``, ``CAST(x AS TIMESTAMP(3))``, and aggregates that are made of others."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from sqlglot import exp

SPAN = "span"
LISTED = "listed"
"""Entry in the meta of an order: the array of its values is sorted around the aggregate."""
Written = Callable[[exp.Expr], str]
"""A part of an expression -> its text."""
_DIGITS = {0: "SECOND", 3: "MILLISECOND"}
"""Digits of a timestamp's second -> the unit to which it is cut."""
_BRACKETS = re.compile(r"(?i)(array|map)\s*\[")


class Composed(exp.Expression):
    """An aggregate that is an expression over others.

    Args:
        expressions: the others, each with the place of the whole.
        form: text with ``{0}``, ``{1}`` in place of them.
    """

    arg_types = {"expressions": True, "form": True}  # noqa: RUF012 - sqlglot's own


COMPOSED = (exp.GroupConcat, exp.Variance, exp.VariancePop, exp.StddevPop)
"""Aggregates that are made of others; of OVER they stay as they are."""
NAMED_AGGREGATES = frozenset({"TOP_N", "MEAN", "EVERY", "SOME"})
"""Names of aggregates that sqlglot reads as any function."""
_SPREAD = "CASE WHEN {1} = 1 THEN CAST(0 AS double) ELSE {0} * {0} * ({1} - 1) / {1} END"


def composed(tree: exp.Expr) -> exp.Expr:
    """The tree with the parts of aggregates that are made of others, and with ``x = ANY (SELECT y ...)`` as IN, ``x <> ALL (...)`` as NOT IN."""

    def made(node: exp.Expr) -> exp.Expr:
        if isinstance(node, (exp.EQ, exp.NEQ)):
            return _in_rows(node)
        if isinstance(node, exp.Filter):
            node.this.meta.setdefault(SPAN, node.meta.get(SPAN))
            whole = made(node.this)
            return node if whole is node.this else _filtered(whole, node)
        if isinstance(node, exp.Star):
            return _without_columns(node)
        ordered = isinstance(node, exp.ArrayAgg) and isinstance(node.this, exp.Order)
        if not (ordered or isinstance(node, COMPOSED)) or _is_of_over(node):
            return node
        parts, form = _parts_of(node)
        for part in parts:
            part.meta.setdefault(SPAN, node.meta[SPAN])
        whole = Composed(expressions=parts, form=form)
        whole.meta.update(node.meta)
        return whole

    return tree.transform(made, copy=False)


def _parts_of(node: exp.Expr) -> tuple[list[exp.Expr], str]:
    """(an aggregate that is made of others) -> these, and the form of the whole."""
    match node:
        case exp.GroupConcat():
            separator = node.args.get("separator")
            values, array = _listed(node.this)
            between = repr(",") if separator is None else "{1}"
            parts = [values, *([separator] if separator is not None else [])]
            return parts, f"CASE WHEN size({{0}}) > 0 THEN array_join({array}, {between}) END"
        case exp.ArrayAgg():
            values, array = _listed(node.this)
            return [values], array
        case exp.Variance():
            return [exp.Stddev(this=node.this)], "{0} * {0}"
        case exp.VariancePop():
            return [exp.Stddev(this=node.this), exp.Count(this=node.this.copy())], _SPREAD
    return [exp.Stddev(this=node.this), exp.Count(this=node.this.copy())], f"sqrt({_SPREAD})"


def _listed(inner: exp.Expr) -> tuple[exp.Expr, str]:
    """(what an aggregate of values is over, with its DISTINCT and ORDER BY) -> the aggregate without order, and the form of the array in order.

    An order by what has another text stays where it is: it is refused with its place, unless that is the value under another name.
    """
    value = inner.this if isinstance(inner, exp.Order) else inner
    aggregate: exp.Expr = exp.ArrayAgg(this=value)
    if isinstance(value, exp.Distinct):
        value = value.expressions[0]
        aggregate = exp.ArrayUniqueAgg(this=value)
    if not isinstance(inner, exp.Order):
        return aggregate, "{0}"
    first = inner.expressions[0]
    if len(inner.expressions) > 1 or first.this != value:
        inner.set("this", value)
        inner.meta[LISTED] = True
        aggregate.set("this", inner)
    return aggregate, f"sort_array({{0}}, {'false' if first.args.get('desc') else 'true'})"


def _without_columns(star: exp.Star) -> exp.Star:
    """``*`` whose left out columns are names, and no columns that the statement reads."""
    for name in ("except_", "exclude"):
        parts = [part.this if isinstance(part, exp.Column) else part for part in star.args.get(name) or ()]
        if parts:
            star.set(name, parts)
    return star


def _is_of_over(node: exp.Expr) -> bool:
    """Whether a node is the function of an OVER, with its FILTER."""
    node = node.parent if isinstance(node.parent, exp.Filter) else node
    return isinstance(node.parent, exp.Window) and node.arg_key == "this"


def _filtered(whole: exp.Expr, node: exp.Filter) -> exp.Expr:
    """An aggregate that is made of others, each of these with the FILTER of the whole."""
    parts = [
        exp.Filter(this=part, expression=node.expression.copy()) if isinstance(part, exp.AggFunc) else part
        for part in whole.expressions
    ]
    for part in parts:
        part.meta.setdefault(SPAN, node.meta[SPAN])
    whole.set("expressions", parts)
    return whole


def _in_rows(node: exp.EQ | exp.NEQ) -> exp.Expr:
    """An equality with any, or an inequality with all rows of a SELECT as IN; any other comparison as it is."""
    quantified = node.expression
    if not isinstance(quantified, exp.Any if isinstance(node, exp.EQ) else exp.All):
        return node
    query = quantified.this
    if not isinstance(query, exp.Query):
        return node
    if not isinstance(query, exp.Subquery):
        whole = exp.Subquery(this=query)
        whole.meta.update(query.meta)
        query = whole
    inside = exp.In(this=node.this, query=query)
    inside.meta.update(node.meta)
    if isinstance(node, exp.EQ):
        return inside
    outside = exp.Not(this=inside)
    outside.meta.update(node.meta)
    return outside


def respelled(node: exp.Expr, sql: str, written: Written) -> str | None:
    """(a node, the statement, the text of its parts) -> Spark's text of it; None where the statement has that already."""
    match node:
        case Composed():
            return f"({node.args['form'].format(*map(written, node.expressions))})"
        case exp.Floor(args={"to": exp.Var() as unit}):
            return f"date_trunc('{unit.name}', {written(node.this)})"
        case exp.Ceil(args={"to": exp.Var() as unit}):
            below = f"date_trunc('{unit.name}', {written(node.this)})"
            return (
                f"CASE WHEN {below} = {written(node.this)} THEN {below} ELSE timestampadd({unit.name}, 1, {below}) END"
            )
        case exp.Cast(to=exp.DataType() as kind) if kind.expressions and kind.is_type(
            "timestamp", "timestamptz", "timestampltz"
        ):
            return _timestamp(node, int(kind.expressions[0].name), written)
        case exp.SimilarTo():
            return f"{written(node.this)} RLIKE concat('^(?:', {written(node.expression)}, ')$')"
        case exp.Array() if _bracketed(node, sql):
            return f"array({', '.join(map(written, node.expressions))})"
        case exp.Bracket() if _bracketed(node, sql) and len(node.expressions) > 1:
            return f"map({', '.join(map(written, node.expressions))})"
        case exp.Column() if node.name.upper() == "LOCALTIMESTAMP" and len(node.parts) == 1:
            return "current_timestamp()"
        case exp.Anonymous(this=str() as name):
            return _function(name.upper(), node.expressions, written)
    return None


def _bracketed(node: exp.Expr, sql: str) -> bool:
    return SPAN in node.meta and _BRACKETS.match(sql, node.meta[SPAN][0]) is not None


def _timestamp(node: exp.Cast, digits: int, written: Written) -> str:
    cast = f"{'try_cast' if type(node) is exp.TryCast and node.args.get('safe') else 'CAST'}({written(node.this)} AS timestamp)"
    return f"date_trunc('{_DIGITS[digits]}', {cast})" if digits in _DIGITS else cast


def _function(name: str, arguments: list[Any], written: Written) -> str | None:
    """Spark's text of a function that Spark does not have."""
    match name, arguments:
        case "SHA256" | "SHA224" | "SHA384" | "SHA512", [value]:
            return f"sha2({written(value)}, {name[3:]})"
        case "SPLIT_INDEX", [value, exp.Literal(is_string=True) as separator, number]:
            pattern = "".join(
                f"[{sign}]" if not sign.isalnum() and sign not in "^\\" else sign for sign in separator.this
            )
            return f"get(split({written(value)}, {exp.Literal.string(pattern).sql('spark')}), {written(number)})"
        case "JSON_VALUE", [value, path]:
            return f"get_json_object({written(value)}, {written(path)})"
    return None
