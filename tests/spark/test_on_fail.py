"""Expectations that a run judges before it commits, on Spark."""

from __future__ import annotations

import pytest
from judged_readings import ODD, PLAIN, between, expecting, means, warm
from pyspark.sql import SparkSession

from floodmark import Expectation, Operator
from floodmark.core.errors import ExecutionError
from floodmark.testing import Run

ASIDE = expecting(
    means,
    between("quarantine"),
    Expectation("column_values_to_not_be_null", column="mean", on_fail="quarantine", name="filled"),
)
STATELESS = expecting(warm, between("quarantine", "celsius"))
MODES = ("bounded", "unbounded")


@pytest.mark.parametrize(
    ("code", "mode"),
    [
        pytest.param(ASIDE, "unbounded", marks=[pytest.mark.soak, pytest.mark.feature("Z8")], id="windows-unbounded"),
        pytest.param(STATELESS, "bounded", marks=pytest.mark.soak, id="stateless-bounded"),
        pytest.param(ASIDE, "bounded", marks=pytest.mark.soak, id="windows-bounded"),
        pytest.param(STATELESS, "unbounded", marks=pytest.mark.soak, id="stateless-unbounded"),
    ],
)
def test_rows_are_set_aside_as_on_the_embedded_engine(spark: SparkSession, code: Operator, mode: str) -> None:
    del spark
    assert Run("spark", mode)(code, ODD) == Run("memory", "bounded")(code, ODD)


@pytest.mark.parametrize(
    "mode",
    [
        pytest.param("bounded", marks=pytest.mark.soak),
        pytest.param("unbounded", marks=pytest.mark.feature("Z8")),
    ],
)
def test_a_run_stops_before_it_commits(spark: SparkSession, mode: str) -> None:
    del spark
    with pytest.raises(ExecutionError, match="EXECUTION-090") as stopped:
        Run("spark", mode)(expecting(means, between("stop")), ODD)
    assert "for example" in stopped.value.got


@pytest.mark.soak
@pytest.mark.parametrize("mode", MODES)
def test_a_warning_lets_every_row_through(spark: SparkSession, mode: str) -> None:
    del spark
    code = expecting(means, between("warn"))
    assert Run("spark", mode)(code, PLAIN) == Run("memory", "bounded")(means, PLAIN)
