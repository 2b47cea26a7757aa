"""A deployment under systemd: units for a host on which the workspace and its Python environment lie where they lie here."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping
from pathlib import Path

from floodmark.cli.deployment.installation import (
    CONTROL_DATABASE,
    DAGSTER_DATABASE,
    POSTGRES_PORT,
    USER,
    Database,
    Installation,
    Process,
)
from floodmark.control.processes.supervisor import GRACE_SECONDS

CONFIG = Path("/etc/floodmark")
"""Folder of configuration and secrets on the host."""
_SECRETS = CONFIG / "secrets.env"
_VARIABLES = CONFIG / "floodmark.env"
_TARGET = "floodmark.target"
DATABASE = Database(host="/var/run/postgresql", port=POSTGRES_PORT, user=USER, name=CONTROL_DATABASE, deployed=True)
"""The PostgreSQL of the host, where the user of the operating system is the user of the database."""


def files(installation: Installation, folder: str) -> Mapping[str, str]:
    """Name -> text of all files.

    Args:
        installation: the workspace.
        folder: in which the files are written.
    """
    written = {f"floodmark-{one.name}.service": _unit(installation, one) for one in installation.processes()}
    return {
        **written,
        _TARGET: _target(written),
        "floodmark.env": _variables(installation),
        "dagster.yaml": installation.dagster_settings(),
        "workspace.yaml": installation.code_locations(),
        "postgresql.sql": _databases(installation),
        "README.md": "\n".join(_readme(installation, folder)) + "\n",
    }


def _target(services: Iterable[str]) -> str:
    return f"[Unit]\nDescription=floodmark: streams and Dagster\nWants={' '.join(services)}\n\n[Install]\nWantedBy=multi-user.target\n"


def _unit(installation: Installation, process: Process) -> str:
    before = ["network-online.target", *(["postgresql.service"] if installation.database.deployed else [])]
    code = [f"floodmark-{name}.service" for name in ("code",) if process.name in {"webserver", "daemon"}]
    shared = " ".join(_quoted(str(path)) for path in installation.folders)
    command = " ".join(_quoted(word) for word in process.command)
    return f"""\
[Unit]
Description=floodmark: {process.name} of {installation.name}
Wants={" ".join(before)}
After={" ".join([*before, *code])}
PartOf={_TARGET}
StartLimitIntervalSec=0

[Service]
User={USER}
WorkingDirectory={installation.root}
EnvironmentFile={_VARIABLES}
EnvironmentFile=-{_SECRETS}
ExecStart={command}
Restart=always
RestartSec=5
KillMode=mixed
TimeoutStopSec={int(GRACE_SECONDS) + 30}
NoNewPrivileges=true
PrivateTmp=true
ProtectSystem=strict
ProtectHome=read-only
ProtectKernelTunables=true
ProtectControlGroups=true
RestrictSUIDSGID=true
ReadWritePaths={shared}

[Install]
WantedBy={_TARGET}
"""


def _quoted(word: str) -> str:
    """A word of a unit's command line, in which systemd replaces nothing."""
    text = word.replace("%", "%%").replace("$", "$$")
    return (
        text
        if text.replace("'", "").isprintable() and " " not in text and '"' not in text
        else '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
    )


def _variables(installation: Installation) -> str:
    variables = {**installation.variables, "DAGSTER_HOME": str(installation.dagster_home)}
    return "".join(f'{name}="{text}"\n' for name, text in variables.items())


def _databases(installation: Installation) -> str:
    user = installation.database.user
    names = (installation.database.name, DAGSTER_DATABASE)
    return f"CREATE ROLE {user} LOGIN;\n" + "".join(f"CREATE DATABASE {name} OWNER {user};\n" for name in names)


def _readme(installation: Installation, folder: str) -> Iterable[str]:
    here, home = shlex.quote(folder), installation.dagster_home
    shared = " ".join(shlex.quote(str(path)) for path in installation.folders)
    yield f"# {installation.name} under systemd"
    yield ""
    yield f"Written by `floodmark deploy systemd` for the workspace in `{installation.root}` and the Python environment in `{installation.bin}`. As root:"
    yield ""
    yield "```console"
    yield f"# useradd --system --home-dir {installation.root} {USER}"
    if installation.database.deployed:
        yield f"# runuser -u postgres -- psql -v ON_ERROR_STOP=1 -f - < {here}/postgresql.sql"
    yield f"# install -d {CONFIG} && install -m 644 {here}/floodmark.env {CONFIG}/"
    if installation.secrets:
        yield f"# install -m 600 -o root /dev/null {_SECRETS} && editor {_SECRETS}"
    yield f"# install -d -o {USER} {shared} {home} && chown -R {USER} {shared}"
    yield f"# install -m 644 {here}/dagster.yaml {here}/workspace.yaml {home}/"
    yield f"# install -m 644 {here}/*.service {here}/*.target /etc/systemd/system/ && systemctl daemon-reload"
    yield f"# systemctl enable --now {_TARGET}"
    yield f"# cd {installation.root} && runuser -u {USER} -- sh -c 'set -a; . {_VARIABLES}; {installation.bin}floodmark start --all --environment {installation.opened.environment}'"
    yield "```"
    yield ""
    if installation.secrets:
        yield f"`{_SECRETS}` has a line `NAME=value` for each of: {', '.join(f'`{name}`' for name in installation.secrets)}."
        yield ""
    if not installation.database.deployed:
        yield f"PostgreSQL at `{installation.database.host}`: `postgresql.sql` makes its user and its databases."
        yield ""
    yield "A second host takes over when it has the same files, the same shared folders under the same paths, and the same PostgreSQL."
