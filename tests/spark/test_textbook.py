"""The books' examples on Spark, whose workers run the code of programs: as a stream with a restart and bounded."""

from __future__ import annotations

from pathlib import Path

import pytest
import textbook
from pyspark.sql import SparkSession
from textbook import check_bounded, check_unbounded

from floodmark.testing.spark import SparkCase


@pytest.mark.parametrize(
    "name",
    [
        pytest.param("own_windows", marks=pytest.mark.feature("W10", "L2", "L5")),
        pytest.param("own_sessions", marks=[pytest.mark.soak, pytest.mark.feature("L2")]),
        pytest.param("late_readings", marks=pytest.mark.feature("L9", "P7")),
        pytest.param("joined", marks=pytest.mark.feature("W20", "J3", "J6")),
        pytest.param("rolling_reduce", marks=pytest.mark.feature("X3", "X5")),
    ],
)
def test_a_stream_with_restarts_and_a_bounded_run_give_the_rows_of_the_book(
    spark: SparkSession, name: str, tmp_path: Path
) -> None:
    (tmp_path / "held").mkdir()
    program = textbook.late_readings(tmp_path / "held") if name == "late_readings" else getattr(textbook, name)()
    stream = SparkCase(spark, program.operator, str(tmp_path / "stream"))
    check_unbounded(program, stream)
    check_bounded(program, SparkCase(spark, program.operator, str(tmp_path / "bounded")), stream)
