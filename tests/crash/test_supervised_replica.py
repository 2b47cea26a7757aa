"""Replicas as supervised streams, declared beside a source and an operator: killed, started again, seen and stopped as any delivery."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import supervised
from deltalake import DeltaTable
from supervised import fleet_of, supervisors

from floodmark import ToFiles, ToLake, source_asset
from floodmark.control.processes.supervisor import Supervisor
from floodmark.control.state.records import Driver
from floodmark.control.streams.fleet import Fleet
from floodmark.control.streams.vitals import vitals
from floodmark.core.errors import DefinitionError
from floodmark.deliveries.run import deliver
from floodmark.engines.embedded.landing.run import land
from floodmark.engines.embedded.sail.session import Sail
from floodmark.engines.embedded.unbounded.run import run_unbounded
from floodmark.lake.folder.paths import Lake
from floodmark.lake.restore.readers import needs
from floodmark.lake.table import entries
from floodmark.observe.status import status

CODE = '''
"""A source and its operator, both replicated."""
from floodmark import Ascending, Contract, EventTime, Files, Restart, Settings, Source, Stream, ToLake, Tumbling, Workspace
from floodmark import count, operator, operator_asset, source_asset, sum

class Reading(Contract):
    """A number."""
    at: EventTime
    value: int

readings = Source("readings", contract=Reading, connector=Files("inbox", min_age="0 s"), watermark=Ascending())
AT_ONCE = Restart.fixed("0 s", budget=None)

@operator
def minutely(readings: Stream[Reading]) -> Stream:
    """Sums of a minute."""
    windowed = readings.with_columns(parity="value % 2").key_by("parity").window(Tumbling("1 minute"), allowed_lateness="1 hour")
    return windowed.aggregate(n=count(), total=sum("value"))

def workspace(environment: str = "dev") -> Workspace:
    """All of it."""
    landed = source_asset(readings, deliver=[ToLake("there", restart=AT_ONCE)])
    computed = operator_asset(minutely, deliver=[ToLake("there", restart=AT_ONCE)])
    return Workspace(sources=[landed], operators=[computed], settings=Settings(lake="lake", engine="embedded"))
'''
STREAMS = ["readings_to_lake", "minutely_to_lake"]


@pytest.fixture
def fleet(tmp_path: Path) -> Fleet:
    """A workspace in files."""
    return fleet_of(tmp_path, CODE)


@pytest.fixture
def supervising(fleet: Fleet) -> Iterator[Callable[..., Supervisor]]:
    """Supervisors of the replicas."""
    with supervisors(fleet) as supervisor:
        yield supervisor


def put(fleet: Fleet, sail: Sail, number: int) -> None:
    """Three more minutes land, and their results are computed."""
    rows = "".join(f"2001-01-01T0{number}:{minute:02}:01,{number * 10 + minute}\n" for minute in range(3))
    (fleet.root / "inbox" / f"{number}.csv").write_text(f"at,value\n{rows}")
    land(lambda: sail, fleet.workspace.source("readings"), fleet.lake, workspace=fleet.root)
    run_unbounded(sail, fleet.workspace.operator("minutely"), fleet.lake, until_caught_up=True)


def same(fleet: Fleet) -> bool:
    """Whether the other lake has all commits."""
    there = Lake(str(fleet.root / "there"))
    pairs = [
        (fleet.lake.log("readings"), there.log("readings")),
        (fleet.lake.output("minutely"), there.output("minutely")),
    ]
    pairs.append((fleet.lake.output("minutely__current"), there.output("minutely__current")))
    for path, other in pairs:
        if not entries.is_table(other) or entries.version_of(path) != entries.version_of(other):
            return False
        for version in range(entries.version_of(path) + 1):
            assert entries.entry(path, version) == entries.entry(other, version)
        assert DeltaTable(path).to_pyarrow_table().num_rows == DeltaTable(other).to_pyarrow_table().num_rows
    return True


@pytest.mark.feature("D7")
def test_replicas_are_streams_that_are_killed_started_again_seen_and_stopped(
    fleet: Fleet, supervising: Callable[..., Supervisor], sail: Sail
) -> None:
    put(fleet, sail, 0)
    fleet.start([fleet.workspace.stream(name) for name in STREAMS])
    supervisor = supervising(point="replica.after_files")

    def until(name: str, seen: Callable[[Driver], object]) -> Driver:
        return supervised.until(supervisor, fleet.stream(name), seen)

    for name in STREAMS:
        until(name, lambda driver: driver.epoch >= 1 and driver.state == "running" and driver.batch is not None)
    until(STREAMS[1], lambda _: same(fleet))
    put(fleet, sail, 1)
    until(STREAMS[1], lambda _: same(fleet))
    seen = {one.deployment.operator: one for one in vitals(fleet.store, fleet.store.deployments())}
    assert {seen[name].as_json()["kind"] for name in STREAMS} == {"delivery"}
    for name in STREAMS:
        fleet.want(name, "stopped")
    ended = [until(name, lambda driver: driver.ended_at is not None) for name in STREAMS]
    assert {(driver.state, driver.reason) for driver in ended} == {("stopped", "stopped at a delivery boundary")}
    rows = {row["name"]: row for row in status(fleet.workspace, fleet.lake) if row["kind"] == "delivery"}
    assert {rows[name]["state"] for name in STREAMS} == {"up to date"}
    assert needs(fleet.lake).floors[fleet.lake.log("readings")] <= entries.version_of(fleet.lake.log("readings"))


def test_a_delivery_by_hand_says_what_it_has_shipped_and_a_log_takes_no_other_delivery(
    fleet: Fleet, sail: Sail
) -> None:
    put(fleet, sail, 2)
    told: list[str] = []
    route = fleet.workspace.delivery("readings_to_lake")
    at = deliver(route, fleet.lake, on_delivery=lambda one: told.append(str(one)), until_caught_up=True)
    assert at is not None
    assert (at.name, at.version, len(told)) == ("readings", entries.version_of(fleet.lake.log("readings")), 1)
    assert deliver(route, fleet.lake, on_delivery=lambda one: told.append(str(one)), until_caught_up=True) == at
    assert len(told) == 1
    source = fleet.workspace.source("readings")
    for wrong in (ToFiles("out"), ToLake("there", output="late")):
        with pytest.raises(DefinitionError, match="DEFINITION-342"):
            source_asset(source, deliver=[wrong])
    with pytest.raises(DefinitionError, match="DEFINITION-341"):
        ToLake("")
