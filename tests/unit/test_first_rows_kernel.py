"""The first rows of each key in columns against the kernel that goes row by row: equal rows, equal state, and either reads what the other kept."""

from __future__ import annotations

import random

import pytest
from kernel_pairs import Event, check_turns, check_whole, cut, rows_of, together

import floodmark as fm
from floodmark.core.time import Interval
from floodmark.semantics.kernels.elements import Clip, ProcessStage
from floodmark.semantics.kernels.functions.first_rows import FirstRowsKernel
from floodmark.semantics.kernels.functions.top import TopKernel
from floodmark.semantics.kernels.stage import kernel_of, stage_of
from floodmark.semantics.state.store import MemoryStore

ORDERS = [
    "share DESC",
    "share ASC NULLS LAST",
    "text",
    "large DESC NULLS FIRST",
    "amount DESC",
    ["since", "share DESC"],
    ["value DESC", "text", "amount"],
    [],
]


def build(keys, n, by, **settings):
    @fm.operator(name="first")
    def first(events: fm.Stream[Event]) -> fm.Stream:
        return (events.key_by(*keys) if keys else events).top(n, by, **settings)

    return first


@pytest.mark.feature("Q1")
@pytest.mark.parametrize("by_time", [False, True])
@pytest.mark.parametrize(
    "clip", [None, Clip(interval=Interval(start=1010, end=1040), read=Interval(start=0, end=10_000))]
)
@pytest.mark.parametrize("by", ORDERS, ids=str)
@pytest.mark.few(8)
def test_rows_and_state_are_those_of_the_kernel_by_row(by, clip, by_time):
    for seed in range(4):
        rng = random.Random(f"{by} {seed}")
        settings = {"number": rng.choice(["", "place"]), "latest": rng.random() < 0.5}
        operator = build(rng.choice([("text",), ("share", "right")]), rng.choice([1, 2, 4]), by, **settings)
        stage = ProcessStage(stage_of(operator).step, by_time, clip, recorded=True)
        assert type(kernel_of(stage, MemoryStore())) is FirstRowsKernel
        parts = list(cut(rows_of(stage, rng), rng))
        check_turns(FirstRowsKernel, TopKernel, stage, parts)


@pytest.mark.feature("Q1")
@pytest.mark.parametrize("by_time", [False, True])
@pytest.mark.parametrize("by", ORDERS, ids=str)
def test_all_rows_of_a_key_group_at_once_give_the_same_without_state(by, by_time):
    for seed in range(4):
        rng = random.Random(f"whole {by} {seed}")
        settings = {"number": rng.choice(["", "place"]), "latest": rng.random() < 0.5}
        operator = build(rng.choice([("text",), ("share", "right"), ()]), rng.choice([1, 2, 4]), by, **settings)
        stage = ProcessStage(stage_of(operator).step, by_time, recorded=True)
        assert check_whole(FirstRowsKernel, TopKernel, stage, rows_of(stage, rng))


@pytest.mark.feature("Q1")
def test_key_groups_in_one_call_give_what_they_give_one_by_one():
    for seed in range(8):
        rng = random.Random(seed)
        stage = stage_of(build(("text", "value"), 3, rng.choice(ORDERS), number=rng.choice(["", "place"])))
        parts = list(cut(rows_of(stage, rng, groups=4), rng))
        assert together(FirstRowsKernel, stage, parts, 4) == together(TopKernel, stage, parts, 4)


def test_rows_with_ties_by_rank_and_rows_that_are_set_aside_go_row_by_row():
    for operator in (build(("text",), 2, "value", numbering="rank"), build(("text",), 2, "right")):
        assert type(kernel_of(stage_of(operator), MemoryStore())) is TopKernel
