"""Source partitions that are forgotten while they are idle: stamps, watermarks and what is learned are as if none ever were."""

from __future__ import annotations

import json
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from logs import learn
from logs import trace as trace_of

from floodmark import Contract, EventTime
from floodmark.core.time import NEVER
from floodmark.engines.landing.lander import Lander, reader_of
from floodmark.engines.landing.looks import Looks
from floodmark.lake.folder.paths import Lake
from floodmark.lake.logs.landed import LandedUnits
from floodmark.lake.table.commits import Landing, encode
from floodmark.semantics.time.learning import BoundEstimate, Decision
from floodmark.semantics.time.watermarks import (
    WHOLE,
    SourcePartition,
    Trace,
    WatermarkState,
    advance,
    candidates,
    candidates_from_column,
    compress,
    decide,
    follow_clock,
    forget_idle,
    leave_idle,
    unclamped,
)
from floodmark.spec.rows.connector import Rows
from floodmark.spec.rows.source import Ascending, Source


class Reading(Contract):
    at: EventTime
    device: str


rows_of = st.lists(
    st.tuples(st.integers(0, 60), st.sampled_from("abcdef"), st.booleans(), st.sampled_from([None, 0, 9, 25, 60])),
    max_size=8,
)
commits_of = st.lists(st.tuples(st.integers(0, 6), rows_of, st.integers(0, 40)), min_size=1, max_size=6)
timeouts = st.sampled_from([None, 2, 5])


def asked(strategy: str, rows: list[tuple[int, str, bool, int | None]]) -> Trace:
    """Rows as a strategy sees them."""
    moments = np.array([moment for moment, *_ in rows], dtype=np.int64)
    keys = [key for _, key, *_ in rows]
    match strategy:
        case "ascending":
            values = candidates(moments)
        case "bounded":
            values = candidates(moments, bound=7)
        case "punctuated":
            values = candidates(moments, bound=7, moves=np.array([moves for *_, moves, _ in rows], dtype=bool))
        case _:
            stated = np.array([value or 0 for *_, value in rows], dtype=np.int64)
            values = candidates_from_column(stated, np.array([value is not None for *_, value in rows], dtype=bool))
    return Trace(values, keys)


def stored(state: WatermarkState) -> WatermarkState:
    """As the next landing reads it."""
    return WatermarkState.from_json(json.loads(json.dumps(state.as_json())))


def check_bounded(state: WatermarkState) -> None:
    """Active ones and those ahead of the watermark stay, and one that says that rows have come."""
    reached = state.watermark if state.learned is None else unclamped(state).watermark
    needed = [key for key, p in state.partitions.items() if not p.idle or p.watermark > reached]
    assert len(state.partitions) <= max(len(needed), 1)


@pytest.mark.feature("T15")
@pytest.mark.parametrize("when_idle", ["wait", "clock"])
@pytest.mark.parametrize("strategy", ["ascending", "bounded", "punctuated", "column"])
@settings(max_examples=12)
@given(commits_of, timeouts)
@example([(0, [(50, "a", True, 60), (9, "b", True, 9)], 0), (6, [], 0), (1, [(0, "b", False, None)], 0)], 5)
def test_forgetting_changes_no_stamp_and_no_watermark(strategy, when_idle, commits, timeout) -> None:
    whole, small, now = WatermarkState(), WatermarkState(), 0
    for pause, rows, _ in commits:
        now += pause
        before = [leave_idle(state, now=now, idle_timeout=timeout).watermark for state in (whole, small)]
        assert before[0] == before[1], "the stamp of all rows of a commit, where it is one"
        trace = asked(strategy, rows)
        stamps, whole = advance(whole, trace, now=now, idle_timeout=timeout)
        same, after = advance(small, trace, now=now, idle_timeout=timeout)
        assert same.tolist() == stamps.tolist()
        short = advance(small, compress(trace), now=now, idle_timeout=timeout)[1]
        assert short == after, "the driver and the workers go on alike"
        if not rows and when_idle == "clock" and timeout:
            whole, after = (follow_clock(state, now=now, idle_timeout=timeout) for state in (whole, after))
        small = stored(forget_idle(after))
        assert small.watermark == whole.watermark
        assert {key for key, p in small.partitions.items() if not p.idle} == {
            key for key, p in whole.partitions.items() if not p.idle
        }
        check_bounded(small)
        if timeout is None:
            assert small == whole, "without an idle timeout nothing is forgotten"


