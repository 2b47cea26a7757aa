"""Rolling aggregates in columns against the kernel that goes row by row: equal rows, equal state, and either reads what the other kept."""

from __future__ import annotations

import random

import pytest
from kernel_pairs import POOLS, Event, advanced, check_turns, check_whole, cut, rows_of, together

import floodmark as fm
from floodmark.core.errors import FloodmarkError
from floodmark.core.time import Interval
from floodmark.semantics.kernels.elements import Clip, ElementStage
from floodmark.semantics.kernels.functions import growing
from floodmark.semantics.kernels.functions.growing import GrowingKernel
from floodmark.semantics.kernels.panes import RecordWindowKernel
from floodmark.semantics.kernels.stage import kernel_of, stage_of
from floodmark.semantics.state.store import MemoryStore

COLUMNS = {
    "rows": fm.count(),
    "values": fm.count("value"),
    "sum": fm.sum("value"),
    "mean": fm.mean("value"),
    "least": fm.min("large"),
    "most": fm.max("large"),
    "least_text": fm.min("text"),
    "most_share": fm.max("share"),
    "least_share": fm.min("share"),
    "latest": fm.max("since"),
    "first": fm.first("share"),
    "last": fm.last("amount"),
    "best": fm.max_by("text", "share"),
    "worst": fm.min_by("share", "large"),
    "different": fm.count_distinct("share"),
    "texts": fm.count_distinct("text"),
    "large": fm.count_distinct("large"),
}
BY_ROW = {
    "shares": fm.sum("share"),
    "amounts": fm.sum("amount"),
    "mean_amount": fm.mean("amount"),
    "least_amount": fm.min("amount"),
    "spread": fm.stddev("share"),
    "middle": fm.median("value"),
    "about": fm.approx_count_distinct("text"),
    "truths": fm.count_distinct("right"),
    "listed": fm.collect("value"),
}


def build(aggregates, *keys):
    @fm.operator(name="sums")
    def sums(events: fm.Stream[Event]) -> fm.Stream:
        return (events.key_by(*keys) if keys else events).rolling(**aggregates)

    return sums


@pytest.fixture
def every_size(monkeypatch):
    """No call has too few rows for columns."""
    monkeypatch.setattr(growing, "_FEW", 0)


@pytest.mark.feature("Q1")
@pytest.mark.usefixtures("every_size")
@pytest.mark.parametrize("by_time", [False, True])
@pytest.mark.parametrize(
    "clip", [None, Clip(interval=Interval(start=1010, end=1040), read=Interval(start=0, end=10_000))]
)
@pytest.mark.parametrize("keys", [("text",), ("share", "right")])
def test_rows_and_state_are_those_of_the_kernel_by_row(keys, clip, by_time):
    every = COLUMNS | BY_ROW
    for seed in range(5):
        rng = random.Random(f"{keys} {seed}")
        chosen = {name: every[name] for name in rng.sample(sorted(every), 5)}
        stage = ElementStage(stage_of(build(chosen, *keys)).step, by_time, clip)
        assert type(kernel_of(stage, MemoryStore())) is GrowingKernel
        parts = list(cut(rows_of(stage, rng), rng))
        check_turns(GrowingKernel, RecordWindowKernel, stage, parts)


@pytest.mark.feature("Q1")
@pytest.mark.parametrize("keys", [("text",), ("share", "right"), ()])
@pytest.mark.parametrize(
    "clip", [None, Clip(interval=Interval(start=1010, end=1040), read=Interval(start=0, end=10_000))]
)
def test_all_rows_of_a_key_group_at_once_give_the_same_without_state(keys, clip):
    every = COLUMNS | BY_ROW
    for seed in range(5):
        rng = random.Random(f"whole {keys} {seed}")
        chosen = {name: every[name] for name in rng.sample(sorted(every), 5)}
        stage = ElementStage(stage_of(build(chosen, *keys)).step, by_time=False, clip=clip)
        assert check_whole(GrowingKernel, RecordWindowKernel, stage, rows_of(stage, rng))
        by_time = ElementStage(stage.step, by_time=True, clip=clip)
        assert check_whole(GrowingKernel, RecordWindowKernel, by_time, rows_of(stage, rng))


@pytest.mark.feature("Q1")
def test_key_groups_in_one_call_give_what_they_give_one_by_one():
    for seed in range(5):
        rng = random.Random(seed)
        every = COLUMNS | BY_ROW
        stage = stage_of(build({name: every[name] for name in rng.sample(sorted(every), 4)}, "text", "value"))
        parts = list(cut(rows_of(stage, rng, groups=4), rng))
        assert together(GrowingKernel, stage, parts, 4) == together(RecordWindowKernel, stage, parts, 4)


@pytest.mark.feature("Q1")
@pytest.mark.usefixtures("every_size")
def test_totals_near_the_largest_number_are_those_by_row_or_the_same_error():
    pool = POOLS | {"value": (2**62, -(2**62), 2**63 - 1, 3, None)}
    outcomes = set()
    for seed in range(15):
        rng = random.Random(seed)
        stage = stage_of(build({"sum": fm.sum("value"), "mean": fm.mean("value")}, "right"))
        parts, answers = list(cut(rows_of(stage, rng, pools=pool), rng)), []
        for kernel_type in (RecordWindowKernel, GrowingKernel):
            try:
                answers.append(advanced([kernel_type], stage, parts))
            except FloodmarkError as error:
                answers.append(str(error))
        assert answers[0] == answers[1]
        if not isinstance(answers[0], str):
            check_whole(GrowingKernel, RecordWindowKernel, stage, rows_of(stage, random.Random(seed), pools=pool))
        outcomes.add(type(answers[0]))
    assert outcomes == {str, list}


@pytest.mark.feature("Q1")
@pytest.mark.usefixtures("every_size")
def test_columns_are_what_computes_them(monkeypatch):
    """None of these aggregates calls its fold for a row."""
    stage = stage_of(build(COLUMNS, "right"))
    parts = list(cut(rows_of(stage, random.Random(3)), random.Random(3)))
    monkeypatch.setattr(RecordWindowKernel, "_element", None)
    monkeypatch.setattr(GrowingKernel, "_by_row", None)
    assert any(rows != "[]" for rows, *_ in advanced([GrowingKernel], stage, parts))
