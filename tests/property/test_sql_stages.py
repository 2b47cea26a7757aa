"""Drawn statements of several stages: DuckDB's answer is the bounded one, and that the unbounded one under random cuts."""

from __future__ import annotations

from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given
from sql_tables import TABLES, entries_of, flights, oracle, plain, weather

from floodmark import sql_operator
from floodmark.testing.proof import bounded, prove

KEYS = [("origin",), ("dest",), ("origin", "dest"), ()]
SIZES = [(20, 20), (60, 60), (60, 20), (30, 20)]
"""Size and slide of the first window, minutes."""
MEASURES = {"n": "COUNT(*)", "total": "SUM(delay)", "longest": "MAX(delay)"}
OVER = ["MAX(n)", "SUM(total)", "COUNT(*)", "MIN(longest)", "COUNT(DISTINCT n)"]
_EPOCH = "TIMESTAMPTZ '1970-01-01 00:00:00+00'"


@st.composite
def statements(draw: st.DrawFn) -> dict[str, Any]:
    keys = draw(st.sampled_from(KEYS))
    return {
        "keys": keys,
        "size": draw(st.sampled_from(SIZES)),
        "shape": draw(st.sampled_from(["again", "wider", "joined", "again and wider"])),
        "over": draw(st.lists(st.sampled_from(OVER), min_size=1, max_size=3, unique=True)),
        "by": [key for key in keys if draw(st.booleans())],
        "having": draw(st.sampled_from(["", " HAVING COUNT(*) > 1", " HAVING MAX(n) > 2"])),
        "filter": draw(st.sampled_from(["", " WHERE n > 1", " WHERE total IS NOT NULL AND n < 9"])),
        "seed": draw(st.integers(0, 30)),
    }


def written(case: dict[str, Any]) -> tuple[str, str]:
    """The statement, and the same for DuckDB."""
    size, slide = case["size"]
    keys = "".join(f"{key}, " for key in case["keys"])
    measures = ", ".join(f"{value} AS {name}" for name, value in MEASURES.items())
    table = (
        f"TUMBLE(flights, scheduled, '{size} minutes')"
        if size == slide
        else f"HOP(flights, scheduled, '{slide} minutes', '{size} minutes')"
    )
    first = f"SELECT {keys}window_start AS s, window_end AS e, window_time AS at, {measures} FROM {table} GROUP BY {keys}window_start, window_end"
    places = -(-size // slide)
    starts = f"time_bucket(INTERVAL '{slide} minutes', scheduled, {_EPOCH}) - i * INTERVAL '{slide} minutes'"
    duck = (
        f"SELECT {keys}w AS s, w + INTERVAL '{size} minutes' AS e, {measures} FROM (SELECT *, {starts} AS w FROM flights, range({places}) AS r(i)) "
        f"WHERE scheduled < w + INTERVAL '{size} minutes' GROUP BY {keys}w"
    )
    by = "".join(f"{key}, " for key in case["by"])
    over = ", ".join(f"{value} AS m{place}" for place, value in enumerate(case["over"]))
    match case["shape"]:
        case "again":
            sql = f"SELECT {by}s, e, {over} FROM ({first}) AS q{case['filter']} GROUP BY {by}s, e{case['having']}"
            return sql, f"SELECT {by}s, e, {over} FROM ({duck}) AS q{case['filter']} GROUP BY {by}s, e{case['having']}"
        case "joined":
            sql = (
                f"WITH c AS ({first}) SELECT a.n, a.s, b.m FROM c AS a "
                "JOIN (SELECT s, e, MAX(n) AS m FROM c GROUP BY s, e) AS b ON a.s = b.s AND a.e = b.e AND a.n = b.m"
            )
            return (
                sql,
                f"WITH c AS ({duck}) SELECT n, s, n FROM c WHERE n = (SELECT MAX(d.n) FROM c AS d WHERE d.s = c.s)",
            )
        case "wider":
            sql = f"SELECT {by}window_start, {over} FROM TUMBLE(({first}), at, '2 hours') {case['filter']} GROUP BY {by}window_start, window_end{case['having']}"
        case _:
            inner = f"SELECT {by}s, e, at, MAX(n) AS n, SUM(total) AS total, MIN(longest) AS longest FROM ({first}) AS q{case['filter']} GROUP BY {by}s, e, at"
            sql = f"SELECT window_start, {over} FROM TUMBLE(({inner}), at, '2 hours') GROUP BY window_start, window_end{case['having']}"
            duck = f"SELECT {by}s, e, MAX(n) AS n, SUM(total) AS total, MIN(longest) AS longest FROM ({duck}) AS q{case['filter']} GROUP BY {by}s, e"
            by, case = "", {**case, "filter": ""}
    last = f"time_bucket(INTERVAL '2 hours', e - INTERVAL 1 MILLISECOND, {_EPOCH})"
    return sql, f"SELECT {by}{last} AS b, {over} FROM ({duck}) AS q{case['filter']} GROUP BY {by}b{case['having']}"


@pytest.mark.feature("Q3")
@given(statements())
def test_a_drawn_statement_of_stages_answers_as_duckdb_does_in_both_modes(case: dict[str, Any]) -> None:
    sql, question = written(case)
    operator = sql_operator("staged", sql, inputs=TABLES)
    assert len(operator.stages) == {"again": 2, "wider": 2}.get(case["shape"], 3)
    rows = {"flights": flights(case["seed"], 40)}
    entries = entries_of(operator, rows)
    answer = bounded(operator, entries)
    assert plain([values for (_, values), n in answer.items() for _ in range(n)]) == plain(oracle(question, rows))
    proof = prove(operator, entries, cuts=1, seed=case["seed"])
    assert proof.seed is None, proof.differences


@st.composite
def joins(draw: st.DrawFn) -> dict[str, Any]:
    return {
        "first": draw(st.sampled_from([(0, 30), (-20, 0), (-10, 25), (5, 40)])),
        "second": draw(st.sampled_from([(0, 30), (-30, 0), (-15, 20)])),
        "of": draw(st.sampled_from(["a", "b"])),
        "where": draw(st.sampled_from(["", " WHERE a.flight <> b.flight", " WHERE w.temp > 25 AND a.dest = b.dest"])),
        "seed": draw(st.integers(0, 30)),
    }


@pytest.mark.feature("J6")
@given(joins())
def test_a_drawn_join_of_three_tables_answers_as_duckdb_does_in_both_modes(case: dict[str, Any]) -> None:
    (low, high), (least, most) = case["first"], case["second"]
    sql = (
        "SELECT a.flight, b.flight AS other, w.temp, w.observed FROM flights AS a JOIN flights AS b ON a.origin = b.origin "
        f"AND b.scheduled BETWEEN a.scheduled + INTERVAL '{low}' MINUTE AND a.scheduled + INTERVAL '{high}' MINUTE "
        f"JOIN weather AS w ON w.origin = a.origin AND w.observed >= {case['of']}.scheduled + INTERVAL '{least}' MINUTE "
        f"AND {case['of']}.scheduled + INTERVAL '{most}' MINUTE >= w.observed{case['where']}"
    )
    operator = sql_operator("three", sql, inputs=TABLES)
    assert len(operator.stages) == 2
    rows = {"flights": flights(case["seed"], 30), "weather": weather(case["seed"], 20)}
    entries = entries_of(operator, rows)
    answer = bounded(operator, entries)
    assert plain([values for (_, values), n in answer.items() for _ in range(n)]) == plain(oracle(sql, rows))
    proof = prove(operator, entries, cuts=1, seed=case["seed"])
    assert proof.seed is None, proof.differences
