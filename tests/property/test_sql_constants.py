"""VALUES, IN within expressions, sessions of all keys, order and first rows of a statement: DuckDB's answer in both modes under random cuts."""

from __future__ import annotations

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings
from sql_tables import BEGIN, MINUTE, TABLES, Flight, entries_of, flights, oracle, plain, weather

from floodmark import Stream, operator, sql_operator
from floodmark.core.errors import FloodmarkError
from floodmark.core.time import to_ms
from floodmark.engines.embedded.memory.run import MemoryRun
from floodmark.spec.values.schema import MARKER
from floodmark.testing.proof import bounded, prove, tables_of

CODES = "(VALUES ('EWR', 'Newark', 1), ('JFK', NULL, 2), ('XXX', 'none', 3)) AS v(code, name, n)"
GAP = "INTERVAL '12 minutes'"
SESSIONS = f"""
    (SELECT *, MIN(scheduled) OVER (PARTITION BY {{keys}} s) AS begin, MAX(scheduled) OVER (PARTITION BY {{keys}} s) + {GAP} AS ends FROM
        (SELECT *, SUM(fresh) OVER ({{by}} ORDER BY scheduled RANGE UNBOUNDED PRECEDING) AS s FROM
            (SELECT *, CASE WHEN scheduled - {GAP} <= LAG(scheduled) OVER ({{by}} ORDER BY scheduled) THEN 0 ELSE 1 END AS fresh FROM flights)))
"""
OF_ALL = SESSIONS.format(keys="", by="")
OF_EACH = SESSIONS.format(keys="dest,", by="PARTITION BY dest")
STATEMENTS = {
    "values": (f"SELECT flight, v.name, n FROM flights AS f JOIN {CODES} ON f.origin = v.code AND v.n < f.flight",) * 2,
    "values left": (f"SELECT flight, name, n + 1 AS m FROM flights LEFT JOIN {CODES} ON origin = code WHERE flight > 3",) * 2,
    "values first": (f"SELECT flight, code FROM {CODES}, flights WHERE origin = code",) * 2,
    "values computed": ("SELECT f.flight, v.a FROM flights AS f JOIN (VALUES (1 + 2), (1 - 4)) AS v(a) ON v.a * 2 = f.flight OR f.flight-v.a = 5",) * 2,
    "values semi": (
        f"SELECT flight FROM flights AS f LEFT SEMI JOIN {CODES} ON f.origin = v.code",
        f"SELECT flight FROM flights AS f SEMI JOIN {CODES} ON f.origin = v.code",
    ),
    "values anti": (
        f"SELECT flight FROM flights AS f LEFT ANTI JOIN {CODES} ON f.tail = v.name",
        f"SELECT flight FROM flights AS f ANTI JOIN {CODES} ON f.tail = v.name",
    ),
    "values everywhere": (f"SELECT flight, n FROM flights CROSS JOIN {CODES}",) * 2,
    "values beside a window": (
        f"SELECT name, window_end, COUNT(*) AS c FROM TUMBLE(flights, scheduled, '1 hour') AS f JOIN {CODES} ON f.origin = v.code GROUP BY name, window_start, window_end",
        f"SELECT name, time_bucket(INTERVAL '1 hour', scheduled) + INTERVAL '1 hour', COUNT(*) FROM flights AS f JOIN {CODES} ON f.origin = v.code GROUP BY ALL",
    ),
    "nulls are equal": (
        "SELECT f.flight, w.temp FROM flights AS f LEFT JOIN weather AS w ON f.delay IS NOT DISTINCT FROM w.delay AND f.origin = w.origin EMIT CHANGES",
        "SELECT f.flight, w.temp FROM flights AS f LEFT JOIN weather AS w ON f.delay IS NOT DISTINCT FROM w.delay AND f.origin = w.origin",
    ),
    "nulls alone are equal": (
        "SELECT f.flight, w.temp FROM flights AS f JOIN weather AS w ON f.delay <=> w.delay EMIT CHANGES",
        "SELECT f.flight, w.temp FROM flights AS f JOIN weather AS w ON f.delay IS NOT DISTINCT FROM w.delay",
    ),
    "in case": (
        "SELECT flight, origin FROM flights WHERE CASE WHEN delay IN (SELECT delay FROM weather) THEN 1 ELSE flight % 2 END = 1 EMIT CHANGES",
        "SELECT flight, origin FROM flights WHERE CASE WHEN delay IN (SELECT delay FROM weather) THEN 1 ELSE flight % 2 END = 1",
    ),
    "not in or": (
        "SELECT flight FROM flights WHERE delay NOT IN (SELECT delay FROM weather WHERE temp > 30) OR flight < 5 EMIT CHANGES",
        "SELECT flight FROM flights WHERE delay NOT IN (SELECT delay FROM weather WHERE temp > 30) OR flight < 5",
    ),
    "in is unknown": (
        "SELECT flight FROM flights WHERE (delay IN (SELECT delay FROM weather)) IS NULL EMIT CHANGES",
        "SELECT flight FROM flights WHERE (delay IN (SELECT delay FROM weather)) IS NULL",
    ),
    "two in one": (
        "SELECT flight, dest FROM flights WHERE origin IN (SELECT origin FROM weather WHERE temp < 31) = (flight IN (SELECT delay FROM weather)) EMIT CHANGES",
        "SELECT flight, dest FROM flights WHERE (origin IN (SELECT origin FROM weather WHERE temp < 31)) = (flight IN (SELECT delay FROM weather))",
    ),
    "in of the same key": (
        "SELECT flight FROM flights AS f WHERE delay % 3 IN (SELECT w.delay FROM weather AS w WHERE w.origin = f.origin AND w.temp > 20) EMIT CHANGES",
        "SELECT flight FROM flights AS f WHERE delay % 3 IN (SELECT w.delay FROM weather AS w WHERE w.origin = f.origin AND w.temp > 20)",
    ),
    "not in of the same key": (
        "SELECT flight FROM flights AS f WHERE delay % 3 NOT IN (SELECT w.delay + 0 FROM weather AS w WHERE w.origin = f.origin AND w.temp > 30.6) EMIT CHANGES",
        "SELECT flight FROM flights AS f WHERE delay % 3 NOT IN (SELECT w.delay + 0 FROM weather AS w WHERE w.origin = f.origin AND w.temp > 30.6)",
    ),
    "in within in": (
        "SELECT flight FROM flights AS f WHERE CASE WHEN delay IN (SELECT delay FROM weather) THEN 1 ELSE 2 END IN (SELECT w.delay FROM weather AS w WHERE w.origin = f.origin) EMIT CHANGES",
        "SELECT flight FROM flights AS f WHERE CASE WHEN delay IN (SELECT delay FROM weather) THEN 1 ELSE 2 END IN (SELECT w.delay FROM weather AS w WHERE w.origin = f.origin)",
    ),
    "sessions of all": (
        "SELECT origin, window_start, window_end, COUNT(*) AS n, COUNT(delay) AS d, MAX(tail) AS t FROM TABLE(SESSION(TABLE flights, DESCRIPTOR(scheduled), INTERVAL '12' MINUTES)) GROUP BY origin, window_start, window_end",
        f"SELECT origin, begin, ends, COUNT(*), COUNT(delay), MAX(tail) FROM {OF_ALL} GROUP BY ALL",
    ),
    "sessions of one key": (
        "SELECT origin || dest AS way, window_end, SUM(delay) AS d FROM TABLE(SESSION(TABLE flights PARTITION BY dest, DESCRIPTOR(scheduled), INTERVAL '12' MINUTES)) GROUP BY origin || dest, dest, window_start, window_end HAVING COUNT(*) > 1",
        f"SELECT way, ends, d FROM (SELECT origin || dest AS way, dest, ends, SUM(delay) AS d FROM {OF_EACH} GROUP BY ALL HAVING COUNT(*) > 1)",
    ),
    "first rows": (
        "SELECT flight, origin, delay FROM flights ORDER BY delay DESC NULLS LAST, flight LIMIT 5 EMIT CHANGES",
        "SELECT flight, origin, delay FROM flights ORDER BY delay DESC NULLS LAST, flight LIMIT 5",
    ),
    "first groups": (
        "SELECT dest, COUNT(*) AS n FROM flights GROUP BY dest ORDER BY n DESC, dest LIMIT 2 EMIT CHANGES",
        "SELECT dest, COUNT(*) AS n FROM flights GROUP BY dest ORDER BY n DESC, dest LIMIT 2",
    ),
    "over all of a key": (
        "SELECT flight, COUNT(*) OVER (PARTITION BY origin) AS n, MAX(delay) OVER (PARTITION BY origin) - delay AS m FROM flights EMIT CHANGES",
        "SELECT flight, COUNT(*) OVER (PARTITION BY origin) AS n, MAX(delay) OVER (PARTITION BY origin) - delay AS m FROM flights",
    ),
    "over all": (
        "SELECT flight, delay - AVG(delay) OVER () AS m FROM flights EMIT CHANGES",
        "SELECT flight, delay - AVG(delay) OVER () AS m FROM flights",
    ),
    "values kept": (
        f"SELECT v.name, v.n, COUNT(f.flight) AS c FROM {CODES} LEFT JOIN flights AS f ON f.origin = v.code AND f.delay > 5 GROUP BY v.name, v.n EMIT CHANGES",
        f"SELECT v.name, v.n, COUNT(f.flight) FROM {CODES} LEFT JOIN flights AS f ON f.origin = v.code AND f.delay > 5 GROUP BY v.name, v.n",
    ),
    "values right and full": (
        f"SELECT f.flight, v.n, w.b FROM flights AS f RIGHT JOIN {CODES} ON f.origin = v.code FULL JOIN (VALUES (1, 'a'), (1, 'a'), (9, 'b')) AS w(a, b) ON w.a = v.n EMIT CHANGES",
        f"SELECT f.flight, v.n, w.b FROM flights AS f RIGHT JOIN {CODES} ON f.origin = v.code FULL JOIN (VALUES (1, 'a'), (1, 'a'), (9, 'b')) AS w(a, b) ON w.a = v.n",
    ),
    "rows of constants": (
        "SELECT origin, COUNT(*) AS n FROM flights GROUP BY origin UNION ALL SELECT 'none', 0 UNION ALL SELECT 'never', 1 WHERE 1 > 2 EMIT CHANGES",
        "SELECT origin, COUNT(*) AS n FROM flights GROUP BY origin UNION ALL SELECT 'none', 0",
    ),
    "constants without flights": (
        f"SELECT v.code FROM {CODES} WHERE v.code NOT IN (SELECT origin FROM flights WHERE origin IS NOT NULL) EMIT CHANGES",
        f"SELECT v.code FROM {CODES} WHERE v.code NOT IN (SELECT origin FROM flights WHERE origin IS NOT NULL)",
    ),
    "first at the end": (
        "SELECT flight, origin FROM flights ORDER BY delay DESC NULLS LAST, flight LIMIT 4 EMIT FINAL",
        "SELECT flight, origin FROM flights ORDER BY delay DESC NULLS LAST, flight LIMIT 4",
    ),
    "in order": ("SELECT flight, delay FROM flights WHERE delay > 10 ORDER BY scheduled", "SELECT flight, delay FROM flights WHERE delay > 10"),
}  # fmt: skip


