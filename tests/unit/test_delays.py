"""Counts of delays, what a source learns of them, and the bounds its author puts in force."""

from __future__ import annotations

import json
from fractions import Fraction
from math import ceil

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from logs import late, learn, trace

from floodmark.core.errors import DefinitionError
from floodmark.core.time import END, NEVER, describe_span, span
from floodmark.semantics.time.delays import Delays, bucket_of, last_of
from floodmark.semantics.time.learning import Decision
from floodmark.semantics.time.watermarks import WatermarkState, advance, decide, leave_idle
from floodmark.spec.rows.source import Learned

delays = st.lists(st.one_of(st.integers(0, 100), st.integers(0, END - NEVER)), max_size=30)
shares = st.one_of(st.sampled_from([0.5, 0.9, 0.99, 0.999, 0.9999, 1]), st.floats(0.001, 1))
rows_of = st.lists(st.tuples(st.integers(10**6, 10**6 + 400), st.sampled_from("abc")), max_size=20)


def count(values: list[int]) -> Delays:
    return Delays.of(np.array(values, dtype=np.int64))


def fresh(bound: int) -> WatermarkState:
    return decide(WatermarkState(), bound=bound, was=None, sequence=0)


@given(delays)
def test_a_delay_lies_in_a_bucket_a_sixteenth_wide_at_most(values) -> None:
    for value, bucket in zip(values, bucket_of(np.array(values, dtype=np.int64)).tolist(), strict=True):
        first = 0 if bucket == 0 else last_of(bucket - 1) + 1
        assert first <= value <= last_of(bucket)
        assert 16 * (last_of(bucket) - first) < max(first, 1)
        assert 0 <= bucket < 736


@given(delays, delays, delays)
def test_delays_add_up_in_any_order_and_travel_as_json(a, b, c) -> None:
    whole = count(a + b + c)
    assert count(a).plus(count(b)).plus(count(c)) == whole
    assert count(c).plus(count(b).plus(count(a))) == whole
    assert whole.plus(Delays()) == whole
    assert Delays.from_json(json.loads(json.dumps(whole.as_json()))) == whole
    assert whole.rows == len(a + b + c)


@given(delays.filter(len), shares)
def test_a_quantile_is_never_below_the_exact_one_and_above_it_by_less_than_a_sixteenth(values, share) -> None:
    exact = sorted(values)[ceil(Fraction(str(share)) * len(values)) - 1]
    found = count(values).quantile(share)
    assert exact <= found <= exact + exact / 16
    assert sum(value > found for value in values) <= (1 - Fraction(str(share))) * len(values)


@given(delays, shares)
def test_a_bound_to_write_down_reads_back_and_keeps_the_share(values, share) -> None:
    counted = count(values)
    bound = counted.bound(share)
    assert span(describe_span(bound)) == bound
    assert counted.quantile(share) <= bound <= counted.quantile(share) * 61 / 60 + 1


def test_bounds_are_rounded_up_to_what_people_write() -> None:
    rounded = {999: "999 ms", 4_287: "4 seconds 290 ms", 61_001: "1 minute 2 seconds", 3_600_001: "1 hour 1 minute"}
    assert {value: describe_span(count([value]).bound(1)) for value in rounded} == rounded


def test_nothing_measured_proposes_nothing_to_wait_for() -> None:
    assert (Delays().quantile(0.999), Delays().bound(0.5), Delays().rows) == (0, 0, 0)


@pytest.mark.feature("T13")
def test_delays_are_measured_behind_the_newest_row_before() -> None:
    _, state = learn(fresh(10), [(1000, "a"), (1100, "a"), (1040, "a"), (1100, "a"), (1090, "a")])
    assert state.learned is not None
    assert state.learned.delays == count([0, 0, 60, 0, 10])
    assert state.learned.front == 1100


@pytest.mark.feature("T13")
@given(rows_of, rows_of, st.integers(0, 50), st.sampled_from([None, 5]))
def test_two_pieces_learn_what_the_whole_learns(first, second, bound, idle) -> None:
    stamps, whole = learn(fresh(bound), first + second, now=9, idle_timeout=idle)
    one, half = learn(fresh(bound), first, now=9, idle_timeout=idle)
    half = WatermarkState.from_json(json.loads(json.dumps(half.as_json())))
    two, split = learn(half, second, now=9, idle_timeout=idle)
    assert (split, one + two) == (whole, stamps)


@pytest.mark.feature("T13")
@given(rows_of, st.integers(0, 60), shares)
def test_the_proposed_bound_lets_the_wanted_share_be_on_time(rows, bound, share) -> None:
    _, state = learn(fresh(bound), rows)
    assert state.learned is not None
    assert late(rows, state.learned.delays.bound(share)) <= (1 - Fraction(str(share))) * len(rows)


