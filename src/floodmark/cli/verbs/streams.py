"""The verbs rollback, fork, move and rescale, which restore a stream, copy it or change where and how it runs, by savepoints."""

# ruff: noqa: PLC0415 - modules that are slow to import are imported on first use

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from typing import TYPE_CHECKING, cast

import click

from floodmark.cli.shell.console import Console
from floodmark.cli.shell.invocation import Invocation, asked, pass_invocation, shared
from floodmark.cli.shell.loading import opened_lake
from floodmark.cli.shell.spark import computing, start
from floodmark.cli.shell.store import known
from floodmark.core.time import describe
from floodmark.lifecycle.requests import RollbackRequest
from floodmark.lifecycle.steps import Step, documents, recorded
from floodmark.spec.graph.steps import MOST_KEY_GROUPS

if TYPE_CHECKING:
    from floodmark.cli.shell.loading import LoadedWorkspace
    from floodmark.control.streams.fleet import Fleet
    from floodmark.lake.folder.paths import Lake
    from floodmark.lake.restore.rollback import Prepared
    from floodmark.lake.restore.savepoints import Savepoint
    from floodmark.spec.graph.operator import Operator
    from floodmark.spec.workspace import Engine


@click.command()
@click.argument("operator")
@click.option(
    "--to",
    "name",
    metavar="SAVEPOINT",
    help="Savepoint of the operator: floodmark savepoint list. Default: the newest.",
)
@asked(RollbackRequest)
@click.option("--dry-run", is_flag=True, help="Show the steps, and change nothing.")
@shared
@pass_invocation
def rollback(
    invocation: Invocation, *, operator: str, name: str | None, request: RollbackRequest, dry_run: bool
) -> None:
    """Roll the stream of OPERATOR back to a savepoint: state, positions and tables, with every stream that reads it.

    Supervised streams are stopped, and started again with the code of their savepoints. Other streams must be stopped already.
    """
    console = Console(as_json=invocation.json)
    opened = opened_lake(invocation, console)
    from floodmark.deliveries.outside import outside as left_outside
    from floodmark.lake.folder.paths import Lake
    from floodmark.lake.restore import cuts, savepoints
    from floodmark.lake.restore.rollback import prepare, roll_back
    from floodmark.lake.stream import timeline

    lake, chosen = Lake.of(opened.workspace.settings), opened.workspace.operator(operator)
    savepoint = savepoints.of(lake, chosen.name, name)
    streams, taken = known(opened, console.say), list[Step]()
    readers = () if request.leave_readers else cuts.readers(chosen.name, timeline.streams(lake))
    outside = left_outside(opened.workspace.deliveries, lake, {chosen.name, *readers})
    for sentence in outside:
        console.say(sentence)
    if dry_run:
        prepared = prepare(lake, savepoint, backfills=request.undo_backfills, alone=request.leave_readers, keep=False)
        taken = _steps(lake, streams, prepared)
    else:
        with console.step(f"rollback of {chosen.name}"), recorded() as taken:
            if streams is None:
                prepared = roll_back(lake, savepoint, backfills=request.undo_backfills, alone=request.leave_readers)
            else:
                from floodmark.control.streams.actions import roll_back as with_streams

                prepared, _ = with_streams(
                    streams, savepoint, backfills=request.undo_backfills, alone=request.leave_readers
                )
    _say(console, prepared, dry_run=dry_run)
    if dry_run:
        console.steps(taken)
    now = {one.name: one.version for one in opened.workspace.operators}
    for target in prepared.switch.targets:
        if target.operator in now and now[target.operator] != target.version:
            console.say(
                f"the files say {now[target.operator]} now, its stream is {target.version}: restore that, or see floodmark plan {target.operator}"
            )
    for reader in prepared.left:
        console.say(
            f"{reader} has read what was taken back: floodmark run {reader} --unbounded --from-scratch --until-caught-up"
        )
    for table in prepared.emptied:
        console.say(
            f"{table} {'would be' if dry_run else 'is'} empty, as the savepoint does not say by which columns a result is one; rows that come "
            f"fill it. To have all of it: floodmark run {chosen.name} --unbounded --from-scratch --until-caught-up"
        )
    about = {
        "lake": opened.lake,
        "done": not dry_run,
        "left": list(prepared.left),
        "emptied": list(prepared.emptied),
        "outside": outside,
        "targets": [asdict(target) for target in prepared.switch.targets],
        "steps": documents(taken),
    }
    console.document(about | {"undone": [asdict(one) for one in prepared.undone]})


