"""Rows that are taken back, in process functions, and histories of keys: against brute force, at random cuts."""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from copy import deepcopy
from decimal import Decimal
from random import Random

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from pydantic import Field

import floodmark as fm
from floodmark.core.errors import CapabilityError, DefinitionError
from floodmark.core.time import from_ms, to_ms
from floodmark.engines.embedded.memory.run import MemoryRun
from floodmark.spec.keyed.matching import History
from floodmark.spec.values.schema import RETRACTION, ROW
from floodmark.testing import Case
from floodmark.testing.log import Log, Logs


class Customer(fm.Contract):
    """A row of a table of customers, or a change of one."""

    at: fm.EventTime
    id: int
    city: str | None = None
    points: int = 0
    change: str = "insert"


class Held(fm.Contract):
    """How many, and what they have."""

    customers: int
    points: int


TABLE = fm.Source(
    "customers",
    contract=Customer,
    connector=fm.DeltaTable("/nowhere", read="changes"),
    watermark=fm.BoundedOutOfOrderness("1 hour"),
)


class Totals(fm.ProcessFunction):
    """Of a city, as its customers come, change and go."""

    customers, points = fm.ValueState(int), fm.ValueState(int)

    def on_element(self, row, ctx):
        yield self.add(1, row["points"])

    def on_retract(self, row, ctx):
        yield self.add(-1, -row["points"])

    def add(self, customers, points):
        self.customers.update(self.customers.get(0) + customers)
        self.points.update(self.points.get(0) + points)
        return {"customers": self.customers.get(), "points": self.points.get()}


@fm.operator(inputs={"customers": TABLE})
def by_city(customers: fm.Stream[Customer]):
    """What the cities have."""
    return customers.key_by("city").process(Totals(), schema=Held)


def test_a_process_function_is_told_what_is_taken_back():
    case = Case(by_city)
    at = from_ms(0)
    case.feed(
        "customers",
        [{"at": at, "id": 1, "city": "Bonn", "points": 5}, {"at": at, "id": 2, "city": "Bonn", "points": 0}],
    )
    case.expect([{"customers": 1, "points": 5}, {"customers": 2, "points": 5}])
    case.restart()
    case.retract("customers", [{"at": at, "id": 1, "city": "Bonn", "points": 5}]).expect(
        [{"customers": 1, "points": 0}]
    )
    case.feed("customers", [{"at": at, "id": 1, "city": "Rome", "points": 7}])
    case.expect([{"city": "Rome", "customers": 1, "points": 7}])


def test_what_does_not_say_how_to_take_back_is_refused_with_the_way_out():
    class Silent(fm.ProcessFunction):
        """Without on_retract."""

        def on_element(self, row, ctx):
            yield {"customers": 1, "points": 0}

    with pytest.raises(CapabilityError, match="CAPABILITY-003 .*Write on_retract on Silent"):

        @fm.operator(inputs={"customers": TABLE})
        def silent(customers: fm.Stream[Customer]):
            return customers.key_by("city").process(Silent(), schema=Held)

    with pytest.raises(CapabilityError, match="CAPABILITY-003"):

        @fm.operator(inputs={"customers": TABLE})
        def firsts(customers: fm.Stream[Customer]):
            return customers.key_by("id").deduplicate("1 hour")


def test_sums_of_decimals_take_back_too():
    class Priced(fm.Contract):
        at: fm.EventTime
        city: str
        price: Decimal | None = Field(default=None, max_digits=10, decimal_places=2)

    source = fm.Source(
        "orders", contract=Priced, connector=fm.DeltaTable("/t", read="changes"), watermark=fm.Ascending()
    )

    @fm.operator(inputs={"orders": source})
    def revenue(orders: fm.Stream[Priced]):
        return orders.key_by("city").window(fm.Tumbling("1 hour")).aggregate(total=fm.sum("price"), n=fm.count())

    case, at = Case(revenue), from_ms(0)
    prices = [Decimal("10.10"), Decimal("99999999.99"), Decimal("0.01")]
    case.feed("orders", [{"at": at, "city": "Bonn", "price": price} for price in prices])
    case.retract("orders", [{"at": at, "city": "Bonn", "price": Decimal("99999999.99")}])
    case.end().expect([{"city": "Bonn", "total": Decimal("10.11"), "n": 2}])


@fm.operator
def history(changes: fm.Stream[Customer]):
    """The customers as they were."""
    return changes.key_by("id").scd2(deleted="change = 'delete'")


@fm.operator
def moves(changes: fm.Stream[Customer]):
    """The cities they lived in."""
    kept = changes.filter("change <> 'delete'").select("id", "city", "points")
    return kept.key_by("id").scd2(track=["city"])