@pytest.mark.feature("Q1", "Q3", "J6")
@pytest.mark.parametrize("case", STATEMENTS)
@settings(max_examples=3)
@given(seed=st.integers(0, 100))
@pytest.mark.few(8)
def test_statements_of_several_tables_are_duckdbs(case: str, seed: int) -> None:
    sql, question = STATEMENTS[case]
    written = sql_operator("stated", sql, inputs=TABLES)
    rows = {"flights": flights(seed, 20), "weather": weather(seed, 8)}
    entries = entries_of(written, rows)
    answer = plain([values for (_, values), times in bounded(written, entries).items() for _ in range(times)])
    assert answer == plain(oracle(question, rows))
    assert prove(written, entries, cuts=1, seed=seed).seed is None


REFUSED = {
    "SELECT n FROM (VALUES (1), (2)) AS v(n)": "DEFINITION-382",
    "SELECT n FROM (VALUES (1), (2)) AS v(n) EMIT CHANGES": "DEFINITION-382",
    "SELECT origin FROM flights UNION ALL SELECT 'all'": "DEFINITION-382",
    "SELECT f.flight, w.t FROM flights AS f, LATERAL (SELECT MAX(temp) AS t FROM weather AS w WHERE w.origin = f.origin) AS w": "DEFINITION-382",
    "SELECT f.flight FROM flights AS f JOIN (VALUES (1, 2), (3)) AS v(a, b) ON f.flight = v.a": "DEFINITION-393",
    "SELECT f.flight FROM flights AS f JOIN (VALUES (NULL)) AS v(a) ON true": "DEFINITION-393",
    "SELECT f.flight FROM flights AS f JOIN (VALUES (flight)) AS v(a) ON true": "DEFINITION-382",
    "SELECT f.flight FROM flights AS f RIGHT JOIN (VALUES (1)) AS v(a) ON f.flight = v.a": "DEFINITION-382",
    "SELECT flight FROM flights AS f WHERE CASE WHEN delay IN (SELECT w.delay FROM weather AS w WHERE w.origin = f.origin) THEN 1 END = 1 EMIT CHANGES": "DEFINITION-382",
    "SELECT flight FROM flights WHERE CASE WHEN delay IN (SELECT delay, temp FROM weather) THEN 1 END = 1 EMIT CHANGES": "DEFINITION-382",
    "SELECT flight FROM flights ORDER BY delay": "DEFINITION-382",
    "SELECT flight, LEAD(delay) OVER (PARTITION BY origin ORDER BY scheduled) AS n FROM flights": "DEFINITION-382",
    "SELECT flight, COUNT(*) OVER (PARTITION BY origin) AS n FROM flights": "DEFINITION-382",
    "SELECT flight, ROW_NUMBER() OVER (PARTITION BY origin) AS n FROM flights EMIT CHANGES": "DEFINITION-382",
    "SELECT flight FROM flights ORDER BY scheduled DESC": "DEFINITION-382",
    "SELECT flight FROM flights LIMIT 3": "DEFINITION-382",
    "SELECT flight FROM flights ORDER BY flight LIMIT 0 EMIT CHANGES": "DEFINITION-382",
    "SELECT origin FROM (SELECT origin FROM flights ORDER BY flight LIMIT 3)": "DEFINITION-382",
}  # fmt: skip


