"""The columns of a SELECT over its rows: over rows as they are, over groups of them, over the rows before each."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

from sqlglot import exp

from floodmark.core.errors import DefinitionError, closest
from floodmark.spec.expressions import itself
from floodmark.spec.graph import steps
from floodmark.spec.graph.stream import Stream
from floodmark.sql.dialect import CHANGES, SPAN
from floodmark.sql.grouping import Grouped, Grouping, names_of
from floodmark.sql.measures import is_aggregate
from floodmark.sql.options import Options
from floodmark.sql.over.computed import over_relation
from floodmark.sql.over.results import Changing
from floodmark.sql.ranking import ranked_of, selected
from floodmark.sql.refusals import check_clauses, check_expression, unsayable
from floodmark.sql.relation import BOUNDS, MADE, WINDOW_TIME, Item, Name, Relation
from floodmark.sql.text import Text, derived_name, new_name
from floodmark.sql.windows import bound_of, is_clock

_NOT_IN_NAMES = frozenset(" ,;{}()\n\t=")
"""Signs that names of columns of Parquet files do not have, as of Spark and Delta."""
_MADE = "()"
"""Ends the names of columns that stand for a part of the statement, such as IN (SELECT ...), which no text of a statement has."""
Emits = tuple[str, str]
"""What EMIT of a SELECT says, and that of the whole statement."""


class Columns:
    """The columns of the SELECTs of a statement.

    Args:
        text: of the statement.
        tree: of the text.
        options: of the steps with state.
    """

    def __init__(self, text: Text, tree: exp.Expr, options: Options) -> None:
        self.text, self.tree, self.options = text, tree, options

    def items(self, node: exp.Select, relation: Relation) -> Iterator[Item]:
        """Name and expression of each column of SELECT; ``*`` as a column each."""
        taken: set[str] = set()
        for expression in node.expressions:
            value = expression.this if isinstance(expression, exp.Alias) else expression
            if isinstance(value, exp.Star) or (isinstance(value, exp.Column) and isinstance(value.this, exp.Star)):
                left_out = self._left_out(value)
                table = value.table if isinstance(value, exp.Column) else ""
                names = [name for name in relation.names if not table or name.table == table]
                names = [
                    name
                    for name in names
                    if name.table not in node.meta.get(MADE, ()) and not name.name.endswith(_MADE)
                ]
                if not names:
                    fix = f"{closest(table, relation.tables)}Tables here: {', '.join(relation.tables)}."
                    raise DefinitionError(
                        self.text.at(value), "a table in FROM", repr(table), fix, code="DEFINITION-383"
                    )
                unknown = next(
                    (column for column in left_out if column.lower() not in {n.name.lower() for n in names}), None
                )
                if unknown is not None:
                    known = [name.name for name in names]
                    fix = f"{closest(unknown, known)}Columns: {', '.join(known)}."
                    where = self.text.at(value)
                    raise DefinitionError(where, "columns of * to leave out", repr(unknown), fix, code="DEFINITION-383")
                wanted = {column.lower() for column in left_out}
                yield from ((label, node) for label, node in _starred(names) if label.lower() not in wanted)
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

    def _left_out(self, star: exp.Expr) -> list[str]:
        """The columns of ``* EXCEPT (a, b)``, in other words ``* EXCLUDE (a, b)``."""
        own = star if isinstance(star, exp.Star) else star.this
        check_clauses(self.text, own) if own.args else None
        return [column.name for name in ("except_", "exclude") for column in own.args.get(name) or ()]

    def projected(self, node: exp.Select, relation: Relation, items: list[Item]) -> Relation:
        """The columns of SELECT over rows."""
        columns: list[tuple[str, str]] = []
        names: list[Name] = []
        ranked = relation.ranked
        for name, value in items:
            if isinstance(value, exp.Window):
                ranked = replace(ranked_of(self.text, name, value, relation, node), position=len(names))
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
        self._check_names([*(name for name, _ in columns), *([ranked.name] if ranked is not None else [])])
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
        odd = next((name for name in names if set(name) & _NOT_IN_NAMES or not name), None)
        if odd is not None:
            fix = "Write letters of any alphabet, digits and underscores: ... AS departures_late."
            raise DefinitionError(
                self.text.at(self.tree),
                "a name that a column of a Delta table has",
                repr(odd),
                fix,
                code="DEFINITION-393",
            )
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            fix = f"Give one of them another name: ... AS other_{twice}."
            raise DefinitionError(
                self.text.at(self.tree), "different names for columns", f"'{twice}' twice", fix, code="DEFINITION-393"
            )

    def over(self, node: exp.Select, relation: Relation, items: list[Item], changing: Changing) -> Relation:
        """The columns of SELECT over rows, some of them over the rows before each."""
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

    def grouped(
        self,
        node: exp.Select,
        relation: Relation,
        items: list[Item],
        emits: Emits,
        *,
        distinct: bool,
        renamed: Mapping[str, str] = MappingProxyType({}),
    ) -> Relation:
        """The columns of SELECT over groups; ``distinct``: the columns beside the window's bounds are the keys; ``renamed``: column of the rows -> the key it is."""
        star = next((value for _, value in items if "star" in value.meta), None)
        if star is not None:
            raise unsayable(
                self.text,
                node,
                "* beside GROUP BY or DISTINCT",
                "Name the columns: keys, bounds of the window, aggregates.",
            )
        grouping = Grouping(self.text, node, relation, items, renamed)
        if distinct:
            grouping.keys = [value for _, value in items if not is_bound(value, relation)]
        grouped = grouping.grouped(emits[0], self.options, emits[1])
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
        if node is self.tree and not self.options.ttl:
            lacking = _lacking(stream)
            names = {own: name for own in lacking for name, text in columns if text == itself(own)}
            if not renamed and names and not set(names.values()) & set(relation.stream.schema.names):
                return self.grouped(node, relation, items, emits, distinct=distinct, renamed=names)
            self._check_identity(node, lacking)
        return Relation(stream=stream, names=names_of(columns, grouped.bounds), spans=grouped.spans)

    def _check_identity(self, node: exp.Select, lacking: tuple[str, ...]) -> None:
        """Refuse a result that is revised and lacks columns that identify its rows.

        Raises:
            DefinitionError: DEFINITION-399.
        """
        if lacking:
            missing = ", ".join(lacking)
            fix = f"Select {missing} too, by that name: the table of last values has a row for each of them."
            expected = "the columns that identify a result, which a later row may replace"
            raise DefinitionError(self.text.at(node), expected, f"no {missing}", fix, code="DEFINITION-399")

    def _over_group(self, value: exp.Expr, grouped: Grouped) -> str:
        check_expression(self.text, value)
        return Relation(stream=grouped.stream, names=()).scalar(self.text, value, grouped.read)

    def distinct(
        self, node: exp.Select, relation: Relation, items: list[Item], emits: Emits, *, changing: bool
    ) -> Relation:
        """The different rows of a SELECT DISTINCT without a window; ``changing``: rows before it may be taken back."""
        grouped = node.args.get("group") is not None or node.args.get("having") is not None
        if grouped or any(is_aggregate(part) for _, value in items for part in value.walk()):
            fix = "Leave DISTINCT out: each row of a GROUP BY is another one."
            raise unsayable(self.text, node, "SELECT DISTINCT of aggregates", fix)
        within = bool(self.options.within) and relation.windowed is None and not changing
        if not within and (CHANGES not in emits or relation.windowed is not None):
            fix = (
                "Select the bounds of a window too: SELECT DISTINCT window_start, window_end, k FROM TABLE(TUMBLE(...)); or say that state grows with "
                "the different rows, at the end: EMIT CHANGES; or that a row counts again after a time, by the header line `-- within: 1 day`."
            )
            raise unsayable(self.text, node, "SELECT DISTINCT over all of time", fix)
        projected = self.projected(node, relation, items)
        stream = projected.stream
        if within:
            keyed = stream.key_by(*stream.schema.names)
            return replace(projected, stream=keyed.deduplicate(self.options.within))
        return replace(projected, stream=stream.distinct())


