"""The control room as people use it: a real browser, clicks, and what is in the tables afterwards."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from dagster_server import LOCATION, ROOT, Server, serving, until
from deltalake import DeltaTable
from flights import same, versions

from definitions import workspace
from floodmark.control.engine import Computing
from floodmark.lake.paths import Lake

if TYPE_CHECKING:
    from playwright.sync_api import Page

SCREENSHOTS = os.environ.get("FLOODMARK_SCREENSHOTS")
"""Where the pictures of the documentation go; not set, they go to the test's own folder."""
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


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


@pytest.fixture
def page(tmp_path: Path) -> Iterator[Page]:
    """A page of a real Chromium."""
    from playwright.sync_api import sync_playwright

    program = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if program is None:
        pytest.fail("no Chromium: install it (apt-get install chromium), or leave its tests out with -m 'not browser'")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=FLAGS)
        found = browser.new_page(viewport={"width": 1500, "height": 950})
        found.set_default_timeout(60_000)
        yield found
        browser.close()


def picture(page: Page, name: str, tmp_path: Path) -> None:
    page.wait_for_timeout(1500)  # the graph draws itself in steps no element tells of
    page.screenshot(path=str(Path(SCREENSHOTS or tmp_path) / f"{name}.png"))


def backfill(page: Page, server: Server, first: str, last: str) -> dict[str, Any]:
    """Materialize the partitions of everything on the page by clicks; the backfill, once it has ended."""
    known = {one["id"] for one in server.backfills()}
    page.get_by_role("button", name="Materialize").first.click()
    dialog = page.get_by_role("dialog").first
    box = dialog.get_by_role("textbox").first
    box.wait_for()
    page.wait_for_timeout(1500)  # the partitions load behind the box
    box.fill(f"[{first}...{last}]")
    box.press("Enter")
    dialog.get_by_role("button", name="Launch").last.click()
    new = until(lambda: [one for one in server.backfills() if one["id"] not in known], 60)[0]["id"]
    ended = {"COMPLETED_SUCCESS", "COMPLETED_FAILED", "COMPLETED", "FAILED", "CANCELED"}
    return until(lambda: next((o for o in server.backfills() if o["id"] == new and o["status"] in ended), None), 400)


def test_a_three_day_backfill_of_the_chain_by_clicks_equals_the_command_lines_run(
    engine, page, server, lake, landed_log, tmp_path
):
    page.goto(f"{server.url}/locations/{LOCATION}/asset-groups/departures/lineage")
    page.get_by_text("busiest_hour", exact=True).first.wait_for()
    picture(page, "asset-graph", tmp_path)
    done = backfill(page, server, "2013-01-01", "2013-01-03")
    assert done["status"] == "COMPLETED_SUCCESS"
    page.goto(f"{server.url}/assets/hourly_departures?view=partitions&partition=2013-01-03")
    page.get_by_text("coverage").first.wait_for()
    picture(page, "partitions", tmp_path)
    page.goto(f"{server.url}/assets/hourly_departures")
    page.get_by_text("coverage").first.scroll_into_view_if_needed()
    picture(page, "asset", tmp_path)

    other = Lake(str(tmp_path / "other"), logs=landed_log.root)
    for name in ("hourly_departures", "rolling_departures", "busiest_hour", "split_delays"):
        operator = workspace().operator(name)
        cut = operator.partitions
        first, last = (cut.around(moment) for moment in (1_357_020_000_000, 1_357_192_800_000))
        engine.run_bounded(operator, other, type(first)(start=first.start, end=last.end))
        same(lake, other, operator)

    before = versions(lake)
    page.goto(f"{server.url}/locations/{LOCATION}/asset-groups/departures/lineage")
    page.get_by_text("busiest_hour", exact=True).first.wait_for()
    assert backfill(page, server, "2013-01-01", "2013-01-03")["status"] == "COMPLETED_SUCCESS"
    assert versions(lake) == before


@pytest.mark.soak
def test_a_bad_day_fails_its_check_and_its_downstream_does_not_run(page, server, lake, tmp_path):
    page.goto(f"{server.url}/locations/{LOCATION}/asset-groups/departures/lineage")
    page.get_by_text("busiest_hour", exact=True).first.wait_for()
    before = versions(lake).get("busiest_hour")
    done = backfill(page, server, "2013-01-03", "2013-01-04")
    assert done["status"] != "COMPLETED_SUCCESS"
    page.goto(f"{server.url}/assets/hourly_departures?view=checks&checkDetail=column_values_to_be_between_departures")
    page.get_by_text("This is a blocking asset check").wait_for()
    page.get_by_text("unexpected, for example").wait_for()
    picture(page, "failed-check", tmp_path)
    page.get_by_text("2013-01-04").first.wait_for()
    assert done["status"] == "COMPLETED_FAILED"
    assert versions(lake).get("busiest_hour") == before
    days = DeltaTable(lake.output("hourly_departures")).to_pyarrow_table().column("_asset_partition").to_pylist()
    assert "2013-01-04" in days
