"""The verb experiment: runs versions of one stream side by side and compares their results; one of the versions may become the stream."""

# ruff: noqa: PLC0415 - modules that are slow to import are imported on first use

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from floodmark.cli.shell.console import Console
from floodmark.cli.shell.invocation import Invocation, asked, pass_invocation, shared
from floodmark.cli.shell.loading import LoadedWorkspace, opened_lake
from floodmark.cli.shell.store import fleet
from floodmark.cli.verbs.reading.diff import say
from floodmark.cli.verbs.rollout import say_rollout
from floodmark.core.errors import LifecycleError
from floodmark.core.time import describe
from floodmark.lifecycle.requests import ComparisonRequest, ExperimentRequest, PromotionRequest
from floodmark.lifecycle.steps import documents, recorded

if TYPE_CHECKING:
    from floodmark.control.state.rollout import Record
    from floodmark.control.streams.fleet import Fleet
    from floodmark.lifecycle.experiment import Experiment, Operations, State


@click.group()
@shared
def experiment() -> None:
    """Run versions of one stream side by side from one savepoint, without affecting the stream itself."""


@experiment.command()
@click.argument("name")
@click.option("--of", "operator", required=True, metavar="OPERATOR", help="Operator of the stream.")
@asked(ExperimentRequest)
@shared
@pass_invocation
def start(invocation: Invocation, *, name: str, operator: str, request: ExperimentRequest) -> None:
    """Start the arms of experiment NAME, each a fork in a lake of its own. If the start is killed, the same command resumes it."""
    console, opened, streams = _opened(invocation)
    from floodmark.control.delivery import experiments

    chosen = opened.workspace.operator(operator)
    with console.step(f"experiment {name}"):
        made = experiments.start(streams, name, chosen.name, request)
    console.say(f"{name}: {len(made.arms)} arms of '{chosen.name}' from {made.savepoint}")
    for arm in made.arms:
        anew = ", computes all input from the first row" if arm.anew else ""
        console.say(f"  {arm.name}: {arm.version}, package {arm.package}{anew}")
    if made.sample is not None:
        console.say(f"they run over {made.sample}")
    if made.promote is not None:
        console.say(f"{made.candidate} becomes the stream when all guardrails hold: floodmark experiment show {name}")
    if not streams.supervised:
        console.say("no supervisor is at work, so nothing happens yet: floodmark supervise")
    console.say(f"compare them: floodmark experiment report {name}")
    console.document({"lake": opened.lake, **asdict(made)})


@experiment.command("list")
@shared
@pass_invocation
def listed(invocation: Invocation) -> None:
    """List the experiments of the lake, oldest first."""
    console, opened, streams = _opened(invocation)
    from floodmark.lake.restore import experiments

    known = experiments.known(streams.lake)
    rows = [
        (
            one.name,
            one.operator,
            one.state,
            ", ".join(arm.name for arm in one.arms),
            describe(one.began_at),
            one.promoted,
        )
        for one in known
    ]
    console.table(("experiment", "operator", "state", "arms", "since", "promoted"), rows)
    console.document({"lake": opened.lake, "experiments": [asdict(one) for one in known]})


@experiment.command()
@click.argument("name")
@shared
@pass_invocation
def show(invocation: Invocation, name: str) -> None:
    """Show how the arms of experiment NAME run: progress, rows, processor time, memory, late rows."""
    console, opened, streams = _opened(invocation)
    from floodmark.control.delivery.experiments import operations
    from floodmark.lake.restore import experiments

    made = experiments.find(streams.lake, name)
    arms = operations(streams, made)
    _say_operations(console, made, arms)
    record = _rule(streams, made)
    if record is not None:
        say_rollout(console, record)
    rule = None if record is None else record.as_json()
    console.document({"lake": opened.lake, **asdict(made), "operations": [asdict(one) for one in arms], "rule": rule})


def _rule(streams: Fleet, made: Experiment) -> Record | None:
    """The record of the rule of an experiment; None if the experiment has no rule."""
    from floodmark.control.state.rollout import Rollouts

    known = Rollouts(streams.store).of(streams.stream(made.operator))
    return next((one for one in known if one.named == made.name), None)


@experiment.command()
@click.argument("name")
@click.option("--arm", required=True, metavar="ARM", help="Arm that may become the stream.")
@shared
@pass_invocation
def approve(invocation: Invocation, *, name: str, arm: str) -> None:
    """Approve that ARM of experiment NAME becomes the stream, which its rule asks for once all other guardrails hold."""
    console, opened, streams = _opened(invocation)
    from floodmark.control.delivery import rollouts
    from floodmark.lake.restore import experiments

    made = experiments.find(streams.lake, name)
    record, chosen = _rule(streams, made), made.arm(arm)
    if record is None or chosen.name != record.arm:
        got = "no rule" if record is None else f"a rule about arm '{record.arm}'"
        fix = f"Let it become the stream now: floodmark experiment promote {name} --arm {arm}"
        where = f"approval of arm '{arm}' of experiment '{name}'"
        raise LifecycleError(where, "a rule that asks for it", got, fix, code="LIFECYCLE-103")
    record = rollouts.approve(streams, record)
    say_rollout(console, record)
    console.document({"lake": opened.lake, **record.as_json()})


