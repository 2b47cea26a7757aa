"""Process functions: state, timers, side outputs and what is refused, on the kernel itself; every answer at every cut."""

from __future__ import annotations

import itertools
import random
from collections import Counter, defaultdict
from datetime import date, datetime, timedelta
from decimal import Decimal

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import BaseModel

import floodmark as fm
from floodmark.core.errors import DefinitionError, FloodmarkError
from floodmark.core.time import END, NEVER, from_ms
from floodmark.engines.embedded.memory.run import MemoryRun
from floodmark.semantics.encoding.columns import arrow_type, fitted
from floodmark.semantics.encoding.plain import unpack
from floodmark.semantics.state.entries import KeyGroup
from floodmark.semantics.state.store import MemoryStore
from floodmark.spec.rows.kinds import Kind
from floodmark.spec.values.schema import ROW
from floodmark.testing import Case
from floodmark.testing.log import Log, Logs


class Reading(fm.Contract):
    """What a sensor says."""

    at: fm.EventTime
    sensor: str
    value: float


class Sum(fm.Contract):
    """A sum so far."""

    total: float


class Note(fm.Contract):
    """A text."""

    text: str


Rows = list[tuple[str, float, int]]


def landed(operator, rows: Rows, *, behind: int | None = None, end: bool = True) -> Logs:
    """Rows of the only input; its watermark follows them ``behind`` their time, or not at all."""
    logs = Logs({one.name: Log(one.schema) for one in operator.inputs})
    (name,) = logs.logs
    for sensor, value, time in rows:
        logs.row(name, {"at": from_ms(time), "sensor": sensor, "value": value}, time)
        if behind is not None:
            logs.logs[name].watermark = max(logs.logs[name].watermark, time - behind - 1)
    if end:
        logs.end()
    return logs


def out_of(operator, logs: Logs, cuts: list[int] | None = None, output: str = "") -> list[dict]:
    """Rows of an output, with a restart at every cut."""
    places = sorted({0, len(logs.order), *(cut % (len(logs.order) + 1) for cut in cuts or ())})
    run, found = MemoryRun(operator), []
    for start, stop in itertools.pairwise(places):
        run = MemoryRun(operator, run.savepoint())
        found += [row for row in run.batch(logs.tables(start, stop))[output].to_pylist() if row["_kind"] == ROW]
    return found


def over(function, schema=Sum, **more):
    """An operator of the function over readings by sensor."""

    @fm.operator
    def found(readings: fm.Stream[Reading]):
        return readings.key_by("sensor").process(function, schema=schema, **more)

    return found


def every_cut(operator, logs: Logs, output: str = "") -> list[dict]:
    """The rows, which are the same one by one, in any two parts, and in one."""
    whole = out_of(operator, logs, [], output)
    told = [sorted(map(repr, map(_plain, rows))) for rows in (whole, out_of(operator, logs, list(range(99)), output))]
    assert told[0] == told[1]
    for cut in range(1, len(logs.order)):
        assert sorted(map(repr, map(_plain, out_of(operator, logs, [cut], output)))) == told[0]
    return whole


def _plain(row: dict) -> dict:
    return {name: value for name, value in row.items() if name not in {"_sequence", "_progress"}}


# ---- the books' own examples


class RunningSum(fm.ProcessFunction):
    """Flink's ``mapWithState``: a sum per key."""

    total = fm.ValueState(float)

    def on_element(self, row, ctx):
        self.total.update(self.total.get(0.0) + row["value"])
        yield {"total": self.total.get()}


@pytest.mark.feature("K14")
def test_running_sums_of_a_b_c_go_on_from_a_savepoint():
    """b2 b3 c1 | a2 a2 c2: at the barrier a=0, b=5, c=1; in the end a=4, b=5, c=3; nothing after it comes twice."""
    operator = over(RunningSum())
    before = landed(operator, [("b", 2, 1), ("b", 3, 2), ("c", 1, 3)], end=False)
    run = MemoryRun(operator)
    run.batch(before.tables())
    savepoint = run.savepoint()
    after = [("a", 2.0, 4), ("a", 2.0, 5), ("c", 2.0, 6)]
    for _ in range(2):  # what was processed after the savepoint is processed again
        logs = landed(operator, [("b", 2, 1), ("b", 3, 2), ("c", 1, 3), *after], end=False)
        rows = MemoryRun(operator, savepoint).batch(logs.tables(3))[""].to_pylist()
        assert sorted((r["sensor"], r["total"]) for r in rows if r["_kind"] == ROW) == [
            ("a", 2.0),
            ("a", 4.0),
            ("c", 3.0),
        ]


class Parity(fm.Contract):
    """A number of a stream of numbers."""

    at: fm.EventTime
    parity: str
    value: float


@pytest.mark.feature("F1", "F2")
def test_odd_and_even_sums_of_two_sources_are_consistent_at_a_savepoint():
    """Source 1 at offset 3, source 2 at offset 4: even 2+2+4 = 8, odd 1+3+1+3 = 8; what comes behind the cut is not in them."""

    @fm.operator
    def sums(one: fm.Stream[Parity], two: fm.Stream[Parity]):
        return one.union(two).key_by("parity").process(RunningSum(), schema=Sum, order="arrival")

    def logs_of(first, second):
        logs = Logs({given.name: Log(given.schema) for given in sums.inputs})
        for name, values in (("one", first), ("two", second)):
            for at, value in enumerate(values):
                row = {"at": from_ms(at), "parity": "odd" if value % 2 else "even", "value": float(value)}
                logs.row(name, row, at)
        return logs

    def last(rows):
        return {r["parity"]: r["total"] for r in rows if r["_kind"] == ROW}

    run = MemoryRun(sums)
    found = run.batch(logs_of([1, 2, 3], [1, 2, 3, 4]).tables())[""].to_pylist()
    assert last(found) == {"even": 8.0, "odd": 8.0}
    savepoint = run.savepoint()
    whole = logs_of([1, 2, 3, 4, 5], [1, 2, 3, 4, 5, 6])
    rest = {name: log.table(3 if name == "one" else 4) for name, log in whole.logs.items()}
    assert last(MemoryRun(sums, savepoint).batch(rest)[""].to_pylist()) == {"even": 18.0, "odd": 18.0}


@pytest.mark.feature("F1")
def test_one_source_at_offset_five_has_seen_nine_odd_and_six_even():
    operator = over(RunningSum())
    rows = [("odd" if n % 2 else "even", float(n), n) for n in range(1, 8)]
    run = MemoryRun(operator)
    found = run.batch(landed(operator, rows[:5], end=False).tables())[""].to_pylist()
    assert {r["sensor"]: r["total"] for r in found if r["_kind"] == ROW} == {"odd": 9.0, "even": 6.0}
    again = MemoryRun(operator, run.savepoint()).batch(landed(operator, rows, end=False).tables(5))[""].to_pylist()
    assert {r["sensor"]: r["total"] for r in again if r["_kind"] == ROW} == {"odd": 16.0, "even": 12.0}


