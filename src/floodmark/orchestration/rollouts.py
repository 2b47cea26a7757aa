"""Rollouts in Dagster: schedules, jobs that return at once, an asset per operator for the state of its rollouts, and the guardrails as checks.

A supervisor advances rollouts; no Dagster run waits for a rollout.
"""

# no `from __future__ import annotations` here: Dagster reads the annotations of a step itself

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from enum import Enum
from typing import TYPE_CHECKING, Any, Literal

import dagster as dg
from pydantic import Field

from floodmark.core.fingerprint import digest
from floodmark.core.time import describe, iso
from floodmark.orchestration.assets import output_key
from floodmark.orchestration.checks import Result, newest_results
from floodmark.orchestration.jobs import Streams, choices, job_of, operator_of, whose
from floodmark.orchestration.work import failing, tagged
from floodmark.spec.assets.asset import OperatorAsset
from floodmark.spec.workspace import Workspace

if TYPE_CHECKING:
    from floodmark.control.state.rollout import Record, Rollouts
    from floodmark.control.streams.fleet import Fleet
    from floodmark.lifecycle.guardrails import Guardrail

_LOOK_SECONDS = 30
_LONGEST_SECONDS = 300


def rollout_definitions(workspace: Workspace, streams: Streams) -> dg.Definitions:
    """Assets, checks, jobs, schedules and sensor of the rollouts that a workspace declares; empty if it declares none."""
    declared = [one for one in workspace.operator_assets if one.rollout is not None]
    if not declared:
        return dg.Definitions()
    every = {one.operator.name: one.operator.name for one in declared}
    # Dagster keeps one config type per name in a process: another workspace's operators must have another name
    names = Enum(f"Rollouts_{digest(sorted(every))[:8]}", every)  # type: ignore[misc]  # known when it is loaded
    starting = _starting(streams, names)
    transition = _transition(streams, names)
    return dg.Definitions(
        assets=[_spec(one) for one in declared],
        asset_checks=[check for one in declared for check in _checks(one, streams)],
        jobs=[starting, _approving(streams, names), _aborting(streams, names), transition],
        schedules=[_schedule(one, streams, starting) for one in declared if one.rollout and one.rollout.schedule],
        sensors=[_sensor(declared, streams, transition)],
    )


def rollout_key(name: str) -> dg.AssetKey:
    """The asset key of an operator's rollouts."""
    return dg.AssetKey(["rollouts", name])


def _spec(asset: OperatorAsset) -> dg.AssetSpec:
    name = asset.operator.name
    what = (
        f"The newest rollout of {name}: a materialization for each state, with the condition that the rollout waits for. The checks are its guardrails. "
        "The job rollout starts a rollout, approve_rollout approves it, abort_rollout ends it."
    )
    return dg.AssetSpec(
        rollout_key(name), deps=[output_key(asset.operator.outputs[0])], group_name=asset.group, description=what
    )


# ---- jobs


def _starting(streams: Streams, names: Any) -> dg.JobDefinition:
    class Config(dg.Config):
        operator: names | None = whose(names)
        note: str = Field(default="", description="Why.")

    @dg.op(name="start_rollout")
    def act(context: dg.OpExecutionContext, config: Config) -> None:
        from floodmark.control.delivery import rollouts  # noqa: PLC0415 - definitions load without Spark

        with failing():
            name = tagged(context, operator_of(context, config, "rollout"))
        asset = streams.location.workspace.asset(name)
        with failing(name):
            record = rollouts.start(streams.fleet(context.log.info), asset, why=config.note)
        if record is None:
            context.log.info(f"{asset.operator.version}: nothing has changed")
        else:
            context.add_output_metadata(_about(record))

    what = "Start a rollout of the current code; returns at once."
    return job_of("rollout", what, act, partitions_def=choices(names))


def _approving(streams: Streams, names: Any) -> dg.JobDefinition:
    class Config(dg.Config):
        operator: names | None = whose(names)
        version: str = Field(
            default="",
            description="The version that is approved, as the asset of the rollout shows it; any other version is refused. Empty: the one that waits.",
        )

    @dg.op(name="approve_rollout_of")
    def act(context: dg.OpExecutionContext, config: Config) -> None:
        with failing():
            name = operator_of(context, config, "approve_rollout")
        _asked(context, streams, name, "approve", config.version)

    what = "Approve the version that awaits approval; returns at once."
    return job_of("approve_rollout", what, act, partitions_def=choices(names))


def _aborting(streams: Streams, names: Any) -> dg.JobDefinition:
    class Config(dg.Config):
        operator: names | None = whose(names)
        note: str = Field(default="", description="Why.")

    @dg.op(name="abort_rollout_of")
    def act(context: dg.OpExecutionContext, config: Config) -> None:
        with failing():
            name = operator_of(context, config, "abort_rollout")
        _asked(context, streams, name, "abort", config.note)

    what = "Stop the new version; after its promotion, roll the stream back."
    return job_of("abort_rollout", what, act, partitions_def=choices(names))