@click.command()
@click.argument("operator")
@click.option(
    "--from", "name", metavar="SAVEPOINT", required=True, help="Savepoint of the operator: floodmark savepoint list."
)
@click.option("--into", metavar="LAKE", required=True, help="Folder or URI of a lake for the fork alone.")
@click.option("--fresh", is_flag=True, help="Start with empty outputs instead of those of the savepoint.")
@shared
@pass_invocation
def fork(invocation: Invocation, operator: str, name: str, into: str, *, fresh: bool) -> None:
    """Start a stream of OPERATOR from a savepoint in another lake. The fork reads the inputs of this lake and never writes into it."""
    console = Console(as_json=invocation.json)
    opened = opened_lake(invocation, console)
    from floodmark.lake.folder.paths import Lake
    from floodmark.lake.restore import savepoints
    from floodmark.lake.restore.fork import fork as forked

    lake, chosen = Lake.of(opened.workspace.settings), opened.workspace.operator(operator)
    savepoint = savepoints.of(lake, chosen.name, name)
    forked_lake = forked(lake, savepoint, into, fresh=fresh)
    reached = describe(savepoint.manifest.watermark)
    console.say(f"{chosen.name} forked from {name}, at {reached}, into {forked_lake.root}")
    if savepoint.manifest.version != chosen.version:
        console.say(
            f"the code is {chosen.version} now, the fork {savepoint.manifest.version}: see floodmark plan {chosen.name} --lake {into}"
        )
    console.say(f"run it: floodmark run {chosen.name} --unbounded --lake {into}")
    console.document(
        {"lake": opened.lake, "fork": forked_lake.root, "savepoint": name, "version": savepoint.manifest.version}
    )


@click.command()
@click.argument("operator")
@click.option("--into", metavar="LAKE", required=True, help="Folder or URI of the other lake.")
@click.option("--dry-run", is_flag=True, help="Show the steps, and change nothing.")
@shared
@pass_invocation
def move(invocation: Invocation, operator: str, into: str, *, dry_run: bool) -> None:
    """Move the stopped stream of OPERATOR to another lake. The stream keeps reading the same inputs, and no longer runs here."""
    console = Console(as_json=invocation.json)
    opened = opened_lake(invocation, console)
    from floodmark.lake.folder.paths import Lake
    from floodmark.lake.restore.fork import move as moved
    from floodmark.lake.restore.fork import move_steps

    name, lake = opened.workspace.operator(operator).name, Lake.of(opened.workspace.settings)
    if dry_run:
        _would(console, opened, f"{name} would move to {into}", move_steps(lake, name, into))
        return
    with recorded() as taken:
        new_lake, going = moved(lake, name, into)
    console.say(f"{name} has moved to {new_lake.root}, with its tables")
    console.say(f"run it: floodmark run {name} --unbounded --lake {into}")
    console.say(f"  go back: floodmark rollback {name} --to {going.savepoint}")
    steps = documents(taken)
    console.document(
        {"lake": opened.lake, "done": True, "moved": new_lake.root, "savepoint": going.savepoint, "steps": steps}
    )


@click.command()
@click.argument("operator")
@click.option("--partitions", type=click.IntRange(min=1), help="New number of state partitions (Spark).")
@click.option(
    "--key-groups",
    type=click.IntRange(1, MOST_KEY_GROUPS),
    help="New number of key groups: at most so many cores work on the stream.",
)
@click.option("--dry-run", is_flag=True, help="Show the steps, and change nothing.")
@shared
@pass_invocation
def rescale(
    invocation: Invocation, operator: str, partitions: int | None, key_groups: int | None, *, dry_run: bool
) -> None:
    """Divide the state of the stopped stream of OPERATOR among another number of partitions or key groups. No result changes."""
    if (partitions is None) == (key_groups is None):
        message = "Give one of --partitions N and --key-groups N."
        raise click.UsageError(message)
    console = Console(as_json=invocation.json)
    opened = opened_lake(invocation, console)
    chosen = opened.workspace.operator(operator)
    if key_groups is not None:
        about, made, taken = _regrouped(opened, console, chosen, key_groups, dry_run=dry_run)
    else:
        assert partitions is not None
        about, made, taken = _repartitioned(opened, console, chosen, partitions, dry_run=dry_run)
    number = ", ".join(f"{count} {name}" for name, count in about.items())
    if dry_run:
        _would(console, opened, f"{chosen.name} would have {number}", taken)
        return
    if made is None:
        console.say(f"{chosen.name} has {number} already")
    else:
        console.say(f"{chosen.name} has {number}")
        console.say(f"  go back: floodmark rollback {chosen.name} --to {made.manifest.id}")
    effects = {"savepoint": None if made is None else made.manifest.id, "steps": documents(taken)}
    fields = {name.removeprefix("state ").replace(" ", "_"): count for name, count in about.items()}
    console.document({"lake": opened.lake, "done": True, "operator": chosen.name} | fields | effects)


