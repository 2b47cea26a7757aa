"""The verb partitions: shows which asset partitions of an operator are complete, for people and for what waits for them."""

# ruff: noqa: PLC0415 - modules that are slow to import are imported on first use

from __future__ import annotations

from itertools import islice, takewhile
from pathlib import Path

import click

from floodmark.cli.shell.console import Console
from floodmark.cli.shell.invocation import Invocation, pass_invocation, shared
from floodmark.cli.shell.loading import opened_lake
from floodmark.core.time import NEVER, Interval, iso
from floodmark.spec.windowing.partitions import first, named, split


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
