"""A deployment on one host by Compose."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from floodmark.cli.deployment import image
from floodmark.cli.deployment.installation import (
    ANYWHERE,
    CONTROL_DATABASE,
    DAGSTER_DATABASE,
    PASSWORD,
    POSTGRES_PORT,
    USER,
    Database,
    Installation,
    Process,
    as_yaml,
)
from floodmark.cli.deployment.kubernetes import POSTGRES_IMAGE
from floodmark.control.processes.supervisor import GRACE_SECONDS

_POSTGRES, _CODE = "postgres", "code"
DATABASE = Database(host=_POSTGRES, port=POSTGRES_PORT, user=USER, name=CONTROL_DATABASE, deployed=True)
"""The PostgreSQL that comes with the deployment."""


def files(installation: Installation, image_name: str, folder: str) -> Mapping[str, str]:
    """Name -> text of all files.

    Args:
        installation: the workspace.
        image_name: name of its image.
        folder: in which the files are written.
    """
    written = {
        "compose.yaml": as_yaml(_compose(installation, image_name, folder)),
        "dagster.yaml": installation.dagster_settings(),
        "workspace.yaml": installation.code_locations(_CODE),
        **image.files(installation),
        "README.md": "\n".join(_readme(installation, folder)) + "\n",
    }
    if installation.database.deployed:
        written["databases.sql"] = f"CREATE DATABASE {DAGSTER_DATABASE} OWNER {USER};\n"
    return written


def _compose(installation: Installation, image_name: str, folder: str) -> dict[str, Any]:
    processes = installation.processes(ANYWHERE, ANYWHERE)  # each container has a network of its own
    services = {one.name: _service(installation, one, image_name) for one in processes}
    services["supervisor"] |= {
        "build": {
            "context": str(installation.opened.root),
            "dockerfile": f"{folder}/Dockerfile",
            "additional_contexts": {"deployment": folder},
        }
    }
    for name in ("webserver", "daemon"):
        services[name]["depends_on"] = services[name].get("depends_on", {}) | {_CODE: {"condition": "service_healthy"}}
    document: dict[str, Any] = {"name": installation.name, "services": services}
    if installation.database.deployed:
        services[_POSTGRES] = _postgres()
        document["volumes"] = {"database": {}}
        document["secrets"] = {PASSWORD: {"environment": PASSWORD}}
    for path in installation.secret_files:
        document.setdefault("secrets", {})[Path(path).name] = {"file": path}
    return document


def _service(installation: Installation, process: Process, image_name: str) -> dict[str, Any]:
    home = installation.dagster_home
    shared = [f"{_here(installation, path)}:{path}" for path in installation.folders]
    config = [f"./{name}:{home / name}:ro" for name in ("dagster.yaml", "workspace.yaml")]
    service: dict[str, Any] = {
        "image": image_name,
        "command": [_literal(word) for word in process.command],
        "working_dir": str(installation.root),
        "environment": {
            **{name: _literal(text) for name, text in installation.variables.items()},
            "DAGSTER_HOME": str(home),
            **{name: f"${{{name}:?a secret: set it in the environment or in .env}}" for name in installation.secrets},
        },
        "volumes": [*shared, *config],
        "restart": "unless-stopped",
        "init": True,
        "stop_grace_period": f"{int(GRACE_SECONDS) + 30}s",
        "security_opt": ["no-new-privileges:true"],
        "cap_drop": ["ALL"],
        "healthcheck": {
            "test": ["CMD", *map(_literal, process.probe)],
            "interval": "60s",
            "timeout": "30s",
            "retries": 3,
            "start_period": "120s",
        },
    }
    if process.port is not None and process.name != _CODE:
        service["ports"] = [f"{installation.listen}:{process.port}:{process.port}"]
    if installation.database.deployed:
        service["depends_on"] = {_POSTGRES: {"condition": "service_healthy"}}
    if installation.secret_files:
        service["secrets"] = [{"source": Path(path).name, "target": path} for path in installation.secret_files]
    return service


def _postgres() -> dict[str, Any]:
    return {
        "image": POSTGRES_IMAGE,
        "environment": {
            "POSTGRES_USER": USER,
            "POSTGRES_DB": CONTROL_DATABASE,
            "POSTGRES_PASSWORD_FILE": f"/run/secrets/{PASSWORD}",
        },
        "secrets": [PASSWORD],
        "volumes": [
            "database:/var/lib/postgresql/data",
            "./databases.sql:/docker-entrypoint-initdb.d/databases.sql:ro",
        ],
        "restart": "unless-stopped",
        "security_opt": ["no-new-privileges:true"],
        "healthcheck": {
            "test": ["CMD", "pg_isready", "-U", USER, "-d", CONTROL_DATABASE],
            "interval": "5s",
            "timeout": "5s",
            "retries": 10,
        },
    }


def _literal(text: str) -> str:
    """A text in which Compose replaces nothing."""
    return text.replace("$", "$$")


def _here(installation: Installation, path: Path) -> Path:
    """(folder in a container) -> the folder on this machine."""
    root = installation.root
    return installation.opened.root / path.relative_to(root) if path.is_relative_to(root) else path


def _readme(installation: Installation, folder: str) -> Iterable[str]:
    compose = f"docker compose -f {shlex.quote(folder + '/compose.yaml')}"
    yield f"# {installation.name} by Compose"
    yield ""
    yield "Written by `floodmark deploy compose`. Secrets are read from the environment, or from a file `.env` in this folder that only you can read:"
    yield ""
    yield from (f"- `{name}`" for name in installation.secrets)
    yield ""
    yield f"The containers run as user {image.USER_ID}, who must own the shared folders:"
    yield ""
    yield "```console"
    shared = " ".join(shlex.quote(str(_here(installation, path))) for path in installation.folders)
    yield f"$ mkdir -p {shared} && sudo chown -R {image.USER_ID} {shared}"
    yield f"$ {compose} up --build --detach --wait"
    yield f"$ {compose} exec supervisor floodmark start --all --environment {installation.opened.environment}"
    yield "```"
    yield ""
    yield f"Dagster and the page of streams listen on {installation.listen}: {', '.join(f'http://{installation.listen}:{one.port}' for one in installation.processes() if one.port and one.name != _CODE)}."
    if not installation.database.deployed:
        yield ""
        yield f"PostgreSQL at `{installation.database.host}` needs two databases of `{installation.database.user}`: `{installation.database.name}` and `{DAGSTER_DATABASE}`."