Change = tuple[int, int, str | None, int, str]
CHANGES = st.lists(
    st.tuples(
        st.integers(0, 30),
        st.integers(1, 2),
        st.sampled_from(["Bonn", "Rome", None]),
        st.integers(0, 2),
        st.sampled_from(["insert", "insert", "delete"]),
    ),
    max_size=14,
    unique_by=lambda change: change[:2],  # one change per customer and instant
)


def landed(operator, rows: list[Change], behind: int) -> Logs:
    logs = Logs({"changes": Log(operator.inputs[0].schema)})
    for time, who, city, points, change in rows:
        values = {"at": from_ms(time), "id": who, "city": city, "points": points, "change": change}
        logs.row("changes", values, time)
        logs.logs["changes"].watermark = max(logs.logs["changes"].watermark, time - behind - 1)
    logs.end()
    return logs


def standing(operator, logs: Logs, cuts: list[int]) -> Counter:
    """Rows that stand in the end; nothing is taken back that does not stand."""
    places = sorted({0, len(logs.order), *(cut % (len(logs.order) + 1) for cut in cuts)})
    run, found = MemoryRun(operator), Counter()
    for start, stop in itertools.pairwise(places):
        run = MemoryRun(operator, run.savepoint())
        names = operator.outputs[0].schema.names
        for row in run.batch(logs.tables(start, stop))[""].to_pylist():
            if row["_kind"] in {ROW, RETRACTION}:
                values = tuple((n, row[n]) for n in names)
                found[values] += 1 if row["_kind"] == ROW else -1
                assert found[values] >= 0
    return +found


def brute(rows: list[Change], behind: int, tracked: tuple[str, ...] | None) -> Counter:
    """By hand: changes in effective order, of those of one instant the last one, a version for each that says something new. With ``tracked``
    deletes do not arrive."""
    watermark, ordered = -(10**9), []
    for row in rows:
        ordered.append((max(row[0], watermark + 1), row[1], row[0], row))
        watermark = max(watermark, row[0] - behind - 1)
    versions: dict[int, list[dict]] = defaultdict(list)
    latest: dict[int, int] = {}
    instants: dict[int, tuple[int, list[dict], int]] = {}
    for _, who, time, (_, _, city, points, change) in sorted(ordered, key=lambda r: r[:3]):
        if time < latest.get(who, -(10**9)) or (tracked and change == "delete"):
            continue
        if who not in instants or instants[who][0] != time:
            instants[who] = (time, deepcopy(versions[who]), latest.get(who, -(10**9)))
        versions[who], latest[who] = deepcopy(instants[who][1]), instants[who][2]
        mine, now = versions[who], {"city": city, "points": points, "at": time}
        at_hand = mine[-1] if mine and mine[-1]["to"] is None else None
        if change != "delete" and at_hand and all(at_hand["row"][name] == now[name] for name in tracked or now):
            at_hand["row"] = now
            continue
        latest[who] = time
        if at_hand:
            at_hand["to"] = time
        if change != "delete":
            mine.append({"row": now, "from": time, "to": None})
    return Counter(
        (who, v["row"]["city"], v["row"]["points"], v["from"], v["to"]) for who, mine in versions.items() for v in mine
    )


@pytest.mark.feature("J5")
@given(rows=CHANGES, cuts=st.lists(st.integers(0, 30), max_size=4), behind=st.integers(0, 12))
@settings(max_examples=40, suppress_health_check=[HealthCheck.too_slow])
@pytest.mark.parametrize(("operator", "tracked"), [(history, None), (moves, ("city",))], ids=["deletes", "tracked"])
def test_a_history_has_a_row_per_version(operator, tracked, rows, cuts, behind):
    logs = landed(operator, rows, behind)
    expected = brute(rows, behind, tracked)
    for places in (cuts, [], list(range(40))):
        plain = Counter()
        for values, n in standing(operator, logs, places).items():
            row = dict(values)
            until = None if row["valid_to"] is None else to_ms(row["valid_to"])
            plain[row["id"], row["city"], row["points"], to_ms(row["valid_from"]), until] += n
        assert plain == expected


class Numbered(fm.Contract):
    """What became of a customer, and its number."""

    at: fm.EventTime
    id: int
    city: str
    change: str
    number: int | None = None


@fm.operator
def numbered(changes: fm.Stream[Numbered]):
    """The customers as they were, of several changes of an instant the one of the greatest number."""
    kept = changes.select("id", "city", "change", "number")
    return kept.key_by("id").scd2(deleted="change = 'delete'", track=["city"], sequence="number")


