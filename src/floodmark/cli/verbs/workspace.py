"""Verbs about the workspace: init, validate, explain, status, package."""

# ruff: noqa: PLC0415 - modules that are slow to import are imported on first use

from __future__ import annotations

import json
import os
import shlex
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from floodmark.cli.shell.console import Console
from floodmark.cli.shell.invocation import Invocation, pass_invocation, shared
from floodmark.cli.shell.loading import current_folder, find, open_workspace
from floodmark.cli.shell.store import streams, upkeep
from floodmark.core.errors import CapabilityError, ConnectorError, closest
from floodmark.core.time import describe_span, iso, span
from floodmark.spec.assets.asset import OperatorAsset
from floodmark.spec.rows.contract import event_time_field
from floodmark.spec.rows.drift import KINDS as DRIFTS
from floodmark.spec.rows.expectation import GALLERY, Expectation
from floodmark.spec.rows.source import FromColumn, Source
from floodmark.spec.workspace import Workspace

if TYPE_CHECKING:
    from floodmark.cli.new.inference import Looked, Trial
    from floodmark.spec.workspace import Engine


@click.command()
@click.argument("name", required=False)
@click.option(
    "--example",
    metavar="EXAMPLE",
    help="Copy an example workspace instead of the sample; NAME is EXAMPLE unless given. 'list' names the examples.",
)
@click.option(
    "--from",
    "data",
    metavar="FILES",
    help="CSV, JSON or Parquet data (a file, folder or glob) to infer a first contract from.",
)
@click.option(
    "--time-format",
    "time_formats",
    multiple=True,
    metavar="FORMAT",
    help="Format of times in --from: '%d.%m.%Y %H:%M', 'epoch ms'. May be repeated.",
)
@click.option(
    "--pattern",
    help="Pattern of a line of text in --from, a named group for each field: '(?P<at>\\S+) (?P<message>.*)'.",
)
@click.option(
    "--decimal",
    type=click.Choice([".", ","]),
    help="Sign between whole and fraction in --from, where numbers such as 1,000 can be read in two ways.",
)
@click.option("--sql", is_flag=True, help="Write the operators of the sample as files of SQL.")
@shared
@pass_invocation
def init(
    invocation: Invocation,
    name: str | None,
    example: str | None,
    data: str | None,
    time_formats: tuple[str, ...],
    pattern: str | None,
    decimal: str | None,
    *,
    sql: bool,
) -> None:
    """Create a workspace in a new folder NAME, ready to run."""
    from floodmark.cli.new.scaffold import BOUND, scaffold, wait_for

    console = Console(as_json=invocation.json)
    chosen = [option for option, value in (("--example", example), ("--from", data), ("--sql", sql or None)) if value]
    if len(chosen) > 1:
        msg = f"{' and '.join(chosen)} write different workspaces: give one of them"
        raise click.UsageError(msg)
    if example is not None:
        _init_example(console, name or example, example)
        return
    if not name:
        msg = "NAME is missing or empty; the workspace's folder needs one"
        raise click.UsageError(msg)
    folder = current_folder() / name
    folder = Path(os.path.normpath(folder))  # `new/..` is the folder that holds new, which may have files in it
    looked = None
    if data is not None:
        from floodmark.cli.new.inference import look

        with console.step(f"looking at {data}"):
            looked = look(data, time_formats, decimal, pattern)
    files = scaffold(folder, looked, sql=sql)
    console.say(f"made {name}: {len(files)} files")
    source, operator = ("orders", "hourly_sales") if looked is None else (looked.source, f"daily_{looked.source}")
    tried = None
    if looked is not None:
        from floodmark.cli.new.inference import trial

        tried = trial(folder / "operators" / f"{looked.source}.py", looked)
        unordered = tried.behind > span(BOUND)
        if unordered:
            wait_for(folder, looked.source, tried.behind)
        _say_looked(console, looked, tried, unordered=unordered)
    console.say("dev runs on the embedded engine, which needs no Java, prod on Spark: resources/settings.py")
    following = [f"cd {shlex.quote(name)}", f"floodmark land {source}", f"floodmark run {operator}"]
    following.append(f"floodmark run {operator} --unbounded --until-caught-up")
    console.say("next:")
    for command in following:
        console.say(f"  {command}")
    document: dict[str, Any] = {
        "folder": str(folder),
        "files": [str(file) for file in files],
        "source": source,
        "operator": operator,
    }
    if tried is not None:
        document["trial"] = asdict(tried)
    console.document({**document, "next": following})


