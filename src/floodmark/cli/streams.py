"""The verbs rollback, fork, move and rescale: what can be made of a stream's savepoints."""

# ruff: noqa: PLC0415 - what is slow to import is imported when it is needed

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from floodmark.cli.console import Console
from floodmark.cli.invocation import Invocation, pass_invocation, shared
from floodmark.cli.spark import start
from floodmark.cli.store import known
from floodmark.cli.workspace import opened_lake
from floodmark.core.errors import LifecycleError
from floodmark.core.time import describe

if TYPE_CHECKING:
    from floodmark.lake.paths import Lake
    from floodmark.lake.rollback import Prepared
    from floodmark.lake.savepoints import Savepoint
    from floodmark.spec.operator import Operator


@click.command()
@click.argument("operator")
@click.option("--to", "name", metavar="SAVEPOINT", required=True, help="Of the operator: floodmark savepoint list.")
@click.option("--undo-backfills", is_flag=True, help="Also undo bounded runs that came after it.")
@click.option(
    "--leave-readers", is_flag=True, help="Leave streams that read it; they refuse to go on until computed anew."
)
@click.option("--dry-run", is_flag=True, help="Say what would be done, and do nothing.")
@shared
@pass_invocation
def rollback(
    invocation: Invocation, *, operator: str, name: str, undo_backfills: bool, leave_readers: bool, dry_run: bool
) -> None:
    """Take the stream of OPERATOR back to a savepoint: state, positions and tables, with every stream that reads it.

    Those that a supervisor runs are stopped for it, and run again in the code of their savepoints; others have to be stopped.
    """
    console = Console(as_json=invocation.json)
    opened = opened_lake(invocation, console)
    from floodmark.lake.paths import Lake
    from floodmark.lake.rollback import prepare, roll_back

    lake, chosen = Lake.of(opened.workspace.settings), opened.workspace.operator(operator)
    savepoint = _of(chosen, lake, name)
    if dry_run:
        found = prepare(lake, savepoint, backfills=undo_backfills, alone=leave_readers, keep=False)
    else:
        streams = known(opened, console.say)
        with console.step(f"rollback of {chosen.name}"):
            if streams is None:
                found = roll_back(lake, savepoint, backfills=undo_backfills, alone=leave_readers)
            else:
                from floodmark.control.actions import roll_back as with_streams

                found, _ = with_streams(streams, savepoint, backfills=undo_backfills, alone=leave_readers)
    _say(console, found, dry_run=dry_run)
    now = {one.name: one.version for one in opened.workspace.operators}
    for step in found.switch.steps:
        if step.operator in now and now[step.operator] != step.version:
            console.say(
                f"the files say {now[step.operator]} now, its stream is {step.version}: restore that, or see floodmark plan {step.operator}"
            )
    for reader in found.left:
        console.say(
            f"{reader} has read what was taken back: floodmark run {reader} --unbounded --from-scratch --until-caught-up"
        )
    document = {
        "lake": opened.lake,
        "done": not dry_run,
        "left": list(found.left),
        "steps": [asdict(step) for step in found.switch.steps],
    }
    console.document(document | {"undone": [asdict(one) for one in found.undone]})


def _of(operator: Operator, lake: Lake, name: str) -> Savepoint:
    """A savepoint of an operator, by name."""
    from floodmark.lake import savepoints

    found = savepoints.find(lake, name)
    if found.manifest.operator != operator.name:
        fix = f"See those of '{operator.name}': floodmark savepoint list {operator.name}"
        got = f"one of '{found.manifest.operator}'"
        raise LifecycleError(f"savepoint '{name}'", f"one of '{operator.name}'", got, fix, code="LIFECYCLE-031")
    return found


