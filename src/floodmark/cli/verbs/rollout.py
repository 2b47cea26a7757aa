"""The verb rollout: a changed version runs beside its stream, is judged by a rule, promoted, watched, and rolled back if it fails."""

# ruff: noqa: PLC0415 - modules that are slow to import are imported on first use

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from floodmark.cli.shell.console import Console
from floodmark.cli.shell.invocation import Invocation, pass_invocation, shared
from floodmark.cli.shell.loading import LoadedWorkspace, opened_lake
from floodmark.cli.shell.store import fleet
from floodmark.core.time import describe

if TYPE_CHECKING:
    from floodmark.control.state.rollout import Record
    from floodmark.control.streams.fleet import Fleet


@click.group()
@shared
def rollout() -> None:
    """Run a changed version beside its stream, promote it when a rule holds, watch the promoted version, and roll back if it fails."""


@rollout.command()
@click.argument("operator")
@click.option("--note", default="", help="Reason for the rollout.")
@shared
@pass_invocation
def start(invocation: Invocation, *, operator: str, note: str) -> None:
    """Roll out the current code of OPERATOR, as its asset declares (operator_asset(..., rollout=Rollout(...)))."""
    console, opened, streams = _opened(invocation)
    from floodmark.control.delivery import rollouts

    asset = opened.workspace.asset(operator)
    record = rollouts.start(streams, asset, why=note)
    if record is None:
        console.say(f"{asset.operator.version}: nothing has changed")
    else:
        say_rollout(console, record)
        console.say(f"  see how it goes on: floodmark rollout status {record.operator}")
        if not streams.supervised:
            console.say("no supervisor is at work, so nothing happens yet: floodmark supervise")
    console.document({"lake": opened.lake, "rollout": None if record is None else record.as_json()})


@rollout.command()
@click.argument("operators", nargs=-1)
@shared
@pass_invocation
def status(invocation: Invocation, operators: tuple[str, ...]) -> None:
    """Show the newest rollouts of OPERATORS, by default of all: state, the awaited condition, guardrails."""
    console, opened, streams = _opened(invocation)
    from floodmark.control.state.rollout import Rollouts

    names = [opened.workspace.operator(one).name for one in operators] or [o.name for o in opened.workspace.operators]
    known = [one for name in names for one in Rollouts(streams.store).of(streams.stream(name), 1)]
    for record in known:
        say_rollout(console, record)
    if not known:
        console.say(f"no rollout of {', '.join(names)} yet: floodmark rollout start OPERATOR")
    console.document({"lake": opened.lake, "rollouts": [one.as_json() for one in known]})


@rollout.command()
@click.argument("operator")
@click.option("--version", default="", metavar="VERSION", help="The version that is approved; any other is refused.")
@shared
@pass_invocation
def approve(invocation: Invocation, *, operator: str, version: str) -> None:
    """Approve that the new version of OPERATOR becomes the stream, which is asked for once all other guardrails hold."""
    console, opened, streams = _opened(invocation)
    from floodmark.control.delivery import rollouts

    record = rollouts.approve(streams, _going(opened, streams, operator), version)
    say_rollout(console, record)
    console.say(f"  approved by {record.approved}; its supervisor goes on at its next look")
    console.document({"lake": opened.lake, **record.as_json()})


@rollout.command()
@click.argument("operator")
@click.option("--note", default="", help="Reason for the abort.")
@shared
@pass_invocation
def abort(invocation: Invocation, *, operator: str, note: str) -> None:
    """Abort the rollout of OPERATOR: stop the new version, or, after its promotion, roll the stream back."""
    console, opened, streams = _opened(invocation)
    from floodmark.control.delivery import rollouts

    record = rollouts.abort(streams, _going(opened, streams, operator), note)
    console.say(f"{record.name}: {record.aborted}; its supervisor ends it at its next look")
    console.document({"lake": opened.lake, **record.as_json()})


@rollout.command()
@click.argument("operator")
@click.option("--limit", type=click.IntRange(min=1), default=20, show_default=True, help="Most rollouts to show.")
@shared
@pass_invocation
def history(invocation: Invocation, *, operator: str, limit: int) -> None:
    """Show the rollouts of OPERATOR, newest first, with each of their states."""
    console, opened, streams = _opened(invocation)
    from floodmark.control.state.rollout import Rollouts

    name = opened.workspace.operator(operator).name
    known = Rollouts(streams.store).of(streams.stream(name), limit)
    rows = [
        (one.id, one.version, describe(int(step.at * 1000)), step.state, step.why)
        for one in known
        for step in one.steps
    ]
    console.table(("rollout", "version", "at", "state", "because"), rows)
    console.document({"lake": opened.lake, "rollouts": [one.as_json() for one in known]})


def _going(opened: LoadedWorkspace, streams: Fleet, operator: str) -> Record:
    from floodmark.control.delivery import rollouts

    return rollouts.going(streams, opened.workspace.operator(operator).name)


def say_rollout(console: Console, record: Record) -> None:
    """Print the state of a rollout, or of the rule of an experiment."""
    console.say(f"{record.name} to {record.version}: {record.state} since {describe(int(record.since * 1000))}")
    if why := record.reason or record.steps[-1].why:
        console.say(f"  because: {why}")
    if record.waits and record.ended_at is None:
        console.say(f"  waits for: {record.waits}")
    if record.judged_at is not None:
        rows = [(one.name, one.wants, one.sees, one.verdict) for one in record.guardrails]
        console.table((f"guardrail at {describe(int(record.judged_at * 1000))}", "wants", "sees", ""), rows)
    if record.state == "awaiting approval" and not record.approved:
        how = (
            f"floodmark rollout approve {record.operator} --version {record.version}"
            if record.kind == "rollout"
            else f"floodmark experiment approve {record.experiment} --arm {record.arm}"
        )
        console.say(f"  approve: {how}")
    if record.state in {"watching", "done"} and record.savepoint:
        console.say(f"  go back: floodmark rollback {record.operator} --to {record.savepoint}")


def _opened(invocation: Invocation) -> tuple[Console, LoadedWorkspace, Fleet]:
    console = Console(as_json=invocation.json)
    opened = opened_lake(invocation, console)
    return console, opened, fleet(opened, console.say)
