"""The verb apply: let streams go on under the definitions the code has now."""

# ruff: noqa: PLC0415 - what is slow to import is imported when it is needed

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from floodmark.cli.console import Console
from floodmark.cli.invocation import Invocation, pass_invocation, shared, verified
from floodmark.cli.loading import Opened
from floodmark.cli.plan import document
from floodmark.cli.signals import stopping
from floodmark.cli.spark import computing
from floodmark.cli.store import known
from floodmark.cli.workspace import opened_lake
from floodmark.core.errors import LifecycleError
from floodmark.lifecycle.steps import documents, recorded

if TYPE_CHECKING:
    from floodmark.control.fleet import Fleet
    from floodmark.control.store import Action
    from floodmark.control.verification import Verification
    from floodmark.engines.upgrading import Upgraded
    from floodmark.lake.paths import Lake
    from floodmark.lifecycle.steps import Step
    from floodmark.spec.operator import Operator


@dataclass(frozen=True, slots=True)
class _Wanted:
    """The options of the verb."""

    forward_only: bool
    rebuild: bool
    note: str
    patience: float
    soak: float
    set_aside: bool


@click.command()
@click.argument("operators", nargs=-1, required=True)
@click.option("--forward-only", is_flag=True, help="Let open windows keep what the old code put into them.")
@click.option("--rebuild", is_flag=True, help="Compute everything with the new code beside the stream, and switch.")
@click.option("--note", default="", help="Why, for the savepoint that is made first.")
@verified("the new version's first micro-batch.")
@click.option("--dry-run", is_flag=True, help="Say what would be done, and do nothing.")
@shared
@pass_invocation
def apply(invocation: Invocation, /, operators: tuple[str, ...], *, dry_run: bool, **options: Any) -> None:
    """Let the streams of OPERATORS go on under the definitions the code has now.

    A stream that a supervisor runs is stopped with a savepoint, started in the new version and watched; when that fails, it is taken
    back. Any other has to be stopped, and stays so.
    """
    wanted = _Wanted(**options)
    if wanted.forward_only and wanted.rebuild:
        msg = "--forward-only goes on from the state there is, --rebuild does not: give one of them"
        raise click.UsageError(msg)
    console = Console(as_json=invocation.json)
    opened = opened_lake(invocation, console)
    asked = {opened.workspace.operator(name).name for name in operators}
    streams, applied = known(opened, console.say), []
    for operator in (one for one in opened.workspace.operators if one.name in asked):
        run_by = streams if streams is not None and streams.deployments([operator.name]) else None
        if dry_run:
            applied.append(_checked(opened, console, run_by, operator, wanted))
            continue
        with recorded() as taken:
            if run_by is not None:
                applied.append(_supervised(opened, console, run_by, operator, wanted))
            else:
                applied.append(_stopped(opened, console, operator, wanted))
        applied[-1]["steps"] = documents(taken)
    console.document({"lake": opened.lake, "done": not dry_run, "applied": applied})
    for one in applied:
        if one.get("step") in {"rolled back", "refused"}:
            fix = f"Mend it, and apply it again. What it said: floodmark logs {one['operator']}"
            where = f"upgrade to {one['defined']}"
            raise LifecycleError(where, "a version that passes", one["reason"], fix, code="LIFECYCLE-056")


def _checked(
    opened: Opened, console: Console, streams: Fleet | None, operator: Operator, wanted: _Wanted
) -> dict[str, Any]:
    from floodmark.engines.upgrading import Upgraded, check, check_rebuild
    from floodmark.lake.paths import Lake

    lake = Lake.of(opened.workspace.settings)
    if wanted.rebuild:
        would = check_rebuild(operator, lake)
    else:
        would = Upgraded(plan=check(operator, lake, forward_only=wanted.forward_only))
    if would.plan.deployed is not None and would.plan.changes:
        computing(opened, console).check_deployed(operator, lake)
    console.say(_would(operator, would, rebuild=wanted.rebuild))
    steps = _steps(lake, streams, operator, wanted) if would.plan.deployed is not None and would.plan.changes else []
    console.steps(steps)
    for reader in would.readers:
        console.say(f"  {reader} would have read what is replaced, and would have to be computed anew")
    effects = {"savepoint": would.savepoint, "readers": list(would.readers), "steps": documents(steps)}
    return document(would.plan) | effects


