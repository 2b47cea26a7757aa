"""One text, both engines: statements on Spark, unbounded in commits and bounded, against DuckDB's answer to the same question."""

from __future__ import annotations

from pathlib import Path

import pytest
from sql_queries import QUERIES, check, check_shapes

from floodmark.control.processes.engine import Computing

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
