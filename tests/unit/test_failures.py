"""``on_error="quarantine"``: what fails is set aside with its reason, leaves no trace, and everything else comes out as without it."""

from __future__ import annotations

import ast
import itertools
import json
import random
import re
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import floodmark as fm
from floodmark.core.errors import DefinitionError, UserCodeError
from floodmark.core.time import NEVER, from_ms
from floodmark.engines.embedded.memory.run import MemoryRun
from floodmark.spec.values.schema import ROW, STAMPS
from floodmark.testing import Case
from floodmark.testing.log import Log
from floodmark.testing.proof import prove

BAD = 13


class Event(fm.Contract):
    """A keyed number."""

    at: fm.EventTime
    key: str
    value: int
    place: int | None = None


class Told(fm.Contract):
    """A text."""

    text: str


def halves(row):
    """Two rows out of one."""
    if row["value"] == BAD:
        message = "thirteen"
        raise ValueError(message)
    yield {**row, "value": row["value"] * 2}
    yield {**row, "value": row["value"] * 2 + 1}


def added(one, other):
    """Spoils what it was given before it fails."""
    one["value"] += other["value"]
    return {**one, "value": one["value"] if other["value"] != BAD else other["nothing"]}


class Seen(fm.Aggregate):
    """A list that is changed in place, also by a value it fails for."""

    type = "array<bigint>"

    def create(self):
        return []

    def add(self, accumulator, value):
        accumulator.append(value)
        if value == BAD:
            message = "thirteen"
            raise ValueError(message)
        return accumulator

    def merge(self, left, right):
        return left + right

    def result(self, accumulator):
        return sorted(accumulator)


class OwnWindows(fm.WindowAssigner):
    """Two windows, the second of which fails."""

    def assign(self, time, row):
        start = time - time % 20
        yield start, start + 20
        if row["value"] == BAD:
            message = "thirteen"
            raise ValueError(message)
        yield start - 20, start + 20


class Third(fm.Trigger):
    """Fires with every third row; a bad one changes its state first."""

    def on_element(self, time, row, context):
        context.state["n"] = context.state.get("n", 0) + 1
        if row["value"] == BAD:
            message = "thirteen"
            raise ValueError(message)
        if context.window is not None:
            context.at_event_time(context.window[1] - 1)
        return fm.Decision.FIRE if context.state["n"] % 3 == 0 else fm.Decision.CONTINUE

    def on_event_time(self, time, context):
        return fm.Decision.FIRE


def windowed(window, finish, **settings):
    @fm.operator(name="result")
    def result(events: fm.Stream[Event]) -> fm.Stream:
        return finish(events.key_by("key").window(window, on_error="quarantine", **settings))

    return result


def reduced(windows):
    return windows.reduce(added)


def seen(windows):
    return windows.aggregate(seen=Seen("value"), n=fm.count())


OPERATORS = {
    "reduce": windowed(fm.Sliding("40ms", "20ms"), reduced, allowed_lateness="15ms"),
    "reduce of sessions": windowed(fm.Session("8ms"), reduced, allowed_lateness="15ms"),
    "aggregate": windowed(fm.Sliding("40ms", "20ms"), seen, allowed_lateness="15ms", late="side_output"),
    "aggregate of sessions": windowed(fm.Session("8ms"), seen, late="side_output"),
    "early panes": windowed(fm.Tumbling("20ms"), seen, trigger=fm.AfterWatermark().early(fm.AfterCount(2))),
    "assigner": windowed(OwnWindows(), lambda windows: windows.aggregate(all=fm.collect("value"))),
    "trigger": windowed(fm.Tumbling("20ms"), lambda w: w.aggregate(all=fm.collect("value")), trigger=Third()),
}


def log_of(rows, seed, without=()):
    """A landed log of (key, value, time), without the rows at some places."""
    rng, log, newest = random.Random(seed), Log(OPERATORS["reduce"].inputs[0].schema), NEVER
    for place, (key, value, time) in enumerate(rows):
        if place not in without:
            log.row({"at": from_ms(time), "key": key, "value": value, "place": place}, time)
        newest = max(newest, time)
        if rng.random() < 0.5:
            log.move(newest - rng.choice([1, 5, 30]))
    log.end()
    return log


def emitted(operator, log, cuts=()):
    """Rows with kinds and stamps per output, in micro-batches with a restart after each."""
    found, going = {}, MemoryRun(operator)
    for start, stop in itertools.pairwise([0, *sorted(cuts), len(log.entries)]):
        for name, table in going.batch({"events": log.table(start, stop)}).items():
            rows = (row for row in table.to_pylist() if row["_kind"] <= ROW)
            kept = ({k: v for k, v in row.items() if k not in {"_progress", "_sequence"}} for row in rows)
            found.setdefault(name, []).extend(map(repr, kept))
        going = MemoryRun(operator, going.savepoint())
    return {name: Counter(rows) for name, rows in found.items()}, (going.state.late, going.state.dropped)


