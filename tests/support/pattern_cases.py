"""The cases of ``tests/cases/patterns/flink.yaml``: patterns with rows and the matches that come of them; and the programs of ``programs.yaml``."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import yaml

import floodmark as fm
from floodmark.core.time import from_ms, to_ms
from floodmark.semantics.patterns.automaton import Automaton, automaton
from floodmark.semantics.patterns.matcher import Event, Matcher
from floodmark.semantics.patterns.measures import tested
from floodmark.spec.graph.operator import Operator
from floodmark.spec.patterns.matching import read_conditions
from floodmark.spec.patterns.pattern import Pattern
from floodmark.spec.patterns.skip import Skip
from floodmark.spec.rows.contract import schema
from floodmark.spec.values.schema import ROW
from floodmark.testing.log import Log

FOLDER = Path(__file__).parents[1] / "cases" / "patterns"
CASES: list[dict[str, Any]] = yaml.safe_load((FOLDER / "flink.yaml").read_text("utf-8"))
PROGRAMS: list[dict[str, Any]] = yaml.safe_load((FOLDER / "programs.yaml").read_text("utf-8"))
CONTIGUITY = ("begin", "next", "followed_by", "followed_by_any", "not_next", "not_followed_by")
MANY = 100_000
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
"""The time 0 of programs."""


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
    padded = [[*row, None][: len(names)] for row in case["rows"] if isinstance(row, list)]
    return [dict(zip(names, row, strict=True)) | {"number": n} for n, row in enumerate(padded, 1)]


def rows_at(text: str, times: Iterable[int]) -> list[dict[str, Any]]:
    """Rows with the letters of a text as their names, numbered from 0."""
    return [
        {"name": letter, "price": 0.0, "id": 0, "time": time, "volume": None, "number": number}
        for number, (letter, time) in enumerate(zip(text, times, strict=True))
    ]


def program_of(case: Mapping[str, Any], pattern: Pattern | None = None) -> Operator:
    """A program, of its own pattern or another one: matches, time-outs and late rows by the numbers of their rows."""
    pattern, skip = whole(case) if pattern is None else (pattern, Skip("no_skip"))

    @fm.operator(name="program")
    def program(rows: fm.Stream[Named]) -> fm.Stream:
        sequence = case.get("sequence", "number")
        found = rows.key_by("id").pattern(pattern, skip=skip, most=MANY, sequence=sequence, late="side_output")
        return found.select(rows="collect(number)", timed_out={"rows": "collect(number)"})

    return program


def log_of(case: Mapping[str, Any], program: Operator) -> Log:
    """The rows of a program in order of arrival, with its watermarks, and the end of its input."""
    log, rows = Log(program.inputs[0].schema), iter(rows_of(case))
    for entry in case["rows"]:
        if isinstance(entry, list):
            row = next(rows)
            at = to_ms(NOON) + row["time"]
            log.row(row | {"at": from_ms(at)}, at)
            log.watermark = max(log.watermark, at - case["behind"]) if "behind" in case else log.watermark
        else:
            log.move(to_ms(NOON) + entry["watermark"])
    log.end()
    return log


def told_by(case: Mapping[str, Any], tables: Mapping[str, pa.Table]) -> list[Any]:
    """What the outputs of a program say: its matches, time-outs with their times, and late rows."""
    outputs = {
        name: [row for row in table.to_pylist() if row["_kind"] == ROW] for name, table in tables.items() if table
    }
    identity = identity_of(case)
    matched = sorted(sorted(map(identity, row["rows"])) for row in outputs.get("", ()))
    late = sorted(row["number"] for row in outputs.get("late", ()))
    if "timed_out" not in case:
        return [matched, late]
    timed_out = [(sorted(row["rows"]), row["_event_time"]) for row in outputs.get("timed_out", ())]
    times = [(rows, to_ms(at) if isinstance(at, datetime) else at) for rows, at in timed_out]
    return [matched, late, sorted([rows, at - to_ms(NOON)] for rows, at in times)]


def expected_of(case: Mapping[str, Any]) -> list[Any]:
    """What a program must say, as ``told_by`` has it."""
    identity = identity_of(case)
    matched = sorted(sorted(map(identity, numbers)) for numbers in case["expect"])
    timed_out = [sorted([sorted(numbers), time] for numbers, time in case["timed_out"])] if "timed_out" in case else []
    return [matched, case.get("late", []), *timed_out]


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
        """(kind, numbers of rows, time) of each match and time-out; cuts as of ``outcomes``."""
        return [(kind, [number for _, number in taken], time) for kind, taken, time in self.outcomes(rows, cuts)]

    def outcomes(
        self, rows: Iterable[Mapping[str, Any]], cuts: frozenset[int] = frozenset()
    ) -> list[tuple[str, tuple[tuple[str, int], ...], int]]:
        """(kind, stages and numbers of rows, time) of each match and time-out; before each cut the matcher is made anew from the rows it needs."""
        matcher, needed, told = self.fresh(), list[Event](), list[Any]()
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


def _shown(outcome: Any) -> tuple[str, tuple[tuple[str, int], ...], int]:
    return outcome.kind, tuple((stage, event.number) for stage, event in outcome.path.events()), outcome.time


def matches(
    told: Iterable[tuple[str, list[int], int]], identity: Callable[[int], Any] = lambda number: number
) -> list[Any]:
    """The matches among outcomes, in an order of their own."""
    return sorted(sorted(map(identity, numbers)) for kind, numbers, _ in told if kind == "match")


def identity_of(case: Mapping[str, Any]) -> Any:
    """(number of a row) -> what a match is compared by: the number, or the row's values where rows are equal."""
    values = {row["number"]: (row["name"], row["price"], row["id"]) for row in rows_of(case)}
    return values.__getitem__ if case.get("equal_rows") else int
