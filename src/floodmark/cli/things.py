"""Verbs about things: quarantine."""

# ruff: noqa: PLC0415 - what is slow to import is imported when it is needed

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import click

from floodmark.cli.console import Console
from floodmark.cli.invocation import Invocation, pass_invocation, shared
from floodmark.cli.spark import start
from floodmark.cli.workspace import opened_lake


@click.group()
@shared
def quarantine() -> None:
    """Rows that broke their contract: show them, replay them."""


@quarantine.command()
@click.argument("source")
@click.option(
    "--limit", type=click.IntRange(min=1), default=20, show_default=True, help="At most so many rows, newest first."
)
@shared
@pass_invocation
def show(invocation: Invocation, source: str, limit: int) -> None:
    """Show what waits in the quarantine of SOURCE, and why."""
    console = Console(as_json=invocation.json)
    opened = opened_lake(invocation, console)
    name = opened.workspace.source(source).name
    spark, lake = start(opened, console)
    from floodmark.engines.spark.quarantine import show as found

    waiting = found(spark, name, lake, limit=limit)
    rows = f"{waiting.rows:,} row{'s' * (waiting.rows != 1)}"
    console.say(f"{name}: {rows} in quarantine" if waiting.rows else f"{name}: nothing in quarantine")
    console.table(("rows", "reason"), [(count, reason) for reason, count in waiting.by_reason])
    for entry in waiting.newest:
        place = f"{entry.file}:{entry.position}" if entry.position else entry.file
        console.say(f"{place}: {entry.reason}")
        console.say(f"  {entry.raw}")
    if waiting.rows:
        console.say(f"once the contract takes them: floodmark quarantine replay {name}")
    console.document({"lake": opened.lake, **asdict(waiting)})


@quarantine.command()
@click.argument("source")
@shared
@pass_invocation
def replay(invocation: Invocation, source: str) -> None:
    """Check the quarantined rows of SOURCE against today's contract; land those that keep it."""
    console = Console(as_json=invocation.json)
    opened = opened_lake(invocation, console)
    chosen = opened.workspace.source(source)
    spark, lake = start(opened, console)
    from floodmark.engines.spark.quarantine import replay as replayed

    with console.step(f"replaying the quarantine of {chosen.name}"):
        done = replayed(spark, chosen, lake, workspace=Path(opened.workspace.settings.folder))
    console.say(
        f"{done.source}: {done.landed:,} landed ({done.late:,} of them late), {done.still_broken:,} still broken"
    )
    if done.not_replayable:
        console.say(
            f"  {done.not_replayable:,} are no rows of their own (a file, bytes that are no text); land them mended, as a new file"
        )
    console.document({"lake": opened.lake, **asdict(done)})