def _asked(
    context: dg.OpExecutionContext, streams: Streams, operator: str, what: Literal["approve", "abort"], note: str
) -> None:
    """Approve or abort the rollout in progress of an operator.

    Args:
        context: context of the step.
        streams: the streams of the workspace.
        operator: name of the operator.
        what: the action.
        note: the version to approve, or the reason of the abort.
    """
    from floodmark.control.delivery import rollouts  # noqa: PLC0415 - definitions load without Spark

    with failing(tagged(context, operator)):
        fleet = streams.fleet(context.log.info)
        asked = rollouts.approve if what == "approve" else rollouts.abort
        record = asked(fleet, rollouts.going(fleet, operator), note)
    context.add_output_metadata(_about(record))


def _transition(streams: Streams, names: Any) -> dg.JobDefinition:
    class Config(dg.Config):
        operator: names | None = whose(names)
        rollout: int = Field(description="Number of the rollout.")
        step: int = Field(description="Index of the state in the rollout's history, from 0.")

    @dg.op(name="report_transition")
    def act(context: dg.OpExecutionContext, config: Config) -> None:
        with failing():
            name = tagged(context, operator_of(context, config, "rollout_transition"))
        with failing(name):
            record = _known(streams.fleet(context.log.info)).find(config.rollout)
        step = record.steps[config.step]
        about = _about(record) | {"state": step.state, "since": iso(int(step.at * 1000)), "because": step.why or "none"}
        context.log.info(f"{record.name}: {step.state}{f': {step.why}' if step.why else ''}")
        context.log_event(dg.AssetMaterialization(rollout_key(name), metadata=about))

    return job_of("rollout_transition", "Reports one state of a rollout; started by the sensor rollouts.", act)


# ---- schedules and the sensor


def _schedule(asset: OperatorAsset, streams: Streams, job: dg.JobDefinition) -> dg.ScheduleDefinition:
    assert asset.rollout is not None
    name = asset.operator.name

    def tick(context: dg.ScheduleEvaluationContext) -> dg.RunRequest | dg.SkipReason:
        if not streams.any:
            return dg.SkipReason("no stream was started here: floodmark start OPERATOR, or job start")
        fleet = streams.fleet(context.log.info)
        if (going := _known(fleet).open(fleet.stream(name))) is not None:
            return dg.SkipReason(f"{going.name} goes on: it is {going.state}")
        config = {"operator": name, "note": f"by the schedule rollout_{name}"}
        tags = {"floodmark/operator": name, "dagster/max_runtime": str(_LONGEST_SECONDS)}
        return dg.RunRequest(run_config={"ops": {"start_rollout": {"config": config}}}, tags=tags)

    return dg.ScheduleDefinition(
        name=f"rollout_{name}",
        job=job,
        cron_schedule=asset.rollout.schedule,
        execution_timezone=asset.rollout.timezone,
        execution_fn=tick,
        description=f"Run the current code of {name} beside its stream, and promote it when the rule holds.",
    )


def _sensor(declared: Iterable[OperatorAsset], streams: Streams, job: dg.JobDefinition) -> dg.SensorDefinition:
    names = [one.operator.name for one in declared]

    @dg.sensor(
        name="rollouts",
        job=job,
        minimum_interval_seconds=_LOOK_SECONDS,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description="Starts a run for each new state of a rollout, and reports its guardrails as they change.",
    )
    def look(context: dg.SensorEvaluationContext) -> dg.SensorResult | dg.SkipReason:
        if not streams.any:
            return dg.SkipReason("no stream was started here: floodmark start OPERATOR, or job start")
        fleet, known = streams.fleet(context.log.info), json.loads(context.cursor or "{}")
        requests, events = list[dg.RunRequest](), list[Any]()
        for name in names:
            newest = _known(fleet).of(fleet.stream(name), 5)
            for record in reversed(newest):
                requests += _requests(record, known)
                results = _results(context.instance, record) if record is newest[0] else {}
                events += _evaluations(record, known, results)
        return dg.SensorResult(run_requests=requests, asset_events=events, cursor=json.dumps(known))

    return look


def _requests(record: "Record", known: dict[str, Any]) -> Iterator[dg.RunRequest]:
    """A run request for each state since the last tick. Updates ``known``: operator -> (number of its last rollout, number of states reported)."""
    number, steps = known.get(record.operator, (0, 0))
    if record.id < number:
        return
    for step in range(steps if record.id == number else 0, len(record.steps)):
        config = {"operator": record.operator, "rollout": record.id, "step": step}
        yield dg.RunRequest(
            run_key=f"rollout {record.id} of {record.operator}: {step}",
            run_config={"ops": {"report_transition": {"config": config}}},
            tags={"floodmark/operator": record.operator, "dagster/max_runtime": str(_LONGEST_SECONDS)},
        )
    known[record.operator] = (record.id, len(record.steps))


