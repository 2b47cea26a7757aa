"""The verb savepoint: creates, lists, shows, verifies, compares, pins, exports, imports and deletes savepoints. Only canonical savepoints of Spark need Spark."""

# ruff: noqa: PLC0415 - modules that are slow to import are imported on first use

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from floodmark.cli.shell.console import Console
from floodmark.cli.shell.invocation import Invocation, asked, pass_invocation, shared
from floodmark.cli.shell.loading import LoadedWorkspace, opened_lake
from floodmark.cli.shell.spark import start
from floodmark.cli.shell.store import fleet, known
from floodmark.core.time import describe, iso
from floodmark.lifecycle.requests import SavepointRequest
from floodmark.lifecycle.savepoint import Manifest, broken, differences
from floodmark.spec.workspace import Engine

if TYPE_CHECKING:
    from floodmark.lake.folder.paths import Lake
    from floodmark.lake.restore.savepoints import Savepoint


@click.group()
@shared
def savepoint() -> None:
    """Manage savepoints of streams: state, positions, versions of the outputs and the definition, retained until deleted."""


@savepoint.command()
@click.argument("operator")
@asked(SavepointRequest)
@shared
@pass_invocation
def create(invocation: Invocation, operator: str, *, request: SavepointRequest) -> None:
    """Create a savepoint of the stream of OPERATOR. A running stream keeps running."""
    console, opened, _ = _opened(invocation)
    from floodmark.control.streams.saving import save

    name, code = opened.workspace.operator(operator).name, code_of(opened.root)
    streams = known(opened, console.say)
    codes = {one.name: code for one in opened.workspace.operators} | (streams.codes() if streams else {})
    saved = save(streams or fleet(opened, console.say), name, request, codes)
    for made in saved.made:
        manifest = made.manifest
        console.say(
            f"{manifest.id}: {manifest.version} at micro-batch {manifest.batch}, {describe(manifest.watermark)}"
        )
        console.say(f"  {len(manifest.files)} files, {manifest.size:,} bytes")
    for id_ in saved.deleted:
        console.say(f"deleted: {id_}")
    for id_, why in saved.stay.items():
        console.say(f"stays: {id_}: {why}")
    console.document(
        {"lake": opened.lake, "savepoints": [_document(made) for made in saved.made], "deleted": saved.deleted}
    )


@savepoint.command("list")
@click.argument("operator", required=False)
@shared
@pass_invocation
def list_(invocation: Invocation, operator: str | None) -> None:
    """List the savepoints of OPERATOR, by default of all, oldest first."""
    console, opened, lake = _opened(invocation)
    from floodmark.lake.restore import savepoints

    name = opened.workspace.operator(operator).name if operator else None
    readable, unreadable = savepoints.survey(lake, name)
    rows = [
        (
            one.manifest.id,
            one.manifest.version,
            str(one.manifest.batch),
            describe(one.manifest.watermark),
            one.manifest.size,
            "pinned" if one.pinned else "",
            one.manifest.why,
        )
        for one in readable
    ]
    console.table(("savepoint", "version", "batch", "up to", "bytes", "", "note"), rows)
    for damaged in unreadable:
        console.say(f"unreadable: {damaged.id}{' (pinned)' if damaged.pinned else ''}: {damaged.error}")
    if not readable and not unreadable:
        console.say("no savepoints; floodmark savepoint create OPERATOR makes one")
    console.document(
        {
            "lake": opened.lake,
            "savepoints": [_document(one) for one in readable],
            "damaged": [{"id": one.id, "pinned": one.pinned, **one.error.as_json()} for one in unreadable],
        }
    )


@savepoint.command()
@click.argument("name", metavar="SAVEPOINT")
@shared
@pass_invocation
def show(invocation: Invocation, name: str) -> None:
    """Show the contents of SAVEPOINT."""
    console, opened, lake = _opened(invocation)
    from floodmark.lake.restore import savepoints

    chosen = savepoints.find(lake, name)
    manifest = chosen.manifest
    console.say(f"{manifest.id}{' (pinned)' if chosen.pinned else ''}{f': {manifest.why}' if manifest.why else ''}")
    console.say(f"  made     {iso(manifest.at)}")
    console.say(f"  version  {manifest.version}, timeline {manifest.timeline}, micro-batch {manifest.batch}")
    console.say(f"  up to    {describe(manifest.watermark)}")
    for input_name, at in manifest.inputs.items():
        part = f" and its first {at.file + 1} of the next" if at.file >= 0 else ""
        console.say(f"  input    {input_name}: '{at.table}' up to version {at.version}{part}")
    for at in manifest.outputs:
        console.say(f"  output   {at.table} at version {at.version}")
    names = (value if what == "engine" else f"{what} {value}" for what, value in manifest.engine.items())
    console.say(f"  engine   {', '.join(names)}")
    if "package" in manifest.code:
        console.say(f"  code     package {manifest.code['package']}")
    elif manifest.code:
        console.say(f"  code     {manifest.code['commit']}{' and changes to it' if manifest.code['dirty'] else ''}")
    console.say(f"  holds    {len(manifest.files)} files, {manifest.size:,} bytes, in {chosen.path}")
    console.document({"lake": opened.lake, **_document(chosen)})


