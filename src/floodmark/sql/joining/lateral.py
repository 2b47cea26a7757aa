"""``LATERAL (SELECT ...)``, a SELECT for each row, as a join: conditions with the rows before it become those of the join.

An aggregate is one of each key, and first rows are those of each key, so they need equalities with the rows before.
Source: Galindo-Legaria, Joshi 2001, "Orthogonal Optimization of Subqueries and Aggregation"; the first rows as in Flink's top-n.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from sqlglot import exp

from floodmark.sql.dialect import SPAN
from floodmark.sql.joining.joins import conjuncts
from floodmark.sql.joining.scalars import check_without_rows, is_never_null, with_order
from floodmark.sql.joining.subqueries import equality, is_outer, table_of, tables_within
from floodmark.sql.measures import is_aggregate
from floodmark.sql.refusals import unsayable
from floodmark.sql.relation import MADE, Relation, or_empty
from floodmark.sql.text import Text, span_of

_KEY = "of_row"
"""Begins the names of columns that are compared with the rows before."""
NEVER_NULL = "never null"
"""Entry in the meta of a join: the positions of its table's counts and arrays, which are 0 and empty of no rows."""


def with_lateral(text: Text, node: exp.Select) -> exp.Select:
    """(SELECT) -> the SELECT with LATERAL (SELECT ...) as joins.

    Raises:
        DefinitionError: DEFINITION-382, a SELECT for each row that is no join.
    """
    if not any(map(_is_lateral, node.args.get("joins") or ())):
        return node
    node = node.copy()
    star = next((part for part in node.expressions if part.is_star), None)
    written = [
        join for join in node.args["joins"] if _is_lateral(join) and join.this.alias not in node.meta.get(MADE, ())
    ]
    if star is not None and written:
        raise unsayable(text, star, "* beside LATERAL (SELECT ...)", "Name the columns.")
    for join in written:
        if isinstance(join.this.this.this, exp.Select):
            with_order(text, join.this.this.this)
    for join in node.args["joins"]:
        if _is_lateral(join):
            _Lateral(text, join).join()
    return node


def _is_lateral(join: exp.Expr) -> bool:
    return isinstance(join.this, exp.Lateral) and isinstance(join.this.this, exp.Subquery)


