"""One text, both engines: statements on Spark, unbounded in commits and bounded, against DuckDB's answer to the same question."""

from __future__ import annotations

from pathlib import Path

import pytest
from seeds import seed_of
from sql_queries import QUERIES, check, check_shapes
from sql_tables import TABLES, entries_of, flights, oracle, weather
from versions_of_changes import taken_back

from floodmark import sql_operator
from floodmark.control.processes.engine import Computing
from floodmark.spec.graph.operator import Operator
from floodmark.spec.workspace import Settings
from floodmark.testing.killed_proof import prove_by_killing
from floodmark.testing.proof import Entry

ALWAYS = ("first rows and tiles", "flights and any weather", "lives")
"""The statements of every run; the others run in ``make soak``."""


@pytest.mark.feature("Q3")
@pytest.mark.engines("spark")
@pytest.mark.parametrize(
    "case", [*ALWAYS, *(pytest.param(n, marks=pytest.mark.soak) for n in QUERIES if n not in ALWAYS)]
)
def test_a_statement_gives_the_same_on_spark(engine: Computing, tmp_path: Path, case: str) -> None:
    check(engine, tmp_path, case)


@pytest.mark.feature("Z17")
@pytest.mark.engines("spark")
def test_shapes_of_batch_are_answered_in_bounded_runs(engine: Computing, tmp_path: Path) -> None:
    check_shapes(engine, tmp_path)


def entries_of_case(case: str, size: int = 50) -> tuple[Operator, list[Entry], int]:
    """(operator of a statement, entries of its tables, number of rows that DuckDB answers with)."""
    sql, question = QUERIES[case]
    rows = {"flights": flights(1, size), "weather": weather(1)}
    operator = sql_operator(case.replace(" ", "_"), sql, inputs=TABLES)
    return operator, entries_of(operator, rows), len(oracle(question, rows))


@pytest.mark.soak
@pytest.mark.spark
@pytest.mark.feature("Q1", "J4")
@pytest.mark.parametrize(
    "case",
    [
        "second page",
        "weather of each flight",
        "first rows and tiles",
        "weather in the hour before",
        "versions of changes",
    ],
)
def test_a_killed_statement_on_spark_goes_on_to_the_answer(tmp_path: Path, case: str) -> None:
    if case == "versions of changes":
        operator, entries, left = taken_back(3, "LEFT JOIN")
        expected = len(left)
    else:
        operator, entries, expected = entries_of_case(case, 20_000 if case == "weather in the hour before" else 50)
    settings, seed = Settings(lake=str(tmp_path)), seed_of(f"killed {case}")
    proof = prove_by_killing("spark", operator, entries, str(tmp_path), settings, seed=seed)
    assert proof.differences == (), f"killed at {proof.killed_at}"
    assert proof.results == expected
