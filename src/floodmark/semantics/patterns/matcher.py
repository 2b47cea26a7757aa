"""Matches of a pattern among the rows of one key, row by row. Source: Flink ``NFA``.

A partial match holds the rows it has taken as a list that shares its beginning with others. State is the rows since the earliest one that
a partial match began with: a matcher that is given these rows again has the same partial matches.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

from floodmark.semantics.patterns.automaton import Automaton, Edge, State
from floodmark.spec.patterns.skip import Skip


class Event:
    """A row of a key.

    Args:
        number: of the row in its key, ascending.
        time: event time, ms.
        row: its columns.
    """

    __slots__ = ("number", "row", "time")

    def __init__(self, number: int, time: int, row: Mapping[str, Any]) -> None:
        self.number, self.time, self.row = number, time, row


class Path:
    """The rows a partial match has taken: the newest one, its stage, and the path before it."""

    __slots__ = ("before", "event", "stage")

    def __init__(self, stage: str, event: Event, before: Path | None) -> None:
        self.stage, self.event, self.before = stage, event, before

    def events(self) -> list[tuple[str, Event]]:
        """(stage, row) of all rows, oldest first."""
        taken, path = [], self
        while True:
            taken.append((path.stage, path.event))
            if path.before is None:
                return taken[::-1]
            path = path.before


class Partial:
    """A partial match: the state it waits in, its rows, its first and its newest row."""

    __slots__ = ("first", "path", "state")

    def __init__(self, state: State, path: Path, first: Event) -> None:
        self.state, self.path, self.first = state, path, first

    def expiry(self, window: int | None) -> int | None:
        """The time at which it times out, ms; None for never."""
        gap = self.state.gap
        ends = [] if window is None else [self.first.time + window]
        if gap is not None:
            ends.append(self.path.event.time + gap)
        return min(ends, default=None)


class Outcome:
    """A match, or a partial match that has timed out.

    Args:
        kind: which of the two.
        path: its rows; None if ``row`` is what comes of it.
        time: of the row or the time-out that decided it, ms.
        row: of the result.
    """

    __slots__ = ("kind", "path", "row", "time")

    def __init__(
        self, kind: Literal["match", "timed_out"], path: Path | None, time: int, row: Mapping[str, Any] | None = None
    ) -> None:
        self.kind, self.path, self.time, self.row = kind, path, time, row


class MissingStage(Exception):  # noqa: N818 - made a UserCodeError by the kernel
    """A match cannot be continued at the stage that its skip strategy names."""


class TooMany(Exception):  # noqa: N818 - made a UserCodeError by the kernel
    """More partial matches of one key than the pattern allows."""


class Matcher:
    """The partial matches of one key.

    Args:
        automaton: of the pattern.
        skip: what a match discards.
        most: greatest number of partial matches.
    """

    __slots__ = ("automaton", "completed", "expiry", "most", "partials", "passed", "seen", "skip")

    def __init__(self, automaton: Automaton, skip: Skip, most: int) -> None:
        self.automaton, self.skip, self.most = automaton, skip, most
        self.partials: list[Partial] = []
        self.completed: list[Partial] = []
        """Matches that wait, as a partial match that began earlier may still discard them."""
        self.expiry: int | None = None
        """The earliest time at which a partial match times out."""
        self.seen: list[Event] = []
        """The rows since the earliest partial match began, and some before them."""
        self.passed: int | None = None
        """The latest time for which partial matches have timed out."""

    @property
    def waiting(self) -> bool:
        """Whether a partial match is completed by the end of input: none is."""
        return False

    @property
    def first(self) -> Event | None:
        """The earliest row that a partial match, or a match that waits, began with."""
        began = [partial.first for partial in (*self.partials, *self.completed)]
        return min(began, key=lambda event: event.number, default=None)

    def dump(self) -> dict[str, Any]:
        """Rows and time from which ``load`` makes the same partial matches; empty if nothing is needed."""
        first = self.first
        rows = [] if first is None else [(e.time, dict(e.row)) for e in self.seen if e.number >= first.number]
        if not rows:
            return {}
        return {"rows": rows} | ({} if self.passed is None else {"time": self.passed})

    def load(self, rows: Sequence[tuple[int, Mapping[str, Any]]], state: Mapping[str, Any]) -> None:
        """Restore what ``dump`` returned: the rows are matched again, and what comes of them was emitted before."""
        for number, (time, row) in enumerate(rows):
            self.push(Event(number, time, row))
        if "time" in state:
            self.advance(state["time"])

    def snapshot(self) -> Any:
        """The partial matches, to ``restore`` them: none is ever changed."""
        return list(self.partials), list(self.completed), self.expiry, list(self.seen), self.passed

    def restore(self, snapshot: Any) -> None:
        """Restore what ``snapshot`` returned."""
        partials, completed, self.expiry, seen, self.passed = snapshot
        self.partials, self.completed, self.seen = list(partials), list(completed), list(seen)

    # ---- time

    def advance(self, time: int, *, ended: bool = False) -> list[Outcome]:  # noqa: ARG002 - as of other matchers
        """All rows before ``time`` are in: the partial matches that cannot be completed any more time out."""
        outcomes: list[Outcome] = []
        if self.expiry is not None and self.expiry <= time:
            self.passed = max(time, self.passed or time)
        while self.expiry is not None and self.expiry <= time:
            instant = self.expiry
            left: list[Partial] = []
            matched: list[Partial] = []
            for partial in self.partials:
                expiry = partial.expiry(self.automaton.window)
                if expiry is None or expiry > instant:
                    left.append(partial)
                elif partial.state.kind == "pending":
                    matched.append(partial)
                else:
                    outcomes.append(Outcome("timed_out", partial.path, instant))
            self.partials = left
            outcomes += self._matched(matched, instant)
            self._expire()
        return outcomes

    def _expire(self) -> None:
        window = self.automaton.window
        ends = [end for partial in self.partials if (end := partial.expiry(window)) is not None]
        self.expiry = min(ends, default=None)

    # ---- rows

    def push(self, event: Event) -> list[Outcome]:
        """The next row; time-outs up to its time come before."""
        outcomes = self.advance(event.time) if self.expiry is not None and self.expiry <= event.time else []
        left: list[Partial] = []
        matched: list[Partial] = []
        for partial in self.partials:
            self._moved(partial.state, partial, event, left, matched)
        self._moved(self.automaton.start, None, event, left, matched)
        if len(left) > self.most:
            msg = f"{len(left):,}"
            raise TooMany(msg)
        self.partials = left
        outcomes += self._matched(matched, event.time)
        self._expire()
        if self.partials or self.completed:
            self.seen.append(event)
        elif self.seen:
            self.seen.clear()
        return outcomes

    def _moved(
        self, state: State, partial: Partial | None, event: Event, left: list[Partial], matched: list[Partial]
    ) -> None:
        """Move one partial match, or begin one, by a row."""
        path = None if partial is None else partial.path
        next_partials: list[Partial] = []
        for source, edge in _edges(state, event, path):
            if edge.action == "ignore":
                if partial is None:
                    continue
                moved = Partial(edge.target, partial.path, partial.first)
            else:
                first = event if partial is None else partial.first
                moved = Partial(edge.target, Path(source.name, event, path), first)
                if edge.target.kind != "final" and _ends(edge.target, event, path):
                    matched_now = Partial(edge.target, moved.path, first)
                    next_partials.append(Partial(_FINAL, matched_now.path, first))
            next_partials.append(moved)
        if any(moved.state.kind == "stop" for moved in next_partials):
            matched += [moved for moved in next_partials if moved.state.kind == "final"]
            return
        for moved in next_partials:
            (matched if moved.state.kind == "final" else left).append(moved)

    # ---- matches

    def _matched(self, matched: list[Partial], time: int) -> list[Outcome]:
        if self.skip.strategy == "no_skip":
            return [Outcome("match", partial.path, time) for partial in matched]
        self.completed = sorted([*self.completed, *matched], key=lambda partial: partial.first.number)
        outcomes = []
        while self.completed:
            earliest = self.completed[0]
            began = min((partial.first.number for partial in self.partials), default=None)
            if began is not None and began < earliest.first.number:
                break
            self.completed.pop(0)
            outcomes.append(Outcome("match", earliest.path, time))
            keeps = self._survivors(earliest)
            self.partials = [partial for partial in self.partials if keeps(partial)]
            self.completed = [partial for partial in self.completed if keeps(partial)]
        return outcomes

    def _survivors(self, match: Partial) -> Any:
        """(match) -> function: partial match -> whether the match leaves it."""
        if self.skip.strategy == "skip_to_next":
            return lambda partial: partial.first.number > match.first.number
        if self.skip.strategy == "skip_past_last_event":
            last = match.path.event.number
            return lambda partial: partial.first.number > last
        rows = [event for stage, event in match.path.events() if stage == self.skip.stage]
        target = None if not rows else rows[0 if self.skip.strategy == "skip_to_first" else -1]
        if self.skip.fails and (target is None or target is match.first):
            msg = "no row" if target is None else "the first row of the match"
            raise MissingStage(msg)
        return lambda partial: target is None or partial.first.number >= target.number


_FINAL = State("", "final")


def _edges(state: State, event: Event, path: Path | None) -> Iterator[tuple[State, Edge]]:
    """The edges that a row goes along from a state, and from the states that the row proceeds to."""
    states, visited = [state], {id(state)}
    while states:
        current = states.pop()
        for edge in current.edges:
            if edge.test(event.row, path):
                if edge.action != "proceed":
                    yield current, edge
                elif edge.target.kind != "final" and id(edge.target) not in visited:
                    visited.add(id(edge.target))
                    states.append(edge.target)


def _ends(state: State, event: Event, path: Path | None) -> bool:
    """Whether a match may end in a state: a final one can be reached without another row."""
    states, visited = [state], {id(state)}
    while states:
        for edge in states.pop().edges:
            if edge.action == "proceed" and id(edge.target) not in visited and edge.test(event.row, path):
                if edge.target.kind == "final":
                    return True
                visited.add(id(edge.target))
                states.append(edge.target)
    return False
