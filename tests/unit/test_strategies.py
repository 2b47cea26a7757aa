"""Every watermark strategy, several source partitions, several inputs: what they promise, on generated rows."""

from __future__ import annotations

import random
from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from simulation import Row, SimulatedRun, cuts, marker, run_batch, settle

from floodmark import Contract, EventTime, Stream, Tumbling, count, operator
from floodmark.connectors.entries import Record
from floodmark.connectors.judging.validation import EVENT, Rules, trace_of
from floodmark.core.time import END, NEVER, to_ms
from floodmark.semantics.time.watermarks import Trace, WatermarkState, advance, candidates, leave_idle
from floodmark.spec.graph.operator import Operator
from floodmark.spec.rows.connector import Rows
from floodmark.spec.rows.source import Ascending, BoundedOutOfOrderness, FromColumn, Learned, Source, Strategy

TEN = to_ms(datetime(2025, 3, 1, 10, tzinfo=UTC))
MINUTE = 60_000
offsets = st.lists(st.integers(0, 5 * MINUTE), min_size=1, max_size=25)
rows_of = st.lists(st.tuples(st.integers(0, 200), st.sampled_from("abc")), max_size=25)


class Reading(Contract):
    at: EventTime
    sensor: str = "a"
    stated: int | None = None


class Arrival(Contract, event_time="ingestion"):
    sensor: str


def source(watermark: Strategy, contract: type[Contract] = Reading, **settings: Any) -> Source:
    return Source("readings", contract=contract, connector=Rows([]), watermark=watermark, **settings)


def reading(moment: int, sensor: str = "a", stated: int | None = None) -> dict[str, Any]:
    return {"at": datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=moment), "sensor": sensor, "stated": stated}


def landed(
    source: Source, rows: list[dict[str, Any]], *, now: int = TEN, state: WatermarkState | None = None
) -> tuple[list[int], list[int], WatermarkState]:
    """Event times and stamps of rows, through the contract's checks as in a landing; and the state after them."""
    moments, stamps, state = [], [], state or WatermarkState()
    records = (Record(place, b"", row) for place, row in enumerate(rows, 1))
    for batch in Rules(source, now).batches(records, "python"):
        assert not batch.broken
        trace = trace_of(batch.rows, source.partition_by)
        more, state = advance(state, trace, now=now, idle_timeout=source.idle_timeout)
        moments += batch.rows.column(EVENT).to_pylist()
        stamps += more.tolist()
    return moments, stamps, state


@pytest.mark.feature("T7")
@pytest.mark.parametrize(
    "strategy", [BoundedOutOfOrderness("5 s"), Learned(bound="5 s")], ids=lambda s: type(s).__name__
)
@given(moments=offsets)
def test_bounded_the_watermark_is_the_largest_event_time_less_the_bound_less_one(strategy, moments) -> None:
    _, stamps, state = landed(source(strategy), [reading(TEN + moment) for moment in moments])
    running = [TEN + max(moments[: n + 1]) - 5001 for n in range(len(moments))]
    assert stamps == [NEVER, *running[:-1]]
    assert state.watermark == running[-1]


@pytest.mark.feature("T7", "T18")
@given(offsets, st.integers(1, 10_000))
def test_bounded_a_row_is_late_exactly_when_it_is_further_behind_than_the_bound(moments, bound) -> None:
    asked = candidates(np.array(moments, dtype=np.int64), bound=bound)
    stamps, _ = advance(WatermarkState(), Trace(asked), now=0)
    for row, (moment, stamp) in enumerate(zip(moments, stamps.tolist(), strict=True)):
        assert (moment <= stamp) == (row > 0 and max(moments[:row]) - moment > bound)


@pytest.mark.feature("T12")
@given(offsets)
def test_a_perfect_watermark_makes_no_row_late(moments) -> None:
    furthest = max(max(moments[: row + 1]) - moment for row, moment in enumerate(moments))
    asked = candidates(np.array(moments, dtype=np.int64), bound=furthest)
    stamps, _ = advance(WatermarkState(), Trace(asked), now=0)
    assert not (np.array(moments) <= stamps).any()


