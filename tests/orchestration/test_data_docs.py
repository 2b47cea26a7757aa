"""Great Expectations' data docs: a site about an operator's expectations and how its rows meet them."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest
from dagster_runs import settings
from events import Event, row, source

from floodmark import Expectation, Hourly, Stream, Workspace, operator, operator_asset
from floodmark.control.processes.engine import Computing
from floodmark.core.time import Interval
from floodmark.lake.folder.paths import Lake
from floodmark.observe.data_docs import write


@operator
def readings(events: Stream[Event]) -> Stream:
    """All of them."""
    return events.filter("value >= 0")


@pytest.mark.feature("Z8")
@pytest.mark.engines("embedded", soak=("spark",))
def test_the_site_says_which_expectations_the_rows_meet(engine: Computing, tmp_path: Path) -> None:
    few = Expectation("column_values_to_be_between", column="value", max_value=59)
    near = Expectation("column_drift", column="value")
    hours = Hourly("2020-01-01T00:00", end="2020-01-01T02:00")
    found = Workspace(
        sources=[source([row(minute) for minute in range(120)])],
        operators=[operator_asset(readings, partitions=hours, expectations=[few, near])],
        settings=settings(engine, lake="lake"),
    ).at(str(tmp_path))
    lake, asset = Lake.of(found.settings), found.asset("readings")
    engine.land(found.source("events"), lake, end=True)
    engine.run_bounded(asset.operator, lake, Interval())
    site = tmp_path / "site"
    first = hours.around(1_577_836_800_000)
    index, met = engine.with_session(partial(write, asset, lake, first, site))
    assert met, "of the first hour"
    index, met = engine.with_session(partial(write, asset, lake, Interval(), site))
    assert not met
    assert "readings" in index.read_text()
    pages = [page.read_text() for page in (index.parent / "validations").rglob("*.html")]
    assert len(pages) == 2, "one for each call"
    assert all("values must be less than or equal to" in page for page in pages)
