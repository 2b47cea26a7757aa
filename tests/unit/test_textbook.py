"""The examples by which event time is explained, with their numbers: rows as they arrive, and what is said of them."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pytest
from simulation import Row, SimulatedRun, marker, run_batch, settle

from floodmark import Aggregate, Contract, EventTime, Sliding, Stream, Tumbling, count, max, operator, sum
from floodmark.core.time import END
from floodmark.semantics.kernels.columnar import pack
from floodmark.semantics.kernels.kernel import ColumnarWindowKernel
from floodmark.semantics.state.store import MemoryStore
from floodmark.semantics.time.watermarks import Trace, WatermarkState, advance, candidates
from floodmark.spec.graph.operator import Operator
from floodmark.spec.windowing.windows import Window

SECOND, MINUTE, HOUR = 1_000, 60_000, 3_600_000


class Event(Contract):
    """A keyed number."""

    at: EventTime
    key: str
    value: int


class Sample(Contract):
    """A point of a signal."""

    at: EventTime
    value: float


def events(*seconds_and_values: tuple[float, int], key: str = "c") -> list[Row]:
    return [{"at": round(at * SECOND), "key": key, "value": value} for at, value in seconds_and_values]


def landed(rows: Iterable[Row], bound: int, *, clock: str = "at") -> list[Row]:
    """Rows in order of arrival, stamped as landing stamps them by one of their columns, and the end of input."""
    rows = list(rows)
    moments = np.array([row[clock] for row in rows], dtype=np.int64)
    stamps, _ = advance(WatermarkState(), Trace(candidates(moments, bound=bound)), now=0)
    stamped = [
        row | {"_event_time": row[clock], "_watermark": stamp, "_progress": stamp, "_sequence": i, "_kind": 0}
        for i, (row, stamp) in enumerate(zip(rows, stamps.tolist(), strict=True))
    ]
    return [*stamped, marker(END)]


def written(run: SimulatedRun, rows: Sequence[Row], size: int = 1) -> list[Row]:
    """The commits of an unbounded run that takes ``size`` rows per micro-batch."""
    out = [row for i in range(0, len(rows), size) for row in run_batch(run, rows[i : i + size])]
    return [*out, *settle(run)]


def panes(operator: Operator, rows: Sequence[Row], size: int = 1) -> list[Row]:
    """What an operator says, in order."""
    return [row for row in written(SimulatedRun(operator), rows, size) if row["_kind"] != 1]


def by_start(found: Iterable[Row], column: str) -> dict[float, Any]:
    """The second at which a window begins -> what is said of it; of each window once."""
    rows = list(found)
    said = {row["window_start"].timestamp(): row[column] for row in rows}
    assert len(said) == len(rows), "a window has fired twice"
    return said


def summing(window: Window, **settings: Any) -> Operator:
    @operator
    def sums(events: Stream[Event]) -> Stream:
        return events.window(window, **settings).aggregate(n=count(), total=sum("value"))

    return sums


# ---- time


@pytest.mark.feature("T1")
def test_every_order_of_arrival_gives_the_same_windows() -> None:
    rows, sums = events((1, 5), (12, 7), (3, 2), (28, 9), (11, 4)), summing(Tumbling("10 s"))
    for arriving in itertools.permutations(rows):
        assert by_start(panes(sums, landed(arriving, bound=30 * SECOND), size=2), "total") == {0: 7, 10: 11, 20: 9}


@pytest.mark.feature("T4")
def test_films_released_out_of_order_are_told_in_order() -> None:
    released = {1977: 4, 1980: 5, 1983: 6, 1999: 1, 2002: 2, 2005: 3, 2015: 7}
    films = [{"at": episode * SECOND, "year": year * SECOND, "value": episode} for year, episode in released.items()]

    @operator
    def told(events: Stream[Event]) -> Stream:
        return events.window(Tumbling("1 s")).aggregate(episode=max("value"))

    by_event_time = panes(told, landed(films, bound=5 * SECOND))
    by_arrival = panes(told, landed(films, bound=0, clock="year"))
    assert [row["episode"] for row in by_event_time] == [1, 2, 3, 4, 5, 6, 7]
    assert [row["episode"] for row in by_arrival] == [4, 5, 6, 1, 2, 3, 7]


@pytest.mark.feature("T5")
def test_a_sine_wave_sums_to_nothing_by_event_time_and_to_something_by_arrival() -> None:
    rng = random.Random(5)
    signal = [{"at": 10 * i, "value": math.sin(2 * math.pi * i / 100)} for i in range(1_000)]
    arriving = sorted([row | {"arrived": row["at"] + rng.randrange(500)} for row in signal], key=lambda r: r["arrived"])

    @operator
    def sums(samples: Stream[Sample]) -> Stream:
        return samples.window(Tumbling("1 s")).aggregate(total=sum("value"))

    by_event_time = by_start(panes(sums, landed(arriving, bound=500), size=50), "total")
    by_arrival = by_start(panes(sums, landed(arriving, bound=0, clock="arrived"), size=50), "total")
    assert list(by_event_time) == list(range(10))
    assert all(abs(total) <= 1e-9 for total in by_event_time.values())
    assert all(abs(total) > 1e-6 for total in by_arrival.values())
    assert abs(by_arrival[0]) > 10, "in the first second the end of the wave has yet to arrive"


@pytest.mark.feature("T6", "L1")
@pytest.mark.parametrize(
    ("progress", "closes"), [("10:00:59.998", False), ("10:00:59.999", True), ("10:01:00", True), ("10:03:43", True)]
)
def test_a_watermark_at_or_past_the_last_millisecond_closes_the_minute(progress: str, closes: bool) -> None:
    hours, minutes, seconds = progress.split(":")
    moment = int(hours) * HOUR + int(minutes) * MINUTE + round(float(seconds) * SECOND)
    run = SimulatedRun(summing(Tumbling("1 minute")))
    rows = landed(events((36_000, 1), (36_059.999, 2), (36_060, 4)), bound=HOUR)[:-1]
    said = [row for row in written(run, [*rows, marker(moment)]) if row["_kind"] != 1]
    assert by_start(said, "total").get(36_000) == (3 if closes else None)


DISORDER = [(second, 1) for second in (0, 4, 9, 2, 13, 8, 19, 1, 24, 17, 31, 11, 42)]
"""The worst row comes 20 seconds behind the newest."""


@pytest.mark.feature("T12")
@pytest.mark.parametrize("bound", [0, 5, 12, 20])
def test_a_watermark_that_was_wrong_loses_no_row_silently(bound: int) -> None:
    rows = landed(events(*DISORDER), bound=bound * SECOND)
    late = [row for row in rows[:-1] if row["_event_time"] <= row["_watermark"]]
    assert bool(late) == (bound < 20), "only a bound that covers the worst row is perfect"
    run = SimulatedRun(summing(Tumbling("5 s"), late="side_output"))
    counted = [row["n"] for row in written(run, rows) if row["_kind"] == 0]
    assert len(run.side) == run.dropped.total()
    assert np.sum(counted) + len(run.side) == len(DISORDER)
    assert bool(run.side) == (bound < 20)


def followed(bound: int) -> tuple[dict[float, int], dict[float, int], int]:
    """Of each five seconds the rows counted, and the arrival at which they were said; the rows dropped."""
    run, counted, moment = SimulatedRun(summing(Tumbling("5 s"))), {}, {}
    for position, row in enumerate(landed(events(*DISORDER), bound=bound * SECOND)):
        for pane in [*run_batch(run, [row]), *settle(run)]:
            if pane["_kind"] == 0:
                start = pane["window_start"].timestamp()
                counted[start], moment[start] = pane["n"], position
    return counted, moment, run.dropped.total()


@pytest.mark.feature("T16", "L6")
def test_a_larger_bound_is_later_and_more_complete_and_never_wrong() -> None:
    truth = {0: 4, 5: 2, 10: 2, 15: 2, 20: 1, 30: 1, 40: 1}
    small, middle, perfect, larger = (followed(bound) for bound in (0, 5, 20, 30))
    assert perfect[0] == larger[0] == truth
    assert small[2] > middle[2] > perfect[2] == larger[2] == 0
    assert {np.sum([*counted.values(), dropped]) for counted, _, dropped in (small, middle)} == {len(DISORDER)}
    for faster, slower in itertools.pairwise((small, middle, perfect, larger)):
        assert all(faster[1][start] <= slower[1][start] for start in faster[1])
    assert small[1][0] < middle[1][0] < perfect[1][0] < larger[1][0]


@pytest.mark.feature("T18")
@pytest.mark.parametrize(("watermark", "late"), [(41_999, False), (42_000, True), (10**12, True)])
def test_a_row_is_late_when_the_watermark_has_reached_its_time(watermark: int, late: bool) -> None:
    run = SimulatedRun(summing(Tumbling("1ms"), late="side_output"))
    (row, end) = landed(events((42, 1)), bound=0)
    said = written(run, [row | {"_watermark": watermark, "_progress": watermark}, end])
    assert len(run.side) == int(late)
    assert [pane["n"] for pane in said if pane["_kind"] == 0] == ([] if late else [1])


# ---- windows

CARS = [(5, 9), (20, 6), (35, 8), (50, 4), (65, 7), (80, 3)]
"""Cars counted at a crossing, by the second."""


@pytest.mark.feature("W1")
def test_a_tumbling_minute_begins_with_the_minute_and_ends_before_the_next() -> None:
    rows = events((-0.001, 1), (0, 2), (59.999, 4), (60, 8))
    assert by_start(panes(summing(Tumbling("1 minute")), landed(rows, bound=0)), "total") == {-60: 1, 0: 6, 60: 8}


@pytest.mark.feature("W2")
def test_sliding_minutes_sum_to_27_and_22() -> None:
    sums = summing(Sliding("60 s", "30 s"))
    assert by_start(panes(sums, landed(events(*CARS), bound=0)), "total") == {-30: 15, 0: 27, 30: 22, 60: 10}


@pytest.mark.feature("W3")
def test_windows_of_five_seconds_may_begin_a_tenth_past() -> None:
    rows = events((0.099, 1), (0.1, 2), (5.099, 4), (5.1, 8))
    said = by_start(panes(summing(Tumbling("5 s", "100ms")), landed(rows, bound=0)), "total")
    assert said == {-4.9: 1, 0.1: 6, 5.1: 8}


@pytest.mark.feature("L10")
@pytest.mark.parametrize("size", [1, 2, 3, 7])
def test_rows_around_the_hour_count_for_their_hour_whatever_file_they_came_in(size: int) -> None:
    nine = [(9 * HOUR - 1, 1), (9 * HOUR, 10), (10 * HOUR - 1, 10)]
    ten = [(9 * HOUR + 1, 10), (10 * HOUR, 100), (10 * HOUR - 2, 10), (10 * HOUR + 1, 100)]
    rows = [{"at": at, "key": "c", "value": value} for at, value in (*nine, *ten)]
    said = by_start(panes(summing(Tumbling("1 hour")), landed(rows, bound=MINUTE), size=size), "total")
    assert {start / 3600: total for start, total in said.items()} == {8: 1, 9: 40, 10: 200}


class Largest(Aggregate):
    """As a reduce function: what goes in, what is kept and what comes out are of one type."""

    type = "bigint"

    def create(self) -> Any:
        return None

    def add(self, accumulator: Any, value: Any) -> Any:
        return value if accumulator is None or value > accumulator else accumulator

    def merge(self, left: Any, right: Any) -> Any:
        return self.add(left, right)

    def result(self, accumulator: Any) -> Any:
        return accumulator


@pytest.mark.feature("W14")
def test_what_a_reducing_window_keeps_does_not_grow_with_its_rows() -> None:
    @operator
    def largest(events: Stream[Event]) -> Stream:
        return events.window(Tumbling("1 hour")).aggregate(largest=Largest("value"))

    rows, run, kept = landed(events(*((n, 100 + n) for n in range(800))), bound=0), SimulatedRun(largest), []
    for i in range(0, 800, 8):
        run_batch(run, rows[i : i + 8])
        (store,) = run.stores.values()
        kept.append(len(b"".join(store.chunks.values())))
    assert len(set(kept)) == 1
    assert [row["largest"] for row in written(run, rows[800:]) if row["_kind"] == 0] == [899]


class Average(Aggregate):
    """Whole numbers in, a sum and a count in between, a fraction out."""

    type = "double"

    def create(self) -> Any:
        return {"sum": 0, "n": 0}

    def add(self, accumulator: Any, value: Any) -> Any:
        return self.merge(accumulator, {"sum": value, "n": 1})

    def merge(self, left: Any, right: Any) -> Any:
        return {name: left[name] + right[name] for name in left}

    def result(self, accumulator: Any) -> Any:
        return accumulator["sum"] / accumulator["n"] if accumulator["n"] else None


@pytest.mark.feature("W15")
@pytest.mark.parametrize("size", [1, 4, 7])
def test_an_aggregate_may_take_keep_and_give_three_types(size: int) -> None:
    @operator
    def averages(events: Stream[Event]) -> Stream:
        return events.window(Tumbling("1 minute")).aggregate(average=Average("value"))

    assert by_start(panes(averages, landed(events(*CARS), bound=0), size), "average") == {0: 6.75, 60: 5.0}


@pytest.mark.feature("W18")
def test_a_window_without_a_key_is_one_for_all() -> None:
    @operator
    def keyed(events: Stream[Event]) -> Stream:
        return events.key_by("key").window(Tumbling("1 minute")).aggregate(total=sum("value"))

    rows = landed([*events((5, 9), (20, 6), key="a"), *events((35, 8), (50, 4), key="b")], bound=0)
    assert sorted((row["key"], row["total"]) for row in panes(keyed, rows)) == [("a", 15), ("b", 12)]
    assert by_start(panes(summing(Tumbling("1 minute")), rows), "total") == {0: 27}


class TwoLargest(Aggregate):
    """The two largest values, the largest first."""

    type = "array<bigint>"

    def create(self) -> Any:
        return []

    def add(self, accumulator: Any, value: Any) -> Any:
        return self.merge(accumulator, [value])

    def merge(self, left: Any, right: Any) -> Any:
        return sorted([*left, *right], reverse=True)[:2]

    def result(self, accumulator: Any) -> Any:
        return accumulator


@pytest.mark.feature("W19")
def test_sums_of_five_seconds_are_ranked_in_the_same_five_seconds() -> None:
    @operator
    def per_key(events: Stream[Event]) -> Stream:
        return events.key_by("key").window(Tumbling("5 s")).aggregate(total=sum("value"))

    @operator(inputs={"totals": per_key})
    def ranked(totals: Stream) -> Stream:
        return totals.window(Tumbling("5 s")).aggregate(top=TwoLargest("total"), keys=count())

    rows = [*events((0, 1), (4.999, 5), key="a"), *events((1, 7), (5, 1), key="b"), *events((2, 2), (9, 3), key="c")]
    rows = landed(sorted(rows, key=lambda row: row["at"]), bound=0)
    sums = written(SimulatedRun(per_key), rows)
    assert {row["_event_time"] for row in sums if row["_kind"] == 0} == {4_999, 9_999}
    assert by_start(panes(ranked, sums, size=3), "top") == {0: [7, 6], 5: [3, 1]}


@pytest.mark.feature("W21")
def test_a_row_in_sixty_sliding_windows_is_kept_once() -> None:
    run = SimulatedRun(summing(Sliding("60 s", "1 s")))
    stage, rows = run.stage, landed(events((100, 3)), bound=0)
    (parts,) = pack(stage, [run._table(rows)]).values()
    assert parts["main"].num_rows == 1
    fired = ColumnarWindowKernel(stage, MemoryStore()).advance([parts], END).results
    assert fired["total"].to_pylist() == [3] * 60
