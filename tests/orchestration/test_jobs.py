"""Jobs and the sensor of streams, without a server: what they do, report and refuse."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import dagster as dg
import pytest
from dagster._config import ConfigTypeKind
from dagster_runs import looked, outcome
from deltalake import DeltaTable
from events import Event, row, source

from floodmark import (
    Expectation,
    Hourly,
    PromoteWhen,
    Rollout,
    Settings,
    Stream,
    Tumbling,
    Upgrades,
    Workspace,
    count,
    operator,
    operator_asset,
)
from floodmark.control.processes.engine import Computing, computing
from floodmark.control.streams.fleet import Fleet
from floodmark.core.errors import DefinitionError
from floodmark.lake.folder.paths import Lake
from floodmark.lake.restore import savepoints
from floodmark.lake.restore.rollback import roll_back
from floodmark.orchestration import build_definitions
from floodmark.orchestration.jobs import SAVEPOINTS
from floodmark.spec.values.schema import ROW
from floodmark.spec.workspace import Engine

if TYPE_CHECKING:
    import s3_server


@operator
def per_hour(events: Stream[Event]) -> Stream:
    """Divided into hours."""
    return events.key_by("key").window(Tumbling("1 hour")).aggregate(n=count())


@operator
def of_all(events: Stream[Event]) -> Stream:
    """Not divided."""
    return events.filter("value >= 0")


def workspace(
    root: Path, upgrades: Upgrades | None = None, engine: Engine = "embedded", lake: str = "lake"
) -> Workspace:
    events = source([row(minute) for minute in range(200)])
    hours = Hourly("2020-01-01T00:00", end="2020-01-01T06:00")
    operators = [operator_asset(per_hour, partitions=hours, upgrades=upgrades), operator_asset(of_all)]
    settings = Settings(lake=lake, engine=engine)
    return Workspace(sources=[events], operators=operators, settings=settings).at(str(root))


def told(found: dg.SensorResult) -> list[tuple[str, str | None]]:
    return sorted((event.asset_key.to_user_string(), event.partition) for event in materializations(found))


def materializations(found: dg.SensorResult) -> list[dg.AssetMaterialization]:
    """Without what it reports of the health of streams."""
    return [event for event in found.asset_events if isinstance(event, dg.AssetMaterialization)]


@pytest.mark.feature("V2")
def test_the_sensor_reports_what_streams_completed_once_and_keeps_the_list(engine: Computing, tmp_path: Path) -> None:
    found = workspace(tmp_path, engine=engine.name)
    definitions, lake = build_definitions(found, root=tmp_path), Lake.of(found.settings)
    with dg.DagsterInstance.ephemeral() as instance:
        assert isinstance(looked(definitions, instance), dg.SkipReason), "nothing was ever started"
        (tmp_path / "pyproject.toml").write_text("")
        fleet = Fleet(workspace=found, root=tmp_path, say=lambda _: None)
        engine.land(found.source("events"), lake)
        for name in ("per_hour", "of_all"):
            one = found.operator(name)
            engine.run_unbounded(one, lake, until_caught_up=True)
            fleet.start([one])
        fleet.start([found.source("events")])
        first = looked(definitions, instance)
        hours = [f"2020-01-01-0{hour}:00" for hour in range(3)]
        assert told(first) == [("events", None), ("of_all", None), *(("per_hour", hour) for hour in hours)]
        assert {event.metadata["by"].value for event in materializations(first)} == {"the stream"}
        second = looked(definitions, instance, first.cursor)
        assert told(second) == []

        job = definitions.resolve_job_def("savepoint")
        config = {"ops": {"save_stream": {"config": {"operator": "per_hour", "note": "by hand"}}}}
        assert job.execute_in_process(instance=instance, run_config=config).success
        (made,) = savepoints.savepoints(lake)
        assert made.manifest.code == {"package": fleet.deployments(["per_hour"])["per_hour"].package}
        version = per_hour.version.rsplit("@", 1)[1]
        key = f"{made.manifest.id} version {version} - by hand"
        assert instance.get_dynamic_partitions("floodmark_savepoints") == [key]
        second = looked(definitions, instance, second.cursor)
        assert told(second) == [("savepoints", None)], "the job has listed it, and the sensor reports it"
        savepoints.delete(made)
        engine.land(source([row(minute) for minute in range(300)]), lake, end=True)
        engine.run_unbounded(found.operator("per_hour"), lake, until_caught_up=True)
        third = looked(definitions, instance, second.cursor)
        completed = [("per_hour", f"2020-01-01-0{hour}:00") for hour in range(3, 6)]
        assert told(third) == [*completed, ("savepoints", None)], "one was deleted"
        assert instance.get_dynamic_partitions("floodmark_savepoints") == []


def test_a_partition_and_a_savepoint_of_a_lake_in_a_bucket(
    s3: s3_server.Server, s3_proxy: s3_server.Proxy, tmp_path: Path
) -> None:
    """The control store is on the disk."""
    (tmp_path / "pyproject.toml").write_text("")
    found = workspace(tmp_path, lake=f"{s3.bucket()}/lake")
    definitions, lake = build_definitions(found, root=tmp_path), Lake.of(found.settings)
    fleet = Fleet(workspace=found, root=tmp_path, say=lambda _: None)
    assets, hour = definitions.resolve_implicit_global_asset_job_def(), "2020-01-01-01:00"
    with dg.DagsterInstance.ephemeral() as instance:
        for name, partition in (("events", None), ("per_hour", hour)):
            chosen = assets.get_subset(asset_selection={dg.AssetKey(name)})
            assert chosen.execute_in_process(instance=instance, partition_key=partition).success
        rows = DeltaTable(lake.output("per_hour")).to_pyarrow_table().to_pylist()
        assert {row["window_start"].hour for row in rows if row["_kind"] == ROW} == {1}
        computing(found.settings).run_unbounded(found.operator("of_all"), lake, until_caught_up=True)
        fleet.start([found.operator("of_all")])
        config = {"ops": {"save_stream": {"config": {"operator": "of_all"}}}}
        assert definitions.resolve_job_def("savepoint").execute_in_process(instance=instance, run_config=config).success
    (made,) = savepoints.savepoints(lake)
    assert made.manifest.code == {"package": fleet.deployments(["of_all"])["of_all"].package}


def test_jobs_say_what_is_missing(tmp_path: Path) -> None:
    definitions = build_definitions(workspace(tmp_path), root=tmp_path)
    with dg.DagsterInstance.ephemeral() as instance:
        for job, op, config, code in (
            ("stop", "stop_streams", {"streams": ["per_hour"]}, "LIFECYCLE-050"),
            ("savepoint", "save_stream", {"operator": "of_all"}, "LIFECYCLE-030"),
            ("upgrade", "upgrade_stream", {"operator": "per_hour"}, "LIFECYCLE-050"),
        ):
            done = definitions.resolve_job_def(job).execute_in_process(
                instance=instance, run_config={"ops": {op: {"config": config}}}, raise_on_error=False
            )
            assert not done.success
            failure = done.failure_data_for_node(op)
            assert failure is not None
            assert code in str(failure.user_failure_data.description), job
        with pytest.raises(dg.DagsterInvalidConfigError, match="not in enum type Streams_.* got per_huor"):
            definitions.resolve_job_def("start").execute_in_process(
                instance=instance, run_config={"ops": {"start_streams": {"config": {"streams": ["per_huor"]}}}}
            )
        instance.add_dynamic_partitions("floodmark_savepoints", ["per_hour-1"])
        gone = definitions.resolve_job_def("rollback").execute_in_process(
            instance=instance, partition_key="per_hour-1", raise_on_error=False
        )
        failure = gone.failure_data_for_node("roll_back_streams")
        assert failure is not None
        assert "LIFECYCLE-031" in str(failure.user_failure_data.description)


@pytest.mark.parametrize(
    ("job", "op", "config"),
    [
        ("rollback", "roll_back_streams", None),
        ("experiment_promote", "promote_arm", {"arm": "b"}),
        ("experiment_stop", "stop_experiment", None),
    ],
)
def test_a_job_that_is_launched_without_its_partition_says_to_choose_one(
    tmp_path: Path, job: str, op: str, config: dict[str, str] | None
) -> None:
    found = build_definitions(workspace(tmp_path), root=tmp_path).resolve_job_def(job)
    with dg.DagsterInstance.ephemeral() as instance:
        given = {"ops": {op: {"config": config}}} if config else {}
        done = found.execute_in_process(instance=instance, run_config=given, raise_on_error=False)
        failure = done.failure_data_for_node(op)
        assert failure is not None
        said = str(failure.user_failure_data.description)
        assert said.startswith(f"LIFECYCLE-007 job '{job}': expected a")
        assert "got none. Choose one in the launchpad, under Partition" in said


@operator
def again(events: Stream[Event]) -> Stream:
    """In another workspace."""
    return events.filter("value >= 1")


def test_two_workspaces_in_one_process_have_each_their_operators(tmp_path: Path) -> None:
    events = source([row(minute) for minute in range(2)])
    for theirs in ((per_hour, of_all), (of_all, again)):
        operators = [operator_asset(one) for one in theirs]
        found = Workspace(sources=[events], operators=operators, settings=Settings(lake="lake")).at(str(tmp_path))
        job = build_definitions(found, root=tmp_path).resolve_job_def("start")
        for one in theirs:
            dg.validate_run_config(job, {"ops": {"start_streams": {"config": {"streams": [one.name, "events"]}}}})


def test_a_schedule_of_upgrades_is_off_and_says_when(tmp_path: Path) -> None:
    upgrades = Upgrades("0 3 * * sun", timezone="Europe/Berlin", forward_only=True, soak="1 minute")
    definitions = build_definitions(workspace(tmp_path, upgrades), root=tmp_path)
    schedule = definitions.resolve_schedule_def("upgrade_per_hour")
    assert (schedule.cron_schedule, schedule.execution_timezone) == ("0 3 * * sun", "Europe/Berlin")
    assert schedule.default_status == dg.DefaultScheduleStatus.STOPPED
    assert schedule.job_name == "upgrade"


def test_a_schedule_waits_for_its_run_before(tmp_path: Path) -> None:
    definitions = build_definitions(workspace(tmp_path, Upgrades("* * * * *", soak="1 minute")), root=tmp_path)
    schedule, job = definitions.resolve_schedule_def("upgrade_per_hour"), definitions.resolve_job_def("upgrade")
    with dg.DagsterInstance.local_temp(str(tmp_path)) as instance:
        (first,) = schedule.evaluate_tick(dg.build_schedule_context(instance=instance)).run_requests or ()
        assert first.run_config["ops"]["upgrade_stream"]["config"]["soak_seconds"] == 60
        by = {"dagster/schedule_name": schedule.name}
        run = instance.create_run_for_job(job, run_config=first.run_config, tags=by, status=dg.DagsterRunStatus.STARTED)
        skipped = schedule.evaluate_tick(dg.build_schedule_context(instance=instance))
        assert not skipped.run_requests
        assert run.run_id in str(skipped.skip_message)
        assert int(first.tags["dagster/max_runtime"]) > 60 + 180, "one without a process is over then"
        instance.report_run_failed(run)
        assert schedule.evaluate_tick(dg.build_schedule_context(instance=instance)).run_requests == [first]


@pytest.mark.parametrize(
    ("upgrades", "code"),
    [
        (Upgrades("daily"), "DEFINITION-098"),
        (Upgrades("61 3 * * *"), "DEFINITION-098"),
        (Upgrades("0 3 * * *", timezone="Berlin"), "DEFINITION-002"),
        (Upgrades("0 3 * * *", soak="-1 minute"), "DEFINITION-097"),
        (Upgrades("0 3 * * *", patience="soon"), "DEFINITION-"),
    ],
)
def test_a_schedule_that_cannot_be_is_refused(tmp_path: Path, upgrades: Upgrades, code: str) -> None:
    with pytest.raises(DefinitionError, match=code):
        build_definitions(workspace(tmp_path, upgrades), root=tmp_path)


@pytest.mark.feature("Z8")
def test_partitions_that_a_stream_completes_are_checked_by_themselves_together(
    engine: Computing, tmp_path: Path
) -> None:
    events = source([row(minute) for minute in range(200)])
    many = Expectation("column_values_to_be_between", column="n", min_value=1, name="many")
    hours = Hourly("2020-01-01T00:00", end="2020-01-01T06:00")
    asset = operator_asset(per_hour, partitions=hours, expectations=[many])
    settings = Settings(lake="lake", engine=engine.name, memory=300)
    found = Workspace(sources=[events], operators=[asset], settings=settings).at(str(tmp_path))
    definitions, lake = build_definitions(found, root=tmp_path), Lake.of(found.settings)
    (tmp_path / "pyproject.toml").write_text("")
    with dg.DagsterInstance.ephemeral() as instance:
        engine.land(found.source("events"), lake)
        engine.run_unbounded(found.operator("per_hour"), lake, until_caught_up=True)
        Fleet(workspace=found, root=tmp_path, say=lambda _: None).start([found.operator("per_hour")])
        first = looked(definitions, instance)
        (request,) = first.run_requests
        assert request.job_name == "checks_per_hour"
        for event in first.asset_events:
            instance.report_runless_asset_event(event)
        job = definitions.resolve_job_def("checks_per_hour")
        checked = outcome(job.execute_in_process(instance=instance, tags=request.tags)).checked
        assert {key: passed for key, (passed, _) in checked.items()} == {
            ("many", f"2020-01-01-0{hour}:00"): True for hour in range(3)
        }
        (newest,) = instance.fetch_materializations(dg.AssetKey("per_hour"), limit=1).records
        of_all, of_last = instance.event_log_storage.get_asset_check_execution_history(
            dg.AssetCheckKey(dg.AssetKey("per_hour"), "many"), limit=2
        )
        assert (of_all.partition, of_last.partition) == (None, newest.partition_key)
        for record in (of_all, of_last):
            assert record.evaluation.target_materialization_data.storage_id == newest.storage_id, "shown as the latest"
        assert looked(definitions, instance, first.cursor).run_requests == []


@pytest.mark.feature("Z8", "V2")
def test_partitions_that_a_stream_completes_again_after_a_rollback_are_checked_again_and_reported_once(
    embedded: Computing, tmp_path: Path
) -> None:
    """A rollback forgets what strict checks have found of the rows that it takes back: readers wait until they are checked again."""
    many = Expectation("column_values_to_be_between", column="n", min_value=1, name="many", blocking=True, strict=True)
    hours = Hourly("2020-01-01T00:00", end="2020-01-01T06:00")
    asset = operator_asset(per_hour, partitions=hours, expectations=[many])
    settings = Settings(lake="lake", engine="embedded", memory=300)
    few, found = (
        Workspace(sources=[source([row(minute) for minute in range(rows)])], operators=[asset], settings=settings).at(
            str(tmp_path)
        )
        for rows in (100, 200)
    )
    definitions, lake = build_definitions(found, root=tmp_path), Lake.of(found.settings)
    (tmp_path / "pyproject.toml").write_text("")
    key = dg.AssetKey("per_hour")
    job = definitions.resolve_job_def("checks_per_hour")

    with dg.DagsterInstance.ephemeral() as instance:

        def judged(look: dg.SensorResult) -> list[str]:
            """Asset partitions that the runs of a look have checked."""
            requests = look.run_requests or ()
            runs = [outcome(job.execute_in_process(instance=instance, tags=one.tags)) for one in requests]
            return [str(partition) for run in runs for _, partition in run.checked]

        embedded.land(few.source("events"), lake)
        embedded.run_unbounded(few.operator("per_hour"), lake, until_caught_up=True)
        early = savepoints.create("per_hour", lake)
        embedded.land(found.source("events"), lake)
        embedded.run_unbounded(found.operator("per_hour"), lake, until_caught_up=True)
        Fleet(workspace=found, root=tmp_path, say=lambda _: None).start([found.operator("per_hour")])
        look = looked(definitions, instance, report=True)
        assert judged(look) == [f"2020-01-01-0{hour}:00" for hour in range(3)]
        roll_back(lake, early)
        look = looked(definitions, instance, look.cursor, report=True)
        assert judged(look) == []
        embedded.run_unbounded(found.operator("per_hour"), lake, until_caught_up=True)
        look = looked(definitions, instance, look.cursor, report=True)
        assert judged(look) == ["2020-01-01-01:00", "2020-01-01-02:00"]
        assert judged(looked(definitions, instance, look.cursor, report=True)) == []
        assert len(instance.fetch_materializations(key, limit=100).records) == 3, "each once"


def scaffolded(kind: Any) -> Any:
    """What the launchpad's *Scaffold missing config* writes for a type of config: required fields alone, and of an enum all names as one."""
    match kind.kind:
        case ConfigTypeKind.STRICT_SHAPE | ConfigTypeKind.PERMISSIVE_SHAPE:
            return {name: scaffolded(field.config_type) for name, field in kind.fields.items() if field.is_required}
        case ConfigTypeKind.ARRAY:
            return []
        case ConfigTypeKind.MAP | ConfigTypeKind.ANY:
            return {}
        case ConfigTypeKind.ENUM:
            return "|".join(str(one.config_value) for one in kind.enum_values)
        case ConfigTypeKind.NONEABLE:
            return None
        case ConfigTypeKind.SCALAR_UNION:
            return scaffolded(kind.scalar_type)
        case _:
            return {"String": "", "Int": 0, "Float": 0.0, "Bool": True}[kind.given_name]


