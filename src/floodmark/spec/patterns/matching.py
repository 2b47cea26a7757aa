"""The declaration of a step that matches a pattern: its conditions and measures, read over the columns of its input."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from attrs import field, frozen

from floodmark.core.code import Code
from floodmark.core.errors import DefinitionError
from floodmark.core.fingerprint import digest
from floodmark.spec.expressions import check
from floodmark.spec.expressions.interpreted import own_row
from floodmark.spec.expressions.typed import Typed
from floodmark.spec.keyed.process import StatefulFunction
from floodmark.spec.keyed.state import ListState
from floodmark.spec.keyed.top import By
from floodmark.spec.patterns.conditions import Text, leaves
from floodmark.spec.patterns.pattern import Pattern
from floodmark.spec.patterns.skip import Skip
from floodmark.spec.patterns.terms import DISTINCT, Term, refers, term
from floodmark.spec.rows.kinds import Kind
from floodmark.spec.values.schema import Schema

MATCHES, TIMED_OUT, LATE = "", "timed_out", "late"
"""The outputs of a pattern."""
MASK = "_fits_"
"""Begins the names of columns that hold whether a row fits a condition; the step that computes them has no others of its own."""

Rows = Mapping[str, Sequence[Mapping[str, Any]]]
"""Stage -> its rows, oldest first."""


@frozen
class OwnRow:
    """A condition over the columns of the row alone: an engine computes it as a column.

    Args:
        text: Spark SQL.
        column: the name of that column.
        tree: for rows in state that lack the column; None if only an engine computes the condition.
    """

    text: str
    column: str
    tree: Typed | None


@frozen
class Selected:
    """What becomes of a match: measures by name, or a function over its rows.

    Args:
        measures: (column, expression).
        function: (rows by stage) -> rows; None with measures.
        code: of the function.
    """

    measures: tuple[tuple[str, Term], ...] = ()
    function: Callable[[Rows], Iterable[Mapping[str, Any]]] | None = field(default=None, eq=False)
    code: Code | None = None

    def canonical(self) -> dict[str, Any]:
        """The expressions, or the digest of the code."""
        measures = [[name, measure.text] for name, measure in self.measures]
        return {"code": str(self.code)} if self.code is not None else {"measures": measures}


class Matching(StatefulFunction):
    """A function that matches rows of a key in order of event time, and stores those that a match may still need.

    Args:
        most: number of partial matches, or of waiting rows, that a key may have.
        ordering: columns that order rows of one event time.
        columns: of the input.
        late: whether late rows are written to an output.
    """

    rows = ListState(Kind("row"))

    def __init__(self, most: int, ordering: tuple[By, ...], *, columns: tuple[str, ...], late: bool) -> None:
        self.most, self.ordering, self.columns, self.late = most, ordering, columns, late


class PatternMatching(Matching):
    """Matches of a pattern among the rows of a key, in order of event time. ``semantics.kernels.functions.patterns`` computes them.

    State is the rows since the first row of the earliest partial match. The automaton is compiled anew wherever rows are matched, so another
    pattern matches the rows that are open again.
    """

    def __init__(
        self,
        pattern: Pattern,
        skip: Skip,
        most: int,
        ordering: tuple[By, ...],
        conditions: Mapping[str, OwnRow | Term],
        outputs: Mapping[str, Selected],
        *,
        columns: tuple[str, ...],
        late: bool,
    ) -> None:
        super().__init__(most, ordering, columns=columns, late=late)
        self.pattern, self.skip = pattern, skip
        self.conditions, self.outputs = dict(conditions), dict(outputs)

    def canonical(self) -> dict[str, object]:
        """Name and settings; in place of its code in fingerprints. ``most`` changes no result, so it is left out."""
        settings: dict[str, object] = {"pattern": self.pattern.canonical(), "skip": self.skip.canonical()}
        settings |= {"sequence": [by.text for by in self.ordering]} if self.ordering else {}
        settings["outputs"] = {name: selected.canonical() for name, selected in self.outputs.items()}
        measures = (measure for selected in self.outputs.values() for _, measure in selected.measures)
        terms = [*self.conditions.values(), *measures]
        return {
            "name": "pattern",
            "settings": settings | engine_only(self.conditions.values()) | over_different_values(terms),
            "states": self.layout(),
        }


def read_conditions(pattern: Pattern, schema: Schema, where: str) -> dict[str, OwnRow | Term]:
    """SQL text -> what it is over the columns of the input.

    Raises:
        DefinitionError: those of ``term`` and of ``check``.
    """
    stages = pattern.names
    read: dict[str, OwnRow | Term] = {}
    for stage in pattern.walk():
        about = f"{where}, stage '{stage.name}'" if stage.name else f"{where}, a group"
        for leaf in (*leaves(stage.condition), *leaves(stage.until)):
            if isinstance(leaf, Text):
                read[leaf.text] = _read(leaf.text, stages, schema, about)
    return read


def _read(text: str, stages: Sequence[str], schema: Schema, where: str) -> OwnRow | Term:
    if refers(text, stages, schema):
        read = term(text, stages, schema, where)
        if read.type not in {"boolean", ""}:
            fix = "Write a comparison, such as amount > last(a.amount)."
            got = f"{text!r} of type {read.type}"
            raise DefinitionError(where, "a condition (true or false)", got, fix, code="DEFINITION-024")
        return read
    return own_condition(text, schema, where)


def own_condition(text: str, schema: Schema, where: str) -> OwnRow:
    """A condition over the columns of the row alone.

    Raises:
        DefinitionError: those of ``check``.
    """
    check(text, schema, where, boolean=True)
    return OwnRow(text, f"{MASK}{digest(text)[:12]}", own_row(text, schema, where))


def over_different_values(terms: Iterable[OwnRow | Term]) -> dict[str, object]:
    """The expressions of which DISTINCT changes a value, as an entry of a canonical form: releases that read it over had another value."""
    plain = {f"{name}{DISTINCT}" for name in ("min", "max")}
    texts = {
        term.text
        for term in terms
        if isinstance(term, Term)
        and any(of.function.endswith(DISTINCT) and of.function not in plain for of in term.references)
    }
    return {"distinct": sorted(texts)} if texts else {}


def engine_only(conditions: Iterable[OwnRow | Term]) -> dict[str, object]:
    """The conditions that only an engine computes, as an entry of a canonical form: rows in state cannot be matched by another one of them."""
    texts = sorted(c.text for c in conditions if isinstance(c, OwnRow) and c.tree is None)
    return {"engine": texts} if texts else {}
