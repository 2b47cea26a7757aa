"""Patterns: Flink's cases through the builder, whole and cut at random; and random patterns against a search through all rows."""

from __future__ import annotations

import itertools
import pickle
import random
from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pattern_cases import (
    CASES,
    PROGRAMS,
    Matching,
    expected_of,
    identity_of,
    log_of,
    matches,
    program_of,
    rows_of,
    told_by,
    whole,
)
from seeds import seed_of

import floodmark as fm
from floodmark.engines.embedded.memory.run import MemoryRun
from floodmark.semantics.patterns.matcher import MissingStage
from floodmark.spec.patterns.pattern import Pattern
from floodmark.spec.values.schema import ROW
from floodmark.testing.proof import bounded, unbounded


@pytest.mark.feature("C1")
@pytest.mark.parametrize("case", CASES, ids=[case["name"] for case in CASES])
def test_a_case_of_flink_has_its_matches_however_rows_are_cut(
    case: dict[str, Any], request: pytest.FixtureRequest
) -> None:
    matching, rows = Matching(*whole(case)), rows_of(case)
    if case.get("fails"):
        with pytest.raises(MissingStage):
            matching.run(rows)
        return
    told, identity = matching.run(rows), identity_of(case)
    expected = sorted(sorted(map(identity, numbers)) for numbers in case["expect"])
    assert matches(told, identity) == expected
    if "timed_out" in case:
        timed_out = sorted([sorted(numbers), time] for kind, numbers, time in told if kind == "timed_out")
        assert timed_out == sorted(case["timed_out"])
    draw = random.Random(seed_of(request.node.name))
    for _ in range(5):
        cuts = frozenset(draw.sample(range(len(rows)), min(len(rows), draw.randint(1, 5))))
        assert sorted(matching.run(rows, cuts)) == sorted(told), cuts


@pytest.mark.feature("C1", "C2", "C3")
@pytest.mark.parametrize("case", PROGRAMS, ids=[case["name"] for case in PROGRAMS])
def test_a_program_of_flink_says_the_same_however_its_rows_are_cut(
    case: dict[str, Any], request: pytest.FixtureRequest
) -> None:
    operator, draw = program_of(case), random.Random(seed_of(request.node.name))
    log = log_of(case, operator)
    for tries in range(4):
        cuts = sorted(draw.sample(range(1, len(log.entries)), draw.randint(1, 3))) if tries else []
        run, tables = MemoryRun(operator), dict[str, list[pa.Table]]()
        for start, stop in itertools.pairwise([0, *cuts, None]):
            for name, table in run.batch({"rows": log.table(start, stop)}).items():
                tables.setdefault(name, []).append(table)
            run = MemoryRun(operator, pickle.loads(pickle.dumps(run.savepoint())))
        told = told_by(case, {name: pa.concat_tables(parts) for name, parts in tables.items()})
        assert told == expected_of(case), cuts


# ---- a search through all rows

Taken = tuple[tuple[str, int], ...]
"""(stage, position of a row) of each row of a match."""


def candidates(how: str, fits: Sequence[bool], after: int) -> Iterator[int]:
    """Positions of rows that may come next after a row, -1 for the first row of a match."""
    positions = [position for position in range(after + 1, len(fits)) if fits[position]]
    if after == -1 or how in {"followed_by_any", "combinations"}:
        yield from positions
    elif how in {"next", "consecutive"}:
        yield from [position for position in positions if position == after + 1]
    else:
        yield from positions[:1]


def follows(stage: dict[str, Any], text: str, times: Sequence[int], after: int, position: int) -> bool:
    """Whether a row may be the first of a stage: soon enough behind the row before, and behind none that must not come."""
    if after == -1:
        return True
    between = {"not_next": text[after + 1 : after + 2], "not_followed_by": text[after + 1 : position]}
    soon = stage["gap"] is None or times[position] - times[after] < stage["gap"]
    return soon and stage["other"] not in between.get(stage["without"], "")


def searched(stages: Sequence[dict[str, Any]], text: str, times: Sequence[int], window: int | None) -> set[Taken]:
    """All matches of stages within a window, ms."""

    def stage_from(number: int, after: int, taken: Taken) -> Iterator[Taken]:
        if number == len(stages):
            yield taken
            return
        stage = stages[number]
        fits = [letter == stage["letter"] for letter in text]
        if stage["optional"]:
            yield from stage_from(number + 1, after, taken)

        def repeated(count: int, after: int, taken: Taken) -> Iterator[Taken]:
            if count >= stage["least"]:
                yield from stage_from(number + 1, after, taken)
            if count < (stage["most"] or len(text)):
                for position in candidates(stage["repetition"], fits, after):
                    yield from repeated(count + 1, position, (*taken, (stage["name"], position)))

        for position in candidates(stage["contiguity"], fits, after):
            if follows(stage, text, times, after, position):
                yield from repeated(1, position, (*taken, (stage["name"], position)))

    def lasts(taken: Taken) -> int:
        return times[taken[-1][1]] - times[taken[0][1]]

    return {taken for taken in stage_from(0, -1, ()) if taken and (window is None or lasts(taken) < window)}