@dataclass(slots=True)
class _Lateral:
    """A join with LATERAL (SELECT ...).

    Args:
        text: of the statement.
        node: the join, which becomes a join of tables.
    """

    text: Text
    node: exp.Join
    keys: list[exp.Expr] = field(default_factory=list)
    """Expressions over the SELECT's own tables that the join compares."""
    on: list[exp.Expr] = field(default_factory=list)

    def join(self) -> None:
        """Turn the join into one of tables."""
        alias, query = self.node.this.args.get("alias"), self.node.this.this.this
        fix = "Write a SELECT of columns, of aggregates or of first rows: ORDER BY x LIMIT 3, WHERE b.k = a.k, with an alias: LATERAL (SELECT ...) AS t."
        on = self.node.args.get("on")
        plain = isinstance(query, exp.Select) and not any(
            query.args.get(name) for name in ("distinct", "qualify", "with_", "having", "offset")
        )
        on_true = on is None or (isinstance(on, exp.Boolean) and bool(on.this))
        if alias is None or not plain or not on_true or str(self.node.side).upper() not in {"", "LEFT"}:
            raise unsayable(self.text, query, "LATERAL of another SELECT or without an alias", fix)
        self._split(query, alias.this.name)
        single = query.args.get("group") is None and any(
            is_aggregate(part) for item in query.expressions for part in item.walk()
        )
        if query.args.get("limit") is not None or query.args.get("order") is not None:
            self._first(query, aggregated=single or query.args.get("group") is not None)
        if single or query.args.get("group") is not None:
            group = query.args.get("group") or exp.Group(expressions=[])
            group.set("expressions", [*group.expressions, *(key.copy() for key in self.keys)])
            query.set("group", group if group.expressions else None)
        if single:
            self._mark(query)
        keys = [exp.alias_(key, f"{_KEY}_{number}") for number, key in enumerate(self.keys)]
        query.set("expressions", [*query.expressions, *keys])
        table = table_of(query, alias.this.name)
        table.set("alias", alias)
        self.node.set("this", table)
        self.node.set("side", "LEFT" if single else self.node.args.get("side"))
        self.node.set("kind", "" if self.on or single else "CROSS")
        self.node.set("on", exp.and_(*self.on, copy=False) if self.on else None)

    def _split(self, query: exp.Select, alias: str) -> None:
        """Take the conditions with the rows before out of WHERE."""
        if query.args.get("from_") is None:
            raise unsayable(self.text, query, "LATERAL (SELECT ...) without FROM", "Write the expression in SELECT.")
        inner = tables_within(query)
        where, own = query.args.get("where"), list[exp.Expr]()
        aggregated = query.args.get("group") is not None or query.args.get("limit") is not None
        aggregated = aggregated or any(is_aggregate(part) for item in query.expressions for part in item.walk())
        for condition in conjuncts(where.this if where is not None else None):
            if not is_outer(condition, inner):
                own.append(condition)
                continue
            if pair := equality(condition, inner):
                self.on.append(exp.EQ(this=pair[1], expression=self._compared(pair[0], alias)))
            elif aggregated:
                fix = "Write equalities alone where aggregates or first rows are of each row: b.k = a.k; other conditions are those of a join."
                raise unsayable(self.text, condition, "another condition with the rows before in LATERAL", fix)
            else:
                for column in list(condition.find_all(exp.Column)):
                    if not is_outer(column, inner):
                        column.replace(self._compared(column.copy(), alias))
                self.on.append(condition)
        query.set("where", exp.Where(this=exp.and_(*own, copy=False)) if own else None)

    def _compared(self, node: exp.Expr, alias: str) -> exp.Column:
        """The column of the join's table that an expression over the SELECT's own tables becomes."""
        column = exp.column(f"{_KEY}_{len(self.keys)}", table=alias)
        column.meta[SPAN] = span_of(node)
        self.keys.append(node)
        return column

    def _first(self, query: exp.Select, *, aggregated: bool) -> None:
        """ORDER BY and LIMIT as the first rows of each key."""
        order, limit = query.args.get("order"), query.args.get("limit")
        if limit is None or order is None or aggregated:
            fix = "Write ORDER BY x LIMIT 3 of a SELECT of columns; a row has no order within a table."
            raise unsayable(self.text, query, "ORDER BY or LIMIT in another LATERAL", fix)
        number = exp.Window(this=exp.RowNumber(), partition_by=[key.copy() for key in self.keys], order=order)
        number.meta[SPAN] = order.expressions[0].this.meta.get(SPAN) or span_of(order.expressions[0].this)
        first = exp.LTE(this=number, expression=limit.expression)
        first.meta[SPAN] = number.meta[SPAN]
        query.set("order", None)
        query.set("limit", None)
        query.set("qualify", exp.Qualify(this=first))

    def _mark(self, query: exp.Select) -> None:
        """Note which columns have a value of no rows."""
        for item in query.expressions:
            check_without_rows(self.text, item.unalias())
        positions = [n for n, item in enumerate(query.expressions) if is_never_null(item.unalias())]
        self.node.meta[NEVER_NULL] = positions


def without_nulls(relation: Relation, join: exp.Join, right: Relation) -> Relation:
    """The rows of a join, in which the counts and arrays of its table are 0 and empty where they are of no rows."""
    own = {(right.names[number].table, right.names[number].name) for number in join.meta.get(NEVER_NULL, ())}
    types = relation.stream.schema.types
    values: dict[str, Any] = {
        name.column: or_empty(name.text, types[name.column])
        for name in relation.names
        if (name.table, name.name) in own
    }
    return replace(relation, stream=relation.stream.with_columns(**values)) if values else relation
