"""Watermarks against hand-made cases and a slow, obvious oracle."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from floodmark.core.time import END, NEVER
from floodmark.semantics.time.watermarks import (
    SourcePartition,
    Trace,
    WatermarkState,
    advance,
    candidates,
    candidates_from_column,
    compress,
    follow_clock,
    leave_idle,
)


def ms(*values: int) -> np.ndarray:
    return np.array(values, dtype=np.int64)


def walk(state: WatermarkState, rows: list[tuple[int, str]], now: int = 0, idle: int | None = None):
    trace = Trace(ms(*(value for value, _ in rows)), [key for _, key in rows])
    return advance(state, trace, now=now, idle_timeout=idle)


class Oracle:
    """The rules, one row at a time, everything recomputed."""

    def __init__(self) -> None:
        self.watermark, self.largest, self.seen, self.idle = NEVER, {}, {}, set()

    def settle(self) -> None:
        active = [self.largest[key] for key in self.largest if key not in self.idle]
        if active:
            self.watermark = max(self.watermark, min(active))
        elif self.largest:
            self.watermark = max(self.watermark, *self.largest.values())

    def commit(self, rows: list[tuple[int, str]], now: int, timeout: int | None) -> list[int]:
        if timeout is not None:
            self.idle |= {key for key, seen in self.seen.items() if now - seen >= timeout}
            self.settle()
        stamps = []
        for value, key in rows:
            stamps.append(self.watermark)
            self.largest[key] = max(self.largest.get(key, NEVER), value)
            self.seen[key] = now
            self.idle.discard(key)
            self.settle()
        return stamps


rows_of_commits = st.lists(
    st.tuples(
        st.integers(0, 5),
        st.lists(st.tuples(st.one_of(st.just(NEVER), st.integers(-20, 60)), st.sampled_from("abcd")), max_size=12),
    ),
    max_size=5,
)


@pytest.mark.feature("T7")
def test_a_row_is_judged_by_the_rows_before_it() -> None:
    stamps, state = advance(WatermarkState(), Trace(candidates(ms(100, 50, 130), bound=10)), now=0)
    assert stamps.tolist() == [NEVER, 89, 89]
    assert state.watermark == 119


@pytest.mark.feature("T10")
def test_ascending_is_a_bound_of_zero() -> None:
    assert candidates(ms(100)).tolist() == [99]


@pytest.mark.feature("T9")
def test_rows_that_are_not_punctuation_move_nothing() -> None:
    asked = candidates(ms(100, 200), bound=10, moves=np.array([True, False]))
    _, state = advance(WatermarkState(), Trace(asked), now=0)
    assert state.watermark == 89


@pytest.mark.feature("T11")
def test_a_null_in_the_watermark_column_moves_nothing() -> None:
    assert candidates_from_column(ms(100, 7), np.array([True, False])).tolist() == [100, NEVER]


def test_candidates_stay_inside_time() -> None:
    assert candidates(ms(NEVER, END), bound=1000).tolist() == [NEVER, END - 1 - 1001]
    assert candidates_from_column(ms(END), np.array([True])).tolist() == [END - 1]


@pytest.mark.feature("T14", "T15")
def test_the_slowest_source_partition_decides() -> None:
    stamps, state = walk(WatermarkState(), [(10, "a"), (5, "b"), (30, "a"), (20, "b"), (1, "a")])
    assert stamps.tolist() == [NEVER, 10, 10, 10, 20]
    assert state.watermark == 20


@pytest.mark.feature("T15")
def test_an_idle_source_partition_leaves_the_minimum_and_comes_back_without_moving_it_back() -> None:
    _, state = walk(WatermarkState(), [(10, "a"), (5, "b")], now=0)
    _, state = walk(state, [(50, "a")], now=900, idle=1000)
    assert state.watermark == 10
    _, state = walk(state, [(60, "a")], now=1000, idle=1000)
    assert (state.watermark, state.partitions["b"].idle) == (60, True)
    stamps, state = walk(state, [(7, "b"), (70, "a"), (65, "b")], now=1001, idle=1000)
    assert stamps.tolist() == [60, 60, 60]
    assert (state.watermark, state.partitions["b"].idle) == (65, False)


@pytest.mark.feature("T15")
def test_when_all_are_idle_nobody_holds_the_watermark_back() -> None:
    _, state = walk(WatermarkState(), [(10, "a"), (5, "b")], now=0)
    assert leave_idle(state, now=1000, idle_timeout=1000).watermark == 10


def test_a_source_partition_that_has_said_nothing_holds_the_watermark_back() -> None:
    stamps, _ = walk(WatermarkState(), [(NEVER, "b"), (10, "a"), (11, "a")])
    assert stamps.tolist() == [NEVER, NEVER, NEVER]


@pytest.mark.feature("T15")
@given(rows_of_commits, st.sampled_from([None, 3, 6]))
def test_several_source_partitions_equal_the_oracle(commits, timeout) -> None:
    oracle, state, now = Oracle(), WatermarkState(), 0
    for pause, rows in commits:
        now += pause
        stamps, state = walk(state, rows, now, timeout)
        assert stamps.tolist() == oracle.commit(rows, now, timeout)
        assert state.watermark == oracle.watermark
        assert {key for key, p in state.partitions.items() if p.idle} == oracle.idle


@given(rows_of_commits)
def test_one_source_partition_equals_the_oracle(commits) -> None:
    oracle, state = Oracle(), WatermarkState()
    for _, rows in commits:
        trace = Trace(ms(*(value for value, _ in rows)))
        stamps, state = advance(state, trace, now=0)
        assert stamps.tolist() == oracle.commit([(value, "") for value, _ in rows], 0, None)


@given(rows_of_commits, st.sampled_from([None, 3]), st.data())
def test_a_compressed_trace_and_any_split_lead_to_the_same_state(commits, timeout, data) -> None:
    state, now = WatermarkState(), 0
    for pause, rows in commits:
        now += pause
        stamps, whole = walk(state, rows, now, timeout)
        cut = data.draw(st.integers(0, len(rows)))
        first, half = walk(state, rows[:cut], now, timeout)
        second, split = walk(half, rows[cut:], now, timeout)
        assert split == whole
        assert [*first, *second] == stamps.tolist()
        trace = compress(Trace(ms(*(value for value, _ in rows)), [key for _, key in rows]))
        assert advance(state, trace, now=now, idle_timeout=timeout)[1] == whole
        state = WatermarkState.from_json(json.loads(json.dumps(whole.as_json())))
        assert state == whole


def test_a_compressed_trace_of_one_source_partition_is_its_largest_row() -> None:
    assert compress(Trace(ms(3, 9, 4))).candidates.tolist() == [9]


@pytest.mark.parametrize("trace", [Trace(ms(1, 2)), Trace(ms(1, 2), ["a", "b"])])
def test_traces_travel_as_json(trace: Trace) -> None:
    back = Trace.from_json(json.loads(json.dumps(trace.as_json())))
    assert (back.candidates.tolist(), back.partitions) == (trace.candidates.tolist(), trace.partitions)


@pytest.mark.feature("T15")
def test_a_source_that_is_idle_follows_the_clock_in_steps() -> None:
    def at(now: int, state: WatermarkState) -> WatermarkState:
        return follow_clock(leave_idle(state, now=now, idle_timeout=100), now=now, idle_timeout=100)

    state = WatermarkState(watermark=10, partitions={"a": SourcePartition(watermark=10, seen=1000)})
    assert at(1099, state).watermark == 10, "not idle yet"
    assert at(1100, state).watermark == 1000
    assert at(1199, at(1100, state)).watermark == 1000, "markers stay few"
    assert at(1200, at(1100, state)).watermark == 1100
    assert at(10**6, WatermarkState()).watermark == NEVER, "nothing has ever come: nobody knows what its times are"
    busy = replace(state, partitions=state.partitions | {"b": SourcePartition(watermark=5, seen=1150)})
    assert at(1200, busy).watermark == 10
    ahead = replace(state, watermark=10**6)
    assert at(1100, ahead).watermark == 10**6, "it never goes back"
