"""Bounded runs on the embedded engine: the oracle's answers. That they are Spark's rows is in tests/spark/test_modes.py."""

from __future__ import annotations

from pathlib import Path

import pytest
from flights import BOUND_MINUTES, against_oracle

from demo.oracle import Oracle
from floodmark.engines.embedded.bounded.run import run_bounded
from floodmark.engines.embedded.sail.session import shared
from floodmark.lake.folder.paths import Lake
from floodmark.spec.graph.operator import Operator
from operators.flights import busiest_hour, daily_carriers, hourly_departures, rolling_departures, split_delays

OPERATORS = [hourly_departures, rolling_departures, daily_carriers, busiest_hour, split_delays]


@pytest.fixture(scope="module")
def computed(landed: Lake, tmp_path_factory: pytest.TempPathFactory) -> Lake:
    lake = Lake(str(tmp_path_factory.mktemp("embedded")), logs=landed.root)
    for operator in OPERATORS:
        run_bounded(shared(), operator, lake)
    return lake


@pytest.mark.parametrize("operator", OPERATORS, ids=lambda o: o.name)
def test_the_answer_is_duckdb_s(computed: Lake, operator: Operator, flights_inbox: Path) -> None:
    for comparison in against_oracle(computed, operator, Oracle(flights_inbox, bound_minutes=BOUND_MINUTES)):
        assert comparison.differences == 0, comparison.examples
