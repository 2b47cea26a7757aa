"""Statements drawn from the grammar, each said three times: as SQL, for DuckDB, and by the fluent API.

A relation is drawn over others, up to three deep: filters, projections, aggregates with HAVING, FILTER and DISTINCT, joins of six kinds, semi and anti
joins by EXISTS and IN, first rows, DISTINCT, UNION, UNNEST, and results over rows; or, over rows that are final, windows of four kinds, first and
different rows of a window, results in order of event time, and interval joins. The tables are those of ``changing``, whose values are odd.
"""

from __future__ import annotations

import random
import re
from dataclasses import dataclass
from typing import Any

from changing import CHANGING
from drawn_changing import Changing
from drawn_parts import SOURCES_OF_ROWS, Relation, unsaid
from drawn_windows import Windows

import floodmark as fm
from floodmark.spec.graph.operator import Operator


class Drawing(Changing, Windows):
    """Draws relations of all kinds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Statement:
    """A drawn statement.

    Args:
        relation: what it selects.
        tables: that it reads.
        changes: whether its results change.
    """

    relation: Relation
    tables: tuple[str, ...]
    changes: bool

    @property
    def inputs(self) -> dict[str, Any]:
        """The tables as inputs of an operator."""
        return {name: (CHANGING if self.changes else SOURCES_OF_ROWS)[name] for name in self.tables}

    @property
    def sql(self) -> str:
        """The text."""
        changing = self.changes and not {"where", "project", "unnest", "union all"}.issuperset(self.relation.shape)
        return f"{self.relation.sql} EMIT CHANGES" if changing else self.relation.sql

    def operator(self) -> Operator:
        """The operator of the text."""
        return fm.sql_operator("drawn", self.sql, inputs=self.inputs)

    def fluent(self) -> Operator | None:
        """The operator of the same steps by the fluent API; None where the drawing has none."""
        relation = self.relation
        if relation.fluent is unsaid:
            return None
        if self.tables == ("lefts",):

            @fm.operator(inputs=self.inputs)
            def drawn(lefts):  # type: ignore[no-untyped-def]
                return relation.fluent({"lefts": lefts})

        elif self.tables == ("rights",):

            @fm.operator(inputs=self.inputs)
            def drawn(rights):  # type: ignore[no-untyped-def]
                return relation.fluent({"rights": rights})

        else:

            @fm.operator(inputs=self.inputs)
            def drawn(lefts, rights):  # type: ignore[no-untyped-def]
                return relation.fluent({"lefts": lefts, "rights": rights})

        return drawn  # type: ignore[no-any-return]


def statement(seed: int, *, changes: bool | None = None) -> Statement:
    """A statement of the grammar.

    Args:
        seed: decides which.
        changes: whether its results change; by chance in two of three.
    """
    drawn = random.Random(seed)
    changes = drawn.random() < 0.67 if changes is None else changes
    drawing = Drawing(drawn)
    relation = drawing.changing(drawn.choice([1, 2, 2, 3])) if changes else drawing.final()
    read = tuple(sorted(table for table in drawing.read if re.search(rf"\b{table}\b", relation.sql)))
    return Statement(relation=relation, tables=read, changes=changes)
