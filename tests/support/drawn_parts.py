"""Parts of drawn statements: tables with odd values, conditions, expressions, aggregates and orders, each as SQL, for DuckDB and for the fluent API."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from changing import Left, Right

import floodmark as fm
from floodmark import Stream

Fluent = Callable[[Mapping[str, Stream[Any]]], Stream[Any]]
"""Tables by name -> the stream of the relation."""

SOURCES: dict[str, dict[str, str]] = {
    "lefts": {"k": "int", "f": "float", "a": "int", "price": "dec"},
    "rights": {"k": "int", "f": "float", "b": "int", "note": "text"},
}
"""Table -> its columns and their kinds."""
TIMES = {"lefts": "at", "rights": "seen"}
SOURCES_OF_ROWS = {
    name: fm.Source(name, contract=contract, connector=fm.DeltaTable("/nowhere"), watermark=fm.Ascending())
    for name, contract in (("lefts", Left), ("rights", Right))
}
JOINS = {
    "JOIN": "inner", "LEFT JOIN": "left", "RIGHT JOIN": "right", "FULL JOIN": "full",
    "LEFT SEMI JOIN": "semi", "LEFT ANTI JOIN": "anti",
}  # fmt: skip
CONDITIONS = {
    "int": ["{} > 0", "{} IS NULL", "{} BETWEEN -1 AND 3", "NOT ({} = 0)", "{} IN (1, 3)", "COALESCE({}, 5) < 6"],
    "float": ["{} > 0.5", "{} IS NOT NULL", "{} = 0", "{} <> 1.5"],
    "dec": ["{} > 0", "{} < 1.6", "{} IS NULL"],
    "text": ["{} = 'x'", "{} <> 'y'", "{} IS NULL", "{} LIKE '%ü'"],
}
SMALL = "CASE WHEN {0} BETWEEN -5 AND 5 THEN {0} END"
"""A sum of 2^63 - 1 and more is an error of every engine."""
EXPRESSIONS = {
    "int": ["{}", "COALESCE({}, 7)", "CASE WHEN {0} BETWEEN -5 AND 5 THEN {0} * 2 + 1 END", "CASE WHEN {} > 0 THEN 1 ELSE 0 END"],
    "float": ["{}", "COALESCE({}, 2.5D)", "CASE WHEN {0} > 1 THEN {0} + 1 END"],
    "dec": ["{}"],
    "text": ["{}", "upper({})", "{} || '!'", "COALESCE({}, 'none')"],
}  # fmt: skip
KEYS = ("int", "float", "text", "dec")


@dataclass(frozen=True, slots=True, kw_only=True)
class Relation:
    """A SELECT.

    Args:
        sql: its text.
        duck: the text for DuckDB.
        columns: of the result, with their kinds; one of kind "mean" is read by no other relation, as DuckDB rounds otherwise.
        fluent: the same steps by the fluent API.
        shape: words for what it is made of.
        table: the table that it is, if it is no more than that.
    """

    sql: str
    duck: str
    columns: dict[str, str]
    fluent: Fluent
    shape: tuple[str, ...] = ()
    table: str = ""

    @property
    def usable(self) -> dict[str, str]:
        """The columns that another relation may read."""
        return {name: kind for name, kind in self.columns.items() if kind != "mean"}

    def of(self, *kinds: str) -> list[str]:
        """The columns of these kinds."""
        return [name for name, kind in self.columns.items() if kind in kinds]


@dataclass(slots=True)
class Parts:
    """Draws parts of relations; names of columns and aliases are numbered."""

    drawn: random.Random
    numbers: int = 0
    read: set[str] = field(default_factory=set)

    def name(self, letter: str) -> str:
        """A name that no other column or alias has."""
        self.numbers += 1
        return f"{letter}{self.numbers}"

    def some(self, items: Sequence[str], least: int = 1, most: int = 9) -> list[str]:
        """Some of the items, in their order."""
        size = min(len(items), self.drawn.randint(least, max(least, min(most, len(items)))))
        return sorted(self.drawn.sample(list(items), size), key=list(items).index)

    # ---- parts of statements

    def source(self, table: str = "") -> Relation:
        """A table as it is."""
        table = table or self.drawn.choice(sorted(SOURCES))
        self.read.add(table)
        columns = SOURCES[table]
        text = f"SELECT {', '.join(columns)} FROM {table}"
        return Relation(
            sql=text, duck=text, columns=columns, table=table, fluent=lambda tables: tables[table].select(*columns)
        )

    def from_(self, relation: Relation, alias: str) -> tuple[str, str]:
        """(text, text for DuckDB) of a relation in FROM."""
        if relation.table:
            return f"{relation.table} AS {alias}", f"{relation.table} AS {alias}"
        return f"({relation.sql}) AS {alias}", f"({relation.duck}) AS {alias}"

    def condition(self, columns: Mapping[str, str], prefix: str = "") -> str:
        """A condition over columns."""
        names = [name for name, kind in columns.items() if kind in CONDITIONS]
        chosen = self.drawn.sample(names, min(len(names), self.drawn.choice([1, 1, 2])))
        parts = [self.drawn.choice(CONDITIONS[columns[name]]).format(prefix + name) for name in chosen]
        text = self.drawn.choice([" AND ", " OR "]).join(parts)
        return f"NOT ({text})" if self.drawn.random() < 0.15 else text

    def aggregate(self, columns: Mapping[str, str]) -> tuple[str, str, Any, str]:
        """(text, text for DuckDB, aggregate of the fluent API, kind of its value)."""
        if self.drawn.random() < 0.2:
            return "COUNT(*)", "COUNT(*)", fm.count(), "int"
        name = self.drawn.choice([n for n, kind in columns.items() if kind in KEYS])
        kind, small = columns[name], SMALL.format(name)
        least = f"MIN({name})", f"MIN({name})", fm.min(name), kind
        greatest = f"MAX({name})", f"MAX({name})", fm.max(name), kind
        known = f"COUNT({name})", f"COUNT({name})", fm.count(name), "int"
        different = f"COUNT(DISTINCT {name})", f"COUNT(DISTINCT {name})", fm.count_distinct(name), "int"
        own: list[tuple[str, str, Any, str]] = [least, greatest, known, different]
        if kind == "int":
            own += [
                (f"SUM({small})", f"SUM({small})::BIGINT", fm.sum(small), "int"),
                (f"AVG({small})", f"AVG({small})", fm.mean(small), "mean"),
                (f"STDDEV({small})", f"STDDEV_SAMP({small})", fm.stddev(small), "mean"),
            ]
        if kind == "float":
            own.append((f"SUM({name})", f"SUM({name})", fm.sum(name), "mean"))
        if kind == "dec":
            own += [
                (f"SUM({name})", f"SUM({name})", fm.sum(name), "mean"),
                (f"AVG({name})", f"AVG({name}::DOUBLE)", fm.mean(name), "mean"),
                (f"MEDIAN({name})", f"MEDIAN({name}::DOUBLE)", fm.median(name), "mean"),
            ]
        if self.drawn.random() < 0.25:
            where = self.condition(columns)
            if self.drawn.random() < 0.5:
                text = f"COUNT(*) FILTER (WHERE {where})"
                return text, text, fm.count(f"CASE WHEN {where} THEN 1 END"), "int"
            text = f"MAX({name}) FILTER (WHERE {where})"
            return text, text, fm.max(f"CASE WHEN {where} THEN {name} END"), kind
        return self.drawn.choice(own)

    def aggregates(self, columns: Mapping[str, str]) -> dict[str, tuple[str, str, Any, str]]:
        """New columns of aggregates."""
        return {self.name("m"): self.aggregate(columns) for _ in range(self.drawn.randint(1, 3))}

    def order(self, names: Sequence[str]) -> str:
        """Columns of an order, each with a direction and the place of nulls."""
        names = list(names)
        self.drawn.shuffle(names)
        ways = [f"{d} NULLS {n}".strip() for d in ("", "DESC") for n in ("FIRST", "LAST")]
        return ", ".join(f"{name} {self.drawn.choice(ways)}" for name in names)


def unsaid(tables: Mapping[str, Stream[Any]]) -> Stream[Any]:
    raise NotImplementedError("other tests compare the fluent form of this")


def over_window(aggregate: str, window: str) -> str:
    """An aggregate with a window, before a cast of DuckDB's."""
    head, cast, kind = aggregate.rpartition(")::")
    return f"{head}) {window}::{kind}" if cast else f"{aggregate} {window}"
