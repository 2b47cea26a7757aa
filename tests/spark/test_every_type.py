"""Values of every type through a log and a state of Spark's."""

from __future__ import annotations

import every_type
import pytest
from pyspark.sql import SparkSession

from floodmark.testing import RUNS, Run


@pytest.mark.feature("X11")
@pytest.mark.parametrize("run", [run for run in RUNS if run.engine == "spark"], ids=str)
def test_values_of_every_type_come_out_of_logs_and_states_as_they_went_in(spark: SparkSession, run: Run) -> None:
    every_type.check(run)
