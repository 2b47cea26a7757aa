"""Two hosts with one control store, of which one works: hosts that die, supervisors that die, clocks hours apart."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
from failing_hosts import Host, check_turns, drivers, has_summed, put, run_on, started, until

from floodmark.control.processes.supervisor import LEASE
from floodmark.control.streams.fleet import Fleet

HASTY = 4.0, 12.0
"""Lease and patience, s, of hosts of which others soon take over."""


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Fleet]:
    """A workspace whose control store is in PostgreSQL, and whose streams were started."""
    with started(tmp_path) as fleet:
        yield fleet


@pytest.fixture
def host(fleet: Fleet) -> Iterator[Callable[[str, float], Host]]:
    """Hosts; nothing of them is left afterwards."""
    made: list[Host] = []

    def begin(name: str, shift: float) -> Host:
        made.append(Host(fleet.root, name, shift, HASTY))
        return made[-1]

    yield begin
    for one in made:
        one.kill()


@pytest.mark.timeout(900)
@pytest.mark.feature("O3")
@pytest.mark.parametrize(
    "shift", [3600, pytest.param(0, marks=pytest.mark.soak), pytest.param(-3600, marks=pytest.mark.soak)]
)
def test_the_other_host_takes_over_and_no_row_is_lost_or_double(
    fleet: Fleet, host: Callable[[str, float], Host], shift: float
) -> None:
    first, root = host("first", shift), fleet.root
    put(root, 1)
    until(fleet, lambda: run_on(fleet, "first") and has_summed(fleet, 2))
    second = host("second", 0)
    until(fleet, lambda: second.stands_by)
    put(root, 2)
    until(fleet, lambda: has_summed(fleet, 3))
    began = {name: one.id for name, one in drivers(fleet).items()}
    assert run_on(fleet, "first"), "one works, the other waits"

    first.supervisor.kill()
    put(root, 3)
    until(fleet, lambda: has_summed(fleet, 4) and (fleet.store.holder(LEASE) or "").startswith("second"))
    put(root, 4)
    until(fleet, lambda: has_summed(fleet, 5))
    assert {name: one.id for name, one in drivers(fleet).items()} == began, (
        "streams outlive their supervisor, and the other host leaves them alone"
    )

    first.kill()
    put(root, 5)
    until(fleet, lambda: run_on(fleet, "second") and has_summed(fleet, 6))
    third = host("first", shift)
    until(fleet, lambda: third.stands_by)
    second.kill()
    put(root, 6)
    until(fleet, lambda: run_on(fleet, "first") and has_summed(fleet, 7))
    check_turns(fleet)
    third.supervisor.send_signal(signal.SIGTERM)
    until(fleet, lambda: all(one.state == "stopped" for one in drivers(fleet).values()))
    until(fleet, lambda: fleet.store.holder(LEASE) is None)


@pytest.mark.timeout(900)
@pytest.mark.feature("O3")
@pytest.mark.soak
def test_a_host_that_is_frozen_and_thaws_writes_nothing_beside_the_other(
    fleet: Fleet, host: Callable[[str, float], Host]
) -> None:
    first, root = host("first", 0), fleet.root
    until(fleet, lambda: run_on(fleet, "first"))
    second = host("second", 0)
    until(fleet, lambda: second.stands_by)
    frozen = psutil.Process(first.process.pid).children(recursive=True)
    for one in frozen:
        one.suspend()
    put(root, 1)
    until(fleet, lambda: all((one.host or "").startswith("second") for one in drivers(fleet).values()))
    for one in frozen:
        one.resume()
    put(root, 2)
    until(fleet, lambda: run_on(fleet, "second") and has_summed(fleet, 3))
    check_turns(fleet)
