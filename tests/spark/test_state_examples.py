"""The examples by which state, timers, joins and the clock are explained, on Spark: streams and bounded runs against plain Python."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import floodmark as fm
from examples import HOUR, MINUTE, SECOND, kept
from floodmark.core.time import NEVER, Interval, from_ms
from floodmark.spec.graph.operator import Operator
from floodmark.spec.values.schema import ROW
from floodmark.testing.log import Log, Logs
from floodmark.testing.runs import final
from floodmark.testing.spark import SparkCase

Rows = Counter[tuple[Any, ...]]


class Reading(fm.Contract):
    """What a sensor says."""

    at: fm.EventTime
    sensor: str
    value: int


class Note(fm.Contract):
    """A text."""

    text: str


def put(case: SparkCase, logs: Logs, start: int, stop: int | None) -> None:
    """Land entries of all inputs, a commit each."""
    for name, log in logs.logs.items():
        case.land(log, *logs.bounds(name, start, stop), name=name)


def rows(tables: Mapping[str, pa.Table], *columns: str, output: str = "") -> Rows:
    """The rows of an output that were not taken back."""
    said = [[row[column] for column in columns] for row in final([tables[output]])]
    return Counter(tuple(tuple(value) if isinstance(value, list) else value for value in row) for row in said)


# ---- the clock


Part = tuple[int, Sequence[tuple[int, str, int]]]
"""The clock, and what arrives at it: event time, sensor, value."""


@dataclass(frozen=True, slots=True)
class Clocked:
    """A program that waits for the clock.

    Args:
        operator: reads readings.
        parts: of the input; each is computed by a run of its own.
        columns: compared.
        expected: output -> after each part the rows that were said.
    """

    operator: Operator
    parts: Sequence[Part]
    columns: tuple[str, ...]
    expected: Mapping[str, Sequence[Rows]]


def by_the_hour() -> Clocked:
    """The first window is the hour in which the program was started, not an hour from then on."""

    @fm.operator
    def by_the_hour(readings: fm.Stream[Reading]) -> fm.Stream:
        return readings.key_by("sensor").window(fm.Tumbling("1 hour"), time="processing").aggregate(n=fm.count())

    quarter_past = 9 * HOUR + 15 * MINUTE
    parts = [
        (quarter_past, [(5, "a", 1)]),
        (10 * HOUR - 1, [(3, "a", 2), (7, "b", 3)]),
        (10 * HOUR, [(1, "a", 4)]),
        (11 * HOUR, []),
    ]
    first = Counter([("a", from_ms(9 * HOUR), 2), ("b", from_ms(9 * HOUR), 1)])
    said = [Rows(), Rows(), first, first + Counter([("a", from_ms(10 * HOUR), 1)])]
    return Clocked(by_the_hour, parts, ("sensor", "window_start", "n"), {"": said})


def lately() -> Clocked:
    """An hour of the clock, every half an hour."""

    @fm.operator
    def lately(readings: fm.Stream[Reading]) -> fm.Stream:
        window = fm.Sliding("1 hour", "30 minutes")
        return (
            readings.key_by("sensor").window(window, time="processing").aggregate(n=fm.count(), total=fm.sum("value"))
        )

    moments = (9 * HOUR + 15 * MINUTE, 9 * HOUR + 59 * MINUTE, 12 * HOUR)
    parts = [(moments[0], [(5, "a", 1)]), (moments[1], [(3, "a", 2), (7, "a", 3)]), (moments[2], [])]
    windows = {8.5: (1, 1), 9: (3, 6), 9.5: (2, 5)}
    ends = [{start for start in windows if (start + 1) * HOUR <= clock} for clock in moments]
    said = [Counter(("a", from_ms(round(start * HOUR)), *windows[start]) for start in some) for some in ends]
    return Clocked(lately, parts, ("sensor", "window_start", "n", "total"), {"": said})


def visits() -> Clocked:
    """Sessions of the clock: one ends when its sensor has been quiet for ten seconds, whatever its rows say of their time."""

    @fm.operator
    def visits(readings: fm.Stream[Reading]) -> fm.Stream:
        windowed = readings.key_by("sensor").window(fm.Session("10 s"), time="processing")
        return windowed.aggregate(n=fm.count(), total=fm.sum("value"))

    parts = [
        (1_000, [(900, "a", 1), (5, "a", 2), (7, "b", 3)]),
        (10_999, [(1, "a", 4)]),  # "b" is quiet for a ms too little, "a" is seen again
        (11_000, []),
        (20_998, [(2, "b", 5)]),
        (20_999, [(3, "a", 6)]),  # the session of "a" ends with this very ms: the row begins another
        (60_000, []),
    ]
    first = Counter([("b", from_ms(1_000), from_ms(11_000), 1, 3)])
    second = first + Counter([("a", from_ms(1_000), from_ms(20_999), 3, 7)])
    third = Counter([("b", from_ms(20_998), from_ms(30_998), 1, 5), ("a", from_ms(20_999), from_ms(30_999), 1, 6)])
    said = [Rows(), Rows(), first, first, second, second + third]
    return Clocked(visits, parts, ("sensor", "window_start", "window_end", "n", "total"), {"": said})


def fives() -> Clocked:
    """Three rows, or what there is ten seconds after the first."""

    @fm.operator
    def fives(readings: fm.Stream[Reading]) -> fm.Stream:
        trigger = fm.Purging(fm.AfterCount(3) | fm.AfterDelay("10 s"))
        return readings.key_by("sensor").window(fm.Global(), trigger=trigger).aggregate(values=fm.collect("value"))

    parts = [
        (0, [(1, "a", 1), (2, "a", 2), (2, "b", 9), (3, "a", 3), (4, "a", 4)]),
        (9_999, [(5, "b", 8)]),
        (10_000, []),
    ]
    full = Counter([("a", (1, 2, 3))])
    return Clocked(fives, parts, ("sensor", "values"), {"": [full, full, full + Counter([("a", (4,)), ("b", (9, 8))])]})


def sensors() -> Clocked:
    """All that a process function has: state of each kind, timers of both times, a side output, its context."""

    class Spread(fm.Aggregate):
        type = "bigint"

        def create(self) -> Any:
            return None

        def add(self, accumulator: Any, value: Any) -> Any:
            return [value, value] if accumulator is None else [min(accumulator[0], value), max(accumulator[1], value)]

        def merge(self, left: Any, right: Any) -> Any:
            return [min(left[0], right[0]), max(left[1], right[1])]

        def result(self, accumulator: Any) -> Any:
            return accumulator[1] - accumulator[0]

    class Watching(fm.ProcessFunction):
        last, recent, seen = fm.ValueState(int), fm.ListState(int), fm.MapState(int, int)
        lowest, spread = fm.ReducingState(int, min), fm.AggregatingState(Spread("value"))
        alarm, quiet = fm.Timer("processing"), fm.Timer()

        def on_element(self, row: Mapping[str, Any], ctx: fm.Context) -> Iterator[dict[str, Any]]:
            before, value = self.last.get(), row["value"]
            self.last.update(value)
            self.recent.update([*self.recent.get(), value][-3:])
            self.seen.put(value % 2, self.seen.get(value % 2, 0) + 1)
            self.lowest.add(value)
            self.spread.add(value)
            if value < 0:
                ctx.output("freezing", {"text": f"{value} at {ctx.timestamp}"})
            if before is None or value < before:
                self.alarm.delete()
            elif value > before and not self.alarm.pending():
                self.alarm.set(ctx.clock + 1_000)
            self.quiet.delete()
            self.quiet.set(ctx.timestamp + 30)
            known = f"{self.recent.get()} {sorted(self.seen.items())} {self.lowest.get()} {self.spread.get()}"
            yield {"text": f"{value} {ctx.clock} {ctx.watermark} {known}"}

        def on_timer(self, timer: str, ctx: fm.Context) -> Iterator[dict[str, Any]]:
            yield {"text": f"{ctx.key['sensor']} rises" if timer == "alarm" else f"quiet at {ctx.timestamp}"}

    @fm.operator
    def sensors(readings: fm.Stream[Reading]) -> fm.Stream:
        return readings.key_by("sensor").process(Watching(), schema=Note, sides={"freezing": Note})

    parts = [
        (1_200, [(10, "a", 20), (11, "a", 21), (12, "b", 5), (13, "b", 6), (14, "c", 1), (15, "c", -2)]),
        (2_100, [(90, "a", 22), (91, "b", 4), (92, "c", -3), (93, "c", -1)]),
        (2_200, [(94, "a", 23)]),
        (9_000, []),
    ]
    said, aside = list(in_their_order(parts)), list[Rows]()
    for _, some in parts:
        told = Counter((sensor, f"{value} at {at}") for at, sensor, value in some if value < 0)
        aside.append((aside[-1] if aside else Rows()) + told)
    return Clocked(sensors, parts, ("sensor", "text"), {"": said, "freezing": aside})


def in_their_order(parts: Sequence[Part]) -> Iterator[Rows]:
    """What ``sensors`` has said after each part, each time from all rows of a sensor so far; the watermark is a ms behind the newest row."""
    mine, alarms, quiet = dict[str, list[int]](), dict[str, int](), dict[str, int]()
    said, watermark = Rows(), NEVER
    for number, (clock, some) in enumerate(parts):
        for sensor in [sensor for sensor, at in alarms.items() if at <= clock]:
            said[sensor, f"{sensor} rises"] += 1
            del alarms[sensor]
        for at, sensor, value in some:
            for other in [other for other, due in quiet.items() if due <= watermark]:
                said[other, f"quiet at {quiet.pop(other)}"] += 1
            values = mine.setdefault(sensor, [])
            if not values or value < values[-1]:
                alarms.pop(sensor, None)
            elif value > values[-1]:
                alarms.setdefault(sensor, clock + 1_000)
            values.append(value)
            quiet[sensor] = at + 30
            parity = sorted(Counter(one % 2 for one in values).items())
            said[
                sensor, f"{value} {clock} {watermark} {values[-3:]} {parity} {min(values)} {max(values) - min(values)}"
            ] += 1
            watermark = max(watermark, at - 1)
        for other in [other for other, due in quiet.items() if due <= watermark or number == len(parts) - 1]:
            said[other, f"quiet at {quiet.pop(other)}"] += 1
        yield +said


@pytest.mark.parametrize(
    "make",
    [
        pytest.param(by_the_hour, marks=[pytest.mark.soak, pytest.mark.feature("T2", "W4")]),
        pytest.param(lately, marks=[pytest.mark.soak, pytest.mark.feature("W4")]),
        pytest.param(visits, marks=pytest.mark.feature("Z25", "T2")),
        pytest.param(fives, marks=[pytest.mark.soak, pytest.mark.feature("W6")]),
        pytest.param(sensors, marks=pytest.mark.feature("K5", "K6", "P1", "P2", "P3", "P4", "P5", "Q2", "X8")),
    ],
    ids=lambda make: make.__name__,
)
def test_what_waits_for_the_clock_says_the_same_bounded_by_its_record(
    spark: SparkSession, make: Callable[[], Clocked], tmp_path: Path
) -> None:
    program = make()
    logs = Logs({"readings": Log(program.operator.inputs[0].schema)})
    stream, done = SparkCase(spark, program.operator, str(tmp_path / "stream")), 0
    for number, (clock, some) in enumerate(program.parts):
        for at, sensor, value in some:
            logs.row("readings", {"at": from_ms(at), "sensor": sensor, "value": value}, at)
            logs.logs["readings"].watermark = max(logs.logs["readings"].watermark, at - 1)
        if number == len(program.parts) - 1:
            logs.end()
        put(stream, logs, done, None)
        done = len(logs.order)
        stream.run_unbounded(clock)
        found = stream.outputs()
        for output, wanted in program.expected.items():
            assert rows(found, *program.columns, output=output) == wanted[number], (clock, output)
    batch = SparkCase(spark, program.operator, str(tmp_path / "batch"))
    batch.replay(stream)
    put(batch, logs, 0, None)
    batch.run_bounded()
    found = batch.outputs()
    for output, wanted in program.expected.items():
        assert rows(found, *program.columns, output=output) == wanted[-1], output


# ---- rolling


@fm.operator
def rolled(readings: fm.Stream[Reading]) -> fm.Stream:
    """Of the fields, and of the whole row that has them."""
    return readings.key_by("sensor").rolling(
        total=fm.sum("value"),
        low=fm.min("value"),
        top=fm.max("value"),
        low_at=fm.min_by("at", "value"),
        top_at=fm.max_by("at", "value"),
    )


@pytest.mark.soak
@pytest.mark.feature("X4")
def test_rolling_aggregates_follow_every_row_and_end_alike(spark: SparkSession, tmp_path: Path) -> None:
    """Both take the first of equals; the table of last values has the last of each key."""
    rng, logs = random.Random(2), Logs({"readings": Log(rolled.inputs[0].schema)})
    arrived = [(SECOND * n, rng.choice("ab"), rng.randrange(8)) for n in range(60)]
    for at, sensor, value in arrived:
        logs.row("readings", {"at": from_ms(at), "sensor": sensor, "value": value}, at)
    logs.end()
    wanted = list[tuple[Any, ...]]()
    for place, (_, sensor, _) in enumerate(arrived):
        mine = [(value, at) for at, other, value in arrived[: place + 1] if other == sensor]
        low, top = (choose(mine, key=lambda one: one[0]) for choose in (min, max))
        wanted.append((sensor, sum(value for value, _ in mine), low[0], top[0], from_ms(low[1]), from_ms(top[1])))
    last = {row[0]: row for row in wanted}
    columns = ("sensor", "total", "low", "top", "low_at", "top_at")
    stream, batch = (SparkCase(spark, rolled, str(tmp_path / mode)) for mode in ("stream", "batch"))
    for start, stop in pairwise((0, 30, len(logs.order))):
        put(stream, logs, start, stop)
    stream.run_unbounded(files_per_batch=1)
    told = [row for row in stream.outputs()[""].to_pylist() if row["_kind"] == ROW]
    assert [tuple(row[column] for column in columns) for row in told if row["sensor"] == "a"] == [
        row for row in wanted if row[0] == "a"
    ]
    assert Counter(tuple(row[column] for column in columns) for row in told) == Counter(wanted)
    put(batch, logs, 0, None)
    batch.run_bounded()
    assert rows(stream.outputs(), *columns) == rows(batch.outputs(), *columns) == Counter(last.values())


# ---- joins


class Order(fm.Contract):
    """What was ordered."""

    at: fm.EventTime
    city: str
    number: int


class Rain(fm.Contract):
    """What was measured."""

    seen: fm.EventTime
    place: str
    measured: int


@fm.operator
def near(orders: fm.Stream[Order], rain: fm.Stream[Rain]) -> fm.Stream:
    """What was measured from an hour before an order to a quarter of an hour after it."""
    return orders.key_by("city").interval_join(rain.key_by("place"), "-1 hour", "15 minutes")


@fm.operator
def valid(orders: fm.Stream[Order], rain: fm.Stream[Rain]) -> fm.Stream:
    """What was measured last before an order."""
    return orders.key_by("city").temporal_join(rain.key_by("place"), kind="left")


def measured(
    code: Operator, seed: int
) -> tuple[Logs, list[tuple[int, str, int]], list[tuple[int, str, int]], list[int]]:
    """Four hours of orders and measurements, a minute apart, up to five minutes late and none too late; (time, key, number) of both, and where hours end."""
    rng, logs, sides, cuts = (
        random.Random(seed),
        Logs({one.name: Log(one.schema) for one in code.inputs}),
        ([], []),
        [0],
    )
    for minute in range(4 * 60):
        at, key, side = MINUTE * (minute - rng.randrange(5)), rng.choice(["bonn", "kiel", "ulm"]), rng.random() < 0.6
        sides[side].append((at, key, minute))
        if side:
            logs.row("rain", {"seen": from_ms(at), "place": key, "measured": minute}, at)
        else:
            logs.row("orders", {"at": from_ms(at), "city": key, "number": minute}, at)
        for log in logs.logs.values():
            log.watermark = MINUTE * (minute - 5)
        if minute % 60 == 59:
            cuts.append(len(logs.order))
    logs.end()
    return logs, sides[0], sides[1], [*cuts, len(logs.order)]


def joined(
    spark: SparkSession, code: Operator, logs: Logs, cuts: Sequence[int], folder: Path
) -> tuple[SparkCase, tuple[Rows, ...], Rows]:
    """A stream with a micro-batch an hour, a bounded run, and one of the third hour alone: pairs of numbers."""
    stream, batch = (SparkCase(spark, code, str(folder / mode)) for mode in ("stream", "batch"))
    for start, stop in pairwise(cuts):
        put(stream, logs, start, stop)
    stream.run_unbounded(files_per_batch=1)
    put(batch, logs, 0, None)
    batch.run_bounded(Interval(start=2 * HOUR, end=3 * HOUR))
    hour = rows(batch.outputs(), "city", "number", "measured")
    batch.run_bounded()
    return stream, tuple(rows(case.outputs(), "city", "number", "measured") for case in (stream, batch)), hour


@pytest.mark.soak
@pytest.mark.feature("J1", "J2", "Z3")
def test_an_interval_join_gives_the_pairs_of_its_definition_and_keeps_what_may_still_match(
    spark: SparkSession, tmp_path: Path
) -> None:
    logs, orders, rain, cuts = measured(near, 5)
    pairs = [
        (max(at, when), (city, number, seen))
        for at, city, number in orders
        for when, place, seen in rain
        if city == place and at - HOUR <= when <= at + HOUR // 4
    ]
    wanted = Counter(pair for _, pair in pairs)
    stream, said, hour = joined(spark, near, logs, cuts, tmp_path)
    assert said == (wanted, wanted)
    assert hour == Counter(pair for at, pair in pairs if 2 * HOUR <= at < 3 * HOUR), "of what came before that hour too"
    assert len(wanted) > 800
    sizes = [size for size, _ in kept(spark, stream)]
    assert max(sizes) < 4.5 * 60, "of the hours within reach, whose micro-batches go as a whole, one micro-batch later"
    assert sizes[-1] == 0


@pytest.mark.soak
@pytest.mark.feature("J5", "Z3")
def test_a_temporal_join_gives_what_was_valid_at_event_time(spark: SparkSession, tmp_path: Path) -> None:
    logs, orders, rain, cuts = measured(valid, 6)
    wanted, of_the_hour = Rows(), Rows()
    for at, city, number in orders:
        known = [(when, seen) for when, place, seen in rain if place == city and when <= at]
        newest = max(known, default=None)
        wanted[city, number, newest and newest[1]] += 1
        of_the_hour[city, number, newest and newest[1]] += 2 * HOUR <= at < 3 * HOUR
    assert any(row[2] is None for row in wanted)
    _, said, hour = joined(spark, valid, logs, [0, cuts[3], cuts[-1]], tmp_path)
    assert said == (wanted, wanted)
    assert hour == +of_the_hour


# ---- without a key


class Bound(fm.Contract):
    """What readings are held against from then on."""

    since: fm.EventTime
    most: int


def numbered() -> Operator:
    """Rows in their order."""

    class Numbering(fm.ProcessFunction):
        n = fm.ValueState(int)

        def on_element(self, row: Mapping[str, Any], ctx: fm.Context) -> Iterator[dict[str, Any]]:
            self.n.update(self.n.get(0) + 1)
            yield {"text": f"{self.n.get()}: {row['value']}"}

    @fm.operator
    def numbered(readings: fm.Stream[Reading]) -> fm.Stream:
        return readings.process(Numbering(), schema=Note)

    return numbered


def above() -> Operator:
    """Readings above the bound in force."""

    class Above(fm.BroadcastProcessFunction):
        bounds = fm.BroadcastState(str, int)
        n = fm.ValueState(int)

        def on_element(self, row: Mapping[str, Any], ctx: fm.Context) -> Iterator[dict[str, Any]]:
            if row["value"] > self.bounds.get("all", 50):
                self.n.update(self.n.get(0) + 1)
                yield {"text": f"{self.n.get()}: {row['value']}"}

        def on_broadcast(self, row: Mapping[str, Any], ctx: fm.Context) -> None:
            self.bounds.put("all", row["most"])

    @fm.operator
    def above(readings: fm.Stream[Reading], bounds: fm.Stream[Bound]) -> fm.Stream:
        return readings.connect(bounds.broadcast()).process(Above(), schema=Note)

    return above


@pytest.mark.soak
@pytest.mark.feature("P1")
@pytest.mark.parametrize("make", [numbered, above], ids=lambda make: make.__name__)
def test_a_function_of_all_rows_needs_no_key(spark: SparkSession, make: Callable[[], Operator], tmp_path: Path) -> None:
    code, rng = make(), random.Random(7)
    logs = Logs({one.name: Log(one.schema) for one in code.inputs})
    values, bounds = [rng.randrange(100) for _ in range(40)], {10: 80, 25: 20}
    for at, value in enumerate(values):
        logs.row("readings", {"at": from_ms(2 * at), "sensor": "abc"[at % 3], "value": value}, 2 * at)
        if at in bounds and code.name == "above":
            logs.row("bounds", {"since": from_ms(2 * at + 1), "most": bounds[at]}, 2 * at + 1)
    half = len(logs.order) // 2
    logs.end()
    told = [
        value
        for at, value in enumerate(values)
        if code.name == "numbered" or value > next((most for since, most in reversed(bounds.items()) if since < at), 50)
    ]
    wanted = Counter((f"{n}: {value}",) for n, value in enumerate(told, 1))
    stream, batch = (SparkCase(spark, code, str(tmp_path / mode)) for mode in ("stream", "batch"))
    put(stream, logs, 0, half)
    put(stream, logs, half, None)
    stream.run_unbounded(files_per_batch=1)
    put(batch, logs, 0, None)
    batch.run_bounded()
    assert rows(stream.outputs(), "text") == rows(batch.outputs(), "text") == wanted
