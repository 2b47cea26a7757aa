"""Joins against brute force: which rows are pairs, whatever the disorder, the cuts and the interleaving; and what is kept of them."""

from __future__ import annotations

import itertools
import json
from collections import Counter
from datetime import datetime, timedelta

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import floodmark as fm
from floodmark.core.errors import DefinitionError
from floodmark.core.time import END, from_ms, to_ms
from floodmark.engines.embedded.memory.run import MemoryRun
from floodmark.semantics.encoding.columns import arrow_type, decode, encode
from floodmark.semantics.kernels.joins import JoinKernel, JoinStage
from floodmark.semantics.kernels.stage import stage_of
from floodmark.semantics.state.store import MemoryStore
from floodmark.spec.values.schema import ROW
from floodmark.testing.log import Log, Logs


class Departure(fm.Contract):
    """An aircraft leaves."""

    at: fm.EventTime
    tail: str | None
    n: int


class Arrival(fm.Contract):
    """An aircraft arrives."""

    when: fm.EventTime
    aircraft: str | None
    m: int


KINDS = ("inner", "left", "right", "full", "semi", "anti")


def joined(build):
    @fm.operator
    def found(left: fm.Stream[Departure], right: fm.Stream[Arrival]):
        return build(left.key_by("tail"), right.key_by("aircraft"))

    return found


def interval(kind, lower, upper, include="both"):
    return joined(
        lambda a, b: a.interval_join(
            b, timedelta(milliseconds=lower), timedelta(milliseconds=upper), kind=kind, include=include
        )
    )


Given = list[tuple[str, str | None, int, int]]
"""(input, key, event time, watermark of that input before it)."""

STREAMS = st.lists(
    st.tuples(
        st.sampled_from(["left", "right"]), st.sampled_from(["a", "b", None]), st.integers(0, 40), st.integers(0, 6)
    ),
    max_size=24,
)


def landed(operator, rows: Given) -> Logs:
    """Each input's watermark follows its rows at a distance that changes; it ends."""
    logs = Logs({one.name: Log(one.schema) for one in operator.inputs})
    for number, (side, key, time, behind) in enumerate(rows):
        log = logs.logs[side]
        if side == "left":
            logs.row(side, {"at": from_ms(time), "tail": key, "n": number}, time)
        else:
            logs.row(side, {"when": from_ms(time), "aircraft": key, "m": number}, time)
        log.watermark = max(log.watermark, time - behind - 1)
    logs.end()
    return logs


def run(operator, logs: Logs, cuts: list[int]) -> tuple[MemoryRun, list[dict]]:
    """All rows that come out, with a restart at every cut."""
    places = sorted({0, len(logs.order), *(cut % (len(logs.order) + 1) for cut in cuts)})
    found, out = MemoryRun(operator), []
    for start, stop in itertools.pairwise(places):
        found = MemoryRun(operator, found.savepoint())
        out += [row for row in found.batch(logs.tables(start, stop))[""].to_pylist() if row["_kind"] == ROW]
    return found, out


def on_time(logs: Logs, side: str) -> list[tuple]:
    """(key, number, event time, stamp) of the rows of a side that are not late."""
    key, number = ("tail", "n") if side == "left" else ("aircraft", "m")
    rows = [entry for entry in logs.logs[side].entries if entry["_kind"] == ROW]
    return [(r[key], r[number], r["_event_time"], r["_watermark"]) for r in rows if r["_event_time"] > r["_watermark"]]