@savepoint.command()
@click.argument("name", metavar="SAVEPOINT")
@shared
@pass_invocation
def verify(invocation: Invocation, name: str) -> None:
    """Check every file of SAVEPOINT against its checksum."""
    console, opened, lake = _opened(invocation)
    from floodmark.lake.restore import savepoints

    chosen = savepoints.find(lake, name)
    wrong = savepoints.verify(chosen)
    if wrong:
        for text in wrong:
            console.say(text)
        raise broken(f"savepoint '{name}'", f"{len(wrong)} of its files damaged")
    console.say(f"{name}: {len(chosen.manifest.files)} files are as they were written")
    console.document({"lake": opened.lake, "savepoint": name, "files": len(chosen.manifest.files)})


@savepoint.command()
@click.argument("first", metavar="SAVEPOINT")
@click.argument("second", metavar="OTHER")
@shared
@pass_invocation
def diff(invocation: Invocation, first: str, second: str) -> None:
    """Show the differences of two savepoints."""
    console, opened, lake = _opened(invocation)
    from floodmark.lake.restore import savepoints

    pair = [savepoints.find(lake, name).manifest for name in (first, second)]
    difference_rows = list(differences(*pair))
    console.table(("", first, second), difference_rows)
    if not difference_rows:
        console.say("they hold the same")
    console.document(
        {
            "lake": opened.lake,
            "differences": [dict(zip(("what", "first", "second"), f, strict=True)) for f in difference_rows],
        }
    )


@savepoint.command()
@click.argument("name", metavar="SAVEPOINT")
@click.option("--off", is_flag=True, help="Allow the savepoint to be deleted again.")
@shared
@pass_invocation
def pin(invocation: Invocation, name: str, *, off: bool) -> None:
    """Protect SAVEPOINT from deletion."""
    console, opened, lake = _opened(invocation)
    from floodmark.lake.restore import savepoints

    savepoints.pin(savepoints.find_any(lake, name), pinned=not off)
    console.say(f"{name}: {'may be deleted' if off else 'pinned'}")
    console.document({"lake": opened.lake, "savepoint": name, "pinned": not off})


@savepoint.command()
@click.argument("name", metavar="SAVEPOINT")
@click.option("--unreadable", is_flag=True, help="Delete a savepoint whose manifest cannot be read.")
@shared
@pass_invocation
def delete(invocation: Invocation, name: str, *, unreadable: bool) -> None:
    """Delete SAVEPOINT, unless an experiment, a rollout or an action that is not finished needs it."""
    console, opened, lake = _opened(invocation)
    from floodmark.lake.restore import savepoints

    unwanted = savepoints.find_any(lake, name) if unreadable else savepoints.find(lake, name)
    if isinstance(unwanted, savepoints.Savepoint):
        from floodmark.control.streams.saving import check_unneeded

        check_unneeded(lake, unwanted, known(opened, console.say))
    savepoints.delete(unwanted)
    console.say(f"{name}: deleted")
    console.document({"lake": opened.lake, "savepoint": name})


@savepoint.command("export")
@click.argument("name", metavar="SAVEPOINT")
@click.argument("folder")
@click.option(
    "--canonical",
    is_flag=True,
    help="Write state in an engine-independent format, for another engine or version of Spark.",
)
@shared
@pass_invocation
def export_(invocation: Invocation, name: str, folder: str, *, canonical: bool) -> None:
    """Copy SAVEPOINT into FOLDER, a folder or URI. The copy shares no file with the lake."""
    console, opened, lake = _opened(invocation)
    from floodmark.lake.restore import savepoints
    from floodmark.lake.stream.checkpoint import engine_of
    from floodmark.lake.stream.timeline import CHECKPOINT

    target, chosen = _folder(folder), savepoints.find(lake, name)
    if canonical and engine_of(f"{chosen.path}/{CHECKPOINT}") == "embedded":
        from floodmark.engines.embedded.state.canonical import export as export_embedded

        export_embedded(chosen, target)
    elif canonical:
        from floodmark.engines.spark.state.canonical import export

        spark, _ = start(opened, console, writes=False)
        export(spark, chosen, target)
    else:
        savepoints.export(chosen, target)
    console.say(f"{name}: copied to {target}/{name}")
    console.document({"lake": opened.lake, "savepoint": name, "folder": f"{target}/{name}", "canonical": canonical})


