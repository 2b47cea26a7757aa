"""The verbs maintain and forget: remove from a lake what nothing needs, and the rows of a key with all that was made of them."""

# ruff: noqa: PLC0415 - modules that are slow to import are imported on first use

from __future__ import annotations

import getpass
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import click

from floodmark.cli.shell.console import Console
from floodmark.cli.shell.invocation import Invocation, pass_invocation, shared
from floodmark.cli.shell.loading import LoadedWorkspace, opened_lake
from floodmark.cli.shell.spark import computing
from floodmark.cli.shell.store import fleet, known
from floodmark.core.errors import LifecycleError
from floodmark.lake.forgetting.keys import ForgottenKey
from floodmark.lifecycle.steps import documents

if TYPE_CHECKING:
    from floodmark.control.processes.upkeep import Done
    from floodmark.control.streams.fleet import Fleet
    from floodmark.engines.forgetting import Forgotten
    from floodmark.lake.forgetting.plan import Forgetting
    from floodmark.spec.workspace import Settings

_SHOWN = 10
"""Files of a list that are shown."""


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
    is_known = readers.forget(Lake.of(settings), lake)
    if streams is not None:
        is_known |= references.forget(streams.home, streams.store, lake)
    if not is_known:
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


# ---- forget


@click.command()
@click.argument("keys", nargs=-1, required=True, metavar="[SOURCE.]COLUMN=VALUE...")
@click.option("--note", default="", help="Reason, recorded in the lake without the key.")
@click.option("--dry-run", is_flag=True, help="Show what would be removed and computed anew, and change nothing.")
@shared
@pass_invocation
def forget(invocation: Invocation, *, keys: tuple[str, ...], note: str, dry_run: bool) -> None:
    """Remove all rows with COLUMN=VALUE from logs and quarantines, compute their results anew, and remove older copies.

    Streams and landings must be stopped. After a kill, the same command finishes. At the end all files of the lake are searched for the value: if one has
    it, the verb fails and names the file.
    """
    console = Console(as_json=invocation.json)
    opened = opened_lake(invocation, console)
    from floodmark.engines.forgetting import forget as forget_keys
    from floodmark.lake.folder.paths import Lake
    from floodmark.lake.forgetting.plan import look

    workspace, lake = opened.workspace, Lake.of(opened.workspace.settings)
    parsed = [ForgottenKey.parse(text) for text in keys]
    would = look(workspace.sources, workspace.operators, lake, parsed)
    _check_unneeded(opened, console, would)
    console.table(("rows of the key in", "rows"), [(name, number) for name, number in would.rows.items()])
    if dry_run:
        console.steps(would.steps())
        beyond = _beyond(opened, would)
        for sentence in beyond:
            console.say(sentence)
        console.document(
            {
                "lake": opened.lake,
                "done": False,
                "rows": would.rows,
                "steps": documents(would.steps()),
                "beyond": beyond,
            }
        )
        return
    run = computing(opened, console)
    if would.due and would.operators:
        run.start()
    with console.step("forgetting"):
        forgotten = forget_keys(would, run, why=note)
    _tell(console, forgotten)
    beyond = _beyond(opened, would)
    for sentence in beyond:
        console.say(sentence)
    console.document(_document(opened, forgotten) | {"beyond": beyond}, _failure(opened, forgotten))


def _check_unneeded(opened: LoadedWorkspace, console: Console, would: Forgetting) -> None:
    """Check that no running work needs a savepoint that would be removed."""
    from floodmark.control.streams.saving import check_unneeded

    streams = known(opened, console.say)
    for some in would.saved.values() if would.journal is None else ():
        for savepoint in some:
            check_unneeded(would.lake, savepoint, streams)


def _tell(console: Console, forgotten: Forgotten) -> None:
    if forgotten.operators:
        console.say(f"computed anew: {', '.join(forgotten.operators)}")
    for name, intervals in forgotten.restated.items():
        texts = ", ".join(map(str, intervals))
        console.say(f"{name}: bounded runs had restated {texts}; it is now as the stream computes it")
    if forgotten.deleted:
        console.say(f"savepoints removed: {', '.join(forgotten.deleted)}")
    if forgotten.made:
        console.say(f"savepoints to go back to: {', '.join(forgotten.made)}")
    searched = forgotten.searched
    console.say(f"{searched.files:,} files searched, {len(searched.holding)} have the key")
    if searched.unread:
        number = len(searched.unread)
        console.say(
            f"{number} of them hold Spark's state, compressed, and were not read: it was computed from rows without the key"
        )


def _beyond(opened: LoadedWorkspace, would: Forgetting) -> list[str]:
    """What may have the key and is not computed anew, one sentence each."""
    from floodmark.lake.folder.storage import folders
    from floodmark.lake.stream.delivered import delivered

    names, sentences = {one.source for one in would.sources}, list[str]()
    for source in opened.workspace.sources:
        if source.name in names:
            folder = getattr(source.connector, "path", "")
            sentences.append(
                f"not reached: what source {source.name} reads, {type(source.connector).__name__} {folder}".rstrip()
            )
    operators = {operator.name for operator in would.operators}
    for route in opened.workspace.deliveries:
        if route.operator.name not in operators | names or delivered(would.lake, route.name) is None:
            continue
        if route.delivery.revocable:
            sentences.append(
                f"delivery {route.name} still has the old results until it runs: floodmark deliver {route.name}"
            )
        else:
            sentences.append(f"not reached: what delivery {route.name} has sent; its receiver has to remove it")
    if models := folders(f"{would.lake.root}/models"):
        sentences.append(
            f"not reached: fitted models {', '.join(models)}, if rows of the key were fitted to: fit them again, as docs/models.md says"
        )
    if graphs := folders(f"{would.lake.root}/graphs"):
        sentences.append(f"not reached: graphs {', '.join(graphs)}, if edges had the key: run them again")
    return sentences


def _document(opened: LoadedWorkspace, forgotten: Forgotten) -> dict[str, Any]:
    return {
        "lake": opened.lake,
        "done": True,
        "rows": forgotten.rows,
        "operators": list(forgotten.operators),
        "deleted": list(forgotten.deleted),
        "made": list(forgotten.made),
        "searched": forgotten.searched.files,
        "holding": list(forgotten.searched.holding),
        "unread": list(forgotten.searched.unread),
    }


def _failure(opened: LoadedWorkspace, forgotten: Forgotten) -> LifecycleError | None:
    holding = forgotten.searched.holding
    if not holding:
        return None
    others = f" and {len(holding) - _SHOWN} more" if len(holding) > _SHOWN else ""
    fix = "Look into these files, and remove what has it; then run this again, which searches again."
    return LifecycleError(
        f"lake {opened.lake}",
        "no file with the key",
        f"{', '.join(holding[:_SHOWN])}{others}",
        fix,
        code="LIFECYCLE-302",
    )
