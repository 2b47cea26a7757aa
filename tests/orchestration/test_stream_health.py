"""The check `stream` and the numbers of a stream, without a server: red for each fault, green again by itself, and few events."""

from __future__ import annotations

import os
import sqlite3
import time
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import quote

import dagster as dg
import psutil
import pytest
from dagster_runs import looked, shown
from events import Event, row, source

from floodmark import Daily, Settings, Stream, Workspace, operator, operator_asset, source_asset
from floodmark.control.processes.engine import Computing
from floodmark.control.processes.supervisor import LEASE
from floodmark.control.serving.server import ACTION
from floodmark.control.state import measures
from floodmark.control.state.records import Driver
from floodmark.control.state.store import Store
from floodmark.control.streams.fleet import Fleet
from floodmark.core.host import birth
from floodmark.lake.folder.paths import Lake
from floodmark.lake.restore import savepoints
from floodmark.observe.measure import Measure
from floodmark.orchestration import build_definitions
from floodmark.orchestration.health import Seen, _numbers, _verdict, due
from floodmark.orchestration.jobs import Streams
from floodmark.orchestration.metadata import reported_seconds
from floodmark.orchestration.session import StepWorkspace
from floodmark.spec.assets.asset import OperatorAsset

WEEK_SECONDS, TICK_SECONDS, COMMIT_SECONDS = 7 * 86_400, 15, 5
CHECK = dg.AssetCheckKey(dg.AssetKey("totals"), "stream")


@operator
def totals(events: Stream[Event]) -> Stream:
    """Not divided."""
    return events.filter("value >= 0")


def workspace(root: Path, freshness: str | None = None, lake: str = "lake") -> Workspace:
    events = source_asset(source([row(minute) for minute in range(200)]))
    asset = operator_asset(totals, freshness=freshness)
    return Workspace(sources=[events], operators=[asset], settings=Settings(lake=lake, engine="embedded")).at(str(root))


class Room:
    """A workspace with one deployed stream, its store, and what the sensor says of it."""

    def __init__(self, root: Path, instance: dg.DagsterInstance, freshness: str | None = None) -> None:
        (root / "pyproject.toml").write_text("")
        self.workspace = workspace(root, freshness)
        self.definitions = build_definitions(self.workspace, root=root)
        self.fleet = Fleet(workspace=self.workspace, root=root, say=lambda _: None)
        self.instance, self.cursor = instance, None
        self.log = root / "driver.log"

    def begin(self) -> Driver:
        """A driver that runs: this process."""
        store, (deployment,) = self.fleet.store, self.fleet.here
        driver = store.begin(deployment, str(self.log.parent))
        process = psutil.Process()
        store.update(driver.id, heard=True, state="running", pid=os.getpid(), born=birth(process), log=str(self.log))
        return driver

    def tick(self, *, report: bool = False) -> list[Any]:
        """What the sensor reports of the health of streams; with ``report``, it is written, too."""
        found = looked(self.definitions, self.instance, self.cursor, report=report)
        self.cursor = found.cursor
        return [event for event in found.asset_events if not isinstance(event, dg.AssetMaterialization)]

    def verdict(self) -> tuple[bool, dict[str, Any]] | None:
        """Of a tick: whether the check is passed, and its metadata; None if it says nothing."""
        said = [event for event in self.tick() if isinstance(event, dg.AssetCheckEvaluation)]
        assert len(said) <= 1
        if not said:
            return None
        assert said[0].asset_check_key == CHECK
        return said[0].passed, {name: value.value for name, value in said[0].metadata.items()}


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Seconds by which the store's clock is ahead."""
    ahead = [0.0]
    monkeypatch.setattr(Store, "now", lambda _: time.time() + ahead[0])
    return ahead


