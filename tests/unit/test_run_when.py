"""Streams that have a process only while there is data."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from events import Event, row, source
from idle_job import IdleJob
from stored import rows

from floodmark import Settings, Stream, Tumbling, Workspace, count, operator, operator_asset
from floodmark.control.processes import driver as driving
from floodmark.control.processes import job as jobs
from floodmark.control.processes import running
from floodmark.control.processes.engine import Computing
from floodmark.control.processes.job import OperatorStream
from floodmark.control.processes.supervisor import Supervisor, awaited, describe_driver
from floodmark.control.state.store import CONTROL
from floodmark.control.streams.fleet import Fleet
from floodmark.core.errors import DefinitionError
from floodmark.lake.folder.paths import Lake
from floodmark.observe.measure import Committed

PATIENCE_SECONDS = 120


@operator
def tallied(events: Stream[Event]) -> Stream:
    return events.key_by("key").window(Tumbling("1 hour")).aggregate(n=count())


@operator
def by_the_clock(events: Stream[Event]) -> Stream:
    return events.key_by("key").window(Tumbling("1 hour"), time="processing").aggregate(n=count())


@pytest.fixture
def fleet(tmp_path: Path) -> Fleet:
    """Of an operator whose stream sleeps."""
    workspace = Workspace(
        sources=[source([row(1)])],
        operators=[operator_asset(tallied, run_when="data")],
        settings=Settings(lake="lake", engine="embedded"),
    ).at(str(tmp_path))
    return Fleet(workspace=workspace, root=tmp_path, say=lambda _: None)


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        (lambda: operator_asset(tallied, run_when="sometimes"), "run_when='sometimes'"),
        (lambda: operator_asset(by_the_clock, run_when="data"), "processing time, which passes without data"),
    ],
)
def test_what_would_never_wake_is_refused(wrong, says):
    with pytest.raises(DefinitionError, match=f"DEFINITION-097.*{says}"):
        wrong()


class Drained(IdleJob):
    """A job that has nothing to read."""

    def start(self) -> None:
        """At once."""

    def run(self, *_: object) -> dict[str, int]:
        """Ends at once."""
        return {"/table": 7}


def test_a_driver_writes_down_what_its_stream_has_read(
    fleet: Fleet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fleet.deploy("tallied", "package", "tallied@1", "running")
    deployment = fleet.store.deployment(fleet.stream("tallied"))
    assert deployment is not None
    driver = fleet.store.begin(deployment, "/log")
    monkeypatch.setenv(CONTROL, fleet.store.url)
    monkeypatch.setattr(driving, "load", lambda *_: fleet.workspace)
    monkeypatch.setattr(running, "job_of", lambda *_: Drained())
    monkeypatch.setattr(driving, "_stop_at", lambda _: None)
    assert driving.main(str(driver.id), str(tmp_path)) == 0
    ended = fleet.store.driver(driver.id)
    assert (ended.state, ended.read_to) == ("stopped", {"/table": 7})
    assert ended.reason == "nothing is left to read"


def test_a_stream_that_has_read_all_is_left_until_its_input_has_another_commit(fleet: Fleet, tmp_path: Path) -> None:
    fleet.deploy("tallied", "package", "tallied@1", "running")
    stream, store, table = fleet.stream("tallied"), fleet.store, str(tmp_path / "log")
    write_deltalake(table, pa.table({"n": [1]}))
    deployment = store.deployment(stream)
    assert deployment is not None
    assert deployment.run_when == "data"
    driver = store.begin(deployment, "/log")
    store.end(driver.id, "stopped", "nothing is left to read", {table: 0})
    asleep = store.driver(driver.id)
    assert describe_driver(asleep) == "asleep: nothing is left to read"
    assert awaited(deployment, asleep, supervised=True) == "asleep: nothing is left to read"
    one = Supervisor(store=store, home=fleet.home, holder="one", command=lambda _: ["sleep", "0"], say=lambda _: None)
    for _ in range(3):
        one.tick()
    assert len(store.drivers(stream)) == 1
    write_deltalake(table, pa.table({"n": [2]}), mode="append")
    one.tick()
    assert len(store.drivers(stream)) == 2, "it wakes"


def test_a_stream_is_started_where_its_input_is_gone_or_somebody_has_said_so(fleet: Fleet, tmp_path: Path) -> None:
    for again in (False, True):
        fleet.deploy("tallied", "package", "tallied@1", "running")
        stream, store = fleet.stream("tallied"), fleet.store
        write_deltalake(str(tmp_path / "log"), pa.table({"n": [1]}), mode="overwrite")
        deployment = store.deployment(stream)
        assert deployment is not None
        driver = store.begin(deployment, "/log")
        gone = str(tmp_path / ("log" if again else "nowhere"))
        store.end(driver.id, "stopped", "nothing is left to read", {gone: int(again)})
        before = len(store.drivers(stream))
        if again:
            store.update(driver.id, started_at=deployment.changed_at - 1)
        Supervisor(
            store=store, home=fleet.home, holder="one", command=lambda _: ["sleep", "0"], say=lambda _: None
        ).tick()
        newest = store.drivers(stream)[0]
        assert len(store.drivers(stream)) == before + 1
        store.end(newest.id, "stopped", "so")


def test_a_stream_drains_lingers_and_says_what_it_has_read(
    embedded: Computing, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What comes while it lingers is read by the same process; its rows are those of a bounded run."""
    lake, events = Lake(str(tmp_path / "lake")), [row(minute) for minute in range(300)]
    embedded.land(source(events[:100]), lake)
    stream = OperatorStream(tallied, Settings(lake=lake.root, engine="embedded"), "data")
    looks: list[Mapping[str, int]] = []
    real = OperatorStream._versions

    def versions(self: OperatorStream) -> dict[str, int]:
        looks.append(real(self))
        if len(looks) == 2:  # it has caught up, and lingers
            embedded.land(source(events), lake, end=True)
        return real(self)

    monkeypatch.setattr(OperatorStream, "_versions", versions)
    monkeypatch.setattr(jobs, "LINGER_SECONDS", 0.05)
    monkeypatch.setattr(jobs, "_LOOK_SECONDS", 0.02)
    commits: list[Committed] = []
    stream.start()
    read_to = stream.run(threading.Event(), commits.append, lambda _: None)
    monkeypatch.undo()
    assert read_to == stream._versions()
    assert sum(commit.usage.rows for commit in commits) > len(events)
    counted = {(one.key, one.window_start): one.n for one in rows(lake.output("tallied")) if one.n is not None}
    assert sum(counted.values()) == len(events)
    assert len(counted) == 10
    stopped = threading.Event()
    stopped.set()
    assert stream.run(stopped, commits.append, lambda _: None) is None
