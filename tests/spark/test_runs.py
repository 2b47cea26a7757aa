"""The helper for users' tests that runs an operator on Spark."""

from __future__ import annotations

import pytest
from hourly_sums import ROWS, sums

from floodmark.testing import IN_MEMORY, RUNS


@pytest.mark.feature("B1", "Z22")
@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize(
    "run",
    [
        pytest.param(run, marks=pytest.mark.soak) if (run.engine, run.mode) == ("spark", "unbounded") else run
        for run in RUNS
        if run not in IN_MEMORY
    ],
    ids=str,
)
def test_both_modes_give_the_same_on_spark(run):
    found = run(sums, {"readings": ROWS}, delay="30 minutes")[""]
    assert [(row["window_start"].hour, row["n"], row["total"]) for row in found] == [(9, 2, 5), (10, 1, None)]
