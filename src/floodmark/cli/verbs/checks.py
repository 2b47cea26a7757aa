"""The verbs gate and data-docs, about checks: gates of asset partitions whose blocking checks have failed, and a site of Great Expectations'."""

# ruff: noqa: PLC0415 - modules that are slow to import are imported on first use

from __future__ import annotations

from dataclasses import asdict
from functools import partial
from pathlib import Path

import click

from floodmark.cli.shell.console import Console
from floodmark.cli.shell.invocation import Invocation, pass_invocation, shared
from floodmark.cli.shell.loading import opened_lake
from floodmark.cli.shell.spark import computing
from floodmark.cli.shell.store import known
from floodmark.core import machine
from floodmark.core.time import Interval, iso
from floodmark.spec.windowing.partitions import named


@click.group()
@shared
def gate() -> None:
    """Show or release gates: asset partitions that readers wait for, because a blocking check of them has failed."""


@gate.command(name="list")
@click.argument("operator", required=False)
@shared
@pass_invocation
def list_gates(invocation: Invocation, operator: str | None) -> None:
    """Show the closed gates of OPERATOR, or of all operators, and asset partitions that readers do not read before they are judged."""
    console = Console(as_json=invocation.json)
    opened = opened_lake(invocation, console)
    from floodmark.control.streams.gating import closed, unjudged
    from floodmark.lake.folder.paths import Lake

    workspace, lake = opened.workspace, Lake.of(opened.workspace.settings)
    assets = [workspace.asset(operator)] if operator else list(workspace.operator_assets)
    gates = [one for asset in assets for _, one in closed(asset, lake)]
    if not gates:
        console.say("no gate is closed")
    rows = [(one.table, one.partition, one.check, iso(int(one.at * 1000)), one.reason) for one in gates]
    waiting = [one for asset in assets for one in unjudged(asset, lake)]
    rows += [(table, partition, check, "", "not judged") for table, partition, check in waiting]
    console.table(("table", "partition", "check", "closed", "reason"), rows)
    unread = [dict(zip(("table", "partition", "check"), one, strict=True)) for one in waiting]
    console.document({"lake": opened.lake, "gates": [asdict(one) for one in gates], "not_judged": unread})


@gate.command()
@click.argument("operator")
@click.option(
    "--partition", required=True, metavar="NAME", help="Its asset partition, as `gate list` shows it, or FIRST...LAST."
)
@click.option(
    "--reason", required=True, metavar="TEXT", help="Why readers may take it in as it is; kept with the gate."
)
@shared
@pass_invocation
def release(invocation: Invocation, operator: str, partition: str, reason: str) -> None:
    """Release the closed gates of an asset partition of OPERATOR, whose readers then take it in as it is."""
    console = Console(as_json=invocation.json)
    opened = opened_lake(invocation, console)
    machine.refuse_read_only(opened.lake, f"lake {opened.lake}")
    from floodmark.control.streams.gating import release as released_by_hand
    from floodmark.lake.folder.paths import Lake

    asset, there = opened.workspace.asset(operator), known(opened, console.say)
    lake, store = Lake.of(opened.workspace.settings), None if there is None else there.store
    gates = released_by_hand(asset, lake, partition, reason, store)
    for opened_gate in gates:
        console.say(f"released: {opened_gate.describe()}")
    console.document({"lake": opened.lake, "released": [asdict(one) for one in gates]})


@click.command(name="data-docs")
@click.argument("operator")
@click.argument("folder", type=click.Path(path_type=Path, file_okay=False))
@click.option(
    "--partition", metavar="NAME", help="Judge the rows of this asset partition, or of FIRST...LAST. Default: all rows."
)
@shared
@pass_invocation
def data_docs(invocation: Invocation, operator: str, folder: Path, partition: str | None) -> None:
    """Judge the expectations of OPERATOR by Great Expectations, and write its data docs, a site of HTML, into FOLDER."""
    console = Console(as_json=invocation.json)
    opened = opened_lake(invocation, console)
    from floodmark.lake.folder.paths import Lake
    from floodmark.observe.data_docs import write
    from floodmark.observe.partitions import partitions_of

    asset, lake = opened.workspace.asset(operator), Lake.of(opened.workspace.settings)
    interval = Interval() if partition is None else named(partitions_of(asset), partition, "--partition")
    engine = computing(opened, console, None)
    with console.step(f"judging {len(asset.expectations)} outputs of {operator}"):
        index, met = engine.with_session(partial(write, asset, lake, interval, folder.absolute()))
    console.say(f"{'all expectations are met' if met else 'some expectations are not met'}: {index}")
    console.document({"lake": opened.lake, "index": str(index), "met": met})
