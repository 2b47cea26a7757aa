"""Process functions and joins on Spark: as a stream with restarts and bounded, they say what the kernel says in one process."""

from __future__ import annotations

import itertools
import random
import threading
from collections import Counter
from datetime import datetime

import pyarrow as pa
import pytest

import floodmark as fm
from floodmark.core.time import Interval, from_ms
from floodmark.engines.embedded.memory.run import MemoryRun
from floodmark.engines.spark.bounded.run import run_bounded
from floodmark.spec.values.schema import ROW
from floodmark.testing.log import Log, Logs
from floodmark.testing.spark import SparkCase

ENDS = Interval(start=60, end=140)


class Reading(fm.Contract):
    """What a sensor says."""

    at: fm.EventTime
    sensor: str
    value: float


class Switch(fm.Contract):
    """Let the readings of a sensor pass for so long."""

    since: fm.EventTime
    device: str
    millis: int


class Note(fm.Contract):
    """A text."""

    text: str


class Counted(fm.Contract):
    """A text, and the event time of its row."""

    text: str
    since: datetime


def operators() -> dict[str, fm.Operator]:
    """Defined in here, so that workers get the classes with them."""

    class Passing(fm.CoProcessFunction):
        """Readings pass while a switch is on; every ten of a sensor are counted, by the minute they came in."""

        on = fm.ValueState(bool)
        seen = fm.MapState(int, int, ttl="40ms")
        off = fm.Timer()

        def __init__(self, unit: int) -> None:
            self.unit = unit

        def open(self) -> None:
            self.one_at_a_time = threading.Lock()  # which does not travel

        def close(self) -> None:
            assert not self.one_at_a_time.locked()

        def on_left(self, row, ctx):
            slot = ctx.timestamp // self.unit
            with self.one_at_a_time:
                self.seen.put(slot, self.seen.get(slot, 0) + 1)
            if self.seen.get(slot) > 2:
                ctx.output("busy", {"text": f"{slot} {sorted(self.seen.items())}"})
            if self.on.get(False):
                yield {"text": f"passed {row['value']}"}

        def on_right(self, row, ctx):
            self.off.delete()
            self.off.set(ctx.timestamp + row["millis"])
            self.on.update(True)

        def on_timer(self, timer, ctx):
            self.on.clear()
            yield {"text": f"off {ctx.timestamp} {len(self.seen)}"}

    class Bounds(fm.BroadcastProcessFunction):
        """Readings above the bound last set for their device, or for all."""

        bounds = fm.BroadcastState(str, int)
        above = fm.ReducingState(float, max)

        def on_element(self, row, ctx):
            bound = self.bounds.get(row["sensor"])
            if bound is not None and row["value"] > bound:
                self.above.add(row["value"])
                yield {"text": f"{self.above.get()} over {bound}"}

        def on_broadcast(self, row, ctx):
            self.bounds.put(row["device"], row["millis"])

    class Counting(fm.ProcessFunction):
        """State that waits for nothing: no timer, no time to live."""

        seen, last, places = fm.ValueState(int), fm.ListState(float), fm.MapState(int, int)

        def on_element(self, row, ctx):
            self.seen.update(self.seen.get(0) + 1)
            self.last.update([*self.last.get()[-2:], row["value"]])
            self.places.put(int(row["value"]) % 3, self.seen.get())
            text = f"{self.seen.get()} {self.last.get()} {sorted(self.places.items())}"
            yield {"text": text, "since": ctx.timestamp}

    @fm.operator
    def counting(readings: fm.Stream[Reading]):
        return readings.key_by("sensor").process(Counting(), schema=Counted)

    @fm.operator
    def passing(readings: fm.Stream[Reading], switches: fm.Stream[Switch]):
        both = readings.key_by("sensor").connect(switches.key_by("device"))
        return both.process(Passing(10), schema=Note, sides={"busy": Note})

    @fm.operator
    def bounds(readings: fm.Stream[Reading], switches: fm.Stream[Switch]):
        found = readings.key_by("sensor").connect(switches.broadcast()).process(Bounds(), schema=Note)
        return found.with_columns(text="concat(sensor, ': ', text)")

    @fm.operator
    def near(readings: fm.Stream[Reading], switches: fm.Stream[Switch]):
        return readings.key_by("sensor").interval_join(switches.key_by("device"), "-20ms", "10ms", kind="full")

    @fm.operator
    def valid(readings: fm.Stream[Reading], switches: fm.Stream[Switch]):
        return readings.key_by("sensor").temporal_join(switches.key_by("device"), kind="left", prefix="switch_")

    @fm.operator
    def together(readings: fm.Stream[Reading], switches: fm.Stream[Switch]):
        return readings.key_by("sensor").window_join(switches.key_by("device"), fm.Session("15ms"), kind="left")

    @fm.operator
    def rising(readings: fm.Stream[Reading]):
        pattern = (
            fm.begin("low").where("value < 10").followed_by("high").where("value > last(low.value) + 5").times(1, 2)
        )
        ends = pattern.followed_by("end").where(lambda row, match: row["value"] < match["high"][-1]["value"])
        matches = readings.key_by("sensor").pattern(ends.within("60ms"), skip=fm.no_skip())
        return matches.select(n="count(high)", timed_out={"low": "low.value"}, total="sum(value)")

    @fm.operator
    def opened(readings: fm.Stream[Reading]):
        return readings.match_recognize(
            partition_by="sensor",
            pattern="A B* C?",
            define={"A": "value < 20", "B": "value between 20 and 40", "C": "value > 40"},
            measures={"n": "count(*)", "total": "sum(value)", "closed": "count(C) = 1"},
            within="40ms",
        )

    return {found.name: found for found in (passing, bounds, near, valid, together, counting, rising, opened)}