@pytest.mark.feature("Z5")
def test_what_the_launchpad_scaffolds_is_a_config_of_every_job(tmp_path: Path) -> None:
    events, rule = source([row(minute) for minute in range(2)]), PromoteWhen(approve=True)
    operators = [
        operator_asset(per_hour, rollout=Rollout(promote=rule)),
        operator_asset(of_all, rollout=Rollout(promote=rule)),
    ]
    two = Workspace(sources=[events], operators=operators, settings=Settings(lake="lake", engine="embedded"))
    jobs = build_definitions(two, root=tmp_path).get_repository_def().get_all_jobs()
    assert {"start", "upgrade", "approve_rollout", "abort_rollout", "experiment_start", "rollback"} <= {
        job.name for job in jobs
    }
    for job in jobs:
        dg.validate_run_config(job, scaffolded(job.run_config_schema.config_type))


def test_a_job_that_names_no_operator_says_which_there_are(tmp_path: Path) -> None:
    definitions = build_definitions(workspace(tmp_path), root=tmp_path)
    with dg.DagsterInstance.ephemeral() as instance:
        for job in ("upgrade", "savepoint", "experiment_start"):
            config = {"ops": {"start_experiment": {"config": {"name": "x"}}}} if job == "experiment_start" else {}
            done = definitions.resolve_job_def(job).execute_in_process(
                instance=instance, raise_on_error=False, run_config=config
            )
            assert not done.success
            (failure,) = [event for event in done.all_events if event.is_step_failure]
            assert "LIFECYCLE-007" in str(failure.step_failure_data.error)
            assert "per_hour, of_all" in str(failure.step_failure_data.error)


