"""ORDER BY and LIMIT at the end of a statement: rows in order of event time, and the first rows of all."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from sqlglot import exp

from floodmark.spec.expressions import itself
from floodmark.spec.graph import steps
from floodmark.spec.graph.over import over_rows
from floodmark.spec.graph.stream import KeyedStream, Stream
from floodmark.spec.keyed.over import Measure
from floodmark.spec.windowing.frames import ALL_ROWS, Frame, row_number
from floodmark.spec.windowing.windows import Global
from floodmark.sql.dialect import CHANGES, FINAL
from floodmark.sql.measures import is_aggregate
from floodmark.sql.options import Options
from floodmark.sql.over.computed import sorted_by
from floodmark.sql.over.results import sort_of
from floodmark.sql.refusals import LIMITED, SORTED, unsayable
from floodmark.sql.relation import EVENT_TIME, Name, Relation, Sorted
from floodmark.sql.text import Text, new_name
from floodmark.sql.windows import is_clock

ORDERED = "ordered"
"""Entry in the meta of a SELECT: the columns of ORDER BY that it may not select."""
_SELECT = "select()"
"""The table of the columns of SELECT, where those of FROM are beside them."""


@dataclass(frozen=True, slots=True)
class Tail:
    """The end of a statement.

    Args:
        order: the parts of ORDER BY.
        limit: the number of LIMIT; None for all rows.
        offset: the number of OFFSET behind LIMIT.
    """

    order: tuple[exp.Expr, ...] = ()
    limit: exp.Expr | None = None
    offset: exp.Expr | None = None

    def __bool__(self) -> bool:
        return bool(self.order) or self.limit is not None

    def over(self, text: Text, result: Relation, before: Relation, emit: str, options: Options) -> Relation:
        """The rows of a SELECT as its end says.

        Args:
            text: of the statement.
            result: the rows.
            before: the rows of FROM, whose times the order may name too.
            emit: what EMIT says.
            options: of the step with state.

        Raises:
            DefinitionError: DEFINITION-382, an order in which a stream does not come, first rows without EMIT CHANGES, neither at the end of the input.
        """
        if self.limit is None and (emit != FINAL or self._in_order(text, result, before)):
            return self._sorted(text, result, before, emit, options)
        if emit not in {CHANGES, FINAL}:
            raise unsayable(text, self.limit or self.order[0], "LIMIT", LIMITED)
        most, behind = _whole(text, self.limit, "LIMIT", 1) or ALL_ROWS, _whole(text, self.offset, "OFFSET", 0) or 0
        clocked, over, order = self._clocked(text, result, before), result, self.order
        others = {} if clocked else _others(text, order, result, before)
        if others:
            over = _with_columns_of(others, before, result)
            order = tuple(_qualified(text, part, result) for part in order) if over is not result else order
        parts = () if clocked else tuple(_sorted_part(text, part, over) for part in order)
        stream, by = sorted_by(over.stream, parts)
        latest = clocked and bool(self.order[0].args.get("desc"))
        keyed = KeyedStream(stream, ())
        number = new_name("place", stream.schema.names) if behind else ""
        settings: dict[str, Any] = {"latest": latest, "number": number}
        rows = keyed.window(Global()) if emit == FINAL else keyed
        first = rows.top(most + behind, by, **settings)
        first = first.filter(f"{itself(number)} > {behind}") if behind else first
        names = tuple(replace(name, time=False) for name in result.names)
        return replace(result, stream=_only(first, result.stream), names=names, spans=None)

    def keeps_numbers(self, text: Text, result: Relation, before: Relation) -> bool:
        """Whether the first rows have among themselves the numbers that they have among all: their order is that of the numbers, and none is left out before them."""
        ranked = result.ranked
        if ranked is None or self.offset is not None:
            return False
        keys, parts = {key for _, key in ranked.keys}, list[tuple[str, bool, bool]]()
        for part in self.order:
            key = _selected(text, part.this, result, before)
            if key is None:
                return False
            if parts or key not in keys:  # in the order of its keys the first rows are the first ones of each key
                parts.append((key, bool(part.args.get("desc")), bool(part.args.get("nulls_first"))))
        if parts != [(by.text, by.descending, by.nulls_first) for by in ranked.order]:
            return False
        return bool(self.order)

    def check_numbered(self, text: Text, result: Relation, before: Relation) -> None:
        """Refuse first rows by columns that are not in SELECT, of rows that have a number: all rows are numbered first, and then only the columns of SELECT are left.

        Raises:
            DefinitionError: DEFINITION-382.
        """
        if result.ranked is None or self.limit is None or self._clocked(text, result, before):
            return
        if others := _others(text, self.order, result, before):
            fix = f"Select the column too, and order by it without its table: SELECT ..., {next(iter(others)).strip('`')}, ... ORDER BY ... LIMIT n."
            raise unsayable(
                text,
                self.order[0],
                "first rows in the order of a column that is not in SELECT, beside a number of rows",
                fix,
            )

    def _in_order(self, text: Text, result: Relation, before: Relation) -> bool:
        """Whether the order is one in which the rows of a stream come."""
        if len(self.order) != 1 or self.order[0].args.get("desc"):
            return False
        return self._clocked(text, result, before) or self._timed(text, result, before)

    def _sorted(self, text: Text, result: Relation, before: Relation, emit: str, options: Options) -> Relation:
        """The rows in the order of ORDER BY, which is that in which they come, or that of event time."""
        ascending = len(self.order) == 1 and not self.order[0].args.get("desc")
        if ascending and self._clocked(text, result, before):
            return result
        if not ascending or emit == CHANGES or not self._timed(text, result, before):
            raise unsayable(text, self.order[0], "ORDER BY", SORTED)
        stream: Stream[Any] = result.stream
        number = new_name("row_number", stream.schema.names)
        measures = [Measure(number, row_number(), Frame())]
        ordered = over_rows(KeyedStream(stream, ()), measures, late=options.late_of(stream), on_error=options.on_error)
        return replace(result, stream=_only(ordered, stream))

    def _clocked(self, text: Text, result: Relation, before: Relation) -> bool:
        column = self.order[0].this if len(self.order) == 1 else None
        if not isinstance(column, exp.Expr):
            return False
        return is_clock(column, _located(text, column, result, before))

    def _timed(self, text: Text, result: Relation, before: Relation) -> bool:
        column = self.order[0].this
        if not isinstance(column, exp.Column):
            return False
        located = _located(text, column, result, before)
        return located[0].time if located is not None else column.name.lower() == EVENT_TIME


def _whole(text: Text, node: exp.Expr | None, word: str, least: int) -> int | None:
    """The number of LIMIT or OFFSET; None without one."""
    if node is None:
        return None
    if not (isinstance(node, exp.Literal) and node.is_int and int(node.this) >= least):
        raise unsayable(text, node, f"{word} by another number than a whole one from {least}", f"Write {word} 10.")
    return int(node.this)


def _sorted_part(text: Text, part: exp.Expr, result: Relation) -> Sorted:
    """A part of ORDER BY; a number is that of a column of SELECT."""
    aggregate = next((node for node in part.walk() if is_aggregate(node)), None)
    if aggregate is not None:
        fix = "Select it, and order by its name: SELECT k, MAX(x) AS most FROM t GROUP BY k ORDER BY most LIMIT 10 EMIT CHANGES."
        raise unsayable(text, aggregate, "an aggregate in ORDER BY", fix)
    if not isinstance(part.this, exp.Literal) or part.this.is_string:
        return sort_of(text, part, result)
    columns = [name for name in result.names if name.column]
    number = int(part.this.this) if part.this.is_int else 0
    if not 1 <= number <= len(columns):
        fix = f"Write a number from 1 to {len(columns)}, or the column's name."
        raise unsayable(text, part, f"ORDER BY {part.this.this}, which is no column of SELECT", fix)
    name = columns[number - 1]
    return Sorted(
        text=name.text,
        column=name.column,
        time=name.time,
        descending=bool(part.args.get("desc")),
        nulls_first=bool(part.args.get("nulls_first")),
    )


def _located(text: Text, node: exp.Expr, result: Relation, before: Relation) -> tuple[Name, exp.Expr] | None:
    """The column of SELECT that an expression is, else that of FROM; one with its table is of FROM."""
    if not isinstance(node, exp.Column):
        return None
    located = result.find(text, node) if len(node.parts) == 1 else None
    return located if located is not None else before.find(text, node)


def _selected(text: Text, node: exp.Expr, result: Relation, before: Relation) -> str | None:
    """The text of the column of SELECT that an expression is, also by its name and table in FROM; None where it is none."""
    if not isinstance(node, exp.Column):
        return None
    located = result.find(text, node) if len(node.parts) == 1 else None
    if located is not None:
        return located[0].text
    of_table, step = before.find(text, node), result.stream.step
    if of_table is None:
        return None
    columns = (
        step.columns
        if isinstance(step, steps.Project)
        else [(name, itself(name)) for name in result.stream.schema.names]
    )
    return next((itself(name) for name, made in columns if made == of_table[0].text), None)


def _others(text: Text, order: tuple[exp.Expr, ...], result: Relation, before: Relation) -> dict[str, Name]:
    """Text -> column, of the columns in ORDER BY that are named by their table, or that SELECT does not have."""
    columns = [column for part in order for column in part.find_all(exp.Column)]
    others = [column for column in columns if len(column.parts) > 1 or result.find(text, column) is None]
    located = [name for column in others if (name := before.find(text, column)) is not None]
    return {name.text: name for name, _ in located if name.text}


def _qualified(text: Text, part: exp.Expr, result: Relation) -> exp.Expr:
    """A part of ORDER BY in which the columns of SELECT have a table of their own."""
    part = part.copy()
    for column in list(part.find_all(exp.Column)):
        if len(column.parts) == 1 and result.find(text, column) is not None:
            column.set("table", exp.to_identifier(_SELECT, quoted=True))
    return part


def _with_columns_of(others: Mapping[str, Name], before: Relation, result: Relation) -> Relation:
    """The rows of a SELECT, with columns of FROM beside its own; as they are where the SELECT is no list of expressions over these."""
    step = result.stream.step
    if not isinstance(step, steps.Project) or step.parent != before.stream.step:
        return result
    columns: dict[str, Any] = dict(step.columns)
    for name in others.values():
        columns[new_name(f"{name.column or name.name}_of_row", list(columns))] = name.text
    stream = before.stream.select(on_error=step.on_error, **columns)
    hidden = {text: column for column, text in list(columns.items())[len(step.columns) :]}
    names = (replace(name, column=hidden[text], text=itself(hidden[text])) for text, name in others.items())
    return replace(result, stream=stream, names=(*result.renamed(_SELECT).names, *names))


def _only(stream: Stream[Any], like: Stream[Any]) -> Stream[Any]:
    """The columns of another stream alone."""
    names = like.schema.names
    return stream if stream.schema.names == names else stream.select(*names)


def taken(tree: exp.Expr) -> Tail:
    """ORDER BY and LIMIT of a SELECT, which are taken out of it."""
    if not isinstance(tree, exp.Select):
        return Tail()
    order, limit = tree.args.get("order"), tree.args.get("limit")
    tree.set("order", None)
    if order is not None:
        selected = {part.alias_or_name for part in tree.expressions}
        columns = [column for part in order.expressions for column in part.find_all(exp.Column)]
        tree.meta[ORDERED] = [column for column in columns if column.table or column.name not in selected]
    if isinstance(limit, exp.Limit):
        tree.set("limit", None)
    number, behind = limit.expression if isinstance(limit, exp.Limit) else None, None
    if number is not None and tree.args.get("offset") is not None:
        behind = tree.args["offset"].expression
        tree.set("offset", None)
    return Tail(tuple(order.expressions) if order is not None else (), number, behind)
