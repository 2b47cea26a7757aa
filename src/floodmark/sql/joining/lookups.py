"""Joins with lookup tables: the rows that a table outside of the lake has when a row is processed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from sqlglot import exp

from floodmark.core.errors import DefinitionError
from floodmark.spec.expressions import itself
from floodmark.spec.graph import steps
from floodmark.spec.graph.stream import Stream
from floodmark.spec.rows.lookup import VERSION, LookupTable
from floodmark.sql.joining.joins import conjuncts, kind_of
from floodmark.sql.options import Options
from floodmark.sql.refusals import check_expression, unsayable
from floodmark.sql.relation import Name, Relation
from floodmark.sql.text import Text, new_name
from floodmark.sql.windows import is_clock


def relation_of_lookup(name: str, table: LookupTable, operator: str) -> Relation:
    """A lookup table as a relation that is joined by ``looked_up`` alone."""
    columns = (*table.schema.names, VERSION)
    names = tuple(Name(table=name, name=column, text=itself(column), column=column) for column in columns)
    return Relation(stream=Stream(steps.Read(table.name, table.schema), operator), names=names, lookup=table)


class LookupJoiner:
    """A join with a lookup table.

    Args:
        text: of the statement.
        node: the join.
        left: the rows before it.
        right: the table, under its alias.
    """

    def __init__(self, text: Text, node: exp.Join, left: Relation, right: Relation) -> None:
        self.text, self.node, self.left, self.right = text, node, left, right
        self.both = replace(left, names=(*left.names, *right.names), separate=True)
        self.kind = kind_of(text, node, node.this)
        self.keys: dict[str, str] = {}
        self.others: list[exp.Expr] = []

    def joined(self, options: Options, where: list[exp.Expr]) -> tuple[Relation, list[exp.Expr]]:
        """(settings, conditions of WHERE) -> the rows of the join, and the conditions that are left."""
        table = self.right.lookup
        assert table is not None
        self._check(table)
        for name in self.node.args.get("using") or ():
            self.keys[name.name] = self._of_left(exp.column(name.name))
        conditions = list(conjuncts(self.node.args.get("on")))
        conditions += where if self.kind == "inner" else []
        for condition in conditions:
            check_expression(self.text, condition)
            self._sort(condition)
        if not self.keys:
            alias, column = self.right.tables[0], table.schema.names[0]
            fix = f"Write an equality with a column of the table: ON {alias}.{column} = ..."
            raise DefinitionError(self.text.at(self.node.this), "a lookup by a key", "none", fix, code="DEFINITION-392")
        return self._with_rows(table, options), [] if self.kind == "inner" else where

    def _check(self, table: LookupTable) -> None:
        version = self.node.this.args.get("version")
        moment = version.expression if version is not None else None
        located = self.left.find(self.text, moment) if isinstance(moment, exp.Column) else None
        if moment is None or not is_clock(moment, located):
            fix = f"Write JOIN {table.name} FOR SYSTEM_TIME AS OF PROCTIME(): the rows that it has when a row is processed; what changes with event time is a source."
            got = "none" if moment is None else self.text.of(moment)
            raise DefinitionError(
                self.text.at(moment or self.node.this), "the clock, of a lookup table", got, fix, code="DEFINITION-392"
            )
        if self.kind not in {"inner", "left"}:
            raise unsayable(
                self.text, self.node.this, f"a {self.kind} join with a lookup table", "Write JOIN or LEFT JOIN."
            )

    def _sort(self, condition: exp.Expr) -> None:
        """Whether a condition is an equality of a column of the table with what the row knows, or another one."""
        for own, other in (
            (condition.args.get("this"), condition.args.get("expression")),
            (condition.args.get("expression"), condition.args.get("this")),
        ):
            if not isinstance(condition, exp.EQ) or not isinstance(own, exp.Column) or not isinstance(other, exp.Expr):
                continue
            name = self._name(own)
            if (
                name is None
                or name.column in {*self.keys, VERSION}
                or any(self._name(column) for column in other.find_all(exp.Column))
            ):
                continue
            self.keys[name.column] = self._of_left(other)
            return
        self.others.append(condition)

    def _name(self, column: exp.Column) -> Name | None:
        """The column of the lookup table that a column of the statement is; None for another one."""
        located = self.both.find(self.text, column)
        return located[0] if located is not None and located[0].table in self.right.tables else None

    def _of_left(self, node: exp.Expr) -> str:
        located = self.left.find(self.text, node) if isinstance(node, exp.Column) else None
        return located[0].text if located is not None else self.left.scalar(self.text, node)

    def _with_rows(self, table: LookupTable, options: Options) -> Relation:
        unique = table.contract.floodmark_key
        if self.kind == "left" and self.others and not (unique and set(unique) <= set(self.keys)):
            fix = (
                'Say in the contract which columns tell its rows apart, class Rate(Contract, key=("currency",)), and compare these; or write the condition '
                "into WHERE."
            )
            raise unsayable(
                self.text,
                self.others[0],
                "another condition in a LEFT JOIN with a lookup table of several rows of a key",
                fix,
            )
        before = self.left.stream
        taken = list(before.schema.names)
        prefix = "" if not set(taken) & {*table.schema.names, VERSION} else f"{self.right.tables[0]}_"
        while set(taken) & {f"{prefix}{name}" for name in (*table.schema.names, VERSION)}:
            prefix = f"{prefix or self.right.tables[0]}_"
        kind: Any = self.kind
        stream = before.lookup(table, self.keys, kind=kind, prefix=prefix)
        names = tuple(
            replace(name, column=f"{prefix}{name.column}", text=itself(f"{prefix}{name.column}"))
            for name in self.right.names
        )
        relation = replace(self.left, stream=stream, names=(*self.left.names, *names), separate=True)
        using = {name.name for name in self.node.args.get("using") or ()}
        if self.others:
            condition = " AND ".join(f"({relation.scalar(self.text, node)})" for node in self.others)
            if self.kind == "inner":
                stream = stream.filter(condition, on_error=options.on_error)
            else:
                holds = new_name("holds", list(stream.schema.names))
                own: dict[str, Any] = {name.column: f"CASE WHEN {itself(holds)} THEN {name.text} END" for name in names}
                first: dict[str, Any] = {holds: condition}
                stream = stream.with_columns(on_error=options.on_error, **first).with_columns(**own)
                stream = stream.select(*(name for name in stream.schema.names if name != holds))
        return replace(
            relation, stream=stream, names=tuple(n for n in relation.names if n not in names or n.name not in using)
        )
