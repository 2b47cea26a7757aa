"""Bounded joins that the engine computes as one plan."""

from __future__ import annotations

from pathlib import Path

import pytest
from engine_joins import JOINS, check

from floodmark.control.processes.engine import Computing


@pytest.mark.feature("J7", "J6", "B6")
@pytest.mark.parametrize("case", JOINS)
def test_a_bounded_join_of_the_engine_has_the_rows_of_the_kernel(engine: Computing, tmp_path: Path, case: str) -> None:
    check(engine, tmp_path, case)
