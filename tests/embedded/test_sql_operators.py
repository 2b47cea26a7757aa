"""One text, both modes: statements on the embedded engine, unbounded in commits and bounded, against DuckDB's answer to the same question."""

from __future__ import annotations

from pathlib import Path

import pytest
from sql_queries import QUERIES, check, check_shapes

from floodmark.control.processes.engine import Computing


@pytest.mark.feature("Q1", "Q3", "J6", "Z26")
@pytest.mark.parametrize("case", QUERIES)
@pytest.mark.few(8)
def test_a_statement_gives_the_same_bounded_unbounded_and_in_duckdb(
    embedded: Computing, tmp_path: Path, case: str
) -> None:
    check(embedded, tmp_path, case)


@pytest.mark.feature("Z17")
def test_shapes_of_batch_are_answered_in_bounded_runs(embedded: Computing, tmp_path: Path) -> None:
    check_shapes(embedded, tmp_path)
