"""Table programs as statements: what each gives before a savepoint, behind it, at the end of its input and bounded; or the code with which it is refused."""

from __future__ import annotations

import random

import pytest
from seeds import seed_of
from table_programs import FLINK, PATTERNS, Suite


@pytest.mark.parametrize("suite", [FLINK, PATTERNS])
def test_each_program_has_a_verdict(suite: Suite) -> None:
    assert suite.verdicts.keys() == suite.programs.keys()
    assert all(verdict["verdict"] == "passed" or verdict["reason"] for verdict in suite.verdicts.values())


@pytest.mark.feature("Q1", "Q3", "Q4", "J6")
@pytest.mark.parametrize("name", FLINK.programs)
def test_a_program_of_flink_gives_what_its_verdict_says(name: str) -> None:
    FLINK.check(name)


@pytest.mark.feature("C1", "Q3")
@pytest.mark.parametrize("name", PATTERNS.programs)
def test_a_row_pattern_in_sql_gives_what_its_verdict_says(name: str) -> None:
    PATTERNS.check(name)


@pytest.mark.feature("C1", "C3", "Q3")
@pytest.mark.parametrize("name", [name for name, verdict in PATTERNS.verdicts.items() if "code" not in verdict])
def test_a_row_pattern_in_sql_gives_the_same_however_its_rows_are_cut(name: str) -> None:
    program, draw = PATTERNS.program(name), random.Random(seed_of(f"cuts of {name}"))
    expected = program.bounded()
    for _ in range(3):
        assert program.cut(draw) == expected
