"""Numbers of rows in every part of a statement: at their place among the columns, in joins, in UNION, in conditions that take no first rows, at the end of input as DuckDB has them."""

from __future__ import annotations

from datetime import timedelta

import pytest
from changing import CHANGING, answers, asked, bounded, history
from sql_tables import BEGIN, TABLES, entries_of, flights, oracle, plain

import floodmark as fm
from floodmark.core.errors import DefinitionError
from floodmark.testing import proof

RANKED = "SELECT a, RANK() OVER (ORDER BY a DESC NULLS LAST) AS place, k FROM lefts"
STATEMENTS = {
    "between other columns": RANKED,
    "beside an aggregate": "SELECT k, RANK() OVER (ORDER BY COUNT(*) DESC) AS place, MAX(b) AS most FROM rights GROUP BY k",
    "beside a subquery": "SELECT k, RANK() OVER (ORDER BY COUNT(*) DESC) AS place, (SELECT MAX(b) FROM rights) AS most FROM lefts GROUP BY k",
    "in the star of the first ones": f"SELECT * FROM ({RANKED}) AS q WHERE place <= 2",
    "under other names": f"SELECT p, x FROM ({RANKED}) AS q(x, p, y) WHERE p <= 2 AND y IS NOT NULL",
    "in UNION ALL": f"{RANKED} UNION ALL SELECT b, k, k + 1 FROM rights",
    "of first ones in UNION ALL": f"SELECT * FROM ({RANKED}) AS q WHERE place <= 2 UNION ALL SELECT b, k, k + 1 FROM rights",
    "in EXCEPT": f"SELECT b, k, k + 1 AS n FROM rights EXCEPT ALL {RANKED}",
    "in a join": f"SELECT r.note, q.place FROM rights AS r LEFT JOIN ({RANKED}) AS q ON r.k = q.k AND q.place <= 3",
    "first ones of a join": f"SELECT q.place, r.note FROM ({RANKED}) AS q JOIN rights AS r ON q.k = r.k WHERE q.place <= 2",
    "in WITH, joined with itself": f"WITH w AS ({RANKED}) SELECT x.a, y.k FROM w AS x JOIN w AS y ON x.place = y.place",
    "compared with a subquery": f"SELECT a, place + 1 AS behind FROM ({RANKED}) AS q WHERE place IN (SELECT k FROM rights)",
    "first ones that a subquery has": f"SELECT a FROM ({RANKED}) AS q WHERE place <= 3 AND k IN (SELECT k FROM rights)",
    "in a subquery": "SELECT note FROM rights WHERE k IN (SELECT RANK() OVER (ORDER BY a NULLS LAST) FROM lefts)",
    "greater ones": f"SELECT a, place FROM ({RANKED}) AS q WHERE place > 3",
    "by another column": f"SELECT a, place FROM ({RANKED}) AS q WHERE place <= k OR place % 2 = 0",
    "behind QUALIFY of another number": f"SELECT a, place FROM ({RANKED}) AS q QUALIFY RANK() OVER (PARTITION BY k ORDER BY place DESC) = 1",
    "different ones": "SELECT DISTINCT RANK() OVER (ORDER BY a NULLS LAST) AS place FROM lefts",
    "of array elements": f"SELECT q.place, e.x FROM ({RANKED}) AS q CROSS JOIN UNNEST(array(q.k, 7)) AS e(x) WHERE q.place = 1",
    "first ones beside elements": f"SELECT q.a, e.x FROM ({RANKED}) AS q CROSS JOIN UNNEST(array(q.k, 7)) AS e(x) WHERE q.place <= 3 AND e.x IS NOT NULL",
    "first ones beside constants": f"SELECT q.a, q.place, v.n FROM ({RANKED}) AS q LEFT JOIN (VALUES (1, 'x'), (1, 'y')) AS v(k, n) ON v.k = q.k WHERE q.place <= 3",
    "first ones before constants without partners": f"SELECT q.a, q.place, v.n FROM ({RANKED}) AS q RIGHT JOIN (VALUES (1, 1), (99, 5)) AS v(k, n) ON q.k = v.k WHERE q.place <= 3",
    "first ones beside constants that have a name of theirs": f"SELECT q.a, v.place AS x FROM ({RANKED}) AS q JOIN (VALUES (1, 1), (2, 5)) AS v(k, place) ON q.k = v.k WHERE v.place = 1",
    "elements by the name of a number": f"SELECT q.place, e.place AS x FROM ({RANKED}) AS q CROSS JOIN UNNEST(array(k, 1)) AS e(place) WHERE e.place = 1",
    "read nowhere": f"SELECT q.k, r.note FROM ({RANKED}) AS q JOIN rights AS r ON q.k = r.k",
    "read of one table": f"WITH w AS ({RANKED}) SELECT x.a, y.place FROM w AS x JOIN w AS y ON x.k = y.k",
    "in the order of first rows": "SELECT k, RANK() OVER (ORDER BY a NULLS LAST) AS place, f IS NULL AS n FROM lefts ORDER BY place, k NULLS LAST, n LIMIT 3",
    "in the order of its keys": "SELECT l.k, l.a, RANK() OVER (PARTITION BY l.k ORDER BY l.a NULLS LAST) AS place FROM lefts AS l ORDER BY l.k NULLS LAST, l.a NULLS LAST LIMIT 7",
    "of LATERAL": f"SELECT q.place, l.note FROM ({RANKED}) AS q, LATERAL (SELECT note FROM rights AS r WHERE r.k = q.place ORDER BY note NULLS LAST LIMIT 1) AS l",
    "IN of a column beside a semi-join": "SELECT a, k IN (SELECT b FROM rights) AS known FROM lefts AS l WHERE EXISTS (SELECT 1 FROM rights AS r WHERE r.k = l.k)",
    "IN of a column beside NOT IN": "SELECT a, k IN (SELECT b FROM rights) AS known FROM lefts WHERE a NOT IN (SELECT k FROM rights WHERE k > 1)",
}  # fmt: skip
DUCK = {
    "first ones beside elements": f"SELECT a, x FROM (SELECT a, unnest([k, 7]) AS x FROM ({RANKED}) AS q WHERE place <= 3) WHERE x IS NOT NULL",
    "of array elements": f"SELECT place, unnest([k, 7]) FROM ({RANKED}) AS q WHERE place = 1",
    "elements by the name of a number": f"SELECT * FROM (SELECT place, unnest([k, 1]) AS x FROM ({RANKED}) AS q) WHERE x = 1",
}


