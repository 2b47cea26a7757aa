"""The control room as people use it: a real browser, clicks, and what is in the tables afterwards."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from browser import backfill, picture, visit
from dagster_server import LOCATION, ROOT, Server, serving
from deltalake import DeltaTable
from flights import same, versions

from definitions import workspace
from floodmark.control.processes.engine import Computing
from floodmark.lake.folder.paths import Lake


@pytest.fixture(scope="module")
def server(
    engine: Computing, inbox: Path, landed_log: Lake, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Server]:
    """Dagster on a lake of its own, with four days landed."""
    folder = tmp_path_factory.mktemp("server")
    shutil.copytree(landed_log.root, folder / "lake")
    variables = {"FLOODMARK_LAKE": str(folder / "lake"), "FLOODMARK_FOLDER": str(inbox.parent)}
    variables |= {"FLOODMARK_ENGINE": engine.name}
    with serving(ROOT, folder / "state", **variables) as found:
        assert found.ended(found.launch("flights", tags={})) == "SUCCESS"
        yield found


@pytest.fixture(scope="module")
def lake(server: Server) -> Lake:
    return Lake(str(server.state.parent / "lake"))


def lineage(server: Server) -> str:
    return f"{server.url}/locations/{LOCATION}/asset-groups/departures/lineage"


@pytest.mark.soak
@pytest.mark.feature("N6")
def test_a_three_day_backfill_of_the_chain_by_clicks_equals_the_command_lines_run(
    engine, page, server, lake, landed_log, tmp_path
):
    days = "2013-01-01", "2013-01-03"
    done = backfill(page, server, lineage(server), "busiest_hour", *days, name="asset-graph")
    assert done["status"] == "COMPLETED_SUCCESS"
    visit(page, f"{server.url}/assets/hourly_departures?view=partitions&partition=2013-01-03", "coverage")
    picture(page, "partitions")
    visit(page, f"{server.url}/assets/hourly_departures", "coverage")
    picture(page, "asset")

    other = Lake(str(tmp_path / "other"), logs=landed_log.root)
    for name in ("hourly_departures", "rolling_departures", "busiest_hour", "split_delays"):
        operator = workspace().operator(name)
        cut = operator.partitions
        first, last = (cut.around(moment) for moment in (1_357_020_000_000, 1_357_192_800_000))
        engine.run_bounded(operator, other, type(first)(start=first.start, end=last.end))
        same(lake, other, operator)


@pytest.mark.soak
def test_a_backfill_of_what_is_covered_writes_nothing(page, server, lake):
    days = "2013-01-01", "2013-01-02"
    assert backfill(page, server, lineage(server), "busiest_hour", *days)["status"] == "COMPLETED_SUCCESS"
    before = versions(lake)
    assert backfill(page, server, lineage(server), "busiest_hour", *days)["status"] == "COMPLETED_SUCCESS"
    assert versions(lake) == before


@pytest.mark.soak
def test_a_bad_day_fails_its_check_and_its_downstream_does_not_run(page, server, lake):
    before = versions(lake).get("busiest_hour")
    done = backfill(page, server, lineage(server), "busiest_hour", "2013-01-03", "2013-01-04")
    assert done["status"] != "COMPLETED_SUCCESS"
    check = "view=checks&checkDetail=column_values_to_be_between_departures"
    words = "This is a blocking asset check", "unexpected, for example", "2013-01-04"
    visit(page, f"{server.url}/assets/hourly_departures?{check}", *words)
    picture(page, "failed-check")
    assert done["status"] == "COMPLETED_FAILED"
    assert versions(lake).get("busiest_hour") == before
    days = DeltaTable(lake.output("hourly_departures")).to_pyarrow_table().column("_asset_partition").to_pylist()
    assert "2013-01-04" in days