@pytest.mark.feature("Z7", "Z30")
def test_a_dead_stream_is_red_with_its_reason_and_green_again_by_itself(
    embedded: Computing, tmp_path: Path, clock: list[float]
) -> None:
    with dg.DagsterInstance.ephemeral() as instance:
        room = Room(tmp_path, instance)
        store = room.fleet.store
        embedded.land(room.workspace.source("events"), Lake.of(room.workspace.settings))
        embedded.run_unbounded(
            room.workspace.operator("totals"), Lake.of(room.workspace.settings), until_caught_up=True
        )
        room.fleet.start([room.workspace.operator("totals")])
        passed, about = room.verdict() or (None, {})
        assert not passed
        assert about["state"] == "unsupervised"
        assert "floodmark supervise" in about["mends it"]

        store.lease(LEASE, "a supervisor", 1e6)
        driver = room.begin()
        assert room.verdict() is None, "at most one a minute"
        clock[0] += 61
        store.update(driver.id, heartbeat_at=store.now())
        assert room.verdict() == (
            True,
            {"state": "running", "reason": "none", "version": driver.version, "driver": "0", "log": str(room.log)},
        )
        clock[0] += 15
        store.update(driver.id, heartbeat_at=store.now())
        assert room.tick() == [], "nothing has changed"

        room.log.write_text("micro-batch 7\nOutOfMemoryError\n")
        store.end(driver.id, "crashed", "killed by SIGKILL")
        started = room.begin()
        clock[0] += 15
        store.update(started.id, heartbeat_at=store.now())
        passed, about = room.verdict() or (None, {})
        assert not passed, "though it runs again"
        assert about["state"] == "crashed"
        assert about["reason"].startswith("killed by SIGKILL; started again as process")
        assert "OutOfMemoryError" in about["end of its log"]
        clock[0] += 61
        store.update(started.id, heartbeat_at=store.now())
        passed, about = room.verdict() or (None, {})
        assert (passed, about["state"]) == (True, "running")


@pytest.mark.feature("Z30")
def test_the_numbers_of_a_stream_are_observations_and_a_hand_evaluates_its_check(
    embedded: Computing, tmp_path: Path, clock: list[float]
) -> None:
    with dg.DagsterInstance.ephemeral() as instance:
        room = Room(tmp_path, instance, freshness="5 minutes")
        lake, store = Lake.of(room.workspace.settings), room.fleet.store
        embedded.land(room.workspace.source("events"), lake)
        embedded.run_unbounded(room.workspace.operator("totals"), lake, until_caught_up=True)
        room.fleet.start([room.workspace.operator("totals")])
        store.lease(LEASE, "a supervisor", 1e6)
        driver = room.begin()
        measures.record(store, driver.stream, Measure(history="t", number=0, at=time.time(), seconds=1.5, rows_in=200))
        store.note("supervisor", ACTION, url="http://127.0.0.1:9")
        (observed,) = [event for event in room.tick() if isinstance(event, dg.AssetObservation)]
        numbers = {name: value.value for name, value in observed.metadata.items()}
        names = ("rows", "micro-batches", "busy, share of a minute", "rows waited, share of a minute", "lag, s")
        assert [numbers[name] for name in names] == [200, 1, 0.025, 0.0, 0.0]
        lake_of_page = quote(driver.stream.lake, safe="")
        assert numbers["page"] == f"http://127.0.0.1:9/streams/totals?lake={lake_of_page}"
        assert numbers["watermark"] == "2020-01-01T03:17:59.999Z"
        behind = time.time() - 1_577_848_679.999
        assert abs(numbers["behind the clock, s"] - behind) < 60, "the skew of event time"
        assert numbers["state"].startswith("stale: its watermark, 2020-01-01T03:17:59.999Z, is ")

        alone = dg.define_asset_job("alone", selection=dg.AssetSelection.checks(CHECK))
        job = dg.Definitions.merge(room.definitions, dg.Definitions(jobs=[alone])).resolve_job_def("alone")
        done = job.execute_in_process(instance=instance)
        (evaluation,) = done.get_asset_check_evaluations()
        assert not evaluation.passed
        assert evaluation.metadata["state"].value == "stale"
        assert "freshness allows 5 minutes" in str(evaluation.metadata["reason"].value)