_GIVEN = r"'given': ('.*?[^\\\\]'), '_event_time'"

rows = st.lists(st.tuples(st.sampled_from("ab"), st.sampled_from([1, 2, 3, BAD]), st.integers(0, 90)), max_size=30)


@pytest.mark.parametrize("name", OPERATORS)
@given(rows=rows, seed=st.integers(0, 1000), data=st.data())
@settings(max_examples=12, deadline=None)
def test_a_row_that_fails_leaves_no_trace_but_its_place_in_the_quarantine(name, rows, seed, data):
    operator = OPERATORS[name]
    log = log_of(rows, seed)
    cuts = data.draw(st.lists(st.integers(0, len(log.entries)), max_size=5))
    found, counts = emitted(operator, log, cuts)
    set_aside = found.pop("quarantine")
    bad = {place for place, (_, value, _) in enumerate(rows) if value == BAD}
    if "reduce" in name:  # the first row of a window is taken as it is
        bad = {json.loads(ast.literal_eval(given))["place"] for row in set_aside for given in re.findall(_GIVEN, row)}
        assert len(bad) == sum(set_aside.values())
    wanted, _ = emitted(operator, log_of(rows, seed, bad))
    assert not wanted.pop("quarantine")
    wanted.get("late", Counter()).update(row for row in found.get("late", ()) if f"'value': {BAD}" in row)
    assert found == wanted
    assert sum(set_aside.values()) <= len(bad)
    again, counted = emitted(operator, log)
    assert again["quarantine"] == set_aside
    assert counts == counted


def test_the_quarantine_says_what_failed_for_which_row():
    case = Case(OPERATORS["aggregate"])
    case.feed("events", [{"at": from_ms(5), "key": "a", "value": v} for v in (1, BAD, 2)]).end()
    case.expect([{"key": "a", "seen": [1, 2], "n": 2}, {"key": "a", "seen": [1, 2], "n": 2}])
    (one,) = case.results("quarantine")
    assert one["step"] == "step 'result', aggregate 'seen', add()"
    assert one["reason"] == "ValueError: thirteen"
    assert json.loads(one["key"]) == {"key": "a"}
    assert json.loads(one["given"]) == {"value": BAD}


def test_rows_that_do_not_come_out_of_a_flat_map_are_set_aside_one_by_one():
    def spelt(row):
        yield {**row, "value": "thirteen" if row["value"] == BAD else row["value"]}

    @fm.operator
    def plain(events: fm.Stream[Event]) -> fm.Outputs:
        whole = events.flat_map(halves, Event, on_error="quarantine")
        again = whole.flat_map(spelt, Event, on_error="quarantine").filter("value > 0")
        return fm.Outputs(all=whole, fits=again)

    case = Case(plain)
    case.feed("events", [{"at": from_ms(t), "key": "a", "value": v} for t, v in ((1, 1), (2, BAD), (3, 6))])
    case.expect([{"value": 2}, {"value": 3}, {"value": 12}, {"value": 13}], "all")
    case.expect([{"value": 2}, {"value": 3}, {"value": 12}], "fits")
    first, second = sorted(case.results("quarantine"), key=lambda row: row["step"])
    assert (first["step"], first["reason"], first["key"]) == ("flat_map 'halves'", "ValueError: thirteen", None)
    assert json.loads(first["given"])["value"] == BAD
    assert second["step"] == "flat_map 'spelt'"
    assert "thirteen" in second["reason"]


def test_what_fails_before_a_window_and_after_it_is_set_aside_too():
    def spoken(row):
        if row["n"] == 3:
            message = "three"
            raise LookupError(message)
        yield {"text": f"{row['key']} {row['n']}"}

    @fm.operator
    def both(events: fm.Stream[Event]) -> fm.Stream:
        counted = (
            events.flat_map(halves, Event, on_error="quarantine").key_by("key").window(fm.Tumbling("20ms"))
        ).aggregate(n=fm.count())
        return counted.flat_map(spoken, Told, on_error="quarantine")

    case = Case(both)
    rows = [("a", 1, 1), ("a", BAD, 2), ("b", 2, 3), ("b", BAD, 4), ("a", 5, 25)]
    case.feed("events", [{"at": from_ms(t), "key": k, "value": v} for k, v, t in rows]).end()
    case.expect([{"text": "a 2"}, {"text": "a 2"}, {"text": "b 2"}])
    assert [json.loads(row["given"])["value"] for row in case.results("quarantine")] == [BAD, BAD]


