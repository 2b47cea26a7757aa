"""The row by row kernel against brute force, and against itself under any cut, restart and order of arrival."""

from __future__ import annotations

import gc
import itertools
import random
from collections import Counter, defaultdict
from datetime import UTC, datetime

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import floodmark as fm
from floodmark.core.errors import CapabilityError, DefinitionError, UserCodeError
from floodmark.core.time import END, NEVER, from_ms
from floodmark.engines.embedded.memory.run import MemoryRun
from floodmark.semantics.kernels.stage import kernel_of, stage_of
from floodmark.semantics.state.store import MemoryStore
from floodmark.spec.values.schema import ROW
from floodmark.testing import Case
from floodmark.testing.log import Log
from floodmark.testing.proof import tables_of


class Event(fm.Contract):
    """A keyed number."""

    at: fm.EventTime
    key: str
    value: int


class Told(fm.Contract):
    """What a window function says."""

    text: str


def build(window, *, function=None, **settings):
    @fm.operator(name="result")
    def result(events: fm.Stream[Event]) -> fm.Stream:
        windowed = events.key_by("key").window(window, **settings)
        return windowed.process(function, Told) if function else windowed.aggregate(result=fm.collect("value"))

    return result


def told(pane, rows):
    yield {"text": f"{pane.index} {pane.timing} {pane.is_last} {[row['value'] for row in rows]}"}


def log_of(operator, rows, rng):
    """Rows with a watermark that follows them, some of them late; entries of a landed log."""
    log = Log(operator.inputs[0].schema)
    newest = NEVER
    for number, (key, time) in enumerate(rows):
        log.row({"at": from_ms(time), "key": key, "value": number}, time)
        newest = max(newest, time)
        if rng.random() < 0.5:
            log.move(newest - rng.choice([1, 5, 30]))
    return log


def run(operator, log, cuts=(), *, restart=False):
    """Everything emitted, per key in order, with kinds and stamps."""
    going = MemoryRun(operator)
    found = defaultdict(list)
    bounds = [0, *sorted(cuts), len(log.entries)]
    for start, stop in itertools.pairwise(bounds):
        for row in going.batch({"events": log.table(start, stop)})[""].to_pylist():
            if row["_kind"] <= ROW:
                result = row.get("result", row.get("text", row.get("rows")))
                ends = row.get("window_start"), row.get("window_end")
                stamps = row["_event_time"], row["_watermark"], row["_kind"]
                found[row["key"]].append((repr(result), *ends, *stamps))
        if restart:
            going = MemoryRun(operator, going.savepoint())
    return dict(found), going.state


def final(found):
    """What is left of each key's results once retractions are applied."""
    left = {}
    for key, panes in found.items():
        counts = Counter()
        for *result, _event, _stamp, kind in panes:
            counts[tuple(result)] += 1 if kind == ROW else -1
        left[key] = +counts
    return left


OPERATORS = {
    "session": build(fm.Session("10ms"), allowed_lateness="15ms"),
    "session, own gap": build(fm.Session("1 + value % 12", per_row=True), allowed_lateness="5ms"),
    "session, early and late": build(
        fm.Session("10ms"),
        trigger=fm.AfterWatermark().early(fm.AfterCount(2)).late(fm.AfterCount(2)),
        allowed_lateness="20ms",
    ),
    "tumbling, early": build(
        fm.Tumbling("20ms"), trigger=fm.AfterWatermark().early(fm.Every("5ms")), allowed_lateness="20ms"
    ),
    "sliding, discarding": build(
        fm.Sliding("20ms", "10ms"),
        trigger=fm.AfterWatermark().early(fm.AfterCount(3)),
        accumulation="discarding",
        allowed_lateness="9ms",
    ),
    "count": build(fm.Count(3)),
    "count, sliding": build(fm.Count(4, 3)),
    "global, any": build(fm.Global(), trigger=fm.AfterCount(4) | fm.Every("7ms")),
    "calendar, whole rows": build(fm.Calendar("day"), function=told, allowed_lateness="10ms"),
    "evictor": build(fm.Tumbling("20ms"), evictor=fm.KeepWithin("8ms", "after"), allowed_lateness="15ms"),
}

