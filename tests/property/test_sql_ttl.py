"""State with a time to live: lives of a key are those of DuckDB's gaps, bounded and under random cuts, and end where the statement says so."""

from __future__ import annotations

from pathlib import Path

import pytest
from sql_tables import TABLES, Flight, entries_of, flights, oracle, plain

from floodmark import AfterCount, AfterWatermark, Session, Stream, count, operator, sql_operator, sql_operators
from floodmark.compiler.explain import explain
from floodmark.core.errors import DefinitionError
from floodmark.testing.proof import bounded, prove

TTL = "20 minutes"
LIVES = f"""SELECT *, SUM(CASE WHEN gap THEN 1 ELSE 0 END) OVER (PARTITION BY origin ORDER BY scheduled, flight) AS life FROM (
    SELECT *, scheduled - LAG(scheduled) OVER (PARTITION BY origin ORDER BY scheduled, flight) > INTERVAL '{TTL}' AS gap FROM flights)"""
SUMS = "SELECT origin, COUNT(*) AS n, SUM(delay) AS s FROM flights GROUP BY origin EMIT CHANGES"
STATEMENTS = {
    SUMS: f"SELECT origin, COUNT(*), SUM(delay) FROM ({LIVES}) GROUP BY origin, life",
    "SELECT origin, window_end, COUNT(DISTINCT tail) AS n FROM flights GROUP BY origin HAVING COUNT(*) > 1 EMIT CHANGES": f"""SELECT origin, MAX(scheduled) + INTERVAL '{TTL}', COUNT(DISTINCT tail)
        FROM ({LIVES}) GROUP BY origin, life HAVING COUNT(*) > 1""",
    "SELECT origin, flight, rn FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY origin ORDER BY delay DESC NULLS LAST, flight) AS rn FROM flights) WHERE rn <= 2 EMIT CHANGES": f"""SELECT origin,
        flight, ROW_NUMBER() OVER (PARTITION BY origin, life ORDER BY delay DESC NULLS LAST, flight) AS rn FROM ({LIVES}) QUALIFY rn <= 2""",
    "SELECT origin, flight, x FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY origin ORDER BY delay DESC NULLS LAST, flight) AS rn FROM flights) AS q CROSS JOIN UNNEST(array(rn, 7)) AS e(x) WHERE rn <= 2 EMIT CHANGES": f"""SELECT origin,
        flight, unnest([rn, 7]) FROM (SELECT origin, flight, ROW_NUMBER() OVER (PARTITION BY origin, life ORDER BY delay DESC NULLS LAST, flight) AS rn FROM ({LIVES}) QUALIFY rn <= 2)""",
    "SELECT origin, flight FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY origin ORDER BY flight DESC) AS rn FROM flights) WHERE rn = 1 EMIT CHANGES": f"""SELECT origin, MAX(flight)
        FROM ({LIVES}) GROUP BY origin, life""",
}


@pytest.mark.feature("Q3", "Z26")
@pytest.mark.parametrize("sql", STATEMENTS)
@pytest.mark.parametrize("behind_minutes", [0, 15])
def test_a_key_without_rows_for_its_time_to_live_begins_anew_in_both_modes(sql: str, behind_minutes: int) -> None:
    rows = {"flights": flights(1, 40)}
    written = sql_operator("x", sql, inputs=TABLES, ttl=TTL)
    entries = entries_of(written, rows, behind_minutes * 60_000)
    answer = bounded(written, entries)
    expected = plain(oracle(STATEMENTS[sql], rows))
    assert plain([values for (_, values), times in answer.items() for _ in range(times)]) == expected
    assert len({values[0] for values in expected}) < len(expected)
    proof = prove(written, entries, cuts=2)
    assert proof.seed is None, proof.differences


def test_a_time_to_live_is_a_session_whose_result_changes_as_a_hint_or_a_header_says(tmp_path: Path) -> None:
    @operator(name="x")
    def fluent(flights: Stream[Flight]) -> Stream:
        life = {"trigger": AfterWatermark().early(AfterCount(1)), "allowed_lateness": "1 day"}
        counts = flights.key_by("origin").window(Session("1 day"), **life).aggregate(n=count())
        return counts.select("origin", "window_end", "n")

    plainly = "SELECT origin, window_end, COUNT(*) AS n FROM flights GROUP BY origin EMIT CHANGES"
    assert sql_operator("x", plainly, inputs=TABLES, ttl="1 day") == fluent
    hinted = plainly.replace("SELECT", "SELECT /*+ STATE_TTL('flights' = '1 d') */")
    assert sql_operator("x", hinted, inputs=TABLES) == fluent
    (tmp_path / "x.sql").write_text(f"-- Flights so far.\n-- ttl: 1 day\n{plainly}\n", "utf-8")
    assert sql_operators(tmp_path, flights=Flight).x == fluent
    assert "Session(gap=1 day" in explain(fluent)[0]
    assert fluent.outputs[0].current is not None


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT flight FROM flights WHERE delay > 3",
        "SELECT window_end, COUNT(*) AS n FROM TUMBLE(flights, scheduled, '1 hour') GROUP BY window_start, window_end",
        "SELECT DISTINCT origin FROM flights EMIT CHANGES",
    ],
)
def test_a_time_to_live_of_state_that_has_none_is_refused(sql: str) -> None:
    with pytest.raises(
        DefinitionError, match=r"DEFINITION-382 .*line 1, column .*ttl of a statement without such state"
    ):
        sql_operator("x", sql, inputs=TABLES, ttl="1 day")