class Freezing(fm.ProcessFunction):
    """Readings below freezing go to a side output too."""

    def on_element(self, row, ctx):
        if row["value"] < 0:
            ctx.output("freezing", {"text": f"{row['sensor']} {row['value']}"})
        yield {"total": row["value"]}


@pytest.mark.feature("P5", "X8")
def test_a_side_output_has_rows_of_its_own_and_the_stamps_of_their_cause():
    operator = over(Freezing(), sides={"freezing": Note})
    assert [(o.name, o.table, o.schema.names) for o in operator.outputs] == [
        ("", "found", ("sensor", "total")),
        ("freezing", "found__freezing", ("sensor", "text")),
    ]
    logs = landed(operator, [("a", 1, 1), ("a", -2, 2), ("b", -3, 3)], behind=5)
    side = every_cut(operator, logs, "freezing")
    assert {(r["sensor"], r["text"], r["_event_time"]) for r in side} == {("a", "a -2.0", 2), ("b", "b -3.0", 3)}
    assert len(every_cut(operator, logs)) == 3
    assert operator["freezing"].name == "freezing"


class LateReadings(fm.ProcessFunction):
    """Late readings go aside: the function sees the watermark each row is judged by."""

    def on_element(self, row, ctx):
        if ctx.timestamp <= ctx.watermark:
            ctx.output("late_readings", {"text": f"{ctx.timestamp} <= {ctx.watermark}"})
        else:
            yield {"total": row["value"]}


@pytest.mark.feature("L9", "P2")
def test_a_function_sees_the_watermark_a_row_is_late_by():
    operator = over(LateReadings(), sides={"late_readings": Note})
    logs = landed(operator, [("a", 1, 100), ("a", 2, 94), ("a", 3, 95), ("a", 4, 101)], behind=5)
    assert [r["text"] for r in every_cut(operator, logs, "late_readings")] == ["94 <= 94"]
    assert [r["total"] for r in every_cut(operator, logs)] == [1.0, 3.0, 4.0]


class Rising(fm.ProcessFunction):
    """The temperature has risen for a second of the clock: an alert; a fall takes it back."""

    last = fm.ValueState(float)
    alarm = fm.Timer("processing")

    def on_element(self, row, ctx):
        before = self.last.get()
        self.last.update(row["value"])
        if before is None or row["value"] < before:
            self.alarm.delete()
        elif row["value"] > before and not self.alarm.pending():
            self.alarm.set(ctx.clock + 1000)

    def on_timer(self, timer, ctx):
        yield {"text": f"{ctx.key['sensor']} rises at {ctx.clock}"}


@pytest.mark.feature("P3", "P4")
def test_an_alert_when_the_temperature_rises_for_a_second_of_the_clock():
    operator = over(Rising(), schema=Note)
    logs = Logs({one.name: Log(one.schema) for one in operator.inputs})
    logs.tick(1_000)
    at = itertools.count(1)
    for clock, rows in (
        (1_200, [("a", 20.0), ("a", 21.0), ("b", 5.0)]),  # a: alarm at 2,200
        (2_100, [("a", 22.0), ("b", 6.0)]),  # it stands; b: 3,100
        (2_300, []),  # a's has come
        (3_000, [("b", 5.5)]),  # b falls: taken back
        (9_000, []),
    ):
        logs.tick(clock)
        for sensor, value in rows:
            time = next(at)
            logs.row("readings", {"at": from_ms(time), "sensor": sensor, "value": value}, time)
    assert [r["text"] for r in every_cut(operator, logs)] == ["a rises at 2300"]


class Switch(fm.Contract):
    """Let the readings of a sensor pass for so long."""

    at: fm.EventTime
    sensor: str
    millis: int


class ReadingFilter(fm.CoProcessFunction):
    """Readings pass while a switch is on: Flink's ``ReadingFilter``, in event time."""

    on = fm.ValueState(bool)
    off = fm.Timer()

    def on_left(self, row, ctx):
        if self.on.get(False):
            yield {"total": row["value"]}

    def on_right(self, row, ctx):
        until = ctx.timestamp + row["millis"]
        if until > max(self.off.pending(), default=0):
            self.off.delete()
            self.off.set(until)
        self.on.update(True)

    def on_timer(self, timer, ctx):
        self.on.clear()


@pytest.mark.feature("P6", "X7")
def test_a_control_stream_lets_readings_pass_for_a_while():
    @fm.operator
    def passed(readings: fm.Stream[Reading], switches: fm.Stream[Switch]):
        return readings.key_by("sensor").connect(switches.key_by("sensor")).process(ReadingFilter(), schema=Sum)

    assert passed.order == "event_time"
    logs = Logs({one.name: Log(one.schema) for one in passed.inputs})
    for time in range(0, 100, 10):
        for sensor in ("a", "b"):
            logs.row("readings", {"at": from_ms(time), "sensor": sensor, "value": float(time)}, time)
    logs.row("switches", {"at": from_ms(15), "sensor": "a", "millis": 30}, 15)
    logs.row("switches", {"at": from_ms(25), "sensor": "a", "millis": 5}, 25)  # shorter: changes nothing
    logs.row("switches", {"at": from_ms(81), "sensor": "b", "millis": 5}, 81)
    logs.end()
    assert Counter((r["sensor"], r["total"]) for r in every_cut(passed, logs)) == Counter(
        {("a", 20.0): 1, ("a", 30.0): 1, ("a", 40.0): 1}
    )


class Rule(fm.Contract):
    """An upper bound for a kind of reading."""

    at: fm.EventTime
    name: str
    bound: float


class Bounds(fm.BroadcastProcessFunction):
    """Readings above a rule's bound, by the rules in force at their time."""

    rules = fm.BroadcastState(str, float)
    seen = fm.ValueState(int)

    def on_element(self, row, ctx):
        self.seen.update(self.seen.get(0) + 1)
        for name, bound in self.rules.items():
            if row["value"] > bound:
                yield {"text": f"{name} {self.seen.get()}"}

    def on_broadcast(self, row, ctx):
        if row["bound"] < 0:
            self.rules.remove(row["name"])
        else:
            self.rules.put(row["name"], row["bound"])


@fm.operator
def bounded_by_rules(readings: fm.Stream[Reading], rules: fm.Stream[Rule]):
    """Readings above a rule's bound."""
    return readings.key_by("sensor").connect(rules.broadcast()).process(Bounds(), schema=Note)