def brute(logs: Logs, kind: str, lower: int, upper: int) -> Counter:
    """(key, n, m, event time, stamp) by the definition."""
    lefts, rights = on_time(logs, "left"), on_time(logs, "right")
    found, partners = Counter(), {"left": set(), "right": set()}
    for key, n, time, stamp in lefts:
        for other, m, when, mark in rights:
            if key is not None and key == other and time + lower <= when <= time + upper:
                partners["left"].add(n)
                partners["right"].add(m)
                if kind not in {"semi", "anti"}:
                    found[(key, n, m, max(time, when), max(stamp, mark))] += 1
    alone = {"left": ["left"], "right": ["right"], "full": ["left", "right"], "anti": ["left"]}.get(kind, [])
    for side, rows, reach in (("left", lefts, upper), ("right", rights, -lower)):
        for key, number, time, stamp in rows:
            if side in alone and number not in partners[side]:
                pair = (number, None) if side == "left" else (None, number)
                found[(key, *pair, max(time, time + reach), max(stamp, time + reach - 1))] += 1
            if kind == "semi" and side == "left" and number in partners["left"]:
                found[(key, number, None, time, stamp)] += 1
    return found


def told(rows: list[dict]) -> Counter:
    return Counter((r["tail"], r.get("n"), r.get("m"), r["_event_time"], r["_watermark"]) for r in rows)


@pytest.mark.feature("J1", "J2", "J6")
@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(rows=STREAMS, cuts=st.lists(st.integers(0, 60), max_size=5), lower=st.integers(-8, 4), width=st.integers(0, 10))
def test_an_interval_join_gives_the_pairs_of_its_definition(kind, rows, cuts, lower, width):
    operator = interval(kind, lower, lower + width)
    logs = landed(operator, rows)
    _, out = run(operator, logs, cuts)
    assert told(out) == brute(logs, kind, lower, lower + width)


@pytest.mark.feature("J2")
def test_a_row_is_kept_until_no_partner_can_come_and_no_longer():
    operator = interval("inner", -60, 15)
    logs = Logs({one.name: Log(one.schema) for one in operator.inputs})
    for time in range(0, 200, 10):
        logs.row("left", {"at": from_ms(time), "tail": "a", "n": time}, time)
        logs.row("right", {"when": from_ms(time), "aircraft": "a", "m": time}, time)
    slower = 99
    logs.logs["left"].move(150)
    logs.order.append("left")
    logs.logs["right"].move(slower)
    logs.order.append("right")
    found, _ = run(operator, logs, [])
    kept = {"n": set(), "m": set()}
    for store in found.state.stores.values():
        for chunk in store.chunks.values():
            table = decode(chunk)["rows"]
            column = "_left_n" if "_left_n" in table.column_names else "_right_m"
            kept[column[-1]] |= set(table[column].to_pylist())
    # what is due is there; chunks go as a whole, and one micro-batch is one chunk: what is over may stay as long as its chunk
    assert {n for n in range(0, 200, 10) if n + 15 > slower} <= kept["n"]
    assert {m for m in range(0, 200, 10) if m + 60 > slower} <= kept["m"]
    logs.move(END)
    found.batch(logs.tables(len(logs.order) - 2))
    assert not any(store.chunks for store in found.state.stores.values())


@pytest.mark.feature("J2")
def test_the_buffers_of_a_long_stream_do_not_grow():
    operator = interval("full", -5, 5)
    run_, sizes = MemoryRun(operator), []
    logs = Logs({one.name: Log(one.schema) for one in operator.inputs})
    for time in range(100):
        start = len(logs.order)
        logs.row("left", {"at": from_ms(time), "tail": "a", "n": time}, time)
        logs.row("right", {"when": from_ms(time), "aircraft": "b", "m": time}, time)
        logs.move(time - 1)
        run_.batch(logs.tables(start))
        sizes.append(sum(decode(c)["rows"].num_rows for s in run_.state.stores.values() for c in s.chunks.values()))
    assert max(sizes[20:]) <= 2 * 2 * (5 + 2), "as many rows again may have come out that their chunk still holds"


class CountingStore(MemoryStore):
    """Counts the bytes that are written."""

    __slots__ = ("written",)

    def put(self, number: int, chunk: bytes) -> None:
        """Write a chunk."""
        self.written = getattr(self, "written", 0) + len(chunk)
        MemoryStore.put(self, number, chunk)


