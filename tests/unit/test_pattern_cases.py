"""Patterns: Flink's cases through the builder, whole and cut at random; and random patterns against a search through all rows."""

from __future__ import annotations

import itertools
import pickle
import random
from collections.abc import Iterator, Sequence
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


def searched(stages: Sequence[dict[str, Any]], text: str) -> set[Taken]:
    """All matches of stages: name, contiguity, letter, least, most, repetition, optional."""

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
            yield from repeated(1, position, (*taken, (stage["name"], position)))

    return {taken for taken in stage_from(0, -1, ()) if taken}


def built(stages: Sequence[dict[str, Any]]) -> Pattern:
    pattern: Pattern | None = None
    for stage in stages:
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
    assert pattern is not None
    return pattern


STAGE = st.fixed_dictionaries(
    {
        "letter": st.sampled_from("abc"),
        "contiguity": st.sampled_from(["next", "followed_by", "followed_by_any"]),
        "counts": st.sampled_from([(1, 1), (1, 1), (2, 2), (1, 2), (2, 3), (1, None), (2, None)]),
        "repetition": st.sampled_from(["relaxed", "consecutive", "combinations"]),
        "optional": st.booleans(),
    }
)


@pytest.mark.feature("C1")
@given(
    st.lists(STAGE, min_size=1, max_size=4), st.text("abcx", max_size=9), st.frozensets(st.integers(0, 8), max_size=3)
)
def test_random_patterns_match_what_a_search_through_all_rows_finds(
    drawn: list[dict[str, Any]], text: str, cuts: frozenset[int]
) -> None:
    stages = [
        stage | {"name": f"s{number}", "least": stage["counts"][0], "most": stage["counts"][1]}
        for number, stage in enumerate(drawn)
    ]
    rows = [
        {"name": letter, "price": 0.0, "id": 0, "time": n, "volume": None, "number": n} for n, letter in enumerate(text)
    ]
    told = Matching(built(stages), fm.no_skip()).run(rows, cuts)
    assert matches(told) == sorted([position for _, position in taken] for taken in searched(stages, text))
