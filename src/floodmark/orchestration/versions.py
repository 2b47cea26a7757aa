"""What a change of code means: the check `code_version` of each operator, whether the current code has computed all its results; and the job `plan`.

Dagster itself compares the code versions of a materialization and of its definition only for assets without partitions.
"""

# no `from __future__ import annotations` here: Dagster reads the annotations of a step itself

import json
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import dagster as dg
from pydantic import Field

from floodmark.core.errors import FloodmarkError
from floodmark.core.time import Interval
from floodmark.lake.results.readiness import coverage
from floodmark.lifecycle.coverage import Segment
from floodmark.lifecycle.requests import UpgradeRequest
from floodmark.orchestration.assets import output_key
from floodmark.orchestration.checks import newest_results
from floodmark.orchestration.config import config_of, request_of
from floodmark.orchestration.jobs import Streams, job_of
from floodmark.orchestration.session import StepWorkspace
from floodmark.orchestration.work import tagged
from floodmark.spec.assets.asset import OperatorAsset
from floodmark.spec.graph.operator import Operator
from floodmark.spec.windowing.partitions import end as end_of
from floodmark.spec.windowing.partitions import first, split
from floodmark.spec.workspace import Workspace

if TYPE_CHECKING:
    from floodmark.engines.upgrading import Upgraded
    from floodmark.lifecycle.steps import Step

NAME = "code_version"
_WHAT = "Whether the current code has computed all results; see `floodmark plan` before computing results again."
_COMPARED = " compared"
"""Key of the sensor's cursor under which is when results that are not passed were compared last; no operator has such a name."""
_AGAIN_SECONDS = 600.0
"""Between two comparisons of a check that is not passed: a stream or a verb may have computed the rest since."""


def version_definitions(workspace: Workspace, location: StepWorkspace) -> dg.Definitions:
    """The checks, which each run evaluates, and the sensor that evaluates a check when the code of its operator has changed."""
    assets = {output_key(one.operator.outputs[0]): one for one in workspace.operator_assets}
    if not assets:
        return dg.Definitions()
    specs = [dg.AssetCheckSpec(NAME, asset=key, description=_WHAT) for key in assets]

    @dg.multi_asset_check(specs=specs, name="check_code_versions", can_subset=True)
    def check_step(context: dg.AssetCheckExecutionContext) -> Iterator[dg.AssetCheckResult]:
        for chosen in context.selected_asset_check_keys:
            passed, about = compared(assets[chosen.asset_key], location)
            yield dg.AssetCheckResult(
                asset_key=chosen.asset_key,
                check_name=NAME,
                passed=passed,
                severity=dg.AssetCheckSeverity.WARN,
                metadata=about,
            )

    @dg.sensor(
        name="code_versions",
        minimum_interval_seconds=30,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description="Evaluates the checks `code_version` of operators whose code has changed, or whose result is not shown or may have changed.",
    )
    def look(context: dg.SensorEvaluationContext) -> dg.SensorResult | dg.SkipReason:
        cursor = json.loads(context.cursor or "{}")
        at = cursor.pop(_COMPARED, {})
        now = {asset.operator.name: asset.operator.version for asset in assets.values()}
        results = newest_results(context.instance, (dg.AssetCheckKey(key, NAME) for key in assets))
        events, compared_now = list[dg.AssetCheckEvaluation](), dict[str, float]()
        for key, asset in assets.items():
            name, result = asset.operator.name, results.get(dg.AssetCheckKey(key, NAME))
            due = cursor.get(name, now[name]) != now[name] or (result is not None and not result.shown)
            failed = result is not None and result.passed is False
            if not due and not (failed and abs(time.time() - at.get(name, 0)) >= _AGAIN_SECONDS):
                continue
            compared_now[name] = time.time()
            passed, about = compared(asset, location)
            if due or passed:
                events.append(
                    dg.AssetCheckEvaluation(
                        asset_key=key,
                        check_name=NAME,
                        passed=passed,
                        severity=dg.AssetCheckSeverity.WARN,
                        metadata={name: dg.MetadataValue.text(str(value)) for name, value in about.items()},
                        target_materialization_data=None if result is None else result.target,
                    )
                )
        if now == cursor and not compared_now:
            return dg.SkipReason("no operator's code has changed")
        return dg.SensorResult(cursor=json.dumps(now | {_COMPARED: at | compared_now}), asset_events=events)

    return dg.Definitions(asset_checks=[check_step], sensors=[look])


