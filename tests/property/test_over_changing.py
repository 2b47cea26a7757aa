"""Drawn results over rows in any order: a statement is DuckDB's answer, and its changes sum to that under any cuts, also over rows that are taken back."""

from __future__ import annotations

import math
import random
from collections import Counter
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Annotated, Any

import hypothesis.strategies as st
import pytest
from hypothesis import given
from pydantic import Field
from sql_tables import TABLES, Flight, entries_of, flights, oracle, plain

import floodmark as fm
from floodmark import Stream, sql_operator
from floodmark.compiler.explain import explain
from floodmark.core.errors import DefinitionError
from floodmark.core.time import END, NEVER
from floodmark.engines.embedded.memory.run import MemoryRun
from floodmark.lifecycle.plan import Deployed, plan
from floodmark.spec.values.schema import MARKER, RETRACTION, ROW
from floodmark.testing.proof import bounded, prove, tables_of

ORDERS = [
    "delay NULLS LAST",
    "delay DESC NULLS FIRST",
    "tail DESC NULLS FIRST, delay NULLS FIRST",
    "delay % 7 NULLS FIRST, dest DESC NULLS LAST",
    "scheduled DESC NULLS LAST",
    "upper(dest) NULLS FIRST",
]
KEYS = ["", "PARTITION BY origin", "PARTITION BY upper(origin), tail"]
BY_VALUE = ["", "RANGE UNBOUNDED PRECEDING", "RANGE BETWEEN CURRENT ROW AND CURRENT ROW"]
BY_ROWS = [
    "ROWS UNBOUNDED PRECEDING",
    "ROWS 2 PRECEDING",
    "ROWS BETWEEN CURRENT ROW AND CURRENT ROW",
    "ROWS BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING",
    "ROWS BETWEEN CURRENT ROW AND 1 FOLLOWING",
    "ROWS BETWEEN 1 PRECEDING AND UNBOUNDED FOLLOWING",
    "ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING",
]
BY_NUMBER = "RANGE BETWEEN 9 PRECEDING AND CURRENT ROW"
BY_TIME = "RANGE BETWEEN INTERVAL '20' MINUTE PRECEDING AND CURRENT ROW"
OF_VALUES = [
    "COUNT(*)",
    "COUNT(delay)",
    "SUM(delay)",
    "AVG(delay)",
    "MIN(delay)",
    "MAX(delay + 1)",
    "COUNT(DISTINCT tail)",
]
OF_ROWS = ["FIRST_VALUE(tail)", "LAST_VALUE(dest)"]
POSITIONS = ["ROW_NUMBER()", "LAG(delay, 2, -1)", "LAG(tail)", "LEAD(tail)", "LEAD(delay, 2, flight)"]
PEERS = ["RANK()", "DENSE_RANK()"]
SOURCES = {
    "rows": "flights",
    "rows that are taken back": "(SELECT {columns} FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY dest ORDER BY delay DESC NULLS LAST, flight) AS n FROM flights) AS r WHERE n <= 6) AS t",
}


@st.composite
def questions(draw: st.DrawFn) -> dict[str, Any]:
    order = draw(st.sampled_from(ORDERS))
    frames = [*BY_VALUE, *([BY_TIME] if order.startswith("scheduled") else [])]
    frames += [BY_NUMBER] if order in ORDERS[:2] else []
    by_value = st.tuples(st.sampled_from(OF_VALUES), st.sampled_from(frames))
    by_rows = st.tuples(st.sampled_from([*OF_VALUES, *OF_ROWS]), st.sampled_from(BY_ROWS))
    by_place = st.tuples(st.sampled_from(POSITIONS), st.just(""))
    peers = st.tuples(st.sampled_from(PEERS), st.just(""))
    return {
        "keys": draw(st.sampled_from(KEYS)),
        "order": order,
        "measures": draw(st.lists(st.one_of(by_value, by_rows, by_place, peers), unique=True, min_size=1, max_size=4)),
        "source": draw(st.sampled_from(sorted(SOURCES))),
        "seed": draw(st.integers(0, 50)),
        "size": draw(st.sampled_from([1, 20, 45])),
    }