@pytest.mark.feature("K9")
def test_every_key_sees_the_rules_in_force_at_the_time_of_its_rows():
    logs = Logs({one.name: Log(one.schema) for one in bounded_by_rules.inputs})
    sensors = [f"s{n}" for n in range(2)]
    for at, name, bound in ((10, "warm", 20.0), (30, "hot", 40.0), (50, "warm", -1.0)):
        logs.row("rules", {"at": from_ms(at), "name": name, "bound": bound}, at)
    for time in (5, 20, 40, 60):
        for sensor in sensors:
            logs.row("readings", {"at": from_ms(time), "sensor": sensor, "value": 45.0}, time)
    logs.end()
    got = Counter((r["sensor"], r["text"]) for r in every_cut(bounded_by_rules, logs))
    assert got == Counter((s, text) for s in sensors for text in ("warm 2", "warm 3", "hot 3", "hot 4"))


def rules_in_force(count):
    """A case with so many rules, all of which a reading of 45 breaks."""
    case = Case(bounded_by_rules)
    case.feed("rules", [{"at": from_ms(n), "name": f"r{n}", "bound": 40.0} for n in range(count)])
    return case.watermark(from_ms(1000))


def read(case, time):
    """How many rules a reading breaks."""
    case.feed("readings", [{"at": from_ms(time), "sensor": "s", "value": 45.0}]).watermark(from_ms(time + 1))
    return len(case.results())


def test_rules_that_do_not_change_are_not_written_again(monkeypatch):
    case, written = rules_in_force(200), []
    put, put_index = MemoryStore.put, MemoryStore.put_index
    monkeypatch.setattr(MemoryStore, "put", lambda self, n, chunk: written.append(len(chunk)) or put(self, n, chunk))
    monkeypatch.setattr(MemoryStore, "put_index", lambda self, i: written.append(len(i or b"")) or put_index(self, i))
    assert read(case, 2000) == 200
    assert sum(written) < 4_000
    case.feed("rules", [{"at": from_ms(3000), "name": "r7", "bound": -1.0}]).watermark(from_ms(3001))
    assert read(case, 4000) == 199


def test_rules_an_older_release_kept_in_the_index_are_in_force():
    case, groups = rules_in_force(5), 0
    for store in case.run.state.stores.values():
        entries = KeyGroup.open(store)
        if entries.extra.pop("shared", False):
            entries.extra["broadcast"] = unpack(store.chunks.popitem()[1])
            entries.close()
            groups += 1
    assert groups == 128
    assert read(case, 2000) == 5
    assert read(case, 3000) == 5


# ---- timers, against a model


class Commands(fm.ProcessFunction):
    """Sets and deletes timers as its rows say: value 0..9 sets ``x`` so much later, 10..19 ``y``, 20..29 deletes one of ``x``, 30 all of ``y``."""

    rows = fm.ValueState(int)
    x = fm.Timer()
    y = fm.Timer()

    def on_element(self, row, ctx):
        command = int(row["value"])
        self.rows.update(self.rows.get(0) + 1)
        if command < 20:
            (self.y if command >= 10 else self.x).set(ctx.timestamp + command % 10)
        elif command < 30:
            self.x.delete(ctx.timestamp + command % 10)
        else:
            self.y.delete()

    def on_timer(self, timer, ctx):
        yield {"text": f"{timer} {ctx.timestamp} {ctx.watermark} {self.rows.get()}"}


def model(logs: Logs) -> Counter:
    """(key, text) of what fires: one per key, name and time, in order of time, before each row what its stamp has reached."""
    timers, rows, found = defaultdict(set), Counter(), Counter()

    def fire(key, upto):
        for time, name in sorted(t for t in timers[key] if t[0] <= upto):
            found[(key, f"{name} {time} {time} {rows[key]}")] += 1
            timers[key].discard((time, name))

    for entry in logs.logs["readings"].entries:
        if entry["_kind"] != ROW:
            continue
        key, time, command = entry["sensor"], entry["_event_time"], int(entry["value"])
        fire(key, entry["_watermark"])
        rows[key] += 1
        if command < 20:
            timers[key].add((time + command % 10, "y" if command >= 10 else "x"))
        elif command < 30:
            timers[key].discard((time + command % 10, "x"))
        else:
            timers[key] = {t for t in timers[key] if t[1] != "y"}
    for key in list(timers):
        fire(key, END)
    return found


COMMANDS = st.lists(
    st.tuples(st.sampled_from(["a", "b", "c"]), st.integers(0, 30).map(float), st.integers(0, 40)), max_size=25
)


@pytest.mark.feature("P3")
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(rows=COMMANDS, behind=st.integers(0, 9), cuts=st.lists(st.integers(0, 40), max_size=6))
def test_timers_fire_once_per_name_and_time_in_order_at_any_cut(rows, behind, cuts):
    operator = over(Commands(), schema=Note)
    logs = landed(operator, rows, behind=behind)
    found = out_of(operator, logs, cuts)
    assert Counter((r["sensor"], r["text"]) for r in found) == model(logs)
    for key in "abc":  # rows of a key come out in the order in which things happen
        stamps = [r["_watermark"] for r in found if r["sensor"] == key]
        assert stamps == sorted(stamps)
    assert all(r["_event_time"] > r["_watermark"] for r in found)  # never late downstream


class Stranded(fm.ProcessFunction):
    """No reading for 10 ms, and for 20."""

    first = fm.Timer()
    second = fm.Timer()

    def on_element(self, row, ctx):
        self.first.delete()
        self.second.delete()
        self.first.set(ctx.timestamp + 10)

    def on_timer(self, timer, ctx):
        if timer == "first":
            self.second.set(ctx.timestamp + 10)
        yield {"text": f"{timer} {ctx.timestamp}"}


@pytest.mark.feature("P3")
def test_a_timer_may_set_another_also_at_the_end_of_input():
    operator = over(Stranded(), schema=Note)
    logs = landed(operator, [("a", 0, 1), ("b", 0, 25), ("a", 0, 30)], behind=0)
    found = [r["text"] for r in every_cut(operator, logs) if r["sensor"] == "a"]
    assert found == ["first 11", "second 21", "first 40", "second 50"]


class Periodic(fm.ProcessFunction):
    """Says every 10 ms how many rows there were."""

    rows = fm.ValueState(int)
    every = fm.Timer()

    def on_element(self, row, ctx):
        self.rows.update(self.rows.get(0) + 1)
        if not self.every.pending():
            self.every.set(ctx.timestamp - ctx.timestamp % 10 + 10)

    def on_timer(self, timer, ctx):
        yield {"text": f"{ctx.timestamp} {self.rows.get()}"}
        self.every.set(ctx.timestamp + 10)


def test_a_period_comes_to_its_end_with_the_input():
    operator = over(Periodic(), schema=Note)
    rows = [("a", 0, 1), ("b", 0, 11), ("a", 0, 12), ("b", 0, 34), ("a", 0, 35)]
    found = [r["text"] for r in out_of(operator, landed(operator, rows, behind=0)) if r["sensor"] == "a"]
    assert found == ["10 1", "20 2", "30 2", "40 3"]


