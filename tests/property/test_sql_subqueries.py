"""INTERSECT, EXCEPT and UNION, and subqueries of one aggregate: DuckDB's answer is the bounded one, and that the unbounded one under random cuts."""

from __future__ import annotations

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings
from sql_tables import TABLES, entries_of, flights, oracle, plain, weather

from floodmark import sql_operator
from floodmark.cli.asking.differences import differs
from floodmark.core.errors import DefinitionError
from floodmark.sql.text import parsed
from floodmark.testing.proof import bounded, prove

SIDES = [
    "SELECT {columns} FROM flights {where}",
    "SELECT {columns} FROM flights WHERE dest <> 'BOS'",
    "SELECT {shared} FROM weather",
    "SELECT {columns} FROM (SELECT {columns} FROM flights {where} UNION ALL SELECT {shared} FROM weather) AS u",
]
OPERATIONS = ["UNION", "INTERSECT", "INTERSECT ALL", "EXCEPT", "EXCEPT ALL"]
COLUMNS = {
    "origin": "origin",
    "origin, delay": "origin, delay",
    "delay, origin": "delay, origin",
    "tail, delay": "CAST(NULL AS STRING) AS tail, delay",
}
WHERES = ["", "WHERE delay > 1", "WHERE delay IS NULL OR delay < 30"]

SCALARS = {
    "one over all rows": "SELECT flight, delay FROM flights {where} {and_} delay > (SELECT AVG(delay) FROM flights)",
    "one of each key": "SELECT a.flight, (SELECT MAX(w.temp) FROM weather AS w WHERE w.origin = a.origin) AS hottest FROM flights AS a",
    "a count of each key": "SELECT a.flight, 1 + (SELECT COUNT(*) FROM flights AS b WHERE b.tail = a.tail AND b.delay > 20) AS n FROM flights AS a",
    "two keys, two subqueries": "SELECT a.flight, a.delay - (SELECT MIN(b.delay) FROM flights AS b WHERE b.origin = a.origin AND b.dest = a.dest) AS d, (SELECT COUNT(temp) FROM weather WHERE delay = 1) AS n FROM flights AS a",
    "the greatest of its key": "SELECT a.origin, a.flight FROM flights AS a WHERE a.delay = (SELECT MAX(b.delay) FROM flights AS b WHERE a.origin = b.origin)",
    "the first row of each key": "SELECT a.flight, (SELECT b.dest FROM flights AS b WHERE b.tail = a.tail AND b.delay > 3 ORDER BY b.delay DESC, b.flight LIMIT 1) AS d FROM flights AS a",
    "the first row of all": "SELECT flight, delay FROM flights {where} {and_} delay > (SELECT delay FROM flights ORDER BY flight DESC LIMIT 1)",
    "in HAVING": "SELECT tail, SUM(delay) AS total FROM flights {where} GROUP BY tail HAVING SUM(delay) > (SELECT AVG(delay) FROM flights) AND COUNT(*) < (SELECT COUNT(*) FROM weather)",
    "there or not": "SELECT a.flight, EXISTS (SELECT 1 FROM weather AS w WHERE w.origin = a.origin AND w.temp > 40) AS hot, NOT EXISTS (SELECT * FROM flights AS b WHERE b.tail = a.tail AND b.delay < 0) AS late FROM flights AS a",
    "there within a condition": "SELECT a.flight FROM flights AS a WHERE a.delay > 60 OR NOT EXISTS (SELECT 1 FROM flights AS b WHERE b.tail = a.tail AND b.delay > 30)",
    "there in an aggregate": "SELECT a.dest, COUNT(*) FILTER (WHERE EXISTS (SELECT 1 FROM weather AS w WHERE w.delay = a.flight)) AS n FROM flights AS a GROUP BY a.dest",
    "among others or not": "SELECT flight, delay IN (SELECT delay FROM weather) AS x, tail NOT IN (SELECT tail FROM flights WHERE delay > 40) AS y, CASE WHEN origin IN (SELECT origin FROM weather WHERE temp > 35) THEN 1 ELSE 0 END AS z FROM flights",
    "first rows in FROM": "SELECT t.tail, t.total, a.flight FROM (SELECT tail, SUM(delay) AS total FROM flights {where} GROUP BY tail ORDER BY total DESC NULLS LAST, tail NULLS LAST LIMIT 2) AS t JOIN flights AS a ON a.tail = t.tail",
    "second rows in WITH": "WITH later AS (SELECT flight, tail FROM flights {where} ORDER BY delay DESC NULLS LAST, flight LIMIT 5 OFFSET 2) SELECT flight FROM weather AS w, later WHERE later.tail = 'N1' AND w.delay = 1",
    "WITH of a table's own name": "WITH flights AS (SELECT * FROM flights {where}), weather AS (SELECT origin FROM flights) SELECT COUNT(*) AS n, MAX(weather.origin) AS o FROM flights JOIN weather ON weather.origin = flights.origin",
    "in EXISTS": "SELECT w.observed FROM weather AS w WHERE NOT EXISTS (SELECT 1 FROM flights AS a WHERE a.origin = w.origin AND a.delay > (SELECT AVG(delay) FROM flights) AND a.tail NOT IN (SELECT tail FROM flights WHERE delay < 0))",
    "beside IN": "SELECT flight, delay * (SELECT MAX(delay) FROM weather) AS p FROM flights WHERE origin IN (SELECT origin FROM weather WHERE temp > 30)",
}


