"""Drawn statements whose results change, of several stages: aggregates of aggregates, joins of aggregates, joins of three tables, against DuckDB."""

from __future__ import annotations

from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given
from sql_tables import TABLES, entries_of, flights, oracle, plain, weather

from floodmark import sql_operator
from floodmark.testing.proof import bounded, prove

SHAPES = {
    "an aggregate of an aggregate": "SELECT n, COUNT(*) AS k, SUM(total) AS t FROM (SELECT {key}, COUNT(*) AS n, SUM(delay) AS total FROM flights {where} GROUP BY {key}) AS q GROUP BY n",
    "the whole of an aggregate": "SELECT MAX(n) AS most, MIN(n) AS least, COUNT(*) AS keys FROM (SELECT {key}, COUNT(*) AS n FROM flights {where} GROUP BY {key}) AS q",
    "a join of aggregates": "SELECT a.{key}, a.n, b.m FROM (SELECT {key}, COUNT(*) AS n FROM flights {where} GROUP BY {key}) AS a {kind} JOIN (SELECT {key}, MAX(delay) AS m FROM flights GROUP BY {key}) AS b ON a.{key} = b.{key} AND a.n > 1",
    "three tables": "SELECT a.flight, b.flight AS other, w.temp FROM flights AS a JOIN flights AS b ON a.origin = b.origin AND a.tail = b.tail {kind} JOIN weather AS w ON w.origin = a.origin AND w.temp > 25",
    "an aggregate of a join": "SELECT a.origin, COUNT(*) AS n, SUM(w.temp) AS total FROM (SELECT * FROM flights {where}) AS a {kind} JOIN weather AS w ON w.origin = a.origin GROUP BY a.origin",
}


@st.composite
def statements(draw: st.DrawFn) -> dict[str, Any]:
    return {
        "shape": draw(st.sampled_from(sorted(SHAPES))),
        "key": draw(st.sampled_from(["origin", "dest", "tail"])),
        "where": draw(st.sampled_from(["", "WHERE delay > 10", "WHERE delay IS NOT NULL AND flight % 2 = 0"])),
        "kind": draw(st.sampled_from(["", "LEFT", "LEFT SEMI", "LEFT ANTI"])),
        "seed": draw(st.integers(0, 30)),
    }


def written(case: dict[str, Any]) -> str:
    kind = case["kind"]
    if kind.startswith("LEFT ") and case["shape"] != "a join of aggregates":
        kind = "LEFT"  # the others read columns of the right
    sql = SHAPES[case["shape"]].format(**case | {"kind": kind})
    return sql.replace("a.n, b.m", "a.n") if kind.startswith("LEFT ") else sql


@pytest.mark.feature("Q3", "J6")
@given(statements())
def test_a_drawn_changing_statement_of_stages_answers_as_duckdb_does_in_both_modes(case: dict[str, Any]) -> None:
    sql = written(case)
    operator = sql_operator("changing", f"{sql} EMIT CHANGES", inputs=TABLES)
    assert len(operator.stages) > 1
    rows = {"flights": flights(case["seed"], 25), "weather": weather(case["seed"], 12)}
    entries = entries_of(operator, rows)
    answer = bounded(operator, entries)
    question = sql.replace("LEFT SEMI", "SEMI").replace("LEFT ANTI", "ANTI")
    assert plain([values for (_, values), n in answer.items() for _ in range(n)]) == plain(oracle(question, rows))
    proof = prove(operator, entries, cuts=1, seed=case["seed"])
    assert proof.seed is None, proof.differences