def text(case: dict[str, Any], *, duck: bool) -> str:
    """The statement; for DuckDB the order of landing stands behind the order where rows are counted."""
    columns = ", ".join(Flight.model_fields)
    source = SOURCES[case["source"]].format(columns=columns + (", place" if duck else ""))
    parts = []
    for number, (measure, frame) in enumerate(case["measures"]):
        order = case["order"]
        if case["source"] != "rows":  # the order of landing is not recorded
            order += ", flight"
        elif duck and (frame.startswith("ROWS") or measure in POSITIONS):
            order += ", place"
        parts.append(f"{measure} OVER ({case['keys']} ORDER BY {order} {frame}) AS m{number}")
    return f"SELECT flight, origin, delay, {', '.join(parts)} FROM {source}"


@pytest.mark.feature("Q3")
@given(questions())
def test_results_in_any_order_are_duckdbs_in_both_modes_under_any_cuts(case: dict[str, Any]) -> None:
    if case["source"] != "rows":
        case["measures"] = [(m, "" if f in {BY_TIME, BY_NUMBER} else f) for m, f in case["measures"]]
    written = sql_operator("stated", f"{text(case, duck=False)} EMIT CHANGES", inputs=TABLES)
    landed = flights(case["seed"], case["size"])
    random.Random(case["seed"]).shuffle(landed)  # late rows count like others
    entries = entries_of(written, {"flights": landed})
    answer = bounded(written, entries)
    found = plain([values for (_, values), times in answer.items() for _ in range(times)])
    placed = {"flights": [row | {"place": place} for place, row in enumerate(landed)]}
    assert found == plain(oracle(text(case, duck=True), placed))
    proof = prove(written, entries, cuts=2, seed=case["seed"])
    assert proof.seed is None, proof.differences


@given(st.integers(0, 500))
def test_rows_that_are_taken_back_before_they_come_leave_the_results_of_the_others(seed: int) -> None:
    drawn = random.Random(seed)
    landed = flights(seed, 12)
    for row in landed:
        row |= {"flight": drawn.randrange(3), "delay": drawn.choice([None, 1, 2]), "scheduled": landed[0]["scheduled"]}
    gone = drawn.sample(range(12), 6)
    steps = [(row, ROW) for row in landed] + [(landed[number], RETRACTION) for number in gone]
    drawn.shuffle(steps)
    table = fm.Source(
        "flights",
        contract=Flight,
        connector=fm.DeltaTable("tables/flights", read="changes"),
        watermark=fm.BoundedOutOfOrderness("0 s"),
    )
    sql = "SELECT flight, origin, delay, {} FROM flights"
    results = "SUM(delay) OVER w AS total, LAG(tail) OVER w AS before"
    over = (
        " WINDOW w AS (PARTITION BY origin ORDER BY delay NULLS FIRST, flight, tail NULLS FIRST, dest ROWS 2 PRECEDING)"
    )
    written = sql_operator("stated", f"{sql.format(results)}{over} EMIT CHANGES", inputs={"flights": table})
    entries = entries_of(written, {"flights": [row for row, _ in steps]})
    entries = [(name, row | {"_kind": kind}) for (name, row), (_, kind) in zip(entries, steps, strict=True)]
    tables = tables_of(written, entries, {"flights": END})
    made = MemoryRun(written).batch(tables)[""].to_pylist()
    made = [row for row in made if row["_kind"] != MARKER]
    assert all(row["_kind"] == ROW for row in made)
    left = {"flights": [row for number, row in enumerate(landed) if number not in gone]}
    names = written.outputs[0].schema.names
    assert plain([[row[name] for name in names] for row in made]) == plain(oracle(sql.format(results) + over, left))
    assert prove(written, entries, cuts=2, seed=seed).seed is None


