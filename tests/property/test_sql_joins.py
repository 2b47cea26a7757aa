"""Drawn joins with keys that may be null: DuckDB's answer is the bounded one, and that the unbounded one under random cuts."""

from __future__ import annotations

import hypothesis.strategies as st
import pytest
from hypothesis import given
from sql_tables import TABLES, entries_of, flights, oracle, plain, weather

from floodmark import sql_operator
from floodmark.testing.proof import bounded, prove

KINDS = ["JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN", "LEFT SEMI JOIN", "LEFT ANTI JOIN"]
COLUMNS = "a.flight, a.tail, a.delay, b.flight AS other, b.tail AS other_tail"
TIMES = [
    "b.scheduled BETWEEN a.scheduled - INTERVAL '30' MINUTE AND a.scheduled",
    "b.scheduled > a.scheduled AND b.scheduled < a.scheduled + INTERVAL '1' HOUR",
    "a.scheduled - INTERVAL '10' MINUTE <= b.scheduled AND a.scheduled >= b.scheduled - INTERVAL '10' MINUTE",
]
WINDOW = "a.window_start = b.window_start AND a.window_end = b.window_end"


@pytest.mark.feature("J6")
@given(
    kind=st.sampled_from(KINDS),
    time=st.sampled_from([*TIMES, WINDOW]),
    keys=st.sampled_from([["tail"], ["origin"], ["tail", "origin"]]),
    late=st.booleans(),
    seed=st.integers(0, 30),
)
def test_a_drawn_join_answers_as_duckdb_does_in_both_modes(
    kind: str, time: str, keys: list[str], late: bool, seed: int
) -> None:
    one_sided = "SEMI" in kind or "ANTI" in kind
    columns = "a.flight, a.tail, a.delay" if one_sided else COLUMNS
    on = " AND ".join([*(f"a.{key} = b.{key}" for key in keys), time])
    table, question = "flights", "flights"
    if time == WINDOW:
        table = "(SELECT * FROM TUMBLE(flights, scheduled, '1 hour'))"
        bucket = "time_bucket(INTERVAL '1 hour', scheduled)"
        question = f"(SELECT *, {bucket} AS window_start, {bucket} + INTERVAL '1 hour' AS window_end FROM flights)"
    where = "WHERE a.delay > 10" if late else ""
    sql = f"SELECT {columns} FROM {{0}} AS a {kind} {{0}} AS b ON {on} {where}"
    operator = sql_operator("joined", sql.format(table), inputs=TABLES)
    rows = {"flights": flights(seed, 30), "weather": weather(seed)}
    entries = entries_of(operator, rows)
    duck = sql.format(question).replace("LEFT SEMI", "SEMI").replace("LEFT ANTI", "ANTI")
    found = [values for (_, values), times in bounded(operator, entries).items() for _ in range(times)]
    assert plain(found) == plain(oracle(duck, rows))
    proof = prove(operator, entries, cuts=1, seed=seed)
    assert proof.seed is None, proof.differences
