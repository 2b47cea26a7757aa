"""A rollout in Dagster, in a real browser: a schedule starts it, it is approved, promoted and taken back."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.compute as pc
import pytest
from browser import picture, turn, visit
from dagster_server import Server, serving, until
from deltalake import DeltaTable

from floodmark.control.records import StreamId
from floodmark.control.rollout import Record, Rollouts
from floodmark.control.store import Store

from .test_streams import MORE, OPERATOR, edit, said

if TYPE_CHECKING:
    from playwright.sync_api import Page

ROLLOUT = (
    'rollout=Rollout(schedule="* * * * *", shadow="5 s", '
    'promote=PromoteWhen(match=1, every="5 s", approve=True, cutover="closed")),'
)
SCHEDULE = f"rollout_{OPERATOR}"
SECONDS = 300


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    """A workspace whose stream is rolled out every minute, once that is turned on."""
    folder = tmp_path / "shop"
    said(tmp_path, "init", "shop")
    assets = folder / "assets" / "orders.py"
    text = assets.read_text().replace("Daily, Expectation", "Daily, PromoteWhen, Rollout, Expectation")
    assets.write_text(text.replace("    partitions=Daily", f"    {ROLLOUT}\n    partitions=Daily"))
    said(folder, "land", "orders")
    return folder


@pytest.fixture
def server(shop: Path) -> Iterator[Server]:
    with serving(shop, shop / ".floodmark" / "dagster", supervise=True) as found:
        yield found


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

    @property
    def euros(self) -> dict[int, bool]:
        """Hour at which a window ends -> whether its result has the new version's column."""
        table = DeltaTable(str(self.shop / "lake" / "outputs" / OPERATOR)).to_pyarrow_table()
        rows = table.filter(pc.equal(table["_kind"], 0)).to_pylist()
        return {row["window_end"].hour: row.get("euros") is not None for row in rows}

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


@pytest.mark.feature("Z5", "Z6")
@pytest.mark.timeout(1500)
def test_a_rollout_is_started_by_a_schedule_approved_promoted_and_taken_back(
    page: Page, server: Server, shop: Path
) -> None:
    watched = Watched(shop)
    assert server.ended(server.launch_job("start", {})) == "SUCCESS"
    until(lambda: watched.batch is not None, SECONDS)
    old = watched.version
    edit(shop, *MORE)
    turn(page, server, SCHEDULE, "RUNNING")
    watched.reaches("shadowing")
    watched.order(range(12, 19))
    waiting = watched.reaches("awaiting approval")
    turn(page, server, SCHEDULE, "STOPPED")
    transitions = until(lambda: (found := server.runs("rollout_transition"))[3:] and found, SECONDS)
    assert all(server.ended(one["runId"]) == "SUCCESS" for one in transitions)
    shown(page, server, waiting.version, "awaiting approval")
    picture(page, "rollout")

    approval = {"operator": OPERATOR, "version": old}
    refused = server.launch_job("approve_rollout", {"ops": {"approve_rollout_of": {"config": approval}}})
    assert server.ended(refused) == "FAILURE", "something else"
    approval["version"] = waiting.version
    approved = server.launch_job("approve_rollout", {"ops": {"approve_rollout_of": {"config": approval}}})
    assert server.ended(approved) == "SUCCESS"
    watched.reaches("watching")
    assert watched.version == waiting.version != old
    euros = watched.euros
    assert {hour: euros[hour] for hour in (10, 13, 17)} == {10: False, 13: False, 17: True}, "what was final has none"
    abort = {"operator": OPERATOR, "note": "nobody needs euros"}
    assert (
        server.ended(server.launch_job("abort_rollout", {"ops": {"abort_rollout_of": {"config": abort}}})) == "SUCCESS"
    )
    watched.reaches("taken back")
    assert watched.version == old
    shown(page, server, "nobody needs euros")


def passed(watched: Watched, state: str) -> None:
    """The newest rollout has come to a state, and may be further."""
    until(lambda: watched.record is not None and state in {one.state for one in watched.record.steps}, SECONDS)


def acted(server: Server, job: str, step: str, **config: str) -> None:
    """A job of rollouts has succeeded."""
    run = server.launch_job(job, {"ops": {step: {"config": {"operator": OPERATOR} | config}}})
    assert server.ended(run, SECONDS) == "SUCCESS"


@pytest.mark.soak
@pytest.mark.timeout(3000)
def test_daemon_code_server_web_server_and_supervisor_are_killed_in_each_state(shop: Path) -> None:
    """All at once, with SIGKILL; the streams live on, and the next ``floodmark up`` takes the rollout to its end."""
    watched, state = Watched(shop), shop / ".floodmark" / "dagster"
    with serving(shop, state, supervise=True) as server:
        assert server.ended(server.launch_job("start", {})) == "SUCCESS"
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
        before = watched.euros
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
        until(lambda: max(watched.euros) > max(before), SECONDS)
        assert watched.euros.keys() >= before.keys(), "no window is lost"
        assert not any(watched.euros.values())
        runs = until(lambda: len(found := server.runs("rollout_transition")) >= len(ended.steps) and found, SECONDS)
        assert server.ended(runs[0]["runId"]) == "SUCCESS", "the newest state is shown"
