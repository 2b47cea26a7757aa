"""Drawn statements on the embedded engine: a stream that SIGKILL ends between its writes goes on to the bounded answer, which is DuckDB's."""

from __future__ import annotations

from pathlib import Path

import pytest
from drawn_answers import asked, plain, rows_of
from drawn_statements import statement
from seeds import seed_of

from floodmark.spec.workspace import Settings
from floodmark.testing.killed_proof import prove_by_killing

NUMBERS = [0, *(pytest.param(number, marks=pytest.mark.soak) for number in range(1, 24))]


@pytest.mark.feature("Q1", "Q3")
@pytest.mark.parametrize("number", NUMBERS)
def test_a_killed_stream_of_a_drawn_statement_goes_on_to_the_bounded_answer(tmp_path: Path, number: int) -> None:
    seed = seed_of(f"killed statement {number}")
    drawn = statement(seed)
    rows = rows_of(drawn, seed, 60)
    proof = prove_by_killing("embedded", drawn.operator(), rows, str(tmp_path), Settings(lake=str(tmp_path)), seed=seed)
    assert proof.differences == (), f"seed {seed}: {drawn.sql}"
    assert proof.results == sum(plain(asked(drawn.relation.duck, rows)).values())
