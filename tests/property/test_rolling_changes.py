"""Aggregates over all rows so far, of rows that are retracted: at every cut those of what is left, by DuckDB; a bounded run emits the last ones alone."""

from __future__ import annotations

from collections.abc import Sequence

import hypothesis.strategies as st
import pytest
from changing import CHANGING, LEFTS, answers, asked, bounded, counted, history, remaining
from hypothesis import given

import floodmark as fm
from floodmark.testing.proof import Answer

SMALL = "CASE WHEN a BETWEEN -5 AND 5 THEN a END"  # a sum of 2^63 - 1 and more is an error
AGGREGATES = {
    "COUNT(*)": "COUNT(*)",
    "COUNT(a)": "COUNT(a)",
    f"SUM({SMALL})": f"SUM({SMALL})::BIGINT",
    "SUM(price)": "SUM(price)",
    f"AVG({SMALL})": f"AVG({SMALL})",
    "AVG(price)": "AVG(price::DOUBLE)",
    "MIN(a)": "MIN(a)",
    "MAX(a)": "MAX(a)",
    "MIN(price)": "MIN(price)",
    "MAX(f)": "MAX(f)",
    "COUNT(DISTINCT a)": "COUNT(DISTINCT a)",
    "COUNT(DISTINCT f)": "COUNT(DISTINCT f)",
    f"STDDEV({SMALL})": f"STDDEV_SAMP({SMALL})",
    "MEDIAN(price)": "MEDIAN(price::DOUBLE)",
    "APPROX_COUNT_DISTINCT(a)": "COUNT(DISTINCT a)",
    "COUNT(*) FILTER (WHERE a > 0)": "COUNT(*) FILTER (WHERE a > 0)",
    "SUM(price) FILTER (WHERE f IS NOT NULL)": "SUM(price) FILTER (WHERE f IS NOT NULL)",
}


@pytest.mark.feature("Q1", "W11")
@given(
    chosen=st.lists(st.sampled_from(sorted(AGGREGATES)), min_size=1, max_size=4, unique=True),
    keys=st.sampled_from([("k",), ("f",), ("k", "f"), ()]),
    seed=st.integers(0, 10_000),
)
def test_an_aggregate_over_changes_answers_as_duckdb_does_at_every_cut(
    chosen: Sequence[str], keys: tuple[str, ...], seed: int
) -> None:
    own = [f"{text} AS r{n}" for n, text in enumerate(chosen)]
    theirs = [f"{AGGREGATES[text]} AS r{n}" for n, text in enumerate(chosen)]
    group = f"GROUP BY {', '.join(keys)}" if keys else ""
    operator = fm.sql_operator(
        "sums", f"SELECT {', '.join([*keys, *own])} FROM lefts {group} EMIT CHANGES", inputs=CHANGING
    )
    question = f"SELECT {', '.join([*keys, *theirs])} FROM lefts {group} HAVING COUNT(*) > 0"
    rows = [entry for entry in history(seed, 60) if entry[0] == "lefts"]
    for done, answer in answers(operator, rows, seed)[-5:]:
        assert as_numbers(answer) == as_numbers(asked(question, rows[:done]))
    answer, retractions = bounded(operator, rows)
    assert as_numbers(answer) == as_numbers(asked(question, rows))
    assert not retractions, "a bounded run emits the last results alone"


def as_numbers(answer: Answer) -> Answer:
    """The answer with 0.0 for -0.0, and a decimal as a float: DuckDB's AVG is one."""
    return Answer(
        {
            (name, tuple(v + 0.0 if isinstance(v, float) else v for v in values)): n
            for (name, values), n in answer.items()
        }
    )


class Spread(fm.Aggregate):
    """The greatest number less the least one."""

    type = "bigint"

    def create(self):
        return []

    def add(self, accumulator, value):
        return sorted([*accumulator, value])

    def merge(self, left, right):
        return sorted([*left, *right])

    def result(self, accumulator):
        return accumulator[-1] - accumulator[0] if accumulator else None


class Subtracting(Spread):
    """The same, which takes a number out again."""

    def retract(self, accumulator, value):
        accumulator.remove(value)
        return accumulator


@fm.operator(inputs={"lefts": LEFTS})
def ordered(lefts):
    """Aggregates that depend on the order of rows, and those of the user's."""
    few = lefts.filter("a < 5 OR a IS NULL")
    return few.key_by("k").rolling(
        all=fm.collect("a"), first=fm.first("a"), last=fm.last("a"), best=fm.max_by("price", "a"),
        spread=Spread("a"), same=Subtracting("a"), top=fm.top_n("a", 2), distinct=fm.distinct("a"),
    )  # fmt: skip


@pytest.mark.feature("Q1")
@given(seed=st.integers(0, 10_000))
def test_an_aggregate_in_order_is_that_of_the_rows_that_are_left(seed: int) -> None:
    rows = [entry for entry in history(seed, 50, behind=1) if entry[0] == "lefts"]
    for done, answer in answers(ordered, rows, seed):
        groups: dict[object, list[dict[str, object]]] = {}
        for row in remaining(rows[:done])["lefts"]:
            if row["a"] is None or row["a"] < 5:
                groups.setdefault(row["k"], []).append(row)
        assert answer == counted([(k, *by_hand(of_key)) for k, of_key in groups.items()])


def by_hand(rows: list[dict[str, object]]) -> tuple[object, ...]:
    """The aggregates of one key."""
    values = [row["a"] for row in rows]
    numbers = [value for value in values if value is not None]
    best = next((row["price"] for row in rows if numbers and row["a"] == max(numbers)), None)
    spread = max(numbers) - min(numbers) if numbers else None
    top = tuple(sorted(numbers, reverse=True)[:2])
    return (tuple(numbers), values[0], values[-1], best, spread, spread, top, tuple(sorted(set(numbers))))