def landed(seed: int = 3) -> Logs:
    """Two inputs in disorder, some rows late, one well ahead of the other."""
    rng = random.Random(seed)
    operator = operators()["near"]
    logs = Logs({one.name: Log(one.schema) for one in operator.inputs})
    for number in range(160):
        time = number + rng.randint(-12, 12)
        sensor = rng.choice(["a", "b", "c", "d", None] if number % 9 == 0 else ["a", "b", "c", "d"])
        if rng.random() < 0.7:
            row = {"at": from_ms(time), "sensor": sensor, "value": float(rng.randint(0, 50))}
            logs.row("readings", row, time)
        else:
            time += 15
            logs.row("switches", {"since": from_ms(time), "device": sensor, "millis": rng.randint(5, 40)}, time)
        for name, log in logs.logs.items():
            log.watermark = max(log.watermark, number + (15 if name == "switches" else 0) - 9)
    logs.end()
    return logs


def told(outputs: dict[str, pa.Table]) -> Counter:
    """Rows of every output with their event time and stamp."""
    found = Counter()
    for name, table in outputs.items():
        for row in table.to_pylist():
            if row["_kind"] == ROW:
                time = row["_event_time"]
                known = {n: v for n, v in row.items() if not n.startswith("_")}
                found[
                    (
                        name,
                        repr(known),
                        time if isinstance(time, int) else round(time.timestamp() * 1000),
                        row["_watermark"],
                    )
                ] += 1
    return found


@pytest.mark.parametrize(
    "name",
    [
        pytest.param("bounds", marks=pytest.mark.feature("K9", "X7", "Z3", "I4")),
        pytest.param("opened", marks=pytest.mark.feature("C1", "Z13")),
        pytest.param("rising", marks=[pytest.mark.soak, pytest.mark.feature("C1", "C2")]),
        pytest.param("counting", marks=pytest.mark.soak),
        pytest.param("near", marks=[pytest.mark.soak, pytest.mark.feature("J1")]),
        pytest.param("passing", marks=[pytest.mark.soak, pytest.mark.feature("P3", "P6", "X13")]),
        pytest.param("valid", marks=[pytest.mark.soak, pytest.mark.feature("J5")]),
        pytest.param("together", marks=[pytest.mark.soak, pytest.mark.feature("J3")]),
    ],
)
def test_a_stream_with_restarts_and_a_bounded_run_say_the_same(spark, tmp_path, name):
    operator, logs = operators()[name], landed()
    wanted = told(MemoryRun(operator).batch(logs.tables()))
    assert sum(wanted.values()) > 20
    stream = SparkCase(spark, operator, str(tmp_path / "unbounded"))
    places = [0, 71, len(logs.order)]
    for start, stop in itertools.pairwise(places):
        for one in operator.inputs:
            stream.land(logs.logs[one.name], *logs.bounds(one.name, start, stop), name=one.name)
        stream.run_unbounded()
    assert told(stream.outputs()) == wanted
    batch = SparkCase(spark, operator, str(tmp_path / "bounded"))
    for one in operator.inputs:
        batch.land(logs.logs[one.name], name=one.name)
    batch.run_bounded(ENDS)
    inside = {key: count for key, count in wanted.items() if ENDS.start <= key[2] < ENDS.end}
    assert told(batch.outputs()) == inside
    batch.run_bounded()
    found = batch.outputs()
    assert told(found) == wanted
    if name == "counting":  # milliseconds for a timestamp
        assert all(row["since"] == row["_event_time"] for row in found[""].to_pylist() if row["_kind"] == ROW)


def days_apart() -> fm.Operator:
    """Says what its state of ten seconds holds; takes the class along to workers."""

    class Last(fm.ProcessFunction):
        last = fm.ValueState(float, ttl="10 seconds")

        def on_element(self, row, ctx):
            yield {"text": f"{row['value']} after {self.last.get()}"}
            self.last.update(row["value"])

    @fm.operator
    def last(readings: fm.Stream[Reading]):
        return readings.key_by("sensor").process(Last(), schema=Note)

    return last


@fm.operator
def once(readings: fm.Stream[Reading]) -> fm.Stream:
    """Repeated deliveries are dropped."""
    return readings.key_by("sensor").deduplicate("10 seconds")


@pytest.mark.parametrize(
    "made", [pytest.param(days_apart, marks=pytest.mark.soak), lambda: once], ids=["state", "duplicates"]
)
def test_rows_a_day_apart_have_nothing_to_do_with_each_other_and_late_rows_all_changes_nothing(spark, tmp_path, made):
    operator, day = made(), 86_400_000
    times = {"a": [0, 10_000, day, 2 * day], "b": [day + 1, 2 * day]}
    log = Log(operator.inputs[0].schema)
    for time, sensor in sorted((time, sensor) for sensor, many in times.items() for time in many):
        log.row({"at": from_ms(time), "sensor": sensor, "value": float(time // day)}, time)
        log.watermark = max(log.watermark, time - 1)
    log.end()
    case = SparkCase(spark, operator, str(tmp_path))
    case.land(log)
    case.run_unbounded()
    streamed = told(case.outputs())
    if made is days_apart:
        texts = Counter(row["text"] for row in case.outputs()[""].to_pylist() if row["_kind"] == ROW)
        assert texts == Counter({"0.0 after None": 1, "0.0 after 0.0": 1, "1.0 after None": 2, "2.0 after None": 2})
    else:
        assert sum(streamed.values()) == 5
    for late_rows in ("as_landed", "all"):
        bounded = SparkCase(spark, operator, str(tmp_path / late_rows))
        bounded.land(log)
        run_bounded(spark, operator, bounded.lake, late_rows=late_rows)
        assert told(bounded.outputs()) == streamed
