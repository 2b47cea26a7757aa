"""The verb apply: upgrades streams to the current definitions of their operators."""

# ruff: noqa: PLC0415 - modules that are slow to import are imported on first use

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from floodmark.cli.shell.console import Console
from floodmark.cli.shell.invocation import Invocation, asked, pass_invocation, shared
from floodmark.cli.shell.loading import LoadedWorkspace, opened_lake
from floodmark.cli.shell.signals import stopping
from floodmark.cli.shell.spark import computing
from floodmark.cli.shell.store import known
from floodmark.cli.verbs.plan import document
from floodmark.lifecycle.requests import UpgradeRequest
from floodmark.lifecycle.steps import documents, recorded

if TYPE_CHECKING:
    from floodmark.control.state.records import Action
    from floodmark.control.streams.fleet import Fleet
    from floodmark.engines.upgrading import Upgraded
    from floodmark.spec.graph.operator import Operator


@click.command()
@click.argument("operators", nargs=-1, required=True)
@asked(UpgradeRequest)
@click.option("--dry-run", is_flag=True, help="Show the steps, and change nothing.")
@shared
@pass_invocation
def apply(invocation: Invocation, /, operators: tuple[str, ...], *, dry_run: bool, request: UpgradeRequest) -> None:
    """Upgrade the streams of OPERATORS to the current code.

    A supervised stream is stopped with a savepoint, started in the new version and watched; if the new version fails, the stream is rolled
    back. Any other stream must be stopped already, and stays stopped.
    """
    console = Console(as_json=invocation.json)
    opened = opened_lake(invocation, console)
    named = {opened.workspace.operator(name).name for name in operators}
    streams, applied, failure = known(opened, console.say), list[dict[str, Any]](), None
    for operator in (one for one in opened.workspace.operators if one.name in named):
        run_by = streams if streams is not None and streams.deployments([operator.name]) else None
        for sentence in _outside(opened, operator) if request.rebuild else ():
            console.say(sentence)
        if dry_run:
            applied.append(_checked(opened, console, run_by, operator, request))
            continue
        with recorded() as taken:
            if run_by is not None:
                upgraded, action = _supervised(opened, console, run_by, operator, request)
            else:
                upgraded, action = _stopped(opened, console, operator, request), None
        applied.append(_document(upgraded) | {"steps": documents(taken)})
        if action is not None:
            applied[-1] |= action.outcome
            failure = failure or action.failure(f"upgrade to {action.version}")
    console.document({"lake": opened.lake, "done": not dry_run and failure is None, "applied": applied}, failure)


def _outside(opened: LoadedWorkspace, operator: Operator) -> list[str]:
    from floodmark.deliveries.outside import outside
    from floodmark.lake.folder.paths import Lake

    return outside(opened.workspace.deliveries, Lake.of(opened.workspace.settings), {operator.name})


def _checked(
    opened: LoadedWorkspace, console: Console, streams: Fleet | None, operator: Operator, request: UpgradeRequest
) -> dict[str, Any]:
    from floodmark.control.streams.planned import planned_upgrade
    from floodmark.lake.folder.paths import Lake

    lake = Lake.of(opened.workspace.settings)
    would, steps = planned_upgrade(streams, operator, lake, request)
    if would.plan.deployed is not None and would.plan.changes:
        computing(opened, console).check_deployed(operator, lake)
    console.say(_would(operator, would, rebuild=request.rebuild))
    console.steps(steps)
    for reader in would.followers:
        console.say(f"  {reader} would follow as a difference: rows that are taken back and new rows")
    for reader in would.readers:
        console.say(f"  {reader} would have read what is replaced, and would have to be computed anew{_because(would)}")
    return _document(would) | {"steps": documents(steps)}


def _would(operator: Operator, would: Upgraded, *, rebuild: bool) -> str:
    """The effect of applying the changes, in one line."""
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


def _document(upgraded: Upgraded) -> dict[str, Any]:
    return document(upgraded.plan) | {"savepoint": upgraded.savepoint, **upgraded.reading}


def _because(upgraded: Upgraded) -> str:
    """Why readers cannot follow as a difference, as the end of a sentence."""
    return f", because {upgraded.because}" if upgraded.because else ""


def _stopped(opened: LoadedWorkspace, console: Console, operator: Operator, request: UpgradeRequest) -> Upgraded:
    from floodmark.engines.upgrading import rebuild, upgrade
    from floodmark.lake.folder.paths import Lake

    lake = Lake.of(opened.workspace.settings)
    if request.rebuild:
        run = computing(opened, console)
        run.start()
        with stopping(console, "this micro-batch") as stop, console.step(f"rebuilding {operator.version}"):
            upgraded = rebuild(run.run_unbounded, operator, lake, why=request.note, stop=stop)
    else:
        computing(opened, console).check_deployed(operator, lake)
        upgraded = upgrade(operator, lake, forward_only=request.forward_only, why=request.note)
    _say(console, operator, upgraded, f"done. Resume it: floodmark run {operator.name} --unbounded")
    return upgraded


def _supervised(
    opened: LoadedWorkspace, console: Console, streams: Fleet, operator: Operator, request: UpgradeRequest
) -> tuple[Upgraded, Action | None]:
    from floodmark.control.streams import actions
    from floodmark.control.streams.verification import Verification
    from floodmark.engines.upgrading import Upgraded

    verification = Verification.of(request)
    action: Action | None
    if request.rebuild:
        run = computing(opened, console)
        run.start()
        with stopping(console, "this micro-batch") as stop, console.step(f"rebuilding {operator.version}"):
            upgraded, action = actions.rebuild(
                streams, run.run_unbounded, operator, why=request.note, stop=stop, verification=verification
            )
    else:
        with console.step(f"applying {operator.version}"):
            plan, action = actions.upgrade(
                streams, operator, forward_only=request.forward_only, why=request.note, verification=verification
            )
        upgraded = Upgraded(plan=plan, savepoint=action.savepoint if action else None)
    if upgraded.plan.deployed is None:
        console.say(f"{operator.version}: its stream has no micro-batch yet, and begins under this code")
        return upgraded, action
    outcome = "nothing to do" if action is None else action.step if action.step != "done" else "it runs"
    _say(console, operator, upgraded, outcome)
    return upgraded, action


def _say(console: Console, operator: Operator, upgraded: Upgraded, outcome: str) -> None:
    if upgraded.plan.deployed is None:
        console.say(_no_stream(operator))
    elif upgraded.savepoint is None:
        console.say(f"{upgraded.plan.defined}: nothing to do")
    else:
        before = (
            f"{upgraded.plan.deployed} -> " if upgraded.plan.changes else ""
        )  # without changes: the version is verified again
        console.say(f"{before}{upgraded.plan.defined}: {outcome}")
        console.say(f"  go back: floodmark rollback {operator.name} --to {upgraded.savepoint}")
    for reader in upgraded.followers:
        console.say(f"  {reader} follows the difference when it resumes")
    if upgraded.because:
        console.say(f"  readers cannot follow as a difference, because {upgraded.because}")
    for reader in upgraded.readers:
        console.say(
            f"  {reader} has read what was replaced: floodmark run {reader} --unbounded --from-scratch --until-caught-up"
        )


def _no_stream(operator: Operator) -> str:
    return f"{operator.version}: no stream; floodmark run {operator.name} --unbounded starts one"
