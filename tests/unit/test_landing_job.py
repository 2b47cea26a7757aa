"""The landing of a source as a job of a driver, and sources among the streams of a workspace."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Self

import pytest
from events import Event, row, source
from stored import rows

from floodmark import Ascending, Files, Settings, Source, Stream, Tumbling, Workspace, count, operator, source_asset
from floodmark.connectors.readers.files import FileReader, reader
from floodmark.control.processes.job import Landing, OperatorStream, job_of
from floodmark.control.processes.supervisor import LEASE, describe_driver
from floodmark.control.streams.fleet import Fleet
from floodmark.core.errors import ConnectorError, DefinitionError, LifecycleError
from floodmark.engines.landing.run import locked
from floodmark.lake.folder.locks import STREAM
from floodmark.lake.folder.paths import Lake
from floodmark.observe.measure import Committed

PATIENCE_SECONDS = 120


@operator
def tallied(events: Stream[Event]) -> Stream:
    return events.key_by("key").window(Tumbling("1 hour")).aggregate(n=count())


@pytest.fixture
def fleet(tmp_path: Path) -> Fleet:
    """Of a source that reads an inbox, and an operator."""
    (tmp_path / "pyproject.toml").write_text("")
    files = Source("events", contract=Event, connector=Files("inbox", min_age="0 s"), watermark=Ascending())
    workspace = Workspace(
        sources=[source_asset(files, poll="10 ms")],
        operators=[tallied],
        settings=Settings(lake="lake", engine="embedded"),
    ).at(str(tmp_path))
    return Fleet(workspace=workspace, root=tmp_path, say=lambda _: None)


class Running:
    """A job of the fleet's source in a thread; it ends with the block, and what fails there fails the test."""

    def __init__(self, fleet: Fleet) -> None:
        self.stop, self.commits, self.waits = threading.Event(), list[Committed](), list[str]()
        self.changed, self.error = threading.Condition(), list[Exception]()
        self.job = Landing(fleet.workspace.source_asset("events"), fleet.workspace.settings, "events@1")
        self.thread = threading.Thread(target=self._run)

    def __enter__(self) -> Self:
        self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop.set()
        self.thread.join(PATIENCE_SECONDS)
        assert not self.thread.is_alive()
        assert not self.error

    def _run(self) -> None:
        def noted(to: list[Any]) -> Callable[[Any], None]:
            def note(value: object) -> None:
                with self.changed:
                    to.append(value)
                    self.changed.notify_all()

            return note

        try:
            self.job.start()
            self.job.run(self.stop, noted(self.commits), noted(self.waits))
        except Exception as error:  # noqa: BLE001 - the test fails with it
            noted(self.error)(error)

    def until(self, seen: Callable[[], object]) -> None:
        with self.changed:
            self.changed.wait_for(lambda: self.error or seen(), PATIENCE_SECONDS)
            assert seen(), (self.commits, self.waits, self.error)


def put(fleet: Fleet, name: str, minutes: range) -> None:
    """A file that appears whole."""
    inbox = Path(fleet.root) / "inbox"
    inbox.mkdir(exist_ok=True)
    lines = "".join(f"{row(minute)['at']},{row(minute)['key']},{minute}\n" for minute in minutes)
    (inbox / f"{name}.part").write_text("at,key,value\n" + lines)
    (inbox / f"{name}.part").replace(inbox / name)


def values(fleet: Fleet) -> list[int]:
    return [one.value for one in rows(fleet.lake.log("events"), "_sequence") if one.value is not None]


def test_a_landing_lands_what_comes_and_waits_for_a_folder_that_vanishes(fleet: Fleet) -> None:
    put(fleet, "1.csv", range(3))
    with Running(fleet) as running:
        running.until(lambda: len(running.commits) == 1)
        assert (running.commits[0].number, running.commits[0].usage.rows) == (0, 3)
        inbox, away = fleet.root / "inbox", fleet.root / "away"
        for number in (2, 3):
            running.waits.clear()
            inbox.rename(away)
            running.until(lambda: any("a folder" in text for text in running.waits))
            away.rename(inbox)
            put(fleet, f"{number}.csv", range(2 * number - 1, 2 * number + 1))
            running.until(lambda commits=number: len(running.commits) == commits)
            assert running.waits[-1] == "", "the wait is over"
    assert values(fleet) == list(range(7))


