"""Rows of a row, and rows with their windows: DuckDB's answer in both modes under random cuts."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given
from pydantic import BaseModel
from sql_tables import TABLES, entries_of, flights, oracle, plain

from floodmark import Contract, EventTime, sql_operator
from floodmark.core.errors import FloodmarkError
from floodmark.testing import IN_MEMORY
from floodmark.testing.proof import bounded, prove

EPOCH = "TIMESTAMPTZ '1970-01-01 00:00:00+00'"
STATEMENTS = {
    "array": (
        "SELECT flight, place FROM flights CROSS JOIN UNNEST(array(origin, dest)) AS l(place) WHERE place <> 'BOS'",
        "SELECT flight, place FROM (SELECT flight, unnest([origin, dest]) AS place FROM flights) WHERE place <> 'BOS'",
    ),
    "comma": (
        "SELECT flight, l.x + 1 AS y FROM flights, UNNEST(array(delay, flight)) AS l(x)",
        "SELECT flight, x + 1 FROM (SELECT flight, unnest([delay, flight]) AS x FROM flights)",
    ),
    "position": (
        "SELECT flight, x, n FROM flights CROSS JOIN UNNEST(array(delay, flight)) WITH ORDINALITY AS l(x, n)",
        "SELECT flight, unnest([delay, flight]), unnest([1, 2]) FROM flights",
    ),
    "view": (
        "SELECT flight, word FROM flights LATERAL VIEW explode(array(origin, tail)) w AS word",
        "SELECT flight, unnest([origin, tail]) FROM flights",
    ),
    "tumbling": (
        "SELECT flight, scheduled, window_start, window_end, window_time FROM TABLE(TUMBLE(TABLE flights, DESCRIPTOR(scheduled), INTERVAL '40' MINUTES, INTERVAL '7' MINUTES))",
        f"""SELECT flight, scheduled, w, w + INTERVAL '40 minutes', w + INTERVAL '40 minutes' - INTERVAL '1 millisecond'
            FROM (SELECT *, time_bucket(INTERVAL '40 minutes', scheduled, {EPOCH} + INTERVAL '7 minutes') AS w FROM flights)""",
    ),
    "sliding": (
        "SELECT flight, scheduled, window_end FROM HOP(flights, scheduled, INTERVAL '20' MINUTES, INTERVAL '1' HOUR) WHERE delay > 5",
        f"""SELECT flight, scheduled, w + n * INTERVAL '20 minutes' FROM (SELECT *, time_bucket(INTERVAL '20 minutes', scheduled, {EPOCH}) AS w FROM flights),
            (SELECT unnest([1, 2, 3]) AS n) WHERE delay > 5""",
    ),
    "growing": (
        "SELECT flight, scheduled, window_start, window_end FROM CUMULATE(flights, scheduled, INTERVAL '30' MINUTES, INTERVAL '90' MINUTES)",
        f"""SELECT flight, scheduled, w, w + n * INTERVAL '30 minutes' FROM (SELECT *, time_bucket(INTERVAL '90 minutes', scheduled, {EPOCH}) AS w FROM flights),
            (SELECT unnest([1, 2, 3]) AS n) WHERE scheduled < w + n * INTERVAL '30 minutes'""",
    ),
}  # fmt: skip


@pytest.mark.feature("Q3", "Q4")
@pytest.mark.parametrize("case", STATEMENTS)
@given(seed=st.integers(0, 100))
@pytest.mark.few(3)
def test_rows_of_a_row_are_duckdbs(case: str, seed: int) -> None:
    sql, question = STATEMENTS[case]
    written = sql_operator("stated", sql, inputs=TABLES)
    rows = {"flights": flights(seed, 20)}
    entries = entries_of(written, rows)
    found = plain([values for (_, values), times in bounded(written, entries).items() for _ in range(times)])
    assert found == plain(oracle(question, rows))
    assert prove(written, entries, cuts=1, seed=seed).seed is None


class Pair(BaseModel):
    """A value of several columns."""

    a: int
    b: str


class Held(Contract):
    """A row with several values in one."""

    at: EventTime
    n: int
    tags: list[str] | None = None
    counts: dict[str, int] | None = None
    pairs: list[Pair] | None = None


HELD: list[dict[str, Any]] = [
    {"n": 1, "tags": ["a", None, "b"], "counts": {"x": 1, "y": 2}, "pairs": [{"a": 1, "b": "x"}]},
    {"n": 2, "tags": [], "counts": {}, "pairs": []},
    {"n": 3, "tags": None, "counts": None, "pairs": None},
]
ROWS = {
    "SELECT n, tag FROM held CROSS JOIN UNNEST(tags) AS t(tag)": [(1, None), (1, "a"), (1, "b")],
    "SELECT n, tag, k FROM held LEFT JOIN UNNEST(tags) WITH ORDINALITY AS t(tag, k) ON TRUE": [
        (1, None, 2),
        (1, "a", 1),
        (1, "b", 3),
        (2, None, None),
        (3, None, None),
    ],
    "SELECT n, word, times FROM held, UNNEST(counts) AS c(word, times)": [(1, "x", 1), (1, "y", 2)],
    "SELECT n, tag FROM held LATERAL VIEW OUTER explode(tags) t AS tag WHERE n > 1": [(2, None), (3, None)],
    "SELECT n, tag FROM held LATERAL VIEW explode_outer(tags) t AS tag WHERE n > 1": [(2, None), (3, None)],
    "SELECT n, k, tag FROM held LATERAL VIEW posexplode_outer(tags) t AS k, tag WHERE n > 1": [
        (2, None, None),
        (3, None, None),
    ],
    "SELECT n, a, b FROM held LATERAL VIEW inline_outer(pairs) t AS a, b": [
        (1, 1, "x"),
        (2, None, None),
        (3, None, None),
    ],
    "SELECT n, a, b FROM held LATERAL VIEW inline(pairs) t AS a, b": [(1, 1, "x")],
}


@pytest.mark.parametrize("sql", ROWS)
def test_nulls_and_nothing_in_an_array_and_a_map_are_as_in_sql(sql: str) -> None:
    written = sql_operator("stated", sql, inputs={"held": Held})
    rows = [{"at": datetime(2020, 1, 1, tzinfo=UTC), **values} for values in HELD]
    results = IN_MEMORY[1](written, {"held": rows})[""]
    assert sorted((tuple(row.values()) for row in results), key=repr) == sorted(ROWS[sql], key=repr)


REFUSED: dict[str, Any] = {
    "SELECT flight FROM flights CROSS JOIN UNNEST(delay) AS l(x)": "DEFINITION-041 .*an array or a map",
    "SELECT flight FROM flights CROSS JOIN UNNEST(array(delay)) AS l(x, y)": "DEFINITION-050 .*2 names",
    "SELECT flight FROM flights LEFT JOIN UNNEST(array(delay)) AS l(x) ON x > 3": "several rows of one",
    "SELECT flight, explode(array(1, 2)) AS x FROM flights": "CROSS JOIN UNNEST",
    "SELECT flight, window_start FROM SESSION(flights, scheduled, '5 minutes')": "DEFINITION-384",
    "SELECT flight, scheduled, window_end FROM TUMBLE(flights, _processing_time, '5 minutes')": "DEFINITION-384",
}


@pytest.mark.parametrize("sql", REFUSED)
def test_rows_that_no_row_makes_are_refused(sql: str) -> None:
    with pytest.raises(FloodmarkError, match=REFUSED[sql]):
        sql_operator("x", sql, inputs=TABLES)