def _init_example(console: Console, name: str, example: str) -> None:
    """Copy an example workspace into a folder, or name the examples."""
    from floodmark.cli.new.examples import examples, make_example

    if example == "list":
        titles = {one: _title(files) for one, files in examples().items()}
        console.table(("example", "shows"), list(titles.items()))
        console.document({"examples": titles})
        return
    folder = Path(os.path.normpath(current_folder() / name))
    files = make_example(folder, example)
    console.say(f"made {name}: {len(files)} files")
    following = [f"cd {shlex.quote(name)}", "cat README.md", "floodmark validate"]
    console.say("next:")
    for command in following:
        console.say(f"  {command}")
    console.document({"folder": str(folder), "files": [str(file) for file in files], "next": following})


def _title(files: Sequence[Path]) -> str:
    """The heading of an example's README.md."""
    readme = next(file for file in files if file.name == "README.md")
    return readme.read_text("utf-8").split("\n", 1)[0].removeprefix("# ")


def _say_looked(console: Console, looked: Looked, tried: Trial, *, unordered: bool) -> None:
    console.table(
        ("field", "type", "nulls", "column"),
        [
            (f.name, "EventTime" if f.name == looked.event_time else f.type, "yes" if f.nullable else "", f.column)
            for f in looked.fields
        ],
    )
    for reason in looked.left_out:
        console.say(f"not taken: {reason}")
    if looked.files.left_out:
        console.say(f"not taken: {looked.files.left_out:,} files of other kinds; these are {looked.files.glob}")
    if looked.event_time is None:
        console.say('no column is a time without gaps: event_time="ingestion", the moment a row lands')
        for name, missing in looked.times:
            console.say(f"  '{name}' is a time, but {missing:,} of {looked.rows:,} rows have none")
        if not looked.times:
            console.say("  if one is a time all the same, say how it is written: --time-format '%d.%m.%Y %H:%M'")
    every = "all" if looked.whole else "the first"
    console.say(f"of {every} {tried.rows:,} rows {tried.set_aside:,} would be set aside")
    for file, row, reason in tried.examples:
        console.say(f"  {file} row {row}: {reason}")
    _say_times(console, looked, tried, unordered=unordered)
    if tried.unreadable:
        console.say(f"cannot be landed: {tried.unreadable}")


def _say_times(console: Console, looked: Looked, tried: Trial, *, unordered: bool) -> None:
    """Print the range of event times, how far rows come behind, and notes about fields that may mean something else."""
    if looked.event_time is not None and tried.event_times is not None:
        console.say(f"{looked.event_time} is the event time: {' to '.join(map(iso, tried.event_times))}")
        if unordered:
            behind = describe_span(tried.behind)
            console.say(f"  not in order: the watermark waits for rows {behind} behind the newest one")
    for field in looked.fields:
        if field.note:
            console.say(f"  {field.name}: {field.note}")
        if field.tokens:
            texts = ", ".join(f"'{text}' ({rows:,})" for text, rows in field.tokens)
            listed = ", ".join(json.dumps(text, ensure_ascii=False) for text, _ in field.tokens)
            if field.type == "str":
                console.say(f'  {field.name}: {texts} stays text; as null: Files(null_values=("", {listed}))')
            else:
                console.say(f"  {field.name}: {texts} is read as null, by missing_values in assets/{looked.source}.py")


@click.command()
@shared
@pass_invocation
def validate(invocation: Invocation) -> None:
    """Load the workspace and check all its definitions."""
    console = Console(as_json=invocation.json)
    opened = open_workspace(invocation)
    workspace = opened.workspace
    _check_logs(workspace)
    warnings = [*_missing(workspace), *_unknown(workspace), *_refused_in(workspace)]
    warnings += [warning for operator in workspace.operators for warning in operator.warnings]
    console.say(f"workspace {opened.root} ({opened.environment})")
    console.table(
        ("source", "contract", "event time", "watermark", "late judged by"),
        [_source_row(source) for source in workspace.sources],
    )
    console.table(
        ("operator", "reads", "writes"),
        [
            (o.version, ", ".join(i.table for i in o.inputs), ", ".join(out.table for out in o.outputs))
            for o in workspace.operators
        ],
    )
    for warning in warnings:
        console.say(f"warning: {warning}")
    sources, operators = len(workspace.sources), len(workspace.operators)
    console.say(f"valid: {sources} source{'s' * (sources != 1)}, {operators} operator{'s' * (operators != 1)}")
    console.document(
        {
            "valid": True,
            "root": str(opened.root),
            "environment": opened.environment,
            "sources": [source.name for source in workspace.sources],
            "operators": [_operator_document(asset) for asset in workspace.operator_assets],
            "warnings": warnings,
        }
    )


