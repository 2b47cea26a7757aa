"""What a deployment of any kind says of a workspace: processes, variables, secrets by reference, folders, the database. Each kind writes them its own way."""

from __future__ import annotations

import os
import re
import sys
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, fields, is_dataclass
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path
from typing import Any

import sqlalchemy as sa
import yaml  # type: ignore[import-untyped]  # its stubs are a package of their own

from floodmark.cli.shell.loading import VARIABLES, LoadedWorkspace
from floodmark.cli.shell.session import PORT as DAGSTER_PORT
from floodmark.control.processes.package import Data, home
from floodmark.control.serving.server import LIVE
from floodmark.control.serving.server import PORT as PAGES_PORT
from floodmark.core.errors import SetupError
from floodmark.spec.values.secret import Env, SecretFile

ENVIRONMENT = f"{VARIABLES}ENVIRONMENT"
"""Variable with the environment that Dagster acts in."""
CONTROL = f"{VARIABLES}CONTROL"
"""Variable with the URL of the control store, which ``resources/settings.py`` reads."""
SPARK = f"{VARIABLES}SPARK"
"""Variable with further Spark settings as JSON, which ``resources/settings.py`` reads."""
PASSWORD = "PGPASSWORD"  # noqa: S105 - the name of a variable
"""Variable with the password of PostgreSQL, which its own client library reads."""
USER, CONTROL_DATABASE, DAGSTER_DATABASE = "floodmark", "floodmark", "dagster"
POSTGRES_PORT = 5432
CODE_PORT = 4000
"""Port at which definitions are served to Dagster's web server and daemon."""
LOOPBACK, ANYWHERE = "127.0.0.1", "0.0.0.0"  # noqa: S104 - named, not bound
_BUCKET_VARIABLES = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")
_OWN = ("CACHE", "CONTROL_STORE", "CRASH_AT", "SERVER", "STORE_FILES")
"""Variables of floodmark's own processes on this machine, without their prefix."""


class _Plain(yaml.SafeDumper):  # type: ignore[misc]  # of a package without types
    """Writes no anchors."""

    def ignore_aliases(self, data: object) -> bool:  # noqa: ARG002 - the library's signature
        """Write each part out."""
        return True


@dataclass(frozen=True, slots=True, kw_only=True)
class Process:
    """A process of a deployment.

    Args:
        name: of the process.
        command: its command line.
        port: at which it listens; None for a process that does not.
        probe: command that succeeds while the process is well.
    """

    name: str
    command: tuple[str, ...]
    port: int | None
    probe: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Database:
    """The PostgreSQL of the control store.

    Args:
        host: its address, or the folder of its socket; empty for the default socket.
        port: its port.
        user: who connects.
        name: of the database.
        deployed: True if the deployment brings PostgreSQL along.
    """

    host: str
    port: int
    user: str
    name: str
    deployed: bool

    @property
    def is_local(self) -> bool:
        """True if it is reached by a socket of this machine, which needs no password."""
        return self.host.startswith("/") or not self.host

    def dagster(self) -> dict[str, Any]:
        """Dagster's storage in the same server, in a database of its own."""
        if self.is_local:
            folder = f"?host={self.host}" if self.host else ""
            return {"postgres_url": f"postgresql://{self.user}@/{DAGSTER_DATABASE}{folder}"}
        address = {"hostname": self.host, "port": self.port, "db_name": DAGSTER_DATABASE}
        return {"postgres_db": {"username": self.user, "password": {"env": PASSWORD}, **address}}


