"""Patterns: Flink's cases through the builder, whole and cut at random; and random patterns against a search through all rows."""

from __future__ import annotations

import itertools
import json
import pickle
import random
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest
from flink_matches import FILE
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
    rows_at,
    rows_of,
    told_by,
    whole,
)
from pattern_search import Search, Taken, built
from seeds import seed_of

import floodmark as fm
from floodmark.engines.embedded.memory.run import MemoryRun
from floodmark.semantics.patterns.matcher import MissingStage
from floodmark.spec.patterns.skip import Skip
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
    rows = rows_at(text, times)
    pattern = built(stages, window)
    expected = sorted([position for _, position in taken] for taken in Search(text, times).matches(stages, window))
    assert matches(Matching(pattern, fm.no_skip()).run(rows, cuts)) == expected
    case: dict[str, Any] = {"rows": [[letter, 0.0, 0, time] for letter, time in zip(text, times, strict=True)]}
    program = program_of(case, pattern)
    entries = [("rows", entry) for entry in log_of(case | {"behind": 1}, program).entries if entry["_kind"] == ROW]
    whole_answer, cut_answer = bounded(program, entries), unbounded(program, entries, len(cuts))
    assert whole_answer == cut_answer
    assert sum(count for (output, _), count in whole_answer.items() if output == "") == len(expected)


@pytest.mark.feature("C1")
def test_patterns_that_are_drawn_have_the_matches_of_flinks_own_automaton() -> None:
    cases = json.loads(FILE.read_text("utf-8"))
    assert len(cases) >= 400
    for number, case in enumerate(cases):
        matching = Matching(built(case["stages"], case["window"]), Skip(*case["skip"]))
        told = matching.outcomes(rows_at(case["text"], case["times"]))
        matched = sorted(sorted(map(list, taken)) for kind, taken, _ in told if kind == "match")
        assert matched == case["expect"], number


def test_a_row_that_ends_a_group_is_one_of_the_next_stage_where_the_group_is_left_out() -> None:
    group = fm.begin(fm.begin("b").where("name = 'b'")).one_or_more().optional().until("name = 'a'")
    pattern = group.followed_by("a").where("name = 'a'").within("1 hour")
    assert matches(Matching(pattern, fm.no_skip()).run(rows_at("xaba", range(4)))) == [[1], [2, 3], [3]]


# ---- greedy stages, ends of repetitions, groups, skip strategies

PART = st.fixed_dictionaries(
    {
        "letter": st.sampled_from("abc"),
        "contiguity": st.sampled_from(["next", "followed_by", "followed_by_any"]),
        "counts": st.sampled_from([(1, 1), (2, 2), (1, 2), (1, None), (2, None)]),
        "repetition": st.sampled_from(["relaxed", "consecutive", "combinations"]),
        "optional": st.booleans(),
        "greedy": st.booleans(),
        "until": st.sampled_from(["", "a", "b", "x"]),
        "group": st.just(()),
    }
)
GROUP = st.fixed_dictionaries(
    {
        "letter": st.just(""),
        "contiguity": st.sampled_from(["next", "followed_by", "followed_by_any"]),
        "counts": st.sampled_from([(1, 1), (2, 2), (1, 2), (1, None)]),
        "repetition": st.sampled_from(["relaxed", "consecutive", "combinations"]),
        "optional": st.booleans(),
        "greedy": st.just(False),
        "until": st.just(""),
        "group": st.lists(PART, min_size=1, max_size=2),
    }
)


def settled(drawn: Sequence[dict[str, Any]], outer: str = "") -> list[dict[str, Any]]:
    """Stages with names and numbers, without what the builder refuses.

    Where Flink's automaton departs from a rule that a search can follow, a pattern has no such stages: a greedy one stands before one that is not optional, a group that repeats
    a varying number of times is consecutive, and in a group no stage is optional or greedy, and the first one takes one row.
    """
    stages = []
    for number, stage in enumerate(drawn):
        counts = (1, 1) if outer and number == 0 else stage["counts"]
        least, most = counts
        behind = drawn[number + 1] if number + 1 < len(drawn) else None
        plain = behind is None or not (behind["optional"] or behind["group"])
        greedy = stage["greedy"] and plain and counts != (1, 1) and stage["repetition"] != "combinations" and not outer
        until = stage["until"] if most is None and not greedy and stage["until"] != stage["letter"] else ""
        name = f"{outer}s{number}"
        settings = {"name": name, "least": least, "most": most, "greedy": greedy, "until": until}
        if stage["group"] and least != most:
            settings["repetition"] = "consecutive"
        stages.append(
            stage | settings | {"optional": stage["optional"] and not outer, "group": settled(stage["group"], name)}
        )
    return stages


def left_by(match: Taken, skip: Skip, other: Taken) -> bool:
    """Whether a match that is emitted leaves another one."""
    first, last = match[0][1], match[-1][1]
    rows = [position for stage, position in match if stage == skip.stage]
    match skip.strategy:
        case "no_skip":
            return True
        case "skip_to_next":
            return other[0][1] > first
        case "skip_past_last_event":
            return other[0][1] > last
        case _:
            return not rows or other[0][1] >= rows[0 if skip.strategy == "skip_to_first" else -1]


@pytest.mark.feature("C1")
@given(
    st.lists(st.one_of(PART, PART, GROUP), min_size=1, max_size=3),
    st.lists(st.tuples(st.sampled_from("abcx"), st.integers(1, 3)), max_size=9),
    st.sampled_from([3, 6, 10, 100]),
    st.sampled_from(["no_skip", "skip_to_next", "skip_past_last_event", "skip_to_first", "skip_to_last"]),
    st.integers(0, 5),
    st.frozensets(st.integers(0, 8), max_size=3),
)
def test_greedy_stages_ends_groups_and_skips_match_what_a_search_through_all_rows_finds(
    drawn: list[dict[str, Any]],
    letters: list[tuple[str, int]],
    window: int,
    strategy: Any,
    chosen: int,
    cuts: frozenset[int],
) -> None:
    stages, text = settled(drawn), "".join(letter for letter, _ in letters)
    times = list(itertools.accumulate(pause for _, pause in letters))
    pattern = built(stages, window)
    names = pattern.names
    skip = Skip(
        strategy, names[chosen % len(names)] if strategy.startswith("skip_to_") and strategy != "skip_to_next" else ""
    )
    rows = rows_at(text, times)
    matching = Matching(pattern, skip)
    told = [taken for kind, taken, _ in matching.outcomes(rows) if kind == "match"]
    waiting = Search(text, times).matches(stages, window)
    if strategy == "no_skip":
        assert sorted(told) == sorted(waiting)
    else:
        for match in told:  # the earliest begun, and of these the first completed; two of them at once in any order
            first = min((taken[0][1], taken[-1][1]) for taken in waiting)
            assert match in waiting
            assert (match[0][1], match[-1][1]) == first
            waiting = {taken for taken in waiting if taken != match and left_by(match, skip, taken)}
        assert not waiting
    assert sorted(matching.run(rows, cuts)) == sorted(matching.run(rows))