BEHIND_JOINS = [
    "a.flight NOT IN (SELECT delay FROM weather WHERE delay IS NOT NULL)",
    "a.tail IN (SELECT tail FROM flights WHERE delay > 30)",
    "b.tail NOT IN (SELECT tail FROM flights WHERE delay > 80)",
    "NOT EXISTS (SELECT 1 FROM flights AS c WHERE c.tail = a.tail AND c.scheduled > a.scheduled AND c.scheduled < b.scheduled)",
    "EXISTS (SELECT 1 FROM weather AS w WHERE w.origin = b.origin AND w.temp > a.delay)",
    "(a.delay > 30 OR b.dest IN (SELECT dest FROM flights WHERE delay < 10))",
    "a.delay < (SELECT AVG(delay) FROM flights)",
    "b.delay IS NOT NULL",
]
"""Conditions of WHERE over two joined tables."""
COLUMNS_IN = [("origin", "dest"), ("tail", "delay"), ("flight", "delay"), ("flight", "origin")]
TEXTS = frozenset({"origin", "dest", "tail"})
"""Columns that are compared with others of these alone."""


@st.composite
def set_operations(draw: st.DrawFn) -> tuple[str, int]:
    columns = draw(st.sampled_from(sorted(COLUMNS)))
    parts = []
    for number in range(draw(st.integers(2, 3))):
        side = draw(st.sampled_from(SIDES[:2] if number == 0 and columns.startswith("tail") else SIDES))
        parts.append(side.format(columns=columns, shared=COLUMNS[columns], where=draw(st.sampled_from(WHERES))))
        parts.append(draw(st.sampled_from(OPERATIONS)))
    return " ".join(parts[:-1]), draw(st.integers(0, 30))


def check(sql: str, seed: int) -> None:
    operator = sql_operator("together", f"{sql} EMIT CHANGES", inputs=TABLES)
    rows = {"flights": flights(seed, 25), "weather": weather(seed, 12)}
    entries = entries_of(operator, rows)
    answer = bounded(operator, entries)
    question = sql.replace("AS STRING", "AS VARCHAR")
    assert plain([values for (_, values), n in answer.items() for _ in range(n)]) == plain(oracle(question, rows)), sql
    proof = prove(operator, entries, cuts=1, seed=seed)
    assert proof.seed is None, proof.differences


@pytest.mark.feature("Q3", "J6")
@settings(max_examples=25, deadline=None)
@given(set_operations())
def test_a_drawn_set_operation_answers_as_duckdb_does_in_both_modes(case: tuple[str, int]) -> None:
    check(*case)


@pytest.mark.feature("Q3", "J6")
@settings(max_examples=20, deadline=None)
@given(st.sampled_from(sorted(SCALARS)), st.sampled_from(WHERES), st.integers(0, 30))
def test_a_subquery_of_one_aggregate_answers_as_duckdb_does_in_both_modes(name: str, where: str, seed: int) -> None:
    check(
        SCALARS[name].format(
            where=where.replace("delay IS NULL OR delay < 30", "(delay IS NULL OR delay < 30)"),
            and_="AND" if where else "WHERE",
        ),
        seed,
    )


