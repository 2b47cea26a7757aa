"""A supervised landing whose driver is killed between any two of its writes, or whose supervisor is: every row lands once."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import supervised
from stored import rows
from supervised import fleet_of, supervisors

from floodmark.control.processes.supervisor import LEASE, Supervisor
from floodmark.control.state.records import Driver
from floodmark.control.streams.fleet import Fleet
from floodmark.core import crash
from floodmark.spec.assets.restart import Restart

FILES = 4
CODE = '''
"""A source."""
from floodmark import Ascending, Contract, EventTime, Files, Restart, Settings, Source, Workspace, source_asset

class Reading(Contract):
    """A number."""
    at: EventTime
    value: int

readings = source_asset(
    Source("readings", contract=Reading, connector=Files("inbox", min_age="0 s"), watermark=Ascending(), files_per_commit=1),
    poll="50 ms",
    restart=Restart.fixed("0 s", budget=None),
)

def workspace(environment: str = "dev") -> Workspace:
    """The source."""
    return Workspace(sources=[readings], settings=Settings(lake="lake", engine="embedded"))
'''
AT_ONCE = "landing.after_log"
"""The point behind most of the writes of a landing; ``make soak`` tries the others."""
POINTS = [
    point if point == AT_ONCE else pytest.param(point, marks=pytest.mark.soak)
    for point in crash.POINTS["landing"]
    if point not in {"landing.before_end", "landing.after_end", "landing.before_recover", "landing.after_recover"}
]
"""Without those of an end of input, which no supervised landing lands, and of a repair, which a first landing has nothing to do with."""


@pytest.fixture
def fleet(tmp_path: Path) -> Fleet:
    """A workspace in files, whose source was started."""
    made = fleet_of(tmp_path, CODE)
    made.start(made.workspace.streams)
    return made


@pytest.fixture
def supervising(fleet: Fleet) -> Iterator[Callable[..., Supervisor]]:
    """Supervisors of the source."""
    with supervisors(fleet) as supervisor:
        yield supervisor


def put(fleet: Fleet, number: int) -> None:
    """A file of two rows, and one that breaks the contract; it appears whole."""
    part, minute = fleet.root / "inbox" / f"{number}.csv.part", f"2001-01-01T00:{number:02}"
    part.write_text(f"at,value\n{minute}:01,{number}\n{minute}:02,{number + 100}\n{minute}:03,many\n")
    part.replace(part.with_suffix(""))


def until(one: Supervisor, seen: Callable[[Driver], object]) -> Driver:
    """Let a supervisor look until the newest driver is so."""
    return supervised.until(one, one.store.deployments()[0].stream, seen)


def check(fleet: Fleet, files: int) -> None:
    """Each row is there once, in order; each broken one was set aside once."""
    landed = [one.value for one in rows(fleet.lake.log("readings"), "_sequence") if one.value is not None]
    assert landed == [value for number in range(files) for value in (number, number + 100)]
    aside = [(one.file, one.position) for one in rows(fleet.lake.quarantine("readings"), "file", "position")]
    assert aside == [(f"{number}.csv", aside[0][1]) for number in range(files)]


@pytest.mark.feature("Z14")
@pytest.mark.parametrize("point", POINTS)
def test_a_driver_that_dies_between_two_writes_is_started_again_and_no_row_is_lost_or_double(
    fleet: Fleet, supervising: Callable[..., Supervisor], point: str
) -> None:
    for number in range(FILES):
        put(fleet, number)
    one = supervising(point=point)
    second = until(
        one, lambda driver: driver.epoch == 1 and driver.state == "running"
    )  # it may have nothing left to land
    first = fleet.store.drivers(fleet.stream("readings"))[1]
    assert (first.state, first.reason) == ("crashed", "killed by SIGKILL"), point
    assert second.kind == "source"
    put(fleet, FILES)
    until(one, lambda driver: driver.batch == FILES)
    check(fleet, FILES + 1)


def test_a_landing_outlives_its_supervisor_and_stops_at_a_commit(
    fleet: Fleet, supervising: Callable[..., Supervisor]
) -> None:
    put(fleet, 0)
    first = until(supervising(), lambda driver: driver.batch == 0)
    fleet.store.release(LEASE, "one")  # as when its lease is over
    other = supervising("other")
    put(fleet, 1)
    second = until(other, lambda driver: driver.batch == 1)
    assert second.id == first.id, "the next supervisor takes over what runs"
    assert first.pid is not None
    os.kill(first.pid, signal.SIGKILL)
    put(fleet, 2)
    third = until(other, lambda driver: driver.id != first.id and driver.batch == 2)
    fleet.store.want(fleet.stream("readings"), "stopped")
    ended = until(other, lambda driver: driver.ended_at is not None)
    assert (ended.id, ended.state, ended.reason) == (third.id, "stopped", "stopped at a commit boundary")
    assert fleet.deployments(["readings"])["readings"].restart == Restart.fixed("0 s", budget=None)
    check(fleet, 3)