# ---- states


class Total(fm.Aggregate):
    """A mean."""

    type = "double"

    def create(self):
        return [0.0, 0]

    def add(self, accumulator, value):
        return [accumulator[0] + value, accumulator[1] + 1]

    def merge(self, left, right):
        return [left[0] + right[0], left[1] + right[1]]

    def result(self, accumulator):
        return accumulator[0] / accumulator[1]


class AllKinds(fm.ProcessFunction):
    """One of each state."""

    value = fm.ValueState(Reading)
    items = fm.ListState(float)
    by_text = fm.MapState(str, int)
    largest = fm.ReducingState(float, max)
    mean = fm.AggregatingState(Total("value"))

    def on_element(self, row, ctx):
        before = self.value.get()
        self.value.update(row)
        self.items.append(row["value"])
        text = f"{row['value']:.0f}"
        self.by_text.put(text, self.by_text.get(text, 0) + 1)
        self.largest.add(row["value"])
        self.mean.add(row["value"])
        last = None if before is None else before["value"]
        yield {"text": f"{last} {self.items.get()} {dict(self.by_text.items())} {self.largest.get()} {self.mean.get()}"}


@pytest.mark.feature("K5", "K6", "P2")
def test_each_kind_of_state_keeps_what_it_is_given():
    operator = over(AllKinds(), schema=Note)
    logs = landed(operator, [("a", 1, 1), ("a", 3, 2), ("b", 9, 2), ("a", 1, 3)])
    assert [r["text"] for r in every_cut(operator, logs) if r["sensor"] == "a"] == [
        "None [1.0] {'1': 1} 1.0 1.0",
        "1.0 [1.0, 3.0] {'1': 1, '3': 1} 3.0 2.0",
        "3.0 [1.0, 3.0, 1.0] {'1': 2, '3': 1} 3.0 1.6666666666666667",
    ]


class Fading(fm.ProcessFunction):
    """What it has seen within 10 ms."""

    last = fm.ValueState(float, ttl="10ms")
    items = fm.ListState(float, ttl="10ms")
    by_value = fm.MapState(float, int, ttl="10ms")

    def on_element(self, row, ctx):
        yield {"text": f"{ctx.watermark} {self.last.get()} {self.items.get()} {sorted(self.by_value.keys())}"}
        self.last.update(row["value"])
        self.items.append(row["value"])
        self.by_value.put(row["value"], 1)


@pytest.mark.feature("K5")
def test_state_is_forgotten_when_it_was_not_written_for_its_time_to_live():
    operator = over(Fading(), schema=Note)
    logs = landed(operator, [("a", 1, 0), ("a", 2, 4), ("a", 3, 11), ("a", 4, 16), ("a", 5, 40)], behind=0, end=False)
    assert [r["text"] for r in every_cut(operator, logs)] == [
        f"{NEVER} None [] []",
        "-1 1.0 [1.0] [1.0]",
        "3 2.0 [2.0] [2.0]",
        "10 3.0 [3.0] [3.0]",
        "15 None [] []",
    ]
    logs.move(100)
    run = MemoryRun(operator)
    run.batch(logs.tables())
    assert not run.state.deadlines
    assert not any(store.chunks for store in run.state.stores.values())  # and freed without another row


@pytest.mark.feature("K5")
@pytest.mark.parametrize("behind", [0, 60_000, None])
def test_a_value_has_expired_for_a_row_a_day_later_whatever_other_keys_do(behind):
    class Last(fm.ProcessFunction):
        last = fm.ValueState(float, ttl="10 s")

        def on_element(self, row, ctx):
            yield {"text": f"{self.last.get()} {self.last.exists()}"}
            self.last.update(row["value"])

    operator = over(Last(), schema=Note)
    alone = [("a", 1.0, 0), ("a", 2.0, 10_000), ("a", 3.0, DAY), ("a", 4.0, 2 * DAY)]
    among = [*alone[:3], ("b", 9.0, DAY + 1), alone[3]]
    for rows in (alone, among):
        found = every_cut(operator, landed(operator, rows, behind=behind))
        texts = [r["text"] for r in found if r["sensor"] == "a"]
        assert texts == ["None False", "1.0 True", "None False", "None False"]


class Remembering(fm.ProcessFunction):
    """Says what it sees of each state, and writes what the row's value says; so does its timer, without writing."""

    last = fm.ValueState(float, ttl="10ms")
    items = fm.ListState(float, ttl="12ms")
    by_rest = fm.MapState(int, float, ttl="14ms")
    largest = fm.ReducingState(float, max, ttl="16ms")
    mean = fm.AggregatingState(Total("value"), ttl="18ms")
    due = fm.Timer()

    def on_element(self, row, ctx):
        value, act = row["value"], int(row["value"]) % 7
        yield {"text": f"{value} {self.seen()}"}
        self.due.set(ctx.timestamp + 5)
        if act == 0:
            self.last.clear(), self.items.clear(), self.by_rest.remove(2)
        elif act == 1:
            self.items.update([value, -value])
        else:
            self.last.update(value)
            self.items.append(value)
            self.by_rest.put(int(value) % 3, value)
            self.largest.add(value % 10)
            self.mean.add(value)

    def on_timer(self, timer, ctx):
        yield {"text": f"{ctx.timestamp} {self.seen()}"}

    def seen(self):
        rest = [self.by_rest.get(n) for n in range(3) if n in self.by_rest]
        assert len(self.items) == len(self.items.get())
        assert sorted(self.by_rest.values()) == sorted(rest)
        return f"{self.last.get()} {self.items.get()} {self.by_rest.items()} {self.largest.get()} {self.mean.get()}"


def remembered(rows: list[tuple[float, int, int]]) -> list[str]:
    """What ``Remembering`` says of (value, time, stamp) of one key, by times alone: nothing is ever freed."""
    texts, due, stamp = [], [], NEVER
    last, largest, mean, items, by_rest = None, None, None, [], {}

    def live(written, ttl, instant):
        return written is not None and written[0] + ttl > instant

    def seen(instant):
        listed = [value for at, value in items if at + 12 > instant]
        mapped = [(rest, value) for rest, (at, value) in by_rest.items() if at + 14 > instant]
        folded = largest[1] if live(largest, 16, instant) else None
        average = mean[1] / mean[2] if live(mean, 18, instant) else None
        return f"{last[1] if live(last, 10, instant) else None} {listed} {mapped} {folded} {average}"

    def fire(progress):
        reached = sorted({time for time in due if time <= progress})
        texts.extend(f"{time} {seen(max(time, stamp))}" for time in reached)
        due[:] = [time for time in due if time > progress]

    for value, time, stamp_of_row in rows:
        fire(stamp_of_row)
        stamp, instant = stamp_of_row, max(time - 1, stamp_of_row)
        now = instant + 1
        texts.append(f"{value} {seen(instant)}")
        due.append(time + 5)
        act, rest = int(value) % 7, int(value) % 3
        if act == 0:
            last, items = None, []
            by_rest.pop(2, None)
        elif act == 1:
            items = [(now, value), (now, -value)]
        else:
            last, items = (now, value), [*items, (now, value)]
            if rest in by_rest and not live(by_rest[rest], 14, instant):
                del by_rest[rest]
            by_rest[rest] = now, value
            largest = now, max(value % 10, largest[1]) if live(largest, 16, instant) else value % 10
            mean = (now, mean[1] + value, mean[2] + 1) if live(mean, 18, instant) else (now, value, 1)
    fire(END)
    return texts


