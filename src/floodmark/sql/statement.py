"""A statement becomes a stream: FROM, WHERE, GROUP BY, HAVING and SELECT, in this order, each as steps of the fluent API."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from sqlglot import exp

from floodmark.core.errors import DefinitionError, closest
from floodmark.spec.expressions import itself
from floodmark.spec.graph import steps
from floodmark.spec.graph.stream import Stream
from floodmark.spec.keyed.regular import RegularJoin
from floodmark.spec.keyed.top import Unique
from floodmark.sql.dialect import CHANGES, FINAL, WindowTable
from floodmark.sql.functions import with_results
from floodmark.sql.grouping import Grouped, Grouping, Item, names_of
from floodmark.sql.joining.joins import Joiner, conjuncts
from floodmark.sql.joining.regular import RegularJoiner
from floodmark.sql.joining.subqueries import subquery_joins, with_aggregates
from floodmark.sql.measures import is_aggregate
from floodmark.sql.options import Options
from floodmark.sql.over import ALWAYS, NEVER, WHERE_NEEDED, Changing, numbered, over_relation, overs
from floodmark.sql.ranking import first_rows, firsts_of, is_numbering, ranked_of, selected
from floodmark.sql.reading.row_pattern import RowPattern
from floodmark.sql.refusals import check_clauses, check_expression, check_statement, ttl_of, unsayable
from floodmark.sql.relation import BOUNDS, WINDOW_TIME, Name, Relation
from floodmark.sql.rows.combinations import branches, combined
from floodmark.sql.rows.matches import matches
from floodmark.sql.rows.unnest import generators, in_windows, unnested
from floodmark.sql.text import Text, derived_name
from floodmark.sql.windows import bound_of, is_clock, of_table

Tables = Mapping[str, Relation]
"""Name of an input or of a WITH -> its rows."""


def tables_of(tree: exp.Expr) -> list[exp.Table]:
    """The tables that a statement reads, which are no names of its WITH; each once."""
    inner = {cte.alias.lower() for cte in tree.find_all(exp.CTE)}
    tables = [t for t in tree.find_all(exp.Table) if t.name.lower() not in inner and not t.find_ancestor(exp.Hint)]
    return list({table.name: table for table in sorted(tables, key=_position)}.values())


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
        self.options = replace(options, within=self.ttl) if self.ttl and not options.within else options
        self.emit = str(tree.meta.get("emit", ""))
        self.bounds_of_rows = False
        """Whether a window of FROM is two columns of each row, and no division of the rows."""

    def stream(self, tables: Tables) -> Stream:
        """(rows of each input) -> the rows of the result.

        Raises:
            DefinitionError: DEFINITION-380 to 399, and those of the steps.
            CapabilityError: those of the steps.
        """
        relation = self._rows(tables)
        if self.ttl and not any(map(_holds_rows, steps.walk(relation.stream.step))):
            fix = "Take it out: only a join of rows of any time holds rows for as long as it says."
            raise unsayable(self.text, self.tree, "STATE_TTL of a statement without such a join", fix)
        if relation.windowed is not None:
            fix = "Aggregate over it: GROUP BY window_start, window_end; or join two tables of one window."
            raise DefinitionError(
                self.text.at(self.tree), "a window that is aggregated", "rows of a window", fix, code="DEFINITION-384"
            )
        if relation.ranked is None:
            return relation.stream
        numbers = [name.name for name in relation.names] + [relation.ranked.name]
        relation = numbered(self.text, self.tree, relation, self.options, self._changing(relation, self.emit))
        read = {name.name: name.text for name in relation.names}
        columns: dict[str, Any] = {name: read[name] for name in numbers}
        return relation.stream.select(**columns)

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
        self.bounds_of_rows = True
        try:
            return self.query(self.tree, tables)
        except DefinitionError as error:
            raise refusal or error from None

    def query(self, node: exp.Expr, tables: Tables) -> Relation:
        """The rows of a SELECT, or of several by UNION, INTERSECT or EXCEPT."""
        check_statement(self.text, node)
        check_clauses(self.text, node)
        if isinstance(node, exp.Subquery):
            return self.query(node.this, tables)
        with_ = node.args.get("with_")
        for cte in with_.expressions if with_ is not None else ():
            tables = {**tables, cte.alias.lower(): self.query(cte.this, tables)}
        if isinstance(node, exp.SetOperation):
            return self._set_operation(node, tables)
        assert isinstance(node, exp.Select)
        return self._select(node, tables)

    def _set_operation(self, node: exp.SetOperation, tables: Tables) -> Relation:
        own, around = str(node.meta.get("emit", "")), self.emit
        self.emit = own or around
        try:
            parts = [self.query(part, tables) for part in branches(node)]
        finally:
            self.emit = around
        result = combined(self.text, node, parts, changing=CHANGES in {own, around})
        if own == CHANGES and not (_changes(result.stream) or _is_unique(result.stream)):
            raise unsayable(self.text, node.expression, "EMIT CHANGES of rows that do not change", "Leave it out.")
        return result

    def _select(self, node: exp.Select, tables: Tables) -> Relation:
        emit = str(node.meta.get("emit", ""))
        node = node.copy() if self.options.functions else node  # calls in it become columns
        if CHANGES in {emit, self.emit}:
            node = with_aggregates(self.text, node)
        relation, items, changes = self._behind_where(node, tables, emit)
        aggregated = any(is_aggregate(part) for _, value in items for part in _grouping_parts(value))
        distinct = node.args.get("distinct") is not None
        if distinct and not (relation.windowed is not None and any(_is_bound(value, relation) for _, value in items)):
            return self._distinct(node, relation, items, emit)
        if node.args.get("group") is not None or aggregated or node.args.get("having") is not None or distinct:
            return self._grouped(node, relation, items, emit, distinct=distinct)
        over = [value for _, value in items if next(overs(value), None) is not None]
        if emit == CHANGES and not (changes or over or _changes(relation.stream) or _is_unique(relation.stream)):
            raise unsayable(self.text, node, "EMIT CHANGES of rows that do not change", "Leave it out.")
        if over and not (len(over) == 1 and is_numbering(over[0])):
            return self._over(node, relation, items, emit)
        return self._projected(node, relation, items)

    def _behind_where(self, node: exp.Select, tables: Tables, emit: str) -> tuple[Relation, list[Item], bool]:
        """The rows behind WHERE and QUALIFY, the columns of SELECT over them, and whether they are the first ones of a numbering."""
        text, qualify = self.text, node.args.get("qualify")
        if node.args.get("from_") is None:
            raise unsayable(
                text, node, "a SELECT without FROM", "Name the table whose rows are read: SELECT ... FROM t."
            )
        relation, conditions = self._from(node, tables)
        if self.options.functions:
            relation, conditions = with_results(self.text, node, relation, conditions, self.options)
        where, firsts = firsts_of(text, node, conditions, relation)
        if FINAL in {emit, self.emit} and self.options.lateness not in {"0 s", ""}:
            fix = "Leave the lateness out, or EMIT ON WINDOW CLOSE: with lateness each late row revises its window."
            raise unsayable(text, node, "EMIT ON WINDOW CLOSE with lateness", fix)
        if firsts is None:
            relation = numbered(text, node, relation, self.options, self._changing(relation, emit))
            relation = self._filtered(relation, node, where)
            return relation, list(self._items(node, relation)), False
        if qualify is not None:  # QUALIFY is behind WHERE, and WHERE behind the subquery that ranks
            relation, where = self._filtered(relation, node, where), []
        relation = first_rows(text, node, relation, firsts, (emit, self.emit), self.options)
        relation = self._filtered(relation, node, [*where, *firsts.left])
        items = list(self._items(node, relation))
        if qualify is not None:
            items = [(name, _numbered_item(value, relation, firsts.ranked.name)) for name, value in items]
        return relation, items, True

    def _changing(self, relation: Relation, emit: str) -> Changing:
        """Whether results over these rows may change."""
        if CHANGES not in {emit, self.emit}:
            return NEVER
        return ALWAYS if emit == CHANGES or _changes(relation.stream) else WHERE_NEEDED

    def _over(self, node: exp.Select, relation: Relation, items: list[Item], emit: str) -> Relation:
        """The columns of SELECT over rows, some of them over the rows before each."""
        changing = self._changing(relation, emit)
        computed = over_relation(self.text, node, relation, items, self.options, changing)
        relation = computed.relation
        for _, value in items:
            check_expression(self.text, value, over=True)
        columns = [(name, str(value.meta.get("whole") or computed.scalar(self.text, value))) for name, value in items]
        self._check_names([name for name, _ in columns])
        known = {name.text: name for name in relation.names}
        stream = relation.stream
        if columns != [(name, itself(name)) for name in stream.schema.names]:
            stream = stream.select(on_error=self.options.on_error, **dict(columns))
        return Relation(
            stream=stream,
            names=tuple(
                replace(known[text], table="", name=name, column=name, text=itself(name))
                if text in known
                else Name(table="", name=name, column=name, text=itself(name))
                for name, text in columns
            ),
            spans=relation.spans,
        )

    def _from(self, node: exp.Select, tables: Tables) -> tuple[Relation, list[exp.Expr]]:
        """The rows of FROM with its joins, and the conditions that WHERE still has to filter by."""
        source = node.args["from_"].this
        relation = self._table(source, tables)
        where = node.args["where"].this if node.args.get("where") is not None else None
        conditions = list(conjuncts(where))
        rows_of_rows, joins = generators(node)
        read = [part for name in ("expressions", "group", "having", "qualify") for part in _listed(node.args.get(name))]
        read += rows_of_rows
        for number, join in enumerate(joins):
            following = joins[number + 1 :]
            right = self._table(join.this, tables, joined=True)
            for alias in set(right.tables) & set(relation.tables):
                fix = f"Write {join.this.name} AS b."
                raise DefinitionError(
                    self.text.at(join.this),
                    "tables with different names",
                    f"'{alias}' twice",
                    fix,
                    code="DEFINITION-393",
                )
            own, later = (conditions, []) if not following else _divided(conditions, [*relation.tables, *right.tables])
            behind = [*read, *later, *(other.args["on"] for other in following if other.args.get("on") is not None)]
            arguments = self.text, join, relation, right, own, behind
            joiner = Joiner(*arguments)
            if self.emit == CHANGES and not joiner.is_bounded:
                joiner = RegularJoiner(*arguments)
            relation, conditions = joiner.joined(self.options)
            conditions = [*conditions, *later]
        for generator in rows_of_rows:
            relation = unnested(self.text, generator, relation, self.options)
        inner, conditions = subquery_joins(self.text, conditions) if self.emit == CHANGES else ([], conditions)
        if inner and relation.ranked is None:  # before the join, where conditions keep rows out of the state
            relation, conditions = self._filtered(relation, node, conditions), []
        for subquery in inner:
            right = self._table(subquery.node.this, tables, joined=True)
            if subquery.compared is not None:  # its column is in no other expression
                right = replace(
                    right, names=tuple(replace(name, name=f"{name.table}_{name.name}") for name in right.names)
                )
            joiner = RegularJoiner(
                self.text, subquery.node, relation, right, [], [*read, *conditions], compared=subquery.compared
            )
            relation, _ = joiner.joined(self.options)
        if joins or inner or not conditions:
            return relation, conditions
        return relation, conditions if relation.ranked is not None or where is None else [where]

    def _filtered(self, relation: Relation, node: exp.Select, conditions: list[exp.Expr]) -> Relation:
        where = node.args.get("where")
        whole = where.this if where is not None else None
        if conditions and whole is not None and list(map(id, conditions)) == list(map(id, conjuncts(whole))):
            conditions = [whole]
        stream = relation.stream
        for condition in conditions:
            self._check_rows(condition, "WHERE", "Write HAVING, which is over the result of the aggregates.")
            rendered = relation.scalar(self.text, condition)
            stream = stream.filter(rendered, on_error=self.options.on_error)
        return replace(relation, stream=stream)

    def _check_rows(self, node: exp.Expr, where: str, fix: str) -> None:
        check_expression(self.text, node)
        aggregate = next((part for part in node.walk() if is_aggregate(part)), None)
        if aggregate is not None:
            raise unsayable(self.text, aggregate, f"an aggregate in {where}", fix)

    def _table(self, node: exp.Expr, tables: Tables, *, joined: bool = False) -> Relation:
        """The rows of a table, a subquery or a window of FROM, under their alias."""
        alias = _alias(node)
        if isinstance(node, exp.Subquery):
            check_clauses(self.text, node)
            return self.query(node.this, tables).renamed(alias)
        if isinstance(node, WindowTable):
            inner = self._table(node.this, tables)
            windowed = of_table(self.text, node, inner)
            if inner.windowed is not None:
                fix = "Aggregate over the inner one in a subquery, or keep one of them."
                raise unsayable(self.text, node, "a window over rows of a window", fix)
            own = [name for name in inner.names if name.name not in BOUNDS]
            rows = in_windows(windowed, inner, self.options) if self.bounds_of_rows else None
            if rows is not None:
                both = [Name(table=alias, name=name, column=name, text=name) for name in BOUNDS]
                return replace(rows, names=(*own, *both)).renamed(alias or _alias(node.this))
            bounds = [Name(table=alias, name=name, text="", time=name == BOUNDS[2], bound=name) for name in BOUNDS]
            return replace(inner, names=(*own, *bounds), windowed=windowed, spans=None).renamed(
                alias or _alias(node.this)
            )
        if isinstance(node, RowPattern):
            inner = self._table(node.this, tables)
            return matches(self.text, node, inner, alias or next(iter(inner.tables), ""), self.options)
        if not isinstance(node, exp.Table) or not isinstance(node.this, exp.Identifier):
            raise unsayable(
                self.text,
                node,
                f"{self.text.of(node) if node.meta.get('span') else node.key.upper()} in FROM",
                "Read a table by its name; TUMBLE, HOP, SESSION and CALENDAR make windows of it.",
            )
        check_clauses(self.text, node)
        if node.args.get("version") is not None and not joined:
            raise unsayable(
                self.text,
                node,
                "FOR SYSTEM_TIME AS OF without a join",
                "Read the table as it is; an older state is read by floodmark fork.",
            )
        known = {name.lower(): relation for name, relation in tables.items()}
        if node.args.get("db") is not None or node.name.lower() not in known:
            name = ".".join(part.name for part in node.parts)
            fix = f"{closest(name, tables)}Tables: {', '.join(tables)}."
            raise DefinitionError(
                self.text.at(node),
                "a source, an operator's output or a name of WITH",
                f"'{name}'",
                fix,
                code="DEFINITION-394",
            )
        return known[node.name.lower()].renamed(alias or node.name)

    def _items(self, node: exp.Select, relation: Relation) -> Iterator[Item]:
        """Name and expression of each column of SELECT; ``*`` as a column each."""
        taken: set[str] = set()
        for expression in node.expressions:
            value = expression.this if isinstance(expression, exp.Alias) else expression
            if isinstance(value, exp.Star) or (isinstance(value, exp.Column) and isinstance(value.this, exp.Star)):
                check_clauses(self.text, value) if isinstance(value, exp.Star) and value.args else None
                table = value.table if isinstance(value, exp.Column) else ""
                names = [name for name in relation.names if not table or name.table == table]
                if not names:
                    fix = f"{closest(table, relation.tables)}Tables here: {', '.join(relation.tables)}."
                    raise DefinitionError(
                        self.text.at(value), "a table in FROM", repr(table), fix, code="DEFINITION-383"
                    )
                yield from _starred(names)
                continue
            if isinstance(expression, exp.Alias):
                name_text = expression.alias
            elif isinstance(value, (exp.Column, exp.Dot)):
                name_text, table = bound_of(value) or value.name, value.parts[0].name
                name_text = f"{table}_{name_text}" if name_text in taken and table in relation.tables else name_text
            else:
                name_text = bound_of(value) or derived_name(self.text.of(value))
            taken.add(name_text)
            yield name_text, value

    def _projected(self, node: exp.Select, relation: Relation, items: list[Item]) -> Relation:
        """The columns of SELECT over rows."""
        columns: list[tuple[str, str]] = []
        names: list[Name] = []
        ranked = relation.ranked
        for name, value in items:
            if isinstance(value, exp.Window):
                ranked = ranked_of(self.text, name, value, relation, node)
                continue
            check_expression(self.text, value)
            located = relation.find(self.text, value) if isinstance(value, exp.Column) else None
            if is_clock(value, located):
                names.append(Name(table="", name=name, text="", time=relation.landed, clock=True))
                continue
            if located is not None and not located[0].text:
                if name != located[0].name:
                    fix = f"Select {located[0].name} by its name, and rename it behind the aggregate or the join."
                    raise unsayable(self.text, value, f"'{name}' for {located[0].name} of a window", fix)
                names.append(replace(located[0], table=""))
                continue
            rendered = relation.scalar(self.text, value) if not value.meta.get("whole") else str(value.meta["whole"])
            columns.append((name, rendered))
            time = located is not None and located[0].time
            before, bound = (None, "") if located is None else (located[0].before, located[0].bound)
            made = Name(table="", name=name, column=name, text=itself(name), time=time, before=before, bound=bound)
            names.append(made)
        self._check_names([name for name, _ in columns])
        stream = relation.stream
        if ranked is not None:
            ranked, columns = selected(ranked, columns, stream.schema)
        if columns != [(name, itself(name)) for name in stream.schema.names]:
            stream = stream.select(on_error=self.options.on_error, **dict(columns))
        return Relation(
            stream=stream,
            names=tuple(names),
            windowed=relation.windowed,
            ranked=ranked,
            landed=relation.landed,
            spans=relation.spans,
        )

    def _check_names(self, names: list[str]) -> None:
        if "on_error" in names:
            fix = "Give it another name: ... AS failure."
            raise DefinitionError(
                self.text.at(self.tree), "another name than a setting's", "'on_error'", fix, code="DEFINITION-393"
            )
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            fix = f"Give one of them another name: ... AS other_{twice}."
            raise DefinitionError(
                self.text.at(self.tree), "different names for columns", f"'{twice}' twice", fix, code="DEFINITION-393"
            )

    def _grouped(
        self, node: exp.Select, relation: Relation, items: list[Item], emit: str, *, distinct: bool
    ) -> Relation:
        star = next((value for _, value in items if "star" in value.meta), None)
        if star is not None:
            raise unsayable(
                self.text,
                node,
                "* beside GROUP BY or DISTINCT",
                "Name the columns: keys, bounds of the window, aggregates.",
            )
        grouping = Grouping(self.text, node, relation, items)
        if distinct:
            grouping.keys = [value for _, value in items if not _is_bound(value, relation)]
        grouped = grouping.grouped(emit, self.options, self.emit)
        stream = grouped.stream
        columns = [(name, self._over_group(value, grouped)) for name, value in items]
        having = node.args.get("having")
        if having is not None:
            check_expression(self.text, having.this)
            computed = dict(columns)

            def replacement(part: exp.Expr) -> str | None:
                if (
                    isinstance(part, exp.Column)
                    and len(part.parts) == 1
                    and part.name in computed
                    and part.name not in stream.schema
                ):
                    return f"({computed[part.name]})"
                if isinstance(part, exp.Column) and len(part.parts) == 1 and part.name in grouped.measures.values():
                    return itself(part.name)
                return grouped.read(part)

            over = Relation(stream=stream, names=())
            stream = stream.filter(over.scalar(self.text, having.this, replacement), on_error=self.options.on_error)
        self._check_names([name for name, _ in columns])
        if columns != [(name, itself(name)) for name in stream.schema.names]:
            stream = stream.select(on_error=self.options.on_error, **dict(columns))
        if node is self.tree:
            self._check_identity(node, stream)
        return Relation(stream=stream, names=names_of(columns, grouped.bounds), spans=grouped.spans)

    def _check_identity(self, node: exp.Select, result: Stream[Any]) -> None:
        """Refuse a result that is revised and holds a part of the columns that identify its rows.

        Raises:
            DefinitionError: DEFINITION-399.
        """
        step, handed = steps.handed_on(result.step)
        if step is not None and step.revises and handed and (lacking := step.lacking(handed)):
            missing = ", ".join(lacking)
            fix = f"Select {missing} too, by that name: the table of last values has a row for each of them."
            expected = "the columns that identify a result, which a later row may replace"
            raise DefinitionError(self.text.at(node), expected, f"no {missing}", fix, code="DEFINITION-399")

    def _over_group(self, value: exp.Expr, grouped: Grouped) -> str:
        check_expression(self.text, value)
        return Relation(stream=grouped.stream, names=()).scalar(self.text, value, grouped.read)

    def _distinct(self, node: exp.Select, relation: Relation, items: list[Item], emit: str) -> Relation:
        """The different rows of a SELECT DISTINCT without a window."""
        grouped = node.args.get("group") is not None or node.args.get("having") is not None
        if grouped or any(is_aggregate(part) for _, value in items for part in value.walk()):
            fix = "Leave DISTINCT out: each row of a GROUP BY is another one."
            raise unsayable(self.text, node, "SELECT DISTINCT of aggregates", fix)
        if CHANGES not in {emit, self.emit} or relation.windowed is not None:
            fix = (
                "Select the bounds of a window too: SELECT DISTINCT window_start, window_end, k FROM TABLE(TUMBLE(...)); or say that state grows with "
                "the different rows, at the end: EMIT CHANGES."
            )
            raise unsayable(self.text, node, "SELECT DISTINCT over all of time", fix)
        projected = self._projected(node, relation, items)
        return replace(projected, stream=projected.stream.distinct())


def _divided(conditions: list[exp.Expr], tables: list[str]) -> tuple[list[exp.Expr], list[exp.Expr]]:
    """The conditions that name columns of these tables alone, and those that name others, or columns without their table."""
    known = {table.lower() for table in tables}
    own = [
        condition
        for condition in conditions
        if all(column.parts[0].name.lower() in known for column in condition.find_all(exp.Column))
    ]
    return own, [condition for condition in conditions if condition not in own]


def _changes(stream: Stream[Any]) -> bool:
    """Whether rows of a stream may be retracted by its step with state."""
    return any(step.revises for step in steps.walk(stream.step) if isinstance(step, steps.STATEFUL))


def _is_unique(stream: Stream[Any]) -> bool:
    """Whether a step drops rows that have come before, whose state grows with the different rows."""
    keyed = [step for step in steps.walk(stream.step) if isinstance(step, steps.KeyedProcess)]
    return any(isinstance(step.function.function, Unique) for step in keyed)


def _holds_rows(step: steps.Step) -> bool:
    """Whether a step is a join of rows of any time."""
    return isinstance(step, steps.KeyedProcess) and isinstance(step.function.function, RegularJoin)


def _starred(names: list[Name]) -> Iterator[Item]:
    """The columns of ``*``, each once; one whose name another table has comes by its name behind the join."""
    taken: set[str] = set()
    for name in names:
        if name.clock or (name.name == BOUNDS[2] and name.text == WINDOW_TIME):
            continue
        label = name.name if name.name not in taken else name.column
        if label not in taken:
            taken.add(label)
            yield label, _column_node(name)


def _is_bound(value: exp.Expr, relation: Relation) -> bool:
    if bound_of(value):
        return True
    return isinstance(value, exp.Column) and value.name.lower() in BOUNDS and relation.windowed is not None


def _column_node(name: Name) -> exp.Column:
    """A node that stands for a column of ``*``, which has no text of its own."""
    node = exp.column(name.name, table=name.table or None, quoted=True)
    node.meta["star"] = True
    if name.text:
        node.meta["whole"] = name.text
    return node


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
    return _column_node(next(name for name in relation.names if name.name == number))


def _alias(node: exp.Expr) -> str:
    alias = node.args.get("alias")
    return str(alias.name) if alias is not None and alias.this is not None else ""


def _listed(value: object) -> list[exp.Expr]:
    if isinstance(value, list):
        return [part for part in value if isinstance(part, exp.Expr)]
    return [value] if isinstance(value, exp.Expr) else []