@pytest.mark.feature("J5")
@given(
    rows=st.lists(
        st.tuples(st.integers(0, 4), st.sampled_from("ABC"), st.sampled_from(["insert", "insert", "delete"])),
        max_size=12,
    ),
    mixed=st.randoms(use_true_random=False),
    cuts=st.lists(st.integers(0, 30), max_size=3),
)
@example(rows=[(0, "A", "insert"), (3, "B", "insert"), (3, "A", "insert")], mixed=Random(1), cuts=[])
@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow])
def test_changes_of_one_instant_count_in_the_order_of_their_numbers(rows, mixed, cuts):
    rows = [(*row, n or None) for n, row in enumerate(sorted(rows, key=lambda row: row[0]))]
    arrived = list(rows)
    mixed.shuffle(arrived)
    logs = Logs({"changes": Log(numbered.inputs[0].schema)})
    for time, city, change, n in arrived:
        logs.row("changes", {"at": from_ms(time), "id": 1, "city": city, "change": change, "number": n}, time)
    logs.end()
    expected, at_hand = [], None
    last_of_instants = {time: (time, city, change) for time, city, change, _ in rows}
    for time, city, change in last_of_instants.values():
        if at_hand and change == "insert" and at_hand[0] == city:
            continue
        if at_hand:
            expected.append((*at_hand, time))
        at_hand = (city, time) if change == "insert" else None
    expected += [(*at_hand, None)] if at_hand else []
    found = Counter()
    for values, n in standing(numbered, logs, cuts).items():
        row = dict(values)
        found[row["city"], to_ms(row["valid_from"]), row["valid_to"] and to_ms(row["valid_to"])] += n
    assert found == Counter(expected)


def test_a_version_that_is_back_at_the_instant_of_its_change_is_not_split():
    for cuts in ([], [1], [2], [1, 2, 3]):
        logs = Logs({"changes": Log(numbered.inputs[0].schema)})
        for number, (time, city) in enumerate([(1, "A"), (5, "B"), (5, "A")]):
            logs.row(
                "changes", {"at": from_ms(time), "id": 1, "city": city, "change": "insert", "number": number}, time
            )
        logs.end()
        versions = [dict(values) for values in standing(numbered, logs, cuts)]
        assert [(v["city"], to_ms(v["valid_from"]), v["valid_to"]) for v in versions] == [("A", 1, None)]


def without_the_version_before(self, row, ctx):
    """``History.on_element`` with the state that older code wrote: it does not hold the version before the instant."""
    yield from _on_element(self, row, ctx)
    state = self.current.get()
    if state is not None:
        self.current.update({name: value for name, value in state.items() if name != "before"})


_on_element = History.on_element


def resumed(monkeypatch, changes: list[tuple[int, str, str]], cut: int) -> Counter:
    """The versions after ``changes`` of one key, those before ``cut`` by the older code."""
    logs = Logs({"changes": Log(numbered.inputs[0].schema)})
    for number, (time, city, change) in enumerate(changes):
        row = {"at": from_ms(time), "id": 1, "city": city, "change": change, "number": number}
        logs.row("changes", row, time)
        logs.logs["changes"].watermark = time - 1
    logs.end()
    with monkeypatch.context() as patched:
        patched.setattr(History, "on_element", without_the_version_before)
        older = MemoryRun(numbered)
        rows = older.batch(logs.tables(0, cut))[""].to_pylist()
    rows += MemoryRun(numbered, older.savepoint()).batch(logs.tables(cut))[""].to_pylist()
    found: Counter = Counter()
    for row in rows:
        if row["_kind"] in {ROW, RETRACTION}:
            until = row["valid_to"] and to_ms(row["valid_to"])
            found[row["city"], to_ms(row["valid_from"]), until] += 1 if row["_kind"] == ROW else -1
    return +found if min(found.values()) >= 0 else found


def test_a_history_resumes_from_the_state_of_older_code(monkeypatch):
    changes = [(1, "A", "insert"), (4, "B", "insert"), (4, "C", "insert"), (7, "C", "insert"), (9, "C", "delete")]
    changes += [(12, "A", "insert"), (12, "B", "insert"), (15, "B", "delete"), (15, "D", "insert")]
    expected = resumed(monkeypatch, changes, 0)
    assert expected == Counter({("A", 1, 4): 1, ("C", 4, 9): 1, ("B", 12, 15): 1, ("D", 15, None): 1})
    for cut in range(1, len(changes) + 1):
        assert resumed(monkeypatch, changes, cut) == expected, cut


def test_a_version_that_older_code_has_split_stays_split(monkeypatch):
    back = [(1, "A", "insert"), (5, "B", "insert"), (5, "A", "insert"), (8, "C", "insert"), (9, "D", "insert")]
    later = Counter({("C", 8, 9): 1, ("D", 9, None): 1})
    for cut in range(1, 5):  # the changes of an instant are processed together, once progress has reached it
        assert resumed(monkeypatch, back, cut) == later + Counter({("A", 1, 8): 1})
    assert resumed(monkeypatch, back, 5) == later + Counter({("A", 1, 5): 1, ("A", 5, 8): 1})


