"""A statement becomes a stream: FROM, WHERE, GROUP BY, HAVING and SELECT, in this order, each as steps of the fluent API."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from sqlglot import exp

from floodmark.core.errors import DefinitionError
from floodmark.spec.expressions import itself
from floodmark.spec.graph import steps
from floodmark.spec.graph.stream import Stream
from floodmark.spec.keyed.matching import Deduplicate
from floodmark.spec.keyed.regular import RegularJoin
from floodmark.spec.keyed.top import Unique
from floodmark.spec.windowing.windows import Session
from floodmark.sql.columns import Columns, Layers, column_node, is_bound
from floodmark.sql.dialect import CHANGES, FINAL, WindowTable
from floodmark.sql.functions import with_results
from floodmark.sql.grouping import Grouping
from floodmark.sql.joining.constants import single_row
from floodmark.sql.joining.from_clause import FIRSTS, FromClause, Tables
from floodmark.sql.joining.lateral import with_lateral
from floodmark.sql.joining.marks import named_columns
from floodmark.sql.joining.reads import Reads
from floodmark.sql.joining.scalars import with_aggregates, with_first_rows
from floodmark.sql.measures import is_aggregate
from floodmark.sql.options import Options
from floodmark.sql.over.computed import numbered, overs
from floodmark.sql.over.results import ALWAYS, NEVER, WHERE_NEEDED, Changing
from floodmark.sql.ranking import first_rows, firsts_of, is_numbering
from floodmark.sql.refusals import check_clauses, check_statement, ttl_of, unsayable
from floodmark.sql.relation import Item, Relation
from floodmark.sql.rows.combinations import branches, combined
from floodmark.sql.rows.tail import Tail, taken
from floodmark.sql.text import Text


def tables_of(tree: exp.Expr) -> list[exp.Table]:
    """The tables that a statement reads, which are no names of its WITH; each once."""
    tables = [t for t in tree.find_all(exp.Table) if not _is_of_with(t) and not t.find_ancestor(exp.Hint)]
    return list({table.name: table for table in sorted(tables, key=_position)}.values())


def _is_of_with(table: exp.Table) -> bool:
    """Whether a table is a name of a WITH around it: within a part of WITH itself the earlier parts have names, and the part's own is another table's."""
    node: exp.Expr = table
    part: exp.Expr | None = None
    while node.parent is not None:
        part = node if isinstance(node, exp.CTE) else part
        with_ = node.parent.args.get("with_")
        for named in with_.expressions if with_ is not None else ():
            if node is with_ and named is part and not with_.args.get("recursive"):
                break
            if named.alias.lower() == table.name.lower():
                return True
        node = node.parent
    return False


def _position(table: exp.Table) -> int:
    return int(table.this.meta.get("start", 0)) if isinstance(table.this, exp.Identifier) else 0


class Statement:
    """A statement over its inputs.

    Args:
        text: of the statement.
        tree: of the text.
        options: of the step with state.
    """

    def __init__(self, text: Text, tree: exp.Expr, options: Options) -> None:
        self.text, self.tree, self.ttl = text, tree, ttl_of(tree)
        if self.ttl:
            joins = tree.find(exp.Join) is not None
            ttl = "" if joins else self.ttl
            options = replace(options, within=options.within or self.ttl, ttl=options.ttl or ttl)
        self.emit, self.tail = str(tree.meta.get("emit", "")), taken(tree)
        self.options = options if self.emit == CHANGES else replace(options, changing=frozenset())
        self.from_ = FromClause(text, self.options, self.query, self._numbered, self._firsts)
        self.columns = Columns(text, tree, self.options)

    def stream(self, tables: Tables) -> Stream:
        """(rows of each input) -> the rows of the result.

        Raises:
            DefinitionError: DEFINITION-380 to 399, and those of the steps.
            CapabilityError: those of the steps.
        """
        if self.emit == CHANGES:
            self.from_.single_row = single_row(tables.values())
        relation = self._rows(tables)
        walked = list(steps.walk(relation.stream.step))
        if self.ttl and not any(map(_holds_rows, walked)) and not any(map(_lives, walked)):
            fix = "Take it out: only aggregates without a window, first rows, joins of rows of any time and SELECT DISTINCT hold their state for as long as it says."
            raise unsayable(self.text, self.tree, "STATE_TTL of a statement whose state has an end", fix)
        if self.options.ttl and not self.ttl and not any(map(_lives, walked)):
            fix = "Leave ttl out: it is of aggregates without a window and of first rows, with EMIT CHANGES; rows of joins are held for `within`."
            raise unsayable(self.text, self.tree, "ttl of a statement without such state", fix)
        if relation.windowed is not None:
            fix = "Aggregate over it: GROUP BY window_start, window_end; or join two tables of one window."
            raise DefinitionError(
                self.text.at(self.tree), "a window that is aggregated", "rows of a window", fix, code="DEFINITION-384"
            )
        return self._numbered(relation, self.tree, self.emit).stream

    def _rows(self, tables: Tables) -> Relation:
        """The rows of the statement; a window that divides none of them is two columns of its rows."""
        refusal: DefinitionError | None = None
        try:
            relation = self.query(self.tree, tables)
        except DefinitionError as error:
            refusal = error
        if (refusal is None and relation.windowed is None) or self.tree.find(WindowTable) is None:
            if refusal is not None:
                raise refusal
            return relation
        self.from_.bounds_of_rows = True
        try:
            return self.query(self.tree, tables)
        except DefinitionError as error:
            raise refusal or error from None

    def _numbered(self, relation: Relation, node: exp.Expr, emit: str = "") -> Relation:
        """The rows of a relation with the numbering that it says, where no first rows are taken of it, and no columns but those that it names."""
        if relation.ranked is None:
            return relation
        relation = numbered(self.text, node, relation, self.options, self._changing(relation, emit))
        columns: dict[str, Any] = {name.name: name.text for name in relation.names if name.text}
        names = [
            replace(name, text=itself(name.name), column=name.name) if name.text else name for name in relation.names
        ]
        return replace(relation, stream=relation.stream.select(**columns), names=tuple(names))

    def _firsts(
        self, node: exp.Select, relation: Relation, conditions: list[exp.Expr]
    ) -> tuple[Relation, list[exp.Expr]]:
        """The first rows of a relation that WHERE takes, with their number, and the conditions that are left; the same rows where it takes none."""
        qualified = node.args.get("qualify") is not None
        where, firsts = (
            (conditions, None) if qualified else firsts_of(self.text, node, conditions, relation, changing=True)
        )
        if firsts is None:
            return relation, conditions
        emits = str(node.meta.get("emit", "")), self.emit
        relation = first_rows(self.text, node, relation, replace(firsts, shown=True), emits, self.options)
        node.meta[FIRSTS] = True
        return relation, [*where, *firsts.left]

    def query(self, node: exp.Expr, tables: Tables) -> Relation:
        """The rows of a SELECT, or of several by UNION, INTERSECT or EXCEPT."""
        check_statement(self.text, node)
        tail = self.tail if node is self.tree else Tail()
        if node is not self.tree and self.emit == CHANGES and node.args.get("limit") is not None:
            node = node.copy()
            tail = taken(node)
        check_clauses(self.text, node)
        if isinstance(node, exp.Subquery):
            return self.query(node.this, tables)
        with_ = node.args.get("with_")
        for cte in with_.expressions if with_ is not None else ():
            rows = self.query(cte.this, tables).with_columns(self.text, cte.args.get("alias"))
            tables = {**tables, cte.alias.lower(): rows}
        if isinstance(node, exp.SetOperation):
            return self._set_operation(node, tables)
        assert isinstance(node, exp.Select)
        return self._select(node, tables, tail)

    def _set_operation(self, node: exp.SetOperation, tables: Tables) -> Relation:
        own, around = str(node.meta.get("emit", "")), self.emit
        self.emit = own or around
        try:
            parts = [self._numbered(self.query(part, tables), part) for part in branches(node)]
        finally:
            self.emit = around
        result = combined(self.text, node, parts, changing=CHANGES in {own, around})
        if own == CHANGES and not _grows(result.stream):
            raise unsayable(self.text, node.expression, "EMIT CHANGES of rows that do not change", "Leave it out.")
        return result

    def _select(self, node: exp.Select, tables: Tables, tail: Tail) -> Relation:
        """The rows of a SELECT; with a tail the first of them, which in a subquery are those so far."""
        emit = str(node.meta.get("emit", ""))
        before, result = self._selected(node, tables, emit)
        emit = emit if node is self.tree else self.emit
        if not tail:
            return result
        if not tail.keeps_numbers(self.text, result, before):
            tail.check_numbered(self.text, result, before)
            result = self._numbered(result, node, emit)
        return tail.over(self.text, result, before, emit, self.options)

    def _selected(self, node: exp.Select, tables: Tables, emit: str) -> tuple[Relation, Relation]:
        """The rows behind WHERE, and the columns of SELECT over them."""
        limited = node is self.tree and self.tail.limit is not None
        node = node.copy() if self.options.functions else node  # calls in it become columns
        if CHANGES in {emit, self.emit}:
            node = with_lateral(self.text, with_first_rows(self.text, named_columns(self.text, node)))
            node = with_aggregates(self.text, node)
        relation, items, changes = self._behind_where(node, tables, emit)
        aggregated = any(is_aggregate(part) for _, value in items for part in _grouping_parts(value))
        distinct = node.args.get("distinct") is not None
        over = [value for _, value in items if next(overs(value), None) is not None]
        bounds = relation.windowed is not None and any(is_bound(value, relation) for _, value in items)
        alone = node.args.get("group") is None and not aggregated and not bounds
        if distinct and over and alone and CHANGES in {emit, self.emit}:
            rows = self.columns.over(node, relation, items, self._changing(relation, emit))
            return relation, replace(rows, stream=rows.stream.distinct())
        if distinct and not bounds:
            return relation, self.columns.distinct(
                node, relation, items, (emit, self.emit), changing=_changes(relation.stream)
            )
        if node.args.get("group") is not None or aggregated or node.args.get("having") is not None or distinct:
            if distinct or not any(next(overs(value), None) for _, value in items):
                return relation, self.columns.grouped(node, relation, items, (emit, self.emit), distinct=distinct)
            layers = Layers(self.text, Grouping(self.text, node, relation, items))
            items, emits = layers.outer(items), (emit, self.emit)
            groups = self.columns.grouped(layers.select(node), relation, layers.inner, emits, distinct=False)
            relation = layers.named(groups)
        if emit == CHANGES and not (changes or over or limited or _grows(relation.stream)):
            raise unsayable(self.text, node, "EMIT CHANGES of rows that do not change", "Leave it out.")
        if over and not (len(over) == 1 and is_numbering(over[0])):
            return relation, self.columns.over(node, relation, items, self._changing(relation, emit))
        return relation, self.columns.projected(node, relation, items)

    def _behind_where(self, node: exp.Select, tables: Tables, emit: str) -> tuple[Relation, list[Item], bool]:
        """The rows behind WHERE and QUALIFY, the columns of SELECT over them, and whether they are the first ones of a numbering."""
        text, qualify = self.text, node.args.get("qualify")
        relation, conditions = self._from(node, tables)
        ranked = relation.ranked if qualify is not None else None
        if ranked is not None and Reads(node, ()).number(ranked, node.args["from_"].this):
            relation = self._numbered(relation, node, emit)
        if self.options.functions:
            relation, conditions = with_results(self.text, node, relation, conditions, self.options)
        where, firsts = firsts_of(text, node, conditions, relation, changing=CHANGES in {emit, self.emit})
        if FINAL in {emit, self.emit} and self.options.lateness not in {"0 s", ""}:
            fix = "Leave the lateness out, or EMIT ON WINDOW CLOSE: with lateness each late row revises its window."
            raise unsayable(text, node, "EMIT ON WINDOW CLOSE with lateness", fix)
        if firsts is None:
            relation = numbered(text, node, relation, self.options, self._changing(relation, emit))
            relation = self.from_.filtered(relation, node, where)
            return relation, list(self.columns.items(node, relation)), bool(node.meta.get(FIRSTS))
        if qualify is not None:  # QUALIFY is behind WHERE, and WHERE behind the subquery that ranks
            relation, where = self.from_.filtered(relation, node, where), []
        relation = first_rows(text, node, relation, firsts, (emit, self.emit), self.options)
        relation = self.from_.filtered(relation, node, [*where, *firsts.left])
        items = list(self.columns.items(node, relation))
        if qualify is not None:
            items = [(name, _numbered_item(value, relation, firsts.ranked.name)) for name, value in items]
        return relation, items, True

    def _from(self, node: exp.Select, tables: Tables) -> tuple[Relation, list[exp.Expr]]:
        """The rows of FROM, and the conditions of WHERE; a single row of no columns without FROM."""
        if node.args.get("from_") is not None:
            return self.from_.rows(node, tables, self.emit)
        if self.from_.single_row is None:
            fix = (
                "Name the table whose rows are read: SELECT ... FROM t. Beside a table, as in UNION ALL or a join, a row of constants is there from the "
                "table's first row on where the statement ends with EMIT CHANGES."
            )
            raise unsayable(self.text, node, "a SELECT without FROM", fix)
        where = node.args.get("where")
        return self.from_.single_row, [where.this] if where is not None else []

    def _changing(self, relation: Relation, emit: str) -> Changing:
        """Whether results over these rows may change."""
        if CHANGES not in {emit, self.emit}:
            return NEVER
        return ALWAYS if emit == CHANGES or _changes(relation.stream) else WHERE_NEEDED


def _changes(stream: Stream[Any]) -> bool:
    """Whether rows of a stream may be retracted by its step with state."""
    return any(step.revises for step in steps.walk(stream.step) if isinstance(step, steps.STATEFUL))


def _grows(stream: Stream[Any]) -> bool:
    """Whether a stream needs EMIT CHANGES: its rows change, or a step drops those that have come before, whose state grows with the different rows."""
    keyed = [step for step in steps.walk(stream.step) if isinstance(step, steps.KeyedProcess)]
    return _changes(stream) or any(isinstance(step.function.function, Unique) for step in keyed)


def _holds_rows(step: steps.Step) -> bool:
    """Whether a step is a join of rows of any time, or drops repetitions within a time."""
    return isinstance(step, steps.KeyedProcess) and isinstance(step.function.function, (RegularJoin, Deduplicate))


def _lives(step: steps.Step) -> bool:
    """Whether the state of a step ends by ``ttl``."""
    return isinstance(step, steps.WindowAggregate) and isinstance(step.window, Session) and step.trigger is not None


def _grouping_parts(value: exp.Expr) -> Iterator[exp.Expr]:
    """The parts of an expression, but for those of an OVER."""
    if not isinstance(value, exp.Window):
        yield value
        for part in value.iter_expressions():
            yield from _grouping_parts(part)


def _numbered_item(value: exp.Expr, relation: Relation, number: str) -> exp.Expr:
    """A column of SELECT behind QUALIFY: the number where it is the OVER that QUALIFY names."""
    if not isinstance(value, exp.Window):
        return value
    return column_node(next(name for name in relation.names if name.name == number))