def compared(asset: OperatorAsset, location: StepWorkspace) -> tuple[bool, dict[str, Any]]:
    """(True if the current version has computed every computed stretch of an operator, metadata: what each version has computed)."""
    whole = Interval()
    if asset.partitions is not None:
        whole = Interval(start=first(asset.partitions), end=min(end_of(asset.partitions), time.time_ns() // 1_000_000))
    try:
        segments = coverage(asset.operator, location.lake, whole)
    except FloodmarkError as error:  # an input that was never landed: nothing can have been computed
        return True, {"code": asset.operator.version, "computed": f"nothing yet: {error.got}"}
    by_version = counted(asset, segments)
    passed = set(by_version) <= {asset.operator.version}
    return passed, {"code": asset.operator.version} | {f"computed by {name}": how for name, how in by_version.items()}


def counted(asset: OperatorAsset, segments: list[Segment]) -> dict[str, str]:
    """Version -> the number of asset partitions that it has computed, in words; ``all`` for an asset without partitions."""
    counts: dict[str, int] = {}
    for part in segments:
        pieces = 1 if asset.partitions is None else sum(1 for _ in split(asset.partitions, part.interval))
        counts[part.entry.version] = counts.get(part.entry.version, 0) + pieces
    unit = f"{type(asset.partitions).__name__.lower()} partitions" if asset.partitions else "all"
    return {name: unit if asset.partitions is None else f"{count} {unit}" for name, count in counts.items()}


# ---- the job plan


def planning(streams: Streams, names: Any) -> dg.JobDefinition:
    """The job ``plan``.

    Args:
        streams: the streams of the workspace.
        names: enum of the operators' names.
    """

    class Config(config_of(UpgradeRequest)):  # type: ignore[misc]  # made of the request
        operator: names | None = Field(
            default=None, description="Operator whose upgrade is planned. Empty: all of them."
        )

    @dg.op(name="plan_upgrades")
    def act(context: dg.OpExecutionContext, config: Config) -> None:
        workspace = streams.location.workspace
        chosen = [one for one in workspace.operators if config.operator in {None, names(one.name)}]
        tagged(context, ", ".join(operator.name for operator in chosen))
        request = request_of(UpgradeRequest, config)
        reports = {operator.name: _planned(context, streams, operator, request) for operator in chosen}
        context.add_output_metadata({name: dg.MetadataValue.md(text) for name, text in reports.items()})

    what = "Plan the upgrade of streams to the current code, and list the steps that the job upgrade would take. Changes nothing."
    return job_of("plan", what, act)


def _planned(context: dg.OpExecutionContext, streams: Streams, operator: Operator, request: UpgradeRequest) -> str:
    """The report of one operator, as markdown; also logged. A refusal is part of the report."""
    from floodmark.control.streams.planned import planned_upgrade  # noqa: PLC0415 - definitions load without Spark

    fleet = streams.fleet(context.log.info) if streams.any else None
    fleet = fleet if fleet is not None and fleet.deployments([operator.name]) else None
    try:
        text = report(*planned_upgrade(fleet, operator, streams.location.lake, request))
    except FloodmarkError as error:
        text = f"{operator.version}: would be refused: {error}"
    context.log.info(text)
    return text


def report(would: "Upgraded", steps: "list[Step]") -> str:
    """(what would be upgraded, its steps) -> markdown: the verdict, each change, the steps in order."""
    plan = would.plan
    if plan.deployed is None:
        return f"{plan.defined}: no stream"
    if not plan.changes:
        return f"{plan.defined}: nothing has changed"
    changes = [
        f"- {change.where}: {' -> '.join(filter(None, (change.before, change.after)))}: {change.verdict}: {change.otherwise}"
        for change in plan.changes
    ]
    numbered = [f"{number}. {step}" for number, step in enumerate(steps, 1)]
    because = f", because {would.because}" if would.because else ""
    readers = [f"- {reader} follows as a difference" for reader in would.followers]
    readers += [
        f"- {reader} has read what is replaced, and has to be computed anew{because}" for reader in would.readers
    ]
    return "\n".join([f"{plan.deployed} -> {plan.defined}: {plan.verdict}", "", *changes, "", *numbered, *readers])
