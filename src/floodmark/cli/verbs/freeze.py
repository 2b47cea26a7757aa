"""The verbs freeze and thaw: results of an operator that nothing rewrites until they are thawed."""

# ruff: noqa: PLC0415 - modules that are slow to import are imported on first use

from __future__ import annotations

import click

from floodmark.cli.shell.console import Console
from floodmark.cli.shell.invocation import Invocation, pass_invocation, shared
from floodmark.cli.shell.loading import LoadedWorkspace, opened_lake
from floodmark.core.time import describe
from floodmark.spec.windowing.partitions import instant_of


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
    lake, instant = Lake.of(opened.workspace.settings), _instant(opened, operator, before, "--before")
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
    left = frozen.thaw(lake, operator, None if since is None else _instant(opened, operator, since, "--from"))
    console.say(f"{operator}: {'nothing is frozen any more' if left is None else f'results {left}'}")
    late = 0 if before is None else frozen.left_out(lake, opened.workspace.operator(operator), before.at)
    if late and before is not None:
        again = f"floodmark run {operator} --to {describe(before.before)} --force"
        console.say(f"its stream has left out {late:,} late rows since, which this takes in: {again}")
    document = {"lake": opened.lake, "operator": operator, "frozen": None if left is None else left.as_json()}
    console.document(document | {"left_out": late})


def _instant(opened: LoadedWorkspace, operator: str, text: str, where: str) -> int:
    return instant_of(opened.workspace.asset(operator).partitions, text, where)
