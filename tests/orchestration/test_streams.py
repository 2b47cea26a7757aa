"""Streams in Dagster, in a real browser: a schedule upgrades one and takes a bad version back; a savepoint is picked from the list."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import forked
import psutil
import pytest
from borrowed import lend
from browser import launch, picture, turn, visit
from dagster_server import Server, serving, until
from deltalake import DeltaTable

from floodmark.control.state.records import Action, Deployment, Driver
from floodmark.control.state.store import Store

if TYPE_CHECKING:
    from playwright.sync_api import Page

OPERATOR = "hourly_sales"
SCHEDULE = f"upgrade_{OPERATOR}"
SECONDS = 300
"""For one step of a stream on a busy machine."""
MORE = ('cents=sum("cents"))', 'cents=sum("cents")).with_columns(euros="cents / 100.0")')
BAD = ("orders.key_by", 'orders.filter("CAST(country AS DOUBLE) > 0").key_by')
UNEXPECTED = ("orders=count()", 'orders=sum("-items")')
LANDER = """
from pathlib import Path
from definitions import workspace
from floodmark.control.processes.engine import computing
from floodmark.lake.folder.paths import Lake
found = workspace("dev").at(str(Path.cwd()))
engine = computing(found.settings)
engine.start()
print("ready", flush=True)
input()
engine.land(found.source("orders"), Lake.of(found.settings), end=True, workspace=Path.cwd())
"""
"""Lands at once when it is told to: its engine runs already."""


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    """A workspace whose stream is upgraded every minute, once that is turned on; what lands in it does so on the embedded engine."""
    folder = tmp_path / "shop"
    said(tmp_path, "init", "shop")
    assets = folder / "assets" / "orders.py"
    text = assets.read_text().replace("Daily, Expectation", "Daily, Upgrades, Expectation")
    text = text.replace(
        "    partitions=Daily",
        '    upgrades=Upgrades("* * * * *", forward_only=True, soak="20 seconds"),\n    partitions=Daily',
    )
    assets.write_text(text.replace("min_value=1)", "min_value=1, blocking=True)"))
    said(folder, "land", "orders")
    return folder


@pytest.fixture
def server(engine_name: str, shop: Path, request: pytest.FixtureRequest) -> Iterator[Server]:
    """Its streams run on the engine of the test, their drivers forked; those on Spark work, one after the other, on the Java of the test."""
    variables = {"FLOODMARK_ENGINE": engine_name}
    if engine_name == "spark":
        variables |= lend(request.getfixturevalue("spark"))
    state, forks = shop / ".floodmark" / "dagster", engine_name == "embedded"
    with serving(shop, state, supervise=True, forks=forks, **variables) as found:
        yield found


@pytest.fixture
def store(shop: Path) -> Store:
    return Store(f"sqlite:///{shop}/.floodmark/control/control.db")


def deployment(store: Store) -> Deployment:
    return next(one for one in store.deployments() if one.operator == OPERATOR)


def drivers(store: Store) -> list[Driver]:
    """The newest first."""
    return store.drivers(deployment(store).stream)


def said(folder: Path, *arguments: str, **variables: str) -> str:
    """What a verb says."""
    command = [sys.executable, "-m", "floodmark.cli.main", *arguments]
    done = forked.run(command, cwd=folder, env=os.environ | variables)
    assert done.returncode == 0, done.stderr
    return done.stdout


def edit(shop: Path, old: str, new: str) -> None:
    operators = shop / "operators" / "orders.py"
    text = operators.read_text()
    assert old in text
    whole = operators.with_suffix(".new")
    whole.write_text(text.replace(old, new))
    whole.replace(operators)  # at once: the schedule reads it at any time


def more(shop: Path) -> None:
    """Orders of three more hours."""
    lines = [
        f"2025-03-01T{hour}:{n:02}:00Z,{hour}{n:02},{'DE' if n % 2 else 'FR'},1,{n * 100},"
        for hour in (12, 13, 14)
        for n in range(20)
    ]
    header = "ordered_at,order_id,country,items,cents,voucher"
    (shop / "inbox" / "orders" / "orders_2025-03-01_15.csv").write_text("\n".join([header, *lines]) + "\n")


def sales(lake: Path) -> set[tuple[object, ...]]:
    """What people see."""
    path = str(lake / "outputs" / f"{OPERATOR}__current")
    columns = ["country", "window_start", "orders", "cents"]
    rows = (
        DeltaTable(path).to_pyarrow_table(columns=[*columns, "_kind"]).to_pylist()
        if DeltaTable.is_deltatable(path)
        else []
    )
    return {tuple(row[name] for name in columns) for row in rows if row["_kind"] == 0}


def savepoints(server: Server) -> list[str]:
    """Those in the list of the job that goes back to one."""
    query = """query ($r: RepositorySelector!) { partitionSetsOrError(repositorySelector: $r, pipelineName: "rollback") {
        ... on PartitionSets { results { partitionsOrError { ... on Partitions { results { name } } } } } } }"""
    where = {"repositoryName": "__repository__", "repositoryLocationName": server.location}
    (listed,) = server.ask(query, r=where)["partitionSetsOrError"]["results"]
    return [partition["name"] for partition in listed["partitionsOrError"]["results"]]


def ended(store: Store, step: str) -> Action:
    """The newest action, once it has ended so."""
    found: Action = until(
        lambda: next((a for a in store.actions(limit=1) if a.ended_at is not None and a.step == step), None), SECONDS
    )
    return found


def running(store: Store, version: str) -> bool:
    newest = next(iter(drivers(store)), None)
    return newest is not None and newest.state == "running" and newest.version == version


STARTED = {"ops": {"start_streams": {"config": {"streams": [OPERATOR]}}}}
"""Not its source, which the tests land."""


def started(server: Server, store: Store) -> Deployment:
    """The stream, once it has written something."""
    assert server.ended(server.launch_job("start", STARTED)) == "SUCCESS"
    first = deployment(store)
    until(lambda: running(store, first.version) and drivers(store)[0].batch is not None, SECONDS)
    return first


def truth(shop: Path, tmp_path: Path) -> set[tuple[object, ...]]:
    """What one bounded run over all that has landed finds."""
    said(shop, "run", OPERATOR, "--lake", str(tmp_path / "bounded"), FLOODMARK_LOGS=str(shop / "lake"))
    found = sales(tmp_path / "bounded")
    assert len(found) > 5
    return found


@pytest.mark.feature("V4", "V2", "F8", "Z4")
@pytest.mark.timeout(1800)
def test_a_schedule_upgrades_a_stream_and_takes_a_bad_version_back_a_savepoint_is_picked_and_ctrl_c_stops_all(
    page: Page, server: Server, shop: Path, store: Store, tmp_path: Path
) -> None:
    first = started(server, store)
    edit(shop, *MORE)
    turn(page, server, SCHEDULE, "RUNNING")
    done = upgraded(page, server, store)
    assert done.version != first.version
    more(shop)
    taken_back(page, server, store, shop)
    until(lambda: running(store, done.version), SECONDS)
    refused(server, shop, store)
    until(lambda: running(store, done.version), SECONDS)
    wanted = truth(shop, tmp_path)
    until(lambda: sales(shop / "lake") == wanted, SECONDS)

    rolled_back(page, server, store, str(done.savepoint))
    until(lambda: running(store, first.version), SECONDS)
    until(lambda: sales(shop / "lake") == wanted, SECONDS)
    pid = drivers(store)[0].pid
    assert pid is not None
    server.process.send_signal(signal.SIGINT)
    server.process.wait(SECONDS)
    assert not psutil.pid_exists(pid), "Ctrl-C stops the streams too"
    assert drivers(store)[0].reason == "stopped at a micro-batch boundary"
    assert deployment(store).desired == "running"


def upgraded(page: Page, server: Server, store: Store) -> Action:
    """The schedule has upgraded the stream."""
    done = ended(store, "done")
    assert done.kind == "upgrade"
    run = until(lambda: next((r for r in server.runs("upgrade") if r["status"] == "SUCCESS"), None), SECONDS)
    visit(page, f"{server.url}/runs/{run['runId']}", "RUN_SUCCESS")
    return done


def taken_back(page: Page, server: Server, store: Store, shop: Path) -> None:
    """The schedule has started a version that crashes at the orders that land meanwhile, and has taken it back."""
    known, pipe = max((one.id for one in store.actions(limit=1)), default=0), subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", LANDER], cwd=shop, stdin=pipe, stdout=pipe, text=True) as lander:
        assert lander.stdout is not None
        assert "ready" in lander.stdout.readline()
        edit(shop, *BAD)
        until(lambda: any(one.id > known and one.step != "stopping" for one in store.actions(limit=1)), SECONDS)
        edit(shop, *reversed(BAD))  # its code is kept already; what the schedule finds from now on is no change
        lander.communicate("now\n", timeout=SECONDS)
        assert lander.returncode == 0
    turn(page, server, SCHEDULE, "STOPPED")
    back = until(
        lambda: next((a for a in store.actions(limit=3) if a.id > known and a.ended_at is not None), None), SECONDS
    )
    assert back.step == "rolled back", back
    assert "it crashed: EXECUTION-050" in (back.reason or "")
    assert "CAST(country AS DOUBLE)" in (back.reason or "")
    failed = until(lambda: next((r for r in server.runs("upgrade") if r["status"] == "FAILURE"), None), SECONDS)
    visit(page, f"{server.url}/runs/{failed['runId']}", "LIFECYCLE-056")
    visit(page, f"{server.url}/locations/{server.location}/jobs/upgrade/runs", "Failure")
    picture(page, "upgrades")


def refused(server: Server, shop: Path, store: Store) -> None:
    """A version that is computed anew, and is not what the asset expects, is taken back."""
    edit(shop, *UNEXPECTED)
    config = {"operator": OPERATOR, "rebuild": True, "soak_seconds": 1}
    run = server.launch_job("upgrade", {"ops": {"upgrade_stream": {"config": config}}})
    assert server.ended(run) == "FAILURE"
    assert "of 'hourly_sales' is not met" in (ended(store, "rolled back").reason or "")
    edit(shop, *reversed(UNEXPECTED))


def rolled_back(page: Page, server: Server, store: Store, savepoint: str) -> None:
    """Everything is back at a savepoint that was chosen by clicks."""
    key = until(lambda: next((one for one in savepoints(server) if one.startswith(savepoint)), None), SECONDS)
    launch(page, server, "rollback", partition=key, name="rollback")
    assert ended(store, "done").kind == "rollback"
