"""The verb quarantine: shows and replays quarantined rows."""

# ruff: noqa: PLC0415 - modules that are slow to import are imported on first use

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import click

from floodmark.cli.shell.console import Console
from floodmark.cli.shell.invocation import Invocation, pass_invocation, shared
from floodmark.cli.shell.loading import LoadedWorkspace, opened_lake
from floodmark.cli.shell.spark import computing
from floodmark.core.errors import DefinitionError
from floodmark.core.time import describe
from floodmark.spec.workspace import Engine


@click.group()
@shared
def quarantine() -> None:
    """Show or replay quarantined rows: rows that broke their contract, or for which a function failed."""


@quarantine.command()
@click.argument("name")
@click.option(
    "--limit", type=click.IntRange(min=1), default=20, show_default=True, help="Most rows to show, newest first."
)
@shared
@pass_invocation
def show(invocation: Invocation, name: str, limit: int) -> None:
    """Show the quarantined rows of the source or operator NAME, with reasons."""
    console = Console(as_json=invocation.json)
    opened = opened_lake(invocation, console)
    if any(name == operator.name for operator in opened.workspace.operators):
        _show_operator(opened, console, name, limit)
        return
    name = opened.workspace.source(name).name
    from floodmark.engines.landing.quarantine import show as show_quarantine
    from floodmark.lake.folder.paths import Lake

    waiting = show_quarantine(name, Lake.of(opened.workspace.settings), limit=limit)
    rows = f"{waiting.rows:,} row{'s' * (waiting.rows != 1)}"
    console.say(f"{name}: {rows} in quarantine" if waiting.rows else f"{name}: nothing in quarantine")
    console.table(("rows", "reason"), [(count, reason) for reason, count in waiting.by_reason])
    for entry in waiting.newest:
        origin = f"{entry.file}:{entry.position}" if entry.position else entry.file
        console.say(f"{origin}: {entry.reason}")
        console.say(f"  {entry.raw}")
    if waiting.rows:
        console.say(f"once the contract takes them: floodmark quarantine replay {name}")
    console.document({"lake": opened.lake, **asdict(waiting)})


def _show_operator(opened: LoadedWorkspace, console: Console, name: str, limit: int) -> None:
    from floodmark.lake.folder.paths import Lake
    from floodmark.observe.quarantine import set_aside

    quarantined = set_aside(opened.workspace.operator(name), Lake.of(opened.workspace.settings), limit=limit)
    rows = f"{quarantined.rows:,} row{'s' * (quarantined.rows != 1)} or panes"
    console.say(f"{name}: {rows} in quarantine" if quarantined.rows else f"{name}: nothing in quarantine")
    console.table(("rows", "step", "reason"), [(count, step, reason) for step, reason, count in quarantined.by_reason])
    for entry in quarantined.newest:
        key = f", key {entry['key']}" if entry["key"] else ""
        console.say(f"{describe(entry['event_time'])} {entry['step']}{key}: {entry['reason']}")
        console.say(f"  {entry['given']}")
    if quarantined.rows:
        console.say(f"once the function is mended: floodmark run {name} --from ... --to ...")
    console.document({"lake": opened.lake, **asdict(quarantined)})


@quarantine.command()
@click.argument("source")
@click.option(
    "--engine",
    type=click.Choice(["spark", "embedded"]),
    help="Engine that lands the rows. Default: the engine of the settings.",
)
@shared
@pass_invocation
def replay(invocation: Invocation, source: str, engine: Engine | None) -> None:
    """Check the quarantined rows of SOURCE against the current contract, and land the rows that keep the contract."""
    console = Console(as_json=invocation.json)
    opened = opened_lake(invocation, console)
    if any(source == operator.name for operator in opened.workspace.operators):
        fix = f"Mend the function, then compute that time again: floodmark run {source} --from ... --to ..."
        got = f"the operator '{source}', whose functions see each row in its place"
        raise DefinitionError("quarantine replay", "a source", got, fix, code="DEFINITION-074")
    chosen = opened.workspace.source(source)
    from floodmark.engines.landing.quarantine import check_replay
    from floodmark.lake.folder.paths import Lake

    lake, computed = Lake.of(opened.workspace.settings), computing(opened, console, engine)
    check_replay(chosen, lake)
    with console.step(f"replaying the quarantine of {chosen.name}"):
        done = computed.replay(chosen, lake, workspace=Path(opened.workspace.settings.folder))
    console.say(
        f"{done.source}: {done.landed:,} landed ({done.late:,} of them late), {done.still_broken:,} still broken"
    )
    if done.not_replayable:
        console.say(
            f"  {done.not_replayable:,} are no rows of their own (a file, bytes that are no text); land them mended, as a new file"
        )
    console.document({"lake": opened.lake, **asdict(done)})
