"""The verb maintain: compact and clean the output tables of a lake."""

# ruff: noqa: PLC0415 - what is slow to import is imported when it is needed

from __future__ import annotations

from dataclasses import asdict

import click

from floodmark.cli.console import Console
from floodmark.cli.invocation import Invocation, pass_invocation, shared
from floodmark.cli.workspace import opened_lake


@click.command()
@click.option(
    "--hours",
    default=168,
    show_default=True,
    type=click.IntRange(min=1),
    help="For which files that were replaced are kept: longer than any query or micro-batch takes.",
)
@click.option("--dry-run", is_flag=True, help="Say what would be removed, and do nothing.")
@shared
@pass_invocation
def maintain(invocation: Invocation, *, hours: int, dry_run: bool) -> None:
    """Make large files of small ones in logs and output tables, and remove from outputs what neither a savepoint nor a stream can need."""
    console = Console(as_json=invocation.json)
    opened = opened_lake(invocation, console)
    from floodmark.lake.paths import Lake
    from floodmark.lake.upkeep import maintain as maintained

    found = maintained(Lake.of(opened.workspace.settings), hours=hours, dry_run=dry_run)
    rows = [
        (
            one.table,
            str(one.before),
            str(one.after),
            str(one.removed),
            ", ".join(map(str, one.versions)),
            str(one.hours),
        )
        for one in found
    ]
    console.table(("table", "files", "now", "would go" if dry_run else "gone", "kept for savepoints", "hours"), rows)
    for one in found:
        if one.mended:
            console.say(f"{one.table}: Delta's own clean-up would have removed old commits, and does no more")
    if not found:
        console.say("no tables yet")
    console.document({"lake": opened.lake, "done": not dry_run, "tables": [asdict(one) for one in found]})
