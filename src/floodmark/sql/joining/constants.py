"""Rows that the statement itself holds, VALUES and SELECT without FROM: joined with each row of a stream, without state, or rows of their own.

Rows of their own are there from the first row of any table of the statement on: an operator over no rows at all has no result.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from sqlglot import exp

from floodmark.core.errors import DefinitionError
from floodmark.spec.expressions import itself
from floodmark.spec.graph.stream import Stream
from floodmark.sql.dialect import SPAN
from floodmark.sql.joining.joins import conjuncts, kind_of
from floodmark.sql.options import Options
from floodmark.sql.refusals import check_expression, unsayable
from floodmark.sql.relation import BOUNDS, Name, Relation
from floodmark.sql.text import Text, new_name

_MOST = 1000
"""Most rows of VALUES: each row of the stream is compared with each of them."""
_WHOLE_CELL = re.compile(r"[\w.]+|'[^']*'")
"""A cell that needs no parentheses within an expression."""


def values_of(node: exp.Expr) -> exp.Values | None:
    """The VALUES that a table of FROM is."""
    if isinstance(node, exp.Subquery) and isinstance(node.this, exp.Values) and not node.this.args.get("alias"):
        values: exp.Values = node.this
        values.set("alias", node.args.get("alias"))
        return values
    return node if isinstance(node, exp.Values) else None


def single_row(inputs: Iterable[Relation]) -> Relation | None:
    """(the inputs of a statement) -> a row without columns that is there from their first row on; None without inputs."""
    column: dict[str, Any] = {"single_row": "1"}
    streams: list[Stream[Any]] = [rows.stream.select(**column) for rows in inputs if rows.lookup is None]
    return Relation(stream=streams[0].union(*streams[1:]).distinct(), names=()) if streams else None


class Constants:
    """The rows of a VALUES.

    Args:
        text: of the statement.
        node: the VALUES.
    """

    def __init__(self, text: Text, node: exp.Values) -> None:
        self.text, self.node = text, node
        rows = [tuple(row.expressions) if isinstance(row, exp.Tuple) else (row,) for row in node.expressions]
        self.rows = [[self._written(cell) for cell in row] for row in rows]
        alias = node.args.get("alias")
        self.alias = alias.name if alias is not None and alias.this is not None else "values"
        names = [column.name for column in (alias.args.get("columns") or ())] if alias is not None else []
        self.names = names or [f"col{number}" for number, _ in enumerate(self.rows[0], 1)]
        widths = {len(self.names), *map(len, self.rows)}
        if len(widths) > 1 or len(self.rows) > _MOST:
            got = f"{len(self.rows)} rows of {' or '.join(map(str, sorted(widths)))} values"
            fix = "Write VALUES (1, 'a'), (2, 'b') AS v(number, name); more rows are the file of a source."
            raise DefinitionError(
                text.at(node), f"at most {_MOST} rows, each with a value per column", got, fix, code="DEFINITION-393"
            )

    def _written(self, cell: exp.Expr) -> str:
        column = next(iter(cell.find_all(exp.Column, exp.Query)), None)
        if column is not None:
            raise unsayable(self.text, column, "VALUES that read a column", "Write constants in it.")
        return self.text.of(cell) if SPAN in cell.meta else cell.sql("spark")

    def alone(self, row: Relation, options: Options) -> Relation:
        """(a single row, settings) -> the rows of VALUES."""
        relation = self._beside(row, ["true"] * len(self.rows), options, outer=False)
        columns: dict[str, Any] = {name.name: name.text for name in relation.names}
        names = tuple(replace(name, column=name.name, text=itself(name.name)) for name in relation.names)
        return replace(relation, stream=relation.stream.select(**columns), names=names)

    def joined(self, join: exp.Expr, relation: Relation, options: Options) -> Relation:
        """(the join, the rows before it, settings) -> the rows of the join."""
        kind, on = kind_of(self.text, join, self.node), list(conjuncts(join.args.get("on")))
        if kind in {"right", "full"} or join.args.get("using"):
            fix = "Write JOIN, LEFT, LEFT SEMI or LEFT ANTI JOIN ... ON, with VALUES on the right; or EMIT CHANGES at the end."
            raise unsayable(self.text, self.node, f"a {kind} join with VALUES, of results that do not change", fix)
        for condition in on:
            check_expression(self.text, condition)
        holds = [self._condition(relation, on, row) for row in self.rows]
        if kind in {"semi", "anti"}:
            matches = " OR ".join(f"({text})" for text in holds)
            wanted = matches if kind == "semi" else f"NOT coalesce({matches}, false)"
            return replace(relation, stream=relation.stream.filter(wanted, on_error=options.on_error))
        return self._beside(relation, holds, options, outer=kind == "left")

    def _condition(self, relation: Relation, on: Sequence[exp.Expr], row: Sequence[str]) -> str:
        """The text of ON for one row of VALUES."""
        cells = {name.lower(): cell for name, cell in zip(self.names, row, strict=True)}
        read = relation.read(self.text)

        def replacement(node: exp.Expr) -> str | None:
            if isinstance(node, exp.Column) and not isinstance(node.this, exp.Star):
                own = node.table.lower() == self.alias.lower() if node.table else relation.find(self.text, node) is None
                if own and node.name.lower() in cells:
                    cell = cells[node.name.lower()]
                    return cell if _WHOLE_CELL.fullmatch(cell) else f"({cell})"
            return read(node)

        parts = [f"({relation.scalar(self.text, part, replacement)})" for part in on]
        return " AND ".join(parts) or "true"

    def _beside(self, relation: Relation, holds: Sequence[str], options: Options, *, outer: bool) -> Relation:
        """Each row once for each row of VALUES for which its condition holds; where ``outer``, once with nulls if there is none."""
        stream, taken = relation.stream, [*relation.stream.schema.names, *BOUNDS]
        number = new_name(f"{self.alias}_row", [*taken, *self.names])
        plain = all(text == "true" for text in holds)
        numbers = ", ".join(str(n) if plain else f"CASE WHEN {text} THEN {n} END" for n, text in enumerate(holds))
        matching = f"array({numbers})" if plain else f"filter(array({numbers}), x -> x IS NOT NULL)"
        stream = stream.unnest(matching, number, outer=outer, on_error=options.on_error)
        columns: dict[str, Any] = {}
        for at, name in enumerate(self.names):
            cells = [row[at] for row in self.rows]
            known = [(n, cell) for n, cell in enumerate(cells) if cell.upper() != "NULL"]
            if not known:
                fix = f"Say the type of column {name}: CAST(NULL AS STRING)."
                raise DefinitionError(
                    self.text.at(self.node), "values of a type", "NULL in each row", fix, code="DEFINITION-393"
                )
            cases = " ".join(f"WHEN {itself(number)} = {n} THEN {cell}" for n, cell in known)
            columns[new_name(name, [*taken, number, *columns])] = f"CASE {cases} END"
        stream = stream.with_columns(on_error=options.on_error, **columns)
        keep: dict[str, Any] = {name: itself(name) for name in stream.schema.names if name != number}
        new = [
            Name(table=self.alias, name=name, column=column, text=itself(column))
            for name, column in zip(self.names, columns, strict=True)
        ]
        return replace(relation, stream=stream.select(**keep), names=(*relation.names, *new))