def test_a_pane_that_fails_keeps_the_value_before_it():
    def told(pane, rows):
        if len(rows) == 2:
            message = "two"
            raise ValueError(message)
        yield {"text": f"{len(rows)}"}

    operator = windowed(fm.Tumbling("20ms"), lambda w: w.process(told, Told), allowed_lateness="20ms")
    case = Case(operator)

    def feed(*times):
        return case.feed("events", [{"at": from_ms(t), "key": "a", "value": t} for t in times])

    feed(1).watermark(20).expect([{"text": "1"}])
    feed(2).expect([])
    (one,) = case.results("quarantine")
    assert one["step"] == "step 'result', window function"
    assert json.loads(one["given"]) == {"start": 0, "end": 20, "pane": 1, "timing": "late", "rows": 2}
    feed(3).expect([{"text": "3"}])
    assert case.results("quarantine") == []


def test_a_pane_whose_rows_do_not_fit_the_contract_is_set_aside_alone():
    def told(pane, rows):
        yield {"text": 7 if pane.key["key"] == "a" else "fine"}

    case = Case(windowed(fm.Tumbling("20ms"), lambda w: w.process(told, Told)))
    case.feed("events", [{"at": from_ms(1), "key": k, "value": 1} for k in "ab"]).end()
    case.expect([{"key": "b", "text": "fine"}])
    assert [json.loads(row["key"]) for row in case.results("quarantine")] == [{"key": "a"}]


def test_an_operator_that_sets_rows_aside_keeps_the_promise():
    rng, newest, entries = random.Random(3), NEVER, []
    for number in range(300):
        time = number * 3 + rng.randrange(-15, 5)
        values = {"at": from_ms(time), "key": rng.choice("ab"), "value": rng.choice([1, 2, BAD])}
        stamps = {"_event_time": time, "_watermark": newest, "_sequence": number, "_kind": 0}
        entries.append(("events", values | stamps))
        newest = max(newest, time - 9)
    assert prove(OPERATORS["reduce of sessions"], entries, cuts=10).seed is None


def test_the_default_is_to_stop():
    @fm.operator
    def stops(events: fm.Stream[Event]) -> fm.Stream:
        return events.flat_map(halves, Event)

    assert [output.name for output in stops.outputs] == [""]
    with pytest.raises(UserCodeError, match="flat_map 'halves'.*ValueError: thirteen"):
        Case(stops).feed("events", [{"at": from_ms(1), "key": "a", "value": BAD}])


def test_a_timer_of_a_trigger_that_fails_stops_the_run():
    class Broken(Third):
        def on_event_time(self, time, context):
            message = "timer"
            raise ValueError(message)

    operator = windowed(fm.Tumbling("20ms"), lambda w: w.aggregate(n=fm.count()), trigger=Broken())
    with pytest.raises(UserCodeError, match="on_event_time"):
        Case(operator).feed("events", [{"at": from_ms(1), "key": "a", "value": 1}]).end()


def test_where_errors_go_is_part_of_the_version_and_of_the_tables():
    @fm.operator(name="result")
    def stops(events: fm.Stream[Event]) -> fm.Stream:
        return events.key_by("key").window(fm.Session("8ms")).reduce(added)

    @fm.operator(name="result")
    def goes_on(events: fm.Stream[Event]) -> fm.Stream:
        return events.key_by("key").window(fm.Session("8ms"), on_error="quarantine").reduce(added)

    assert stops.version != goes_on.version
    assert [output.table for output in goes_on.outputs] == ["result", "result__quarantine"]
    assert goes_on.outputs[1].schema.names == ("step", "key", "reason", "given")
    assert not {*goes_on.outputs[1].schema.names} & {*STAMPS}


def test_another_word_is_refused():
    with pytest.raises(DefinitionError, match="DEFINITION-055.*'skip'"):

        @fm.operator
        def skips(events: fm.Stream[Event]) -> fm.Stream:
            return events.flat_map(halves, Event, on_error="skip")

    with pytest.raises(DefinitionError, match="DEFINITION-055.*'skip'"):

        @fm.operator
        def skips_windows(events: fm.Stream[Event]) -> fm.Stream:
            return events.window(fm.Tumbling("1h"), on_error="skip").aggregate(n=fm.count())


def set_aside_by(function, *values, schema=Event):
    """What a flat_map makes of values, and (value, reason) of what it sets aside."""

    @fm.operator
    def plain(events: fm.Stream[Event]) -> fm.Stream:
        return events.flat_map(function, schema, on_error="quarantine")

    case = Case(plain)
    case.feed("events", [{"at": from_ms(1), "key": "a", "value": value} for value in values])
    found = [(json.loads(row["given"])["value"], row["reason"]) for row in case.results("quarantine")]
    return [row.get("value", row.get("text")) for row in case.results()], found


