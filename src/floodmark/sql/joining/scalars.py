"""Subqueries that are one value, as joins: one aggregate, ``(SELECT MAX(b.x) FROM b WHERE b.k = a.k)``, one first row, and EXISTS within an expression.

An aggregate is a left join with the aggregate of each key; without a row COUNT is 0, and COLLECT_LIST an empty array. A first row is LATERAL (SELECT ...),
EXISTS within an expression a count that is not 0.
Source: Kim 1982, "On Optimizing an SQL-like Nested Query", types A and JA.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from sqlglot import exp

from floodmark.sql.dialect import SPAN
from floodmark.sql.joining.joins import conjuncts
from floodmark.sql.joining.subqueries import (
    check_rows,
    equality,
    has_aggregate,
    inside,
    is_correlated,
    is_exists,
    is_outer,
    table_of,
    tables_within,
    unwrapped,
)
from floodmark.sql.measures import is_aggregate
from floodmark.sql.reading.spellings import Composed
from floodmark.sql.refusals import makes_rows, name_of, unsayable
from floodmark.sql.relation import IS_THERE, MADE, OR_EMPTY
from floodmark.sql.text import Text, begin_of

_NEVER_NULL = (exp.Count, exp.CountIf, exp.ApproxDistinct, exp.ArrayAgg, exp.ArrayUniqueAgg)
"""Aggregates that are 0 or an empty array over no rows; others are null."""
_NULL_OF_NULL = (
    exp.Paren,
    exp.Neg,
    exp.Add,
    exp.Sub,
    exp.Mul,
    exp.Div,
    exp.Mod,
    exp.Cast,
    exp.DataType,
    exp.Literal,
    exp.Round,
)
"""Parts of an expression that is null where an aggregate in it is."""


_AROUND = "SELECT * FROM (SELECT k, COUNT(*) AS n FROM t GROUP BY k) AS g WHERE"


def with_first_rows(text: Text, node: exp.Select) -> exp.Select:
    """(SELECT) -> the SELECT in which subqueries of one first row, ``(SELECT x FROM b WHERE b.k = a.k ORDER BY y LIMIT 1)``, are columns of LATERAL (SELECT ...).

    Raises:
        DefinitionError: DEFINITION-382, an order by what is no column, or a subquery beside groups that reads columns of the statement around it.
    """
    if not any(map(_is_first, _scalar(node))):
        return node
    node = node.copy()
    joins = list(node.args.get("joins") or [])
    for number, subquery in enumerate([each for each in _scalar(node) if _is_first(each)]):
        alias = f"first_{number}"
        column = exp.column("value", table=alias)
        column.meta[SPAN] = subquery.meta[SPAN]
        query = subquery.this
        with_order(text, query)
        subquery.replace(_of_group(text, column, subquery, node, correlated=is_correlated(query)))
        query.set("expressions", [exp.alias_(query.expressions[0].unalias(), "value")])
        named = exp.TableAlias(this=exp.to_identifier(alias))
        joins.append(exp.Join(this=exp.Lateral(this=subquery, alias=named), side="LEFT", on=exp.true()))
        node.meta[MADE] = (*node.meta.get(MADE, ()), alias)
    node.set("joins", joins)
    return node


def with_order(text: Text, query: exp.Select) -> None:
    """Write the columns of SELECT in place of their numbers and aliases in the ORDER BY of a SELECT.

    Raises:
        DefinitionError: DEFINITION-382, a number of no column, or an alias in an expression, which some read as the column of the table.
    """
    values = [item.unalias() for item in query.expressions]
    aliases = {item.output_name.lower(): value for item, value in zip(query.expressions, values, strict=True)}
    order = query.args.get("order")
    for part in order.expressions if order is not None else ():
        node = part.this
        if isinstance(node, exp.Literal) and node.is_int:
            if not 1 <= int(node.this) <= len(values) or any(item.is_star for item in query.expressions):
                what = f"ORDER BY {node.this}, which is the number of no column that the subquery names"
                raise unsayable(text, begin_of(query), what, "Write the expression in ORDER BY.")
            part.set("this", values[int(node.this) - 1].copy())
        elif isinstance(node, exp.Column) and not node.table and node.name.lower() in aliases:
            part.set("this", aliases[node.name.lower()].copy())
        elif any(_is_other(column, aliases) for column in node.find_all(exp.Column)):
            fix = "Write the expression that the alias stands for, or give it another name than a column of the table has."
            raise unsayable(text, node, "an alias in an expression of ORDER BY", fix)


def _is_other(column: exp.Column, aliases: Mapping[str, exp.Expr]) -> bool:
    """Whether a column has the name of an alias that stands for something else."""
    value = None if column.table else aliases.get(column.name.lower())
    return value is not None and not (isinstance(value, exp.Column) and value.name.lower() == column.name.lower())


def _is_first(subquery: exp.Subquery) -> bool:
    """Whether a subquery has one column of one row by ORDER BY x LIMIT 1."""
    query = subquery.this
    limit = query.args.get("limit")
    first = limit is not None and getattr(limit, "expression", None) == exp.Literal.number(1)
    return (
        first and query.args.get("order") is not None and len(query.expressions) == 1 and not query.args.get("offset")
    )


def with_aggregates(text: Text, node: exp.Select) -> exp.Select:
    """(SELECT) -> the SELECT in which subqueries of one aggregate in its columns and in WHERE are columns of further joins.

    Raises:
        DefinitionError: DEFINITION-382, a subquery of another form.
    """
    _check_having(text, node)
    if not any(True for _ in (*_scalar(node), *_exists(node))):
        return node
    if node.args.get("from_") is None:
        fix = "Join them: SELECT a.most, b.n FROM (SELECT MAX(x) AS most FROM t) AS a CROSS JOIN (SELECT COUNT(*) AS n FROM u) AS b."
        raise unsayable(text, node, "subqueries of a SELECT without FROM", fix)
    node = node.copy()
    joins = list(node.args.get("joins") or [])
    for number, subquery in enumerate([*_scalar(node), *_exists(node)]):
        alias = f"aggregate_{number}"
        there, replaced = isinstance(subquery, exp.Exists), _with_place(subquery)
        query = _counted(text, inside(subquery), replaced) if there else subquery.this
        query, pairs = _uncorrelated(text, query)
        keys = [exp.alias_(inner, f"key_{place}") for place, (inner, _) in enumerate(pairs)]
        value = query.expressions[0].unalias()
        query.set("expressions", [*keys, exp.alias_(value, "value")])
        if pairs:
            query.set("group", exp.Group(expressions=[inner.copy() for inner, _ in pairs]))
        table = table_of(query, alias)
        table.meta.update(replaced.meta)
        equal = [
            exp.EQ(this=outer, expression=exp.column(f"key_{n}", table=alias)) for n, (_, outer) in enumerate(pairs)
        ]
        joins.append(exp.Join(this=table, side="LEFT", on=exp.and_(*equal, copy=False) if equal else None))
        column = exp.column("value", table=alias)
        column.meta[SPAN] = replaced.meta[SPAN]
        if there:
            column.meta[IS_THERE] = replaced is subquery
        elif is_never_null(value):
            column.meta[OR_EMPTY] = True
        replaced.replace(_of_group(text, column, replaced, node, correlated=bool(pairs)))
        node.meta[MADE] = (*node.meta.get(MADE, ()), alias)
    node.set("joins", joins)
    return node


def _check_having(text: Text, node: exp.Select) -> None:
    """Refuse IN (SELECT ...) and EXISTS (SELECT ...) in HAVING."""
    having = node.args.get("having")
    parts = having.this.walk(prune=lambda each: isinstance(each, exp.Query)) if having is not None else ()
    for part in parts:
        what = "EXISTS" if is_exists(part) else "IN" if isinstance(part, exp.In) and part.args.get("query") else ""
        if what:
            fix = f"Write it around the groups: {_AROUND} {'n IN (SELECT ...)' if what == 'IN' else 'EXISTS (SELECT ...)'}."
            raise unsayable(text, begin_of(part), f"{what} (SELECT ...) in HAVING", fix)


def _of_group(text: Text, column: exp.Column, subquery: exp.Expr, node: exp.Select, *, correlated: bool) -> exp.Expr:
    """The value of a subquery where it stands: in HAVING and in a column beside GROUP BY that of the group, whose rows all have it beside them."""
    if not _is_of_group(subquery, node):
        return column
    if correlated:
        fix = f"Write it around the groups: {_AROUND} n > (SELECT ... WHERE b.k = g.k)."
        what = "a subquery beside GROUP BY or in HAVING that reads a column of the statement around it"
        raise unsayable(text, subquery, what, fix)
    whole = exp.Max(this=column)
    whole.meta[SPAN] = column.meta[SPAN]
    return whole


def _is_of_group(subquery: exp.Expr, node: exp.Select) -> bool:
    """Whether a subquery is read once for each group: in HAVING, or in a column beside groups that is no key and in no aggregate."""
    item = subquery
    while item.parent is not node and not isinstance(item, exp.Having):
        assert item.parent is not None
        item = item.parent
        if is_aggregate(item) or isinstance(item, exp.Window):
            return False
    group = node.args.get("group")
    if isinstance(item, exp.Having) or item.arg_key != "expressions":
        return isinstance(item, exp.Having)
    if group is None:
        return node.args.get("having") is not None or any(map(has_aggregate, node.expressions))
    if group.args.get("all"):
        return has_aggregate(item)
    number = exp.Literal.number(node.expressions.index(item) + 1)
    named = {column.name for column in group.find_all(exp.Column) if not column.table}
    return number not in group.expressions and item.alias not in named - {""}


def _scalar(node: exp.Select) -> Iterator[exp.Subquery]:
    """The subqueries that stand for a value in the columns of a SELECT, in its WHERE and in its HAVING."""
    clauses = [node.args[name].this for name in ("where", "having") if node.args.get(name) is not None]
    for part in [*node.expressions, *clauses]:
        for inner in part.walk(prune=lambda each: isinstance(each, (exp.Query, exp.Exists))):
            compared = inner.arg_key == "query" or isinstance(inner.parent, (exp.Exists, exp.Any, exp.All))
            if isinstance(inner, exp.Subquery) and not compared:
                yield inner


def _exists(node: exp.Select) -> Iterator[exp.Exists]:
    """EXISTS (SELECT ...) in the columns of a SELECT, and in the conditions of its WHERE that are more than that."""
    where = node.args.get("where")
    conditions = [
        part for part in conjuncts(where.this if where is not None else None) if not is_exists(unwrapped(part)[0])
    ]
    for part in [*node.expressions, *conditions]:
        for inner in part.walk(prune=lambda each: isinstance(each, (exp.Query, exp.Exists))):
            if is_exists(inner):
                yield inner


def _counted(text: Text, query: exp.Expr, whole: exp.Expr) -> exp.Expr:
    """The number of rows of a SELECT in EXISTS, where neither its columns nor their order matter. It has the place of the whole."""
    check_rows(text, query)
    if isinstance(query, exp.Select):
        count = exp.Count(this=exp.Star())
        count.meta[SPAN] = whole.meta[SPAN]
        query.set("expressions", [count])
        for name in ("order", "distinct"):
            query.set(name, None)
        first = getattr(query.args.get("limit"), "expression", None)
        if isinstance(first, exp.Literal) and first.is_int and int(first.this) > 0:
            query.set("limit", None)
    return query


def _with_place(node: exp.Expr) -> exp.Expr:
    """A subquery, or the NOT around it where the two have one place in the text."""
    return node.parent if SPAN not in node.meta and isinstance(node.parent, exp.Not) else node


def _uncorrelated(text: Text, query: exp.Expr) -> tuple[exp.Select, list[tuple[exp.Expr, exp.Expr]]]:
    """A subquery of one aggregate without its equalities with columns of the statement around it, and these: inner side, outer side."""
    fix = (
        "Write one aggregate without GROUP BY, which has one value: (SELECT MAX(b.x) FROM b WHERE b.k = a.k); or the first row: "
        "(SELECT b.x FROM b WHERE b.k = a.k ORDER BY b.y LIMIT 1); or write a join."
    )
    if isinstance(query, exp.Select) and query.args.get("from_") is None:
        rows = next((part for part in query.walk() if makes_rows(part)), None)
        if rows is not None:
            what = f"{name_of(text, rows)} in a subquery that is one value, of which it makes several rows"
            raise unsayable(text, rows, what, "Write it in FROM: CROSS JOIN UNNEST(words) AS w(word).")
        raise unsayable(
            text,
            query,
            "an aggregate, an OVER or several columns in a subquery without FROM",
            "Write its value: without FROM an aggregate is over one row, COUNT(*) is 1, SUM(x) is x.",
        )
    several = not isinstance(query, exp.Select) or any(
        query.args.get(name) for name in ("group", "having", "distinct", "qualify", "limit", "with_")
    )
    if several or len(query.expressions) != 1 or not any(map(is_aggregate, query.expressions[0].walk())):
        raise unsayable(text, query, "a subquery that may have several rows or columns", fix)
    assert isinstance(query, exp.Select)
    check_without_rows(text, query.expressions[0].unalias())
    inner = tables_within(query)
    pairs: list[tuple[exp.Expr, exp.Expr]] = []
    left: list[exp.Expr] = []
    where = query.args.get("where")
    for condition in conjuncts(where.this if where is not None else None):
        if not is_outer(condition, inner):
            left.append(condition)
            continue
        pair = equality(condition, inner)
        if pair is None:
            fix = "Write equalities alone, each of one side with the other: b.k = a.k AND b.day = a.day; with other conditions write a join."
            raise unsayable(text, condition, "another condition with the statement around a subquery", fix)
        pairs.append(pair)
    query.set("where", exp.Where(this=exp.and_(*left, copy=False)) if left else None)
    return query, pairs


def is_never_null(value: exp.Expr) -> bool:
    """Whether a value is a count, which is 0 over no rows, or an array of values, which is empty then."""
    return isinstance(value.this if isinstance(value, exp.Filter) else value, _NEVER_NULL)


def check_without_rows(text: Text, value: exp.Expr) -> None:
    """Refuse a value of a SELECT without GROUP BY that over no rows is neither null, nor a count, nor an array: the join has no row of it then.

    Raises:
        DefinitionError: DEFINITION-382.
    """
    if is_never_null(value):
        return
    parts = list(value.walk(prune=_is_whole))
    counted = any(map(is_never_null, parts))
    null = any(map(_is_whole, parts)) and all(_is_whole(part) or isinstance(part, _NULL_OF_NULL) for part in parts)
    if counted or not null:
        what = "a count or an array in an expression" if counted else "an expression that may have a value over no rows"
        fix = "Compute with it outside: 1 + (SELECT COUNT(*) ...), COALESCE((SELECT MAX(x) ...), 0)."
        raise unsayable(text, value, f"{what} of a subquery", fix)


def _is_whole(node: exp.Expr) -> bool:
    """Whether a node is an aggregate, or one that is made of others."""
    return isinstance(node, Composed) or is_aggregate(node)
