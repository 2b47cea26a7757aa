"""Matches of a row pattern among the rows of a partition, as ``MATCH_RECOGNIZE`` of standard SQL defines them: one after the other, the preferred one each time.

State is the rows since the one at which the next match may begin, with those before it that PREV reads: a matcher that is given these rows
again searches as before. A match is emitted once no preferred alternative can change it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from floodmark.semantics.aggregates.table import TABLE
from floodmark.semantics.patterns.attempt import Attempt, Missing, Taken
from floodmark.semantics.patterns.matcher import Event, MissingStage, Outcome, TooMany
from floodmark.semantics.patterns.measures import BUILTIN, own_test
from floodmark.semantics.patterns.program import Program, program
from floodmark.semantics.patterns.values import compiled
from floodmark.spec.patterns.matching import OwnRow
from floodmark.spec.patterns.navigation import CLASSIFIER, MATCH_NUMBER, is_local, lookahead
from floodmark.spec.patterns.recognised import RowMatching
from floodmark.spec.patterns.syntax import anchored
from floodmark.spec.patterns.terms import Reference, Term
from floodmark.spec.windowing.aggregates import Builtin

_STEPS = 10
"""Steps of a search over conditions that read other rows by their labels, for each row that a key may have waiting."""
_LOCAL_STEPS = 100
"""Those of another search, which notes each step in memory."""
LEAST_LOCAL = 1_000
"""Waiting rows of a key that the steps of such a search are at least counted for."""


class Scope:
    """The rows that an expression is computed over.

    Args:
        rows: all rows that are there.
        taken: the rows of the match, oldest first.
        current: number of rows of the match up to the current one.
        number: of the match.
        missing: (position) -> nothing; raises ``Missing`` for a row that may still come.
    """

    __slots__ = ("current", "missing", "number", "rows", "taken")

    def __init__(
        self, rows: Sequence[Event], taken: Sequence[Taken], current: int, number: int, missing: Callable[[int], object]
    ) -> None:
        self.rows, self.taken, self.current, self.number, self.missing = rows, taken, current, number, missing

    def seen(self, part: Reference) -> Sequence[Taken]:
        """The rows of the match that a reference is about."""
        taken = self.taken if part.final else self.taken[: self.current]
        return [row for row in taken if row.label in part.stages] if part.stages else taken

    def columns(self, position: int, label: str | None) -> Mapping[str, Any] | None:
        """A row with its label and the number of the match; None if no row is there."""
        if not 0 <= position < len(self.rows):
            if position >= 0:
                self.missing(position)
            return None
        return {**self.rows[position].row, CLASSIFIER: label, MATCH_NUMBER: self.number}

    def label(self, position: int) -> str | None:
        """The label of a row; None for one that is not in the match, as far as it is known."""
        first = self.taken[0].position if self.taken else 0
        index = position - first
        return self.taken[index].label if 0 <= index < len(self.taken) else None


Measured = Callable[[Scope], Any]


def measured(term: Term) -> Measured:
    """(term) -> function of a scope."""
    value = compiled(term.tree)
    references = [(f"_r{number}", _reference(part)) for number, part in enumerate(term.references)]

    def of(scope: Scope) -> Any:
        values: dict[str, Any] = {MATCH_NUMBER: scope.number}
        for name, reference in references:
            values[name] = reference(scope)
        return value(values)

    return of


def _reference(part: Reference) -> Measured:
    return _navigated(part) if part.function in {"first", "last"} else _folded(part)


def _navigated(part: Reference) -> Measured:
    assert part.value is not None
    value, index = compiled(part.value), part.offset if part.function == "first" else -1 - part.offset

    def of(scope: Scope) -> Any:
        seen = scope.seen(part)
        if not -len(seen) <= index < len(seen):
            return None
        row = seen[index]
        position = row.position + part.shift
        label = row.label if not part.shift else scope.label(position)
        columns = scope.columns(position, label)
        return None if columns is None else value(columns)

    return of


def _folded(part: Reference) -> Measured:
    name = BUILTIN.get(part.function, part.function)
    value = None if part.value is None else compiled(part.value)
    kind = "bigint" if part.value is None else part.value.type
    fold = TABLE[name].row("measure", Builtin(name, None if part.value is None else part.value.column or "value"), kind)

    def of(scope: Scope) -> Any:
        state = fold.create()
        for row in scope.seen(part):
            columns = scope.columns(row.position, row.label) if value is not None else None
            state = fold.add(state, value(columns) if value is not None and columns is not None else None, None)
        return fold.result(state)

    return of


class Recognition:
    """A step's pattern, conditions and measures, compiled."""

    def __init__(self, matching: RowMatching) -> None:
        self.matching = matching
        self.program: Program = program(matching.pattern)
        self.conditions = {label: _condition(read) for label, read in matching.define}
        self.measures = [(name, measured(term)) for name, term in matching.measures]
        self.local = all(isinstance(read, OwnRow) or is_local(read, label) for label, read in matching.define)
        self.most_steps = _LOCAL_STEPS * max(matching.most, LEAST_LOCAL) if self.local else _STEPS * matching.most
        terms = [read for _, read in (*matching.define, *matching.measures) if isinstance(read, Term)]
        self.before, self.behind = lookahead(terms)
        self.anchored = anchored(matching.pattern)
        self.numbered = _numbered(terms)