@pytest.mark.feature("Z7")
def test_the_check_of_a_stream_is_shown_whatever_runs_did_to_it_and_costs_one_event_for_each(
    embedded: Computing, tmp_path: Path, clock: list[float]
) -> None:
    """Dagster shows no result that is older than the newest materialization, unless both are of one run, or of none."""
    (tmp_path / "dagster").mkdir()
    with dg.DagsterInstance.local_temp(str(tmp_path / "dagster")) as instance:
        room = Room(tmp_path, instance)
        lake, store = Lake.of(room.workspace.settings), room.fleet.store
        alone = dg.define_asset_job("alone", selection=dg.AssetSelection.checks(CHECK))
        both = dg.Definitions.merge(room.definitions, dg.Definitions(jobs=[alone]))
        materializing = both.resolve_implicit_global_asset_job_def()

        def later() -> list[str]:
            """What is shown after a minute, and after the look behind it."""
            clock[0] += 61
            if drivers := store.drivers(room.fleet.stream("totals")):
                store.update(drivers[0].id, heartbeat_at=store.now())
            before = shown(instance, CHECK)
            room.tick(report=True)
            return [before, shown(instance, CHECK)]

        room.fleet.start([room.workspace.operator("totals")])
        store.lease(LEASE, "a supervisor", 1e6)
        room.begin()
        room.tick(report=True)
        failed = materializing.execute_in_process(
            instance=instance, asset_selection=[CHECK.asset_key], raise_on_error=False
        )
        assert not failed.success, "nothing has landed"
        assert later() == ["EXECUTION_FAILED", "SUCCEEDED"]

        embedded.land(room.workspace.source("events"), lake)
        embedded.run_unbounded(room.workspace.operator("totals"), lake, until_caught_up=True)
        assert both.resolve_job_def("alone").execute_in_process(instance=instance).success
        instance.report_runless_asset_event(dg.AssetMaterialization(CHECK.asset_key))
        assert later() == ["not evaluated", "SUCCEEDED"], "a run's result, and then the stream went on"

        made = dg.materialize([dg.asset(name="totals")(lambda: None)], instance=instance)
        assert made.success
        assert later() == ["not evaluated", "SUCCEEDED"], "materialized by a run that checks nothing"

        store.lease(LEASE, "a supervisor", -1)
        store.release(LEASE, "a supervisor")
        assert both.resolve_job_def("alone").execute_in_process(instance=instance).success
        assert shown(instance, CHECK) == "FAILED"
        store.lease(LEASE, "a supervisor", 1e6)
        assert later() == ["FAILED", "SUCCEEDED"], "a run has looked while no supervisor was at work"

        clock[0] += 61
        store.update(store.drivers(room.fleet.stream("totals"))[0].id, heartbeat_at=store.now())
        assert not [one for one in room.tick() if isinstance(one, dg.AssetCheckEvaluation)], "nothing has changed"


@pytest.mark.feature("Z7")
def test_a_lake_that_cannot_be_read_hides_no_stream_at_fault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def away(_: Lake) -> set[str]:
        msg = "the store does not answer"
        raise OSError(msg)

    with dg.DagsterInstance.ephemeral() as instance:
        room = Room(tmp_path, instance)
        room.fleet.start([room.workspace.operator("totals")])
        with monkeypatch.context() as patch:
            patch.setattr(savepoints, "names", away)
            passed, about = room.verdict() or (None, {})
            assert (passed, about["state"]) == (False, "unsupervised")
            with pytest.raises(OSError, match="does not answer"):
                room.tick()
        assert room.tick() == [], "nothing has changed"


@pytest.mark.feature("Z7")
@pytest.mark.parametrize("back", [60, 3600])
def test_a_clock_that_is_set_back_holds_back_no_report(back: float) -> None:
    _, _, known = due({}, ["error", "crashed"], 0, 1e9)
    check, numbers, _ = due(known, ["ok", "running"], 1, 1e9 - back)
    assert (check, numbers) == (True, True)


@pytest.mark.feature("Z7")
def test_a_stream_of_another_lake_leaves_no_red_check(tmp_path: Path) -> None:
    with dg.DagsterInstance.ephemeral() as instance:
        room = Room(tmp_path, instance)
        room.fleet.start([room.workspace.operator("totals")])
        passed, _ = room.verdict() or (None, {})
        assert not passed, "no supervisor is at work"
        room.definitions = build_definitions(workspace(tmp_path, lake="renamed"), root=tmp_path)
        assert room.verdict() == (True, {"state": "no stream was started"})
        assert room.tick() == []


def test_a_freshness_is_a_policy_of_dagsters_that_never_fails_before_the_check(tmp_path: Path) -> None:
    events = source([row(0)])
    for partitions, window in ((None, 60 + 300 + 60), (Daily("2020-01-01"), 60 + 25 * 3600 + 60)):
        asset = operator_asset(totals, partitions=partitions, freshness="1 minute")
        made = Workspace(sources=[source_asset(events, freshness="1 hour")], operators=[asset])
        specs = {
            spec.key.to_user_string(): spec for spec in build_definitions(made, root=tmp_path).resolve_all_asset_specs()
        }
        policy = specs["totals"].freshness_policy
        assert policy is not None
        assert policy.fail_window.to_timedelta().total_seconds() == window
        assert specs["events"].freshness_policy is not None


