"""Trials of versions in Dagster, in a real browser: an experiment whose arm is promoted, a rollout that is promoted and taken back.

Both are of one stream, in one workspace: to start Dagster and the stream costs as much as either.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.compute as pc
import pytest
from browser import launch, picture, turn, until_done, visit
from dagster_server import NotLaunchedError, Server, serving, until
from deltalake import DeltaTable

from floodmark.control.state.records import StreamId
from floodmark.control.state.rollout import Record, Rollouts
from floodmark.control.state.store import Store
from floodmark.lake.folder.paths import Lake
from floodmark.lake.restore import experiments

from .test_streams import MORE, OPERATOR, edit, more, said

if TYPE_CHECKING:
    from playwright.sync_api import Page

ROLLOUT = (
    'rollout=Rollout(schedule="* * * * *", shadow="5 s", '
    'promote=PromoteWhen(match=1, every="5 s", approve=True, cutover="closed")),'
)
DOLLARS = MORE[0], MORE[0] + '.with_columns(dollars="cents / 90.0")'
SCHEDULE = f"rollout_{OPERATOR}"
SECONDS = 300
REPORT = f"experiments/{OPERATOR}/report"


def workspace(folder: Path) -> Path:
    """A workspace whose stream is rolled out every minute, once that is turned on."""
    said(folder, "init", "shop")
    folder /= "shop"
    assets = folder / "assets" / "orders.py"
    text = assets.read_text().replace("Daily, Expectation", "Daily, PromoteWhen, Rollout, Expectation")
    assets.write_text(text.replace("    partitions=Daily", f"    {ROLLOUT}\n    partitions=Daily"))
    said(folder, "land", "orders")
    return folder


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The workspace of all tests that leave its stream able to go on."""
    return workspace(tmp_path_factory.mktemp("trials"))


STARTED = {"ops": {"start_streams": {"config": {"streams": [OPERATOR]}}}}
"""Not its source, which the tests land."""


@pytest.fixture(scope="module")
def watched(shop: Path) -> Watched:
    """Its stream."""
    return Watched(shop)


@pytest.fixture(scope="module")
def server(shop: Path, watched: Watched) -> Iterator[Server]:
    """Its Dagster, and the stream has written something."""
    with serving(shop, shop / ".floodmark" / "dagster", supervise=True, forks=True) as server:
        assert server.ended(server.launch_job("start", STARTED)) == "SUCCESS"
        until(lambda: watched.batch is not None, SECONDS)
        yield server


class Watched:
    """What the control store says of the shop's stream."""

    def __init__(self, shop: Path) -> None:
        self.shop = shop
        self.store = Store(f"sqlite:///{shop}/.floodmark/control/control.db")
        self.stream = StreamId(OPERATOR, str(shop / "lake"))

    @property
    def record(self) -> Record | None:
        return next(iter(Rollouts(self.store).of(self.stream, 1)), None)

    @property
    def version(self) -> str:
        found = self.store.deployment(self.stream)
        assert found is not None
        return found.version

    @property
    def batch(self) -> int | None:
        driver = next(iter(self.store.drivers(self.stream, 1)), None)
        return None if driver is None or driver.state != "running" else driver.batch

    def has(self, column: str) -> dict[int, bool]:
        """Hour at which a window ends -> whether its result has a version's column."""
        table = DeltaTable(str(self.shop / "lake" / "outputs" / OPERATOR)).to_pyarrow_table()
        rows = table.filter(pc.equal(table["_kind"], 0)).to_pylist()
        return {row["window_end"].hour: row.get(column) is not None for row in rows}

    def reaches(self, state: str) -> Record:
        """The newest rollout, once it is in a state."""

        def look() -> Record | None:
            record = self.record
            assert record is None or record.ended_at is None or record.state == state, record
            return record if record is not None and record.state == state else None

        found: Record = until(look, SECONDS)
        return found

    def order(self, hours: range) -> None:
        """Orders of some hours land."""
        header = "ordered_at,order_id,country,items,cents,voucher"
        lines = [f"2025-03-01T{hour}:{n:02}:00Z,{hour}{n:02},DE,1,{n * 100}," for hour in hours for n in range(20)]
        (self.shop / "inbox" / "orders" / f"more-{hours.start}.csv").write_text("\n".join([header, *lines]) + "\n")
        said(self.shop, "land", "orders")


def shown(page: Page, server: Server, *words: str) -> None:
    """The newest event of the asset of the rollout says this."""

    def look() -> bool:
        visit(page, f"{server.url}/assets/rollouts/{OPERATOR}?view=events", "waits for")
        return all(page.get_by_text(text).count() for text in words)

    until(look, SECONDS)


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
    """Whether a report finds the arms the same; not before Dagster has loaded its asset, and something has closed in both."""
    key = {"path": REPORT.split("/")}
    checks = [{"assetKey": key, "name": "arms_find_the_same"}]
    try:
        run = server.launch_job(
            "__ASSET_JOB", {}, {"dagster/partition": "mean"}, assetSelection=[key], assetCheckSelection=checks
        )
    except NotLaunchedError:
        return False
    assert server.ended(run) == "SUCCESS"
    query = """query ($k: AssetKeyInput!) { assetNodeOrError(assetKey: $k) { ... on AssetNode {
        assetChecksOrError { ... on AssetChecks { checks { executionForLatestMaterialization { status } } } } } } }"""
    node = server.ask(query, k=key)["assetNodeOrError"]
    (check,) = node["assetChecksOrError"]["checks"]
    return check["executionForLatestMaterialization"] == {"status": "SUCCEEDED"}