def part(stage: JoinStage, tag: int, keys: list[str], times: list[int]) -> dict[str, pa.Table]:
    """Rows of a side, whose number is their time."""
    columns = {"k0": pa.array(keys), "t": pa.array(times, pa.int64()), "w": pa.array([0] * len(times), pa.int64())}
    kinds = stage.step.parent.schema.types
    own = {name: pa.array(times, pa.int64()).cast(arrow_type(kinds[name])) for name in stage.columns(tag)}
    return {("left", "right")[tag]: pa.table(columns | own)}


def buffered(kind: str, rows: int) -> tuple[JoinStage, CountingStore]:
    """A join that holds rows of its left side, each with a key of its own, an instant apart from 1,000 on."""
    stage = stage_of(interval(kind, -100_000, 100_000))
    assert isinstance(stage, JoinStage)
    store = CountingStore()
    times = list(range(1_000, 1_000 + rows))
    JoinKernel(stage, store).advance([part(stage, 0, [f"k{n}" for n in range(rows)], times)], 0)
    store.written = 0
    return stage, store


@pytest.mark.parametrize("kind", KINDS)
def test_a_partner_for_one_row_and_a_row_that_comes_out_write_no_other_row(kind):
    stage, store = buffered(kind, 20_000)
    whole = sum(map(len, store.chunks.values()))
    found = JoinKernel(stage, store).advance([part(stage, 1, ["k7"], [1_500])], 0)
    assert found.results.num_rows == (kind != "anti")
    for progress in range(101_000, 101_020):
        found = JoinKernel(stage, store).advance([], progress)
        alone = kind in {"left", "full", "anti"} and progress != 101_007
        assert found.results["n"].to_pylist() == ([progress - 100_000] if alone else [])
    assert store.written < whole / 100


@pytest.mark.parametrize("kind", ["left", "right", "full", "semi", "anti"])
def test_state_that_a_version_before_has_written_goes_on(kind):
    """It said beside the rows which have had a partner, and held no row that has come out."""

    def ways(older: bool) -> list[dict]:
        stage, store = buffered(kind, 50)
        JoinKernel(stage, store).advance([part(stage, 1, ["k7", "k9"], [1_500, 1_501])], 101_004)
        if older:
            index = json.loads(store.head)
            for side in index["chunks"]:
                for place, (number, _, first, last, *flags) in enumerate(side):
                    rows = decode(store.chunks[number])["rows"]
                    matched = decode(store.chunks.pop(flags[0]))["matched"] if flags else None
                    live = pa.array(rows["t"].to_numpy() >= first)
                    matched = pa.table({"m": [False] * rows.num_rows}) if matched is None else matched
                    kept = rows.filter(live)
                    store.chunks[number] = encode({"rows": kept, "matched": matched.filter(live)})
                    side[place] = [number, kept.num_rows, first, last]
            store.head = json.dumps(index).encode()
        out = []
        for tables, progress in [([part(stage, 1, ["k9", "k11"], [1_600, 1_601])], 101_006), ([], 101_030), ([], END)]:
            out += JoinKernel(stage, store).advance(tables, progress).results.to_pylist()
        assert store.head is None
        assert not store.chunks
        return out

    assert ways(older=True) == ways(older=False) != []


@pytest.mark.parametrize(
    ("include", "bounds"), [("both", (-2, 3)), ("lower", (-2, 2)), ("upper", (-1, 3)), ("neither", (-1, 2))]
)
def test_bounds_that_do_not_count_are_a_millisecond_further_in(include, bounds):
    step = interval("inner", -2, 3, include).stateful
    assert (step.lower, step.upper) == bounds


def windowed(kind, window):
    return joined(lambda a, b: a.window_join(b, window, kind=kind))


def windows_of(window, rows: list[int]) -> dict[int, set[tuple[int, int]]]:
    """Event time -> its windows; sessions are of all times together."""
    if isinstance(window, fm.Session):
        found, sessions = {}, []
        for time in sorted(rows):
            if sessions and time < sessions[-1][1]:  # in order of event time one that is over has fired
                sessions[-1][1] = time + window.gap
            else:
                sessions.append([time, time + window.gap])
        for time in rows:
            found[time] = {tuple(s) for s in sessions if s[0] <= time < s[1]}
        return found
    first = lambda time: time - time % window.slide  # noqa: E731 - one line of arithmetic
    return {
        time: {(s, s + window.size) for s in range(first(time), time - window.size, -window.slide)} for time in rows
    }