def _check_logs(workspace: Workspace) -> None:
    """Check that each source fits the log that the lake of this environment has of it.

    Raises:
        PlanError: PLAN-010, a source no longer fits its log.
    """
    from floodmark.lake.folder.paths import Lake
    from floodmark.lake.logs.log import check_log_fits

    lake = Lake.of(workspace.settings)
    for source in workspace.sources if lake.is_local else ():
        check_log_fits(source, lake)


def _refused_in(workspace: Workspace) -> list[str]:
    """Refusals of the embedded engine for operators and expectations, as texts; empty if the environment has another engine."""
    if workspace.settings.engine != "embedded":
        return []
    from floodmark.engines.embedded.parity.check import check_expectations, check_operator

    checks = [partial(check_operator, operator) for operator in workspace.operators]
    refused = []
    for check in [*checks, *(partial(check_expectations, [one]) for one in _expectations(workspace))]:
        try:
            check()
        except CapabilityError as error:
            refused.append(str(error))
    return refused


def _expectations(workspace: Workspace) -> list[Expectation]:
    source_expectations = [one for asset in workspace.source_assets for one in asset.expectations]
    return [
        *source_expectations,
        *(one for asset in workspace.operator_assets for some in asset.expectations.values() for one in some),
    ]


def _unknown(workspace: Workspace) -> list[str]:
    """Warnings about expectations that Great Expectations does not have. Great Expectations itself fails at the first asset partition only."""
    kinds = sorted({one.kind for one in _expectations(workspace)} - GALLERY - DRIFTS)
    return [
        f"expectation '{kind}': Great Expectations 1 has none of this name. {closest(kind, GALLERY)}".rstrip()
        for kind in kinds
    ]


def _missing(workspace: Workspace) -> list[str]:
    """Warnings about folders of sources that do not exist yet. The verb ``land`` refuses a source whose folder is missing.

    Raises:
        ConnectorError: CONNECTOR-003, the path of a source is a single file.
    """
    missing = []
    for source in workspace.sources:
        reader = source.connector.located(Path(workspace.settings.folder)).reader(source)
        if reader.on_disk(0) is not None:
            try:
                reader.check_there()
            except ConnectorError as error:
                if error.code != "CONNECTOR-002":
                    raise
                missing.append(str(error))
    return missing


def _source_row(source: Source) -> tuple[str, ...]:
    strategy = source.watermark
    bound = 0 if isinstance(strategy, FromColumn) else strategy.bound
    watermark = f"{type(strategy).__name__} {describe_span(bound) if bound else ''}".strip()
    event_time = event_time_field(source.contract) or "ingestion"
    return source.name, source.contract.__name__, event_time, watermark, source.granularity


def _operator_document(asset: OperatorAsset) -> dict[str, Any]:
    operator, divided = asset.operator, asset.partitions
    return {
        "name": operator.name,
        "version": operator.version,
        "reads": [given.table for given in operator.inputs],
        "writes": [output.table for output in operator.outputs],
        "partitions": None if divided is None else {"by": divided.boundaries.split()[0], **asdict(divided)},
    }


@click.command()
@click.argument("operator")
@click.option("--physical", is_flag=True, help="Start the engine, and show its plan of a bounded run beside the steps.")
@click.option(
    "--engine",
    type=click.Choice(["spark", "embedded"]),
    help="Engine of the plan. Default: the engine of the settings.",
)
@shared
@pass_invocation
def explain(invocation: Invocation, operator: str, *, physical: bool, engine: Engine | None) -> None:
    """Show the steps, state, time and outputs of OPERATOR."""
    from floodmark.compiler.explain import explain as explained

    console, opened = Console(as_json=invocation.json), open_workspace(invocation)
    chosen = opened.workspace.operator(operator)
    text, document = explained(chosen)
    console.say(text)
    if physical:
        from floodmark.cli.shell.spark import computing
        from floodmark.engines.physical import plans
        from floodmark.lake.folder.paths import Lake

        computed = computing(opened, console, engine)
        parts = computed.with_session(lambda session: plans(session, chosen, Lake.of(opened.workspace.settings)))
        for part in parts:
            console.say(f"plan of {part.name}, by {part.engine}:")
            console.say("\n".join(f"  {line}" for line in part.text.splitlines()))
        document |= {"physical": [asdict(part) for part in parts]}
    console.document(document)


