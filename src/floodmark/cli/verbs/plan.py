"""The verb plan: compares the current code with the code of a stream, and states what the changes mean for the stream's state and tables."""

# ruff: noqa: PLC0415 - modules that are slow to import are imported on first use

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

import click

from floodmark.cli.shell.console import Console
from floodmark.cli.shell.invocation import ENVIRONMENTS, Invocation, asked, pass_invocation, shared
from floodmark.cli.shell.loading import opened_lake
from floodmark.cli.verbs.reading.diff import say
from floodmark.core.errors import CapabilityError, closest
from floodmark.core.time import span
from floodmark.lifecycle.plan import Plan
from floodmark.lifecycle.replay import Replay
from floodmark.lifecycle.requests import ReplayRequest

if TYPE_CHECKING:
    from floodmark.engines.upgrading import Upgraded
    from floodmark.lake.folder.paths import Lake
    from floodmark.spec.graph.operator import Operator
    from floodmark.spec.workspace import Settings


@click.command()
@click.argument("operators", nargs=-1)
@click.option(
    "--against", metavar="LAKE", help="Compare with the streams there: the lake of an environment (prod), or a folder."
)
@click.option(
    "--replay",
    "stretch",
    metavar="SPAN",
    help="Resume changed code from a savepoint of --against of this long ago ('1 day'), on the embedded engine, and compare the results.",
)
@asked(ReplayRequest)
@click.option("--markdown", is_flag=True, help="Print the result of --replay as a comment for a pull request.")
@shared
@pass_invocation
def plan(
    invocation: Invocation,
    *,
    operators: tuple[str, ...],
    against: str | None,
    stretch: str | None,
    request: ReplayRequest,
    markdown: bool,
) -> None:
    """Compare OPERATORS, by default all, with the code of their streams. Changes nothing.

    With --replay, the exit status is 1 if a change cannot be replayed, or if less than --match of the rows of an
    output are the same.
    """
    if (stretch is None or against is None) and (markdown or stretch is not None):
        msg = "--markdown needs --replay, and --replay needs --against: floodmark plan --against prod --replay '1 day' --markdown"
        raise click.UsageError(msg)
    if against is not None:
        invocation = _there(invocation, against)
    if stretch is not None:
        _replayed(invocation, operators, str(against), span(stretch, "--replay"), request, markdown=markdown)
        return
    console = Console(as_json=invocation.json)
    opened = opened_lake(invocation, console)
    named = {opened.workspace.operator(name).name for name in operators}
    from floodmark.engines.upgrading import Upgraded, with_readers
    from floodmark.lake.folder.paths import Lake
    from floodmark.lake.logs.log import check_required
    from floodmark.lake.stream.timeline import Timeline
    from floodmark.lifecycle.plan import plan as planned
    from floodmark.observe.skew import newest_skew

    lake, plans = Lake.of(opened.workspace.settings), []
    for operator in opened.workspace.operators:
        if not named or operator.name in named:
            check_required(operator, lake)
            operator_plan = planned(Timeline.current(lake, operator.name).deployed, operator)
            refusal = _refusal(opened.workspace.settings, operator, lake)
            _say(console, operator_plan, refusal)
            would = with_readers(Upgraded(plan=operator_plan), operator, lake) if operator_plan.changes else None
            if would is not None and operator_plan.verdict == "rebuild":
                _say_readers(console, would)
            skew = newest_skew(operator, lake) if operator_plan.deployed is not None else None
            if skew is not None and skew.matters:
                console.say(f"  {skew}")
            about = {"refusal": str(refusal) if refusal else None, "skew": None if skew is None else skew._asdict()}
            about |= {} if would is None else would.reading
            plans.append(document(operator_plan) | about)
    console.document({"lake": opened.lake, "plans": plans})


def _there(invocation: Invocation, against: str) -> Invocation:
    """The invocation for the environment, or the lake, that ``against`` names."""
    if against in ENVIRONMENTS:
        return replace(invocation, environment=against, lake=None)
    from floodmark.cli.verbs.reading.diff import lake_of

    return replace(invocation, lake=lake_of(against).root)


def _replayed(
    invocation: Invocation,
    operators: tuple[str, ...],
    against: str,
    stretch: int,
    request: ReplayRequest,
    *,
    markdown: bool,
) -> None:
    tolerances, match, forward_only = request.bounds, request.match, request.forward_only
    console = Console(as_json=invocation.json or markdown)
    opened = opened_lake(invocation, console)
    named = {opened.workspace.operator(name).name for name in operators}
    from floodmark.control.processes.engine import computing
    from floodmark.control.processes.replay import replay
    from floodmark.lake.folder.paths import Lake
    from floodmark.lifecycle.replay import markdown as as_markdown
    from floodmark.observe.comparison.compare import How

    chosen = [one for one in opened.workspace.operators if not named or one.name in named]
    columns = {name for operator in chosen for output in operator.outputs for name in output.schema.names}
    if unknown := [name for name in tolerances if name not in columns]:
        msg = f"--tolerance: no output has a column {unknown[0]}. {closest(unknown[0], columns)}"
        raise click.UsageError(msg)
    lake, replays = Lake.of(opened.workspace.settings), []
    engine = computing(opened.workspace.settings, engine="embedded", step=console.step)
    for operator in chosen:
        with console.step(f"replay of {operator.version}"):
            done = replay(operator, lake, engine, How(tolerances=tolerances), span=stretch, forward_only=forward_only)
        replays.append(done)
        _say_replay(console, done)
    if markdown:
        click.echo(as_markdown(against, replays, match), nl=False)
    else:
        outcomes = [asdict(one) | {"passes": one.passes(match), "outcome": one.outcome()} for one in replays]
        console.document({"lake": opened.lake, "against": against, "replays": outcomes})
    if not all(one.passes(match) for one in replays):
        raise SystemExit(1)


