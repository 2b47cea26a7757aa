"""The job ``plan``: what an upgrade of streams to the current code would change, and the steps it would take, as a report of a run."""

# no `from __future__ import annotations` here: Dagster reads the annotations of a step itself

from typing import TYPE_CHECKING, Any

import dagster as dg
from pydantic import Field

from floodmark.core.errors import FloodmarkError
from floodmark.lifecycle.requests import UpgradeRequest
from floodmark.orchestration.config import config_of, request_of
from floodmark.orchestration.jobs import Streams, job_of
from floodmark.orchestration.work import tagged
from floodmark.spec.graph.operator import Operator

if TYPE_CHECKING:
    from floodmark.engines.upgrading import Upgraded
    from floodmark.lifecycle.steps import Step


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
    readers = [f"- {reader} has read what is replaced, and has to be computed anew" for reader in would.readers]
    return "\n".join([f"{plan.deployed} -> {plan.defined}: {plan.verdict}", "", *changes, "", *numbered, *readers])