def built(stages: Sequence[dict[str, Any]], window: int | None) -> Pattern:
    """The pattern of stages."""
    pattern: Pattern | None = None
    for stage in stages:
        if pattern is not None and stage["without"]:
            pattern = getattr(pattern, stage["without"])(f"no_{stage['name']}").where(f"name = '{stage['other']}'")
        pattern = fm.begin(stage["name"]) if pattern is None else getattr(pattern, stage["contiguity"])(stage["name"])
        pattern = pattern.where(f"name = '{stage['letter']}'")
        if (stage["least"], stage["most"]) != (1, 1):
            pattern = (
                pattern.times_or_more(stage["least"])
                if stage["most"] is None
                else pattern.times(stage["least"], stage["most"])
            )
            pattern = (
                pattern
                if stage["repetition"] == "relaxed"
                else getattr(
                    pattern, {"combinations": "allow_combinations"}.get(stage["repetition"], stage["repetition"])
                )()
            )
        pattern = pattern.optional() if stage["optional"] else pattern
        pattern = pattern.within(timedelta(milliseconds=stage["gap"]), "previous") if stage["gap"] else pattern
    assert pattern is not None
    return pattern if window is None else pattern.within(timedelta(milliseconds=window))


STAGE = st.fixed_dictionaries(
    {
        "letter": st.sampled_from("abc"),
        "contiguity": st.sampled_from(["next", "followed_by", "followed_by_any"]),
        "counts": st.sampled_from([(1, 1), (1, 1), (2, 2), (1, 2), (2, 3), (1, None), (2, None)]),
        "repetition": st.sampled_from(["relaxed", "consecutive", "combinations"]),
        "optional": st.booleans(),
        "gap": st.sampled_from([None, 2, 4]),
        "without": st.sampled_from(["", "not_next", "not_followed_by"]),
        "other": st.sampled_from("abcx"),
    }
)


def stages_of(drawn: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Stages with names and numbers; time since the row before, and rows that must not come, only between two stages of one row."""
    stages: list[dict[str, Any]] = []
    for number, stage in enumerate(drawn):
        least, most = stage["counts"]
        pair = [*stages[-1:], stage]
        alone = len(pair) == 2 and all(one["counts"] == (1, 1) and not one["optional"] for one in pair)
        odd = stage["other"] == stage["letter"] or (stage["without"], stage["contiguity"]) == (
            "not_followed_by",
            "next",
        )
        settings = {"gap": stage["gap"] if alone else None, "without": stage["without"] if alone and not odd else ""}
        stages.append(stage | settings | {"name": f"s{number}", "least": least, "most": most})
    return stages


@pytest.mark.feature("C1")
@given(
    st.lists(STAGE, min_size=1, max_size=4),
    st.lists(st.tuples(st.sampled_from("abcx"), st.integers(1, 3)), max_size=9),
    st.sampled_from([None, 3, 6, 10]),
    st.frozensets(st.integers(0, 8), max_size=3),
)
def test_random_patterns_match_what_a_search_through_all_rows_finds(
    drawn: list[dict[str, Any]], letters: list[tuple[str, int]], window: int | None, cuts: frozenset[int]
) -> None:
    stages, text = stages_of(drawn), "".join(letter for letter, _ in letters)
    times = list(itertools.accumulate(pause for _, pause in letters))
    rows = [
        {"name": letter, "price": 0.0, "id": 0, "time": time, "volume": None, "number": number}
        for number, (letter, time) in enumerate(zip(text, times, strict=True))
    ]
    pattern = built(stages, window)
    expected = sorted([position for _, position in taken] for taken in searched(stages, text, times, window))
    assert matches(Matching(pattern, fm.no_skip()).run(rows, cuts)) == expected
    case: dict[str, Any] = {"rows": [[letter, 0.0, 0, time] for letter, time in zip(text, times, strict=True)]}
    program = program_of(case, pattern)
    entries = [("rows", entry) for entry in log_of(case | {"behind": 1}, program).entries if entry["_kind"] == ROW]
    whole_answer, cut_answer = bounded(program, entries), unbounded(program, entries, len(cuts))
    assert whole_answer == cut_answer
    assert sum(count for (output, _), count in whole_answer.items() if output == "") == len(expected)
