"""Drawn statements: the fluent form of the same steps is the same version; DuckDB's answer is the bounded one, and that the unbounded one under random cuts."""

from __future__ import annotations

from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given
from sql_tables import TABLES, Flight, entries_of, flights, oracle, plain

from floodmark import Stream, Tumbling, count, count_distinct, mean, operator, percentile, percentile_disc, sql_operator
from floodmark import max as greatest
from floodmark import min as least
from floodmark import sum as total
from floodmark.testing.proof import bounded, prove

CONDITIONS = [
    "",
    "delay > 10",
    "delay IS NOT NULL AND dest <> 'BOS'",
    "tail IN ('N1', 'N2') OR delay < 0",
    "NOT (flight % 3 = 0)",
]
AGGREGATES: dict[str, tuple[str, Any]] = {
    "n": ("COUNT(*)", count()),
    "known": ("COUNT(delay)", count("delay")),
    "late": ("COUNT(*) FILTER (WHERE delay > 30)", count("CASE WHEN delay > 30 THEN 1 END")),
    "total": ("SUM(delay)", total("delay")),
    "longest": ("MAX(delay + 1)", greatest("delay + 1")),
    "shortest": ("MIN(delay)", least("delay")),
    "average": ("AVG(delay)", mean("delay")),
    "nearly_longest": ("PERCENTILE_CONT(0.9) WITHIN GROUP (ORDER BY delay)", percentile("delay", 0.9)),
    "third": (
        "PERCENTILE_DISC(0.3) WITHIN GROUP (ORDER BY flight) FILTER (WHERE delay > 0)",
        percentile_disc("CASE WHEN delay > 0 THEN flight END", 0.3),
    ),
    "tails": ("COUNT(DISTINCT tail)", count_distinct("tail")),
}
KEYS = [(), ("origin",), ("dest", "tail")]
MINUTES = [7, 30, 60, 90]
HAVING = ["", "n > 1", "n % 2 = 0"]


@st.composite
def statements(draw: st.DrawFn) -> dict[str, Any]:
    names = ["n", *draw(st.lists(st.sampled_from(sorted(AGGREGATES)[1:]), unique=True, max_size=4))]
    return {
        "where": draw(st.sampled_from(CONDITIONS)),
        "keys": draw(st.sampled_from(KEYS)),
        "minutes": draw(st.sampled_from(MINUTES)),
        "aggregates": list(dict.fromkeys(names)),
        "having": draw(st.sampled_from(HAVING)),
        "form": draw(st.sampled_from(["table", "short", "group", "spark"])),
        "seed": draw(st.integers(0, 50)),
    }


def text(case: dict[str, Any]) -> str:
    """The statement in one of the spellings of its window."""
    size, form = case["minutes"], case["form"]
    tables = {
        "table": f"TABLE(TUMBLE(TABLE flights, DESCRIPTOR(scheduled), INTERVAL '{size}' MINUTE))",
        "short": f"TUMBLE(flights, scheduled, '{size} minutes')",
    }
    bounds = {"group": f"TUMBLE(scheduled, INTERVAL '{size}' MINUTES)", "spark": f"window(scheduled, '{size} minutes')"}
    measures = ", ".join(f"{AGGREGATES[name][0]} AS {name}" for name in case["aggregates"])
    where = f"WHERE {case['where']}" if case["where"] else ""
    having = f"HAVING {case['having']}" if case["having"] else ""
    groups = ", ".join([*case["keys"], bounds.get(form, "window_start, window_end")])
    columns = ", ".join([*case["keys"], "window_start", "window_end"])
    return f"SELECT {columns}, {measures}\nFROM {tables.get(form, 'flights')} {where}\nGROUP BY {groups} {having}"


def fluent(case: dict[str, Any]) -> Any:
    """The same steps by the fluent API."""

    def stated(flights: Stream[Flight]) -> Stream:
        stream = flights.filter(case["where"]) if case["where"] else flights
        size = Tumbling(f"{case['minutes']} minutes")
        windowed = stream.key_by(*case["keys"]).window(size) if case["keys"] else stream.window(size)
        result = windowed.aggregate(**{name: AGGREGATES[name][1] for name in case["aggregates"]})
        return result.filter(case["having"]) if case["having"] else result

    return operator(stated)


def question(case: dict[str, Any]) -> str:
    """The same question for DuckDB."""
    bucket = f"time_bucket(INTERVAL '{case['minutes']} minutes', scheduled, TIMESTAMPTZ '1970-01-01 00:00:00+00')"
    columns = ", ".join([*case["keys"], f"{bucket} AS w", f"{bucket} + INTERVAL '{case['minutes']} minutes' AS e"])
    measures = ", ".join(f"{AGGREGATES[name][0]} AS {name}" for name in case["aggregates"])
    where = f"WHERE {case['where']}" if case["where"] else ""
    having = f"WHERE {case['having']}" if case["having"] else ""
    return f"SELECT * FROM (SELECT {columns}, {measures} FROM flights {where} GROUP BY ALL) {having}"


@pytest.mark.feature("Q3", "Q4")
@given(statements())
def test_a_drawn_statement_is_its_fluent_form_and_answers_as_duckdb_does_in_both_modes(case: dict[str, Any]) -> None:
    written = sql_operator("stated", text(case), inputs=TABLES)
    assert written.fingerprint == fluent(case).fingerprint
    rows = {"flights": flights(case["seed"], 40)}
    entries = entries_of(written, rows)
    answer = bounded(written, entries)
    found = plain([values for (_, values), times in answer.items() for _ in range(times)])
    assert found == plain(oracle(question(case), rows))
    proof = prove(written, entries, cuts=1, seed=case["seed"])
    assert proof.seed is None, proof.differences
