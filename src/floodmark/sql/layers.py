"""OVER beside GROUP BY: ``RANK() OVER (ORDER BY COUNT(*) DESC)`` is over the groups, so that a SELECT is two: the groups, and OVER around them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from sqlglot import exp

from floodmark.sql.dialect import SPAN
from floodmark.sql.grouping import Grouping
from floodmark.sql.measures import is_aggregate
from floodmark.sql.relation import BOUNDS, Item, Relation
from floodmark.sql.text import Text, derived_name, new_name
from floodmark.sql.windows import bound_of

_MADE = "()"
"""Ends the names of the groups' columns, which no text of a statement has."""


@dataclass(slots=True)
class Layers:
    """The two SELECTs that one is.

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