@pytest.mark.feature("Q3", "J6")
@settings(max_examples=15, deadline=None)
@given(
    st.sampled_from(["JOIN", "LEFT JOIN", "FULL JOIN"]),
    st.lists(st.sampled_from(BEHIND_JOINS), min_size=1, max_size=3, unique=True),
    st.integers(0, 30),
)
def test_subqueries_behind_a_join_answer_as_duckdb_does_in_both_modes(
    kind: str, conditions: list[str], seed: int
) -> None:
    on = "a.tail = b.tail AND a.scheduled < b.scheduled"
    check(
        f"SELECT a.flight, b.flight AS other FROM flights AS a {kind} flights AS b ON {on} WHERE {' AND '.join(conditions)}",
        seed,
    )


@pytest.mark.feature("Q3", "J6")
@settings(max_examples=15, deadline=None)
@given(st.sampled_from(COLUMNS_IN), st.sampled_from(COLUMNS_IN), st.sampled_from(["", "NOT "]), st.integers(0, 30))
def test_several_columns_are_compared_by_in_as_duckdb_does_in_both_modes(
    own: tuple[str, str], others: tuple[str, str], negated: str, seed: int
) -> None:
    if [name in TEXTS for name in own] != [name in TEXTS for name in others]:
        others = own
    columns = ", ".join(others)
    check(
        f"SELECT a.flight FROM flights AS a WHERE (a.{own[0]}, a.{own[1]}) {negated}IN (SELECT {columns} FROM flights WHERE dest <> 'BOS' AND delay > 20)",
        seed,
    )


@pytest.mark.feature("Q3", "J6")
@pytest.mark.parametrize(
    "sql",
    [
        "SELECT *, (SELECT MAX(temp) FROM weather) AS x, EXISTS (SELECT 1 FROM weather AS w WHERE w.origin = a.origin) AS y, delay IN (SELECT delay FROM weather) AS z, (SELECT dest FROM flights ORDER BY flight LIMIT 1) AS d FROM flights AS a WHERE delay > (SELECT MIN(delay) FROM flights) AND (flight IN (SELECT delay FROM weather) OR flight > 3)",
        "SELECT DISTINCT * FROM flights WHERE delay > (SELECT AVG(delay) FROM flights)",
        "SELECT a.flight, (SELECT b.dest FROM flights AS b WHERE b.tail = a.tail ORDER BY 1 LIMIT 1) AS d, (SELECT -b.flight AS delay FROM flights AS b WHERE b.tail = a.tail ORDER BY delay DESC, b.flight LIMIT 1) AS e, (SELECT 5 FROM flights AS b WHERE b.tail = a.tail ORDER BY 1 LIMIT 1) AS f FROM flights AS a",
        "SELECT a.flight, l.d, l.f FROM flights AS a, LATERAL (SELECT b.dest AS d, -b.flight AS f FROM flights AS b WHERE b.tail = a.tail ORDER BY d, 2 DESC LIMIT 2) AS l",
        "SELECT a.flight, (SELECT b.delay FROM (SELECT flight AS value, delay, tail FROM flights) AS b WHERE b.tail = a.tail ORDER BY value LIMIT 1) AS d FROM flights AS a",
        "SELECT a.flight, a.dest AS d, b.dest AS e FROM flights AS a JOIN flights AS b ON a.tail = b.tail WHERE a.delay > 30 OR b.dest IN (SELECT dest FROM flights WHERE delay < 10)",
        "SELECT a.flight FROM flights AS a WHERE EXISTS (SELECT 1 FROM flights AS c WHERE delay > 50 AND c.tail = a.tail) AND a.flight NOT IN (SELECT delay FROM weather AS w WHERE delay > 0 AND w.origin = a.origin)",
        "SELECT * FROM flights WHERE EXISTS (SELECT 1 FROM flights WHERE delay > 50 AND flights.tail = 'N1')",
        "SELECT origin, COUNT(*) AS n, (SELECT MAX(delay) FROM flights) AS m, SUM(delay) > (SELECT AVG(delay) FROM flights) AS x, EXISTS (SELECT 1 FROM weather WHERE temp > 30) AS y, (SELECT dest FROM flights ORDER BY flight LIMIT 1) AS z FROM flights GROUP BY origin HAVING COUNT(*) < (SELECT flight FROM flights ORDER BY flight DESC LIMIT 1)",
        "SELECT (SELECT COUNT(*) FROM weather AS w WHERE w.origin = a.origin) AS m, COUNT(*) AS n, (SELECT COUNT(*) FROM weather) AS k FROM flights AS a GROUP BY m",
        "SELECT a.flight, b.flight AS g FROM flights AS a JOIN flights AS b ON a.tail = b.tail WHERE (a.origin, b.origin) IN (SELECT origin, origin FROM weather) AND (SELECT COUNT(*) FROM weather AS w WHERE w.origin = a.origin) IN (SELECT delay FROM flights)",
        "SELECT tail, (SELECT SUM(ABS(delay)) + 1) AS s FROM flights GROUP BY tail HAVING (SELECT MAX(delay)) > 3",
        "SELECT (SELECT MAX(delay)) AS m FROM flights",
        "SELECT flight, (SELECT MAX(temp) FROM weather WHERE temp > 3 AND (delay > 2 OR temp > 30)) AS m FROM flights WHERE delay > 3 OR EXISTS (SELECT 1 FROM weather WHERE temp > 3 AND delay > 2)",
        "SELECT a.flight, l.n FROM flights AS a, LATERAL (SELECT COUNT(*) AS n FROM weather AS w WHERE w.origin = a.origin AND w.temp > 3 AND w.delay > 2) AS l",
        "SELECT delay % 2 AS k, (SELECT MAX(temp) FROM weather) AS m, COUNT(*) AS n FROM flights GROUP BY delay % 2",
    ],
)
def test_subqueries_beside_others_answer_as_duckdb_does_in_both_modes(sql: str) -> None:
    check(sql, 3)