def test_a_folder_that_vanishes_between_two_looks_is_a_folder_that_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inbox, looks = tmp_path / "inbox", list[int]()
    inbox.mkdir()
    files = reader(Files(str(inbox), format="csv"), source([]))
    there = files.check_there

    def checked(_: object) -> None:
        there()
        looks.append(len(looks))
        if len(looks) == 1:
            inbox.rmdir()

    monkeypatch.setattr(FileReader, "check_there", checked)
    with pytest.raises(ConnectorError, match="CONNECTOR-002"):
        list(files.listed())
    assert looks == [0]


def test_a_landing_waits_for_another_landing_of_its_source(fleet: Fleet) -> None:
    put(fleet, "1.csv", range(3))
    with ExitStack() as other:
        other.enter_context(locked(fleet.lake, fleet.workspace.source("events")))
        with Running(fleet) as running:
            running.until(lambda: running.waits)
            assert running.waits[0].startswith("waiting: source 'events' in ")
            assert "got one by process" in running.waits[0]
            assert not running.commits
            other.close()
            running.until(lambda: running.commits)
    assert values(fleet) == list(range(3))


def test_a_landing_by_hand_beside_the_stream_names_the_stream_and_what_stops_it(fleet: Fleet) -> None:
    with (
        locked(fleet.lake, fleet.workspace.source("events"), role=STREAM),
        pytest.raises(LifecycleError, match="LIFECYCLE-003 source 'events' .* floodmark stop events"),
        locked(fleet.lake, fleet.workspace.source("events")),
    ):
        pass


def test_sources_and_operators_are_started_from_one_package(fleet: Fleet) -> None:
    put(fleet, "1.csv", range(3))
    package = fleet.start(fleet.workspace.streams)
    deployed = fleet.deployments(["events", "tallied"])
    assert {name: one.kind for name, one in deployed.items()} == {"events": "source", "tallied": "operator"}
    assert deployed["events"].version == f"events@{package[:8]}"
    assert deployed["tallied"].version == fleet.workspace.operator("tallied").version
    assert fleet.codes() == {"tallied": {"package": package}}, "a savepoint is of an operator"
    landing = job_of(fleet.workspace, deployed["events"])
    assert isinstance(landing, Landing)
    assert landing.version == deployed["events"].version
    assert isinstance(job_of(fleet.workspace, deployed["tallied"]), OperatorStream)
    driver = fleet.store.begin(deployed["events"], "/log")
    fleet.store.update(driver.id, state="running", batch=3, reason="waiting: for rain")
    text = describe_driver(fleet.store.driver(driver.id))
    assert "commit 3" in text
    assert text.endswith("; waiting: for rain")


def test_a_source_whose_folder_is_missing_or_whose_name_is_wrong_is_not_started(fleet: Fleet) -> None:
    with pytest.raises(ConnectorError, match="CONNECTOR-002"):
        fleet.start([fleet.workspace.source("events")])
    assert not fleet.here
    with pytest.raises(DefinitionError, match="DEFINITION-074.*one of its sources, operators or deliveries.*tallied"):
        fleet.workspace.stream("talied")


def test_a_source_that_was_removed_from_the_code_can_be_stopped(fleet: Fleet) -> None:
    fleet.store.lease(LEASE, "one", 60)
    fleet.deploy("removed", "package", "removed@1", "running")
    assert fleet.named("removed") == "removed"
    assert fleet.stop(["removed"]) == {"removed": None}


def test_rows_in_memory_land_as_a_stream_too(tmp_path: Path) -> None:
    """Any connector: the job knows none."""
    workspace = Workspace(
        sources=[source([row(1), row(2)])], settings=Settings(lake=str(tmp_path / "lake"), engine="embedded")
    )
    landing, stop, commits = (
        Landing(workspace.source_asset("events"), workspace.settings, "events@1"),
        threading.Event(),
        [],
    )

    def note(commit: Committed) -> None:
        commits.append(commit)
        stop.set()

    landing.start()
    landing.run(stop, note, lambda _: None)
    assert [one.usage.rows for one in commits] == [2]
    assert len(rows(Lake(str(tmp_path / "lake")).log("events"))) == 3, "two rows and a marker"
