"""The verb maintain: compacts the tables of a lake, and removes files, packages and records whose retention has ended."""

# ruff: noqa: PLC0415 - modules that are slow to import are imported on first use

from __future__ import annotations

import getpass
from contextlib import suppress
from typing import TYPE_CHECKING

import click

from floodmark.cli.shell.console import Console
from floodmark.cli.shell.invocation import Invocation, pass_invocation, shared
from floodmark.cli.shell.loading import opened_lake
from floodmark.cli.shell.store import fleet
from floodmark.core.errors import LifecycleError

if TYPE_CHECKING:
    from floodmark.control.processes.upkeep import Done
    from floodmark.control.streams.fleet import Fleet
    from floodmark.spec.workspace import Settings


@click.command()
@click.option(
    "--hours",
    default=168,
    show_default=True,
    type=click.IntRange(min=1),
    help="Retention of replaced files, and of entries of the tables' logs (at most 24 hours): longer than any query or micro-batch takes.",
)
@click.option(
    "--days",
    type=click.FloatRange(min=0),
    help="Retention of unused packages, ended timelines, logs of drivers and records. Default: kept_days of the settings.",
)
@click.option(
    "--forget",
    metavar="LAKE",
    help="A lake that no longer exists: files that only its streams and savepoints needed may be removed.",
)
@click.option("--dry-run", is_flag=True, help="Show what would be removed, and change nothing.")
@shared
@pass_invocation
def maintain(invocation: Invocation, *, hours: int, days: float | None, forget: str | None, dry_run: bool) -> None:
    """Compact the small files of logs and output tables, and remove files that neither a savepoint nor a stream can need.

    A supervisor does the same every `upkeep_minutes` of the settings.
    """
    if forget is not None and dry_run:
        msg = "--forget changes what is known of lakes; leave out --dry-run, or --forget"
        raise click.UsageError(msg)
    console = Console(as_json=invocation.json)
    opened = opened_lake(invocation, console)
    from floodmark.control.processes.package import has_store
    from floodmark.control.processes.upkeep import keep_up, note
    from floodmark.lake.folder.paths import Lake

    settings = opened.workspace.settings
    streams = fleet(opened, console.say) if has_store(settings, opened.root) else None
    if forget is not None:
        _forget(settings, streams, forget)
    done = keep_up(
        [Lake.of(settings)],
        hours=hours,
        days=settings.kept_days if days is None else days,
        dry_run=dry_run,
        store=None if streams is None else streams.store,
        home=None if streams is None else streams.home,
    )
    if streams is not None and not dry_run:
        note(streams.store, getpass.getuser(), [opened.lake], [done])
    _say(console, done, dry_run=dry_run)
    console.document({"lake": opened.lake, "done": not dry_run, **done.as_json()})


def _forget(settings: Settings, streams: Fleet | None, lake: str) -> None:
    from floodmark.control.state import references
    from floodmark.lake.folder.paths import Lake, absolute
    from floodmark.lake.restore import readers

    with suppress(OSError, ValueError):  # a place that does not answer
        if Lake(absolute(lake)).there:
            fix = f"Nothing was forgotten. Its streams and savepoints need files of other lakes as long as it is there. Remove it first: rm -r '{lake}'"
            raise LifecycleError(f"lake {lake}", "one that is gone", "one that is there", fix, code="LIFECYCLE-188")
    known = readers.forget(Lake.of(settings), lake)
    if streams is not None:
        known |= references.forget(streams.home, streams.store, lake)
    if not known:
        fix = "Name it as the message did that asked for it, with its whole path."
        raise LifecycleError(f"lake {lake}", "one whose streams ran here, or a fork", "none", fix, code="LIFECYCLE-062")


def _say(console: Console, done: Done, *, dry_run: bool) -> None:
    rows = [
        (
            one.table,
            str(one.before),
            str(one.after),
            str(one.removed),
            str(one.entries),
            f"{one.size:,}",
            ", ".join(map(str, one.versions)),
            str(one.hours),
        )
        for one in done.tables
    ]
    gone = "would go" if dry_run else "gone"
    console.table(("table", "files", "now", gone, "of its log", "bytes", "kept for savepoints", "hours"), rows)
    for table in done.tables:
        if table.mended:
            console.say(f"{table.table}: Delta's own clean-up would have removed old commits, and does no more")
    for why in dict.fromkeys(one.why for one in done.tables if one.why):
        console.say(f"nothing removed of {', '.join(one.table for one in done.tables if one.why == why)}: {why}")
    if not done.tables:
        console.say("no tables yet")
    if done.removed:
        sizes = [(one.kind, one.name, f"{one.files:,}", f"{one.size:,}") for one in done.removed]
        console.table((gone, "name", "number", "bytes"), sizes)
    for why in done.stay:
        console.say(f"stays: {why}")