def _lacking(result: Stream[Any]) -> tuple[str, ...]:
    """The columns that identify a row of a result and that it lacks; none for a result that is not revised, or that has none of these."""
    step, handed = steps.handed_on(result.step)
    return step.lacking(handed) if step is not None and step.revises and handed else ()


def _starred(names: list[Name]) -> Iterator[Item]:
    """The columns of ``*``, each once; one whose name another table has comes by its name behind the join."""
    taken: set[str] = set()
    for name in names:
        if name.clock or (name.name == BOUNDS[2] and name.text == WINDOW_TIME):
            continue
        label = name.name if name.name not in taken else name.column
        if label not in taken:
            taken.add(label)
            yield label, column_node(name)


def is_bound(value: exp.Expr, relation: Relation) -> bool:
    """Whether an expression is a bound of the window of some rows."""
    if bound_of(value):
        return True
    return isinstance(value, exp.Column) and value.name.lower() in BOUNDS and relation.windowed is not None


def column_node(name: Name) -> exp.Column:
    """A node that stands for a column of ``*``, which has no text of its own."""
    node = exp.column(name.name, table=name.table or None, quoted=True)
    node.meta["star"] = True
    if name.text:
        node.meta["whole"] = name.text
    return node


@dataclass(slots=True)
class Layers:
    """OVER beside GROUP BY: ``RANK() OVER (ORDER BY COUNT(*) DESC)`` is over the groups, so that one SELECT is two: the groups, and OVER around them.

    Args:
        text: of the statement.
        grouping: its GROUP BY.
        inner: columns of the groups; written by ``outer``.
    """

    text: Text
    grouping: Grouping
    inner: list[Item] = field(default_factory=list)
    _names: dict[str, str] = field(default_factory=dict)

    def outer(self, items: Iterable[Item]) -> list[Item]:
        """(columns of the SELECT) -> those around the groups, which read the columns of these."""
        own = list(items)
        known = {self.text.of(key) for key in self.grouping.keys if SPAN in key.meta}
        for name, value in own:
            if SPAN in value.meta and (is_aggregate(value) or self.text.of(value) in known):
                self._column(value, name)
        return [(name, self._around(value.copy(), known)) for name, value in own]

    def select(self, node: exp.Select) -> exp.Select:
        """The SELECT of the groups, whose GROUP BY names no column of SELECT by its number or its alias."""
        node = node.copy()
        if node.args.get("group") is not None:
            node.set("group", exp.Group(expressions=[part.copy() for part in self.grouping.elements]))
        return node

    @staticmethod
    def named(groups: Relation) -> Relation:
        """The groups with the names by which ``outer`` reads their columns."""
        return replace(groups, names=tuple(replace(name, name=f"{name.name}{_MADE}") for name in groups.names))

    def _around(self, node: exp.Expr, known: set[str]) -> exp.Expr:
        if not isinstance(node, exp.Window) and SPAN in node.meta:
            bound = bound_of(node) or (node.name.lower() if node.name.lower() in BOUNDS else "")
            if bound or is_aggregate(node) or self.text.of(node) in known:
                return self._column(node, bound)
        parts = list(node.iter_expressions())
        if isinstance(node, exp.Window):  # its function is over the groups, and what that reads is of a group
            parts = [*node.this.iter_expressions(), *(part for part in parts if part is not node.this)]
        for part in parts:
            made = self._around(part, known)
            if made is not part:
                part.replace(made)
        return node

    def _column(self, node: exp.Expr, name: str = "") -> exp.Expr:
        """The column of the groups that holds an expression."""
        written = self.text.of(node)
        if written not in self._names:
            wanted = name or (node.name if isinstance(node, exp.Column) else derived_name(written))
            self._names[written] = new_name(wanted, list(self._names.values()))
            self.inner.append((self._names[written], node.copy()))
        column = exp.column(f"{self._names[written]}{_MADE}", quoted=True)
        column.meta[SPAN] = node.meta[SPAN]
        return column
