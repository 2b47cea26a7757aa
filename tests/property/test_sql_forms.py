"""Forms of statements that people bring along from other systems: DuckDB's answer is the bounded one, and that the unbounded one under random cuts."""

from __future__ import annotations

import re

import pytest
from sql_tables import TABLES, entries_of, flights, oracle, plain, weather

from floodmark import sql_operator
from floodmark.testing.proof import bounded, prove

HOURS = "TUMBLE(flights, scheduled, '1 hour')"
HOUR = "time_bucket(INTERVAL '1 hour', scheduled)"
DISTINCT = {
    "SELECT origin, SUM(DISTINCT delay) AS s, AVG(DISTINCT delay) AS a, MIN(DISTINCT delay) AS m FROM flights GROUP BY origin": "",
    "SELECT origin, SUM(DISTINCT delay) FILTER (WHERE tail IS NULL) AS s FROM flights GROUP BY origin": "",
    "SELECT origin, SUM(DISTINCT n) AS s FROM (SELECT origin, dest, COUNT(*) AS n FROM flights GROUP BY origin, dest) GROUP BY origin": "",
    "SELECT origin, COUNT(DISTINCT tail, dest) AS n FROM flights GROUP BY origin": "SELECT origin, COUNT(DISTINCT (tail, dest)) FILTER (WHERE tail IS NOT NULL) FROM flights GROUP BY origin",
    "SELECT COUNT(1) AS n, SUM(1) AS s, MAX(-1) AS m, origin FROM flights GROUP BY origin": "",
    "SELECT origin, EVERY(delay > 0) AS every, SOME(delay > 80) AS some FROM flights GROUP BY origin": "SELECT origin, bool_and(delay > 0), bool_or(delay > 80) FROM flights GROUP BY origin",
}
_BOTH = "FILTER (WHERE delay IS NOT NULL)"
DISTINCT |= {
    f"""SELECT origin, (AVG(delay * flight) {_BOTH} - AVG(delay) * AVG(flight) {_BOTH}) / NULLIF(STDDEV_POP(delay) * STDDEV_POP(flight) {_BOTH}, 0) AS c
        FROM flights GROUP BY origin""": "SELECT origin, CORR(delay, flight) FROM flights GROUP BY origin",
    "SELECT origin, VAR_SAMP(delay) FILTER (WHERE flight > 9) + 1 AS v, STDDEV_POP(delay) FILTER (WHERE dest = 'BOS') AS s, LISTAGG(dest, ',') FILTER (WHERE dest = 'BOS') AS l FROM flights GROUP BY origin": "",
}
GROUPS = {
    "SELECT origin, STRING_AGG(f.tail, ',' ORDER BY tail) AS t, STRING_AGG(DISTINCT dest, ',' ORDER BY F.dest DESC) AS d FROM flights AS f GROUP BY origin": "",
    "SELECT origin, COUNT(*) AS n, MAX(delay) AS m FROM flights GROUP BY ALL": "",
    "SELECT origin, dest, COUNT(*) AS n FROM flights GROUP BY origin, dest WITH ROLLUP": "SELECT origin, dest, COUNT(*) FROM flights GROUP BY ROLLUP (origin, dest)",
    "SELECT origin, dest, COUNT(*) AS n FROM flights GROUP BY origin, dest WITH CUBE": "SELECT origin, dest, COUNT(*) FROM flights GROUP BY CUBE (origin, dest)",
    "SELECT origin, COUNT(*) AS n, SUM(COUNT(*)) OVER (ORDER BY origin) AS s FROM flights GROUP BY origin": "",
    "SELECT origin, dest, SUM(delay) * 1e2 / SUM(SUM(delay)) OVER (PARTITION BY origin) AS share FROM flights GROUP BY origin, dest": "",
    "SELECT MAX(delay) - LAG(MAX(delay)) OVER (ORDER BY upper(origin)) AS d, upper(origin) AS o FROM flights GROUP BY 2 HAVING COUNT(*) > 3": "",
    "SELECT COUNT(*) AS n, SUM(COUNT(*)) OVER () AS s FROM flights": "",
}
OVER = {
    "SELECT flight, SUM(delay) OVER (PARTITION BY origin ORDER BY flight) AS s, RANK() OVER (PARTITION BY dest ORDER BY delay NULLS LAST) AS r FROM flights": "",
    "SELECT flight, delay * 1e0 / SUM(delay) OVER (PARTITION BY origin) AS s, SUM(delay) OVER () AS t FROM flights": "",
    "SELECT flight, NTILE(4) OVER (PARTITION BY origin ORDER BY flight) AS q, NTILE(30) OVER (PARTITION BY origin ORDER BY flight DESC) AS m FROM flights": "",
    "SELECT flight, CUME_DIST() OVER (PARTITION BY origin ORDER BY dest) AS c, PERCENT_RANK() OVER (PARTITION BY tail ORDER BY dest) AS p FROM flights": "",
    "SELECT flight, PERCENT_RANK() OVER (PARTITION BY origin ORDER BY flight) AS p FROM flights WHERE flight < 4": "",
    "SELECT flight, AVG(delay) OVER (PARTITION BY origin ORDER BY flight ROWS BETWEEN CURRENT ROW AND 2 FOLLOWING) AS a FROM flights": "",
    "SELECT flight, SUM(delay) OVER (PARTITION BY origin ORDER BY delay NULLS LAST RANGE BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING) AS s FROM flights": "",
    "SELECT flight, LAST_VALUE(delay) OVER (PARTITION BY origin ORDER BY flight ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING) AS l FROM flights": "",
    "SELECT flight, FIRST_VALUE(flight) OVER (PARTITION BY origin ORDER BY flight ROWS BETWEEN CURRENT ROW AND 3 FOLLOWING) AS f FROM flights": "",
    "SELECT flight, SUM(delay) OVER (PARTITION BY origin ORDER BY flight ROWS BETWEEN 1 PRECEDING AND 1 FOLLOWING) AS s, COUNT(*) OVER (PARTITION BY origin ORDER BY flight ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS n FROM flights": "",
    "SELECT flight, MAX(delay) OVER (PARTITION BY origin ORDER BY flight ROWS BETWEEN 3 PRECEDING AND 2 PRECEDING) AS b, SUM(delay) OVER (PARTITION BY origin ORDER BY flight ROWS BETWEEN 1 FOLLOWING AND 2 FOLLOWING) AS a FROM flights": "",
    "SELECT flight, FIRST_VALUE(delay) OVER (PARTITION BY origin ORDER BY flight ROWS BETWEEN 1 PRECEDING AND UNBOUNDED FOLLOWING) AS f, LAST_VALUE(flight) OVER (PARTITION BY origin ORDER BY flight ROWS BETWEEN 2 PRECEDING AND 1 FOLLOWING) AS l FROM flights": "",
    "SELECT flight, COUNT(*) OVER (PARTITION BY origin ORDER BY delay DESC NULLS LAST RANGE BETWEEN 20 PRECEDING AND 10 FOLLOWING) AS n, SUM(delay) OVER (PARTITION BY origin ORDER BY delay NULLS FIRST RANGE BETWEEN UNBOUNDED PRECEDING AND 10 FOLLOWING) AS s FROM flights": "",
    "SELECT flight, COUNT(*) OVER (PARTITION BY origin ORDER BY scheduled RANGE BETWEEN INTERVAL '1' HOUR PRECEDING AND INTERVAL '90' MINUTE FOLLOWING) AS n FROM flights": "",
    "SELECT flight, NTH_VALUE(delay, 2) OVER (PARTITION BY origin ORDER BY flight DESC) AS s, NTH_VALUE(delay, 2) OVER (PARTITION BY origin ORDER BY flight ROWS BETWEEN 1 PRECEDING AND 2 FOLLOWING) AS t FROM flights": "",
    "SELECT flight, NTH_VALUE(flight, 3) OVER (PARTITION BY origin ORDER BY flight ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING) AS s FROM flights": "",
    "SELECT origin, n, NTILE(2) OVER (ORDER BY origin) AS t FROM (SELECT origin, COUNT(*) AS n FROM flights GROUP BY origin)": "",
    "SELECT flight, origin FROM flights QUALIFY RANK() OVER (PARTITION BY origin ORDER BY dest) <= 2 AND delay > 0": "",
}
JOINS = {
    "SELECT * FROM flights NATURAL JOIN weather": "",
    "SELECT flight, temp, origin, delay FROM flights NATURAL FULL OUTER JOIN weather": "",
    "SELECT f.flight, w.temp, m FROM flights f NATURAL JOIN weather w NATURAL JOIN (SELECT origin, MAX(flight) AS m FROM flights GROUP BY origin)": "",
    "SELECT flight, temp, t2 FROM flights f LEFT JOIN weather w USING (origin, delay) LEFT JOIN (SELECT origin, delay, temp AS t2 FROM weather) AS v USING (origin, delay)": "",
    "SELECT flight FROM flights f WHERE f.delay = ANY (SELECT w.delay FROM weather w)": "",
    "SELECT flight FROM flights f WHERE f.delay <> ALL (SELECT w.delay FROM weather w WHERE w.delay IS NOT NULL)": "",
    "WITH a(o, d) AS (SELECT origin, delay FROM flights) SELECT o, SUM(d) AS s FROM a GROUP BY o": "",
    "SELECT x.o, MAX(x.tail) AS t FROM flights AS x(a, o) GROUP BY x.o": "",
    "SELECT f.* EXCEPT (scheduled), w.temp FROM flights f JOIN weather w ON f.origin = w.origin": "SELECT f.* EXCLUDE (scheduled), w.temp FROM flights f JOIN weather w ON f.origin = w.origin",
    f"SELECT a.flight FROM {HOURS} AS a WHERE a.window_start IN (SELECT b.window_start FROM TUMBLE(weather, observed, '1 hour') AS b WHERE b.temp > 35) OR a.delay > 30": f"SELECT flight FROM flights WHERE {HOUR} IN (SELECT time_bucket(INTERVAL '1 hour', observed) FROM weather WHERE temp > 35) OR delay > 30",
    "SELECT origin, temp FROM weather UNION SELECT origin, delay FROM flights": "",
}
LATERAL = {
    "SELECT f.flight, t.m FROM flights f, LATERAL (SELECT MAX(w.temp) AS m FROM weather w WHERE w.origin = f.origin) AS t": "",
    "SELECT f.flight, t.m, n FROM flights f CROSS JOIN LATERAL (SELECT MAX(w.temp), COUNT(*) AS n FROM weather w WHERE w.origin = f.dest AND w.temp > 25) AS t(m)": "SELECT f.flight, t.m, n FROM flights f CROSS JOIN LATERAL (SELECT MAX(w.temp), COUNT(*) AS n FROM weather w WHERE w.origin = f.dest AND w.temp > 25) AS t(m, n)",
    "SELECT f.flight, t.delay FROM flights f, LATERAL (SELECT COUNT(*) AS delay FROM weather w WHERE w.origin = f.origin AND delay > -1) AS t": "SELECT f.flight, t.delay FROM flights f, LATERAL (SELECT COUNT(*) AS delay FROM weather w WHERE w.origin = f.origin AND w.delay > -1) AS t",
    "SELECT f.flight, T.N, n + 1 AS m FROM flights f JOIN LATERAL (SELECT COUNT(*) AS n FROM weather w WHERE w.origin = f.origin AND w.delay = f.delay) AS t ON TRUE WHERE t.n < 2": "",
    "SELECT f.flight, t.N FROM flights f JOIN LATERAL (SELECT COUNT(*) AS n FROM weather w WHERE w.origin = f.origin AND w.delay = f.delay) AS t ON TRUE ORDER BY t.n NULLS LAST, f.flight LIMIT 7": "",
    "SELECT f.flight, SUM(t.n) OVER (ORDER BY t.n NULLS LAST, f.flight) AS s FROM flights f JOIN LATERAL (SELECT COUNT(*) AS n FROM weather w WHERE w.origin = f.origin AND w.delay = f.delay) AS t ON TRUE": "",
    "SELECT f.flight, t.n FROM flights f JOIN LATERAL (SELECT COUNT(*) AS n FROM weather w WHERE w.origin = f.origin AND w.delay = f.delay) AS t ON TRUE QUALIFY ROW_NUMBER() OVER (ORDER BY t.n NULLS LAST, f.flight) <= 5": "",
    "SELECT t.n, COUNT(*) AS c FROM flights f JOIN LATERAL (SELECT COUNT(*) AS n FROM weather w WHERE w.origin = f.origin AND w.delay = f.delay) AS t ON TRUE GROUP BY t.n HAVING t.n >= 0": "",
    "SELECT f.flight, t.temp FROM flights f CROSS JOIN LATERAL (SELECT w.temp FROM weather w WHERE w.origin = f.origin) AS t": "",
    "SELECT f.flight, t.temp FROM flights f LEFT JOIN LATERAL (SELECT w.temp FROM weather w WHERE w.origin = f.origin AND w.temp > f.delay) AS t ON TRUE": "",
    "SELECT f.flight, t.temp FROM flights f, LATERAL (SELECT w.temp + 1 AS temp FROM weather w WHERE w.temp < f.delay AND w.temp > 21) AS t WHERE f.flight > 30": "",
    "SELECT f.flight, t.observed FROM flights f, LATERAL (SELECT w.observed FROM weather w WHERE w.origin = f.origin ORDER BY w.observed DESC LIMIT 2) AS t": "",
    "SELECT f.flight, t.origin, t.n FROM flights f LEFT JOIN LATERAL (SELECT w.origin, COUNT(*) AS n FROM weather w WHERE w.delay = f.delay GROUP BY w.origin) AS t ON TRUE": "",
    "SELECT f.origin, SUM(t.n) AS s FROM flights f, LATERAL (SELECT COUNT(*) AS n FROM weather w WHERE w.origin = f.dest) AS t GROUP BY f.origin": "",
    "SELECT f.flight, size(t.m) AS s, array_max(t.m) AS o FROM flights f, LATERAL (SELECT COLLECT_SET(w.origin) AS m FROM weather w WHERE w.origin = f.origin AND w.delay = f.delay) AS t": "SELECT f.flight, len(t.m), t.m[1] FROM flights f, LATERAL (SELECT COALESCE(list(DISTINCT w.origin), []) AS m FROM weather w WHERE w.origin = f.origin AND w.delay = f.delay) AS t",
    "SELECT flight, size(m) AS s FROM (SELECT f.flight, (SELECT COLLECT_LIST(w.delay) FILTER (WHERE w.delay > 0) FROM weather w WHERE w.origin = f.dest) AS m FROM flights f)": "SELECT flight, 0 FROM flights",
    "SELECT f.flight, (SELECT COUNT(*) FILTER (WHERE w.temp < 30) FROM weather w WHERE w.origin = f.dest) AS n, (SELECT 2 * MIN(w.temp) - MAX(w.temp) FROM weather w WHERE w.origin = f.origin) AS v FROM flights f": "",
}
LIMITS = {
    "SELECT flight, delay FROM flights ORDER BY delay DESC NULLS LAST, flight LIMIT 5 OFFSET 2": "",
    "SELECT origin, flight FROM flights ORDER BY 2 DESC LIMIT 5": "",
    "SELECT origin, flight FROM flights ORDER BY delay DESC NULLS LAST, flight LIMIT 5": "",
    "SELECT origin AS delay, flight FROM flights AS f ORDER BY f.delay DESC NULLS LAST, flight LIMIT 5": "",
    "SELECT upper(origin) AS origin, flight * 2 AS f FROM flights ORDER BY flight + length(dest) DESC, flight LIMIT 5": "",
    "SELECT f.flight, w.temp FROM flights f JOIN weather w ON f.origin = w.origin ORDER BY w.observed DESC, f.flight LIMIT 7": "",
}
FINAL = {
    "SELECT flight, scheduled + INTERVAL '1' DAY AS a, scheduled - INTERVAL '90' MINUTE AS b, scheduled + INTERVAL 1 HOUR AS c, scheduled - INTERVAL '1' MONTH AS d FROM flights": "",
    "SELECT flight, CAST(scheduled AS DATE) + INTERVAL '1' MONTH AS d FROM flights WHERE scheduled > TIMESTAMP '2013-01-01 00:00:00' + INTERVAL '2' HOUR": "SELECT flight, CAST(CAST(scheduled AS DATE) + INTERVAL '1' MONTH AS DATE) FROM flights WHERE scheduled > TIMESTAMPTZ '2013-01-01 02:00:00+00'",
    "SELECT flight, SUM(delay) OVER (PARTITION BY origin ORDER BY scheduled) AS s, COUNT(*) OVER (ORDER BY scheduled) AS n FROM flights": "",
    "SELECT origin, delay FROM flights UNION ALL BY NAME SELECT delay, origin FROM weather": "",
    "SELECT origin, temp FROM weather UNION ALL SELECT origin, delay FROM flights": "",
    f"SELECT origin, window_start, window_end, AVG(DISTINCT delay) AS a FROM {HOURS} GROUP BY ALL": f"SELECT origin, {HOUR} AS w, w + INTERVAL '1 hour', AVG(DISTINCT delay) FROM flights GROUP BY ALL",
    f"""SELECT * FROM (SELECT origin, window_start, COUNT(*) AS n, ROW_NUMBER() OVER (PARTITION BY window_start, window_end ORDER BY COUNT(*) DESC, origin) AS rn
        FROM {HOURS} GROUP BY origin, window_start, window_end) WHERE rn <= 1""": f"""SELECT origin, w, n, rn FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY w ORDER BY n DESC, origin) AS rn
        FROM (SELECT origin, {HOUR} AS w, COUNT(*) AS n FROM flights GROUP BY ALL)) WHERE rn <= 1""",
}