@pytest.mark.feature("Z7")
def test_a_week_of_a_stream_that_commits_every_five_seconds_takes_little_of_the_event_log(
    embedded: Computing, tmp_path: Path
) -> None:
    """Every tick of a week decides what is due, and some of the events are written to a real event log."""
    (tmp_path / "dagster").mkdir()
    with dg.DagsterInstance.local_temp(str(tmp_path / "dagster")) as instance:
        room = Room(tmp_path, instance)
        embedded.land(room.workspace.source("events"), Lake.of(room.workspace.settings))
        embedded.run_unbounded(
            room.workspace.operator("totals"), Lake.of(room.workspace.settings), until_caught_up=True
        )
        room.fleet.start([room.workspace.operator("totals")])
        room.fleet.store.lease(LEASE, "a supervisor", 1e6)
        room.begin()
        streams = Streams(StepWorkspace(room.workspace), tmp_path)
        (seen,) = looks(room, streams)
        known, checks, numbers = dict[str, Any](), 0, 0
        for now in range(0, WEEK_SECONDS, TICK_SECONDS):
            check, observation, known = due(known, ["ok", "running"], now // COMMIT_SECONDS, float(now))
            checks, numbers = checks + check, numbers + observation
        passed, severity, about = _verdict(seen, streams)
        check_event = dg.AssetCheckEvaluation(
            asset_key=seen.key, check_name="stream", passed=passed, severity=severity, metadata=about
        )
        of_check = bytes_of(instance, tmp_path / "dagster", check_event)
        of_numbers = bytes_of(
            instance, tmp_path / "dagster", dg.AssetObservation(seen.key, metadata=_numbers(seen, streams))
        )
    megabytes = (checks * of_check + numbers * of_numbers) / 1e6
    rarely = dict[str, Any]()
    some = 0
    for now in range(0, WEEK_SECONDS, TICK_SECONDS):
        check, observation, rarely = due(rarely, ["ok", "running"], now // COMMIT_SECONDS, float(now), 40)
        some += check + observation
    assert some * 40 <= (checks + numbers) * 4.1, "forty streams report no more than four"
    assert megabytes < 50 / 4, f"{megabytes:.0f} MB: {checks} of {of_check:.0f} and {numbers} of {of_numbers:.0f} bytes"


@pytest.mark.feature("Z7")
def test_many_assets_that_are_not_divided_are_reported_more_rarely(tmp_path: Path) -> None:
    """A materialization takes less than 5 KB: of any number of assets they take half of 50 MB a week."""
    single = workspace(tmp_path)
    assert reported_seconds(single) == 300

    def another(number: int) -> OperatorAsset:
        def kept(events: Stream[Event]) -> Stream:
            return events.filter("value >= 0")

        return operator_asset(operator(kept, name=f"totals_{number}"), freshness="1 minute")

    many = Workspace(sources=single.source_assets, operators=[another(number) for number in range(39)])
    assert reported_seconds(many) == 300 * 20
    assert WEEK_SECONDS / reported_seconds(many) * 40 * 5_000 < 25e6
    specs = {one.key.to_user_string(): one for one in build_definitions(many, root=tmp_path).resolve_all_asset_specs()}
    policy = specs["totals_0"].freshness_policy
    assert policy is not None
    assert policy.fail_window.to_timedelta().total_seconds() == 60 + 300 * 20 + 60


def bytes_of(instance: dg.DagsterInstance, folder: Path, event: Any, times: int = 20) -> float:
    """By how much an event lets the event log grow."""
    before = size(folder)
    for _ in range(times):
        instance.report_runless_asset_event(event)
    return (size(folder) - before) / times


def looks(room: Room, streams: Streams) -> list[Seen]:
    from floodmark.orchestration.health import look

    return list(look(room.workspace, streams, {}).values())


def size(folder: Path) -> int:
    """Bytes of the databases below a folder."""
    files = list(folder.rglob("*.db"))
    for file in files:
        with closing(sqlite3.connect(file)) as connection:
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return sum(file.stat().st_size for file in files)