def test_a_change_takes_back_the_rows_whose_frame_it_touches_alone() -> None:
    written = sql_operator(
        "stated",
        "SELECT flight, SUM(delay) OVER (PARTITION BY origin ORDER BY delay ROWS 1 PRECEDING) AS total FROM flights EMIT CHANGES",
        inputs=TABLES,
    )
    landed = flights(1, 5)
    for row, delay in zip(landed, [10, 20, 40, 50, 30], strict=True):
        row |= {"origin": "JFK", "delay": delay}
    entries = entries_of(written, {"flights": landed})
    run, made = MemoryRun(written), []
    for part in (entries[:4], entries[4:]):
        rows = run.batch(tables_of(written, part, {"flights": NEVER}))[""].to_pylist()
        made.append(
            Counter((row["flight"], row["total"], row["_kind"] == ROW) for row in rows if row["_kind"] != MARKER)
        )
    assert made[0] == Counter([(0, 10, True), (1, 30, True), (2, 60, True), (3, 90, True)])
    assert made[1] == Counter([(4, 50, True), (2, 60, False), (2, 70, True)])


@pytest.mark.feature("Q3")
@pytest.mark.parametrize("direction", ["", "DESC"])
def test_rows_of_equal_order_have_the_order_of_landing_in_every_frame(direction: str) -> None:
    frames = {
        "LAST_VALUE(flight) OVER (w ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING)": [2, 2, 2],
        "FIRST_VALUE(flight) OVER (w ROWS BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING)": [0, 1, 2],
        "SUM(flight) OVER (w ROWS BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING)": [3, 3, 2],
        "SUM(flight) OVER (w ROWS UNBOUNDED PRECEDING)": [0, 1, 3],
        "SUM(flight) OVER (w RANGE BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING)": [3, 3, 3],
        "FIRST_VALUE(flight) OVER (w RANGE BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING)": [0, 0, 0],
        "LAST_VALUE(flight) OVER (w RANGE BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING)": [2, 2, 2],
        "LEAD(flight, 1, 9) OVER w": [1, 2, 9],
    }
    over = [f"{sql.replace('(w', f'(PARTITION BY origin ORDER BY tail {direction}')}" for sql in frames]
    columns = ", ".join(f"{sql} AS m{number}" for number, sql in enumerate(over))
    window = f"WINDOW w AS (PARTITION BY origin ORDER BY tail {direction})"
    sql = f"SELECT flight, {columns} FROM flights {window} EMIT CHANGES"
    written = sql_operator("stated", sql, inputs=TABLES)
    landed = [row | {"origin": "JFK", "tail": "same"} for row in flights(3, 3)]
    entries = entries_of(written, {"flights": landed})
    answer = sorted(values for (_, values), times in bounded(written, entries).items() for _ in range(times))
    assert list(zip(*answer, strict=True)) == [(0, 1, 2), *map(tuple, frames.values())]
    assert prove(written, entries, cuts=3, seed=1).seed is None


@pytest.mark.feature("Q3")
def test_results_that_depend_on_the_order_have_it_in_every_frame() -> None:
    whole, by_rows, by_range = (
        f"{kind} AND UNBOUNDED FOLLOWING"
        for kind in ("ROWS BETWEEN UNBOUNDED PRECEDING", "ROWS BETWEEN CURRENT ROW", "RANGE BETWEEN CURRENT ROW")
    )
    frames = {
        f"COLLECT_LIST(flight) OVER ({{}} {whole})": [(2, 1, 0)] * 3,
        f"COLLECT_LIST(flight) FILTER (WHERE flight > 0) OVER ({{}} {whole})": [(2, 1)] * 3,
        f"COLLECT_LIST(flight) OVER ({{}} {by_rows})": [(0,), (1, 0), (2, 1, 0)],
        f"COLLECT_LIST(flight) OVER ({{}} {by_range})": [(0,), (1, 0), (2, 1, 0)],
        f"MAX_BY(flight, origin) OVER ({{}} {whole})": [2, 2, 2],
        f"MAX_BY(flight, origin) OVER ({{}} {by_rows})": [0, 1, 2],
        f"MAX_BY(flight, origin) OVER ({{}} {by_range})": [0, 1, 2],
        f"SUM(flight) OVER ({{}} {by_range})": [0, 1, 3],
    }
    columns = ", ".join(
        f"{sql.format('PARTITION BY origin ORDER BY tail')} AS m{number}" for number, sql in enumerate(frames)
    )
    written = sql_operator("stated", f"SELECT flight, {columns} FROM flights EMIT CHANGES", inputs=TABLES)
    landed = [row | {"origin": "JFK", "tail": str(9 - number)} for number, row in enumerate(flights(3, 3))]
    entries = entries_of(written, {"flights": landed})
    answer = sorted(values for (_, values), times in bounded(written, entries).items() for _ in range(times))
    assert list(zip(*answer, strict=True)) == [(0, 1, 2), *map(tuple, frames.values())]
    assert prove(written, entries, cuts=3, seed=1).seed is None