@pytest.mark.feature("J3")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("window", [fm.Tumbling("10ms"), fm.Sliding("12ms", "4ms"), fm.Session("5ms")], ids=repr)
@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(rows=STREAMS, cuts=st.lists(st.integers(0, 60), max_size=4))
def test_a_window_join_gives_the_pairs_of_each_window(kind, window, rows, cuts):
    """Rows in order of event time, so that none is late; what is late is the windows' business, tested with them."""
    rows = [(side, key, time, 0) for side, key, time, _ in sorted(rows, key=lambda row: row[2])]
    operator = windowed(kind, window)
    logs = Logs({one.name: Log(one.schema) for one in operator.inputs})
    for number, (side, key, time, _) in enumerate(rows):
        names = ("at", "tail", "n") if side == "left" else ("when", "aircraft", "m")
        logs.row(side, dict(zip(names, (from_ms(time), key, number), strict=True)), time)
    logs.end()
    _, out = run(operator, logs, cuts)
    got = Counter((r["tail"], to_ms(r["window_start"]), to_ms(r["window_end"]), r.get("n"), r.get("m")) for r in out)
    wanted = Counter()
    for key in ("a", "b", None):
        mine = [(side, time, number) for number, (side, k, time, _) in enumerate(rows) if k == key]
        places = windows_of(window, [time for _, time, _ in mine])
        for start, end in sorted({w for found in places.values() for w in found}):
            inside = [(side, n) for side, time, n in mine if (start, end) in places[time]]
            lefts, rights = ([n for side, n in inside if side == s] for s in ("left", "right"))
            wanted += Counter({(key, start, end, n, m): 1 for n, m in expected(kind, key, lefts, rights)})
    assert got == wanted


def expected(kind, key, lefts, rights):
    pairs = [(n, m) for n in lefts for m in rights] if key is not None else []
    if kind in {"semi", "anti"}:
        return [(n, None) for n in lefts if any(n == one for one, _ in pairs) == (kind == "semi")]
    found = list(pairs)
    if kind in {"left", "full"}:
        found += [(n, None) for n in lefts if not any(n == one for one, _ in pairs)]
    if kind in {"right", "full"}:
        found += [(None, m) for m in rights if not any(m == other for _, other in pairs)]
    return found


class Balance(fm.Contract):
    """How many came and went."""

    came: int
    went: int


def balance(pane, lefts, rights):
    yield {"came": len(rights), "went": len(lefts)}


@pytest.mark.feature("J3")
def test_a_co_group_sees_the_rows_of_both_also_where_one_has_none():
    operator = joined(lambda a, b: a.co_group(b, fm.Tumbling("10ms"), balance, schema=Balance))
    logs = landed(operator, [("left", "a", 1, 9), ("right", "a", 2, 9), ("right", "a", 3, 9), ("left", "b", 11, 9)])
    _, out = run(operator, logs, [2])
    assert Counter((r["tail"], r["came"], r["went"]) for r in out) == Counter({("a", 2, 1): 1, ("b", 0, 1): 1})