def _condition(read: OwnRow | Term) -> Measured:
    """A condition of DEFINE: its current row is the last one of the scope."""
    if isinstance(read, Term):
        return measured(read)
    test = own_test(read)
    return lambda scope: test(scope.rows[scope.taken[-1].position].row, None)


def _numbered(terms: Sequence[Term]) -> bool:
    """Whether an expression reads the number of the match."""
    waiting = [term.tree for term in terms] + [part.value for term in terms for part in term.references if part.value]
    while waiting:
        tree = waiting.pop()
        if tree.column == MATCH_NUMBER:
            return True
        waiting += tree.children
    return False


class RowMatcher:
    """The rows of one partition.

    Args:
        recognition: of the step.
    """

    __slots__ = ("attempt", "begun", "covered", "ended", "expiry", "matches", "now", "recognition", "seen", "start")

    def __init__(self, recognition: Recognition) -> None:
        self.recognition = recognition
        self.seen: list[Event] = []
        self.start = 0
        """Position at which the next match may begin."""
        self.covered = 0
        """Position behind the last row of a match."""
        self.matches = 0
        self.begun = False
        """Whether rows of the partition were removed."""
        self.attempt: Attempt | None = None
        self.now: int | None = None
        """All rows before this time are in; None if that is not known."""
        self.ended = False
        self.expiry: int | None = None

    # ---- state

    def dump(self) -> dict[str, Any]:
        """Rows and numbers from which ``load`` makes the same matcher; empty if nothing is needed."""
        numbers = {"start": self.start, "covered": self.covered}
        if self.recognition.numbered:
            numbers["matches"] = self.matches
        if self.recognition.anchored:
            numbers["begun"] = int(self.begun)
        needed = (
            self.start < len(self.seen)
            or numbers.get("matches")
            or numbers.get("begun")
            or (self.recognition.before and self.seen)
        )
        return {"rows": [(event.time, dict(event.row)) for event in self.seen], "numbers": numbers} if needed else {}

    def load(self, rows: Sequence[tuple[int, Mapping[str, Any]]], state: Mapping[str, Any]) -> None:
        """Restore what ``dump`` returned: the next match is searched for again."""
        self.seen = [Event(number, time, row) for number, (time, row) in enumerate(rows)]
        numbers = state.get("numbers", {})
        self.start, self.covered = numbers.get("start", 0), numbers.get("covered", 0)
        self.matches, self.begun = numbers.get("matches", 0), bool(numbers.get("begun", 0))
        self._expire()

    def snapshot(self) -> Any:
        """Everything a row may change, to ``restore`` it."""
        return list(self.seen), self.start, self.covered, self.matches, self.begun, self.now, self.ended

    def restore(self, snapshot: Any) -> None:
        """Restore what ``snapshot`` returned; the search begins again."""
        seen, self.start, self.covered, self.matches, self.begun, self.now, self.ended = snapshot
        self.seen, self.attempt = list(seen), None
        self._expire()

    # ---- rows and time

    def push(self, event: Event) -> list[Outcome]:
        """The next row."""
        self.seen.append(event)
        if len(self.seen) - self.start > self.recognition.matching.most:
            msg = f"{len(self.seen) - self.start:,}"
            raise TooMany(msg)
        return self._search(event.time)

    def advance(self, time: int, *, ended: bool = False) -> list[Outcome]:
        """All rows before ``time`` are in; with ``ended`` no row follows at all."""
        self.now, self.ended = time, self.ended or ended
        outcomes: list[Outcome] = []
        while self.expiry is not None and self.expiry <= time:
            instant, before = self.expiry, len(outcomes)
            outcomes += self._search(instant)
            if len(outcomes) == before and self.expiry == instant:
                break
        return outcomes + (self._search(time) if ended else [])

    def _search(self, time: int = 0) -> list[Outcome]:
        """Matches that are decided now."""
        outcomes: list[Outcome] = []
        while self.start < len(self.seen):
            attempt = self.attempt
            if attempt is None:
                first_row = self.start == 0 and not self.begun
                attempt = self.attempt = Attempt(
                    self.recognition.program,
                    self.start,
                    self._fits,
                    self._gone,
                    first_row=first_row,
                    local=self.recognition.local,
                    most_steps=self.recognition.most_steps,
                )
            verdict = attempt.run()
            if verdict == "waits":
                break
            try:
                rows = self._unmatched() if verdict == "fails" else self._matched(attempt.match)
            except Missing:
                break
            outcomes += [Outcome("match", None, time, row) for row in rows]
        self._trim()
        self._expire()
        return outcomes

    @property
    def waiting(self) -> bool:
        """Whether rows are there that a match may begin at."""
        return self.start < len(self.seen)

    def _expire(self) -> None:
        window = self.recognition.matching.within
        self.expiry = self.seen[self.start].time + window if self.waiting and window is not None else None

    def _trim(self) -> None:
        drop = max(self.start - self.recognition.before, 0)
        if drop > 64 or (drop and self.start == len(self.seen)):  # noqa: PLR2004 - not for each row
            del self.seen[:drop]
            self.start, self.covered, self.begun = self.start - drop, max(self.covered - drop, 0), True
            self.attempt = None  # its positions are others now: the search from the row begins again

    def _gone(self, position: int) -> bool:
        """Whether no row of the match can be at a position; raises ``Missing`` if that is not known."""
        window = self.recognition.matching.within
        first = self.seen[self.start].time
        if position < len(self.seen):
            return window is not None and self.seen[position].time - first >= window
        if self.ended or (window is not None and self.now is not None and self.now >= first + window):
            return True
        raise Missing

    def _missing(self, position: int) -> None:
        """Wait for a row that an expression reads, unless none can come."""
        if position >= len(self.seen) and not self.ended:
            raise Missing

    def _fits(self, label: str, position: int, taken: Taken | None) -> bool:
        condition = self.recognition.conditions.get(label)
        if condition is None:
            return True
        candidate = Taken(label, position, taken, excluded=False)
        rows = [candidate] if self.recognition.local else candidate.all()
        return bool(condition(Scope(self.seen, rows, len(rows), self.matches + 1, self._missing)))

    # ---- matches

    def _matched(self, match: Taken | None) -> list[dict[str, Any]]:
        """The rows of a match; the next one begins where the skip strategy says."""
        taken = [] if match is None else match.all()
        number = self.matches + 1
        rows = list(self._rows(taken, number))
        target = self._next(taken)
        self.matches, self.attempt = number, None
        self.covered = max(self.covered, taken[-1].position + 1 if taken else self.start + 1)
        self.start = target
        return rows

    def _next(self, taken: Sequence[Taken]) -> int:
        strategy, labels = self.recognition.matching.skip
        if strategy == "next":
            return self.start + 1
        if strategy == "past":
            return taken[-1].position + 1 if taken else self.start + 1
        named = [row.position for row in taken if row.label in labels]
        if not named:
            msg = "no row"
            raise MissingStage(msg)
        target = named[0] if strategy == "first" else named[-1]
        if target == self.start:
            msg = "the first row of the match"
            raise MissingStage(msg)
        return target

    def _rows(self, taken: Sequence[Taken], number: int) -> Iterator[dict[str, Any]]:
        matching = self.recognition.matching
        if matching.rows_per_match == "one":
            yield self._row(taken, len(taken), number, {})
            return
        if not taken:
            if matching.rows_per_match != "all without empty":
                yield self._row((), 0, number, self.seen[self.start].row)
            return
        for index, row in enumerate(taken):
            if not row.excluded:
                yield self._row(taken, index + 1, number, self.seen[row.position].row)

    def _row(self, taken: Sequence[Taken], current: int, number: int, own: Mapping[str, Any]) -> dict[str, Any]:
        scope = Scope(self.seen, taken, current, number, self._missing)
        passed = {name: own[name] for name in self.recognition.matching.passed} if own else {}
        return passed | {name: measure(scope) for name, measure in self.recognition.measures}

    def _unmatched(self) -> list[dict[str, Any]]:
        """The row that no match begins at; emitted if it is in no match and these rows are asked for."""
        matching, position = self.recognition.matching, self.start
        self.attempt, self.start = None, position + 1
        if matching.rows_per_match != "all with unmatched" or position < self.covered:
            return []
        own = self.seen[position].row
        return [{name: own[name] for name in matching.passed} | {name: None for name, _ in matching.measures}]
