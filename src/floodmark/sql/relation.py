"""Relations: the rows of a FROM with the names that a statement has for their columns."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any

from sqlglot import exp

from floodmark.core.errors import DefinitionError, closest
from floodmark.spec.expressions import itself, known_type
from floodmark.spec.graph.stream import Stream
from floodmark.spec.rows.lookup import LookupTable
from floodmark.spec.windowing.windows import Window
from floodmark.sql.text import Replacement, Text

BOUNDS = ("window_start", "window_end", "window_time")
"""Columns that a window adds; the third is the event time of a window's result, a millisecond before its end."""
WINDOW_TIME = "timestampadd(MILLISECOND, -1, window_end)"
Item = tuple[str, exp.Expr]
"""Name of a column of a result, and its expression."""
EVENT_TIME, PROCESSING_TIME = "_event_time", "_processing_time"
"""Names by which every table has its event time and the clock, for windows."""
OR_EMPTY = "or empty"
"""Entry in the meta of a column: a count or an array that is 0 or empty where it is null."""


MADE = "made tables"
"""Entry in the meta of a SELECT: the aliases of the tables that its subqueries became, whose columns ``*`` leaves out."""
IS_THERE = "is there"
"""Entry in the meta of a column: a count of rows, of which there are some, or none where the entry is false; where it is null there is none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Name:
    """A column as a statement names it.

    Args:
        table: alias of its table; empty for none.
        name: of the column.
        text: the expression that reads it from the stream; empty for a column of a window that is not computed yet.
        column: the column of the stream that it is; empty if it is computed.
        time: True if it holds the event time.
        before: most time by which the event time of the row lies behind it, of a time in the result of a join; None for no such time.
        bound: the bound of a window that it holds in a result of windows: ``window_start``, ``window_end`` or ``window_time``; empty for none.
        clock: True if it is the clock, ``PROCTIME()``, under a name; of rows whose event time is that of their landing it is that time too.
    """

    table: str
    name: str
    text: str
    column: str = ""
    time: bool = False
    before: timedelta | None = None
    bound: str = ""
    clock: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Windowed:
    """A window over a relation that is not aggregated yet."""

    window: Window
    clocked: bool = False
    partition: tuple[str, ...] | None = None
    """What divides the sessions of a table function; None for those of a function in GROUP BY, which its keys divide."""
    columns: Mapping[str, str] = field(default_factory=dict)
    """Bound -> the column that holds it, of rows that are results of windows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sorted:
    """A column of ORDER BY.

    Args:
        text: its expression over the stream.
        column: of the stream; empty if it is computed.
        time: it is the event time.
        descending: the greatest value comes first.
        nulls_first: rows without a value come before the others.
    """

    text: str
    column: str
    time: bool
    descending: bool
    nulls_first: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranked:
    """``ROW_NUMBER() OVER (PARTITION BY ... ORDER BY ...) AS name`` over a relation.

    Args:
        name: of the number.
        numbering: ``row_number``, ``rank`` or ``dense_rank``.
        keys: column of the stream -> its expression.
        windowed: PARTITION BY holds the bounds of the window.
        order: the columns of ORDER BY; none for the order in which rows come.
        last: the order in which rows come is descending.
        position: of the number among the columns: how many are before it.
        table: alias of its table; empty for none.
    """

    name: str
    numbering: str
    keys: tuple[tuple[str, str], ...]
    windowed: bool
    order: tuple[Sorted, ...]
    last: bool = False
    position: int = 0
    table: str = ""

    def among(self, names: Sequence[Any], number: Any) -> tuple[Any, ...]:
        """The columns of the relation with the number at its position."""
        return (*names[: self.position], number, *names[self.position :])