@pytest.mark.feature("Q1", "J6")
@pytest.mark.parametrize("sql", REFUSED)
def test_what_cannot_be_said_is_refused_at_its_place(sql: str) -> None:
    with pytest.raises(FloodmarkError) as raised:
        sql_operator("stated", sql, inputs=TABLES)
    assert raised.value.code == REFUSED[sql]
    assert "line 1, column" in str(raised.value)


@pytest.mark.feature("Z17")
def test_rows_are_sorted_once_the_input_ends_and_none_comes_before() -> None:
    sql = "SELECT origin, window_start, COUNT(*) AS n FROM TUMBLE(flights, scheduled, '1 hour') GROUP BY origin, window_start ORDER BY n DESC, origin, 2"
    written = sql_operator("stated", f"{sql} EMIT FINAL", inputs=TABLES)
    entries = entries_of(written, {"flights": flights(4, 40)})
    rows = [values for (_, values), times in bounded(written, entries).items() for _ in range(times)]
    assert rows == sorted(rows, key=lambda row: (-row[2], row[0], row[1]))
    assert len(rows) > 10
    late = MemoryRun(written).batch(tables_of(written, entries, {"flights": to_ms(BEGIN) + 5 * 60 * MINUTE}))[""]
    assert set(late["_kind"].to_pylist()) <= {MARKER}
    assert prove(written, entries, cuts=2).seed is None


