"""An upgrade to code that the workspace's engine does not run is refused while the stream goes on."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import dagster as dg
import pyarrow as pa
import pytest
from deltalake import write_deltalake
from events import Event, row, source

from floodmark import Settings, Stream, Tumbling, Workspace, count, operator, operator_asset
from floodmark.control.processes.meter import Meter
from floodmark.control.processes.running import Running
from floodmark.control.processes.supervisor import LEASE
from floodmark.control.streams.actions import rebuild, upgrade
from floodmark.control.streams.fleet import Fleet
from floodmark.core.errors import CapabilityError
from floodmark.engines import transfer
from floodmark.lake.stream.timeline import Timeline
from floodmark.orchestration import build_definitions
from floodmark.spec.graph.operator import Operator


def hours(*, refused: bool) -> Operator:
    """Events of an hour; of keys that a function selects which Sail answers otherwise, or of all."""

    @operator
    def per_hour(events: Stream[Event]) -> Stream:
        chosen = events.filter("initcap(key) <> 'B'") if refused else events
        return chosen.key_by("key").window(Tumbling("1 hour")).aggregate(n=count())

    return per_hour


def workspace_of(root: Path, found: Operator) -> Workspace:
    settings = Settings(lake="lake", engine="embedded")
    return Workspace(sources=[source([row(1)])], operators=[operator_asset(found)], settings=settings).at(str(root))


@pytest.fixture
def fleet(tmp_path: Path) -> Fleet:
    """A stream that should run, under a supervisor; since it was started, its code has changed to code that is refused."""
    (tmp_path / "pyproject.toml").write_text("")
    found, old = (
        Fleet(workspace=workspace_of(tmp_path, hours(refused=True)), root=tmp_path, say=lambda _: None),
        hours(refused=False),
    )
    Timeline.current(found.lake, old.name).identity.deploy(old)
    found.deploy(old.name, found.pack(), old.version, "running")
    found.store.lease(LEASE, "a supervisor", 60)
    return found


def untouched(fleet: Fleet) -> bool:
    """Whether the old version should run as before, and no action was begun."""
    deployed, old = fleet.deployments(["per_hour"])["per_hour"], hours(refused=False)
    return (deployed.version, deployed.desired) == (old.version, "running") and fleet.store.unfinished(
        fleet.stream("per_hour")
    ) is None


def never(*_: object, **__: object) -> None:
    message = "called, though the engine refuses the operator"
    raise AssertionError(message)


@pytest.mark.parametrize(
    "act",
    [
        lambda fleet, new: upgrade(fleet, new, forward_only=True),
        lambda fleet, new: rebuild(fleet, never, new),
    ],
    ids=["upgrade", "rebuild"],
)
def test_an_upgrade_is_refused_before_the_stream_is_stopped(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch, act: Callable[[Fleet, Operator], object]
) -> None:
    monkeypatch.setattr(Fleet, "stop", never)
    with pytest.raises(CapabilityError, match=r"CAPABILITY-031 operator 'per_hour'.*initcap\(string\)"):
        act(fleet, fleet.workspace.operator("per_hour"))
    assert untouched(fleet)


def test_a_stream_without_a_micro_batch_stops_and_begins_under_the_new_code(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may be at work under the old code, and wait for its first rows."""

    @operator(name="per_hour")
    def new(events: Stream[Event]) -> Stream:
        return events.window(Tumbling("1 hour")).aggregate(rows=count())

    stopped = list[str]()
    monkeypatch.setattr(Fleet, "stop", lambda _, names: stopped.extend(names))
    found, action = upgrade(fleet, new)
    assert (found.deployed, action, stopped) == (None, None, ["per_hour"])
    deployed = fleet.deployments(["per_hour"])["per_hour"]
    assert (deployed.version, deployed.desired) == (new.version, "running")


@pytest.mark.parametrize("way", ["forward_only", "rebuild"])
def test_the_job_upgrade_fails_and_the_stream_goes_on(fleet: Fleet, tmp_path: Path, way: str) -> None:
    job = build_definitions(fleet.workspace, root=tmp_path).resolve_job_def("upgrade")
    config = {"ops": {"upgrade_stream": {"config": {"operator": "per_hour", way: True}}}}
    with dg.DagsterInstance.ephemeral() as instance:
        done = job.execute_in_process(instance=instance, run_config=config, raise_on_error=False)
    failure = done.failure_data_for_node("upgrade_stream")
    assert failure is not None
    assert failure.user_failure_data is not None
    assert "CAPABILITY-031" in str(failure.user_failure_data.description)
    assert untouched(fleet)


def test_a_driver_refuses_before_the_stream_goes_over_to_its_engine(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    new = fleet.workspace.operator("per_hour")
    fleet.deploy(new.name, "package", new.version, "running")
    write_deltalake(fleet.lake.input(new.inputs[0]), pa.table({"key": ["a"]}))
    monkeypatch.setattr(transfer, "transfer", never)
    deployment = fleet.store.deployment(fleet.stream(new.name))
    assert deployment is not None
    begun = fleet.store.begin(deployment, "logs")
    with pytest.raises(CapabilityError, match="CAPABILITY-031"):
        Running(fleet.store, begun, Meter(), print)._run(lambda _: fleet.workspace, lambda: None)
