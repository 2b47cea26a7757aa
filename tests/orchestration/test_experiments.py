"""An experiment in Dagster, in a real browser: started from the launchpad, seen as assets, its report read, an arm promoted."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import dagster as dg
import pytest
from browser import launch, picture, until_done, visit
from dagster_server import Server, serving, until
from deltalake import DeltaTable

from floodmark.control.store import Store
from floodmark.lake import experiments
from floodmark.lake.paths import Lake
from floodmark.orchestration import build_definitions

from .test_jobs import workspace
from .test_streams import OPERATOR, edit, more, said, store

if TYPE_CHECKING:
    from playwright.sync_api import Page

__all__ = ["store"]

MORE = ('cents=sum("cents"))', 'cents=sum("cents")).with_columns(euros="cents / 100.0")')
REPORT = f"experiments/{OPERATOR}/report"


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    said(tmp_path, "init", "shop")
    said(tmp_path / "shop", "land", "orders")
    return tmp_path / "shop"


@pytest.fixture
def server(shop: Path) -> Iterator[Server]:
    with serving(shop, shop / ".floodmark" / "dagster", supervise=True) as found:
        yield found


def windows(root: str) -> int:
    path = Lake(root).output(OPERATOR)
    return DeltaTable(path).to_pyarrow_table().num_rows if DeltaTable.is_deltatable(path) else 0


def read(page: Page, url: str) -> None:
    """The report is shown."""

    def act() -> bool:
        page.goto(url)
        page.get_by_text("rows are the same; other columns: euros").first.wait_for()
        page.get_by_text("Show Markdown").first.click()
        page.get_by_text("processor time per million rows").first.wait_for()
        return True

    until_done(act)


def reported(server: Server) -> bool:
    """Whether a report finds the arms the same; not before something has closed in both."""
    key = {"path": REPORT.split("/")}
    checks = [{"assetKey": key, "name": "arms_find_the_same"}]
    run = server.launch_job(
        "__ASSET_JOB", {}, {"dagster/partition": "mean"}, assetSelection=[key], assetCheckSelection=checks
    )
    assert server.ended(run) == "SUCCESS"
    query = """query ($k: AssetKeyInput!) { assetNodeOrError(assetKey: $k) { ... on AssetNode {
        assetChecksOrError { ... on AssetChecks { checks { executionForLatestMaterialization { status } } } } } } }"""
    node = server.ask(query, k=key)["assetNodeOrError"]
    (check,) = node["assetChecksOrError"]["checks"]
    return check["executionForLatestMaterialization"] == {"status": "SUCCEEDED"}


@pytest.mark.feature("R7", "V8")
@pytest.mark.timeout(900)
def test_an_experiment_is_started_watched_read_and_promoted(
    page: Page, server: Server, shop: Path, store: Store
) -> None:
    assert server.ended(server.launch_job("start", {})) == "SUCCESS"
    until(lambda: windows(str(shop / "lake")), 240)
    edit(shop, *MORE)
    start = f"ops:\n  start_experiment:\n    config:\n      operator: {OPERATOR}\n      name: mean\n      arms: {{a: '@current', b: '.'}}\n"
    assert server.ended(launch(page, server, "experiment_start", config=start)) == "SUCCESS"
    made = experiments.find(Lake(str(shop / "lake")), "mean")
    assert [one.name for one in made.arms] == ["a", "b"]

    arms = f"{server.url}/assets/experiments/{OPERATOR}/arms?view=partitions&partition=mean.b"
    visit(page, arms, made.arms[1].version)
    picture(page, "arms")
    more(shop)
    said(shop, "land", "orders")
    until(lambda: reported(server), 300)
    read(page, f"{server.url}/assets/{REPORT}?view=partitions&partition=mean")
    picture(page, "experiment-report")

    promote = "ops:\n  promote_arm:\n    config:\n      arm: b\n      soak_seconds: 0.5\n"
    run = launch(page, server, "experiment_promote", partition="mean", config=promote)
    assert server.ended(run) == "SUCCESS"
    assert experiments.find(Lake(str(shop / "lake")), "mean").promoted == "b"
    running = next(one for one in store.deployments() if one.lake == str(shop / "lake"))
    assert (running.version, running.package) == (made.arms[1].version, made.arms[1].package)


def test_what_is_missing_is_said(tmp_path: Path) -> None:
    definitions = build_definitions(workspace(tmp_path), root=tmp_path)
    start = {"ops": {"start_experiment": {"config": {"operator": "per_hour", "name": "one"}}}}
    promote = {"ops": {"promote_arm": {"config": {"arm": "b"}}}}
    with dg.DagsterInstance.ephemeral() as instance:
        instance.add_dynamic_partitions("floodmark_experiments", ["gone"])
        for job, op, config, partition, code in (
            ("experiment_start", "start_experiment", start, None, "LIFECYCLE-053"),
            ("experiment_promote", "promote_arm", promote, "gone", "LIFECYCLE-090"),
            ("experiment_stop", "stop_experiment", {}, "gone", "LIFECYCLE-090"),
        ):
            done = definitions.resolve_job_def(job).execute_in_process(
                instance=instance, run_config=config, partition_key=partition, raise_on_error=False
            )
            failure = done.failure_data_for_node(op)
            assert failure is not None
            assert code in str(failure.user_failure_data.description), job