@pytest.mark.feature("T9")
@given(rows_of, st.randoms(use_true_random=False))
def test_punctuated_only_sensor_1_moves_the_watermark(rows, rng) -> None:
    names = {"a": "sensor_1", "b": "sensor_2", "c": "sensor_3"}
    seen = [(TEN + moment, names[key]) for moment, key in rows]

    def walk(rows: list[tuple[int, str]]) -> tuple[list[int], int]:
        moments, moves = (np.array(v) for v in zip(*rows, strict=True)) if rows else (np.zeros(0), np.zeros(0))
        asked = candidates(moments.astype(np.int64), bound=MINUTE, moves=moves == "sensor_1")
        stamps, state = advance(WatermarkState(), Trace(asked), now=0)
        return stamps.tolist(), state.watermark

    stamps, after = walk(seen)
    punctuation = [moment for moment, name in seen if name == "sensor_1"]
    assert after == max(punctuation, default=NEVER + MINUTE + 1) - MINUTE - 1
    others = [(moment, name) if name == "sensor_1" else (TEN + rng.randrange(10**9), name) for moment, name in seen]
    assert walk(others) == (stamps, after), "whatever the others say"


@pytest.mark.feature("T10")
@given(offsets)
def test_ascending_no_row_in_order_is_late_and_every_row_that_goes_back_is(moments) -> None:
    ordered, stamps, state = landed(source(Ascending()), [reading(TEN + moment) for moment in sorted(moments)])
    assert all(moment > stamp for moment, stamp in zip(ordered, stamps, strict=True))
    assert state.watermark == ordered[-1] - 1
    _, (stamp,), _ = landed(source(Ascending()), [reading(ordered[-1] - 1)], state=state)
    assert ordered[-1] - 1 <= stamp


@pytest.mark.feature("T11")
@given(st.lists(st.one_of(st.none(), st.integers(0, 10**6)), min_size=1, max_size=20))
def test_a_source_states_its_own_watermark_and_a_null_states_none(stated) -> None:
    rows = [reading(TEN + n, stated=value) for n, value in enumerate(stated)]
    _, stamps, state = landed(source(FromColumn("stated")), rows)
    said = [max((v for v in stated[:n] if v is not None), default=NEVER) for n in range(len(stated) + 1)]
    assert [*stamps, state.watermark] == said


@pytest.mark.feature("T3")
@given(st.integers(0, 10**9), st.integers(0, 10**9), st.lists(st.sampled_from("ab"), min_size=1, max_size=9))
def test_ingestion_time_is_when_the_source_first_saw_the_row(first, later, sensors) -> None:
    arrivals = source(BoundedOutOfOrderness("0 s"), Arrival)
    rows = [{"sensor": sensor} for sensor in sensors]
    moments, stamps, state = landed(arrivals, rows, now=TEN + first)
    assert moments == [TEN + first] * len(rows)
    assert all(moment > stamp for moment, stamp in zip(moments, stamps, strict=True)), (
        "what arrives together is on time"
    )
    again, _, _ = landed(arrivals, rows, now=TEN + first + later, state=state)
    assert again == [TEN + first + later] * len(rows), "rows seen later have their own"


@pytest.mark.feature("T14", "T15")
@given(rows_of)
def test_the_watermark_is_the_smallest_of_what_each_source_partition_alone_would_say(rows) -> None:
    asked = [(moment - 11, key) for moment, key in rows]
    _, state = advance(WatermarkState(), _trace(asked), now=0)
    alone = {key: max(value for value, k in asked if k == key) for _, key in asked}
    assert {key: p.watermark for key, p in state.partitions.items()} == alone
    assert state.watermark >= min(alone.values(), default=NEVER)
    if rows:  # once all have spoken, it is exactly theirs
        _, state = advance(state, _trace([(200, key) for key in alone]), now=0)
        assert state.watermark == 200


@pytest.mark.feature("T15")
@given(rows_of, rows_of, rows_of, st.integers(2, 50))
def test_an_idle_source_partition_leaves_the_minimum_and_comes_back_without_moving_it_back(
    first, without, back, timeout
) -> None:
    _, state = advance(WatermarkState(), _trace([(0, "a"), (0, "b"), *first]), now=0, idle_timeout=timeout)
    others = [(moment, key) for moment, key in without if key != "a"]
    _, busy = advance(state, _trace([*others, (300, "b"), (300, "c")]), now=timeout - 1, idle_timeout=timeout)
    assert busy.watermark == max(state.watermark, busy.partitions["a"].watermark) <= 200, "it still holds the others"
    idle = leave_idle(busy, now=timeout, idle_timeout=timeout)
    assert [key for key, p in idle.partitions.items() if p.idle] == ["a"]
    assert idle.watermark == 300
    stamps, then = advance(idle, _trace([(1, "a"), *back]), now=timeout, idle_timeout=timeout)
    assert min(stamps.tolist()) == 300, "nothing goes back, however old what it says is"
    assert not then.partitions["a"].idle
    _, ahead = advance(then, _trace([(400, "b"), (400, "c")]), now=timeout, idle_timeout=timeout)
    assert ahead.watermark == 300, "it holds the others again"
    _, aligned = advance(ahead, _trace([(350, "a")]), now=timeout, idle_timeout=timeout)
    assert aligned.watermark == 350


