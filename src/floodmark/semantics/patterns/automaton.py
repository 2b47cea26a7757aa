"""A pattern compiled to an automaton of all matches. Source: Flink ``NFACompiler``, whose states and edges these are.

An edge takes a row, ignores it or proceeds without it. Compiled from the last stage to the first, as each state has edges to the next one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from floodmark.spec.patterns.conditions import Combined, Condition
from floodmark.spec.patterns.pattern import Pattern, Stage

Action = Literal["take", "ignore", "proceed"]
Test = Callable[[Any, Any], bool]
"""(row, rows of the partial match) -> whether a row fits."""


def _always(row: Any, path: Any) -> bool:  # noqa: ARG001 - one shape for all
    return True


def _not(test: Test) -> Test:
    return lambda row, path: not test(row, path)


def _and(left: Test, right: Test) -> Test:
    if left is _always:
        return right
    if right is _always:
        return left
    return lambda row, path: left(row, path) and right(row, path)


@dataclass(slots=True, eq=False)
class Edge:
    """One edge of a state."""

    action: Action
    target: State
    test: Test


@dataclass(slots=True, eq=False)
class State:
    """One state.

    Args:
        name: of its stage.
        kind: ``final`` ends a match, ``stop`` discards a partial match, ``pending`` is a match once it has timed out.
        gap: greatest distance from the row taken last, exclusive, ms.
    """

    name: str
    kind: Literal["normal", "final", "stop", "pending"] = "normal"
    gap: int | None = None
    edges: list[Edge] = field(default_factory=list)

    def add(self, action: Action, target: State, test: Test = _always) -> None:
        """Add an edge."""
        self.edges.append(Edge(action, target, test))


@dataclass(frozen=True, slots=True)
class Automaton:
    """The automaton of a pattern.

    Args:
        start: where each match begins.
        window: greatest time from the first row of a match to its last, exclusive, ms; None without one.
    """

    start: State
    window: int | None


def automaton(pattern: Pattern, tests: Callable[[Condition], Test]) -> Automaton:
    """Compile a pattern.

    Args:
        pattern: its stages.
        tests: condition of the user's -> test.
    """
    compiler = _Compiler(pattern, tests)
    start = compiler.chain(pattern.stages, State("", "final"), None, None)
    return Automaton(start, pattern.length)


@dataclass(frozen=True, slots=True)
class _Here:
    """A stage with what surrounds it.

    Args:
        stages: of its pattern.
        position: of the stage among them.
        group: the group the pattern is; None for the whole pattern.
        following: the stage after it.
    """

    stages: tuple[Stage, ...]
    position: int
    group: Stage | None
    following: Stage | None

    @property
    def stage(self) -> Stage:
        """The stage."""
        return self.stages[self.position]

    @property
    def heads_group(self) -> bool:
        """Whether the stage is the first one of a group."""
        return self.group is not None and self.position == 0


class _Compiler:
    def __init__(self, pattern: Pattern, tests: Callable[[Condition], Test]) -> None:
        self.pattern, self.tests = pattern, tests
        self.first_of_loop: dict[int, bool] = {}
        self.stops: dict[str, State] = {}
        self.ungreedy: dict[int, State] = {}
        """State -> its copy from before a greedy stage took rows from it."""

    def chain(self, stages: tuple[Stage, ...], sink: State, group: Stage | None, following: Stage | None) -> State:
        """The first state of some stages whose last one leads to ``sink``."""
        for position in range(len(stages) - 1, -1, -1):
            here = _Here(stages, position, group, following)
            stage = here.stage
            if stage.contiguity == "not_followed_by":
                if sink.kind == "final":
                    sink = self._pending(here)
            elif stage.contiguity == "not_next":
                sink = self._not_next(here, sink)
            else:
                sink = self._converted(here, sink)
            following = stage
        return sink

    def _pending(self, here: _Here) -> State:
        """The last state of a pattern that ends with ``not_followed_by``: a match once its time is over."""
        state, forbidden = State(here.stage.name, "pending", here.stage.gap), self._take_test(here)
        state.add("proceed", self._stop(forbidden, here.stage.name), forbidden)
        state.add("ignore", state, _not(forbidden))
        return state

    def _not_next(self, here: _Here, sink: State) -> State:
        state, forbidden = State(here.stage.name), self._take_test(here)
        state.add("ignore" if sink.kind == "final" else "proceed", sink, _not(forbidden))
        state.add("proceed", self._stop(forbidden, here.stage.name), forbidden)
        return state

    def _converted(self, here: _Here, sink: State) -> State:
        stage = here.stage
        if stage.loops:
            self._set_first(here, first=False)
            looping = self._looping(here, self._without_nots(here, sink))
            self._set_first(here, first=True)
            state = self._times(here, looping, sink, stage.least, stage.least)
        elif stage.counted:
            state = self._times(here, sink, sink, stage.least, stage.most or 1)
        else:
            state = self._single(
                here, sink, sink, self._take_test(here), self._ignore_test(here), optional=stage.optional
            )
        self._add_stops(here, state)
        return state

    # ---- repetitions

    def _times(self, here: _Here, sink: State, behind: State, least: int, most: int) -> State:
        """States of a stage that takes ``least`` to ``most`` rows, and then leads to ``sink``."""
        self._set_first(here, first=False)
        until = self._until(here.stage)
        ignore = _until(self._inner_ignore_test(here), until, take=False)
        take = _until(self._take_test(here), until, take=True) or _always
        last = sink
        if here.stage.greedy and least != most:
            if until is not None:
                self.ungreedy[id(sink)] = _copied(sink)
            _leave(sink, take)
        for _ in range(least, most):
            last = self._single(here, last, behind, take, ignore, optional=True)
            self._add_following_stop(here, last)
        for _ in range(least - 1):
            last = self._single(here, last, None, take, ignore, optional=False)
            self._add_following_stop(here, last)
        self._set_first(here, first=True)
        return self._single(here, last, behind, take, self._ignore_test(here), optional=here.stage.optional)

    def _looping(self, here: _Here, sink: State) -> State:
        """A state that takes any number of rows, and proceeds to ``sink``."""
        stage = here.stage
        if stage.group is not None:
            return self._looping_group(here, sink)
        until = self._until(stage)
        ignore = _until(self._inner_ignore_test(here), until, take=False)
        take = _until(self._take_test(here), until, take=True) or _always
        proceed, state = self._proceed_test(here), State(stage.name, gap=stage.gap)
        if stage.greedy:
            if until is not None:
                before = self.ungreedy[id(sink)] = _copied(sink)
                state.add("proceed", before, _and(proceed, until))
            state.add("proceed", sink, proceed if until is None else _and(proceed, _not(until)))
            _leave(sink, self._take_test(here))
        else:
            state.add("proceed", sink, proceed)
        state.add("take", state, take)
        self._add_following_stop(here, state)
        if ignore is not None:
            waiting = State(stage.name, gap=stage.gap)
            waiting.add("take", state, take)
            waiting.add("ignore", waiting, ignore)
            state.add("ignore", waiting, ignore)
            self._add_following_stop(here, waiting)
        return state

    def _single(
        self, here: _Here, sink: State, behind: State | None, take: Test, ignore: Test | None, *, optional: bool
    ) -> State:
        """A state that takes one row and leads to ``sink``; if ``optional`` it proceeds to ``behind`` without one."""
        stage = here.stage
        if stage.group is not None:
            return self._group(here, stage.group, sink, behind, optional=optional)
        state = State(stage.name, gap=stage.gap)
        target, proceed = self._without_nots(here, sink), self._proceed_test(here)
        state.add("take", target, take)
        if optional and behind is not None:
            until = self._until(stage)
            if stage.greedy and until is not None:
                before = self.ungreedy.get(id(behind), behind)
                state.add("proceed", before, _and(proceed, until))
                proceed = _and(proceed, _not(until))
            state.add("proceed", behind, proceed)
        if ignore is not None:
            waiting = state
            if optional or self._heads_optional_group(here):
                waiting = State(stage.name, gap=stage.gap)
                waiting.add("take", target, take)
                waiting.add("ignore", waiting, ignore)
                self._add_stops(here, waiting)
            state.add("ignore", waiting, ignore)
        return state

    # ---- groups

    def _group(self, here: _Here, group: Pattern, sink: State, behind: State | None, *, optional: bool) -> State:
        state = self.chain(group.stages, sink, here.stage, here.following)
        if optional and behind is not None:
            state.add("proceed", behind, self._proceed_test(here))
        return state

    def _looping_group(self, here: _Here, sink: State) -> State:
        assert here.stage.group is not None
        again = State("")
        state = self.chain(here.stage.group.stages, again, here.stage, here.following)
        state.add("proceed", sink)
        again.add("proceed", state)
        return state

    def _heads_optional_group(self, here: _Here) -> bool:
        group = here.group
        return here.heads_group and group is not None and group.optional and self._is_first(group)

    def _set_first(self, here: _Here, *, first: bool) -> None:
        if here.stage.group is not None:
            self.first_of_loop[id(here.stage)] = first

    def _is_first(self, group: Stage) -> bool:
        return self.first_of_loop.get(id(group), True)

    # ---- rows that must not come

    def _nots(self, here: _Here) -> list[tuple[Test, str]]:
        """The tests of ``not_followed_by`` that hold at a stage: those before it, across optional stages."""
        nots, position = [], here.position
        while position > 0 and (
            here.stages[position - 1].optional or here.stages[position - 1].contiguity == "not_followed_by"
        ):
            position -= 1
            if here.stages[position].contiguity == "not_followed_by":
                before = _Here(here.stages, position, here.group, None)
                nots.append((self._take_test(before), here.stages[position].name))
        return nots

    def _stop(self, forbidden: Test, name: str) -> State:
        if name not in self.stops:
            stop = self.stops[name] = State(name, "stop")
            stop.add("take", stop, forbidden)
        return self.stops[name]

    def _add_stops(self, here: _Here, state: State) -> None:
        for forbidden, name in self._nots(here):
            state.add("proceed", self._stop(forbidden, name), forbidden)

    def _add_following_stop(self, here: _Here, state: State) -> None:
        following = here.following
        if following is not None and following.contiguity == "not_followed_by":
            forbidden = self._take_test(
                _Here((*here.stages[: here.position + 1], following), here.position + 1, here.group, None)
            )
            state.add("proceed", self._stop(forbidden, following.name), forbidden)

    def _without_nots(self, here: _Here, sink: State) -> State:
        """The state, or a copy in which a row taken by an optional stage ends the ``not_followed_by`` before that stage."""
        nots = {name for _, name in self._nots(here)}
        if not nots or not here.stage.optional:
            return sink
        copy = State(sink.name, sink.kind, sink.gap)
        for edge in sink.edges:
            if edge.action != "proceed":
                copy.add(edge.action, copy if edge.target is sink else edge.target, edge.test)
            elif edge.target.kind != "stop":
                copy.add("proceed", self._without_nots(here, edge.target), edge.test)
            elif edge.target.name not in nots:
                copy.add("proceed", edge.target, edge.test)
        return copy

    # ---- tests

    def _until(self, stage: Stage) -> Test | None:
        return None if stage.until is None else self.tests(stage.until)

    def _group_until(self, here: _Here) -> Test | None:
        return None if here.group is None else self._until(here.group)

    def _own_test(self, here: _Here) -> Test | None:
        return None if here.stage.condition is None else self.tests(here.stage.condition)

    def _take_test(self, here: _Here) -> Test:
        return _until(self._own_test(here), self._group_until(here), take=True) or _always

    def _proceed_test(self, here: _Here) -> Test:
        return _until(_always, self._group_until(here), take=True) or _always

    def _ignore_test(self, here: _Here) -> Test | None:
        """The test of rows that may lie before the stage's first row; None if none may."""
        if not here.heads_group:
            return self._between(here, here.stage.contiguity)
        group = here.group
        assert group is not None
        return self._between(here, group.contiguity if self._is_first(group) else group.repetition)

    def _inner_ignore_test(self, here: _Here) -> Test | None:
        """The test of rows that may lie between two rows of the stage; None if none may."""
        inner = here.group.repetition if here.heads_group and here.group is not None else here.stage.repetition
        return self._between(here, inner)

    def _between(self, here: _Here, contiguity: str) -> Test | None:
        match contiguity:
            case "followed_by" | "relaxed" | "begin":
                ignore: Test | None = _not(self._own_test(here) or _always)
            case "followed_by_any" | "combinations":
                ignore = _always
            case _:
                ignore = None
        return _until(ignore, self._group_until(here), take=False)


def _until(test: Test | None, until: Test | None, *, take: bool) -> Test | None:
    """A test that fails for rows that end a repetition."""
    if until is None:
        return test
    if test is None:
        return _not(until) if take else None
    return _and(_not(until), test)


def _copied(state: State) -> State:
    copy = State(state.name, state.kind, state.gap)
    for edge in state.edges:
        copy.add(edge.action, copy if edge.target is state else edge.target, edge.test)
    return copy


def _leave(state: State, taken: Test) -> None:
    """Rows that a greedy stage takes are not left to ``state``."""
    for edge in state.edges:
        edge.test = _and(edge.test, _not(taken))


def test_of(written: Condition, leaf: Mapping[int, Test]) -> Test:
    """(condition, identity of a leaf -> its test) -> test."""
    if isinstance(written, Combined):
        left, right = test_of(written.left, leaf), test_of(written.right, leaf)
        if written.operator == "and":
            return _and(left, right)
        return lambda row, path: left(row, path) or right(row, path)
    return leaf[id(written)]