@pytest.mark.parametrize("over", ["ORDER BY tail ROWS 2 PRECEDING", "PARTITION BY origin"])
@pytest.mark.parametrize("function", ["STRING_AGG(dest, ',')", "VAR_POP(delay) FILTER (WHERE flight > 1)"])
def test_aggregates_that_are_made_of_others_are_refused_with_these(function: str, over: str) -> None:
    with pytest.raises(DefinitionError, match=r"line 1, column 8: .*COLLECT_LIST\(x\) OVER w") as raised:
        sql_operator("stated", f"SELECT {function} OVER ({over}) AS m FROM flights EMIT CHANGES", inputs=TABLES)
    assert raised.value.code == "DEFINITION-382"
    columns = "array_join(COLLECT_LIST(dest) OVER w, ',') AS a, STDDEV(delay) OVER w * STDDEV(delay) OVER w AS b"
    sql_operator(
        "stated",
        f"SELECT {columns} FROM flights WINDOW w AS (ORDER BY tail ROWS 2 PRECEDING) EMIT CHANGES",
        inputs=TABLES,
    )


def test_the_order_is_one_argument_of_over_in_python() -> None:
    def stated(flights: Stream[Flight]) -> Stream:
        return flights.key_by("origin").over(rows=3, order="delay DESC", total=fm.sum("delay"), place=fm.row_number())

    columns = "origin, scheduled, dest, flight, tail, delay"
    over = "OVER (PARTITION BY origin ORDER BY delay DESC ROWS 3 PRECEDING)"
    sql = f"SELECT {columns}, SUM(delay) {over} AS total, ROW_NUMBER() {over.replace(' ROWS 3 PRECEDING', '')} AS place"
    written = sql_operator("stated", f"{sql} FROM flights EMIT CHANGES", inputs=TABLES)
    assert written.fingerprint == fm.operator(stated).fingerprint


def test_rows_behind_the_row_are_one_argument_of_over_in_python() -> None:
    def stated(flights: Stream[Flight]) -> Stream:
        return flights.key_by("origin").over(
            rows=3, following=1, order="delay DESC", total=fm.sum("delay"), second=fm.nth_value("delay", 2)
        )

    columns = "origin, scheduled, dest, flight, tail, delay"
    over = "OVER (PARTITION BY origin ORDER BY delay DESC ROWS BETWEEN 3 PRECEDING AND 1 FOLLOWING)"
    sql = (
        f"SELECT {columns}, SUM(delay) {over} AS total, NTH_VALUE(delay, 2) {over} AS second FROM flights EMIT CHANGES"
    )
    written = sql_operator("stated", sql, inputs=TABLES)
    assert written.fingerprint == fm.operator(stated).fingerprint
    assert "total=sum(delay) of rows from -3 rows to +1 rows around the row" in explain(written)[0]


def test_another_order_is_a_rebuild_that_says_both() -> None:
    sql = "SELECT {}, SUM(delay) OVER (PARTITION BY origin ORDER BY {} ROWS 3 PRECEDING) AS total FROM {} EMIT CHANGES"
    before = sql_operator("stated", sql.format("flight", "delay DESC", "flights"), inputs=TABLES)
    deployed = Deployed(version=before.version, graph=before.canonical(), tables={}, fingerprint=before.fingerprint)
    after = sql_operator("stated", sql.format("flight", "flight, delay", "flights"), inputs=TABLES)
    changed = plan(deployed, after)
    assert changed.verdict == "rebuild"
    assert "in order of delay DESC of" in changed.changes[0].before
    assert "in order of flight, delay of" in changed.changes[0].after
    assert "in order of delay DESC: total=sum(delay) of 3 rows before; later rows change results" in explain(before)[0]