def _say_behind(console: Console, sources: Sequence[Mapping[str, Any]]) -> None:
    """Say how many rows sources had still to land by their last looks."""
    for row in sources:
        if behind := {partition: count for partition, count in row.get("behind", {}).items() if count}:
            counts = ", ".join(f"{count:,} in {partition}" for partition, count in behind.items())
            console.say(
                f"{row['name']}: {sum(behind.values()):,} messages behind at {row.get('last_run', 'the last commit')}: {counts}"
            )


@click.command()
@shared
@pass_invocation
def status(invocation: Invocation) -> None:
    """Show the progress of every source, operator and delivery. Starts no Spark."""
    console = Console(as_json=invocation.json)
    opened = open_workspace(invocation)
    console.lake(opened.lake, opened.environment)
    if opened.logs:
        console.say(f"logs {opened.logs} (read only)")
    from floodmark.lake.folder.paths import Lake
    from floodmark.observe.skew import Skew
    from floodmark.observe.status import status as status_of

    running, awaits = streams(opened)
    rows = status_of(opened.workspace, Lake.of(opened.workspace.settings), awaits)
    kinds = ("source", "output", "delivery")
    sources, outputs, deliveries = ([row for row in rows if row["kind"] == kind] for kind in kinds)
    names = ("rows", "quarantined", "commits", "progress", "state")
    console.table(("source", *names), [(row["name"], *map(row.get, names)) for row in sources])
    _say_behind(console, sources)
    for row in sources:
        for warning in row.get("warnings", ()):
            console.say(f"{row['name']}: {warning}")
    facts = ("mode", "engine", "progress", "lag", "last_run", "state")
    console.table(
        ("output", *(name.replace("_", " ") for name in facts)),
        [(row["table"].rsplit("/", 1)[-1], *map(row.get, facts)) for row in outputs],
    )
    for row in outputs:
        for name, count in row.get("unmet", {}).items():
            console.say(
                f"{row['table'].rsplit('/', 1)[-1]}: {count:,} of its newest rows do not meet expectation '{name}'"
            )
    for row in outputs:
        if (skew := row.get("skew")) and (hot := Skew(**skew)).matters:
            console.say(f"{row['name']}: {hot}")
        if frozen := row.get("frozen"):
            note = f": {frozen['note']}" if frozen["note"] else ""
            console.say(f"{row['name']}: results before {frozen['before']} are frozen since {frozen['at']}{note}")
    far = ("version", "waiting", "progress", "state")
    console.table(("delivery", *far), [(row["name"], *map(row.get, far)) for row in deliveries])
    about = ("stream", "version", "wanted", "health", "backpressure", "state")
    console.table(about, [tuple(row[name] for name in about) for row in running])
    if (last_upkeep := upkeep(opened)) is not None:
        console.say(f"upkeep {last_upkeep['at']}: {last_upkeep['what']}")
    console.document(
        {
            "lake": opened.lake,
            "environment": opened.environment,
            "tables": rows,
            **({"streams": running} if running else {}),
            **({"upkeep": last_upkeep} if last_upkeep else {}),
        }
    )


@click.command()
@click.argument("archive", type=click.Path(path_type=Path, dir_okay=False))
@click.option("--with", "names", multiple=True, metavar="PACKAGE", help="A further installed package. Repeatable.")
@shared
@pass_invocation
def package(invocation: Invocation, *, archive: Path, names: tuple[str, ...]) -> None:
    """Write the Python packages that workers of a cluster need into ARCHIVE, a .tar.gz, for workers that have only Spark and Python.

    These are floodmark, the dependencies in the workspace's pyproject.toml, and what they require, as installed here.
    """
    console = Console(as_json=invocation.json)
    from floodmark.engines.spark.setup import environment

    root, _ = find(current_folder().resolve())
    project = tomllib.loads((root / "pyproject.toml").read_text("utf-8")).get("project", {})
    path = archive.absolute()
    packages = environment.write(path, (*environment.names(project.get("dependencies", ())), *names))
    size, settings = path.stat().st_size, environment.settings(path)
    pairs = ", ".join(f'("{name}", "{value}")' for name, value in settings)
    console.say(f"{path}: {len(packages)} packages, {size / 1e6:.0f} MB")
    console.say(f"use it: Settings(spark=({pairs})) in resources/settings.py")
    console.document({"archive": str(path), "packages": packages, "bytes": size, "settings": dict(settings)})