@pytest.mark.feature("T13")
@given(rows_of, st.integers(0, 60))
def test_until_its_author_accepts_a_bound_the_declared_one_moves_time(rows, bound) -> None:
    given = trace(rows, bound)
    stamps, state = learn(fresh(bound), rows)
    plain, fixed = advance(WatermarkState(), given, now=0)
    assert stamps == plain.tolist()
    assert (state.watermark, state.partitions) == (fixed.watermark, fixed.partitions)


@pytest.mark.feature("T13")
@given(st.lists(st.tuples(st.integers(0, 120), rows_of), min_size=1, max_size=6))
def test_decisions_are_recorded_never_move_time_back_and_do_not_change_what_is_measured(pieces) -> None:
    state, sequence, stamps = None, 0, []
    fixed = fresh(7)
    for bound, rows in pieces:
        was = state
        state = decide(state or WatermarkState(), bound=bound, was=None, sequence=sequence)
        assert decide(state, bound=bound, was=None, sequence=sequence) == state, "a decision is taken once"
        assert was is None or state.watermark >= was.watermark
        more, state = learn(state, rows)
        _, fixed = learn(fixed, rows)
        stamps, sequence = stamps + more, sequence + len(rows)
    assert stamps == sorted(stamps)
    assert state.learned.delays == fixed.learned.delays
    assert state.learned.front == fixed.learned.front
    changes = [bound for n, (bound, _) in enumerate(pieces) if n == 0 or bound != pieces[n - 1][0]]
    assert [decision.bound for decision in state.learned.decisions] == changes


@pytest.mark.feature("T13")
@given(st.lists(st.tuples(st.integers(0, 120), rows_of), min_size=1, max_size=6))
def test_replaying_the_recorded_decisions_stamps_every_row_as_the_landing_did(pieces) -> None:
    state, rows, stamps = WatermarkState(), [], []
    for bound, piece in pieces:
        state = decide(state, bound=bound, was=None, sequence=len(rows))
        more, state = learn(state, piece)
        rows, stamps = rows + piece, stamps + more
    recorded = WatermarkState.from_json(json.loads(json.dumps(state.as_json()))).learned.decisions
    again, replayed = WatermarkState(), []
    starts = [decision.sequence for decision in recorded]
    for decision, stop in zip(recorded, [*starts[1:], len(rows)], strict=True):
        again = decide(again, bound=decision.bound, was=None, sequence=decision.sequence)
        more, again = learn(again, rows[decision.sequence : stop])
        replayed += more
    assert replayed == stamps
    assert again == state


@pytest.mark.feature("T13")
def test_a_larger_bound_holds_the_watermark_until_it_has_caught_up_and_a_smaller_one_moves_it() -> None:
    _, state = learn(fresh(10), [(1000, "a")])
    assert state.watermark == 989
    state = decide(state, bound=100, was=None, sequence=1)
    stamps, state = learn(state, [(1050, "a"), (1100, "a"), (1101, "a")])
    assert (stamps, state.watermark) == ([989, 989, 999], 1000)
    state = decide(state, bound=20, was=None, sequence=4)
    assert state.watermark == 1080
    assert state.learned is not None
    assert state.learned.decisions == (Decision(0, 10), Decision(1, 100, 989), Decision(4, 20))


@pytest.mark.feature("T13")
def test_a_source_with_a_fixed_bound_may_begin_to_learn_where_it_stands() -> None:
    _, fixed = advance(WatermarkState(), trace([(1000, "a")], 10), now=0)
    state = decide(fixed, bound=10, was=10, sequence=2)
    assert (state.watermark, state.partitions) == (fixed.watermark, fixed.partitions)
    assert state.learned is not None
    assert (state.learned.front, state.learned.decisions) == (1000, (Decision(0, 10),))
    assert decide(fixed, bound=30, was=10, sequence=2).learned.decisions == (Decision(0, 10), Decision(2, 30, 989))


@pytest.mark.feature("T13")
def test_idleness_keeps_what_was_learned() -> None:
    _, state = learn(fresh(10), [(1000, "a"), (900, "b")], now=0, idle_timeout=5)
    assert leave_idle(state, now=5, idle_timeout=5).learned == state.learned


@pytest.mark.feature("T13")
@pytest.mark.parametrize("quantile", [0, -0.1, 1.01, float("nan")])
def test_a_quantile_is_a_share(quantile) -> None:
    with pytest.raises(DefinitionError) as error:
        Learned(quantile, bound="1 hour")
    assert str(error.value) == (
        f"DEFINITION-018 Learned, quantile: expected a share above 0 and at most 1, got {quantile!r}. "
        'For "all but one row in a thousand" write Learned(0.999, bound="1 hour").'
    )


def test_a_bound_is_a_duration() -> None:
    assert Learned(bound="6 hours") == Learned(0.999, bound="360 minutes")
    with pytest.raises(DefinitionError, match="DEFINITION-004 Learned: expected zero or more, got -1 second"):
        Learned(bound="-1 second")