@pytest.mark.parametrize(
    ("settings", "got"),
    [
        ({"order": ()}, "without columns"),
        ({"order": "delay", "late": "side_output"}, "side_output"),
        ({"order": "delay", "within": "1 hour"}, "length of time"),
        ({"order": "nothing"}, "nothing"),
        ({"rows": 1, "following": 1}, "following in order of event time"),
        ({"order": "delay", "following": 1}, "following=1"),
        ({"order": "delay", "rows": 1, "following": "1 hour"}, "following='1 hour'"),
    ],
)
def test_an_order_that_cannot_be_is_refused(settings: dict[str, Any], got: str) -> None:
    def stated(flights: Stream[Flight]) -> Stream:
        return flights.key_by("origin").over(**settings, total=fm.sum("delay"))

    with pytest.raises(DefinitionError, match=got):
        fm.operator(stated)


def test_without_emit_changes_another_order_is_refused_with_the_way_on() -> None:
    for sql, code in {
        "SELECT SUM(delay) OVER (ORDER BY delay) AS s FROM flights": "DEFINITION-382",
        "SELECT flight, ROW_NUMBER() OVER (ORDER BY delay) AS n FROM flights": "DEFINITION-384",
    }.items():
        with pytest.raises(DefinitionError, match="EMIT CHANGES") as raised:
            sql_operator("stated", sql, inputs=TABLES)
        assert raised.value.code == code


class Odd(fm.Contract):
    """A number of many digits, an instant with microseconds, numbers of which one is none."""

    observed: fm.EventTime
    n: int
    d: Annotated[Decimal, Field(max_digits=38, decimal_places=0)]
    t: datetime
    xs: list[float]


def _odd(sql: str, rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    begin = datetime(2025, 1, 1, tzinfo=UTC)
    entries = {
        "odd": [
            dict(zip(Odd.model_fields, (begin + timedelta(seconds=n), n, *row), strict=True))
            for n, row in enumerate(rows)
        ]
    }
    written = sql_operator("stated", sql, inputs={"odd": Odd})
    stamped = entries_of(written, entries)
    proof = prove(written, stamped, cuts=2, seed=len(rows))
    assert proof.seed is None, proof.differences
    answer = bounded(written, stamped)
    return sorted(values for (_, values), times in answer.items() for _ in range(times))


@pytest.mark.feature("Q3")
def test_a_range_counts_microseconds_and_all_digits() -> None:
    times = [datetime(1970, 1, 1, 0, 0, second, 3, tzinfo=UTC) for second in (0, 1)]
    numbers = [Decimal(10**37), Decimal(10**37 + 3)]
    rows = [(number, at, []) for number, at in zip(numbers, times, strict=True)]
    of_time = "SELECT n, COUNT(*) OVER (ORDER BY t RANGE INTERVAL '1' SECOND PRECEDING) AS c FROM odd EMIT CHANGES"
    assert _odd(of_time, rows) == [(0, 1), (1, 2)]
    of_number = "SELECT n, COUNT(*) OVER (ORDER BY d RANGE {} PRECEDING) AS c FROM odd EMIT CHANGES"
    assert _odd(of_number.format(1), rows) == [(0, 1), (1, 1)]
    assert _odd(of_number.format(3), rows) == [(0, 1), (1, 2)]


@pytest.mark.feature("Q3")
def test_a_row_with_nan_in_a_list_is_taken_back() -> None:
    rows = [(Decimal(n), datetime(2025, 1, 1, tzinfo=UTC), [1.0, math.nan]) for n in range(4)]
    first = "(SELECT n, xs, ROW_NUMBER() OVER (ORDER BY n DESC) AS r FROM odd) AS t WHERE r <= 2"
    assert _odd(
        f"SELECT n, COUNT(*) OVER (ORDER BY n) AS c FROM (SELECT n, xs FROM {first}) AS u EMIT CHANGES", rows
    ) == [(2, 1), (3, 2)]