@dataclass(frozen=True, slots=True, kw_only=True)
class Relation:
    """Rows and the names of their columns."""

    stream: Stream[Any]
    names: tuple[Name, ...]
    windowed: Windowed | None = None
    ranked: Ranked | None = None
    separate: bool = False
    """Whether tables have streams of their own, so that columns of one name are different columns."""
    landed: bool = False
    """Whether the event time of the rows is that of their landing."""
    lookup: LookupTable | None = None
    """The table outside of the lake that it is, which has no stream of its own."""
    spans: Window | None = None
    """The windows of which the rows are results, each at the last instant of its window; None for rows of any time."""

    def renamed(self, alias: str) -> Relation:
        """The relation under an alias."""
        ranked = None if self.ranked is None else replace(self.ranked, table=alias)
        return replace(self, names=tuple(replace(name, table=alias) for name in self.names), ranked=ranked)

    def with_columns(self, text: Text, alias: exp.Expr | None) -> Relation:
        """The relation with the names that an alias gives its columns, ``AS t(a, b)``.

        Raises:
            DefinitionError: DEFINITION-393, another number of names.
        """
        columns = [column.name for column in (alias.args.get("columns") or ())] if alias is not None else []
        if not columns:
            return self
        assert alias is not None
        own: Sequence[Name | Ranked] = [name for name in self.names if not (name.bound and not name.text)]
        own = own if self.ranked is None else self.ranked.among(own, self.ranked)
        if len(columns) > len(own) or self.windowed is not None:
            got = (
                f"{len(columns)} names: {', '.join(columns)}"
                if self.windowed is None
                else "names for columns of windows"
            )
            fix = f"Columns: {', '.join(name.name for name in own)}. Or rename them in the SELECT: a AS b."
            raise DefinitionError(
                text.at(alias),
                "names for the columns of the table, from the first one on",
                got,
                fix,
                code="DEFINITION-393",
            )
        new: dict[int, Any] = {id(name): replace(name, name=column) for name, column in zip(own, columns, strict=False)}
        names = tuple(new.get(id(name), name) for name in self.names)
        return replace(self, names=names, ranked=new.get(id(self.ranked), self.ranked))

    def has(self, name: str) -> bool:
        """Whether a column or the number has a name, in any case."""
        number = "" if self.ranked is None else self.ranked.name
        return name.lower() in {own.lower() for own in (*(column.name for column in self.names), number)}

    @property
    def tables(self) -> list[str]:
        """The aliases."""
        return list(dict.fromkeys(name.table for name in self.names if name.table))

    def find(self, text: Text, column: exp.Column) -> tuple[Name, exp.Expr] | None:
        """(column of the statement) -> its name, and the last identifier that belongs to it; None for an unqualified name that is not known.

        Raises:
            DefinitionError: DEFINITION-383, a column that the table lacks, or that several tables have.
        """
        parts = column.parts
        tables = {table.lower(): table for table in self.tables}
        if len(parts) > 1 and parts[0].name.lower() in tables:
            table = tables[parts[0].name.lower()]
            own = [name for name in self.names if name.table == table]
            match = _matching(own, parts[1].name)
            if not match:
                known = [name.name for name in own]
                fix = f"{closest(parts[1].name, known)}Columns of {table}: {', '.join(known)}."
                got = f"'{parts[0].name}.{parts[1].name}'"
                raise DefinitionError(text.at(column), f"a column of {table}", got, fix, code="DEFINITION-383")
            return match[0], parts[1]
        match = _matching(self.names, parts[0].name)
        if parts[0].name in BOUNDS:  # of a join's window, however it is read by the name of a side
            match = [name for name in match if name.column == name.name] or match
        if len({(name.table if self.separate else "", name.text or name.table) for name in match}) > 1:
            forms = " or ".join(f"{name.table}.{name.name}" for name in match)
            got = f"'{parts[0].name}', which several tables have"
            raise DefinitionError(
                text.at(column), "a column of one table", got, f"Write {forms}.", code="DEFINITION-383"
            )
        if match:
            return match[0], parts[0]
        if len(parts) > 1:
            known = self.tables
            fix = f"{closest(parts[0].name, known)}Tables here: {', '.join(known)}."
            got = f"'{parts[0].name}.{parts[1].name}'"
            raise DefinitionError(text.at(column), "a column of a table in FROM", got, fix, code="DEFINITION-383")
        return None

    def read(self, text: Text) -> Replacement:
        """Replacement of columns by the columns of the stream."""

        def replacement(node: exp.Expr) -> str | None:
            if not isinstance(node, exp.Column) or isinstance(node.this, exp.Star):
                return None
            located = self.find(text, node)
            if located is None:
                return None
            name, last = located
            if name.clock:
                fix = (
                    "Say it where a time is asked for: DESCRIPTOR(proc_time), ORDER BY proc_time, FOR SYSTEM_TIME AS OF t.proc_time; the time at which a row "
                    'came is a column of a contract: class T(Contract, event_time="ingestion").'
                )
                got = f"'{name.name}', the clock, which a replay cannot read again"
                raise DefinitionError(text.at(node), "a column of the rows", got, fix, code="DEFINITION-384")
            if not name.text:
                fix = "Aggregate over the window: GROUP BY window_start, window_end; or join two windows."
                got = f"'{name.name}' of a window that is not aggregated"
                raise DefinitionError(text.at(node), "a column of the rows", got, fix, code="DEFINITION-384")
            if IS_THERE in node.meta:
                return f"(coalesce({name.text}, 0L) {'>' if node.meta[IS_THERE] else '='} 0L)"
            if OR_EMPTY in node.meta:
                return or_empty(name.text, self.stream.schema.types[name.column])
            if last is node.parts[0] and name.text == itself(last.name) and not _in_needless_quotes(last, name.text):
                return None
            behind = "".join(f".{itself(part.name)}" for part in node.parts[node.parts.index(last) + 1 :])
            return f"{name.text}{behind}"

        return replacement

    def scalar(self, text: Text, node: exp.Expr, replacement: Replacement | None = None) -> str:
        """The text of an expression over the columns of the stream, checked."""
        rendered = text.of(node, replacement or self.read(text))
        known_type(rendered, self.stream.schema, self.at(text, node))
        return rendered

    def at(self, text: Text, node: exp.Expr) -> str:
        """The place of an expression, or of its first column that is not known."""
        for column in node.find_all(exp.Column):
            if len(column.parts) == 1 and not _matching(self.names, column.name):
                return text.at(column)
        return text.at(node)


def or_empty(text: str, kind: str) -> str:
    """(text of a count or of an array that a left join may lack, its type) -> that, or 0, or an empty array of the type."""
    element = kind.removeprefix("array<").removesuffix(">")
    return f"coalesce({text}, {'0L' if element == kind else f'array_compact(array(CAST(NULL AS {element})))'})"


def _in_needless_quotes(written: exp.Expr, text: str) -> bool:
    """Whether a name stands in backticks that it does not need: without them it is the expression that it is elsewhere in the statement."""
    return bool(written.args.get("quoted")) and not text.startswith("`")


def _matching(names: Iterable[Name], wanted: str) -> list[Name]:
    """The names that match exactly, else those that match in another case."""
    known = list(names)
    exact = [name for name in known if name.name == wanted]
    return exact or [name for name in known if name.name.lower() == wanted.lower()]