def test_a_late_change_of_an_instant_counts_only_with_a_greater_number():
    for number, city in ((1, "Bonn"), (3, "Rome"), (None, "Bonn")):
        logs = Logs({"changes": Log(numbered.inputs[0].schema)})
        told = {"at": from_ms(5), "id": 1, "change": "insert"}
        logs.row("changes", {**told, "city": "Bonn", "number": 2}, 5)
        logs.logs["changes"].watermark = 7
        logs.row("changes", {**told, "city": "Rome", "number": number}, 5)
        logs.end()
        assert [dict(values)["city"] for values in standing(numbered, logs, [1])] == [city]


def test_a_history_goes_on_with_a_column_more():
    def of(*columns):
        @fm.operator
        def cities(changes: fm.Stream[Customer]):
            return changes.select("id", *columns).key_by("id").scd2()

        return cities

    logs = landed(of("city"), [(0, 1, "Bonn", 5, "insert"), (9, 1, "Bonn", 6, "insert")], behind=0)
    first = MemoryRun(of("city"))
    first.batch(logs.tables(0, 1))
    run = MemoryRun(of("city", "points"), first.savepoint())
    found = [row for row in run.batch(logs.tables(1))[""].to_pylist() if row["_kind"] in {ROW, RETRACTION}]
    told = [(r["_kind"], r["city"], r["points"], r["valid_to"] and to_ms(r["valid_to"])) for r in found]
    assert told[-3:] == [(-1, "Bonn", None, None), (0, "Bonn", None, 9), (0, "Bonn", 6, None)]


def test_the_table_of_a_history_has_a_row_per_key_and_version():
    (result,) = history.outputs
    assert result.revisable
    assert result.keys == ("id", "valid_from")
    assert result.schema.names == ("id", "at", "city", "points", "change", "valid_from", "valid_to")


@pytest.mark.parametrize(
    ("build", "told"),
    [
        (lambda s: s.key_by("id").scd2(track=["town"]), "DEFINITION-022 .*got 'town'"),
        (lambda s: s.key_by("id").scd2(deleted="gone"), "gone"),
        (lambda s: s.key_by("id").scd2(sequence="point"), "DEFINITION-022 .*sequence.*Did you mean 'points'"),
        (lambda s: s.with_columns(ok="points > 1").key_by("id").scd2(sequence="ok"), "got 'ok', boolean"),
        (lambda s: s.select("id", valid_to="at").key_by("id").scd2(), "DEFINITION-050 .*valid_to"),
    ],
)
def test_a_wrong_history_is_told(build, told):
    with pytest.raises(DefinitionError, match=told):

        @fm.operator
        def wrong(changes: fm.Stream[Customer]):
            return build(changes)


class Order(fm.Contract):
    """Of a customer."""

    at: fm.EventTime
    customer: int


def test_a_row_finds_what_the_table_held_at_its_time():
    @fm.operator
    def cities(orders: fm.Stream[Order], changes: fm.Stream[Customer]):
        versions = changes.select("id", "city", until="CASE WHEN change = 'delete' THEN at END")
        return orders.key_by("customer").temporal_join(versions.key_by("id"), kind="left", valid_until="until")

    case = Case(cities)
    rows = [(0, "Bonn", "insert"), (10, "Rome", "update_postimage"), (20, "Rome", "delete"), (30, "Oslo", "insert")]
    case.feed("changes", [{"at": from_ms(t), "id": 1, "city": c, "points": 0, "change": k} for t, c, k in rows])
    case.feed("orders", [{"at": from_ms(t), "customer": 1} for t in (9, 10, 19, 20, 29, 30)]).end()
    case.expect(
        [
            {"at": from_ms(t), "city": c}
            for t, c in ((9, "Bonn"), (10, "Rome"), (19, "Rome"), (20, None), (29, None), (30, "Oslo"))
        ]
    )


def test_setting_rows_aside_is_named_where_it_is_why_rows_cannot_be_taken_back():
    class Total(fm.Aggregate):
        """Without retract, and so computed from the values that are left."""

        type = "bigint"

        def create(self):
            return 0

        def add(self, accumulator, value):
            return accumulator + value

        def merge(self, left, right):
            return left + right

        def result(self, accumulator):
            return accumulator

    def totals(on_error):
        @fm.operator(name="totals", inputs={"customers": TABLE})
        def made(customers: fm.Stream[Customer]):
            windowed = customers.key_by("city").window(fm.Tumbling("1 hour"), on_error=on_error)
            return windowed.aggregate(points=Total("points"))

        return made

    assert totals("stop")
    wanted = 'CAPABILITY-003 .*on_error="quarantine", got .*Leave out on_error="quarantine" at this window; or read an operator'
    with pytest.raises(CapabilityError, match=wanted):
        totals("quarantine")