@pytest.mark.parametrize("behind", [0, 6, 30, None])
@pytest.mark.parametrize(
    "seed",
    [
        pytest.param(0, marks=pytest.mark.feature("K5")),
        *(pytest.param(n, marks=pytest.mark.soak) for n in (1, 2)),
    ],
)
def test_what_a_row_and_a_timer_see_of_each_state_is_said_by_their_times(seed, behind):
    drawn = random.Random(seed)
    rows = [(drawn.choice("ab"), float(n), drawn.randrange(80)) for n in range(25)]
    rows.sort(key=lambda row: row[2] + drawn.random() * 20)  # some late, where the bound is less
    stamps = itertools.accumulate((NEVER if behind is None else time - behind - 1 for *_, time in rows), max)
    stamped = [(*row, stamp) for row, stamp in zip(rows, [NEVER, *stamps], strict=False)]
    operator = over(Remembering(), schema=Note)
    found = every_cut(operator, landed(operator, rows, behind=behind))
    for sensor in "ab":
        expected = remembered([(value, time, stamp) for key, value, time, stamp in stamped if key == sensor])
        assert [r["text"] for r in found if r["sensor"] == sensor] == expected


# ---- evolution


def evolved(before, after, rows_before: Rows, rows_after: Rows) -> list[str]:
    """What a new version says from a savepoint of the old one."""
    old, new = over(before, schema=Note, uid="f"), over(after, schema=Note, uid="f")
    run = MemoryRun(old)
    run.batch(landed(old, rows_before, end=False).tables())
    logs = landed(new, [*rows_before, *rows_after], end=False)
    rows = MemoryRun(new, run.savepoint()).batch(logs.tables(len(rows_before)))[""].to_pylist()
    return [r["text"] for r in rows if r["_kind"] == ROW]


class Celsius(fm.ProcessFunction):
    last = fm.ValueState(float)
    seen = fm.ValueState("int")

    def on_element(self, row, ctx):
        self.last.update(row["value"])
        self.seen.update(self.seen.get(0) + 1)
        return ()


class Fahrenheit(fm.ProcessFunction):
    last = fm.ValueState(float, version=2, migrate=lambda celsius: celsius * 9 / 5 + 32)
    seen = fm.ValueState("bigint")
    new = fm.ListState(str, ttl="1 hour")

    def on_element(self, row, ctx):
        yield {"text": f"{self.last.get()} {self.seen.get()} {self.new.get()}"}


class Later(fm.ProcessFunction):
    last = fm.ValueState(str, version=3, migrate={2: lambda celsius: celsius + 273.15, 3: "{:.2f} K".format})

    def on_element(self, row, ctx):
        yield {"text": f"{self.last.get()}"}


class Timed(fm.ProcessFunction):
    last = fm.ValueState(float, ttl="10ms")

    def on_element(self, row, ctx):
        yield {"text": f"{self.last.get()}"}


class Broken(fm.ProcessFunction):
    last = fm.ValueState(str)

    def on_element(self, row, ctx):
        yield {"text": f"{self.last.get()}"}


@pytest.mark.feature("K13")
def test_a_new_version_reads_what_an_older_one_has_kept():
    converted = evolved(Celsius(), Fahrenheit(), [("a", 100, 1), ("a", 20, 2)], [("a", 0, 3), ("b", 0, 3)])
    assert sorted(converted) == ["68.0 2 []", "None None []"]
    assert evolved(Celsius(), Timed(), [("a", 20, 1)], [("a", 0, 3)]) == ["20.0"]
    assert evolved(Celsius(), Later(), [("a", 20, 1)], [("a", 0, 3)]) == ["293.15 K"]


@pytest.mark.feature("K13")
def test_a_type_that_cannot_be_read_is_told_with_the_way_on():
    with pytest.raises(FloodmarkError) as error:
        evolved(Celsius(), Broken(), [("a", 20, 1)], [("a", 0, 3)])
    assert error.value.code == "STATE-005"
    assert "got value of double, version 1" in str(error.value)
    assert "version=2, migrate=..." in str(error.value)


class Place(BaseModel):
    """Part of a visit."""

    city: str
    since: datetime


class Visit(fm.Contract):
    """Nested."""

    place: Place
    tags: list[str]
    labels: dict[str, int]


class Visits(fm.ProcessFunction):
    """The visit before, as it was kept."""

    last = fm.ValueState(Visit)
    by_city = fm.MapState(str, "array<struct<tags: map<string, int>, at: timestamp>>")

    def on_element(self, row, ctx):
        place = {"city": row["sensor"], "since": from_ms(ctx.timestamp)}
        if self.last.exists():
            before = self.last.get()
            yield {"text": f"{before['place']['city']} {before['tags']} {before['labels']} {self.by_city.get('x')}"}
        self.last.update({"place": place, "tags": ["a", None], "labels": [("n", int(row["value"]))]})
        self.by_city.put("x", [{"tags": {"t": 1}, "at": None}])


def test_a_nested_contract_is_kept_whole():
    rows = every_cut(over(Visits(), Note), landed(over(Visits(), Note), [("a", 1, 1), ("a", 2, 2), ("b", 3, 3)]))
    assert [row["text"] for row in rows] == ["a ['a', None] {'n': 1} [{'tags': {'t': 1}, 'at': None}]"]


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        ({"place": {"city": 1}}, "column 'place': expected a value of type struct<city:string,since:timestamp>"),
        ({"place": "a"}, "column 'place'"),
        ({"tags": {"a": 1}}, "column 'tags'"),
        ({"labels": {"a": "b"}}, "column 'labels': expected a value of type map<string,bigint>, got dict {'a': 'b'}"),
        ({"labels": {None: 1}}, "column 'labels'"),
        ({"labels": 5}, "column 'labels'"),
        ({"labels": None}, "column 'labels'"),
    ],
)
def test_a_part_that_does_not_fit_is_named_by_its_column(wrong, text):
    right = {"place": {"city": "a", "since": from_ms(0)}, "tags": [], "labels": {}}
    kind = Kind.of(Visit, "state")
    assert kind.checked(right, "state") == right
    with pytest.raises(FloodmarkError) as error:
        kind.checked(right | wrong, "state")
    assert error.value.code == "USER-005"
    assert text in str(error.value)