@dataclass(frozen=True, slots=True, kw_only=True)
class Installation:
    """A workspace as it is deployed.

    Args:
        opened: the workspace, loaded under the variables of the deployment.
        root: folder of the workspace where it is deployed.
        name: name of the project, of letters, digits and dashes.
        database: of the control store.
        variables: environment variables of every process.
        listen: address of what is shown to people.
        python: ``python`` where it is deployed.
        bin: folder of programs, with a slash; empty where they are on the path.
    """

    opened: LoadedWorkspace
    root: Path
    name: str
    database: Database
    variables: Mapping[str, str]
    listen: str
    python: str = "python"
    bin: str = ""

    @property
    def is_spark(self) -> bool:
        """True if the engine is Spark, which needs Java."""
        return self.opened.workspace.settings.engine == "spark"

    @property
    def dagster_home(self) -> Path:
        """Folder of Dagster's own state."""
        return home(self.root).parent / "dagster"

    @property
    def secrets(self) -> tuple[str, ...]:
        """Variables that hold secrets, by name."""
        workspace = self.opened.workspace
        names = {one.name for one in _references((workspace.settings, workspace.alerts)) if isinstance(one, Env)}
        store = workspace.settings.store
        if "://" in self.opened.lake and (store is None or store.access_key is None):
            names |= set(_BUCKET_VARIABLES)
        return tuple(sorted(names | (set() if self.database.is_local else {PASSWORD})))

    @property
    def secret_files(self) -> tuple[str, ...]:
        """Absolute paths of files that hold secrets."""
        references = _references((self.opened.workspace.settings, self.opened.workspace.alerts))
        return tuple(sorted({one.path for one in references if isinstance(one, SecretFile)}))

    @property
    def folders(self) -> tuple[Path, ...]:
        """Folders that all processes share where the workspace is deployed, none within another: lakes, inboxes, and packages, logs and Dagster's state."""
        data = Data.of(self.opened.workspace)
        here = {*data.tables, *data.inboxes, self.opened.root / home(Path()).parent}
        moved = sorted(self.deployed(path) for path in here)
        return tuple(path for path in moved if not any(path != other and path.is_relative_to(other) for other in moved))

    def deployed(self, path: Path) -> Path:
        """(path on this machine) -> where it is when deployed: the same path, unless it is in the workspace."""
        root = self.opened.root
        return self.root / path.relative_to(root) if path.is_relative_to(root) else path

    def processes(self, code_host: str = LOOPBACK, listen: str | None = None) -> tuple[Process, ...]:
        """The processes that floodmark and Dagster have.

        Args:
            code_host: address at which definitions are served.
            listen: address of what is shown to people; by default that of the installation.
        """
        address, environment = listen or self.listen, self.opened.environment
        pages = f"http://{_reached(address)}:{PAGES_PORT}{LIVE}"
        web = f"http://{_reached(address)}:{DAGSTER_PORT}/server_info"
        module, folder, _ = code_location(self.opened.root)
        code = ("-h", code_host, "-p", str(CODE_PORT), "-m", module, "-d", str(self.root / folder))
        health = (f"{self.bin}dagster", "api", "grpc-health-check", "-h", _reached(code_host), "-p", str(CODE_PORT))
        served = ("--metrics-host", address, "--metrics-port", str(PAGES_PORT))
        supervise = (f"{self.bin}floodmark", "supervise", "--stand-by", "--environment", environment, *served)
        instance = ("-w", str(self.dagster_home / "workspace.yaml"))
        return (
            Process(name="supervisor", command=supervise, port=PAGES_PORT, probe=self._asks(pages)),
            Process(
                name="code", command=(f"{self.bin}dagster", "code-server", "start", *code), port=CODE_PORT, probe=health
            ),
            Process(
                name="webserver",
                command=(f"{self.bin}dagster-webserver", *instance, "-h", address, "-p", str(DAGSTER_PORT)),
                port=DAGSTER_PORT,
                probe=self._asks(web),
            ),
            Process(
                name="daemon",
                command=(f"{self.bin}dagster-daemon", "run", *instance),
                port=None,
                probe=(f"{self.bin}dagster-daemon", "liveness-check"),
            ),
        )

    def _asks(self, url: str) -> tuple[str, ...]:
        return self.python, "-c", f"import urllib.request; urllib.request.urlopen('{url}', timeout=5)"

    def dagster_settings(self) -> str:
        """The text of ``dagster.yaml``: as ``floodmark up`` writes it, with its storage in PostgreSQL."""
        settings = yaml.safe_load((files("floodmark.orchestration") / "dagster.yaml").read_text("utf-8"))
        return as_yaml({**settings, "storage": {"postgres": self.database.dagster()}})

    def code_locations(self, code_host: str = LOOPBACK) -> str:
        """The text of ``workspace.yaml``, by which Dagster reaches the definitions."""
        *_, name = code_location(self.opened.root)
        server = {"host": code_host, "port": CODE_PORT, "location_name": name}
        return as_yaml({"load_from": [{"grpc_server": server}]})

    def requirements(self) -> tuple[str, ...]:
        """Python packages that the processes need: floodmark with its extras, and what the workspace's ``pyproject.toml`` names."""
        extras = ["dagster", "deploy", *(["spark"] if self.is_spark else [])]
        own = f"floodmark[{','.join(extras)}]=={version('floodmark')}"
        named = _project(self.opened.root).get("dependencies", ())
        return own, *(text for text in named if not re.match(r"floodmark\b(?!-)", text))


def install(
    opened: LoadedWorkspace,
    *,
    root: Path | None,
    database: Database,
    listen: str,
    python: str = "python",
    bin_folder: str = "",
) -> Installation:
    """The installation of a workspace that was loaded under ``variables``.

    Args:
        opened: the workspace.
        root: its folder where it is deployed; None for the same as here.
        database: the one that the deployment would bring along.
        listen: address of what is shown to people.
        python: ``python`` where it is deployed.
        bin_folder: folder of programs where it is deployed, with a slash.

    Raises:
        SetupError: SETUP-100, the control store is not in PostgreSQL; SETUP-101, its URL has a password.
    """
    url = opened.workspace.settings.control
    return Installation(
        opened=opened,
        root=root or opened.root,
        name=project_name(opened.root),
        database=_database(url, database),
        variables={**_own_variables(), ENVIRONMENT: opened.environment, CONTROL: url or ""},
        listen=listen,
        python=python,
        bin=bin_folder,
    )


