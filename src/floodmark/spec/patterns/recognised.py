"""The declaration of ``MATCH_RECOGNIZE``: pattern, DEFINE, MEASURES, rows per match and where the next match begins."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Literal

from attrs import frozen

from floodmark.core.errors import DefinitionError, closest, shown
from floodmark.spec.keyed.top import By
from floodmark.spec.patterns.matching import Matching, OwnRow, engine_only, over_different_values, own_condition
from floodmark.spec.patterns.navigation import over_own_row, row_term
from floodmark.spec.patterns.syntax import Part, identifier, labels, row_pattern
from floodmark.spec.patterns.terms import Term
from floodmark.spec.values.schema import Schema

RowsPerMatch = Literal["one", "all", "all without empty", "all with unmatched"]
_ROWS: Mapping[str, RowsPerMatch] = {
    "ONE ROW PER MATCH": "one",
    "ALL ROWS PER MATCH": "all",
    "ALL ROWS PER MATCH SHOW EMPTY MATCHES": "all",
    "ALL ROWS PER MATCH OMIT EMPTY MATCHES": "all without empty",
    "ALL ROWS PER MATCH WITH UNMATCHED ROWS": "all with unmatched",
}
_SKIP = re.compile(
    r"^(?:AFTER\s+MATCH\s+)?(?:SKIP\s+)?(?:(PAST)\s+LAST\s+ROW|TO\s+(NEXT)\s+ROW|TO\s+(?:(FIRST|LAST)\s+)?(\S.*?))\s*$",
    re.IGNORECASE,
)

Strategy = Literal["past", "next", "first", "last"]


@frozen
class Clause:
    """The parts of a clause as the user writes them, read.

    Args:
        pattern: the tree of PATTERN.
        define: (label, condition).
        measures: (column, expression).
        rows: rows per match.
        skip: where the next match begins: the strategy, and the labels of its variable.
        within: greatest time from the first row of a match to its last, exclusive, ms; None without one.
    """

    pattern: Part
    define: tuple[tuple[str, OwnRow | Term], ...]
    measures: tuple[tuple[str, Term], ...]
    rows: RowsPerMatch
    skip: tuple[Strategy, tuple[str, ...]]
    within: int | None


class RowMatching(Matching):
    """Matches of a row pattern in each partition, in order of event time. ``semantics.patterns.rows`` searches them.

    State is the rows since the one at which the next match may begin; another pattern is searched for among them again.
    """

    def __init__(
        self,
        text: str,
        clause: Clause,
        passed: tuple[str, ...],
        most: int,
        ordering: tuple[By, ...],
        *,
        columns: tuple[str, ...],
        late: bool,
    ) -> None:
        super().__init__(most, ordering, columns=columns, late=late)
        self.text, self.passed = text, passed
        self.pattern, self.define, self.measures = clause.pattern, clause.define, clause.measures
        self.rows_per_match, self.skip, self.within = clause.rows, clause.skip, clause.within

    def canonical(self) -> dict[str, object]:
        """Name and settings; in place of its code in fingerprints. ``most`` changes no result, so it is left out."""
        settings: dict[str, object] = {
            "pattern": self.text,
            "define": [[label, term.text] for label, term in self.define],
            "skip": [self.skip[0], list(self.skip[1])],
            "rows": self.rows_per_match,
            "measures": [[name, term.text] for name, term in self.measures],
        }
        settings |= {"sequence": [by.text for by in self.ordering]} if self.ordering else {}
        settings |= {"within": self.within} if self.within is not None else {}
        settings |= engine_only(condition for _, condition in self.define)
        settings |= over_different_values(part for _, part in (*self.define, *self.measures))
        return {"name": "row_pattern", "settings": settings, "states": self.layout()}


def clause(  # noqa: PLR0913 - its parts
    pattern: str,
    define: Mapping[str, str],
    measures: Mapping[str, str],
    rows_per_match: str,
    after_match_skip: str,
    subset: Mapping[str, Sequence[str]],
    within: int | None,
    *,
    schema: Schema,
    where: str,
) -> Clause:
    """Read the parts of a clause.

    Raises:
        DefinitionError: DEFINITION-430 no row pattern, 431 an unknown variable, 432 other words, and those of ``row_term``.
    """
    tree = row_pattern(pattern, f"{where}, pattern")
    names = tuple(dict.fromkeys(label.name for label in labels(tree)))
    unions = {identifier(name): tuple(identifier(label) for label in of) for name, of in subset.items()}
    for name, of in unions.items():
        unknown = [label for label in of if label not in names]
        if unknown or name in names:
            got = f"SUBSET {name} = ({', '.join(of)})"
            raise _unknown(f"{where}, subset", (unknown or [name])[0], names, got)
    variables = {name: (name,) for name in names} | unions
    conditions: list[tuple[str, OwnRow | Term]] = []
    for written, text in define.items():
        label = identifier(written)
        if label not in names:
            raise _unknown(f"{where}, define", label, names, f"DEFINE {written}")
        about = f"{where}, define '{label}'"
        if isinstance(text, str) and over_own_row(text, tuple(variables), schema):
            conditions.append((label, own_condition(text, schema, about)))
            continue
        term = row_term(text, variables, schema, about)
        if term.type not in {"boolean", ""}:
            fix = "Write a comparison, such as price > PREV(price)."
            got = f"{text!r} of type {term.type}"
            raise DefinitionError(about, "a condition (true or false)", got, fix, code="DEFINITION-024")
        conditions.append((label, term))
    read = tuple(
        (name, row_term(text, variables, schema, f"{where}, measure '{name}'")) for name, text in measures.items()
    )
    rows = _ROWS.get(" ".join(str(rows_per_match).upper().split()))
    if rows is None:
        raise _other_words(where, ", ".join(_ROWS), rows_per_match)
    if rows != "one" and rows == "all with unmatched" and any(label.excluded for label in labels(tree)):
        raise _other_words(where, "no {- -} with unmatched rows, which would show what it leaves out", rows_per_match)
    return Clause(tree, tuple(conditions), read, rows, _skip(after_match_skip, variables, where), within)


def _skip(text: str, variables: Mapping[str, tuple[str, ...]], where: str) -> tuple[Strategy, tuple[str, ...]]:
    words = _SKIP.match(str(text).strip())
    if words is None:
        raise _other_words(where, "PAST LAST ROW, TO NEXT ROW, TO FIRST A, TO LAST A", text)
    past, following, which, variable = words.groups()
    if past or following:
        return ("past" if past else "next"), ()
    name = identifier(variable)
    if name not in variables:
        raise _unknown(f"{where}, after_match_skip", name, tuple(variables), f"SKIP {text}")
    return ("first" if (which or "").upper() == "FIRST" else "last"), variables[name]


def _unknown(where: str, name: str, names: Sequence[str], got: str) -> DefinitionError:
    fix = closest(name, names) + f"Variables: {', '.join(names)}."
    return DefinitionError(where, "variables of the pattern", got, fix, code="DEFINITION-431")


def _other_words(where: str, expected: str, got: object) -> DefinitionError:
    fix = 'For example rows_per_match="ALL ROWS PER MATCH", after_match_skip="PAST LAST ROW".'
    return DefinitionError(where, expected, shown(got), fix, code="DEFINITION-432")