@pytest.mark.parametrize(
    ("kind", "given", "wanted"),
    [
        ("timestamp", [1500, None, from_ms(-1500)], [from_ms(1500), None, from_ms(-1500)]),
        ("array<timestamp>", [[1500, from_ms(0)], None], [[from_ms(1500), from_ms(0)], None]),
        ("struct<a: timestamp, b: bigint>", [{"a": 1500, "b": 1500}], [{"a": from_ms(1500), "b": 1500}]),
        ("map<string, timestamp>", [{"a": 1500}, [("b", 0)]], [[("a", from_ms(1500))], [("b", from_ms(0))]]),
        ("bigint", [1500], [1500]),
    ],
)
def test_a_whole_number_for_an_instant_is_milliseconds(kind, given, wanted):
    assert fitted(given, arrow_type(kind)).to_pylist() == wanted


class Settled(fm.ProcessFunction):
    """Says its settings, of which ``open`` makes one anew."""

    def __init__(self) -> None:
        self.apart, self.first, self.sizes = timedelta(minutes=5), date(2020, 1, 1), [1, 2]
        self.most, self.client = Decimal("1.5"), None

    def open(self):
        self.client = iter(())

    def on_element(self, row, ctx):
        yield {"text": f"{self.apart} {self.first} {self.sizes} {self.most} {self.client is None}"}


def test_settings_are_values_of_any_kind_that_stay_as_they_are():
    rows = every_cut(over(Settled(), Note), landed(over(Settled(), Note), [("a", 1, 1), ("b", 2, 2)]))
    assert {row["text"] for row in rows} == {"0:05:00 2020-01-01 [1, 2] 1.5 False"}


class Alarmed(fm.ProcessFunction):
    last = fm.ValueState(float)
    due = fm.Timer()
    ticking = fm.Timer("processing")

    def on_element(self, row, ctx):
        self.last.update(row["value"])
        self.due.set(ctx.timestamp + 10)
        self.ticking.set(ctx.clock + 5)
        return ()

    def on_timer(self, timer, ctx):
        yield {"text": timer}


class Calm(fm.ProcessFunction):
    last = fm.ValueState(float)

    def on_element(self, row, ctx):
        yield {"text": f"{self.last.get()}"}


def test_timers_that_are_gone_do_not_fire_and_do_not_hang():
    old, new = over(Alarmed(), schema=Note, uid="f"), over(Calm(), schema=Note, uid="f")
    logs = landed(old, [("a", 1, 1), ("a", 2, 50)], behind=0)
    run = MemoryRun(old)
    run.batch(logs.tables(0, 1))
    rows = MemoryRun(new, run.savepoint()).batch(logs.tables(1))[""].to_pylist()
    assert [r["text"] for r in rows if r["_kind"] == ROW] == ["1.0"]


@pytest.mark.parametrize("order", ["arrival", "event_time"])
def test_a_period_goes_on_as_far_as_progress_does_whatever_the_cuts(order):
    """A key goes quiet; others let time pass, and then the input ends."""
    operator = over(Periodic(), schema=Note, order=order)
    logs = landed(operator, [("a", 0, 1), ("b", 0, 55), ("b", 0, 56)], behind=0, end=False)
    logs.move(55)
    logs.end()
    found = [r["text"] for r in every_cut(operator, logs) if r["sensor"] == "a"]
    assert found == ["10 1", "20 1", "30 1", "40 1", "50 1", "60 1"]


def test_timers_that_set_each_other_come_to_their_end_with_the_input():
    class PingPong(fm.ProcessFunction):
        ping = fm.Timer()
        pong = fm.Timer()

        def on_element(self, row, ctx):
            self.ping.set(ctx.timestamp + 10)
            return ()

        def on_timer(self, timer, ctx):
            (self.pong if timer == "ping" else self.ping).set(ctx.timestamp + 10)
            yield {"text": f"{timer} {ctx.timestamp}"}

    operator = over(PingPong(), schema=Note)
    assert [r["text"] for r in out_of(operator, landed(operator, [("a", 0, 1)]))] == ["ping 11", "pong 21"]


def test_what_progress_has_reached_comes_before_what_only_the_end_reaches():
    class Ending(fm.ProcessFunction):
        last = fm.ValueState(float, ttl="10 ms")
        later = fm.Timer("processing")
        due = fm.Timer()

        def on_element(self, row, ctx):
            self.last.update(row["value"])
            self.later.set(ctx.clock + 1_000_000)
            self.due.set(ctx.timestamp + 5)
            return ()

        def on_timer(self, timer, ctx):
            yield {"text": f"{timer} {self.last.get()}"}

    operator = over(Ending(), schema=Note)
    logs = Logs({one.name: Log(one.schema) for one in operator.inputs})
    logs.tick(100)
    logs.row("readings", {"at": from_ms(0), "sensor": "a", "value": 1.0}, 0)
    logs.move(55)
    logs.end()
    assert [r["text"] for r in every_cut(operator, logs)] == ["due 1.0", "later None"]


def test_far_timers_are_one_and_can_be_taken_back():
    class Far(fm.ProcessFunction):
        due = fm.Timer()

        def on_element(self, row, ctx):
            self.due.set(1 << 70)
            self.due.set(1 << 71)
            if row["value"] < 0:
                self.due.delete(1 << 70)
            return ()

        def on_timer(self, timer, ctx):
            yield {"text": timer}

    operator = over(Far(), schema=Note)
    assert len(out_of(operator, landed(operator, [("a", 1, 1), ("b", -1, 1)]))) == 1