@pytest.mark.parametrize(
    ("sql", "several"),
    [
        ("(a, b) IN (SELECT c, d FROM u) AND x > 1", False),
        ("(a, b) NOT IN (SELECT c, d FROM u)", True),
        ("((a, b) IN (SELECT c, d FROM u)) = false", True),
        ("(a, b) IN (SELECT c, d FROM u) OR x > 1", False),
        ("((a, b) IN (SELECT c, d FROM u) OR x > 1) IS NULL", True),
        ("x > 1 GROUP BY a, b HAVING (a, b) IN (SELECT c, d FROM u)", False),
        ("x > 1 QUALIFY (a, b) IN (SELECT c, d FROM u)", False),
        ("a IN (SELECT c FROM u JOIN v ON (u.a, v.b) IN (SELECT c, d FROM w))", False),
    ],
)
def test_the_engines_plan_answers_in_of_several_columns_where_null_is_as_false(sql: str, several: bool) -> None:
    assert differs(parsed(f"SELECT a FROM t WHERE {sql}", "statement")[1]) is several


@pytest.mark.parametrize(
    ("sql", "message"),
    [
        ("SELECT origin FROM flights INTERSECT SELECT origin FROM weather", "a semi-join"),
        ("SELECT origin FROM flights UNION ALL SELECT origin FROM weather EMIT CHANGES", "rows that do not change"),
        (
            "SELECT origin, dest FROM flights EXCEPT SELECT origin FROM weather EMIT CHANGES",
            "2 and 1: origin, dest; origin",
        ),
        (
            "SELECT origin FROM flights EXCEPT SELECT delay FROM weather EMIT CHANGES",
            "origin string, got origin bigint",
        ),
        ("SELECT flight FROM flights WHERE delay > (SELECT AVG(delay) FROM flights)", "EMIT CHANGES"),
        (
            "SELECT (SELECT MAX(delay) FROM flights) AS m, (SELECT COUNT(*) FROM weather) AS n EMIT CHANGES",
            "CROSS JOIN (SELECT COUNT(*)",
        ),
        ("SELECT DISTINCT ON (origin) origin, flight FROM flights EMIT CHANGES", "QUALIFY ROW_NUMBER()"),
        (
            "SELECT origin, COUNT(*) AS n FROM flights AS a GROUP BY origin HAVING COUNT(*) > (SELECT COUNT(*) FROM weather AS w WHERE w.origin = a.origin) EMIT CHANGES",
            "around the groups",
        ),
        (
            "SELECT (SELECT w.temp FROM weather AS w WHERE w.origin = a.origin) AS t FROM flights AS a EMIT CHANGES",
            "several rows",
        ),
        (
            "SELECT (SELECT MAX(w.temp) FROM weather AS w WHERE w.delay < a.delay) AS t FROM flights AS a EMIT CHANGES",
            "column 52",
        ),
        (
            "SELECT flight FROM flights WHERE (tail, delay) IN (SELECT tail FROM flights) EMIT CHANGES",
            "1 columns in IN (SELECT ...) for 2",
        ),
        (
            "SELECT origin, ARRAY_AGG(dest ORDER BY flight) AS dests FROM flights GROUP BY origin EMIT CHANGES",
            "MIN_BY(x, y)",
        ),
        (
            "SELECT flight FROM flights WHERE EXISTS (SELECT COUNT(*) FROM weather) EMIT CHANGES",
            "so that EXISTS is true",
        ),
        (
            "SELECT EXISTS (SELECT MAX(w.temp) FROM weather AS w WHERE w.delay = a.delay) AS x FROM flights AS a EMIT CHANGES",
            "so that EXISTS is true",
        ),
        ("SELECT EXISTS (SELECT 1 FROM weather LIMIT 0) AS x FROM flights EMIT CHANGES", "several rows"),
        ("SELECT flight FROM flights WHERE EXISTS (SELECT explode(array(delay))) EMIT CHANGES", "several rows of one"),
        (
            "SELECT a.flight FROM flights AS a WHERE a.flight IN (SELECT COUNT(*) FROM weather AS w WHERE w.origin = a.origin) EMIT CHANGES",
            "x = (SELECT COUNT(*)",
        ),
        ("SELECT (SELECT SUM((SELECT MAX(temp) FROM weather))) AS s FROM flights EMIT CHANGES", "without FROM"),
        ("SELECT tail, COUNT(*) AS m, (SELECT COUNT(*)) AS n FROM flights GROUP BY tail EMIT CHANGES", "without FROM"),
        ("SELECT tail FROM flights GROUP BY tail HAVING 2 > (SELECT ABS(SUM(1))) EMIT CHANGES", "without FROM"),
        (
            "SELECT (SELECT b.dest FROM flights AS b ORDER BY 2 LIMIT 1) AS d FROM flights AS a EMIT CHANGES",
            "the number of no column",
        ),
        (
            "SELECT (SELECT -b.flight AS delay FROM flights AS b ORDER BY -delay LIMIT 1) AS d FROM flights AS a EMIT CHANGES",
            "an alias in an expression",
        ),
        (
            "SELECT origin FROM flights GROUP BY origin HAVING COUNT(*) IN (SELECT delay FROM weather) EMIT CHANGES",
            "around the groups",
        ),
        (
            "SELECT origin, ARRAY_AGG(tail ORDER BY tail) OVER (PARTITION BY origin) AS x FROM flights EMIT CHANGES",
            "SORT_ARRAY(ARRAY_AGG(x) OVER",
        ),
        ("SELECT flight FROM flights WHERE EXISTS (SELECT 1 FROM weather LIMIT 0) EMIT CHANGES", "got EXISTS, of more"),
        (
            "SELECT origin, origin IN (SELECT origin FROM weather) AS x FROM flights GROUP BY origin EMIT CHANGES",
            "got 'origin IN (SELECT origin FROM weather)'",
        ),
        (
            "SELECT (SELECT COUNT(*) + 1 FROM weather AS w WHERE w.delay = a.delay) AS t FROM flights AS a EMIT CHANGES",
            "outside",
        ),
    ],
)
def test_what_cannot_be_said_is_refused_with_the_form_that_can(sql: str, message: str) -> None:
    with pytest.raises(DefinitionError, match="DEFINITION-") as refused:
        sql_operator("together", sql, inputs=TABLES)
    assert message in str(refused.value)


@pytest.mark.parametrize(
    ("where", "version"),
    [
        ("delay > 3 OR flight IN (SELECT delay FROM flights WHERE dest = 'BOS')", "4f48a25d"),
        ("tail = 'N1' OR flight IN (SELECT delay FROM weather WHERE origin = 'EWR')", "408b06fd"),
    ],
)
def test_rows_beside_a_subquery_have_the_columns_that_their_version_is_of(where: str, version: str) -> None:
    operator = sql_operator("o", f"SELECT flight FROM flights WHERE {where} EMIT CHANGES", inputs=TABLES)
    assert operator.version == f"o@{version}"
