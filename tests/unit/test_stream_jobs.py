"""Jobs about streams, without a server, a stream or Spark: what they refuse, and what they say inside Dagster."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import dagster as dg
import pytest
from events import Event, row, source

from floodmark import Settings, Stream, Tumbling, Workspace, count, operator, operator_asset
from floodmark.control.processes.job import supervised
from floodmark.control.processes.supervisor import LEASE, describe_driver
from floodmark.control.state.records import Driver
from floodmark.control.state.store import Store
from floodmark.control.streams.fleet import Fleet
from floodmark.core.errors import ExecutionError, FloodmarkError, LifecycleError, PlanError
from floodmark.lake.folder.locks import STREAM, exclusive
from floodmark.lake.folder.paths import Lake
from floodmark.orchestration import build_definitions
from floodmark.orchestration.work import failing


@operator
def per_hour(events: Stream[Event]) -> Stream:
    return events.key_by("key").window(Tumbling("1 hour")).aggregate(n=count())


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    (tmp_path / "pyproject.toml").write_text("")
    return Workspace(
        sources=[source([row(1)])], operators=[operator_asset(per_hour)], settings=Settings(lake="lake")
    ).at(str(tmp_path))


@pytest.fixture
def fleet(workspace: Workspace, tmp_path: Path) -> Fleet:
    return Fleet(workspace=workspace, root=tmp_path, say=lambda _: None)


def start(workspace: Workspace, root: Path) -> tuple[dg.ExecuteInProcessResult, dict[str, str]]:
    """The job's outcome, and the tags of its run."""
    job = build_definitions(workspace, root=root).resolve_job_def("start")
    config = {"ops": {"start_streams": {"config": {"streams": ["per_hour"], "wait_seconds": 20}}}}
    with dg.DagsterInstance.ephemeral() as instance:
        done = job.execute_in_process(instance=instance, run_config=config, raise_on_error=False)
        run = instance.get_run_by_id(done.run_id)
        assert run is not None
        return done, dict(run.tags)


def reason(done: dg.ExecuteInProcessResult) -> str:
    failure = done.failure_data_for_node("start_streams")
    assert failure is not None
    assert failure.user_failure_data is not None
    return str(failure.user_failure_data.description)


@contextmanager
def driven(store: Store, **values: object) -> Iterator[None]:
    """A supervisor that starts a driver once it should run; what fails there fails the test, and it ends with the block."""
    store.lease(LEASE, "another", 3600)
    over = threading.Event()

    def work() -> None:
        while (deployment := next(iter(store.deployments()), None)) is None:
            if over.wait(0.05):
                return
        store.update(store.begin(deployment, "logs").id, **values)

    with ThreadPoolExecutor(1) as pool:
        driving = pool.submit(work)
        try:
            yield
        finally:
            over.set()
        driving.result()


def test_start_without_a_supervisor_fails_and_nothing_is_deployed(workspace, fleet, tmp_path):
    done, tags = start(workspace, tmp_path)
    assert not done.success
    assert "LIFECYCLE-053" in reason(done)
    assert "floodmark up" in reason(done)
    assert fleet.store.deployments() == []
    assert tags["floodmark/operator"] == "per_hour"


def test_a_wait_of_less_than_nothing_is_refused_in_words(workspace: Workspace, tmp_path: Path) -> None:
    definitions, wrong = build_definitions(workspace, root=tmp_path), {"wait_seconds": -3}
    start_config = {"ops": {"start_streams": {"config": {"streams": ["per_hour"], **wrong}}}}
    with dg.DagsterInstance.ephemeral() as instance:
        job = definitions.resolve_job_def("start")
        done = job.execute_in_process(instance=instance, run_config=start_config, raise_on_error=False)
        assert "DEFINITION-164 job 'start', config wait_seconds: expected 0 seconds or more, got -3." in reason(done)
        assets = definitions.resolve_implicit_global_asset_job_def().execute_in_process(
            instance=instance,
            asset_selection=[dg.AssetKey("per_hour")],
            run_config={"ops": {"per_hour": {"config": wrong}}},
            raise_on_error=False,
        )
    failure = assets.failure_data_for_node("per_hour")
    assert failure is not None
    assert "DEFINITION-164 asset 'per_hour'" in str(failure.user_failure_data and failure.user_failure_data.description)


def test_start_is_green_when_the_stream_runs(workspace, fleet, tmp_path):
    with driven(fleet.store, state="running", pid=4711):
        done, _ = start(workspace, tmp_path)
    assert done.success
    assert any("per_hour runs as process 4711" in str(event.message) for event in done.all_events) or done.success


def test_start_fails_with_the_reason_of_a_stream_that_crashes(workspace, fleet, tmp_path):
    crash = {"state": "crashed", "reason": "USER-001 it raised", "ended_at": time.time() + 3600}
    with driven(fleet.store, **crash):
        done, _ = start(workspace, tmp_path)
    assert "LIFECYCLE-070" in reason(done)
    assert "USER-001 it raised" in reason(done)


def test_a_stream_whose_operator_was_removed_from_the_code_can_be_stopped(
    workspace: Workspace, fleet: Fleet, tmp_path: Path
) -> None:
    fleet.deploy("removed", "package", "removed@1", "running")
    job = build_definitions(workspace, root=tmp_path).resolve_job_def("stop")
    with dg.DagsterInstance.ephemeral() as instance:
        for name, code in (("removed", ""), ("removd", "DEFINITION-074")):
            config = {"ops": {"stop_streams": {"config": {"streams": [name]}}}}
            done = job.execute_in_process(instance=instance, run_config=config, raise_on_error=False)
            assert done.success == (not code)
            failure = done.failure_data_for_node("stop_streams")
            assert code in str(failure and failure.user_failure_data and failure.user_failure_data.description)
    assert fleet.deployments(["removed"])["removed"].desired == "stopped"


