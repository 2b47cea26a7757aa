"""Drift in Dagster: the check of a partition compares it with those before it, and a blocking one closes its gate."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from dagster_runs import Dagster, settings
from events import Event, row, source

from floodmark import Expectation, Hourly, Stream, Workspace, operator, operator_asset
from floodmark.control.processes.engine import Computing
from floodmark.lake.folder.paths import Lake
from floodmark.lake.results import gates

HOURS = Hourly("2020-01-01T00:00", end="2020-01-01T06:00")
BAD = 4


@operator
def readings(events: Stream[Event]) -> Stream:
    """All of them."""
    return events.filter("value >= 0")


@pytest.mark.feature("Z8")
@pytest.mark.engines("embedded", soak=("spark",))
def test_a_partition_is_compared_with_those_before_it(
    engine: Computing, tmp_path: Path, dagster_of: Callable[[Workspace, Path], Dagster]
) -> None:
    rows = [row(minute) | {"value": minute % 5 + (100 if minute // 60 == BAD else 0)} for minute in range(360)]
    value = Expectation("column_drift", column="value", name="value", blocking=True)
    many = Expectation("table_row_count_drift", last=3, tolerance=0.1, name="many")
    found = Workspace(
        sources=[source(rows)],
        operators=[operator_asset(readings, partitions=HOURS, expectations=[value, many])],
        settings=settings(engine, lake="lake"),
    ).at(str(tmp_path))
    lake, dagster = Lake.of(found.settings), dagster_of(found, tmp_path)
    engine.land(found.source("events"), lake, end=True)
    done = dagster.run("readings", partitions=("2020-01-01-00:00", "2020-01-01-05:00"))
    told = {(name, key): (passed, numbers["judged"]) for (name, key), (passed, numbers) in done.checked.items()}
    hours = [f"2020-01-01-0{hour}:00" for hour in range(6)]
    assert [told["value", key] for key in hours] == [
        (True, False), (True, False), (True, False), (True, True), (False, True), (True, True),
    ]  # fmt: skip
    assert [told["many", key] for key in hours] == [(True, hour >= 3) for hour in range(6)]
    numbers = done.checked["value", hours[BAD]][1]
    assert (numbers["observed_value"], numbers["mean before"], numbers["partitions before"]) == (102.0, 2.0, 4)
    assert [one.partition for one in gates.closed(lake.output("readings"))] == [hours[BAD]]