@savepoint.command("import")
@click.argument("folder")
@click.option(
    "--engine",
    type=click.Choice(["spark", "embedded"]),
    help="Engine that will resume from a canonical savepoint. Default: the engine of the settings.",
)
@shared
@pass_invocation
def import_(invocation: Invocation, folder: str, *, engine: Engine | None) -> None:
    """Copy an exported savepoint from FOLDER into the lake. A canonical savepoint is converted for the engine that will resume from it."""
    console, opened, lake = _opened(invocation)
    from floodmark.lake.restore import savepoints

    source = _folder(folder)
    canonical = savepoints.opened(source).manifest.canonical
    if canonical and (engine or opened.workspace.settings.engine) == "embedded":
        from floodmark.engines.embedded.state.canonical import import_savepoint as import_embedded

        imported = import_embedded(lake, source)
    elif canonical:
        from floodmark.engines.spark.state.canonical import import_savepoint

        spark, _ = start(opened, console)
        imported = import_savepoint(spark, lake, source)
    else:
        imported = savepoints.import_savepoint(lake, source)
    console.say(f"{imported.manifest.id}: in the lake")
    console.document({"lake": opened.lake, **_document(imported)})


@savepoint.command("copy")
@click.argument("name", metavar="SAVEPOINT")
@click.option("--to", "root", required=True, metavar="LAKE", help="Folder or URI of the other lake.")
@shared
@pass_invocation
def copy_(invocation: Invocation, name: str, *, root: str) -> None:
    """Copy SAVEPOINT into another lake, after replicas of the tables that it names: the stream can resume there (floodmark adopt)."""
    console, opened, lake = _opened(invocation)
    from floodmark.lake.folder.paths import Lake
    from floodmark.lake.replicas.carrying import carry
    from floodmark.lake.replicas.replication import Replication, reaching
    from floodmark.lake.restore import savepoints

    chosen, target = savepoints.find(lake, name), Lake(_folder(root))
    operator = opened.workspace.operator(chosen.manifest.operator)
    by_table = {source.name: source for source in opened.workspace.sources}
    read = [by_table[given.table] if given.upstream is None else given.upstream.operator for given in operator.inputs]
    tables = [Replication.of(stream, lake, target) for stream in dict.fromkeys((*read, operator))]
    with reaching(tables[-1]):
        copied = carry(chosen, lake, target, tables)
    console.say(f"{copied.id}: in lake {target.root}, with the tables it names")
    console.say(f"resume there: floodmark adopt {operator.name} --from {copied.id} --lake {target.root}")
    console.document(
        {"lake": opened.lake, "to": target.root, "tables": [one.name for one in tables], **_document(copied)}
    )


def _folder(folder: str) -> str:
    return folder if "://" in folder else str(Path(folder).resolve())


def _opened(invocation: Invocation) -> tuple[Console, LoadedWorkspace, Lake]:
    from floodmark.lake.folder.paths import Lake

    console = Console(as_json=invocation.json)
    opened = opened_lake(invocation, console)
    return console, opened, Lake.of(opened.workspace.settings)


def _document(savepoint: Savepoint) -> dict[str, Any]:
    manifest: Manifest = savepoint.manifest
    return {
        "id": manifest.id,
        "path": savepoint.path,
        "pinned": savepoint.pinned,
        "made": iso(manifest.at),
        "why": manifest.why,
        "operator": manifest.operator,
        "version": manifest.version,
        "timeline": manifest.timeline,
        "batch": manifest.batch,
        "watermark": describe(manifest.watermark),
        "inputs": {name: {"table": at.table, "version": at.version} for name, at in manifest.inputs.items()},
        "outputs": {at.table: at.version for at in manifest.outputs},
        "engine": dict(manifest.engine),
        "code": dict(manifest.code),
        "files": len(manifest.files),
        "bytes": manifest.size,
    }


def code_of(root: Path) -> dict[str, object]:
    """{``commit``, ``dirty``} of the workspace's code in git; empty if git has no commit of it."""
    commit = _git(root, "rev-parse", "HEAD")
    return {} if commit is None else {"commit": commit, "dirty": bool(_git(root, "status", "--porcelain", "--", "."))}


def _git(root: Path, *arguments: str) -> str | None:
    try:
        done = subprocess.run(["git", "-C", str(root), *arguments], capture_output=True, text=True, check=False)
    except FileNotFoundError:  # no git on this machine
        return None
    return done.stdout.strip() if done.returncode == 0 else None