@pytest.mark.parametrize(
    ("kind", "wanted"),
    {
        "process": {"1.0 None", "2.0 None", "3.0 new"},
        "interval_join": {"1.0 None 3.0 new", "2.0 None 3.0 new", "3.0 new None None"},
        "temporal_join": {"1.0 None 1.0 None", "2.0 None 2.0 None", "3.0 new 3.0 new"},
        "window_join": {
            "1.0 None 1.0 None",
            "2.0 None 2.0 None",
            "2.0 None 3.0 new",
            "3.0 new 2.0 None",
            "3.0 new 3.0 new",
        },
        "window": {"[1.0] [None]", "[2.0, 3.0] [None, 'new']"},
    }.items(),
)
def test_held_rows_of_an_older_version_have_the_new_column_as_null(kind, wanted):
    class More(Reading):
        """With a column more."""

        extra: str | None = None

    class Told(fm.ProcessFunction):
        def on_element(self, row, ctx):
            yield {"text": f"{row['value']} {row.get('extra')}"}

    def told(pane, rows):
        yield {"text": f"{[row['value'] for row in rows]} {[row['extra'] for row in rows]}"}

    def build(contract):
        @fm.operator
        def found(readings: fm.Stream[contract]):
            keyed, same = readings.key_by("sensor"), {"kind": "left", "prefix": "next_", "uid": "f"}
            match kind:
                case "process":
                    return keyed.process(Told(), schema=Note, order="event_time", uid="f")
                case "interval_join":
                    return keyed.interval_join(keyed, "5ms", "20ms", **same)
                case "temporal_join":
                    return keyed.temporal_join(keyed, **same)
                case "window_join":
                    return keyed.window_join(keyed, fm.Tumbling("20ms"), **same)
                case _:
                    return keyed.window(fm.Tumbling("20ms")).process(told, schema=Note, uid="f")

        return found

    def text(row):
        names = ("value", "extra", "next_value", "next_extra")
        return row["text"] if "text" in row else " ".join(str(row[name]) for name in names)

    old, new = build(Reading), build(More)
    before = landed(old, [("a", 1, 10), ("a", 2, 20)], end=False)
    run = MemoryRun(old)
    run.batch(before.tables())
    logs = landed(new, [("a", 1, 10), ("a", 2, 20)], end=False)
    since = len(logs.order)
    logs.row("readings", {"at": from_ms(25), "sensor": "a", "value": 3, "extra": "new"}, 25)
    logs.end()
    rows = MemoryRun(new, run.savepoint()).batch(logs.tables(since, len(logs.order)))[""].to_pylist()
    assert {text(row) for row in rows if row["_kind"] == ROW} == wanted


# ---- failures


class Fragile(fm.ProcessFunction):
    """Fails for negative readings, after it has changed all it can."""

    total = fm.ValueState(float)
    items = fm.ListState(float)
    later = fm.Timer()

    def on_element(self, row, ctx):
        self.total.update(self.total.get(0.0) + row["value"])
        self.items.append(row["value"])
        self.later.set(ctx.timestamp + 5)
        ctx.output("seen", {"text": f"{row['value']}"})
        yield {"total": self.total.get()}
        if row["value"] < 0:
            msg = "negative"
            raise ValueError(msg)

    def on_timer(self, timer, ctx):
        yield {"total": float(len(self.items))}


def test_a_row_the_function_fails_for_leaves_no_trace():
    rows = [("a", 1, 1), ("a", -5, 2), ("a", 2, 3)]
    operator = over(Fragile(), sides={"seen": Note}, on_error="quarantine")
    logs = landed(operator, rows)
    assert [(r["total"], r["_event_time"]) for r in every_cut(operator, logs)] == [
        (1.0, 1),
        (3.0, 3),
        (2.0, 6),
        (2.0, 8),
    ]
    assert [r["text"] for r in every_cut(operator, logs, "seen")] == ["1.0", "2.0"]
    (failed,) = every_cut(operator, logs, "quarantine")
    assert failed["reason"] == "ValueError: negative"
    assert failed["key"] == '{"sensor": "a"}'
    with pytest.raises(FloodmarkError) as error:
        out_of(over(Fragile(), sides={"seen": Note}), logs)
    assert "step 'found', key (sensor='a'), Fragile: expected a result, got ValueError: negative" in str(error.value)


class Wrong(fm.ProcessFunction):
    """Does one thing it must not."""

    last = fm.ValueState(float)
    by_text = fm.MapState(str, int)
    by_number = fm.MapState(float, int)
    alarm = fm.Timer()

    def __init__(self, what: str) -> None:
        self.what, self.given = what, []

    def open(self):
        if self.what == "state in open":
            self.last.get()
        if self.what == "timer in open":
            self.alarm.set(1)

    def on_element(self, row, ctx):  # noqa: PLR0912 - one thing at a time
        match self.what:
            case "undeclared":
                self.count = 1
            case "assigned":
                self.last = 1.0
            case "type":
                self.last.update("warm")
            case "map key":
                self.by_text.put(1, 1)
            case "overflow":
                self.by_text.put("a", 1 << 63)
            case "clock":
                ctx.clock  # noqa: B018 - it is refused
            case "side":
                ctx.output("nowhere", {"text": ""})
            case "column":
                return [{"totl": 1.0}]
            case "missing":
                return [{}]
            case "object":
                self.last.update(object())
            case "time":
                self.alarm.set("soon")
            case "endless":
                self.alarm.set(ctx.timestamp)
            case "setting":
                self.given.append(1)
            case "nan":
                self.by_number.put(float("nan"), 1)
            case "mapping":
                return {"total": 1.0}
            case "text":
                return [{"total": "much"}]
        return None

    def on_timer(self, timer, ctx):
        self.alarm.set(ctx.timestamp - 1)
        return ()


@pytest.mark.parametrize(
    ("what", "code", "text"),
    [
        (
            "undeclared",
            "USER-004",
            "expected state that is declared, got self.count = .... Declare it: count = ValueState(float)",
        ),
        ("assigned", "USER-004", "Write self.last.update(...)"),
        ("type", "USER-005", "state 'last': expected a value of type double, got str 'warm'"),
        ("map key", "USER-005", "key of state 'by_text': expected a value of type string, got int 1"),
        ("overflow", "USER-005", "expected a value of type bigint, got int 9223372036854775808"),
        ("object", "USER-005", "expected a value of type double, got object"),
        ("clock", "USER-006", 'Declare one, Timer("processing")'),
        ("state in open", "USER-006", "state 'last': expected a key, got none at this point"),
        ("timer in open", "USER-006", "timer 'alarm': expected a key, got none at this point"),
        ("side", "USER-008", "expected a declared side output, got 'nowhere', of none"),
        ("column", "USER-001", "'totl' is no column"),
        ("missing", "USER-001", "nothing for 'total', which is never null"),
        ("time", "USER-005", "got str 'soon'"),
        ("setting", "USER-004", "expected settings that stay as they are, got another self.given than before"),
        ("nan", "USER-005", "expected a key that is equal to itself, got nan"),
        ("mapping", "USER-001", "'total' is no row; yield dictionaries with total, or return a list of them"),
        ("text", "USER-001", "It was yielded for {'sensor': 'a'}: {'total': 'much'}"),
        ("endless", "USER-007", "A timer that sets a timer sets it to a later time"),
    ],
)
def test_what_a_function_must_not_do_is_told(what, code, text):
    operator = over(Wrong(what))
    with pytest.raises(FloodmarkError) as error:
        out_of(operator, landed(operator, [("a", 1, 1)]))
    assert error.value.code == code
    assert text in str(error.value)


