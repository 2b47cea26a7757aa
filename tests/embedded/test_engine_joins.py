"""Bounded joins that the engine computes as one plan."""

from __future__ import annotations

from pathlib import Path

import pytest
from deltalake import DeltaTable
from engine_joins import JOINS, check

from floodmark.control.processes.engine import Computing


@pytest.mark.feature("J7", "J6", "B6")
@pytest.mark.parametrize("case", JOINS)
@pytest.mark.few(3)
def test_a_bounded_join_of_the_engine_has_the_rows_of_the_kernel(engine: Computing, tmp_path: Path, case: str) -> None:
    check(engine, tmp_path, case)


@pytest.mark.feature("B6")
def test_last_values_of_rows_that_all_stay_are_the_same_files(engine: Computing, tmp_path: Path) -> None:
    check(engine, tmp_path, "inner")
    output, current = (
        DeltaTable(str(path)).file_uris() for path in sorted(Path(tmp_path, "outputs").glob("together*"))
    )
    assert {Path(file).stat().st_ino for file in output} == {Path(file).stat().st_ino for file in current}