def test_an_operator_is_chosen_from_a_list_and_not_named_twice(tmp_path: Path) -> None:
    found = workspace(tmp_path)
    definitions, lake = build_definitions(found, root=tmp_path), Lake.of(found.settings)
    engine = computing(found.settings)
    engine.land(found.source("events"), lake, end=True)
    for name in ("per_hour", "of_all"):
        engine.run_unbounded(found.operator(name), lake, until_caught_up=True)
    job = definitions.resolve_job_def("savepoint")
    with dg.DagsterInstance.ephemeral() as instance:
        assert instance.get_dynamic_partitions(str(SAVEPOINTS.name)) == []
        assert job.partitions_def is not None
        assert list(job.partitions_def.get_partition_keys()) == ["per_hour", "of_all"]
        assert job.execute_in_process(instance=instance, partition_key="of_all").success
        (made,) = savepoints.savepoints(lake)
        assert made.manifest.operator == "of_all"
        both = {"ops": {"save_stream": {"config": {"operator": "per_hour"}}}}
        done = job.execute_in_process(instance=instance, partition_key="of_all", run_config=both, raise_on_error=False)
        (failure,) = [event for event in done.all_events if event.is_step_failure]
        assert "got partition of_all and operator: per_hour" in str(failure.step_failure_data.error)


