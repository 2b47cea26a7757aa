"""Evidence for the guardrails of a rollout, before and after the promotion, read from the lake and the control store."""

from __future__ import annotations

import time
from dataclasses import replace
from importlib.util import find_spec

from floodmark.control.delivery import experiments
from floodmark.control.processes import supervisor
from floodmark.control.processes.engine import computing
from floodmark.control.state.rollout import Record
from floodmark.control.streams.fleet import Fleet
from floodmark.core.errors import FloodmarkError
from floodmark.lake.folder.paths import Lake
from floodmark.lake.stream.timeline import Timeline
from floodmark.lifecycle.experiment import CURRENT, Arm, Experiment
from floodmark.lifecycle.guardrails import Evidence, Guardrail, Judgement, judge
from floodmark.lifecycle.usage import Usage
from floodmark.lifecycle.watch import Memory, Seen, expectations, watched
from floodmark.observe.comparison.arms import compare_arms
from floodmark.observe.comparison.compare import How
from floodmark.spec.assets.asset import OperatorAsset


def superseded(fleet: Fleet, made: Experiment) -> str:
    """The version the stream runs now, in words, if it differs from the first arm, with which the others are compared; else ``""``."""
    first, runs = made.arms[0], fleet.deployments([made.operator]).get(made.operator)
    if first.code != CURRENT or (runs is not None and (runs.version == first.version or runs.package == first.package)):
        return ""
    got = "nothing" if runs is None else runs.version
    return f"the stream runs {got} now, and no longer {first.version}, with which it is compared"


def judged(fleet: Fleet, record: Record, made: Experiment) -> Judgement:
    """The guardrails of a rule at one look. Compares the windows that closed since the last look.

    Args:
        fleet: fleet of the stream.
        record: the rollout, with its rule and the state of the last look.
        made: the experiment of its current stage.
    """
    rule, arm = record.declared.promote, made.arm(record.arm)
    if made.sample is not None:  # approval is asked for only after the stage over all keys
        rule = replace(rule, approve=False)
    operator = next((one for one in fleet.workspace.operators if one.name == record.operator), None)
    comparisons = compare_arms(fleet.lake, made, operator, How()).get(arm.name, {})
    return judge(
        rule, replace(_evidence(fleet, made, arm), comparisons=comparisons), record.held_since, record.approved
    )


def _evidence(fleet: Fleet, made: Experiment, arm: Arm) -> Evidence:
    there = experiments.of(fleet, arm)
    driver = there.driver(made.operator)
    runs = driver is not None and driver.ended_at is None and driver.state == "running" and made.state == "running"
    state = "not started yet" if driver is None else f"{driver.state}{f': {driver.reason}' if driver.reason else ''}"
    lakes = [fleet.lake, *(Lake(one.root) for one in made.arms)]
    progress = [_progress(lake, made.operator) for lake in lakes]
    mine, known = _progress(Lake(arm.root), made.operator), [one for one in progress if one is not None]
    return Evidence(
        comparisons={},
        state=state if made.state == "running" else made.state,
        runs=runs,
        given_up=bool(given_up(there, made.operator)),
        behind=None if mine is None else max(known) - mine,
        now=now(),
    )


def _progress(lake: Lake, operator: str) -> int | None:
    checkpoint = Timeline.current(lake, operator).checkpoint
    last = checkpoint.last_committed()
    return checkpoint.final_progress(last) if last >= 0 else None


def given_up(fleet: Fleet, operator: str) -> str:
    """The reason why a supervisor does not restart a stream; ``""`` if it does."""
    deployment = fleet.deployments([operator]).get(operator)
    crashes = [] if deployment is None else supervisor.given_up(deployment, fleet.store.drivers(deployment.stream))
    if crashes and supervisor.is_final(crashes[0]):
        return f"it cannot go on: {crashes[0].reason}"
    return f"it {supervisor.describe_crashes(crashes)}" if crashes else ""


def watch(fleet: Fleet, record: Record, *, over: bool) -> tuple[tuple[Guardrail, ...], Memory]:
    """The guardrails of a look at a promoted stream, and the memory for the next look.

    Args:
        fleet: fleet of the stream.
        record: the rollout.
        over: True for the last look.
    """
    memory = record.memory or Memory(after=-1, share=0.0)
    timeline, deployment = Timeline.current(fleet.lake, record.operator), fleet.deployments([record.operator])
    batch, driver = timeline.checkpoint.last_committed(), fleet.driver(record.operator)
    promoting = next(one.at for one in reversed(record.steps) if one.state == "promoting")
    usage = _usage_of(fleet, record, record.version, promoting)
    seen = Seen(
        state="not started yet" if driver is None else supervisor.describe_driver(driver),
        wanted=deployment[record.operator].desired == "running",
        given_up=given_up(fleet, record.operator),
        lag=experiments.lag(fleet.lake, timeline),
        rows=usage.rows,
        aside=usage.set_aside,
        now=now(),
    )
    guardrails, late_since = watched(record.declared, seen, memory)
    memory = replace(memory, late_since=late_since)
    asset = next((one for one in fleet.workspace.operator_assets if one.operator.name == record.operator), None)
    if asset is not None and memory.due(batch, over=over) and (guardrail := _expected(fleet, asset, memory.after)):
        memory = replace(memory, expected=batch)
        guardrails.append(guardrail)
    looked = {one.name for one in guardrails}
    guardrails = [*(one for one in record.guardrails if one.name not in looked), *guardrails]
    return tuple(guardrails), memory


def _expected(fleet: Fleet, asset: OperatorAsset, after: int) -> Guardrail | None:
    """The guardrail of an asset's blocking expectations; None if it has none."""
    from floodmark.control.streams.expected import blocking, unmet  # noqa: PLC0415 - needs an engine, which is slow to import

    if not blocking(asset):
        return None
    if find_spec("great_expectations") is None:
        return expectations([], "Great Expectations is not there: pip install 'floodmark[dagster]'")
    try:
        return expectations(list(unmet(asset, computing(fleet.workspace.settings), fleet.lake, after)))
    except FloodmarkError as error:
        return expectations([], str(error))


def _usage_of(fleet: Fleet, record: Record, version: str, since: float = 0.0) -> Usage:
    """Total usage of the drivers of a version that started at or after a time, s since 1970."""
    used = Usage()
    for driver in fleet.store.drivers(record.stream):
        if driver.version == version and driver.started_at >= since:
            used = used.plus(Usage.parse(driver.usage))
    return used


def share_aside(fleet: Fleet, record: Record, version: str) -> float:
    """Share of its input rows that a version has quarantined, 0 to 1; 0 if it has read no row.

    Args:
        fleet: fleet of the stream.
        record: the rollout, whose stream is meant.
        version: version of the operator.
    """
    used = _usage_of(fleet, record, version)
    return used.set_aside / used.rows if used.rows else 0.0


def now() -> int:
    """Current time, ms UTC."""
    return time.time_ns() // 1_000_000