def _steps(lake: Lake, streams: Fleet | None, operator: Operator, wanted: _Wanted) -> list[Step]:
    """What would be done, one after the other."""
    from floodmark.engines.upgrading import rebuild_steps, upgrade_steps

    if streams is None:
        steps = rebuild_steps(operator, lake, wanted.note) if wanted.rebuild else upgrade_steps(operator, wanted.note)
        return list(steps)
    from floodmark.control import actions

    would = actions.rebuild_steps if wanted.rebuild else actions.upgrade_steps
    return would(streams, operator, wanted.note, _verification(wanted))


def _would(operator: Operator, would: Upgraded, *, rebuild: bool) -> str:
    """What applying the changes would do, in one line."""
    changes = would.plan
    if would.savepoint is not None:
        return f"{changes.defined}: the rebuild that was begun and stopped on the way would be finished"
    if changes.deployed is None:
        return _no_stream(operator)
    if not changes.changes:
        return f"{changes.defined}: nothing to do"
    way = (
        "--rebuild computes all of it anew beside the stream, and replaces state and tables in one switch"
        if rebuild
        else "it can be applied"
    )
    return f"{changes.deployed} -> {changes.defined}: {changes.verdict}; {way}"


def _stopped(opened: Opened, console: Console, operator: Operator, wanted: _Wanted) -> dict[str, Any]:
    from floodmark.engines.upgrading import rebuild, upgrade
    from floodmark.lake.paths import Lake

    lake = Lake.of(opened.workspace.settings)
    if wanted.rebuild:
        run = computing(opened, console)
        run.start()
        with stopping(console, "this micro-batch") as stop, console.step(f"rebuilding {operator.version}"):
            upgraded = rebuild(run.run_unbounded, operator, lake, why=wanted.note, stop=stop)
    else:
        computing(opened, console).check_deployed(operator, lake)
        upgraded = upgrade(operator, lake, forward_only=wanted.forward_only, why=wanted.note)
    _say(console, operator, upgraded, f"done. Resume it: floodmark run {operator.name} --unbounded")
    return document(upgraded.plan) | {"savepoint": upgraded.savepoint, "readers": list(upgraded.readers)}


def _supervised(
    opened: Opened, console: Console, streams: Fleet, operator: Operator, wanted: _Wanted
) -> dict[str, Any]:
    from floodmark.control import actions
    from floodmark.engines.upgrading import Upgraded

    verification = _verification(wanted)
    action: Action | None
    if wanted.rebuild:
        run = computing(opened, console)
        run.start()
        with stopping(console, "this micro-batch") as stop, console.step(f"rebuilding {operator.version}"):
            found, action = actions.rebuild(
                streams, run.run_unbounded, operator, why=wanted.note, stop=stop, verification=verification
            )
    else:
        with console.step(f"applying {operator.version}"):
            plan, action = actions.upgrade(
                streams, operator, forward_only=wanted.forward_only, why=wanted.note, verification=verification
            )
        found = Upgraded(plan=plan, savepoint=action.savepoint if action else None)
    told = "nothing to do" if action is None else action.step if action.step != "done" else "it runs"
    _say(console, operator, found, told)
    about = {"step": action.step, "reason": action.reason} if action else {}
    return document(found.plan) | {"savepoint": found.savepoint, "readers": list(found.readers)} | about


def _verification(wanted: _Wanted) -> Verification:
    from floodmark.control.verification import Verification

    return Verification(patience=wanted.patience, soak=wanted.soak, set_aside=wanted.set_aside)


def _say(console: Console, operator: Operator, found: Upgraded, told: str) -> None:
    if found.plan.deployed is None:
        console.say(_no_stream(operator))
    elif found.savepoint is None:
        console.say(f"{found.plan.defined}: nothing to do")
    else:
        console.say(f"{found.plan.deployed} -> {found.plan.defined}: {told}")
        console.say(f"  go back: floodmark rollback {operator.name} --to {found.savepoint}")
    for reader in found.readers:
        console.say(
            f"  {reader} has read what was replaced: floodmark run {reader} --unbounded --from-scratch --until-caught-up"
        )


def _no_stream(operator: Operator) -> str:
    return f"{operator.version}: no stream; floodmark run {operator.name} --unbounded starts one"
