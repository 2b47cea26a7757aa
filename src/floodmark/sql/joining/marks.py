"""Subqueries in an expression of WHERE as columns: ``CASE WHEN x IN (SELECT y ...) THEN ...`` reads a column that says whether x is among the rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from sqlglot import exp

from floodmark.spec.expressions import itself
from floodmark.spec.windowing.aggregates import count
from floodmark.sql.dialect import SPAN
from floodmark.sql.joining.regular import RegularJoiner
from floodmark.sql.joining.subqueries import (
    is_correlated,
    is_exists,
    other_columns,
    outer_columns,
    query_of,
    table_of,
    unwrapped,
)
from floodmark.sql.options import Options
from floodmark.sql.refusals import unsayable
from floodmark.sql.relation import Name, Relation
from floodmark.sql.text import Text, derived_name, new_name

Rows = Callable[[exp.Expr], Relation]
"""A subquery with an alias -> its rows."""


def with_marks(
    text: Text,
    relation: Relation,
    conditions: Sequence[exp.Expr],
    read: Sequence[exp.Expr],
    rows: Rows,
    options: Options,
) -> tuple[Relation, list[exp.Expr]]:
    """The rows with a column for each IN (SELECT ...) within a condition, and the conditions, which read these columns.

    Args:
        text: of the statement.
        relation: the rows.
        conditions: of WHERE.
        read: other parts of the statement, whose columns the rows keep.
        rows: of a subquery.
        options: of the steps with state.

    Raises:
        DefinitionError: DEFINITION-382, a subquery that reads columns of the statement around it.
    """
    held = list(conditions)
    for at, condition in enumerate(conditions):
        if next(_within(condition), None) is None:
            continue
        held[at] = condition.copy()
        for number, node in enumerate(list(_within(held[at]))):
            mark = _Mark(text, node, f"subquery_{at}_{number}")
            relation = mark.joined(
                relation, rows, [*read, *(column for part in held for column in _read_in(part, relation))], options
            )
            relation = mark.column(relation)
    return relation, held


def _read_in(condition: exp.Expr, relation: Relation) -> Iterator[exp.Column]:
    """The columns of a condition that the rows keep: those of the statement around its subqueries, and, as versions are of the columns too, those inside whose name one column of the rows has."""
    outer = list(outer_columns(condition))
    known = {id(column) for column in outer}
    yield from outer
    for column in condition.find_all(exp.Column):
        named = [name for name in relation.names if column.table.lower() in {"", name.table.lower()}]
        if id(column) not in known and [name.name.lower() for name in named].count(column.name.lower()) == 1:
            yield column


def named_columns(text: Text, node: exp.Select) -> exp.Select:
    """(SELECT) -> a copy in which columns with IN (SELECT ...) have names; the SELECT itself without such columns."""
    if not any(next(_of(part), None) is not None for part in node.expressions):
        return node
    node = node.copy()
    for part in node.expressions:
        if not isinstance(part, exp.Alias) and next(_of(part), None) is not None:
            part.replace(exp.alias_(part.copy(), derived_name(text.of(part)), quoted=True))
    return node


def with_marked_columns(
    text: Text, relation: Relation, node: exp.Select, read: Sequence[exp.Expr], rows: Rows, options: Options
) -> Relation:
    """The rows with a column for each IN (SELECT ...) in the columns of a SELECT, which then read these. Arguments as of ``with_marks``."""
    for number, part in enumerate([inner for item in node.expressions for inner in _of(item)]):
        mark = _Mark(text, part, f"subquery_of_column_{number}")
        relation = mark.joined(relation, rows, [*read, *outer_columns(part)], options)
        relation = mark.column(relation)
    return relation


def made_columns(relation: Relation) -> list[exp.Column]:
    """The columns of a relation that stand for subqueries."""
    made = [name for name in relation.names if name.name.endswith("()")]
    return [exp.column(name.name, table=name.table or None, quoted=True) for name in made]


def _within(condition: exp.Expr) -> Iterator[exp.In]:
    """Each IN (SELECT ...) in a condition that is not the condition itself."""
    node, _ = unwrapped(condition)
    if not is_exists(node):
        yield from _of(node.this if isinstance(node, exp.In) and node.args.get("query") is not None else node)


def _of(node: exp.Expr) -> Iterator[exp.In]:
    """Each IN (SELECT ...) of an expression."""
    inner = [node]
    while inner:
        part = inner.pop(0)
        if isinstance(part, exp.In) and part.args.get("query") is not None:
            yield part
        elif not isinstance(part, exp.Query):
            inner += part.iter_expressions()


class _Mark:
    """One IN (SELECT ...) of an expression; ``alias`` names its rows."""

    def __init__(self, text: Text, node: exp.In, alias: str) -> None:
        self.text, self.node, self.alias = text, node, alias
        self.query = query_of(node)
        if is_correlated(self.query):
            fix = "Take it out of the expression: AND x IN (SELECT y FROM t WHERE t.k = outer.k); or join the table."
            raise unsayable(
                text, self.query, "a subquery in an expression that reads a column of the statement around it", fix
            )
        self.values = f"{alias}_values"

    def joined(self, relation: Relation, rows: Rows, read: Sequence[exp.Expr], options: Options) -> Relation:
        """The rows with the subquery's equal value beside them, and with how many rows it has, and with a value."""
        right = rows(table_of(self.query, self.alias))
        if isinstance(self.node.this, exp.Tuple):
            fix = "Take it out of the expression: AND (a, b) IN (SELECT x, y ...)."
            raise unsayable(self.text, self.query, "several columns in IN (SELECT ...) within an expression", fix)
        if len(right.names) != 1:
            raise other_columns(self.text, self.query, len(right.names), 1)
        value = right.stream.select(value=right.names[0].text)
        marked = value.distinct().with_columns(mark="true")
        relation = self._beside(relation, marked, ("value", "mark"), read, options, compared=self.node.this)
        located = relation.find(self.text, self.node.this) if isinstance(self.node.this, exp.Column) else None
        self.exact = not value.schema["value"].nullable and not (
            located is None or relation.stream.schema[located[0].column].nullable
        )
        if self.exact:
            return relation
        counts = value.rolling(rows=count(), known=count("value"))
        return self._beside(relation, counts, ("rows", "known"), read, options)

    def _beside(
        self,
        relation: Relation,
        stream: Any,
        columns: Sequence[str],
        read: Sequence[exp.Expr],
        options: Options,
        compared: exp.Expr | None = None,
    ) -> Relation:
        alias = self.alias if compared is not None else self.values
        names = tuple(Name(table=alias, name=f"{name}()", column=name, text=itself(name)) for name in columns)
        right = Relation(stream=stream, names=names)
        node = exp.Join(this=table_of(self.query, alias), side="LEFT")
        earlier = made_columns(relation)
        own = [exp.column(name.name, table=name.table, quoted=True) for name in names]
        joiner = RegularJoiner(self.text, node, relation, right, [], [*read, *earlier, *own])
        if compared is not None:
            joiner.computed.append((compared, own[0]))
        return joiner.joined(options)[0]

    def column(self, relation: Relation) -> Relation:
        """The rows with the column that the expression reads in place of the subquery, which is replaced."""
        known = {(name.table, name.name): name.text for name in relation.names}
        equal = f"{known[self.alias, 'mark()']} IS NOT NULL"
        value = relation.scalar(self.text, self.node.this)
        if not self.exact:
            rows, valued = (known[self.values, name] for name in ("rows()", "known()"))
            certain = f"{rows} IS NULL OR {rows} = 0 OR ({value} IS NOT NULL AND {valued} = {rows})"
            equal = f"CASE WHEN {equal} THEN true WHEN {certain} THEN false END"
        node: exp.Expr = self.node
        if SPAN not in node.meta and isinstance(node.parent, exp.Not):  # x NOT IN (...) has one place in the text
            node, equal = node.parent, f"NOT ({equal})"
        column = new_name(self.alias, relation.stream.schema.names)
        read = exp.column(f"{column}()", quoted=True)
        read.meta[SPAN] = node.meta[SPAN]
        node.replace(read)
        columns: dict[str, Any] = {column: equal}
        mark = Name(table="", name=f"{column}()", column=column, text=itself(column))
        names = tuple(name for name in relation.names if name.table not in {self.alias, self.values})
        return replace(relation, stream=relation.stream.with_columns(**columns), names=(*names, mark))