def _answered(sql: str, question: str, seed: int) -> None:
    rows = {"flights": flights(seed, 40), "weather": weather(seed)}
    written = sql_operator("stated", sql, inputs=TABLES)
    entries = entries_of(written, rows)
    answer = bounded(written, entries)
    assert plain([values for (_, values), times in answer.items() for _ in range(times)]) == plain(
        oracle(question, rows)
    )
    proof = prove(written, entries, cuts=1, seed=seed)
    assert proof.seed is None, proof.differences


@pytest.mark.feature("Q3", "Z26", "J6")
@pytest.mark.parametrize("sql", [*DISTINCT, *GROUPS, *OVER, *JOINS, *LATERAL, *LIMITS])
@pytest.mark.few(16)
def test_a_form_whose_results_change_answers_as_duckdb_does_in_both_modes(sql: str) -> None:
    question = {**DISTINCT, **GROUPS, **OVER, **JOINS, **LATERAL, **LIMITS}[sql]
    _answered(f"{sql} EMIT CHANGES", question or sql, 1)


@pytest.mark.feature("Q3")
@pytest.mark.parametrize("sql", FINAL)
def test_a_form_with_final_results_answers_as_duckdb_does_in_both_modes(sql: str) -> None:
    _answered(sql, FINAL[sql] or sql, 3)


@pytest.mark.parametrize(
    "sql", [*(f"{sql} EMIT CHANGES" for sql in {**DISTINCT, **GROUPS, **OVER, **JOINS, **LIMITS}), *FINAL]
)
def test_a_statement_whose_names_all_stand_in_backticks_is_the_same_statement(sql: str) -> None:
    """Of keys, windows, orders, joins and aliases alike; names are in lower case here, words of SQL are not, and behind a function's name stands a bracket."""
    quoted = re.sub(r"('[^']*')|\b([a-z_][a-z_0-9]*)\b(?!\s*\(|')", lambda m: m[1] or f"`{m[2]}`", sql)
    assert quoted.count("`") >= 4
    assert sql_operator("stated", quoted, inputs=TABLES).version == sql_operator("stated", sql, inputs=TABLES).version
