"""The cases of ``tests/cases/patterns/flink.yaml``: patterns with rows and the matches that come of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import yaml

import floodmark as fm
from floodmark.semantics.patterns.automaton import Automaton, automaton
from floodmark.semantics.patterns.matcher import Event, Matcher
from floodmark.semantics.patterns.measures import tested
from floodmark.spec.patterns.matching import read_conditions
from floodmark.spec.patterns.pattern import Pattern
from floodmark.spec.patterns.skip import Skip
from floodmark.spec.rows.contract import schema

CASES: list[dict[str, Any]] = yaml.safe_load(
    (Path(__file__).parents[1] / "cases" / "patterns" / "flink.yaml").read_text("utf-8")
)
CONTIGUITY = ("begin", "next", "followed_by", "followed_by_any", "not_next", "not_followed_by")
MANY = 100_000


class Named(fm.Contract):
    """A row of a case."""

    at: fm.EventTime
    name: str
    price: float
    id: int
    time: int
    volume: float | None
    number: int


def pattern_of(stages: Sequence[Mapping[str, Any]]) -> Pattern:
    """The stages of a case through the builder."""
    pattern: Pattern | None = None
    for stage in stages:
        contiguity = next(word for word in CONTIGUITY if word in stage)
        content = stage[contiguity]
        inner = content if isinstance(content, str) else pattern_of(content)
        pattern = fm.begin(inner) if pattern is None else getattr(pattern, contiguity)(inner)
        pattern = pattern.where(stage["where"]) if "where" in stage else pattern
        if "times" in stage:
            least, most = stage["times"]
            pattern = pattern.times_or_more(least) if most is None else pattern.times(least, most)
        for word in ("consecutive", "allow_combinations", "optional", "greedy"):
            pattern = getattr(pattern, word)() if stage.get(word) else pattern
        pattern = pattern.until(stage["until"]) if "until" in stage else pattern
        if "within_previous" in stage:
            pattern = pattern.within(timedelta(milliseconds=stage["within_previous"]), "previous")
    assert pattern is not None
    return pattern


def whole(case: Mapping[str, Any]) -> tuple[Pattern, Skip]:
    """Pattern and skip strategy of a case."""
    pattern = pattern_of(case["pattern"])
    pattern = pattern.within(timedelta(milliseconds=case["within"])) if "within" in case else pattern
    strategy, *settings = case.get("skip", ["no_skip"])
    return pattern, Skip(strategy, *settings)


def rows_of(case: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The rows of a case, numbered from 1."""
    names = ("name", "price", "id", "time", "volume")
    padded = [[*row, None][: len(names)] for row in case["rows"]]
    return [dict(zip(names, row, strict=True)) | {"number": n} for n, row in enumerate(padded, 1)]


class Matching:
    """A pattern on rows, with its matches as the numbers of their rows."""

    def __init__(self, pattern: Pattern, skip: Skip) -> None:
        self.automaton: Automaton = automaton(pattern, tested(read_conditions(pattern, schema(Named), "case")))
        self.skip = skip

    def fresh(self) -> Matcher:
        """A matcher that has seen nothing."""
        return Matcher(self.automaton, self.skip, MANY)

    def run(
        self, rows: Iterable[Mapping[str, Any]], cuts: frozenset[int] = frozenset()
    ) -> list[tuple[str, list[int], int]]:
        """(kind, numbers of rows, time) of each match and time-out; before each cut the matcher is made anew from the rows it needs."""
        matcher, needed, told = self.fresh(), list[Event](), list[tuple[str, list[int], int]]()
        for position, row in enumerate(rows):
            if position in cuts:
                first = matcher.first
                needed = [] if first is None else [event for event in needed if event.number >= first.number]
                matcher = self.fresh()
                for event in needed:
                    matcher.push(event)
            event = Event(row["number"], row["time"], row)
            needed.append(event)
            told += [_shown(outcome) for outcome in matcher.push(event)]
        return told + [_shown(outcome) for outcome in matcher.advance(1 << 60)]


def _shown(outcome: Any) -> tuple[str, list[int], int]:
    return outcome.kind, [event.number for _, event in outcome.path.events()], outcome.time


def matches(
    told: Iterable[tuple[str, list[int], int]], identity: Callable[[int], Any] = lambda number: number
) -> list[Any]:
    """The matches among outcomes, in an order of their own."""
    return sorted(sorted(map(identity, numbers)) for kind, numbers, _ in told if kind == "match")


def identity_of(case: Mapping[str, Any]) -> Any:
    """(number of a row) -> what a match is compared by: the number, or the row's values where rows are equal."""
    values = {row["number"]: (row["name"], row["price"], row["id"]) for row in rows_of(case)}
    return values.__getitem__ if case.get("equal_rows") else int