def _say_operations(console: Console, made: Experiment, arms: Sequence[Operations]) -> None:
    from floodmark.lifecycle.report import operational

    console.say(f"{made.name} of '{made.operator}': {made.state} since {describe(made.ended_at or made.began_at)}")
    if made.sample is not None:
        console.say(f"  over {made.sample}")
    rows = [(what, *values) for what, values in operational(arms)]
    up_to = ["no micro-batch yet" if one.progress is None else describe(one.progress) for one in arms]
    console.table(("", *(one.arm.name for one in arms)), [("up to", *up_to), *rows])


@experiment.command()
@click.argument("name")
@asked(ComparisonRequest)
@click.option(
    "--html",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Also write the report as an HTML page.",
)
@shared
@pass_invocation
def report(invocation: Invocation, *, name: str, request: ComparisonRequest, html: Path | None) -> None:
    """Compare the results of the arms of experiment NAME, in all windows that have closed in both arms; reads only windows that are new.

    The exit status is 0 if at least --match of the rows of every output are the same and no column is
    missing; otherwise, or if no window has closed yet, 1.
    """
    console, opened, streams = _opened(invocation)
    from floodmark.control.delivery import experiments
    from floodmark.observe.comparison.report import page

    with console.step(f"what has closed in {name}"):
        made = experiments.report(streams, name, request)
    first = made.experiment.arms[0].name
    for arm in made.others:
        console.say(f"{first} and {arm.name}: {made.verdict(arm)}")
    for arm in made.others:
        for line in arm.differs:
            console.say(f"  code of {arm.name}: {line}")
        for table, comparison in made.comparisons[arm.name].items():
            console.say(f"{table} of {first} and {arm.name}:")
            if isinstance(comparison, str):
                console.say(f"  {comparison}")
            else:
                say(console, comparison)
                if (noise := made.noise(table)) is not None and noise is not comparison:
                    console.say(f"  noise, between arms of the same code: {noise.counts.unlike:,} rows differ")
    _say_operations(console, made.experiment, made.operations)
    for command in made.next_steps():
        console.say(f"to go on: {command}")
    if html is not None:
        html.write_text(page(made), "utf-8")
        console.say(f"page: {html}")
    console.document({"lake": opened.lake, **made.as_json()})
    if not made.same:
        raise SystemExit(1)


@experiment.command()
@click.argument("name")
@shared
@pass_invocation
def pause(invocation: Invocation, name: str) -> None:
    """Stop the arms of experiment NAME until the verb resume starts the arms again where they stopped."""
    _set(invocation, name, "paused")


@experiment.command()
@click.argument("name")
@shared
@pass_invocation
def resume(invocation: Invocation, name: str) -> None:
    """Resume the paused arms of experiment NAME."""
    _set(invocation, name, "running")


@experiment.command()
@click.argument("name")
@shared
@pass_invocation
def stop(invocation: Invocation, name: str) -> None:
    """End experiment NAME. Its tables and comparisons stay until the verb clean removes them."""
    _set(invocation, name, "stopped")


def _set(invocation: Invocation, name: str, state: State) -> None:
    console, opened, streams = _opened(invocation)
    from floodmark.control.delivery import experiments

    made = experiments.set_state(streams, name, state)
    console.say(f"{name}: {made.state}")
    console.document({"lake": opened.lake, **asdict(made)})


@experiment.command()
@click.argument("name")
@shared
@pass_invocation
def clean(invocation: Invocation, name: str) -> None:
    """Remove the arms and comparisons of experiment NAME, which must have ended."""
    console, opened, streams = _opened(invocation)
    from floodmark.control.delivery import experiments

    made = experiments.clean(streams, name)
    console.say(f"{name}: removed, with {len(made.arms)} arms")
    console.document({"lake": opened.lake, "removed": name})


@experiment.command()
@click.argument("name")
@asked(PromotionRequest)
@click.option("--dry-run", is_flag=True, help="Show the steps, and change nothing.")
@shared
@pass_invocation
def promote(invocation: Invocation, *, name: str, request: PromotionRequest, dry_run: bool) -> None:
    """Replace the stream by an arm of experiment NAME: state, code, and tables in one commit each. A rollback undoes the promotion."""
    console, opened, streams = _opened(invocation)
    from floodmark.control.delivery import promotion

    if dry_run:
        would = promotion.promote_steps(streams, name, request)
        console.say(f"arm {request.arm} of {name} would be the stream")
        console.steps(would)
        console.document({"lake": opened.lake, "done": False, "steps": documents(would)})
        return
    with console.step(f"promoting {request.arm} of {name}"), recorded() as taken:
        made, action = promotion.promote(streams, name, request)
    console.say(f"{made.operator} -> {action.version}: {'it runs' if action.step == 'done' else action.step}")
    if action.step == "done":
        console.say(f"  go back: floodmark rollback {made.operator} --to {action.savepoint}")
    ended = {"done": action.step == "done", **action.outcome, "steps": documents(taken)}
    failure = action.failure(f"promotion of arm {request.arm} of experiment {name}")
    console.document({"lake": opened.lake, **asdict(made), **ended}, failure)


def _opened(invocation: Invocation) -> tuple[Console, LoadedWorkspace, Fleet]:
    console = Console(as_json=invocation.json)
    opened = opened_lake(invocation, console)
    return console, opened, fleet(opened, console.say)