def test_a_rule_cannot_be_changed_from_a_row_nor_a_state_of_a_key_from_a_rule():
    class Meddling(fm.BroadcastProcessFunction):
        rules = fm.BroadcastState(str, float)
        seen = fm.ValueState(int)

        def on_element(self, row, ctx):
            self.rules.put("mine", 1.0)

        def on_broadcast(self, row, ctx):
            self.seen.get()

    @fm.operator
    def meddling(readings: fm.Stream[Reading], rules: fm.Stream[Rule]):
        return readings.key_by("sensor").connect(rules.broadcast()).process(Meddling(), schema=Note)

    for name, text in (
        ("readings", "expected a read, got a change while a row of one key"),
        ("rules", "expected a key"),
    ):
        logs = Logs({one.name: Log(one.schema) for one in meddling.inputs})
        more = {"sensor": "a", "value": 1.0} if name == "readings" else {"name": "r", "bound": 1.0}
        logs.row(name, {"at": from_ms(1), **more}, 1)
        logs.end()
        with pytest.raises(FloodmarkError, match="USER-006") as error:
            out_of(meddling, logs)
        assert text in str(error.value)


class OnlyTimer(fm.ProcessFunction):
    alarm = fm.Timer()

    def on_element(self, row, ctx):
        return ()


class Holding(fm.ProcessFunction):
    def __init__(self, what):
        self.what = what

    def on_element(self, row, ctx):
        return ()


class Hiding(fm.ProcessFunction):
    timers = fm.Counter()

    def on_element(self, row, ctx):
        return ()


class Twins(fm.ProcessFunction):
    a = b = fm.ValueState(float)

    def on_element(self, row, ctx):
        return ()


class InInit(fm.ProcessFunction):
    def __init__(self):
        self.last = fm.ValueState(float)

    def on_element(self, row, ctx):
        return ()


def bounds_that_yield():
    class Yielding(Bounds):
        def on_broadcast(self, row, ctx):
            yield {"text": "lost"}

    @fm.operator
    def found(readings: fm.Stream[Reading], rules: fm.Stream[Rule]):
        return readings.key_by("sensor").connect(rules.broadcast()).process(Yielding(), schema=Note)


def spark_like():
    kind = type("SparkSession", (), {})
    kind.__module__ = "pyspark.sql.session"
    return kind()


@pytest.mark.parametrize(
    ("build", "text"),
    [
        (lambda: over(RunningSum), "DEFINITION-121"),
        (lambda: over(ReadingFilter()), "expected a ProcessFunction"),
        (lambda: over(fm.ProcessFunction()), "got none of on_element"),
        (lambda: over(OnlyTimer()), "got none of on_timer. Write on_timer on OnlyTimer"),
        (lambda: over(Holding(spark_like())), "DEFINITION-122"),
        (lambda: over(Holding(iter(()))), "DEFINITION-123"),
        (lambda: over(RunningSum(), schema=dict), "DEFINITION-051"),
        (lambda: over(RunningSum(), sides={"late": Note}), "DEFINITION-064"),
        (lambda: over(RunningSum(), order="random"), "DEFINITION-055"),
        (lambda: over(RunningSum(), sides=["a"]), "expected side outputs by name"),
        (lambda: over(Twins()), "names of states, timers and metrics, got a, b"),
        (lambda: over(Hiding()), "names of states, timers and metrics, got timers"),
        (lambda: over(InInit()), "states as attributes of the class, got self.last"),
        (bounds_that_yield, "an on_broadcast that yields nothing, got a generator"),
        (lambda: fm.ValueState(float, migrate=float), "a way to every version from 2 on"),
        (lambda: fm.ValueState(float, version=3, migrate={3: float}), "a way to every version from 2 on"),
        (lambda: fm.MapState(list[str], int), "keys that can be compared"),
        (lambda: fm.ValueState("colour"), "DEFINITION-120"),
        (lambda: fm.ValueState(float, ttl="0 s"), "expected a positive ttl"),
        (lambda: fm.ValueState(float, version=0), "expected a version, 1 or more"),
        (lambda: fm.ReducingState(float, 3), "expected a function, got 3"),
        (lambda: fm.AggregatingState(fm.sum("value")), "expected an Aggregate"),
        (lambda: fm.Timer("wall"), 'expected "event" or "processing"'),
    ],
)
def test_what_cannot_be_a_process_function_is_refused_when_it_is_defined(build, text):
    with pytest.raises(DefinitionError) as error:
        build()
    assert text in str(error.value)


def test_the_version_is_the_code_the_settings_and_the_layout_not_the_instance():
    assert over(Holding(1)).fingerprint == over(Holding(1)).fingerprint
    assert over(Holding(1)).fingerprint != over(Holding(2)).fingerprint
    assert over(Celsius()).fingerprint != over(Fahrenheit()).fingerprint


@pytest.mark.feature("K14")
def test_deduplication_remembers_a_key_for_a_while():
    @fm.operator
    def once(readings: fm.Stream[Reading]):
        return readings.key_by("sensor").deduplicate("10ms")

    rows = [("a", 1, 1), ("a", 2, 5), ("b", 3, 6), ("a", 4, 12), ("a", 5, 13), ("b", 6, 30), ("a", 7, 31)]
    found = every_cut(once, landed(once, rows, behind=0))
    assert [(r["sensor"], r["value"]) for r in sorted(found, key=lambda r: r["_event_time"])] == [
        ("a", 1.0),
        ("b", 3.0),
        ("a", 4.0),
        ("b", 6.0),
        ("a", 7.0),
    ], "what counts is how far apart rows are, not how far progress has come"
    with pytest.raises(DefinitionError, match="DEFINITION-055"):
        over_deduplicated("0 s")


DAY = 86_400_000


def test_rows_a_day_apart_are_no_duplicates_whatever_other_keys_do():
    alone = [("a", float(day), day * DAY) for day in range(4)]
    among = sorted([*alone, *(("b", float(day), day * DAY + 7) for day in range(4))], key=lambda row: row[2])
    for rows in (alone, among):
        for behind in (0, DAY, None):
            found = every_cut(over_deduplicated("10 s"), landed(over_deduplicated("10 s"), rows, behind=behind))
            assert sorted(r["value"] for r in found if r["sensor"] == "a") == [0.0, 1.0, 2.0, 3.0]


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.few(1)
def test_duplicates_are_rows_that_an_emitted_row_of_their_key_is_near(seed):
    drawn = random.Random(seed)
    rows = [("ab"[drawn.randrange(2)], float(n), drawn.randrange(200)) for n in range(30)]
    late = drawn.choice([0, 20])
    rows = [(sensor, value, time) for sensor, value, time in sorted(rows, key=lambda r: r[2] + drawn.random() * late)]
    emitted: list = []
    for sensor, value, time in rows:
        if all(sensor != other or abs(time - at) > 10 for other, _, at in emitted):
            emitted.append((sensor, value, time))
    found = every_cut(over_deduplicated("10ms"), landed(over_deduplicated("10ms"), rows, behind=late))
    assert sorted(r["value"] for r in found) == sorted(value for _, value, _ in emitted)


def over_deduplicated(within):
    @fm.operator
    def once(readings: fm.Stream[Reading]):
        return readings.key_by("sensor").deduplicate(within)

    return once