def test_what_a_function_does_to_its_row_is_nobodys_business():
    def doubled(row):
        row["value"] *= 2
        yield {**row, "value": "six" if row["value"] == 6 else row["value"]}

    calls = []

    def popped(row):
        calls.append(row["value"])
        yield {**row, "value": None if row.pop("value") == 3 else 1}

    good, bad = set_aside_by(doubled, 1, 2, 3, 4, 5)
    assert (sorted(good), [value for value, _ in bad]) == ([2, 4, 8, 10], [3])
    good, bad = set_aside_by(popped, 1, 2, 3)
    assert (good, [value for value, _ in bad]) == ([1, 1], [3])
    assert calls == [1, 2, 3], "each row goes through it once"


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        ({"value": 2.9}, "2.9 is no whole number"),
        ({"value": None}, "nothing for 'value', which is never null"),
        ({"vlaue": 3}, "'vlaue' is no column; there are at, key, value, place"),
        ({"value": "three"}, "three"),
    ],
)
def test_a_row_that_is_not_of_the_contract_is_set_aside_or_stops_the_run(wrong, reason):
    def one(row):
        yield {**row, **(wrong if row["value"] == 3 else {})}

    good, bad = set_aside_by(one, 1, 3, 4)
    assert (sorted(good), [value for value, _ in bad]) == ([1, 4], [3])
    assert reason in bad[0][1]

    @fm.operator
    def stops(events: fm.Stream[Event]) -> fm.Stream:
        return events.flat_map(one, Event)

    with pytest.raises(UserCodeError, match=re.escape(reason)):
        Case(stops).feed("events", [{"at": from_ms(1), "key": "a", "value": 3}])


class Rude(Exception):  # noqa: N818 - as users name them
    """Has no message to give."""

    def __str__(self):
        raise RuntimeError


def test_an_exception_may_be_as_strange_as_it_likes():
    def strange(row):
        match row["value"]:
            case 1:
                raise Rude
            case 2:
                raise ValueError("caf\udce9")
            case 3:
                raise ValueError("x" * 1_000_000)
            case 4:
                row["self"] = row
                row[1, 2] = b"\xff"
                raise ValueError
            case 5:
                fm.Tumbling("a while")
        yield row

    good, bad = set_aside_by(strange, 1, 2, 3, 4, 5, 6)
    assert good == [6]
    reasons = dict(bad)
    assert "its message raises, too" in reasons[1]
    assert reasons[2] == r"ValueError: caf\udce9"
    assert len(reasons[3]) < 3000
    assert reasons[4] == "ValueError"
    assert "DEFINITION-001" in reasons[5]


@pytest.mark.parametrize(
    ("window", "settings"),
    [
        (fm.Session("1 hour"), {}),
        (fm.Tumbling("1 hour"), {"evictor": fm.KeepLast(100)}),
        (fm.Tumbling("1 hour"), {"trigger": fm.AfterWatermark().early(fm.AfterCount(3)), "evictor": fm.KeepLast(100)}),
    ],
)
def test_where_all_rows_are_kept_the_one_that_spoils_them_is_set_aside(window, settings):
    def both(windows):
        return windows.aggregate(first=fm.first("value"), seen=Seen("value"))

    case = Case(windowed(window, both, **settings))
    case.feed("events", [{"at": from_ms(v), "key": "a", "value": v} for v in (1, 2, BAD, 4)]).end()
    last = case.results()[-1]
    assert (last["first"], last["seen"]) == (1, [1, 2, 4])
    (aside,) = case.results("quarantine")
    assert json.loads(aside["given"])["value"] == BAD


def test_a_reduce_that_gives_something_else_sets_its_row_aside():
    def broken(one, other):
        return {**one, "value": "three" if other["value"] == 3 else one["value"] + other["value"]}

    case = Case(windowed(fm.Tumbling("1 hour"), lambda w: w.reduce(broken)))
    case.feed("events", [{"at": from_ms(v), "key": "a", "value": v} for v in (1, 2, 3, 4, 5)]).end()
    case.expect([{"value": 12}])
    assert [json.loads(row["given"])["value"] for row in case.results("quarantine")] == [3]


def test_windows_do_not_share_what_a_reduce_changes():
    def adding(one, other):
        one["value"] += other["value"]
        return one

    case = Case(windowed(fm.Sliding("10ms", "5ms"), lambda w: w.reduce(adding)))
    case.feed("events", [{"at": from_ms(5 + v), "key": "a", "value": v} for v in (1, 2, 3)]).end()
    case.expect([{"value": 6}, {"value": 6}])
