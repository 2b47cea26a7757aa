"""Subqueries in conditions as joins.

``x IN (SELECT ...)`` and ``EXISTS (SELECT ...)`` in WHERE are semi-joins, with NOT they are anti-joins.
Source: Kim 1982, "On Optimizing an SQL-like Nested Query", types N and J.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from sqlglot import exp

from floodmark.core.errors import DefinitionError
from floodmark.sql.joining.joins import conjuncts
from floodmark.sql.measures import is_aggregate
from floodmark.sql.refusals import MAKES_ROWS, check_clauses, unsayable
from floodmark.sql.relation import Relation
from floodmark.sql.text import Text, new_name


@dataclass(frozen=True, slots=True)
class SubqueryJoin:
    """A condition of WHERE that is a join.

    Args:
        node: the join, of kind SEMI or ANTI.
        compared: for IN, the values that are compared with the subquery's columns, ``(a, b) IN (SELECT x, y ...)``; none for EXISTS.
        columns: these as expressions over the join's table, of an IN whose subquery reads columns of the statement around it; else none.
    """

    node: exp.Join
    compared: tuple[exp.Expr, ...]
    columns: tuple[exp.Expr, ...] = ()

    def outer_columns(self, right: Relation) -> Iterator[exp.Column]:
        """(the join's table) -> the columns that it reads of the rows before it."""
        on = self.node.args.get("on")
        own = {table.lower() for table in right.tables}
        for part in [*self.compared, *([on] if on is not None else [])]:
            for column in part.walk(prune=lambda each: isinstance(each, exp.Query)):
                if isinstance(column, exp.Column) and column.parts[0].name.lower() not in own:
                    yield column


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
    node, negated = unwrapped(condition)
    kind = "ANTI" if negated else "SEMI"
    if isinstance(node, exp.In) and node.args.get("query") is not None:
        query = query_of(node)
        values = compared_of(node)
        if is_correlated(query):
            _check_value(text, query)
            return SubqueryJoin(_of_rows(text, query, kind), values, _columns(text, query, len(values)))
        return SubqueryJoin(
            exp.Join(this=table_of(_with_different_names(query), alias), kind=kind, side="LEFT"), values
        )
    if is_exists(node):
        return SubqueryJoin(_of_rows(text, inside(node), kind), ())
    return None


def _with_different_names(query: exp.Expr) -> exp.Expr:
    """The SELECT of IN, whose columns are compared by their order, with another name for a column of the name of an earlier one."""
    if not isinstance(query, exp.Select):
        return query
    names = [item.output_name for item in query.expressions]
    if len(set(names)) == len(names) or "" in names:
        return query
    query = query.copy()
    for number, item in enumerate(list(query.expressions)):
        if names[number] in names[:number]:
            names[number] = new_name(names[number], names)
            item.replace(exp.alias_(item.unalias().copy(), names[number]))
    return query


def with_inner_tables(subquery: SubqueryJoin, right: Relation, taken: Sequence[str]) -> Relation:
    """(a join, its table, aliases of the tables around it) -> the table, whose columns the join names by its alias, as the tables around it may have some of that name.

    A table around it may have its alias too; then it gets another one.
    """
    columns, own = {name.name.lower() for name in right.names}, [name.table for name in right.names][:1]
    before = own[0] if own else ""
    alias = new_name("rows_of_subquery", taken) if before.lower() in {name.lower() for name in taken} else before
    on = subquery.node.args.get("on")
    for part in [*subquery.columns, *([on] if on is not None else [])]:
        for column in part.walk(prune=lambda each: isinstance(each, exp.Query)):
            if not isinstance(column, exp.Column):
                continue
            if len(column.parts) == 1 and column.name.lower() in columns:
                column.set("table", exp.to_identifier(alias, quoted=True))
            elif len(column.parts) > 1 and column.parts[0].name.lower() == before.lower():
                column.parts[0].set("this", alias)
    return right if alias == before else right.renamed(alias)


def is_exists(node: exp.Expr) -> bool:
    """Whether a node is EXISTS (SELECT ...), and not ``exists`` of an array."""
    return isinstance(node, exp.Exists) and isinstance(node.this, exp.Query)


def inside(node: exp.Expr) -> exp.Expr:
    """The SELECT in parentheses of a subquery or of EXISTS."""
    inner: exp.Expr = node.this
    return inner.this if isinstance(inner, exp.Subquery) else inner


def unwrapped(condition: exp.Expr) -> tuple[exp.Expr, bool]:
    """A condition without NOT and parentheses around it, and whether it is negated."""
    node, negated = condition, False
    while isinstance(node, (exp.Not, exp.Paren)):
        negated ^= isinstance(node, exp.Not)
        node = node.this
    return node, negated


def query_of(node: exp.In) -> exp.Expr:
    """The SELECT of ``x IN (SELECT ...)``."""
    query: exp.Expr = node.args["query"]
    return query.this if isinstance(query, exp.Subquery) else query


def table_of(query: exp.Expr, alias: str) -> exp.Subquery:
    """A SELECT as a table of FROM."""
    table = exp.Subquery(this=query, alias=exp.TableAlias(this=exp.to_identifier(alias)))
    table.meta.update(query.meta)
    return table


def is_correlated(query: exp.Expr) -> bool:
    """Whether the WHERE of a SELECT names a column of a table that its FROM lacks."""
    where, begin = query.args.get("where"), query.args.get("from_")
    tables: list[exp.Expr] = [*query.find_all(exp.Table, exp.Subquery)]
    tables += [begin.this] if begin is not None else []  # a window over a table has its name elsewhere
    tables += [join.this for join in query.args.get("joins") or []]
    return where is not None and is_outer(where, {table.alias_or_name.lower() for table in tables})


def compared_of(node: exp.In) -> tuple[exp.Expr, ...]:
    """The values that IN compares: one, or several in parentheses."""
    value = node.this
    return tuple(value.expressions) if isinstance(value, exp.Tuple) else (value,)


def other_columns(text: Text, query: exp.Expr, columns: int, values: int) -> DefinitionError:
    """DEFINITION-382: IN (SELECT ...) has other columns than values are compared with them."""
    fix = "Select the column that is compared, alone; several are compared in parentheses: (a, b) IN (SELECT x, y ...)."
    return unsayable(text, query, f"{columns} columns in IN (SELECT ...) for {values}", fix)


def _columns(text: Text, query: exp.Expr, values: int) -> tuple[exp.Expr, ...]:
    columns = query.expressions
    if len(columns) != values or any(column.is_star for column in columns):
        raise other_columns(text, query, len(columns), values)
    return tuple(column.unalias() for column in columns)


def outer_columns(condition: exp.Expr) -> Iterator[exp.Column]:
    """The columns of a condition with subqueries that belong to the statement around these: those outside, and those inside of a table that is not theirs."""
    for column in condition.find_all(exp.Column):
        queries = [part for part in _around(column, condition) if isinstance(part, exp.Query)]
        inner = {table.alias_or_name.lower() for query in queries for table in query.find_all(exp.Table, exp.Subquery)}
        if not queries or (column.table and column.table.lower() not in inner):
            yield column


def _around(node: exp.Expr, top: exp.Expr) -> Iterator[exp.Expr]:
    """The expressions around a part of one, the outermost last."""
    while node is not top and node.parent is not None:
        node = node.parent
        yield node


def _of_rows(text: Text, query: exp.Expr, kind: str) -> exp.Join:
    """The join with the rows of a subquery, whose WHERE may name columns of the statement around it."""
    if isinstance(query, exp.Select):
        check_rows(text, query)
    plain = isinstance(query, exp.Select) and not any(
        query.args.get(name) for name in ("group", "having", "joins", "distinct", "with_", "qualify", "limit")
    )
    if not plain or query.args.get("from_") is None:
        fix = "Read one table in it, SELECT 1 FROM t WHERE t.k = outer.k; or write a join: LEFT SEMI JOIN, LEFT ANTI JOIN."
        what = "a subquery that reads columns of the statement around it" if is_correlated(query) else "EXISTS"
        raise unsayable(text, query, f"{what}, of more than the rows of a table", fix)
    check_clauses(text, query)
    where = query.args.get("where")
    table = query.args["from_"].this
    conditions = list(conjuncts(where.this if where is not None else None))
    within = [part for part in conditions if part.find(exp.Query) and not is_outer(part, {table.alias_or_name.lower()})]
    if within:  # a subquery in a subquery is one of its table's rows
        rows = exp.Select(expressions=[exp.Star()], from_=exp.From(this=table))
        rows.set("where", exp.Where(this=exp.and_(*within, copy=False)))
        rows.meta.update(query.meta)
        table = table_of(rows, table.alias_or_name)
    left = [part for part in conditions if part not in within]
    on = where.this if where is not None and not within else exp.and_(*left, copy=False) if left else None
    return exp.Join(this=table, kind=kind, side="LEFT", on=on)


def has_aggregate(item: exp.Expr) -> bool:
    """Whether an expression reads an aggregate over groups."""
    return any(map(is_aggregate, item.walk(prune=lambda each: isinstance(each, (exp.Query, exp.Window)))))


def _check_value(text: Text, query: exp.Expr) -> None:
    """Refuse an aggregate in IN (SELECT ...) that reads columns of the statement around it: it is one value of each row."""
    if isinstance(query, exp.Select) and query.args.get("group") is None and any(map(has_aggregate, query.expressions)):
        fix = "Compare its value: x = (SELECT COUNT(*) FROM t WHERE t.k = outer.k), or <> in place of NOT IN."
        raise unsayable(text, query, "an aggregate of each row in IN (SELECT ...)", fix)


def check_rows(text: Text, query: exp.Expr) -> None:
    """Refuse a SELECT in EXISTS that has other rows than its table: one by an aggregate, several or none by a function that makes rows."""
    if not isinstance(query, exp.Select) or query.args.get("group") is not None:
        return
    if any(map(has_aggregate, query.expressions)):
        fix = "Compare its value, (SELECT COUNT(*) FROM t WHERE ...) > 0; or select a constant, EXISTS (SELECT 1 FROM t WHERE ...)."
        raise unsayable(text, query, "an aggregate in EXISTS, which is one row, so that EXISTS is true", fix)
    if any(item.find(*MAKES_ROWS) for item in query.expressions):
        raise unsayable(text, query, "a function in EXISTS that makes several rows of one", "Write it in FROM.")


def is_outer(node: exp.Expr, inner: set[str]) -> bool:
    """Whether a part of a subquery names a table that the subquery does not read."""
    return any(column.table and column.table.lower() not in inner for column in node.find_all(exp.Column))


def tables_within(query: exp.Select) -> set[str]:
    """The names, lower case, by which a SELECT reads its tables."""
    sources = [query.args["from_"].this, *(join.this for join in query.args.get("joins") or [])]
    return {source.alias_or_name.lower() for source in sources}


def equality(condition: exp.Expr, inner: set[str]) -> tuple[exp.Expr, exp.Expr] | None:
    """(side of the subquery, side of the statement around it) of an equality of these two; None for another condition.

    Args:
        condition: of the subquery's WHERE.
        inner: names of the tables that it reads.
    """
    sides = [condition.left, condition.right] if isinstance(condition, exp.EQ) else []
    own = [side for side in sides if not is_outer(side, inner)]
    outer = [
        side for side in sides if all(column.table.lower() not in {*inner, ""} for column in side.find_all(exp.Column))
    ]
    return (own[0], outer[0]) if len(own) == len(outer) == 1 and own[0] is not outer[0] else None
