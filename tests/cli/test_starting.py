"""The status of a stream between ``floodmark start`` and its first micro-batch."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from floodmark.control.state.store import Store

from .conftest import Verb
from .test_embedded import landed


@pytest.fixture
def store(shop: Path) -> Store:
    return Store(f"sqlite:///{shop}/.floodmark/control/control.db")


@pytest.fixture
def state(verb: Verb, shop: Path) -> Callable[[], str]:
    """What the status says of the output."""

    def of_output() -> str:
        done = verb("status", "--json")
        assert done.exit_code == 0, done.output
        tables = json.loads(done.stdout)["tables"]
        (found,) = {row["state"] for row in tables if row["name"] == "hourly_sales"}
        return found

    return of_output


def test_an_output_without_a_micro_batch_says_what_it_waits_for(
    verb: Verb, shop: Path, store: Store, state: Callable[[], str]
) -> None:
    landed(shop)
    assert state() == "not run yet: floodmark run hourly_sales"
    assert "fix:      Start it: floodmark start hourly_sales" in verb("logs", "hourly_sales").stderr
    assert verb("start", "hourly_sales").exit_code == 0
    assert state() == "asked for, and no supervisor is at work: floodmark supervise"
    assert store.lease("supervisor", "a test", 600) is not None
    assert state() == "starting: asked for, no driver yet"
    silent = verb("logs", "hourly_sales")
    assert silent.exit_code == 1
    assert silent.stderr.startswith("LIFECYCLE-050 stream 'hourly_sales'\n  expected: a driver, whose log this is\n")
    assert "got:      starting: asked for, no driver yet\n" in silent.stderr
    deployment = next(one for one in store.deployments() if one.operator == "hourly_sales")
    driver = store.begin(deployment, str(shop / "log"))
    assert state().startswith("starting: its driver is starting, process None, no micro-batch yet, heard of ")
    store.update(driver.id, heard=True, state="running", batch=4)
    assert state().startswith("nothing written here yet: its driver is running, process None, micro-batch 4, heard of ")
    store.end(driver.id, "crashed", "it was killed")
    assert state() == "crashed: it was killed: floodmark logs hourly_sales"
    again = store.begin(deployment, str(shop / "log"))
    store.end(again.id, "stopped", "asked to")
    assert state() == "starting: asked for, no driver yet"
    store.want(deployment.stream, "stopped")
    assert state() == "not run yet: floodmark run hourly_sales"
