"""Conditions and measures as Python functions of a row and of the rows that a match has taken."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import deepcopy
from typing import Any

from floodmark.core.errors import StateError
from floodmark.semantics.aggregates.table import TABLE
from floodmark.semantics.patterns.automaton import Test, test_of
from floodmark.semantics.patterns.matcher import Path
from floodmark.semantics.patterns.values import compiled
from floodmark.spec.patterns.conditions import Coded, Condition, Text, leaves
from floodmark.spec.patterns.matching import OwnRow
from floodmark.spec.patterns.terms import Reference, Term, columns_of
from floodmark.spec.windowing.aggregates import Builtin

Valued = Callable[[Mapping[str, Any], Path | None], Any]
"""(row, rows of the match) -> value."""

BUILTIN = {
    "avg": "mean",
    "array_agg": "collect",
    "avg_distinct": "mean_distinct",
    "min_distinct": "min",
    "max_distinct": "max",
}
"""A function of references -> the aggregate that it is, where that has another name."""


def tested(conditions: Mapping[str, OwnRow | Term]) -> Callable[[Condition], Test]:
    """(SQL text -> its reading) -> function: condition of the user's -> test. Equal texts share a test."""
    by_text = {text: _test(read) for text, read in conditions.items()}

    def of(written: Condition) -> Test:
        leaf = {id(part): by_text[part.text] if isinstance(part, Text) else _coded(part) for part in leaves(written)}
        return test_of(written, leaf)

    return of


def _test(read: OwnRow | Term) -> Test:
    if isinstance(read, Term):
        value = valued(read)
        return lambda row, path: bool(value(row, path))
    return own_test(read)


def own_test(read: OwnRow) -> Test:
    """A condition over the row alone: its column, or computed where a row in state lacks the column."""
    column, text = read.column, read.text
    own = None if read.tree is None else compiled(read.tree)

    def test(row: Mapping[str, Any], path: Path | None) -> bool:  # noqa: ARG001 - one shape for all
        fits = row.get(column)
        if fits is not None:
            return bool(fits)
        if own is None:
            fix = "Go back to the conditions before; or compute all anew: floodmark apply --rebuild"
            got = f"a row that was stored before this condition: {text!r}"
            raise StateError("pattern", "rows that the condition was computed for", got, fix, code="STATE-050")
        return bool(own(row))

    return test


def _coded(leaf: Coded) -> Test:
    return lambda row, path: bool(leaf.function(_copied(row), rows_of(path)))


def rows_of(path: Path | None) -> dict[str, list[Mapping[str, Any]]]:
    """The rows of a match by stage, oldest first: copies, as a function of the user's that changes one would change the rows in state."""
    rows: dict[str, list[Mapping[str, Any]]] = {}
    for stage, event in [] if path is None else path.events():
        rows.setdefault(stage, []).append(_copied(event.row))
    return rows


def _copied(row: Mapping[str, Any]) -> dict[str, Any]:
    return {name: deepcopy(value) if isinstance(value, (list, dict)) else value for name, value in row.items()}


def valued(term: Term) -> Valued:
    """(term) -> function of a row and of the rows of the match."""
    value = compiled(term.tree)
    references = [(f"_r{number}", _reference(part)) for number, part in enumerate(term.references)]
    columns = tuple(dict.fromkeys(name for name in columns_of(term.tree) if not name.startswith("_r")))

    def of(row: Mapping[str, Any], path: Path | None) -> Any:
        scope = {name: row[name] for name in columns}
        for name, reference in references:
            scope[name] = reference(path)
        return value(scope)

    return of


def _reference(part: Reference) -> Callable[[Path | None], Any]:
    if part.function == "last" and part.value is not None:
        return _newest(part)
    if part.function == "first":
        return _oldest(part)
    return _folded(part)


def _newest(part: Reference) -> Callable[[Path | None], Any]:
    assert part.value is not None
    value, stages, offset = compiled(part.value), frozenset(part.stages), part.offset

    def of(path: Path | None) -> Any:
        left = offset
        while path is not None:
            if not stages or path.stage in stages:
                if not left:
                    return value(path.event.row)
                left -= 1
            path = path.before
        return None

    return of


def _oldest(part: Reference) -> Callable[[Path | None], Any]:
    assert part.value is not None
    value, stages, offset = compiled(part.value), frozenset(part.stages), part.offset

    def of(path: Path | None) -> Any:
        events = [] if path is None else path.events()
        rows = [event.row for stage, event in events if not stages or stage in stages]
        return value(rows[offset]) if offset < len(rows) else None

    return of


def _folded(part: Reference) -> Callable[[Path | None], Any]:
    name = BUILTIN.get(part.function, part.function)
    value = None if part.value is None else compiled(part.value)
    kind = "bigint" if part.value is None else part.value.type
    fold = TABLE[name].row("measure", Builtin(name, None if part.value is None else part.value.column or "value"), kind)
    stages = frozenset(part.stages)

    def of(path: Path | None) -> Any:
        state = fold.create()
        for stage, event in [] if path is None else path.events():
            if not stages or stage in stages:
                state = fold.add(state, None if value is None else value(event.row), None)
        return fold.result(state)

    return of