@pytest.mark.feature("Z17")
def test_a_sort_in_python_is_that_of_a_statement() -> None:
    @operator
    def stated(flights: Stream[Flight]) -> Stream:
        return flights.sort("delay DESC", first=4)

    columns = "scheduled, origin, dest, flight, tail, delay"
    sql = f"SELECT {columns} FROM flights ORDER BY delay DESC LIMIT 4 EMIT FINAL"
    assert sql_operator("stated", sql, inputs=TABLES).fingerprint == stated.fingerprint


def test_a_sort_of_no_rows_is_refused() -> None:
    def none(flights: Stream[Flight]) -> Stream:
        return flights.sort("delay", first=0)

    with pytest.raises(FloodmarkError, match="n=0"):
        operator(none)


@pytest.mark.feature("Q3")
@pytest.mark.parametrize(
    "sql",
    [
        "SELECT COUNT(*) AS n FROM flights WHERE delay > 1000 EMIT CHANGES",
        "SELECT COUNT(*) AS n, MAX(f.delay) AS m FROM flights AS f JOIN weather AS w ON f.origin = w.origin AND w.temp > 1000 EMIT CHANGES",
        "SELECT v.code FROM (SELECT origin FROM flights WHERE 1 > 2) AS f RIGHT JOIN (VALUES ('EWR')) AS v(code) ON f.origin = v.code EMIT CHANGES",
    ],
)
@pytest.mark.parametrize("landed", [0, 5])
def test_an_operator_over_no_rows_has_no_result_in_both_modes(sql: str, landed: int) -> None:
    written = sql_operator("stated", sql, inputs=TABLES)
    rows = {"flights": flights(1, landed), "weather": weather(1, landed)}
    entries = entries_of(written, rows) if landed else []
    constants = "VALUES" in sql and landed > 0
    assert len(bounded(written, entries)) == constants
    assert prove(written, entries, cuts=1).seed is None