def test_the_job_plan_reports_what_an_upgrade_would_change_and_do(embedded: Computing, tmp_path: Path) -> None:
    @operator(name="of_all")
    def changed(events: Stream[Event]) -> Stream:
        return events.filter("value >= 1")

    before = workspace(tmp_path)
    lake = Lake.of(before.settings)
    embedded.land(before.sources[0], lake, end=True)
    embedded.run_unbounded(of_all, lake, until_caught_up=True)
    operators = [operator_asset(per_hour), operator_asset(changed)]
    after = Workspace(sources=list(before.source_assets), operators=operators, settings=before.settings)
    definitions = build_definitions(after, root=tmp_path)
    with dg.DagsterInstance.ephemeral() as instance:
        done = definitions.resolve_job_def("plan").execute_in_process(instance=instance)
        run = instance.get_run_by_id(done.run_id)
        assert run is not None
        assert run.tags["floodmark/operator"] == "per_hour, of_all"
    (output,) = [event.step_output_data for event in done.all_events if event.is_successful_output]
    reports = {name: value.value for name, value in output.metadata.items()}
    assert reports["per_hour"] == f"{per_hour.version}: no stream"
    assert reports["of_all"].startswith(f"{of_all.version} -> {changed.version}: stateless change")
    assert "1. " in reports["of_all"]
