"""Programs of the books that one engine is enough for, in both modes: against brute force, DuckDB, or rows anybody can add up."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import duckdb
import every_type
import pyarrow as pa
import pytest

import floodmark as fm
from floodmark.core.time import from_ms
from floodmark.testing import IN_MEMORY, RUNS, Case, Run
from floodmark.testing.proof import bounded, prove
from operators.sensors import temperature_jumps

EMBEDDED = [run for run in RUNS if run.engine != "spark"]
"""Without a lake and in one, in both modes."""
NINE = datetime(2026, 3, 1, 9, tzinfo=UTC)


class Reading(fm.Contract):
    """What a sensor says."""

    at: fm.EventTime
    sensor: str
    value: int


def readings(*given: tuple[int, str, int]) -> list[dict[str, Any]]:
    """(seconds past nine, sensor, value) each."""
    return [{"at": NINE + timedelta(seconds=s), "sensor": sensor, "value": value} for s, sensor, value in given]


# ---- alerts


@pytest.mark.feature("K2")
def test_twenty_degrees_within_a_minute_raise_an_alert() -> None:
    rng = random.Random(1)
    rows = [(n * 7_000, rng.choice("ab"), rng.choice([10.0, 20.0, 30.0, 30.5, 45.0])) for n in range(120)]
    entries = [
        ("readings", {"at": from_ms(at), "sensor": s, "celsius": c, "_event_time": at, "_watermark": at - 1})
        for at, s, c in rows
    ]
    stamped = [(name, row | {"_kind": 0, "_sequence": n}) for n, (name, row) in enumerate(entries)]
    assert prove(temperature_jumps, stamped, cuts=10).differences == ()
    wanted = Counter[tuple[str, float]]()
    for place, (at, sensor, celsius) in enumerate(rows):
        near = [c for t, s, c in rows[:place] if s == sensor and at - t <= 60_000]
        if any(abs(celsius - one) > 20 for one in near):
            wanted[sensor, celsius] += 1
    found = Counter[tuple[str, float]]()
    for (_, (sensor, text)), n in bounded(temperature_jumps, stamped).items():
        found[str(sensor), float(str(text).split()[3])] += n
    assert found == wanted
    assert len(wanted) > 3


class AboveTen(fm.Trigger):
    """Once, at the eleventh row of a window."""

    def on_element(self, time: int, row: Mapping[str, Any], context: fm.TriggerContext) -> fm.Decision:
        """Counts."""
        context.state["n"] = context.state.get("n", 0) + 1
        return fm.Decision.FIRE if context.state["n"] == 11 else fm.Decision.CONTINUE


@fm.operator
def alerts(readings: fm.Stream[Reading]) -> fm.Stream:
    """Hourly counts, and an alert above ten."""
    windowed = readings.key_by("sensor").window(fm.Tumbling("1 hour"), trigger=fm.AfterWatermark().early(AboveTen()))
    return windowed.aggregate(n=fm.count())


@pytest.mark.feature("L3")
def test_an_alert_comes_once_with_the_eleventh_row_and_the_exact_count_at_the_hour() -> None:
    case = Case(alerts).feed("readings", readings(*((n, "a", n) for n in range(10)), (3, "b", 0))).expect([])
    case.restart().feed("readings", readings((11, "a", 0))).expect([{"sensor": "a", "n": 11}])
    case.feed("readings", readings(*((n, "a", n) for n in range(12, 34)))).expect([])
    case.watermark(NINE + timedelta(hours=1)).expect([{"sensor": "a", "n": 33}, {"sensor": "b", "n": 1}])


# ---- rolling


class Best(fm.Contract):
    """What is known of the rows of a sensor."""

    at: fm.EventTime
    sensor: str
    place: str
    value: int


@fm.operator
def rolled(readings: fm.Stream[Best]) -> fm.Stream:
    """Of the fields, and of the whole row that has them: the first one of equals."""
    return readings.key_by("sensor").rolling(
        total=fm.sum("value"),
        low=fm.min("value"),
        top=fm.max("value"),
        low_at=fm.min_by("at", "value"),
        low_place=fm.min_by("place", "value"),
        top_at=fm.max_by("at", "value"),
        top_place=fm.max_by("place", "value"),
    )


def rolling_rows() -> list[dict[str, Any]]:
    rng = random.Random(2)
    return [
        {"at": NINE + timedelta(seconds=n), "sensor": rng.choice("ab"), "place": f"p{n}", "value": rng.randrange(8)}
        for n in range(60)
    ]


def rolled_by_hand(rows: Sequence[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    for place, row in enumerate(rows):
        mine = [one for one in rows[: place + 1] if one["sensor"] == row["sensor"]]
        low, top = (
            choose(mine, key=lambda one: one["value"]) for choose in (min, max)
        )  # both take the first of equals
        yield {
            "sensor": row["sensor"],
            "total": sum(one["value"] for one in mine),
            "low": low["value"],
            "top": top["value"],
            "low_at": low["at"],
            "low_place": low["place"],
            "top_at": top["at"],
            "top_place": top["place"],
        }


@pytest.mark.feature("X4")
def test_rolling_aggregates_follow_every_row_with_the_field_and_the_row_that_has_it() -> None:
    rows, case = rolling_rows(), Case(rolled)
    for number, (row, wanted) in enumerate(zip(rows, rolled_by_hand(rows), strict=True)):
        case.feed("readings", [row], event_time="at").expect([wanted])
        if number % 20 == 7:
            case.restart()


@pytest.mark.feature("X4")
@pytest.mark.parametrize("run", EMBEDDED, ids=str)
def test_rolling_aggregates_end_with_the_same_values_in_both_modes(run: Run) -> None:
    rows = rolling_rows()
    wanted = {one["sensor"]: one for one in rolled_by_hand(rows)}
    assert run(rolled, {"readings": rows}, event_time="at")[""] == [wanted["a"], wanted["b"]]


@fm.operator
def folded(readings: fm.Stream[Reading]) -> fm.Stream:
    """A rolling reduce."""
    rolling = readings.key_by("sensor").window(fm.Global(), trigger=fm.AfterCount(1))
    return rolling.reduce(lambda before, row: {**row, "value": before["value"] * 10 + row["value"]})


@pytest.mark.feature("X5")
def test_a_rolling_reduce_says_its_fold_with_every_row() -> None:
    case = Case(folded)
    for number, wanted in ((1, 1), (2, 12), (3, 123), (4, 1234)):
        case.feed("readings", readings((number, "a", number))).expect([{"sensor": "a", "value": wanted}]).restart()
    case.feed("readings", readings((9, "b", 7))).expect([{"sensor": "b", "value": 7}])


# ---- joins


class Order(fm.Contract):
    """What was ordered."""

    at: fm.EventTime
    order_id: int
    cents: int


class Payment(fm.Contract):
    """A payment of an order."""

    paid: fm.EventTime
    order_id: int
    method: str


class Shipment(fm.Contract):
    """A parcel of an order."""

    sent: fm.EventTime
    order_id: int
    carrier: str


class Pair(fm.Contract):
    """An order with its payments."""

    day: fm.EventTime
    order_id: int
    cents: int | None = None
    method: str | None = None


DAY = fm.Tumbling("1 day")
KINDS = ("inner", "left", "right", "full", "semi", "anti")


@pytest.mark.feature("J6")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("run", IN_MEMORY, ids=str)
def test_three_tables_are_joined_as_duckdb_joins_them(run: Run, kind: Any) -> None:
    @fm.operator
    def paid(orders: fm.Stream[Order], payments: fm.Stream[Payment]) -> fm.Stream:
        found = orders.key_by("order_id").window_join(payments.key_by("order_id"), DAY, kind=kind)
        method = "CAST(NULL AS STRING)" if kind in {"semi", "anti"} else "method"
        return found.select("order_id", "cents", day="window_start", method=method)

    @fm.operator
    def shipped(pairs: fm.Stream[Pair], shipments: fm.Stream[Shipment]) -> fm.Stream:
        found = pairs.key_by("order_id").window_join(shipments.key_by("order_id"), DAY, kind=kind, prefix="parcel_")
        carrier = "CAST(NULL AS STRING)" if kind in {"semi", "anti"} else "parcel_carrier"
        return found.select("order_id", "cents", "method", carrier=carrier)

    rng = random.Random(3)
    some = lambda: sorted(rng.choices(range(12), k=10))  # noqa: E731 - ids, some twice, some not there
    orders = [{"at": NINE, "order_id": n, "cents": 100 + k} for k, n in enumerate(some())]
    payments = [{"paid": NINE, "order_id": n, "method": f"m{k}"} for k, n in enumerate(some())]
    shipments = [{"sent": NINE, "order_id": n, "carrier": f"c{k}"} for k, n in enumerate(some())]
    pairs = run(paid, {"orders": orders, "payments": payments})[""]
    got = run(shipped, {"pairs": pairs, "shipments": shipments})[""]

    database = duckdb.connect()
    for name, rows in (("orders", orders), ("payments", payments), ("shipments", shipments)):
        database.register(name, pa.Table.from_pylist(rows))
    extra = ("NULL", "NULL") if kind in {"semi", "anti"} else ("method", "carrier")
    wanted = database.sql(
        f"SELECT order_id, cents, {extra[0]} AS method, {extra[1]} AS carrier"
        f" FROM (SELECT order_id, cents, {extra[0]} AS method FROM orders {kind} JOIN payments USING (order_id))"
        f" {kind} JOIN shipments USING (order_id)"
    ).fetchall()
    assert Counter(tuple(row.values()) for row in got) == Counter(wanted)
    assert wanted


# ---- process functions


class Note(fm.Contract):
    """A text."""

    text: str


class Numbering(fm.ProcessFunction):
    """Rows in their order."""

    n = fm.ValueState(int)

    def on_element(self, row: Mapping[str, Any], ctx: fm.Context) -> Iterator[Mapping[str, Any]]:
        """The next one."""
        self.n.update(self.n.get(0) + 1)
        yield {"text": f"{self.n.get()}: {row['value']} of {dict(ctx.key)}"}


class Both(fm.CoProcessFunction):
    """What two inputs have said together."""

    total = fm.ValueState(int)

    def on_left(self, row: Mapping[str, Any], ctx: fm.Context) -> Iterator[Mapping[str, Any]]:
        """Adds."""
        self.total.update(self.total.get(0) + row["value"])
        yield {"text": f"{self.total.get()}"}

    def on_right(self, row: Mapping[str, Any], ctx: fm.Context) -> Iterator[Mapping[str, Any]]:
        """Takes away."""
        self.total.update(self.total.get(0) - row["value"])
        yield {"text": f"{self.total.get()}"}


class Limits(fm.BroadcastProcessFunction):
    """Readings above the limit last said, whatever its key."""

    limits = fm.BroadcastState(str, int)

    def on_element(self, row: Mapping[str, Any], ctx: fm.Context) -> Iterator[Mapping[str, Any]]:
        """Compares."""
        if row["value"] > self.limits.get("all", 0):
            yield {"text": f"{row['value']} above {self.limits.get('all', 0)}"}

    def on_broadcast(self, row: Mapping[str, Any], ctx: fm.Context) -> None:
        """A limit."""
        self.limits.put("all", row["value"])


def of_pair(row: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """A pair of readings."""
    yield {"text": f"{row['value']} and {row['other_value']}"}


def of_pane(pane: fm.Pane, rows: Sequence[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
    """The rows of a window."""
    yield {"text": f"{dict(pane.key)}: {sorted(row['value'] for row in rows)}"}


Streams = tuple[fm.Stream[Any], fm.Stream[Any]]
FUNCTIONS: dict[str, tuple[Any, list[str]]] = {
    "all rows": (lambda a, _: a.process(Numbering(), schema=Note), ["1: 5 of {}", "2: 7 of {}", "3: 9 of {}"]),
    "a key": (
        lambda a, _: a.key_by("sensor").process(Numbering(), schema=Note),
        ["1: 5 of {'sensor': 'a'}", "1: 7 of {'sensor': 'b'}", "2: 9 of {'sensor': 'a'}"],
    ),
    "two inputs": (
        lambda a, b: a.key_by("sensor").connect(b.key_by("sensor")).process(Both(), schema=Note),
        ["-8", "1", "10", "5", "7"],
    ),
    "a join": (
        lambda a, b: (
            a.key_by("sensor")
            .interval_join(b.key_by("sensor"), "-10 s", "10 s", prefix="other_")
            .flat_map(of_pair, schema=Note)
        ),
        ["5 and 4", "7 and 8", "9 and 4"],
    ),
    "rules for every key": (
        lambda a, b: a.key_by("sensor").connect(b.broadcast()).process(Limits(), schema=Note),
        ["5 above 0", "7 above 0", "9 above 8"],
    ),
    "rules without a key": (
        lambda a, b: a.connect(b.broadcast()).process(Limits(), schema=Note),
        ["5 above 0", "7 above 0", "9 above 8"],
    ),
    "a window of a key": (
        lambda a, _: a.key_by("sensor").window(fm.Tumbling("1 hour")).process(of_pane, Note),
        ["{'sensor': 'a'}: [5, 9]", "{'sensor': 'b'}: [7]"],
    ),
    "a window of all rows": (lambda a, _: a.window(fm.Tumbling("1 hour")).process(of_pane, Note), ["{}: [5, 7, 9]"]),
}


@pytest.mark.feature("P1")
@pytest.mark.parametrize("run", EMBEDDED, ids=str)
@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.few(12)
def test_each_kind_of_process_function_gives_its_rows_in_both_modes(run: Run, name: str) -> None:
    build, wanted = FUNCTIONS[name]

    def body(left: fm.Stream[Reading], right: fm.Stream[Reading]) -> fm.Stream:
        return build(left, right)

    def one(left: fm.Stream[Reading]) -> fm.Stream:
        return build(left, None)

    two = name.startswith(("two", "a join", "rules"))
    code = fm.operator(body if two else one, name="told")
    left, right = readings((0, "a", 5), (1, "b", 7), (4, "a", 9)), readings((2, "a", 4), (3, "b", 8))
    if name == "two inputs":
        right = readings((2, "a", 4), (3, "b", 15))
    found = run(code, {"left": left, "right": right} if two else {"left": left})[""]
    assert sorted(row["text"] for row in found) == sorted(wanted)


# ---- types


@pytest.mark.feature("X11")
@pytest.mark.parametrize("run", EMBEDDED, ids=str)
def test_values_of_every_type_come_out_of_logs_and_states_as_they_went_in(run: Run) -> None:
    every_type.check(run)
