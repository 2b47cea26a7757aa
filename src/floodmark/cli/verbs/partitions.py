"""The verbs partitions, freeze and thaw: which asset partitions of an operator are complete, and which results nothing rewrites."""

# ruff: noqa: PLC0415 - modules that are slow to import are imported on first use

from __future__ import annotations

from itertools import islice, takewhile
from pathlib import Path

import click

from floodmark.cli.shell.console import Console
from floodmark.cli.shell.invocation import Invocation, pass_invocation, shared
from floodmark.cli.shell.loading import opened_lake
from floodmark.core.time import NEVER, Interval, describe, iso
from floodmark.spec.windowing.partitions import beginning, first, instant_of, named, split


@click.command()
@click.argument("operator")
@click.option("--partition", metavar="NAME", help="Only this partition, or those of FIRST...LAST.")
@click.option("--after", metavar="NAME", help="Only partitions that come after this one.")
@click.option(
    "--limit", type=click.IntRange(min=1), default=1000, show_default=True, help="Most partitions shown, oldest first."
)
@click.option(
    "--picture",
    type=click.Path(dir_okay=False, writable=True),
    metavar="FILE",
    help="Also write a picture (SVG) of the partitions of OPERATOR, and of all that it reads or that read it, by their states.",
)
@shared
@pass_invocation
def partitions(
    invocation: Invocation, *, operator: str, partition: str | None, after: str | None, limit: int, picture: str | None
) -> None:
    """Show the asset partitions of OPERATOR that are complete: passed by its stream, or computed bounded. Starts no engine."""
    if partition is not None and after is not None:
        msg = "--partition says which; leave out --after"
        raise click.UsageError(msg)
    console = Console(as_json=invocation.json)
    opened = opened_lake(invocation, console)
    from floodmark.lake.folder.paths import Lake
    from floodmark.lake.results.frozen import frozen
    from floodmark.observe.coverage import connected
    from floodmark.observe.coverage import picture as drawn
    from floodmark.observe.partitions import complete, ending, partitions_of

    asset = opened.workspace.asset(operator)
    every = partitions_of(asset)
    asked = None if partition is None else named(every, partition, "--partition")
    since = NEVER if after is None else named(every, after, "--after").end
    lake = Lake.of(opened.workspace.settings)
    if asked is None:
        listed = complete(asset, lake, since)
    else:
        listed = takewhile(lambda part: part.interval.end <= asked.end, complete(asset, lake, asked.start))
    shown = list(islice(listed, limit))
    has_more = next(listed, None) is not None
    console.table(
        ("partition", "from", "to", "complete by"),
        [(part.key, iso(part.interval.start), iso(part.interval.end), part.by) for part in shown],
    )
    if picture is not None:
        whole = asked or Interval(start=since if since > NEVER else first(every), end=ending(every))
        Path(picture).write_text(drawn(connected(opened.workspace, operator), lake, whole))
        console.say(f"picture: {picture}")
    if not shown:
        console.say(f"none of {operator} is complete{'' if partition or after is None else f' after {after}'}")
    frozen_range = frozen(lake, asset.operator.name)
    if frozen_range is not None:
        console.say(f"results {frozen_range}")
    if has_more:
        console.say(f"there are more: floodmark partitions {operator} --after {shown[-1].key}")
    document = {
        "lake": opened.lake,
        "operator": operator,
        "partitions": [
            {"key": part.key, "start": iso(part.interval.start), "end": iso(part.interval.end), "by": part.by}
            for part in shown
        ],
        "more": has_more,
        "frozen": None if frozen_range is None else frozen_range.as_json(),
    }
    if asked is not None:
        lacking = asked.minus([part.interval for part in shown])
        names = [
            name for stretch in lacking for name, _ in split(every, Interval(start=stretch.start, end=stretch.end))
        ]
        if names:
            console.say(f"not complete: {', '.join(names[:20])}{' and more' if len(names) > 20 else ''}")  # noqa: PLR2004
        document |= {"complete": not lacking, "missing": names}
    console.document(document)


@click.command()
@click.argument("operator")
@click.option(
    "--before", required=True, metavar="DAY", help="The first asset partition, or instant, that is not frozen."
)
@click.option("--note", default="", help="Why; shown by status.")
@shared
@pass_invocation
def freeze(invocation: Invocation, *, operator: str, before: str, note: str) -> None:
    """Freeze the results of OPERATOR before a day: nothing rewrites them until they are thawed."""
    from floodmark.lake.folder.paths import Lake
    from floodmark.lake.restore.switch import refuse_while_pending
    from floodmark.lake.results import frozen

    console = Console(as_json=invocation.json)
    opened = opened_lake(invocation, console)
    lake, instant = (
        Lake.of(opened.workspace.settings),
        instant_of(opened.workspace.asset(operator).partitions, before, "--before"),
    )
    refuse_while_pending(lake, operator)
    frozen_range = frozen.freeze(lake, opened.workspace.operator(operator), instant, note)
    console.say(f"{operator}: results {frozen_range}")
    console.document({"lake": opened.lake, "operator": operator, "frozen": frozen_range.as_json()})


@click.command()
@click.argument("operator")
@click.option("--from", "since", metavar="DAY", help="Only from this asset partition, or instant, on. Default: all.")
@shared
@pass_invocation
def thaw(invocation: Invocation, *, operator: str, since: str | None) -> None:
    """Thaw frozen results of OPERATOR, so that they can be computed again."""
    from floodmark.lake.folder.paths import Lake
    from floodmark.lake.results import frozen

    console = Console(as_json=invocation.json)
    opened = opened_lake(invocation, console)
    lake = Lake.of(opened.workspace.settings)
    before = frozen.frozen(lake, operator)
    partitions = opened.workspace.asset(operator).partitions
    left = frozen.thaw(lake, operator, beginning(partitions, since, "--from"))
    console.say(f"{operator}: {'nothing is frozen any more' if left is None else f'results {left}'}")
    late = 0 if before is None else frozen.left_out(lake, opened.workspace.operator(operator), before.at)
    if late and before is not None:
        again = f"floodmark run {operator} --to {describe(before.before)} --force"
        console.say(f"its stream has left out {late:,} late rows since, which this takes in: {again}")
    document = {"lake": opened.lake, "operator": operator, "frozen": None if left is None else left.as_json()}
    console.document(document | {"left_out": late})
