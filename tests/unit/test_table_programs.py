"""Flink's table programs as statements: what each gives before a savepoint, behind it, at the end of its input and bounded; or the code with which it is refused."""

from __future__ import annotations

import pytest
from table_programs import PROGRAMS, VERDICTS, Program

from floodmark.core.errors import FloodmarkError


def test_each_program_has_a_verdict() -> None:
    assert VERDICTS.keys() == PROGRAMS.keys()
    assert all(verdict["verdict"] == "passed" or verdict["reason"] for verdict in VERDICTS.values())


@pytest.mark.feature("Q1", "Q3", "Q4", "J6")
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_of_flink_gives_what_its_verdict_says(name: str) -> None:
    verdict = VERDICTS[name]
    program = Program(name, emit=verdict.get("emit", False))
    if verdict["verdict"] == "refused":
        with pytest.raises(FloodmarkError) as raised:
            assert program.operator
        assert raised.value.code == verdict["code"]
        return
    assert bool(program.differences()) == (verdict["verdict"] == "different")