@pytest.mark.feature("T13", "T15")
@settings(max_examples=12)
@given(commits_of, timeouts)
def test_forgetting_changes_nothing_that_is_learned_whatever_bounds_come_into_force(commits, timeout) -> None:
    whole, small, now, sequence = WatermarkState(), WatermarkState(), 0, 0
    for pause, rows, bound in commits:
        now += pause
        whole, small = (decide(state, bound=bound, was=None, sequence=sequence) for state in (whole, small))
        assert small.watermark == whole.watermark
        pairs = [(1000 + moment, key) for moment, key, *_ in rows]
        stamps, whole = learn(whole, pairs, now=now, idle_timeout=timeout)
        same, after = learn(small, pairs, now=now, idle_timeout=timeout)
        small, sequence = stored(forget_idle(after)), sequence + len(rows)
        assert same == stamps
        assert (small.watermark, small.learned) == (whole.watermark, whole.learned)
        check_bounded(small)


@pytest.mark.feature("T13", "T15")
@settings(max_examples=12)
@given(commits_of, commits_of, st.sampled_from([2, 5]))
def test_a_source_that_begins_to_learn_learns_the_same(fixed, learning, timeout) -> None:
    whole, small, now, sequence = WatermarkState(), WatermarkState(), 0, 0
    for pause, rows, _ in fixed:
        now += pause
        trace = trace_of([(1000 + moment, key) for moment, key, *_ in rows], 7)
        whole = advance(whole, trace, now=now, idle_timeout=timeout)[1]
        small = stored(forget_idle(advance(small, trace, now=now, idle_timeout=timeout)[1]))
    for pause, rows, bound in learning:
        now += pause
        whole, small = (decide(state, bound=bound, was=7, sequence=sequence) for state in (whole, small))
        pairs = [(1000 + moment, key) for moment, key, *_ in rows]
        stamps, whole = learn(whole, pairs, now=now, idle_timeout=timeout)
        same, after = learn(small, pairs, now=now, idle_timeout=timeout)
        small, sequence = stored(forget_idle(after)), sequence + len(rows)
        assert same == stamps
        assert (small.watermark, small.learned) == (whole.watermark, whole.learned)


def test_an_idle_source_partition_ahead_of_the_watermark_stays() -> None:
    parts = {
        "slow": SourcePartition(watermark=5, seen=90),
        "ahead": SourcePartition(watermark=50, seen=0, idle=True),
        "behind": SourcePartition(watermark=5, seen=0, idle=True),
    }
    state = forget_idle(WatermarkState(watermark=5, partitions=parts))
    assert [*state.partitions] == ["slow", "ahead"]
    assert leave_idle(state, now=200, idle_timeout=100).watermark == 50, "all are idle: the largest counts"


def test_behind_a_larger_bound_that_the_watermark_waits_for_a_partition_stays_until_the_bound_has_caught_up() -> None:
    parts = {"a": SourcePartition(watermark=959, seen=5), "b": SourcePartition(watermark=1009, seen=0, idle=True)}
    learned = BoundEstimate(front=1050, decisions=(Decision(0, 0), Decision(3, 90, 1049)))
    state = WatermarkState(watermark=1049, partitions=parts, learned=learned)
    assert "b" in forget_idle(state).partitions, "below the watermark of 1049, which waits; above the bound's own, 959"
    _, state = learn(state, [(1101, "a")], now=5)
    assert "b" not in forget_idle(state).partitions


def test_the_last_source_partition_stays_as_it_says_that_rows_have_come() -> None:
    _, state = advance(WatermarkState(), Trace(np.array([NEVER]), None), now=0)
    state = forget_idle(leave_idle(state, now=100, idle_timeout=100))
    assert [*state.partitions] == [WHOLE]
    assert follow_clock(state, now=200, idle_timeout=100).watermark == 100


def test_a_landing_commit_carries_the_devices_that_are_active(tmp_path) -> None:
    written: list[Landing] = []
    workers = SimpleNamespace(append_marker=lambda _path, landing, _schema, _plan, **_: written.append(landing))
    lake, source = Lake(str(tmp_path)), Source("s", contract=Reading, connector=Rows([]), watermark=Ascending())
    last = Landing(source="s")
    units = LandedUnits.load(lake, last)
    lander = Lander(
        workers, source, lake, lambda: 0, reader_of(source), last, units, widen=False, looks=Looks(reader_of(source))
    )  # type: ignore[arg-type]
    lander._write_marker(replace(lander.next(), state=fleet(2000, active=10)), 0)  # type: ignore[arg-type]
    assert len(lander.last.state.partitions) == 10
    assert len(encode(written[0])) < 3000 < len(encode(replace(written[0], state=fleet(2000, active=10)))) / 10


def fleet(devices: int, *, active: int) -> WatermarkState:
    """The state of a fleet, of which the first devices are active and the others have been idle for long."""
    now = 1_700_000_000_000
    parts = {
        f"device-{n:06}": SourcePartition(watermark=now - 60_000 - n % 7, seen=now, idle=n >= active)
        for n in range(devices)
    }
    return WatermarkState(watermark=now - 60_000, partitions=parts)