@pytest.mark.feature("Q1", "J6")
@pytest.mark.parametrize("name", STATEMENTS)
@pytest.mark.few(10)
def test_numbers_of_rows_are_those_of_duckdb_wherever_they_stand(name: str) -> None:
    sql, question = STATEMENTS[name], DUCK.get(name, STATEMENTS[name])
    read = {table: source for table, source in CHANGING.items() if table in sql}
    operator = fm.sql_operator("numbered", f"{sql} EMIT CHANGES", inputs=read)
    counts = []
    for seed in (5, 11):
        rows = [entry for entry in history(seed, 40) if entry[0] in read]
        whole = asked(question, rows)
        counts.append(len(whole))
        assert bounded(operator, rows)[0] == whole
        done, answer = answers(operator, rows, seed)[-1]
        assert answer == asked(question, rows[:done])
    assert any(counts), "history without a row of the answer"


@pytest.mark.feature("Q1")
def test_first_rows_in_the_order_of_a_number_are_numbered_alone_however_their_columns_are_named() -> None:
    def version(ordered: str, selected: str = "l.a") -> str:
        sql = f"SELECT {selected}, RANK() OVER (ORDER BY l.a DESC) AS place FROM lefts AS l ORDER BY {ordered} LIMIT 3 EMIT CHANGES"
        return fm.sql_operator("first", sql, inputs={"lefts": CHANGING["lefts"]}).version

    assert (version("l.a DESC"), version("a DESC")) == ("first@45ef437b", "first@8e5582b7"), "those of earlier releases"
    assert version("a") != version("a DESC") == version("a DESC", "a")
    with pytest.raises(DefinitionError, match="DEFINITION-382.*beside a number of rows.*Select the column too"):
        version("l.k")


ELEMENTS = "CROSS JOIN UNNEST(array(flight, 7000)) AS e(x)"


@pytest.mark.feature("Q1")
def test_first_rows_beside_unnest_are_those_of_each_time_and_each_window() -> None:
    """Without EMIT CHANGES: ``within``, or the window, says of which rows they are the first."""
    numbered = "SELECT origin, flight, scheduled, ROW_NUMBER() OVER (PARTITION BY origin ORDER BY scheduled) AS rn FROM flights"
    sql = f"SELECT origin, flight, x FROM ({numbered}) AS q {ELEMENTS} WHERE rn = 1"
    first = fm.sql_operator("first", sql, inputs={"flights": TABLES["flights"]}, within="1 day")
    row = {"origin": "EWR", "dest": "BOS", "tail": None, "delay": 1}
    rows = [{**row, "flight": hour, "scheduled": BEGIN + timedelta(hours=hour)} for hour in (0, 5, 30, 31, 60)]
    answer = proof.bounded(first, entries_of(first, {"flights": rows}, 0))
    assert sorted(values for _, values in answer) == [
        ("EWR", flight, x) for flight in (0, 30, 60) for x in sorted({flight, 7000})
    ]

    hours = "TABLE(TUMBLE(TABLE flights, DESCRIPTOR(scheduled), INTERVAL '1' HOUR))"
    numbered = f"SELECT window_start, window_end, origin, flight, ROW_NUMBER() OVER (PARTITION BY window_start, window_end, origin ORDER BY flight) AS rn FROM {hours}"
    sql = f"SELECT origin, flight, rn, x FROM ({numbered}) AS q {ELEMENTS} WHERE rn <= 2"
    drawn = {"flights": flights(1, 40)}
    of_windows = fm.sql_operator("first", sql, inputs={"flights": TABLES["flights"]})
    answer = proof.bounded(of_windows, entries_of(of_windows, drawn, 0))
    question = "SELECT *, ROW_NUMBER() OVER (PARTITION BY origin, date_trunc('hour', scheduled) ORDER BY flight) AS rn FROM flights QUALIFY rn <= 2"
    wanted = plain(oracle(f"SELECT origin, flight, rn, unnest([flight, 7000]) FROM ({question})", drawn))
    assert plain([values for (_, values), times in answer.items() for _ in range(times)]) == wanted
    assert len(wanted) > 2