_Rescaled = tuple[dict[str, int], "Savepoint | None", Iterable[Step]]
"""What there are so many of, the savepoint that was made first, and the steps."""


def _repartitioned(
    opened: LoadedWorkspace, console: Console, chosen: Operator, partitions: int, *, dry_run: bool
) -> _Rescaled:
    from floodmark.engines.rescaling import rebundle, rebundle_steps
    from floodmark.engines.spark.state.rescale import rescale as rescaled
    from floodmark.engines.spark.state.rescale import rescale_steps
    from floodmark.lake.folder.paths import Lake

    about, lake = {"state partitions": partitions}, Lake.of(opened.workspace.settings)
    steps = rescale_steps(lake, chosen.name, partitions)  # refuses before Spark starts
    after = rebundle_steps(chosen, lake, partitions)
    if dry_run:
        return about, None, (*steps, *after)
    spark, lake = start(opened, console)
    with console.step(f"{chosen.name} to {partitions} state partitions"), recorded() as taken:
        made = rescaled(spark, lake, chosen.name, partitions)
        if after:
            divided = rebundle(chosen, lake, spark)
            made = made or divided
    return about, made, taken


def _regrouped(opened: LoadedWorkspace, console: Console, chosen: Operator, groups: int, *, dry_run: bool) -> _Rescaled:
    from floodmark.engines.rescaling import regroup_steps
    from floodmark.lake.folder.paths import Lake
    from floodmark.lake.stream.checkpoint import engine_of
    from floodmark.lake.stream.timeline import CHECKPOINT, Timeline

    about, lake = {"key groups": groups}, Lake.of(opened.workspace.settings)
    steps = regroup_steps(chosen, lake, groups)
    if dry_run:
        return about, None, steps
    engine = cast("Engine", engine_of(Timeline.current(lake, chosen.name).folder(CHECKPOINT)))
    with console.step(f"{chosen.name} to {groups} key groups"), recorded() as taken:
        made = computing(opened, console, engine).regroup(chosen, lake, groups)
    return about, made, taken


def _would(console: Console, opened: LoadedWorkspace, sentence: str, steps: Iterable[Step]) -> None:
    """Print a dry run: a sentence, and the steps."""
    steps = list(steps)
    console.say(sentence if steps else "nothing to do")
    console.steps(steps)
    console.document({"lake": opened.lake, "done": False, "steps": documents(steps)})


def _steps(lake: Lake, streams: Fleet | None, prepared: Prepared) -> list[Step]:
    """The steps of a rollback, in order."""
    if streams is None:
        from floodmark.lake.restore import switch

        return [*switch.steps(lake, prepared.switch)]
    from floodmark.control.streams.actions import rollback_steps

    return rollback_steps(streams, prepared)


def _say(console: Console, prepared: Prepared, *, dry_run: bool) -> None:
    will = "would go" if dry_run else "is"
    for target in prepared.switch.targets:
        console.say(
            f"{target.operator} {will} back at {describe(target.watermark)}, on timeline {target.timeline}: {target.savepoint}"
        )
    for undone in prepared.undone:
        backfills = f" and bounded runs of {', '.join(undone.backfills)}" if undone.backfills else ""
        verb = "would lose" if dry_run else "has lost"
        rebuilt = f", and the rebuild{'s' if undone.rebuilds > 1 else ''} of it since" if undone.rebuilds else ""
        console.say(
            f"  {undone.table} {verb} {undone.rows:,} rows of {undone.commits} micro-batches{backfills}{rebuilt}"
        )
    for undone in prepared.undone:
        for interval in undone.backfills:
            console.say(f"run again what was undone: {undone.table}, {interval}")