def _results(instance: dg.DagsterInstance, record: "Record") -> dict[dg.AssetCheckKey, Result]:
    key = rollout_key(record.operator)
    return newest_results(instance, (dg.AssetCheckKey(key, check_name(one.name)) for one in record.guardrails))


def _evaluations(
    record: "Record", known: dict[str, Any], results: Mapping[dg.AssetCheckKey, Result]
) -> Iterator[dg.AssetCheckEvaluation]:
    """Evaluations of the guardrails whose verdicts have changed since the last tick, or are not shown, as a state was reported since. Updates ``known``: the verdicts reported."""
    cursor_key = f"guardrails of {record.operator}"
    was = known.get(cursor_key, {})
    if record.judged_at is None or record.id < was.get("rollout", 0):
        return
    before = was.get("verdicts", {}) if was.get("rollout") == record.id else {}
    for guardrail in record.guardrails:
        key = dg.AssetCheckKey(rollout_key(record.operator), check_name(guardrail.name))
        result = results.get(key)
        if before.get(guardrail.name) != guardrail.verdict or (result is not None and not result.shown):
            yield dg.AssetCheckEvaluation(
                asset_key=key.asset_key,
                check_name=key.name,
                passed=guardrail.holds,
                metadata=_of_guardrail(record, guardrail),
                target_materialization_data=None if result is None else result.target,
            )
    known[cursor_key] = {"rollout": record.id, "verdicts": {one.name: one.verdict for one in record.guardrails}}


# ---- guardrails


def check_name(guardrail: str) -> str:
    """(name of a guardrail) -> the name of its check: ``match of hourly`` -> ``match_of_hourly``."""
    return re.sub(r"\W+", "_", guardrail)


def _checks(asset: OperatorAsset, streams: Streams) -> Iterator[dg.AssetChecksDefinition]:
    from floodmark.lifecycle import guardrails, watch  # noqa: PLC0415 - definitions load without an engine

    assert asset.rollout is not None
    expected = any(one.blocking for some in asset.expectations.values() for one in some)
    tables = (one.table for one in asset.operator.outputs if not one.side)
    for name in [*guardrails.names(asset.rollout.promote, tables), *watch.names(asset.rollout, expected=expected)]:
        yield _check(asset.operator.name, name, streams)


def _check(operator: str, guardrail: str, streams: Streams) -> dg.AssetChecksDefinition:
    @dg.asset_check(
        asset=rollout_key(operator),
        name=check_name(guardrail),
        description=f"Guardrail '{guardrail}' of the newest rollout, as the supervisor last evaluated it.",
    )
    def judged() -> dg.AssetCheckResult:
        with failing(operator):
            fleet = streams.fleet(print)
            record = next(iter(_known(fleet).of(fleet.stream(operator), 1)), None)
        judged_guardrail = (
            next((one for one in record.guardrails if one.name == guardrail), None) if record is not None else None
        )
        if record is None or judged_guardrail is None:
            about = {"sees": "no rollout that was looked at has this guardrail"}
            return dg.AssetCheckResult(passed=False, severity=dg.AssetCheckSeverity.WARN, metadata=about)
        severity = dg.AssetCheckSeverity.ERROR if judged_guardrail.verdict == "fails" else dg.AssetCheckSeverity.WARN
        return dg.AssetCheckResult(
            passed=judged_guardrail.holds, severity=severity, metadata=_of_guardrail(record, judged_guardrail)
        )

    return judged


def _of_guardrail(record: "Record", guardrail: "Guardrail") -> dict[str, Any]:
    at = describe(int((record.judged_at or 0) * 1000))
    return {
        "wants": guardrail.wants,
        "sees": guardrail.sees,
        "verdict": guardrail.verdict,
        "at": at,
        "version": record.version,
    }


def _about(record: "Record") -> dict[str, Any]:
    about: dict[str, Any] = {
        "rollout": record.id,
        "version": record.version,
        "state": record.state,
        "waits for": record.waits or "nothing",
        "note": record.why or "none",
    }
    if record.reason:
        about["reason"] = record.reason
    if record.savepoint:
        about["go back"] = f"floodmark rollback {record.operator} --to {record.savepoint}"
    if record.guardrails:
        lines = [f"| {one.name} | {one.wants} | {one.sees} | {one.verdict} |" for one in record.guardrails]
        about["guardrails"] = dg.MetadataValue.md(
            "\n".join(["| guardrail | wants | sees | |", "|---|---|---|---|", *lines])
        )
    if record.state == "awaiting approval":
        about["approve"] = (
            f"job approve_rollout, or: floodmark rollout approve {record.operator} --version {record.version}"
        )
    return about


def _known(fleet: "Fleet") -> "Rollouts":
    from floodmark.control.state.rollout import Rollouts  # noqa: PLC0415 - definitions load without Spark

    return Rollouts(fleet.store)
