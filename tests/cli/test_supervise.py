"""Streams that run by themselves: the supervisor, its drivers and the verbs, on the shop."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import forked
import psutil
import pytest
from deltalake import DeltaTable
from processes import end_drivers

from floodmark.control.state.records import Driver
from floodmark.control.state.store import Store

from .conftest import command, program

OPERATOR = "hourly_sales"
LAND = ("land", "orders", "--engine", "embedded")


@pytest.fixture
def shop(tmp_path: Path, engine_name: str, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A workspace whose orders have landed."""
    monkeypatch.setenv("FLOODMARK_ENGINE", engine_name)
    assert program(tmp_path, "init", "shop").returncode == 0
    done = program(tmp_path / "shop", *LAND)
    assert done.returncode == 0, done.stderr
    return tmp_path / "shop"


@pytest.fixture
def store(shop: Path) -> Store:
    return Store(f"sqlite:///{shop}/.floodmark/control/control.db")


@pytest.fixture
def supervisor(shop: Path, store: Store) -> Iterator[Callable[[], subprocess.Popen[str]]]:
    """Supervisors; they and what they started are gone afterwards."""
    begun: list[subprocess.Popen[str]] = []

    def begin() -> subprocess.Popen[str]:
        pipe = subprocess.PIPE
        variables = os.environ | forked.starting_forks()
        begun.append(
            forked.begin(
                command("supervise"), cwd=shop, env=variables, stdout=pipe, stderr=subprocess.STDOUT, text=True
            )
        )
        return begun[-1]

    yield begin
    for process in begun:
        process.kill()
        process.wait()
    end_drivers(drivers(store))


def drivers(store: Store) -> list[Driver]:
    return [driver for one in store.deployments() if one.operator == OPERATOR for driver in store.drivers(one.stream)]


def until(store: Store, seen: Callable[[Driver], bool], seconds: float = 300) -> Driver:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        newest = next(iter(drivers(store)), None)
        if newest is not None and seen(newest):
            return newest
        time.sleep(0.1)
    newest = drivers(store)[0]
    raise AssertionError(f"{newest}\n{Path(newest.log).read_text()[-3000:]}")


def sales(shop: Path) -> int:
    path = str(shop / "lake" / "outputs" / OPERATOR)
    if not DeltaTable.is_deltatable(path):
        return 0
    rows = DeltaTable(path).to_pyarrow_table(columns=["orders", "_kind"]).to_pylist()
    return sum(row["orders"] * (1 if row["_kind"] == 0 else -1) for row in rows if row["_kind"] < 1)


@pytest.mark.timeout(900)
@pytest.mark.engines("embedded", soak=("spark",))
@pytest.mark.feature("O3", "O5")
def test_a_stream_outlives_its_driver_its_supervisor_and_the_code_it_was_started_from(
    shop: Path, store: Store, supervisor: Callable[[], subprocess.Popen[str]]
) -> None:
    never = program(shop, "stop", OPERATOR)
    assert (never.returncode, never.stderr.split()[0]) == (1, "LIFECYCLE-050")
    started = program(shop, "start", OPERATOR)
    assert started.returncode == 0, started.stderr
    assert "no supervisor is at work, so nothing happens yet: floodmark supervise" in started.stdout
    first_supervisor = supervisor()
    first = until(store, lambda driver: driver.batch is not None and sales(shop) > 0)
    assert f"process {first.pid}" in program(shop, "status").stdout
    bounded = program(shop, "run", OPERATOR, "--unbounded", "--until-caught-up")
    assert "LIFECYCLE-003" in bounded.stderr, "one writer"

    operators = shop / "operators" / "orders.py"
    operators.write_text(operators.read_text().replace("cents=sum(", "items=sum('items'), cents=sum("))
    first_supervisor.kill()  # the stream goes on; the next supervisor takes it over
    first_supervisor.wait()
    assert psutil.pid_exists(first.pid or 0)
    store.release("supervisor", store.holder("supervisor") or "")
    supervisor()
    os.kill(first.pid or 0, signal.SIGKILL)
    second = until(store, lambda driver: driver.id != first.id and driver.state == "running")
    assert second.version == first.version, "it runs the package, not the file that was edited"
    assert store.driver(first.id).state == "crashed"

    before = sales(shop)
    landed = program(shop, *LAND, "--end")
    assert landed.returncode == 0, landed.stderr
    until(store, lambda driver: sales(shop) > before)
    refused = program(shop, "start", OPERATOR)
    assert "STATE-003" in refused.stderr
    assert "floodmark apply" in refused.stderr
    stopped = program(shop, "stop", OPERATOR, "--json")
    assert stopped.returncode == 0, stopped.stderr
    assert json.loads(stopped.stdout)["stopped"] == [OPERATOR]
    assert drivers(store)[0].reason == "stopped at a micro-batch boundary"
    told = program(shop, "logs", OPERATOR)
    assert "BatchInfo" in told.stdout
    assert "ERROR" not in told.stdout, "a stream that is stopped stops what it has begun at a boundary too"


def test_a_supervisor_whose_workspace_is_moved_ends_with_the_reason(
    shop: Path, store: Store, supervisor: Callable[[], subprocess.Popen[str]]
) -> None:
    process, moved, end = supervisor(), shop.with_name("moved"), time.monotonic() + 300
    while store.holder("supervisor") is None and time.monotonic() < end:
        time.sleep(0.02)
    shop.rename(moved)
    text = process.communicate(timeout=300)[0]
    moved.rename(shop)
    assert process.returncode == 1
    assert text.splitlines()[-4].startswith("LIFECYCLE-305 supervisor"), text