ROWS = st.lists(st.tuples(st.sampled_from("ab"), st.integers(-40, 90)), max_size=25)


@pytest.mark.feature("W8", "W11", "B9")
@pytest.mark.parametrize("name", OPERATORS)
@settings(max_examples=12)
@given(rows=ROWS, seed=st.integers(0, 10**6), ended=st.booleans())
@pytest.mark.few(4)
def test_panes_do_not_depend_on_micro_batches_or_restarts(name, rows, seed, ended):
    rng, operator = random.Random(seed), OPERATORS[name]
    log = log_of(operator, rows, rng)
    if ended:
        log.end()
    whole, state = run(operator, log)
    entries = len(log.entries)
    cuts = [rng.randrange(entries + 1) for _ in range(rng.choice([1, 5]))] if entries else []
    pieces, pieced = run(operator, log, cuts, restart=rng.random() < 0.5)
    single, _ = run(operator, log, range(entries))
    if ended and isinstance(
        operator.stateful.window, fm.Global
    ):  # repeats of an unchanged value stop at the end of input
        whole, pieces, single = final(whole), final(pieces), final(single)
    assert pieces == whole
    assert single == whole
    assert (pieced.late, pieced.dropped) == (state.late, state.dropped)


@pytest.mark.feature("W7", "T1")
@given(rows=ROWS)
def test_sessions_in_any_order_of_arrival_are_the_unions_of_their_rows(rows):
    operator = build(fm.Session("10ms"))
    log = Log(operator.inputs[0].schema)
    for number, (key, time) in enumerate(rows):
        log.row({"at": from_ms(time), "key": key, "value": number}, time)
    log.end()
    found, _ = run(operator, log, [len(rows) // 2])
    expected = Counter()
    for key in "ab":
        session: list[tuple[int, int]] = []
        for time, number in sorted((t, n) for n, (k, t) in enumerate(rows) if k == key):
            if session and time > session[-1][0] + 10:
                expected[key, session[0][0], session[-1][0] + 10, frozenset(n for _, n in session)] += 1
                session = []
            session.append((time, number))
        if session:
            expected[key, session[0][0], session[-1][0] + 10, frozenset(n for _, n in session)] += 1
    ms = lambda moment: (moment - datetime(1970, 1, 1, tzinfo=UTC)).total_seconds() * 1000  # noqa: E731 - short
    got = Counter(
        (key, round(ms(start)), round(ms(end)), frozenset(eval(values)))  # noqa: S307 - a list of numbers we made
        for key, panes in found.items()
        for values, start, end, *_ in panes
    )
    assert got == expected


@given(rows=ROWS, seed=st.integers(0, 10**6))
def test_unrecorded_arrival_makes_no_difference_once_rows_come_by_event_time(rows, seed):
    rng = random.Random(seed)
    operator = build(fm.Session("10ms"), allowed_lateness="15ms", order="event_time")
    entries = [dict(entry) for entry in log_of(operator, rows, rng).entries if entry["_kind"] == ROW]
    schema = Log(operator.inputs[0].schema).table().schema

    def panes(order, progress_steps):
        going, found, left = MemoryRun(operator), defaultdict(list), list(order)
        for reached in progress_steps:
            due = [e for e in left if max(e["_event_time"], e["_watermark"] + 1) <= reached]
            early = [e for e in left if e not in due and rng.random() < 0.3]
            now = [e for e in left if e in due or e in early]
            left = [e for e in left if e not in now]
            batch = [e | {"_progress": NEVER, "_sequence": n} for n, e in enumerate(now)]
            batch.append({"_watermark": reached, "_progress": reached, "_kind": 1})
            for row in going.batch({"events": pa.Table.from_pylist(batch, schema=schema)})[""].to_pylist():
                if row["_kind"] <= ROW:
                    found[row["key"]].append((tuple(row["result"]), row["window_end"], row["_watermark"], row["_kind"]))
        return dict(found)

    steps = sorted({rng.randrange(-60, 130) for _ in range(4)})
    shuffled = rng.sample(entries, len(entries))
    assert panes(shuffled, [*steps, END]) == panes(entries, [END])


@pytest.mark.parametrize("starts", list(itertools.permutations([0, 40, 80])))
@pytest.mark.parametrize("order", ["arrival", "event_time"])
def test_a_merge_retracts_sessions_in_their_order_whichever_began_first(starts, order):
    operator = build(fm.Session("value", per_row=True), allowed_lateness="1 second", order=order)
    log = Log(operator.inputs[0].schema)
    log.move(300)
    for start in starts:
        log.row({"at": from_ms(start), "key": "a", "value": 10}, start)
        log.move(log.watermark + 1)
    log.row({"at": from_ms(5), "key": "a", "value": 100}, 5)
    log.end()
    for cuts in [(), (2,), (1, 3)]:
        found, _ = run(operator, log, cuts, restart=True)
        retracted = [start for _, start, *_, kind in found["a"] if kind < ROW]
        assert retracted == [from_ms(start) for start in (0, 40, 80)]


@pytest.mark.feature("W5", "L1")
@given(values=st.lists(st.integers(0, 50), min_size=1), n=st.integers(1, 7))
def test_a_count_trigger_fires_at_every_nth_row(values, n):
    operator = build(fm.Global(), trigger=fm.Purging(fm.AfterCount(n)))
    log = Log(operator.inputs[0].schema)
    for value in values:
        log.row({"at": from_ms(0), "key": "k", "value": value}, 0)
    found, _ = run(operator, log)
    full = len(values) // n
    assert [eval(text) for text, *_ in found.get("k", [])] == [values[i * n : (i + 1) * n] for i in range(full)]  # noqa: S307 - ours


@pytest.mark.feature("L5")
@given(times=st.lists(st.integers(-100, 100), max_size=20), keep=st.integers(0, 8), span=st.integers(1, 60))
def test_evictors_keep_what_their_definition_says(times, keep, span):
    values = [float(t) for t in times]
    assert fm.KeepLast(keep).retained(times, values) == [i for i in range(len(times)) if i >= len(times) - keep]
    newest = max(times, default=0)
    assert fm.KeepWithin(f"{span}ms").retained(times, values) == [i for i, t in enumerate(times) if newest - t < span]
    near = [i for i, v in enumerate(values) if values[-1] - v < span]
    assert fm.KeepNear(span, "value").retained(times, values) == near


@pytest.mark.feature("W16")
def test_a_window_function_sees_the_pane():
    operator = OPERATORS["calendar, whole rows"]
    log = Log(operator.inputs[0].schema)
    log.row({"at": from_ms(5), "key": "k", "value": 1}, 5)
    log.row({"at": from_ms(3), "key": "k", "value": 2}, 3)
    log.move(86_400_000 - 1)
    log.row({"at": from_ms(9), "key": "k", "value": 3}, 9)
    found, _ = run(operator, log)
    assert [(text, kind) for text, *_, kind in found["k"]] == [
        ("'0 on_time False [1, 2]'", 0),
        ("'0 on_time False [1, 2]'", -1),
        ("'1 late False [1, 2, 3]'", 0),
    ]


class OverTen(fm.Trigger):
    """Fires on a row over ten, and 5 ms of event time after the first row."""

    def on_element(self, time, row, context):
        if not context.state:
            context.state["first"] = time
            context.at_event_time(time + 5)
        return fm.Decision.FIRE if row["value"] > 10 else fm.Decision.CONTINUE

    def on_event_time(self, time, context):
        return fm.Decision.FIRE_AND_PURGE


class Halves(fm.WindowAssigner):
    """Even values in one window, odd ones in another."""

    def assign(self, time, row):
        return [(0, 50)] if row["value"] % 2 == 0 else [(0, 50), (50, 100)]


@pytest.mark.feature("W10", "L2")
def test_a_trigger_and_an_assigner_of_ones_own():
    operator = build(Halves(), trigger=OverTen())
    log = Log(operator.inputs[0].schema)
    for time, value in ((10, 1), (12, 2), (13, 12)):
        log.row({"at": from_ms(time), "key": "k", "value": value}, time)
    log.move(14)
    log.move(15)
    found, _ = run(operator, log, [1, 2, 3, 4], restart=True)
    whole, _ = run(operator, log)
    assert found == whole
    assert [(text, end.timestamp()) for text, _, end, *_, kind in found["k"] if kind == 0] == [
        ("[1, 2, 12]", 0.05),
        ("[1, 2, 12]", 0.05),
        ("[1]", 0.1),
    ]


@pytest.mark.feature("X4")
def test_rolling_aggregates_say_the_first_of_equals():
    @fm.operator
    def best(events: fm.Stream[Event]) -> fm.Stream:
        return events.key_by("key").rolling(
            low=fm.min_by("at", "value"), top=fm.max_by("at", "value"), total=fm.sum("value")
        )

    log = Log(best.inputs[0].schema)
    for time, value in ((1, 5), (2, 5), (3, 9), (4, 9), (5, 5)):
        log.row({"at": from_ms(time), "key": "k", "value": value}, time)
    rows = MemoryRun(best).batch({"events": log.table()})[""].to_pylist()
    values = [(r["low"].microsecond // 1000, r["top"].microsecond // 1000, r["total"]) for r in rows if r["_kind"] == 0]
    assert values == [(1, 1, 5), (1, 1, 10), (1, 3, 19), (1, 3, 28), (1, 3, 33)]
    assert best.outputs[0].current is not None


@pytest.mark.feature("W14")
def test_reduce_folds_rows_of_one_shape():
    @fm.operator
    def merged(events: fm.Stream[Event]) -> fm.Stream:
        return (
            events.key_by("key")
            .window(fm.Session("10ms"))
            .reduce(lambda a, b: {**b, "value": a["value"] * 10 + b["value"]})
        )

    log = Log(merged.inputs[0].schema)
    for time, value in ((0, 1), (5, 2), (9, 3)):
        log.row({"at": from_ms(time), "key": "k", "value": value}, time)
    log.end()
    rows = [r for r in MemoryRun(merged).batch({"events": log.table()})[""].to_pylist() if r["_kind"] == 0]
    assert [r["value"] for r in rows] == [123]
    assert merged.outputs[0].schema.names == ("key", "window_start", "window_end", "at", "value")


def test_nan_and_null_are_keys_like_any_other():
    class Reading(fm.Contract):
        """A number per number."""

        at: fm.EventTime
        key: float | None

    @fm.operator
    def per_key(readings: fm.Stream[Reading]) -> fm.Stream:
        return readings.key_by("key").window(fm.Session("10ms")).aggregate(n=fm.count())

    log = Log(per_key.inputs[0].schema)
    for key in (float("nan"), None, 0.0, float("nan"), -0.0, None):
        log.row({"at": from_ms(1), "key": key}, 1)
    log.end()
    going = MemoryRun(per_key)
    rows = []
    for place in range(len(log.entries)):
        rows += going.batch({"readings": log.table(place, place + 1)})[""].to_pylist()
        going = MemoryRun(per_key, going.savepoint())
    assert sorted((str(r["key"]), r["n"]) for r in rows if r["_kind"] == 0) == [("0.0", 2), ("None", 2), ("nan", 2)]


# ---- bad input


@pytest.mark.parametrize(
    ("window", "settings", "code", "got"),
    [
        (fm.Tumbling("1h"), {"trigger": fm.EndOfInput()}, "DEFINITION-034", "EndOfInput()"),
        (
            fm.Session("1h"),
            {"trigger": fm.AfterCount(2) & fm.EndOfInput()},
            "DEFINITION-034",
            "AfterCount(2) & EndOfInput()",
        ),
        (fm.Count(3), {"trigger": fm.AfterCount(2)}, "DEFINITION-034", "fires by its own count"),
        (fm.Tumbling("1h"), {"trigger": "often"}, "DEFINITION-032", "'often'"),
        (fm.Tumbling("1h"), {"evictor": 3}, "DEFINITION-033", "3"),
        (fm.Tumbling("1h"), {"accumulation": "both"}, "DEFINITION-055", "'both'"),
        (fm.Tumbling("1h"), {"time": "processing", "allowed_lateness": "1s"}, "DEFINITION-055", "processing"),
        ("1h", {}, "DEFINITION-054", "'1h'"),
    ],
)
def test_windows_that_cannot_work_are_refused_where_they_are_written(window, settings, code, got):
    with pytest.raises(DefinitionError) as error:
        build(window, **settings)
    assert error.value.code == code
    assert got in str(error.value)


def test_an_evictor_needs_rows_to_evict():
    with pytest.raises(DefinitionError) as error:

        @fm.operator
        def odd(events: fm.Stream[Event]) -> fm.Stream:
            windowed = events.key_by("key").window(fm.Tumbling("1h"), evictor=fm.KeepLast(3))
            return windowed.process(told, Told, total=fm.sum("value"))

    assert error.value.code == "DEFINITION-058"


def test_rows_that_may_be_taken_back_have_no_order():
    late = build(fm.Tumbling("20ms"), allowed_lateness="1s", trigger=fm.AfterWatermark().early(fm.AfterCount(2)))
    with pytest.raises(CapabilityError) as error:

        @fm.operator(inputs={"results": late})
        def sessions(results: fm.Stream) -> fm.Stream:
            return results.key_by("key").window(fm.Session("1h")).aggregate(n=fm.count())

    assert error.value.code == "CAPABILITY-003"


def test_an_error_in_a_window_function_names_step_and_pane():
    def broken(pane, rows):
        return [{"text": rows[0]["nothing"]}]

    operator = build(fm.Tumbling("20ms"), function=broken)
    log = Log(operator.inputs[0].schema)
    log.row({"at": from_ms(5), "key": "k", "value": 1}, 5)
    log.end()
    with pytest.raises(UserCodeError) as error:
        run(operator, log)
    assert "step 'result', key (key='k'), window function" in str(error.value)
    assert "KeyError: 'nothing'" in str(error.value)
    assert "key={'key': 'k'}" in str(error.value)


def test_an_order_that_is_not_recorded_is_flagged():
    plain = build(fm.Tumbling("20ms"))

    @fm.operator(inputs={"results": plain})
    def sessions(results: fm.Stream) -> fm.Stream:
        return results.key_by("key").window(fm.Session("1h"), order="arrival").aggregate(n=fm.count())

    assert "a replay may differ" in sessions.warnings[0]
    assert plain.warnings == ()


@pytest.mark.feature("W17")
def test_a_window_function_may_see_one_aggregate_instead_of_rows():
    def share(pane, totals):
        yield {"text": f"{pane.end - pane.start} ms: {totals['total']} of {totals['rows']}"}

    @fm.operator
    def shares(events: fm.Stream[Event]) -> fm.Stream:
        windowed = events.key_by("key").window(fm.Tumbling("20ms"))
        return windowed.process(share, Told, total=fm.sum("value"), rows=fm.count())

    log = Log(shares.inputs[0].schema)
    for value in (4, 5, 6):
        log.row({"at": from_ms(1), "key": "k", "value": value}, 1)
    going = MemoryRun(shares)
    going.batch({"events": log.table()})
    assert sum(len(chunk) for store in going.state.stores.values() for chunk in store.chunks.values()) < 500
    log.end()
    rows = going.batch({"events": log.table(3)})[""].to_pylist()
    assert [row["text"] for row in rows if row["_kind"] == ROW] == ["20 ms: 15 of 3"]


def test_windows_of_processing_time_hold_what_arrived_in_them():
    hour = 3_600_000

    @fm.operator
    def arrivals(events: fm.Stream[Event]) -> fm.Stream:
        windowed = events.key_by("key").window(fm.Tumbling("1 hour"), time="processing")
        return windowed.aggregate(rows=fm.collect("value"))

    log = Log(arrivals.inputs[0].schema)
    log.tick(9 * hour + hour // 4)
    for value, clock in ((1, 9.5), (2, 9.9), (3, 10.0), (4, 10.5)):
        log.tick(int(clock * hour))
        log.row({"at": from_ms(value), "key": "k", "value": value}, value)
    log.tick(11 * hour)
    for cuts in ([], range(len(log.entries))):
        found, _ = run(arrivals, log, cuts, restart=bool(cuts))
        assert [(text, start.hour, end.hour) for text, start, end, *_ in found["k"]] == [
            ("[1, 2]", 9, 10),
            ("[3, 4]", 10, 11),
        ]


def test_periods_of_a_window_that_ends_are_told_each():
    operator = build(fm.Tumbling("20ms"), trigger=fm.Every("5ms"))
    log = Log(operator.inputs[0].schema)
    log.row({"at": from_ms(2), "key": "k", "value": 1}, 2)
    log.end()
    found, _ = run(operator, log)
    assert [stamp for *_, stamp, kind in found["k"] if kind == ROW] == [4, 9, 14, 18]


# ---- what is easy to get wrong


def emitted(operator, entries, ended=False):
    """Results of rows given as (time, value) or a watermark, each in a micro-batch of its own with a restart after it, and in one."""
    log = Log(operator.inputs[0].schema)
    for entry in entries:
        if isinstance(entry, tuple):
            log.row({"at": from_ms(entry[0]), "key": "k", "value": entry[1]}, entry[0])
        else:
            log.move(entry)
    if ended:
        log.end()
    single, _ = run(operator, log, range(len(log.entries)), restart=True)
    whole, _ = run(operator, log)
    assert single == whole
    return [(text, kind) for text, *_, kind in whole.get("k", [])]


def test_joined_sessions_keep_the_order_of_arrival():
    rows = [(0, 1), (30, 2), (5, 3), (20, 4), (15, 5)]
    assert emitted(build(fm.Session("10ms")), rows, ended=True) == [("[1, 2, 3, 4, 5]", 0)]
    assert emitted(build(fm.Session("10ms"), evictor=fm.KeepLast(3)), rows, ended=True) == [("[3, 4, 5]", 0)]


def test_a_session_with_late_periods_has_one_pane_on_time():
    trigger = fm.AfterWatermark().late(fm.Every("10s"))
    operator = build(fm.Session("3s"), trigger=trigger, allowed_lateness="60s")
    assert emitted(operator, [(0, 1), (1000, 2), 3999, 5000]) == [("[1, 2]", 0)]


def test_a_count_window_may_reduce_and_keeps_its_own_rows():
    @fm.operator(name="result")
    def summed(events: fm.Stream[Event]) -> fm.Stream:
        folded = (
            events.key_by("key").window(fm.Count(4, 2)).reduce(lambda a, b: {**b, "value": a["value"] + b["value"]})
        )
        return folded.select("key", result="value")

    rows = [(n, n) for n in range(1, 7)]
    assert [text for text, _ in emitted(summed, rows)] == ["3", "10", "18"]
    with pytest.raises(DefinitionError) as error:
        build(fm.Count(4, 2), evictor=fm.KeepLast(1))
    assert error.value.code == "DEFINITION-058"


def test_a_purge_leaves_nothing_to_fire():
    class Reset(fm.Trigger):
        """Forgets everything on a negative value; fires at the end."""

        def on_element(self, time, row, context):
            context.at_event_time(context.window[1] - 1)
            return fm.Decision.PURGE if row["value"] < 0 else fm.Decision.CONTINUE

        def on_event_time(self, time, context):
            return fm.Decision.FIRE

    assert emitted(build(fm.Tumbling("20ms"), trigger=Reset()), [(1, 1), (2, -1), 19]) == []
    assert emitted(build(fm.Tumbling("20ms"), trigger=Reset()), [(1, 1), (2, -1), (3, 5), 19]) == [("[5]", 0)]


def test_what_waits_for_the_clock_comes_out_at_the_end_of_input():
    operator = build(fm.Global(), trigger=fm.Purging(fm.AfterCount(3) | fm.AfterDelay("10 seconds")))
    assert emitted(operator, [(1, 7)], ended=True) == [("[7]", 0)]


def test_nan_is_one_value_in_any_cut():
    class Reading(fm.Contract):
        """A number."""

        at: fm.EventTime
        x: float

    @fm.operator
    def different(readings: fm.Stream[Reading]) -> fm.Stream:
        return readings.window(fm.Session("10ms")).aggregate(n=fm.count_distinct("x"), values=fm.distinct("x"))

    log = Log(different.inputs[0].schema)
    for x in (float("nan"), 1.0, float("nan")):
        log.row({"at": from_ms(1), "x": x}, 1)
    log.end()
    going, rows = MemoryRun(different), []
    for place in range(len(log.entries)):
        rows += going.batch({"readings": log.table(place, place + 1)})[""].to_pylist()
        going = MemoryRun(different, going.savepoint())
    assert [(r["n"], repr(r["values"])) for r in rows if r["_kind"] == ROW] == [(2, "[1.0, nan]")]


def test_numpy_results_are_plain_and_numpy_state_is_refused_by_name():
    class Mean(fm.Contract):
        """A number."""

        x: float

    def numpy_mean(pane, rows):
        return [{"x": np.mean([row["value"] for row in rows])}]

    @fm.operator
    def means(events: fm.Stream[Event]) -> fm.Stream:
        windowed = events.key_by("key").window(fm.Tumbling("20ms"), allowed_lateness="1s")
        return windowed.process(numpy_mean, Mean)

    log = Log(means.inputs[0].schema)
    for time, value in ((1, 1), (2, 2)):
        log.row({"at": from_ms(time), "key": "k", "value": value}, time)
    log.move(19)
    log.row({"at": from_ms(3), "key": "k", "value": 6}, 3)
    going, rows = MemoryRun(means), []
    for place in range(len(log.entries)):
        rows += going.batch({"events": log.table(place, place + 1)})[""].to_pylist()
    assert [(r["x"], r["_kind"]) for r in rows if r["_kind"] <= ROW] == [(1.5, 0), (1.5, -1), (3.0, 0)]

    @fm.operator
    def kept(events: fm.Stream[Event]) -> fm.Stream:
        windowed = events.key_by("key").window(fm.Session("20ms"))
        return windowed.reduce(lambda a, b: {**b, "value": np.int64(a["value"])})

    with pytest.raises(UserCodeError) as error:
        MemoryRun(kept).batch({"events": log.table()})
    assert error.value.code == "USER-003"
    assert "numpy.int64" in str(error.value)


def test_a_timer_before_its_row_says_the_row_s_time():
    operator = build(fm.Global(), trigger=fm.Every("60s"), accumulation="discarding")
    log = Log(operator.inputs[0].schema)
    log.move(1_800_000)
    log.row({"at": from_ms(300_000), "key": "k", "value": 1}, 300_000)
    log.move(1_900_000)
    found, _ = run(operator, log)
    [(text, _, _, event, stamp, kind)] = found["k"][:1]
    assert (text, kind) == ("[1]", 0)
    assert stamp >= 1_800_000
    assert event > stamp


@pytest.mark.parametrize("trigger", [fm.Every("1 second", time="processing"), fm.AfterDelay("10 seconds")], ids=str)
def test_a_window_of_event_time_ends_though_its_trigger_only_knows_the_clock(trigger):
    @fm.operator
    def counted(events: fm.Stream[Event]) -> fm.Stream:
        window = events.key_by("key").window(fm.Tumbling("1 minute"), trigger=trigger)
        return window.aggregate(n=fm.count())

    case = Case(counted)
    case.feed("events", [{"at": from_ms(t), "key": "a", "value": 1} for t in (1_000, 2_000)])
    case.end().expect([{"key": "a", "n": 2}])


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_pane_without_rows_does_not_come_out(when):
    @fm.operator
    def counted(events: fm.Stream[Event]) -> fm.Stream:
        early = fm.AfterWatermark().early(fm.AfterCount(2))
        window = events.key_by("key").window(fm.Tumbling("1 minute"), trigger=early, evictor=fm.KeepLast(0, when=when))
        return window.aggregate(n=fm.count())

    case = Case(counted)
    case.feed("events", [{"at": from_ms(t), "key": "a", "value": 1} for t in (1_000, 2_000)]).end()
    case.expect([] if when == "before" else [{"key": "a", "n": 2}])


def test_windows_of_ones_own_lie_in_time():
    class Ever(fm.WindowAssigner):
        def assign(self, time, row):
            return [(0, 2**60)]

    @fm.operator
    def counted(events: fm.Stream[Event]) -> fm.Stream:
        return events.key_by("key").window(Ever()).aggregate(n=fm.count())

    with pytest.raises(UserCodeError, match="is no window: the start comes before the end"):
        Case(counted).feed("events", [{"at": from_ms(1), "key": "a", "value": 1}])


@pytest.mark.parametrize(
    "window", [fm.Tumbling("500 weeks"), fm.Session("500 weeks"), fm.Sliding("500 weeks", "500 weeks")]
)
def test_windows_that_reach_beyond_the_end_of_time_come_out_at_the_end_of_input(window):
    @fm.operator
    def counted(events: fm.Stream[Event]) -> fm.Stream:
        return events.key_by("key").window(window).aggregate(n=fm.count())

    table = {"key": ["a"], "value": [1], "at": [from_ms(END)]}
    entries = [
        (
            "events",
            {**{k: v[0] for k, v in table.items()}, "_event_time": END, "_watermark": 0, "_sequence": 0, "_kind": 0},
        )
    ]
    run = MemoryRun(counted)
    found = run.batch(tables_of(counted, entries, {"events": END}))[""]
    assert pc.sum(pc.equal(found["_kind"], 0)).as_py() == 1
    assert found["n"].to_pylist()[0] == 1


@pytest.mark.parametrize(("function", "collects"), [(None, False), (told, True)])
def test_no_cycles_are_searched_while_sessions_without_own_code_are_computed(function, collects):
    operator = build(fm.Session("5 milliseconds"), function=function)
    searches = []
    kernel = kernel_of(stage_of(operator), MemoryStore())
    element = kernel._element

    def watched(*args):
        searches.append(gc.isenabled())
        element(*args)

    kernel._element = watched
    rows = pa.table({"k0": ["a", "b"], "v0": [1, 2], "t": [1, 2], "w": [0, 0], "s": [0, 1], "kind": [0, 0]})
    whole = pa.array([{"at": from_ms(n), "key": "a", "value": n} for n in (1, 2)])
    kernel.advance([{"rows": rows if function is None else rows.append_column("row", whole)}], 2)
    assert searches == [collects] * 2
    assert gc.isenabled()
