"""One text, both modes: statements on the embedded engine, unbounded in commits and bounded, against DuckDB's answer to the same question."""

from __future__ import annotations

from pathlib import Path

import pytest
from sql_queries import QUERIES, check

from floodmark.control.processes.engine import Computing


@pytest.mark.feature("Q1", "Q3", "J6", "Z26")
@pytest.mark.parametrize("case", QUERIES)
@pytest.mark.few(8)
def test_a_statement_gives_the_same_bounded_unbounded_and_in_duckdb(
    embedded: Computing, tmp_path: Path, case: str
) -> None:
    check(embedded, tmp_path, case)
