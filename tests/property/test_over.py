"""Drawn results over rows: a statement is its fluent form, DuckDB's answer is the bounded one, and that the unbounded one under random cuts."""

from __future__ import annotations

import random
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given
from sql_tables import TABLES, Flight, entries_of, flights, oracle, plain

import floodmark as fm
from floodmark import Stream, sql_operator
from floodmark.testing.proof import bounded, prove

MEASURES: dict[str, tuple[str, str, Any]] = {
    "n": ("COUNT(*)", "COUNT(*)", fm.count()),
    "known": ("COUNT(delay)", "COUNT(delay)", fm.count("delay")),
    "total": ("SUM(delay)", "SUM(delay)", fm.sum("delay")),
    "average": ("AVG(delay)", "AVG(delay)", fm.mean("delay")),
    "least": ("MIN(delay)", "MIN(delay)", fm.min("delay")),
    "most": ("MAX(delay + 1)", "MAX(delay + 1)", fm.max("delay + 1")),
    "tails": ("COUNT(DISTINCT tail)", "COUNT(DISTINCT tail)", fm.count_distinct("tail")),
    "middle": ("MEDIAN(delay)", "MEDIAN(delay)", fm.median("delay")),
}
ORDERED: dict[str, tuple[str, str, Any]] = {
    "opened": ("FIRST_VALUE(tail)", "FIRST_VALUE(tail)", fm.first("tail")),
    "ended": ("LAST_VALUE(dest)", "LAST_VALUE(dest)", fm.last("dest")),
    "before": ("LAG(delay, 2, -1)", "LAG(delay, 2, -1)", fm.lag("delay", 2, "-1")),
    "place": ("ROW_NUMBER()", "ROW_NUMBER()", fm.row_number()),
}
FRAMES: dict[str, tuple[str, dict[str, Any]]] = {
    "": ("", {}),
    "range": ("RANGE BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW", {}),
    "rows": ("ROWS UNBOUNDED PRECEDING", {"rows": "all"}),
    "none": ("ROWS BETWEEN CURRENT ROW AND CURRENT ROW", {"rows": 0}),
    "one": ("ROWS 1 PRECEDING", {"rows": 1}),
    "five": ("ROWS BETWEEN 5 PRECEDING AND CURRENT ROW", {"rows": 5}),
    "minutes": ("RANGE BETWEEN INTERVAL '20' MINUTE PRECEDING AND CURRENT ROW", {"within": "20 minutes"}),
    "now": ("RANGE BETWEEN CURRENT ROW AND CURRENT ROW", {"within": "0 s"}),
}
KEYS = [(), ("origin",), ("dest", "tail")]


@st.composite
def questions(draw: st.DrawFn) -> dict[str, Any]:
    frame = draw(st.sampled_from(sorted(FRAMES)))
    known = MEASURES | (ORDERED if frame in {"rows", "none", "one", "five"} else {})
    return {
        "frame": frame,
        "keys": draw(st.sampled_from(KEYS)),
        "measures": draw(st.lists(st.sampled_from(sorted(known)), unique=True, min_size=1, max_size=5)),
        "where": draw(st.sampled_from(["", "delay > 0"])),
        "seed": draw(st.integers(0, 50)),
        "size": draw(st.sampled_from([1, 40, 90])),
    }


def text(case: dict[str, Any], place: int, tie: str = "") -> str:
    """The statement for floodmark, or for DuckDB, where rows of one event time are told apart by their number."""
    partition = f"PARTITION BY {', '.join(case['keys'])} " if case["keys"] else ""
    over = f"OVER ({partition}ORDER BY scheduled{tie} {FRAMES[case['frame']][0]})"
    measures = ", ".join(f"{(MEASURES | ORDERED)[name][place]} {over} AS {name}" for name in case["measures"])
    names = [*case["keys"], *(name for name in Flight.model_fields if name not in case["keys"])]
    where = f"WHERE {case['where']}" if case["where"] else ""
    return f"SELECT {', '.join(names)}, {measures} FROM flights {where}"


def fluent(case: dict[str, Any]) -> Any:
    """The same steps by the fluent API."""

    def stated(flights: Stream[Flight]) -> Stream:
        rows = flights.filter(case["where"]) if case["where"] else flights
        measures = {name: (MEASURES | ORDERED)[name][2] for name in case["measures"]}
        frame = FRAMES[case["frame"]][1]
        return rows.key_by(*case["keys"]).over(**frame, **measures) if case["keys"] else rows.over(**frame, **measures)

    return fm.operator(stated)


@pytest.mark.feature("Q3")
@given(questions())
def test_results_over_rows_are_duckdbs_in_both_modes_under_any_cuts(case: dict[str, Any]) -> None:
    written = sql_operator("stated", text(case, 0), inputs=TABLES)
    assert written.fingerprint == fluent(case).fingerprint
    rows = {"flights": flights(case["seed"], case["size"])}
    entries = entries_of(written, rows)
    answer = bounded(written, entries)
    found = plain([values for (_, values), times in answer.items() for _ in range(times)])
    tie = ", flight" if FRAMES[case["frame"]][0].startswith("ROWS") else ""
    assert found == plain(oracle(text(case, 1, tie), rows))
    proof = prove(written, entries, cuts=2, seed=case["seed"])
    assert proof.seed is None, proof.differences


@given(st.integers(0, 200))
def test_rows_of_one_event_time_come_in_the_order_in_which_they_landed(seed: int) -> None:
    drawn = random.Random(seed)
    rows = {"flights": flights(seed, 30)}
    for row in rows["flights"]:
        row["scheduled"] = row["scheduled"].replace(minute=drawn.choice([0, 30]))
        row["delay"] = drawn.choice([None, 1, 2])
    rows["flights"].sort(key=lambda row: row["scheduled"])
    sql = "SELECT flight, SUM(delay) OVER w AS total, LAG(delay) OVER w AS before FROM flights WINDOW w AS ({})"
    written = sql_operator("stated", sql.format("ORDER BY scheduled ROWS 3 PRECEDING"), inputs=TABLES)
    tied = {"flights": [row | {"place": place} for place, row in enumerate(rows["flights"])]}
    entries = entries_of(written, rows)
    answer = bounded(written, entries)
    found = plain([values for (_, values), times in answer.items() for _ in range(times)])
    assert found == plain(oracle(sql.format("ORDER BY scheduled, place ROWS 3 PRECEDING"), tied))
    assert prove(written, entries, cuts=2, seed=seed).seed is None
