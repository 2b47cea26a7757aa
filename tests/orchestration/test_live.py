"""A workspace comes alive by two clicks: sources land, operators run, and asset partitions turn green as the watermark passes; what dies is red meanwhile."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import forked
import pytest
from browser import BLANK, launch, picture, visit
from dagster_server import Server, serving, until

from floodmark.control.state.records import Driver
from floodmark.control.state.store import Store

if TYPE_CHECKING:
    from playwright.sync_api import Page

SECONDS = 240
"""For one step on a busy machine."""


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    """What ``floodmark init`` makes: a source, an operator, and files in the inbox; with partitions of three days."""
    done = forked.run([sys.executable, "-m", "floodmark.cli.main", "init", "shop"], cwd=tmp_path, env=dict(os.environ))
    assert done.returncode == 0, done.stderr
    assets = tmp_path / "shop" / "assets" / "orders.py"
    text = assets.read_text()
    assert 'end="2025-03-02"' in text
    assets.write_text(text.replace('end="2025-03-02"', 'end="2025-03-04"'))
    return tmp_path / "shop"


@pytest.fixture
def server(shop: Path) -> Iterator[Server]:
    """Its Dagster, with a supervisor."""
    with serving(shop, shop / ".floodmark" / "dagster", supervise=True, FLOODMARK_ENGINE="embedded") as found:
        yield found


def put(shop: Path, day: str) -> None:
    """A file with orders of a day, which appears whole."""
    file = shop / "inbox" / "orders" / f"orders_{day}_00.csv"
    lines = "".join(f"{day}T0{n}:30:00Z,{n},DE,1,{n * 100},\n" for n in range(9))
    file.with_suffix(".part").write_text("ordered_at,order_id,country,items,cents,voucher\n" + lines)
    file.with_suffix(".part").replace(file)


def materialized(server: Server) -> dict[str, Any]:
    """Asset -> its number of green partitions; for one that is not divided, whether it was materialized."""
    query = "{ assetNodes { assetKey { path } partitionStats { numMaterialized } assetMaterializations(limit: 1) { runId } } }"
    return {
        "/".join(node["assetKey"]["path"]): node["partitionStats"]["numMaterialized"]
        if node["partitionStats"]
        else bool(node["assetMaterializations"])
        for node in server.ask(query)["assetNodes"]
    }


def driver(store: Store, name: str) -> Driver:
    """The newest of a stream."""
    return next(store.drivers(one.stream)[0] for one in store.deployments() if one.operator == name)


def judged(server: Server, name: str) -> list[tuple[bool, str]]:
    """The evaluations of the check of a stream, newest first: whether it is passed, and its state with the reason."""
    query = """query ($k: AssetKeyInput!) { assetCheckExecutions(assetKey: $k, checkName: "stream", limit: 20) {
        evaluation { success metadataEntries { label ... on TextMetadataEntry { text } } } } }"""
    found = []
    for execution in server.ask(query, k={"path": [name]})["assetCheckExecutions"]:
        if evaluation := execution["evaluation"]:
            texts = {entry["label"]: entry.get("text", "") for entry in evaluation["metadataEntries"]}
            found.append((evaluation["success"], f"{texts['state']}: {texts['reason']}"))
    return found


@pytest.mark.feature("Z7")
@pytest.mark.timeout(1200)
def test_one_launch_starts_everything_and_partitions_turn_green_through_a_kill(
    page: Page, server: Server, shop: Path
) -> None:
    assert server.ended(launch(page, server, "start", name="start")) == "SUCCESS", "its launchpad needs no word"
    store = Store(f"sqlite:///{shop}/.floodmark/control/control.db")
    assert {one.operator: (one.kind, one.desired) for one in store.deployments()} == {
        "orders": ("source", "running"),
        "hourly_sales": ("operator", "running"),
        "voucher_use": ("operator", "running"),
    }
    until(lambda: driver(store, "orders").batch is not None, SECONDS)
    first = driver(store, "orders")
    until(lambda: judged(server, "orders")[:1] == [(True, "running: none")], SECONDS)
    assert first.pid is not None
    os.kill(first.pid, signal.SIGKILL)
    passed, told = until(lambda: next((one for one in judged(server, "orders")[:1] if not one[0]), None), SECONDS)
    assert not passed
    assert told.startswith("crashed: killed by SIGKILL")
    visit(page, f"{server.url}/assets/orders?view=checks&checkDetail=stream", "killed by SIGKILL", "end of its log")
    picture(page, "dead-stream")
    page.goto(BLANK)
    put(shop, "2025-03-02")
    until(lambda: driver(store, "orders").id != first.id and driver(store, "orders").batch is not None, SECONDS)
    until(lambda: materialized(server)["hourly_sales"] == 1 and materialized(server)["orders"], SECONDS)
    put(shop, "2025-03-03")
    until(lambda: materialized(server)["hourly_sales"] == 2, SECONDS)
    visit(page, f"{server.url}/assets/hourly_sales?view=partitions", "2025-03-02")
    picture(page, "live")
    until(lambda: judged(server, "orders")[0] == (True, "running: none"), SECONDS)
    visit(page, f"{server.url}/assets/orders?view=checks&checkDetail=stream", "running")
    picture(page, "live-stream")

    by_hand = server.launch("orders", tags={})
    assert server.ended(by_hand) == "FAILURE"
    query = "query ($r: ID!) { logsForRun(runId: $r) { ... on EventConnection { events { ... on ExecutionStepFailureEvent { error { message } } } } } }"
    messages = str(server.ask(query, r=by_hand))
    assert "LIFECYCLE-003" in messages
    assert "launch the job stop with streams: [orders] first" in messages