@pytest.mark.feature("J5")
@pytest.mark.parametrize("kind", ["inner", "left"])
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(rows=STREAMS, cuts=st.lists(st.integers(0, 60), max_size=5), lateness=st.integers(0, 5))
def test_a_temporal_join_finds_the_version_valid_at_the_rows_time(kind, rows, cuts, lateness):
    """A version counts from when it could be known: its effective time, max(event time, its stamp + 1)."""
    operator = joined(lambda a, b: a.temporal_join(b, kind=kind, allowed_lateness=timedelta(milliseconds=lateness)))
    logs = landed(operator, rows)
    found, out = run(operator, logs, cuts)
    wanted, dropped = Counter(), 0
    versions = [e for e in logs.logs["right"].entries if e["_kind"] == ROW]
    for row in (e for e in logs.logs["left"].entries if e["_kind"] == ROW):
        time, known = row["_event_time"], max(row["_event_time"], row["_watermark"] + 1)
        if time + lateness <= known - 1:
            dropped += 1
            continue
        mine = [
            v
            for v in versions
            if v["aircraft"] == row["tail"]
            and row["tail"] is not None
            and v["_event_time"] <= time
            and max(v["_event_time"], v["_watermark"] + 1) <= known
        ]
        valid = {v["m"] for v in mine if v["_event_time"] == max(one["_event_time"] for one in mine)}
        got = [r["m"] for r in out if r["n"] == row["n"]]
        if not valid:
            assert got == ([None] if kind == "left" else [])
        else:
            assert len(got) == 1
            assert got[0] in valid  # of two versions of one instant one is the later by value
        wanted[row["n"]] += bool(got)
    assert found.state.dropped == dropped
    late = [
        e
        for log in logs.logs.values()
        for e in log.entries
        if e["_kind"] == ROW and e["_event_time"] <= e["_watermark"]
    ]
    assert found.state.late == len(late) - dropped
    assert sum(wanted.values()) == len(out)


class Rate(fm.Contract):
    """A rate of exchange, from one instant to another."""

    since: fm.EventTime
    until: datetime | None = None
    currency: str
    rate: float


class Order(fm.Contract):
    """An order in a currency."""

    at: fm.EventTime
    currency: str
    amount: int


def test_a_version_may_end_before_the_next_one_begins():
    @fm.operator
    def converted(orders: fm.Stream[Order], rates: fm.Stream[Rate]):
        return orders.key_by("currency").temporal_join(rates.key_by("currency"), kind="left", valid_until="until")

    logs = Logs({one.name: Log(one.schema) for one in converted.inputs})
    for since, until, rate in ((0, 10, 1.5), (20, None, 2.5)):
        ends = None if until is None else from_ms(until)
        logs.row("rates", {"since": from_ms(since), "until": ends, "currency": "EUR", "rate": rate}, since)
    for at in (0, 9, 10, 19, 20, 90):
        logs.row("orders", {"at": from_ms(at), "currency": "EUR", "amount": at}, at)
    logs.end()
    _, out = run(converted, logs, [3, 5])
    assert {r["amount"]: r["rate"] for r in out} == {0: 1.5, 9: 1.5, 10: None, 19: None, 20: 2.5, 90: 2.5}


def told_of(build) -> str:
    with pytest.raises(DefinitionError) as error:
        joined(build)
    return str(error.value)


@pytest.mark.parametrize(
    ("build", "text"),
    [
        (
            lambda a, b: a.join(b),
            "expected a bound on the state, got none: every row of both streams (at timestamp, tail string, n bigint",
        ),
        (lambda a, b: a.interval_join(b, "1 hour", "-1 hour"), "expected an interval, got from 1 hour to -1 hour"),
        (lambda a, b: a.interval_join(b.stream, "0 s", "1 s"), "expected a keyed stream"),
        (
            lambda a, b: a.interval_join(b.stream.key_by("m"), "0 s", "1 s"),
            "expected keys that go together, got tail string and m bigint",
        ),
        (lambda a, b: a.interval_join(a, "0 s", "1 s"), "expected different names, got at, n on both sides"),
        (lambda a, b: a.interval_join(b, "0 s", "1 s", kind="outer"), "expected valid settings, got 'outer'"),
        (lambda a, b: a.window_join(b, fm.Global()), "expected windows of event time, got Global()"),
        (lambda a, b: a.window_join(b, fm.Tumbling("1 s"), late="side_output"), "got late='side_output'"),
        (lambda a, b: a.temporal_join(b, valid_until="m"), "expected a timestamp column of the versions, got 'm'"),
        (lambda a, b: a.connect("b"), "expected a keyed or a broadcast stream, got 'b'"),
    ],
)
def test_a_wrong_join_is_told(build, text):
    assert text in told_of(build)
