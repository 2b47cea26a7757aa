"""The verbs replicate and adopt: tables go to another lake as they are, and another lake becomes their home."""

# ruff: noqa: PLC0415 - modules that are slow to import are imported on first use

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from floodmark.cli.shell.console import Console
from floodmark.cli.shell.invocation import Invocation, pass_invocation, shared
from floodmark.cli.shell.loading import opened_lake
from floodmark.cli.shell.signals import stopping
from floodmark.core.time import describe
from floodmark.spec.graph.operator import Operator
from floodmark.spec.rows.source import Source

if TYPE_CHECKING:
    from floodmark.lake.replicas.shipping import Shipment
    from floodmark.spec.workspace import Workspace


@click.command()
@click.argument("names", nargs=-1, metavar="[NAME]...")
@click.option("--to", "root", required=True, metavar="LAKE", help="Folder or URI of the other lake.")
@click.option("--all", "everything", is_flag=True, help="All sources and operators of the workspace that have tables.")
@click.option(
    "--as", "rename", metavar="NAME", help="Name of a source's log in the other lake. Default: that of the source."
)
@click.option("--continuous", is_flag=True, help="Keep replicating, and wait for a lake that is away, until Ctrl-C.")
@shared
@pass_invocation
def replicate(
    invocation: Invocation, names: tuple[str, ...], *, root: str, everything: bool, rename: str | None, continuous: bool
) -> None:
    """Replicate to another lake what it lacks of the logs of sources and the outputs of operators NAME, commit by commit. Needs no engine."""
    if bool(names) == everything or (rename and len(names) != 1):
        msg = "name the sources and operators, or give --all; --as takes one source"
        raise click.UsageError(msg)
    console = Console(as_json=invocation.json)
    opened = opened_lake(invocation, console)
    from floodmark.lake.folder.paths import Lake
    from floodmark.lake.replicas.replication import Replication, reaching
    from floodmark.lake.replicas.replication import replicate as replicated

    workspace, lake, target = opened.workspace, Lake.of(opened.workspace.settings), Lake(_located(root))
    streams = _streams(workspace)
    if not everything:
        streams = [_stream(workspace, name) for name in names]
    replications, homes = [], list[str]()
    for stream in streams:
        replication = Replication.of(stream, lake, target, rename or "")
        if everything and not replication.tables[0].exists:
            continue
        with reaching(replication):
            begins = replication.begin()
        if begins:
            replications.append(replication)
        else:
            homes.append(stream.name)
            console.say(f"{stream.name}: lake {target.root} is its home: its rows came from there, and none goes back")
    shipments: dict[str, list[Shipment]] = {replication.name: [] for replication in replications}

    def tell(name: str, shipment: Shipment) -> None:
        shipments[name].append(shipment)
        console.note(f"  {name}: {_described(shipment)}")

    begun = time.monotonic()
    with stopping(console, "this shipment") as stop:
        replicated(
            replications,
            until_caught_up=not continuous,
            stop=stop,
            on_shipment=tell,
            on_wait=lambda text: console.note(f"  {text}"),
        )
    seconds = time.monotonic() - begun
    documents = []
    for replication in replications:
        sent, table = shipments[replication.name], replication.tables[0]
        commits, rows = sum(one.version - one.first + 1 for one in sent), sum(one.rows for one in sent)
        reached = next((one.progress for one in reversed(sent) if one.progress is not None), None)
        upto = "" if reached is None else f", {describe(reached)}"
        console.say(
            f"{replication.name}: {commits:,} commit{'s' * (commits != 1)}, {rows:,} rows; up to version {table.newest()}{upto}; {seconds:.1f} s"
        )
        about = {"commits": commits, "rows": rows, "version": table.newest(), "bytes": sum(one.size for one in sent)}
        gaps = {"left_out": sum(one.left_out for one in sent), "merged": sum(one.merged for one in sent)}
        documents.append({"name": replication.name, "table": table.target, **about, **gaps})
    console.document({"lake": opened.lake, "to": target.root, "replicas": documents, "homes": homes})


@click.command()
@click.argument("name")
@click.option(
    "--from", "savepoint_name", metavar="SAVEPOINT", help="Of an operator: the savepoint from which its stream resumes."
)
@shared
@pass_invocation
def adopt(invocation: Invocation, name: str, *, savepoint_name: str | None) -> None:
    """Make this lake the home of the replica of NAME, a source or an operator: rows land here, or the stream resumes here from a savepoint."""
    console = Console(as_json=invocation.json)
    opened = opened_lake(invocation, console)
    from floodmark.lake.folder.paths import Lake
    from floodmark.lake.replicas.adoption import adopt_source, adopt_stream
    from floodmark.lake.restore import savepoints

    lake, stream = Lake.of(opened.workspace.settings), _stream(opened.workspace, name)
    if isinstance(stream, Source):
        if savepoint_name is not None:
            msg = f"'{name}' is a source, which has no savepoints: leave out --from"
            raise click.UsageError(msg)
        version = adopt_source(lake, stream.name)
        console.say(
            f"{name}: this lake is its home now, behind version {version}; rows land here: floodmark land {name}"
        )
        console.document({"lake": opened.lake, "name": name, "version": version})
        return
    savepoint = savepoints.of(lake, stream.name, savepoint_name)
    timeline = adopt_stream(lake, savepoint)
    console.say(
        f"{name}: this lake is its home now; its stream is at savepoint {savepoint.id}, {describe(savepoint.manifest.watermark)}"
    )
    console.say(f"run it: floodmark run {name} --unbounded, or floodmark start {name}")
    console.document({"lake": opened.lake, "name": name, "savepoint": savepoint.id, "timeline": timeline.number})


def _streams(workspace: Workspace) -> list[Source | Operator]:
    return [*workspace.sources, *workspace.operators]


def _stream(workspace: Workspace, name: str) -> Source | Operator:
    by_name = {stream.name: stream for stream in _streams(workspace)}
    return by_name[name] if name in by_name else workspace.operator(name)


def _located(root: str) -> str:
    return root if "://" in root else str(Path(root).expanduser().resolve())


def _described(shipment: Shipment) -> str:
    text = f"versions {shipment.first} to {shipment.version}, {shipment.rows:,} rows, {shipment.files:,} file{'s' * (shipment.files != 1)}, {shipment.size:,} bytes"
    if shipment.left_out:
        text += f"; the entries of {shipment.left_out:,} of these commits are gone at home: their rows came with the files of version {shipment.version}"
    if shipment.merged:
        text += f"; {shipment.merged:,} files were gone at home: their rows came with the files that replaced them, unless they were taken back"
    return text