@contextmanager
def under(variables: Mapping[str, str]) -> Iterator[None]:
    """Load a workspace with the variables that its deployment will have; those that are set on this machine win."""
    added = {name: text for name, text in variables.items() if name not in os.environ}
    os.environ.update(added)
    try:
        yield
    finally:
        for name in added:
            del os.environ[name]


def control_url(database: Database) -> str:
    """The URL of a control store, for SQLAlchemy, without a password."""
    query = {"host": database.host} if database.host.startswith("/") else {}
    host, port = (None, None) if database.is_local else (database.host, database.port)
    return sa.URL.create(
        "postgresql+psycopg", username=database.user, host=host, port=port, database=database.name, query=query
    ).render_as_string()


def project_name(root: Path) -> str:
    """(folder of a workspace) -> the name of its project, as Kubernetes and Compose take names."""
    name = re.sub(r"[^a-z0-9]+", "-", str(_project(root).get("name", root.name)).lower()).strip("-")
    return name[:40].strip("-") or "workspace"


def project_version(root: Path) -> str:
    """(folder of a workspace) -> the version of its project."""
    return str(_project(root).get("version", "latest"))


def code_location(root: Path) -> tuple[str, str, str]:
    """(module, folder, name) of the definitions that Dagster loads, as ``workspace.yaml`` has them.

    Raises:
        SetupError: SETUP-104, the file is missing, or names no module.
    """
    file = root / "workspace.yaml"
    try:
        module = yaml.safe_load(file.read_text("utf-8"))["load_from"][0]["python_module"]
        name = str(module["module_name"])
        return name, str(module.get("working_directory", ".")), str(module.get("location_name", name))
    except (OSError, yaml.YAMLError, KeyError, TypeError, IndexError):
        fix = "Write it: load_from: [{python_module: {module_name: definitions.defs, working_directory: .}}]"
        got = "another one" if file.exists() else "none"
        raise SetupError(str(file), "a module of definitions for Dagster", got, fix, code="SETUP-104") from None


def python_version() -> str:
    """The minor version of this Python, ``3.11``."""
    return f"{sys.version_info.major}.{sys.version_info.minor}"


def as_yaml(document: object) -> str:
    """A document as YAML, in the order of its keys, and written out where a part occurs twice."""
    return str(yaml.dump(document, Dumper=_Plain, sort_keys=False, width=1000, allow_unicode=True))


def _reached(address: str) -> str:
    return LOOPBACK if address == ANYWHERE else address


def _project(root: Path) -> Mapping[str, Any]:
    project = tomllib.loads((root / "pyproject.toml").read_text("utf-8")).get("project", {})
    return project if isinstance(project, dict) else {}


def _own_variables() -> dict[str, str]:
    """Variables of floodmark that are set here, by which the workspace was loaded."""
    own = {f"{VARIABLES}{name}" for name in _OWN}
    return {name: os.environ[name] for name in sorted(os.environ) if name.startswith(VARIABLES) and name not in own}


def _database(url: str | None, deployed: Database) -> Database:
    where = "Settings(control=...)"
    if url is None or not url.startswith("postgresql"):
        fix = (
            f"Let resources/settings.py read {CONTROL}: a field `control: str | None = None` of Variables, and Settings(control=variables.control). "
            f"Deployments set that variable to {control_url(deployed)}"
        )
        got = "SQLite, which serves one machine" if url is None or url.startswith("sqlite") else "another database"
        raise SetupError(where, "a control store in PostgreSQL", got, fix, code="SETUP-100")
    parsed = sa.make_url(url)
    if parsed.password:
        fix = f"Leave it out: PostgreSQL's client reads it from the variable {PASSWORD}, which the deployment takes from a secret."
        raise SetupError(where, "a URL without a password", "one that is written out", fix, code="SETUP-101")
    host = parsed.host or str(parsed.query.get("host", ""))
    return Database(
        host=host,
        port=parsed.port or POSTGRES_PORT,
        user=parsed.username or USER,
        name=parsed.database or CONTROL_DATABASE,
        deployed=deployed.deployed and host == deployed.host,
    )


def _references(value: object) -> Iterator[Env | SecretFile]:
    """References to secrets in declarations."""
    if isinstance(value, Env | SecretFile):
        yield value
    elif isinstance(value, Mapping):
        for part in value.values():
            yield from _references(part)
    elif isinstance(value, tuple | list):
        for part in value:
            yield from _references(part)
    elif is_dataclass(value):
        for field in fields(value):
            yield from _references(getattr(value, field.name))