def _say_replay(console: Console, done: Replay) -> None:
    _say(console, done.plan, None)
    console.say(f"{done.plan.defined}: {done.outcome()}")
    for table, comparison in done.found.items():
        if isinstance(comparison, str):
            console.say(f"  {table}: {comparison}")
        else:
            say(console, comparison)


def _refusal(settings: Settings, operator: Operator, lake: Lake) -> CapabilityError | None:
    """Why the workspace's engine does not run the stream of an operator; None if it does."""
    from floodmark.control.processes.engine import computing

    try:
        computing(settings).check_deployed(operator, lake)
    except CapabilityError as error:
        return error
    return None


def _say(console: Console, plan: Plan, refusal: CapabilityError | None) -> None:
    if plan.deployed is None:
        if refusal is not None:
            console.say(f"{plan.defined}: no stream, and the engine of this workspace runs none: {refusal}")
            return
        console.say(f"{plan.defined}: no stream; floodmark run {plan.operator} --unbounded starts one")
        return
    if not plan.changes:
        console.say(f"{plan.defined}: no-op, it means what its stream was started with")
        _say_key_groups(console, plan)
        _say_packages(console, plan)
        return
    console.say(f"{plan.deployed} -> {plan.defined}: {plan.verdict}")
    for change in plan.changes:
        words = {(False, True): "new:", (True, False): "gone:"}.get((bool(change.before), bool(change.after)), "")
        transition = " -> ".join(text for text in (change.before, change.after) if text)
        console.say(f"  {change.where}: {words} {transition}".replace(":  ", ": "))
        console.say(f"    {change.verdict}: {change.otherwise}")
    for name, what in plan.code:
        console.say(f"  code: {name}: {what}")
    _say_key_groups(console, plan)
    _say_packages(console, plan)
    if refusal is not None:
        console.say(f"  the engine of this workspace does not run {plan.defined}: {refusal}")
        console.say(f"  leave it as it was: restore the code of {plan.deployed}")
        return
    for command, words in _ways(plan):
        console.say(f"  {words}: {command}")


def _say_readers(console: Console, would: Upgraded) -> None:
    if would.followers:
        console.say(f"  streams that read it and follow a rebuild as a difference: {', '.join(would.followers)}")
    if would.readers:
        because = f", because {would.because}" if would.because else ""
        console.say(
            f"  streams that read it and have to be computed anew behind a rebuild{because}: {', '.join(would.readers)}"
        )


def _say_key_groups(console: Console, plan: Plan) -> None:
    if plan.key_groups not in {None, plan.default_key_groups}:
        new = f"a new stream has {plan.default_key_groups}"
        console.say(f"  key groups: {plan.key_groups}, as its stream began with; {new}")


def _say_packages(console: Console, plan: Plan) -> None:
    for name, before, after in plan.packages:
        console.say(
            f"  package {name} {before} -> {after}: the same version, unless you count up revision= of the operator"
        )


def _ways(plan: Plan) -> Iterator[tuple[str, str]]:
    if plan.resumes:
        yield (
            f"floodmark run {plan.operator} --unbounded",
            "its next start resumes under the new code, without an upgrade",
        )
    if plan.verdict in {"stateless change", "compatible state"}:
        yield f"floodmark apply {plan.operator}", "resume from its state with the new code"
    if plan.verdict == "not comparable":
        yield f"floodmark apply {plan.operator} --forward-only", "if its code has not changed, resume from its state"
    if plan.verdict == "forward-only":
        yield f"floodmark apply {plan.operator} --forward-only", "resume from its state all the same"
    if plan.verdict == "rescale":
        yield (
            f"floodmark rescale {plan.operator} --key-groups {plan.default_key_groups}",
            "divide the state of the stopped stream anew",
        )
    yield (
        f"floodmark apply {plan.operator} --rebuild",
        "compute all of it with the new code beside the stream, and switch",
    )
    yield f"restore the code of {plan.deployed}", "or leave it as it was"


def document(plan: Plan) -> dict[str, Any]:
    """A plan as a JSON document."""
    return asdict(plan) | {"verdict": plan.verdict}
