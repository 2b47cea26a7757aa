"""Streams that run while there is data, and at the times of a cron expression, with drivers of their own: they wake, drain, sleep, and find every row once."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import forked
import pytest
from stored import rows
from supervised import PATIENCE_SECONDS, fleet_of

from floodmark.control.health.judgement import judged
from floodmark.control.processes.holding import Holding
from floodmark.control.processes.supervisor import LEASE, Supervisor
from floodmark.control.state.records import Driver
from floodmark.control.streams.fleet import Fleet
from floodmark.spec.assets.restart import Restart

CODE = '''
"""A source and two operators."""
from floodmark import *

class Reading(Contract):
    """A number."""
    at: EventTime
    value: int

readings = Source("readings", contract=Reading, connector=Files("inbox", min_age="0 s"), watermark=Ascending())

@operator
def when_there_is_data(readings: Stream[Reading]) -> Stream:
    """Those that are there."""
    return readings.filter("value >= 0")

@operator
def each_minute(readings: Stream[Reading]) -> Stream:
    """Those that are there."""
    return readings.filter("value >= 0")

def workspace(environment: str = "dev") -> Workspace:
    """The workspace."""
    return Workspace(
        sources=[readings],
        operators=[
            operator_asset(when_there_is_data, run_when="data", freshness="10 minutes"),
            operator_asset(each_minute, run_when="* * * * *"),
        ],
        settings=Settings(lake="lake", engine="embedded", streams="isolated"),
    )
'''
DRIVER = """
import sys
from floodmark.control.processes import driver, job
job.LINGER_SECONDS = 0.2
sys.exit(driver.main(*sys.argv[1:]))
"""
NAMES = ("when_there_is_data", "each_minute")


@pytest.fixture
def fleet(tmp_path: Path) -> Fleet:
    """A workspace in files."""
    return fleet_of(tmp_path, CODE)


@pytest.fixture
def clock() -> list[float]:
    """The time of the supervisor, which stands still."""
    return [time.time()]


@pytest.fixture
def supervisor(fleet: Fleet, clock: list[float]) -> Iterator[Supervisor]:
    """Whose drivers linger for a moment."""

    def command(driver: Driver) -> list[str]:
        return [str(forked.program("driver")), "-c", DRIVER, str(driver.id), str(fleet.home / "packages")]

    made = Supervisor(
        store=fleet.store,
        home=fleet.home,
        holder="a",
        command=command,
        say=lambda _: None,
        restart=Restart.fixed("0 s"),
        clock=lambda: clock[0],
    )
    yield made
    while made._stop_all():
        time.sleep(0.05)
    fleet.store.release(LEASE, "a")


def until(supervisor: Supervisor, seen: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE_SECONDS
    while not seen():
        assert time.monotonic() < end, supervisor.store.living()
        supervisor.tick()
        time.sleep(0.05)


@pytest.mark.clock
@pytest.mark.feature("O5")
def test_streams_wake_drain_and_sleep_and_read_every_row_once(
    fleet: Fleet, supervisor: Supervisor, clock: list[float], tmp_path: Path, embedded: Any
) -> None:
    began, values = time.time(), list[int]()

    def land(*some: int) -> None:
        values.extend(some)
        lines = "".join(f"{1000 * began + one:.0f},{one}\n" for one in some)
        (tmp_path / "inbox" / f"{some[0]:03}.csv").write_text(f"at,value\n{lines}")
        embedded.land(fleet.workspace.source("readings"), fleet.lake, workspace=tmp_path)

    def asleep(name: str, starts: int) -> bool:
        drivers = fleet.store.drivers(fleet.stream(name))
        return len(drivers) == starts and all(one.state == "stopped" and one.read_to is not None for one in drivers)

    land(1, 2, 3)
    fleet.start(fleet.workspace.operators)
    until(supervisor, lambda: all(asleep(name, 1) for name in NAMES))
    for _ in range(3):
        supervisor.tick()
    assert all(asleep(name, 1) for name in NAMES), "none is started"
    land(4, 5)
    until(supervisor, lambda: asleep("when_there_is_data", 2))
    assert asleep("each_minute", 1), "its minute has not come"
    now, clock[0] = clock[0], time.time() + 60
    until(supervisor, lambda: len(fleet.store.drivers(fleet.stream("each_minute"))) > 1)
    clock[0] = now
    until(supervisor, lambda: asleep("each_minute", 2))
    for name in NAMES:
        assert sorted(one.value for one in rows(fleet.lake.output(name)) if one.value is not None) == values

    def conditions(later: float) -> dict[str, str]:
        every = judged(fleet.store, fleet.store.deployments(), holding=Holding(), now=fleet.store.now() + later)
        return {stream.operator: verdict.health.condition for stream, verdict in every.items()}

    assert conditions(0) == dict.fromkeys(NAMES, "asleep")
    assert conditions(3600) == {"when_there_is_data": "stale", "each_minute": "asleep"}, "freshness is kept"
    shown = forked.run([sys.executable, "-m", "floodmark.cli.main", "status", "--json"], cwd=tmp_path)
    states = {one["stream"]: one["state"] for one in json.loads(shown.stdout)["streams"]}
    for name in NAMES:
        assert "asleep: nothing is left to read; in the last hour started 2 times, busy for " in states[name]
