"""Drawn first rows: a statement is DuckDB's answer, and its changes sum to that under any cuts; rows that are taken back are too."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given
from sql_tables import TABLES, entries_of, flights, oracle, plain

from floodmark import sql_operator
from floodmark.semantics.kernels.functions.top import _Order
from floodmark.spec.keyed.top import By, Ranking, first_of
from floodmark.testing.proof import bounded, prove

ORDERS = [
    "delay",
    "delay DESC",
    "tail DESC NULLS FIRST, delay NULLS LAST",
    "delay % 7, dest DESC",
    "scheduled DESC",
    "upper(dest)",
]
KEYS = ["", "PARTITION BY origin", "PARTITION BY upper(origin), tail"]
HOUR = "time_bucket(INTERVAL '1 hour', scheduled)"


@st.composite
def questions(draw: st.DrawFn) -> dict[str, Any]:
    return {
        "keys": draw(st.sampled_from(KEYS)),
        "order": draw(st.sampled_from(ORDERS)),
        "numbering": draw(st.sampled_from(["ROW_NUMBER", "RANK", "DENSE_RANK"])),
        "taken": draw(st.sampled_from(["rn <= 3", "rn = 1", "rn < 3", "rn BETWEEN 2 AND 4", "rn = 2"])),
        "window": draw(st.booleans()),
        "shown": draw(st.booleans()),
        "seed": draw(st.integers(0, 50)),
    }


def text(case: dict[str, Any], *, duck: bool) -> str:
    """The statement, for DuckDB with the nulls of Spark and the order of landing behind the order."""
    order = ", ".join(_with_nulls(part) for part in case["order"].split(", ")) if duck else case["order"]
    order += ", flight" if duck and case["numbering"] == "ROW_NUMBER" else ""
    table, keys = "flights", case["keys"]
    if case["window"]:
        bounds = "window_start, window_end"
        keys = f"{keys}, {bounds}" if keys else f"PARTITION BY {bounds}"
        hours = f"(SELECT *, {HOUR} AS window_start, {HOUR} + INTERVAL '1 hour' AS window_end FROM flights)"
        table = hours if duck else "TUMBLE(flights, scheduled, '1 hour')"
    columns = "flight, origin, delay" + (", window_end" if case["window"] else "") + (", rn" if case["shown"] else "")
    emit = "" if duck or case["window"] else " EMIT CHANGES"
    numbers = f"{case['numbering']}() OVER ({keys} ORDER BY {order}) AS rn"
    return f"SELECT {columns} FROM (SELECT *, {numbers} FROM {table}) WHERE {case['taken']}{emit}"


def _with_nulls(part: str) -> str:
    if "NULLS" in part:
        return part
    return f"{part} NULLS {'LAST' if part.endswith('DESC') else 'FIRST'}"


@pytest.mark.feature("Q3")
@given(questions())
def test_the_first_rows_are_duckdbs_in_both_modes_under_any_cuts(case: dict[str, Any]) -> None:
    written = sql_operator("stated", text(case, duck=False), inputs=TABLES)
    rows = {"flights": flights(case["seed"], 50)}
    entries = entries_of(written, rows)
    answer = bounded(written, entries)
    found = plain([values for (_, values), times in answer.items() for _ in range(times)])
    assert found == plain(oracle(text(case, duck=True), rows))
    proof = prove(written, entries, cuts=2, seed=case["seed"])
    assert proof.seed is None, proof.differences


@given(
    st.integers(0, 200),
    st.sampled_from(
        ["SELECT DISTINCT origin, tail FROM flights", "SELECT origin FROM flights UNION SELECT dest FROM flights"]
    ),
)
def test_each_row_comes_once(seed: int, sql: str) -> None:
    written = sql_operator("stated", f"{sql} EMIT CHANGES", inputs=TABLES)
    rows = {"flights": flights(seed, 40)}
    entries = entries_of(written, rows)
    found = plain([values for (_, values), times in bounded(written, entries).items() for _ in range(times)])
    assert found == plain(oracle(sql, rows))
    assert prove(written, entries, cuts=2, seed=seed).seed is None


@given(st.integers(0, 2_000), st.sampled_from(["row_number", "rank", "dense_rank"]))
def test_rows_that_are_taken_back_leave_the_first_ones_of_the_others_in_any_order(seed: int, numbering: Any) -> None:
    drawn = random.Random(seed)
    ranking = Ranking((By("value", drawn.random() < 0.5, drawn.random() < 0.5),), 3, numbering, "n")
    rows = [(drawn.choice([None, 1.0, 2.0, float("nan"), 3.0]), number % 4) for number in range(12)]
    gone = drawn.sample(rows, 6)
    steps = [(row, True) for row in rows] + [(row, False) for row in gone]
    drawn.shuffle(steps)
    order = _Order(ranking, ["value", "tag"], (), (), whole=True)
    for row, comes in steps:
        (order.add if comes else order.remove)(row)
    left = Counter(map(repr, rows))
    left.subtract(map(repr, gone))
    kept = [row for row in rows if left[repr(row)] > 0 and not left.subtract([repr(row)])]
    expected = first_of(ranking, ("value",), [{"value": value, "tag": tag} for value, tag in kept])
    found = [(number, repr(values[0])) for number, values in order.first()]
    assert sorted(found) == sorted((row["n"], repr(row["value"])) for row in expected)
    assert not order.owed