@pytest.mark.soak
@pytest.mark.feature("R7", "V8")
@pytest.mark.timeout(900)
def test_an_experiment_is_started_watched_read_and_promoted(
    page: Page, server: Server, shop: Path, watched: Watched
) -> None:
    edit(shop, *MORE)
    start = "ops:\n  start_experiment:\n    config:\n      name: mean\n      arms: {a: '@current', b: '.'}\n"
    assert server.ended(launch(page, server, "experiment_start", partition=OPERATOR, config=start)) == "SUCCESS"
    made = experiments.find(Lake(watched.stream.lake), "mean")
    assert [arm.name for arm in made.arms] == ["a", "b"]

    arms = f"{server.url}/assets/experiments/{OPERATOR}/arms?view=partitions&partition=mean.b"
    visit(page, arms, made.arms[1].version)
    picture(page, "arms")
    more(shop)
    said(shop, "land", "orders")
    until(lambda: reported(server), SECONDS)
    read(page, f"{server.url}/assets/{REPORT}?view=partitions&partition=mean")
    picture(page, "experiment-report")

    promote = "ops:\n  promote_arm:\n    config:\n      arm: b\n      soak_seconds: 0.5\n"
    run = launch(page, server, "experiment_promote", partition="mean", config=promote)
    assert server.ended(run) == "SUCCESS"
    assert experiments.find(Lake(watched.stream.lake), "mean").promoted == "b"
    running = watched.store.deployment(watched.stream)
    assert running is not None
    assert (running.version, running.package) == (made.arms[1].version, made.arms[1].package)


@pytest.mark.feature("Z5", "Z6")
@pytest.mark.timeout(1500)
def test_a_rollout_is_started_by_a_schedule_approved_promoted_and_taken_back(
    page: Page, server: Server, shop: Path, watched: Watched
) -> None:
    old = watched.version
    edit(shop, *DOLLARS)
    turn(page, server, SCHEDULE, "RUNNING")
    passed(watched, "shadowing")
    watched.order(range(15, 22))
    waiting = watched.reaches("awaiting approval")
    turn(page, server, SCHEDULE, "STOPPED")
    transitions = until(lambda: (found := server.runs("rollout_transition"))[3:] and found, SECONDS)
    assert all(server.ended(one["runId"]) == "SUCCESS" for one in transitions)
    shown(page, server, waiting.version, "awaiting approval")
    picture(page, "rollout")

    approval = {"operator": OPERATOR, "version": old}
    refused = server.launch_job("approve_rollout", {"ops": {"approve_rollout_of": {"config": approval}}})
    assert server.ended(refused) == "FAILURE", "something else"
    assert server.ended(launch(page, server, "approve_rollout", name="approve")) == "SUCCESS", "as it is proposed"
    watched.reaches("watching")
    assert watched.version == waiting.version != old
    dollars = watched.has("dollars")
    assert {hour: dollars[hour] for hour in (10, 16, 20)} == {10: False, 16: False, 20: True}, "what was final has none"
    abort = "ops:\n  abort_rollout_of:\n    config:\n      note: nobody needs dollars\n"
    assert server.ended(launch(page, server, "abort_rollout", config=abort)) == "SUCCESS"
    watched.reaches("taken back")
    assert watched.version == old
    shown(page, server, "nobody needs dollars")


def passed(watched: Watched, state: str) -> None:
    """The newest rollout has come to a state, and may be further."""
    until(lambda: watched.record is not None and state in {one.state for one in watched.record.steps}, SECONDS)


def acted(server: Server, job: str, step: str, **config: str) -> None:
    """A job of rollouts has succeeded."""
    run = server.launch_job(job, {"ops": {step: {"config": {"operator": OPERATOR} | config}}})
    assert server.ended(run, SECONDS) == "SUCCESS"


@pytest.mark.soak
@pytest.mark.timeout(3000)
def test_daemon_code_server_web_server_and_supervisor_are_killed_in_each_state(tmp_path: Path) -> None:
    """All at once, with SIGKILL; the streams live on, and the next ``floodmark up`` takes the rollout to its end."""
    shop = workspace(tmp_path)
    watched, state = Watched(shop), shop / ".floodmark" / "dagster"
    with serving(shop, state, supervise=True) as server:
        assert server.ended(server.launch_job("start", STARTED)) == "SUCCESS"
        until(lambda: watched.batch is not None, SECONDS)
        old = watched.version
        edit(shop, *MORE)
        acted(server, "rollout", "start_rollout")
        passed(watched, "shadowing")
        server.fell()
    with serving(shop, state, supervise=True) as server:
        watched.order(range(12, 19))
        waiting = watched.reaches("awaiting approval")
        server.fell()
    with serving(shop, state, supervise=True) as server:
        acted(server, "approve_rollout", "approve_rollout_of", version=waiting.version)
        passed(watched, "promoting")
        server.fell()
    with serving(shop, state, supervise=True) as server:
        watched.reaches("watching")
        assert watched.version == waiting.version != old
        before = watched.has("euros")
        server.fell()
    with serving(shop, state, supervise=True) as server:
        acted(server, "abort_rollout", "abort_rollout_of", note="nobody needs euros")
        passed(watched, "taking back")
        server.fell()
    with serving(shop, state, supervise=True) as server:
        ended = watched.reaches("taken back")
        assert watched.version == old
        assert [one.kind for one in watched.store.actions(watched.stream)].count("rollback") == 1
        watched.order(range(19, 21))
        until(lambda: watched.batch is not None, SECONDS)
        until(lambda: max(watched.has("euros")) > max(before), SECONDS)
        assert watched.has("euros").keys() >= before.keys(), "no window is lost"
        assert not any(watched.has("euros").values())
        runs = until(lambda: len(found := server.runs("rollout_transition")) >= len(ended.steps) and found, SECONDS)
        assert server.ended(runs[0]["runId"]) == "SUCCESS", "the newest state is shown"
