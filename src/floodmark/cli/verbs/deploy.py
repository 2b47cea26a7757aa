"""The verb deploy: files with which a workspace runs by itself."""

# ruff: noqa: PLC0415 - modules that are slow to import are imported on first use

from __future__ import annotations

import ipaddress
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import click

from floodmark.cli.shell.console import Console
from floodmark.cli.shell.invocation import Invocation, pass_invocation, shared
from floodmark.cli.shell.loading import LoadedWorkspace, open_workspace
from floodmark.core import machine
from floodmark.core.errors import SetupError

KINDS = ("kubernetes", "systemd", "compose")
_ENVIRONMENT = "prod"
_RESERVED = {"systemd": ("--image", "--storage-class"), "compose": ("--storage-class",)}


def _address(_: click.Context, __: click.Parameter, text: str) -> str:
    try:
        return str(ipaddress.ip_address(text))
    except ValueError:
        msg = f"{text}: expected an IP address, such as 127.0.0.1, or 0.0.0.0 for all of the host's"
        raise click.BadParameter(msg) from None


@click.command()
@click.argument("kind", type=click.Choice(KINDS))
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path, file_okay=False))
@click.option(
    "--image", metavar="NAME", help="Name of the image of the workspace. Default: name and version of the project."
)
@click.option(
    "--storage-class", metavar="NAME", help="On Kubernetes: class of the shared volume. Default: the cluster's."
)
@click.option(
    "--listen",
    metavar="ADDRESS",
    default="127.0.0.1",
    show_default=True,
    callback=_address,
    help="Address of Dagster and of the page of streams. There is no login: keep it local.",
)
@click.option("--overwrite", is_flag=True, help="Replace files in DIR that differ.")
@shared
@pass_invocation
def deploy(
    invocation: Invocation,
    *,
    kind: str,
    folder: Path,
    image: str | None,
    storage_class: str | None,
    listen: str,
    overwrite: bool,
) -> None:
    """Write the files with which this workspace runs on Kubernetes, under systemd or by Compose into DIR; its README.md says which commands follow.

    These are the supervisor, Dagster, PostgreSQL, their settings, probes and roles. Secrets are named, and are in no file. The environment is prod.
    """
    options = {"--image": image, "--storage-class": storage_class}
    if unused := [name for name in _RESERVED.get(kind, ()) if options[name] is not None]:
        msg = f"{' and '.join(unused)} says nothing to {kind}; leave it out"
        raise click.UsageError(msg)
    if invocation.lake is not None:
        msg = "--lake is not deployed: set FLOODMARK_LAKE, which goes with the deployment, or lake in resources/settings.py"
        raise click.UsageError(msg)
    console = Console(as_json=invocation.json)
    source = click.get_current_context().get_parameter_source("environment")
    parent = click.get_current_context().parent
    chosen = [source, parent.get_parameter_source("environment") if parent is not None else None]
    if click.core.ParameterSource.COMMANDLINE not in chosen:
        invocation = replace(invocation, environment=_ENVIRONMENT)
    target = folder.absolute()
    texts, opened = _texts(invocation, kind, target, image, storage_class, listen)
    console.lake(opened.lake, opened.environment)
    _write(target, texts, overwrite=overwrite)
    console.say(f"{len(texts)} files in {target}: {', '.join(sorted(texts))}")
    console.say(f"what to do with them: {target / 'README.md'}")
    console.document(
        {"folder": str(target), "files": sorted(texts), "lake": opened.lake, "environment": opened.environment}
    )


def _texts(
    invocation: Invocation, kind: str, target: Path, image_name: str | None, storage_class: str | None, listen: str
) -> tuple[Mapping[str, str], LoadedWorkspace]:
    from floodmark.cli.deployment import compose, image, installation, kubernetes, systemd

    database = {"kubernetes": kubernetes.DATABASE, "compose": compose.DATABASE, "systemd": systemd.DATABASE}[kind]
    variables = {installation.CONTROL: installation.control_url(database)}
    with installation.under(variables):
        opened = open_workspace(invocation)
        programs = f"{Path(sys.executable).parent}/" if kind == "systemd" else ""
        written = installation.install(
            opened,
            root=None if kind == "systemd" else Path(image.FOLDER),
            database=database,
            listen=listen,
            python=sys.executable if kind == "systemd" else "python",
            bin_folder=programs,
        )
        name = image_name or f"{written.name}:{installation.project_version(opened.root)}"
        if kind == "kubernetes":
            cluster = kubernetes.Cluster(image=name, storage_class=storage_class)
            _check_spark(invocation, kubernetes.spark_settings(written, cluster), installation.SPARK)
            return kubernetes.files(written, cluster, str(target)), opened
        if kind == "compose":
            return compose.files(written, name, str(target)), opened
        return systemd.files(written, str(target)), opened


def _check_spark(invocation: Invocation, pairs: tuple[tuple[str, str], ...], variable: str) -> None:
    """Check that the workspace takes further settings of Spark from a variable.

    Raises:
        SetupError: SETUP-103, it does not.
    """
    import json

    from floodmark.cli.deployment import installation

    if not pairs:
        return
    with installation.under({variable: json.dumps(pairs)}):
        taken = open_workspace(invocation).workspace.settings.spark
    if missing := [name for name, text in pairs if (name, text) not in taken]:
        fix = f"Let resources/settings.py read {variable}: a field `spark: tuple[tuple[str, str], ...] = ()` of Variables, and Settings(spark=variables.spark)."
        expected = "Spark's settings of the pod that it runs in"
        raise SetupError("Settings(spark=...)", expected, f"no {missing[0]}", fix, code="SETUP-103")


def _write(folder: Path, texts: Mapping[str, str], *, overwrite: bool) -> None:
    """Write files.

    Raises:
        SetupError: SETUP-102, some are there with another content.
    """
    machine.refuse_file(str(folder), f"folder {folder}")
    differing = [
        name for name, text in texts.items() if (folder / name).exists() and (folder / name).read_text("utf-8") != text
    ]
    if differing and not overwrite:
        fix = "Name another folder, or replace them: --overwrite"
        got = f"others: {', '.join(sorted(differing))}"
        raise SetupError(f"folder {folder}", "no files of these names, or the same", got, fix, code="SETUP-102")
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in texts.items():
        (folder / name).write_text(text, "utf-8")
        if text.startswith("#!"):
            (folder / name).chmod(0o755)