def gone() -> int:
    """The number of a process that has ended."""
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


def driver(**values: object) -> Driver:
    about = {
        "id": 1,
        "operator": "per_hour",
        "lake": "/lake",
        "version": "per_hour@1",
        "epoch": 0,
        "state": "running",
        "pid": gone(),
        "born": None,
        "log": "x.log",
        "started_at": 0.0,
        "heartbeat_at": time.time() - 20,
        "batch": 7,
        "progress": None,
        "ended_at": None,
        "reason": None,
    }
    return Driver(**(about | values))  # type: ignore[arg-type]


def test_a_driver_that_was_killed_is_gone_before_a_supervisor_notices():
    text = describe_driver(driver())
    assert text.startswith("gone: process ")
    assert "floodmark supervise" in text


def test_a_driver_on_a_machine_that_is_silent_does_not_count_as_running():
    assert describe_driver(driver(host="elsewhere", heartbeat_at=time.time() - 300)).startswith(
        "silent: machine elsewhere"
    )
    assert describe_driver(driver(host="elsewhere")).startswith("running, process")


def test_a_stream_whose_process_was_killed_stops_without_a_supervisor(fleet):
    fleet.deploy("per_hour", "package", "per_hour@1", "running")
    begun = fleet.store.begin(fleet.store.deployment(fleet.stream("per_hour")), "logs")
    fleet.store.update(begun.id, state="running", pid=gone())
    stopped = fleet.stop(["per_hour"], wait_seconds=5)["per_hour"]
    assert (stopped.state, stopped.reason) == ("stopped", "its process was gone")


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (
            PlanError("a", "b", "c", "floodmark apply x --rebuild", code="PLAN-011"),
            "Launch the job upgrade with rebuild: true",
        ),
        (PlanError("a", "b", "c", "floodmark apply x --forward-only. Or", code="PLAN-011"), "forward_only: true. Or"),
        (
            PlanError("a", "b", "c", "floodmark run x --force", code="PLAN-002"),
            "If a stream writes the table, launch the job",
        ),
        (
            LifecycleError("a", "b", "c", "floodmark start x", code="LIFECYCLE-050"),
            "job start with streams: [per_hour]",
        ),
        (
            LifecycleError("a", "b", "c", "Start it: floodmark run x", code="LIFECYCLE-030"),
            "job start with streams: [per_hour]",
        ),
        (LifecycleError("a", "b", "c", "Wait until it has", code="LIFECYCLE-030"), "Wait until it has"),
        (LifecycleError("a", "b", "c", "Wait until it is done", code="LIFECYCLE-003"), "Wait until it is done"),
        (LifecycleError("a", "b", "c.", "as it is", code="LIFECYCLE-001"), "as it is"),
    ],
)
def test_inside_dagster_advice_names_jobs(error: FloodmarkError, words: str):
    with pytest.raises(dg.Failure) as failure, failing("per_hour"):
        raise error
    assert words in str(failure.value.description)
    assert str(failure.value.description).startswith(f"{error.code} a: expected b, got c. ")


def test_a_backfill_beside_a_stream_names_the_job_that_stops_it(tmp_path: Path) -> None:
    lake = Lake(str(tmp_path))
    with (
        pytest.raises(
            dg.Failure,
            match="LIFECYCLE-003 .* the job stop with streams: .per_hour., then this again, and the job start",
        ),
        exclusive(lake, "operators", "per_hour", "run", role=STREAM),
        failing("per_hour"),
        exclusive(lake, "operators", "per_hour", "run", 900),
    ):
        pass


def test_a_supervised_stream_that_crashed_is_restarted_not_run():
    crash = ExecutionError("a", "b", "c", "go on: floodmark run per_hour --unbounded", code="EXECUTION-004")
    assert "floodmark restart per_hour" in supervised(crash, "per_hour").fix
    other = ExecutionError("a", "b", "c", "as it is", code="EXECUTION-002")
    assert supervised(other, "per_hour") is other


def test_the_asset_of_savepoints_is_never_materialized_as_long_as_there_was_none(
    workspace: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("floodmark.orchestration.jobs.has_store", lambda *_: True)
    definitions = build_definitions(workspace, root=tmp_path)
    asset = definitions.resolve_asset_graph().get(dg.AssetKey("savepoints"))
    assert asset.partitions_def is None, "Dagster shows all of no partitions as materialized"
    with dg.DagsterInstance.ephemeral() as instance:
        sensor = definitions.resolve_sensor_def("streams")

        def look() -> dg.SensorResult:
            result = sensor(dg.build_sensor_context(instance, repository_def=definitions.get_repository_def()))
            assert isinstance(result, dg.SensorResult)
            return result

        assert not look().asset_events
        instance.add_dynamic_partitions("floodmark_reported_savepoints", ["per_hour-1"])
        (event,) = look().asset_events
        assert isinstance(event, dg.AssetMaterialization)
        assert (event.asset_key.to_user_string(), event.partition) == ("savepoints", None)
        assert event.metadata["deleted"].value == "per_hour-1"
        assert event.metadata["savepoints left"].value == 0
