"""The numbers of a union's rows, by which they keep the order of their arrival."""

from __future__ import annotations

import random
from itertools import pairwise

import duckdb

import floodmark as fm
from floodmark.spec.graph import steps
from floodmark.spec.graph.interleaving import interleaving, keeps_arrival
from floodmark.spec.windowing.windows import Tumbling


class Row(fm.Contract):
    """A row."""

    at: fm.EventTime
    n: int | None = None


def drawn(rows: fm.Stream, of: random.Random, depth: int) -> fm.Stream:
    """A union of unions, of unequal depth."""
    if depth == 0 or of.random() < 0.3:
        return rows.filter("n > 0")
    first, *others = (drawn(rows, of, depth - 1) for _ in range(of.choice((2, 3))))
    return first.union(*others)


def numbers(step: steps.Step, sequence: int) -> list[int]:
    """The numbers of the rows that a step makes of one."""
    if not isinstance(step, steps.Union):
        return [sequence] if not step.parents else numbers(step.parents[0], sequence)
    found = list[int]()
    for place, parent in enumerate(step.parents):
        for number in numbers(parent, sequence):
            text = interleaving(step, place).sql(str(number)).replace("L", "").replace(" div ", " // ")
            found += duckdb.sql(f"SELECT {text.replace('pmod(', 'mod(')}").fetchall()[0]
    return found


def operator_of(seed: int) -> fm.Operator:
    """A drawn union, and a window."""

    @fm.operator
    def united(rows: fm.Stream[Row]) -> fm.Stream:
        streams = drawn(rows, random.Random(seed), 3).union(rows)
        return streams.window(Tumbling("1 hour")).aggregate(first=fm.first("n"))

    return united


def test_rows_of_unequal_unions_have_numbers_of_their_own_in_the_order_of_their_arrival() -> None:
    for seed in range(30):
        step = operator_of(seed).stateful
        assert step is not None
        assert keeps_arrival(step.parent)
        of_each = [numbers(step.parent, sequence) for sequence in (0, 1, 2, 1_000_003)]
        flat = [number for each in of_each for number in each]
        assert len({*flat}) == len(flat)
        assert all(max(before) < min(after) for before, after in pairwise(of_each))


def test_numbers_of_equal_unions_are_those_of_earlier_releases() -> None:
    @fm.operator
    def even(rows: fm.Stream[Row]) -> fm.Stream:
        return rows.union(rows.filter("n > 0"), rows).window(Tumbling("1 hour")).aggregate(first=fm.first("n"))

    assert even.stateful is not None
    assert numbers(even.stateful.parent, 5) == [15, 16, 17]


def test_a_hundred_unions_one_behind_the_other_have_numbers_that_fit() -> None:
    @fm.operator
    def deep(rows: fm.Stream[Row]) -> fm.Stream:
        united = rows
        for _ in range(100):
            united = united.union(rows)
        return united.window(Tumbling("1 hour")).aggregate(first=fm.first("n"))

    assert deep.stateful is not None
    union = deep.stateful.parent
    assert not keeps_arrival(union)
    assert isinstance(union, steps.Union)
    assert interleaving(union, 1).sql("`_sequence`") == "`_sequence` * 2 + 1"