def _trace(rows: list[tuple[int, str]]) -> Trace:
    return Trace(np.array([value for value, _ in rows], dtype=np.int64), [key for _, key in rows])


def per_minute() -> Operator:
    @operator
    def minutes(readings: Stream[Reading]) -> Stream:
        return readings.window(Tumbling("1 minute")).aggregate(n=count())

    return minutes


def row(moment: int, stamp: int, sequence: int, given: int = 0) -> Row:
    stamps = {"_event_time": moment, "_watermark": stamp, "_progress": stamp, "_sequence": sequence, "_kind": 0}
    return {"sensor": "a", "stated": None, "_input": given} | stamps


def closed(watermark: int) -> list[tuple[datetime, int]]:
    """The windows that a watermark closes, with their rows, when 30 readings have come between 10:00 and 10:01."""
    run = SimulatedRun(per_minute())
    run_batch(run, [*(row(TEN + 2000 * n, NEVER, n) for n in range(30)), marker(watermark)])
    return [(found["window_start"], found["n"]) for found in settle(run) if found["_kind"] == 0]


@pytest.mark.feature("T6")
@pytest.mark.parametrize("said", ["10:01:00", "10:03:43"])
def test_a_watermark_record_closes_every_window_that_ends_before_it(said: str) -> None:
    watermark = to_ms(datetime.fromisoformat(f"2025-03-01T{said}+00:00"))
    assert closed(watermark) == [(datetime(2025, 3, 1, 10, tzinfo=UTC), 30)]


@pytest.mark.feature("T6")
@given(st.integers(-MINUTE, 4 * MINUTE))
@example(MINUTE - 1)
@example(MINUTE - 2)
def test_the_closing_point_is_the_last_millisecond_of_the_window(offset) -> None:
    assert bool(closed(TEN + offset)) == (offset >= MINUTE - 1)


@pytest.mark.feature("T14")
@given(
    st.lists(st.integers(0, 5 * MINUTE), max_size=15), st.lists(st.integers(0, 5 * MINUTE), max_size=15), st.integers()
)
def test_of_several_inputs_the_slowest_decides_and_their_interleaving_changes_nothing(left, right, seed) -> None:
    rng, queues, expected = random.Random(seed), [], Counter()
    for number, moments in enumerate((left, right)):
        asked = candidates(np.array([TEN + moment for moment in moments], dtype=np.int64), bound=MINUTE)
        stamps, _ = advance(WatermarkState(), Trace(asked), now=0)
        pairs = zip((TEN + moment for moment in moments), stamps.tolist(), strict=True)
        rows = [row(moment, stamp, n, number) for n, (moment, stamp) in enumerate(pairs)]
        expected.update(
            r["_event_time"] // MINUTE for r in rows if (r["_event_time"] // MINUTE + 1) * MINUTE - 1 > r["_watermark"]
        )
        queues.append([*cuts(rows, rng), [marker(END) | {"_input": number}]])
    run, found, reached = SimulatedRun(per_minute(), inputs=2), Counter(), [NEVER, NEVER]
    while any(queues):
        number = rng.choice([n for n, queue in enumerate(queues) if queue])
        batch = queues[number].pop(0)
        before = min(reached)
        for out in (out for out in run_batch(run, batch, rng) if out["_kind"] == 0):
            assert to_ms(out["window_end"]) - 1 <= before, "no input is ahead of the slowest"
            found[to_ms(out["window_start"]) // MINUTE] += out["n"]
        reached[number] = max([reached[number], *(r["_progress"] for r in batch)])
    found.update({to_ms(out["window_start"]) // MINUTE: out["n"] for out in settle(run) if out["_kind"] == 0})
    assert found == expected
    assert not any(store.chunks for store in run.stores.values()), "all state is freed at the end"
