"""Drawn statements of the whole grammar: one answer by SQL, by the fluent API and by DuckDB, bounded and at every cut of a stream."""

from __future__ import annotations

import pytest
from drawn_answers import check
from drawn_statements import statement
from seeds import seed_of

NUMBERS = [*range(12), *(pytest.param(number, marks=pytest.mark.soak) for number in range(12, 300))]


@pytest.mark.feature("Q1", "Q3", "Q4", "J6")
@pytest.mark.parametrize("number", NUMBERS)
@pytest.mark.few(4)
def test_a_drawn_statement_has_one_answer_bounded_fluent_and_at_every_cut(number: int) -> None:
    seed = seed_of(f"statement {number}")
    drawn = statement(seed)
    try:
        check(drawn, seed)
    except AssertionError as error:
        error.add_note(f"seed {seed}: {drawn.sql}")
        raise
