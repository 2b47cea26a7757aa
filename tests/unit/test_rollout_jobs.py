"""Rollouts in Dagster, without a server or a stream: what jobs, schedule, sensor and checks make of what the control store holds."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from dagster_runs import shown
from events import Event, row, source

from floodmark import PromoteWhen, Rollout, Settings, Stream, Tumbling, Workspace, count, operator, operator_asset
from floodmark.control.state.rollout import Record, Rollouts
from floodmark.control.streams.fleet import Fleet
from floodmark.lifecycle.guardrails import Guardrail
from floodmark.orchestration import build_definitions
from floodmark.orchestration.rollouts import rollout_key


@operator
def per_hour(events: Stream[Event]) -> Stream:
    return events.key_by("key").window(Tumbling("1 hour")).aggregate(n=count())


RULE = PromoteWhen(match=0.9, soak="1 hour", approve=True)
GUARDRAILS = (
    Guardrail(name="match of per_hour", wants="90% of the rows the same", sees="95%", verdict="holds"),
    Guardrail(name="soak", wants="1 hour", sees="for 5 s", verdict="waits"),
)


class There:
    """A workspace in a folder, and Dagster of it."""

    def __init__(self, folder: Path) -> None:
        asset = operator_asset(per_hour, rollout=Rollout(schedule="0 3 * * sun", promote=RULE))
        settings = Settings(lake="lake", engine="embedded")
        (folder / "pyproject.toml").write_text("")
        self.workspace = Workspace(sources=[source([row(1)])], operators=[asset], settings=settings).at(str(folder))
        self.fleet = Fleet(workspace=self.workspace, root=folder, say=lambda _: None)
        self.known = Rollouts(self.fleet.store)
        self.definitions = build_definitions(self.workspace, root=folder)
        self.instance = dg.DagsterInstance.ephemeral()

    def deployed(self) -> None:
        self.fleet.deploy("per_hour", "p", per_hour.version, "running")

    def begun(self, **values: Any) -> Record:
        given: dict[str, Any] = {
            "declared": Rollout(promote=RULE),
            "state": "waiting",
            "root": "/",
            "environment": "dev",
        }
        given |= {
            "kind": "rollout",
            "experiment": "",
            "arm": "new",
            "package": "p",
            "version": "v2",
            "who": "a",
            "why": "",
        }
        return self.known.begin(self.fleet.stream("per_hour"), **(given | values))

    def launch(self, job: str, op: str, /, **config: Any) -> dg.ExecuteInProcessResult:
        found = self.definitions.resolve_job_def(job)
        run_config = {"ops": {op: {"config": config}}}
        return found.execute_in_process(instance=self.instance, run_config=run_config, raise_on_error=False)

    def sense(self, cursor: str = "") -> tuple[list[dg.RunRequest], list[dg.AssetCheckEvaluation], str]:
        context = dg.build_sensor_context(instance=self.instance, cursor=cursor or None)
        found = self.definitions.resolve_sensor_def("rollouts").evaluate_tick(context)
        return found.run_requests, found.asset_events, found.cursor or ""

    def tick(self) -> Any:
        schedule = self.definitions.resolve_schedule_def("rollout_per_hour")
        return schedule.evaluate_tick(dg.build_schedule_context(instance=self.instance))


@pytest.fixture
def there(tmp_path: Path) -> There:
    return There(tmp_path)


def reason(done: dg.ExecuteInProcessResult, step: str) -> str:
    assert not done.success
    failure = done.failure_data_for_node(step)
    assert failure is not None
    assert failure.user_failure_data is not None
    return str(failure.user_failure_data.description)


def test_the_sensor_launches_a_run_for_each_state_once_and_tells_guardrails_that_changed(there: There) -> None:
    there.deployed()
    assert there.sense()[:2] == ([], [])
    record = there.begun()
    record = there.known.transition(record, "shadowing")
    there.known.note(record, guardrails=GUARDRAILS, judged_at=1.0)
    requests, events, cursor = there.sense()
    assert [json.loads(one.run_key.rsplit(" ", 1)[1]) for one in requests] == [0, 1]
    assert [(one.check_name, one.passed) for one in events] == [("match_of_per_hour", True), ("soak", False)]
    requests, events, cursor = there.sense(cursor)
    assert (requests, events) == ([], []), "nothing has changed"
    record = there.known.end(there.known.find(record.id), "stopped", "it differs")
    there.known.begin(record.stream, **_again(record))
    requests, _, cursor = there.sense(cursor)
    assert [one.run_key for one in requests] == ["rollout 1 of per_hour: 2", "rollout 2 of per_hour: 0"]
    assert there.sense(cursor)[0] == []


def _again(record: Record) -> dict[str, Any]:
    kept = ("declared", "state", "root", "environment", "kind", "experiment", "arm", "package", "version", "who", "why")
    return {name: getattr(record, name) for name in kept} | {"state": "waiting"}


def test_guardrails_are_shown_behind_a_state_that_was_reported_after_them(there: There) -> None:
    there.deployed()
    record = there.known.transition(there.begun(), "shadowing")
    there.known.note(record, guardrails=GUARDRAILS, judged_at=1.0)
    match, soak = (dg.AssetCheckKey(rollout_key("per_hour"), name) for name in ("match_of_per_hour", "soak"))

    def look(cursor: str) -> tuple[list[dg.RunRequest], list[str], str]:
        requests, events, cursor = there.sense(cursor)
        for event in events:
            there.instance.report_runless_asset_event(event)
        return requests, [one.check_name for one in events], cursor

    requests, _, cursor = look("")
    for request in requests:
        config = request.run_config["ops"]["report_transition"]["config"]
        assert there.launch("rollout_transition", "report_transition", **config).success
    assert shown(there.instance, match) == "not evaluated", "it is older than the state"
    _, again, cursor = look(cursor)
    assert again == ["match_of_per_hour", "soak"]
    assert (shown(there.instance, match), shown(there.instance, soak)) == ("SUCCEEDED", "FAILED")
    assert look(cursor)[1] == []


def test_a_transition_is_a_materialization_that_says_what_is_waited_for(there: There) -> None:
    record = there.known.transition(there.begun(), "awaiting approval")
    there.known.note(record, guardrails=GUARDRAILS, judged_at=1.0, waits="approval: wants a person's, sees nobody yet")
    assert there.launch("rollout_transition", "report_transition", operator="per_hour", rollout=1, step=1).success
    event = there.instance.get_latest_materialization_event(rollout_key("per_hour"))
    assert event is not None
    assert event.asset_materialization is not None
    about = {name: one.value for name, one in event.asset_materialization.metadata.items()}
    assert about["state"] == "awaiting approval"
    assert about["waits for"] == "approval: wants a person's, sees nobody yet"
    assert "| soak | 1 hour | for 5 s | waits |" in str(about["guardrails"])
    assert "floodmark rollout approve per_hour --version v2" in str(about["approve"])


def test_jobs_refuse_what_the_command_line_refuses(there: There) -> None:
    assert "LIFECYCLE-050" in reason(there.launch("rollout", "start_rollout", operator="per_hour"), "start_rollout")
    refused = there.launch("approve_rollout", "approve_rollout_of", operator="per_hour", version="v2")
    assert "LIFECYCLE-102" in reason(refused, "approve_rollout_of")
    record = there.known.transition(there.begun(), "awaiting approval")
    refused = there.launch("approve_rollout", "approve_rollout_of", operator="per_hour", version="v1")
    assert "LIFECYCLE-103" in reason(refused, "approve_rollout_of")
    assert there.launch("approve_rollout", "approve_rollout_of", operator="per_hour", version="v2").success
    assert there.known.find(record.id).approved
    assert there.launch("abort_rollout", "abort_rollout_of", operator="per_hour", note="no").success
    assert there.known.find(record.id).aborted.endswith(": no")


def test_a_schedule_starts_a_rollout_unless_one_goes_on(there: There) -> None:
    there.deployed()
    (request,) = there.tick().run_requests
    assert request.run_config["ops"]["start_rollout"]["config"]["operator"] == "per_hour"
    there.begun()
    assert there.tick().skip_message == "rollout 1 of 'per_hour' goes on: it is waiting"


def test_guardrails_are_checks_that_can_be_run(there: There) -> None:
    checks = [one for one in there.definitions.asset_checks or () if isinstance(one, dg.AssetChecksDefinition)]
    mine = {key.name: one for one in checks for key in one.check_keys if key.asset_key == rollout_key("per_hour")}
    assert list(mine) == [
        "arm",
        "rows",
        "match_of_per_hour",
        "columns_of_per_hour",
        "soak",
        "approval",
        "watch_stream",
        "watch_rows_set_aside",
    ]
    record = there.begun()
    there.known.note(record, guardrails=GUARDRAILS, judged_at=1.0)
    for name, passed in (("match_of_per_hour", True), ("soak", False), ("arm", False)):
        selected = dg.AssetSelection.checks(mine[name])
        done = dg.materialize([mine[name]], selection=selected, instance=there.instance)
        (result,) = done.get_asset_check_evaluations()
        assert (result.check_name, result.passed) == (name, passed)


@pytest.mark.feature("W13")
def test_an_operator_whose_window_changes_changes_no_schedule(tmp_path: Path) -> None:
    def of(window: Tumbling) -> There:
        def program(events: Stream[Event]) -> Stream:
            return events.key_by("key").window(window).aggregate(n=count())

        folder = tmp_path / str(window.size)
        folder.mkdir()
        there = There(folder)
        asset = operator_asset(
            operator(program, name="per_hour"), rollout=Rollout(schedule="0 3 * * sun", promote=RULE)
        )
        there.definitions = build_definitions(
            Workspace(sources=[source([row(1)])], operators=[asset], settings=Settings(lake="lake")), root=folder
        )
        return there

    hour, half = of(Tumbling("1 hour")), of(Tumbling("30 minutes"))
    for name in ("cron_schedule", "execution_timezone", "name", "job_name"):
        one, other = (
            getattr(there.definitions.resolve_schedule_def("rollout_per_hour"), name) for there in (hour, half)
        )
        assert one == other