@click.command()
@click.argument("operator")
@click.option("--from", "name", metavar="SAVEPOINT", required=True, help="Of the operator: floodmark savepoint list.")
@click.option("--into", metavar="LAKE", required=True, help="Folder or URI of a lake of its own.")
@click.option("--fresh", is_flag=True, help="Begin with empty outputs instead of those of the savepoint.")
@shared
@pass_invocation
def fork(invocation: Invocation, operator: str, name: str, into: str, *, fresh: bool) -> None:
    """Begin a stream of OPERATOR where a savepoint stands, in a lake of its own, which reads what this one reads and never writes it."""
    console = Console(as_json=invocation.json)
    opened = opened_lake(invocation, console)
    from floodmark.lake.fork import fork as forked
    from floodmark.lake.paths import Lake

    lake, chosen = Lake.of(opened.workspace.settings), opened.workspace.operator(operator)
    savepoint = _of(chosen, lake, name)
    found = forked(lake, savepoint, into, fresh=fresh)
    reached = describe(savepoint.manifest.watermark)
    console.say(f"{chosen.name} forked from {name}, at {reached}, into {found.root}")
    if savepoint.manifest.version != chosen.version:
        console.say(
            f"the code is {chosen.version} now, the fork {savepoint.manifest.version}: see floodmark plan {chosen.name} --lake {into}"
        )
    console.say(f"run it: floodmark run {chosen.name} --unbounded --lake {into}")
    console.document(
        {"lake": opened.lake, "fork": found.root, "savepoint": name, "version": savepoint.manifest.version}
    )


@click.command()
@click.argument("operator")
@click.option("--into", metavar="LAKE", required=True, help="Folder or URI of a lake of its own.")
@shared
@pass_invocation
def move(invocation: Invocation, operator: str, into: str) -> None:
    """Let the stopped stream of OPERATOR go on in another lake, and not here any more; it reads what it has read."""
    console = Console(as_json=invocation.json)
    opened = opened_lake(invocation, console)
    from floodmark.lake.fork import move as moved
    from floodmark.lake.paths import Lake

    name = opened.workspace.operator(operator).name
    found, going = moved(Lake.of(opened.workspace.settings), name, into)
    console.say(f"{name} has moved to {found.root}, with its tables")
    console.say(f"run it: floodmark run {name} --unbounded --lake {into}")
    console.say(f"  go back: floodmark rollback {name} --to {going.savepoint}")
    console.document({"lake": opened.lake, "moved": found.root, "savepoint": going.savepoint})


@click.command()
@click.argument("operator")
@click.option("--partitions", type=click.IntRange(min=1), required=True, help="State partitions from now on.")
@shared
@pass_invocation
def rescale(invocation: Invocation, operator: str, partitions: int) -> None:
    """Divide the state of the stopped stream of OPERATOR among another number of partitions. No result changes."""
    console = Console(as_json=invocation.json)
    opened = opened_lake(invocation, console)
    chosen = opened.workspace.operator(operator)
    spark, lake = start(opened, console)
    from floodmark.engines.spark.state.rescale import rescale as rescaled

    with console.step(f"{chosen.name} to {partitions} state partitions"):
        made = rescaled(spark, lake, chosen.name, partitions)
    if made is None:
        console.say(f"{chosen.name} has {partitions} state partitions already")
    else:
        console.say(f"{chosen.name} has {partitions} state partitions")
        console.say(f"  go back: floodmark rollback {chosen.name} --to {made.manifest.id}")
    document = {"lake": opened.lake, "operator": chosen.name, "partitions": partitions}
    console.document(document | {"savepoint": None if made is None else made.manifest.id})


def _say(console: Console, found: Prepared, *, dry_run: bool) -> None:
    will = "would go" if dry_run else "is"
    for step in found.switch.steps:
        console.say(
            f"{step.operator} {will} back at {describe(step.watermark)}, on timeline {step.timeline}: {step.savepoint}"
        )
    for one in found.undone:
        backfills = f" and bounded runs of {', '.join(one.backfills)}" if one.backfills else ""
        verb = "would lose" if dry_run else "has lost"
        rebuilt = f", and the rebuild{'s' if one.rebuilds > 1 else ''} of it since" if one.rebuilds else ""
        console.say(f"  {one.table} {verb} {one.rows:,} rows of {one.commits} micro-batches{backfills}{rebuilt}")
    for one in found.undone:
        for interval in one.backfills:
            console.say(f"run again what was undone: {one.table}, {interval}")
