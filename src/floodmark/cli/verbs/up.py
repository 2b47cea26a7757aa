"""``floodmark up``: Dagster with the workspace's assets, on this machine, until Ctrl-C."""

# ruff: noqa: PLC0415 - modules that are slow to import are imported on first use

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from floodmark.cli.shell import session
from floodmark.cli.shell.console import Console
from floodmark.cli.shell.invocation import Invocation, pass_invocation, shared
from floodmark.cli.shell.loading import LoadedWorkspace, open_workspace
from floodmark.cli.shell.signals import stopping
from floodmark.cli.shell.store import fleet, known, serving_options, supervisor
from floodmark.core.errors import ExecutionError, FloodmarkError, SetupError
from floodmark.lake.folder.paths import Lake

if TYPE_CHECKING:
    import psutil

_FIRST_PAGE_SECONDS = 120
_POLL_SECONDS = 0.2
_GRACE_SECONDS = 20
_WATCH_SECONDS = 5
_RELOAD_SECONDS = 30
"""Time until the next check of the definitions after a reload, which takes a while."""
_UNREACHABLE = "DagsterUserCodeUnreachableError"


@click.command()
@click.option(
    "--host", default="127.0.0.1", show_default=True, help="Address to listen on. There is no login: keep it local."
)
@click.option(
    "--port", default=session.PORT, show_default=True, type=click.IntRange(1, 65535), help="Port to listen on."
)
@click.option(
    "--state", metavar="FOLDER", help="Folder of Dagster's own state. Default: .floodmark/dagster in the workspace."
)
@click.option("--supervise/--no-supervise", default=True, show_default=True, help="Also run all started streams.")
@serving_options
@shared
@pass_invocation
def up(
    invocation: Invocation,
    *,
    host: str,
    port: int,
    state: str | None,
    supervise: bool,
    metrics_host: str,
    metrics_port: int | None,
) -> None:
    """Run Dagster with this workspace's assets, and all started streams. Ctrl-C stops both.

    Streams stop at a micro-batch boundary, and resume with the next ``up`` or ``supervise``.
    """
    console = Console(as_json=invocation.json)
    opened = open_workspace(invocation)
    console.lake(opened.lake, opened.environment)
    root = opened.root
    home = Path(state).absolute() if state else root / ".floodmark" / "dagster"
    _check_installed(root)
    killed = session.end_killed(home, console)
    _check_port(host, port)
    _settings(home)
    if killed:
        _give_up_runs(home, console)
    environment = {
        "DAGSTER_HOME": str(home),
        "FLOODMARK_ENVIRONMENT": opened.environment,
        **({"FLOODMARK_LAKE": opened.lake} if invocation.lake else {}),
    }
    log, loaded = home / "dagster.log", _Loaded(Lake.of(opened.workspace.settings))
    command = [sys.executable, "-m", "dagster", "dev", "-w", "workspace.yaml", "-h", host, "-p", str(port)]
    with (
        stopping(console, "Dagster and the streams have stopped") as stop,
        _supervising(opened, console, metrics_host, metrics_port, stop, wanted=supervise),
        _running(command, root, environment, log) as process,
    ):
        session.record(home, process.pid, f"http://{host}:{port}")
        began = time.monotonic()
        if not _wait_for_page(f"http://{host}:{port}/server_info", process, stop):
            if stop.is_set():
                return
            raise _failed(log, process)
        console.say(f"Dagster is at http://{host}:{port} ({time.monotonic() - began:.1f} s); Ctrl-C stops it")
        _say_streams(opened, f"http://{host}:{port}", console)
        console.note(f"its log: {log}")
        console.document({"lake": opened.lake, "url": f"http://{host}:{port}", "log": str(log)})
        sys.stdout.flush()
        watched, patience, failures = time.monotonic(), _WATCH_SECONDS, set[str]()
        while not stop.is_set() and process.poll() is None:
            stop.wait(_POLL_SECONDS)
            if time.monotonic() - watched > patience:
                url = f"http://{host}:{port}/graphql"
                reloading = _revive(url, process, console, failures) or loaded.renew(url, console)
                watched, patience = time.monotonic(), _RELOAD_SECONDS if reloading else _WATCH_SECONDS
        if not stop.is_set():
            raise _failed(log, process)
    session.forget(home)
    console.say("stopped")


@contextmanager
def _supervising(
    opened: LoadedWorkspace, console: Console, host: str, port: int | None, stop: threading.Event, *, wanted: bool
) -> Iterator[None]:
    """Run a supervisor in a thread, and serve pages and metrics of streams, if ``wanted``.

    The supervisor waits while another one is at work; its streams stop when the context ends. If it fails, it sets ``stop``, and its exception is raised here.

    Raises:
        LifecycleError: LIFECYCLE-305, the folder of packages and logs was removed.
    """
    if not wanted:
        yield
        return
    from floodmark.control.processes.supervisor import LEASE
    from floodmark.control.serving.server import serving

    streams, over = fleet(opened, console.note), threading.Event()
    if streams.supervised:
        console.note(f"streams: supervised by {streams.store.holder(LEASE)} already; when that one ends, here")
    own, failures = supervisor(opened, streams, console.note), list[BaseException]()

    def run() -> None:
        try:
            own.stand_by(over)
        except BaseException as error:  # noqa: BLE001 - raised again by the main thread
            failures.append(error)
            stop.set()

    thread = threading.Thread(target=run)
    thread.start()
    try:
        with serving(streams.store, host, port, console.note):
            yield
    finally:
        over.set()
        thread.join()
    if failures:
        raise failures[0]


def _say_streams(opened: LoadedWorkspace, url: str, console: Console) -> None:
    """Print where all streams can be started, if none was."""
    here = known(opened, console.note)
    if here is None and opened.workspace.streams and (location := _location(opened.root)):
        console.say(f"no stream runs yet; start all: {url}/locations/{location}/jobs/start/playground, then Launch run")
        console.say("  or in a terminal: floodmark start --all")


def _location(root: Path) -> str:
    """The name that Dagster gives to the workspace's definitions; empty if ``workspace.yaml`` is another than floodmark's."""
    import yaml  # type: ignore[import-untyped]  # its stubs are a package of their own

    with suppress(yaml.YAMLError, KeyError, TypeError, IndexError):
        module = yaml.safe_load((root / "workspace.yaml").read_text("utf-8"))["load_from"][0]["python_module"]
        return str(module.get("location_name") or module["module_name"])
    return ""


def _check_installed(root: Path) -> None:
    """Check that Dagster's packages are installed, and that the workspace has a ``workspace.yaml``.

    Raises:
        SetupError: SETUP-030, a package is missing; SETUP-031, there is no ``workspace.yaml``.
    """
    missing = [name for name in ("dagster", "dagster_webserver", "psutil") if find_spec(name) is None]
    if missing:
        fix = "Install them: pip install 'floodmark[dagster]'"
        raise SetupError(
            "floodmark up", "Dagster and its web server", f"no {', '.join(missing)}", fix, code="SETUP-030"
        )
    if not (root / "workspace.yaml").is_file():
        fix = "Write one: load_from: [{python_module: {module_name: definitions.defs, working_directory: .}}]"
        raise SetupError(f"workspace {root}", "a workspace.yaml, which Dagster reads", "none", fix, code="SETUP-031")


def _check_port(host: str, port: int) -> None:
    """Check that no process listens on the port.

    Raises:
        SetupError: SETUP-032, the port is taken.
    """
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            fix = f"Stop what listens there, or choose another port: floodmark up --port {port + 1}"
            got = f"{error}{session.listener(port)}"
            raise SetupError("floodmark up", f"{host}:{port} to be free", got, fix, code="SETUP-032") from error


def _settings(home: Path) -> None:
    """Write Dagster's settings, unless the file exists."""
    home.mkdir(parents=True, exist_ok=True)
    file = home / "dagster.yaml"
    if not file.exists():
        file.write_text((files("floodmark.orchestration") / "dagster.yaml").read_text("utf-8"), "utf-8")


def _give_up_runs(home: Path, console: Console) -> None:
    """End the runs that a killed `up` has left, which would hold slots of the queue for minutes."""
    command = [sys.executable, "-m", "floodmark.orchestration.lost_runs", str(home)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:  # Dagster's monitoring ends the runs later
        console.note(f"runs that were killed hold their places for a while: {done.stderr.strip().splitlines()[-1]}")
    elif jobs := done.stdout.split():
        console.note(f"runs that were killed with an earlier `floodmark up` have failed: {', '.join(jobs)}")


@contextmanager
def _running(
    command: list[str], root: Path, environment: dict[str, str], log: Path
) -> Iterator[subprocess.Popen[bytes]]:
    """Run Dagster in a session of its own. When the context ends, no process of that session is left.

    The caller handles SIGINT and SIGTERM (``stopping``), so both signals have their default action in Dagster, even if a script has started
    this process in its background with SIGINT ignored. A ``preexec_fn`` would run between fork and exec, where another thread's lock may be held.
    """
    with log.open("ab") as out:
        process = subprocess.Popen(
            command,
            cwd=root,
            env=os.environ | environment,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        yield process
    finally:
        _stop(process)


def _stop(process: subprocess.Popen[bytes]) -> None:
    """Interrupt Dagster, wait up to 20 s, then end all processes of its session: runs and their Java too. A second Ctrl-C ends the wait alone."""
    if process.poll() is None:
        process.send_signal(signal.SIGINT)
        with suppress(subprocess.TimeoutExpired, KeyboardInterrupt):
            process.wait(_GRACE_SECONDS)
    session.end(process.pid)
    process.wait()


def _wait_for_page(url: str, process: subprocess.Popen[bytes], stop: threading.Event) -> bool:
    """True once the web server answers; False if Dagster ends first, if two minutes pass, or if ``stop`` is set."""
    deadline = time.monotonic() + _FIRST_PAGE_SECONDS
    while process.poll() is None and time.monotonic() < deadline and not stop.is_set():
        try:
            with urllib.request.urlopen(url, timeout=2):  # noqa: S310 - our own server
                return True
        except (urllib.error.URLError, OSError):
            stop.wait(_POLL_SECONDS)
    return False


def _revive(url: str, process: subprocess.Popen[bytes], console: Console, failures: set[str]) -> bool:
    """Reload the definitions if the process that serves them has died, which Dagster itself does not. Print why definitions do not load.

    Args:
        url: address of Dagster's GraphQL.
        process: Dagster.
        console: prints the notes.
        failures: reasons why definitions do not load that were printed already; new reasons are added.

    Returns:
        True if a reload was requested.
    """
    import psutil

    try:
        served = any(_serves_code(one) for one in psutil.Process(process.pid).children(recursive=True))
        locations = _ask(
            url,
            "{ workspaceOrError { ... on Workspace { locationEntries { locationOrLoadError { "
            "... on PythonError { className message errorChain { error { message } } } } } } } }",
        )["workspaceOrError"].get("locationEntries", [])
        errors = [error for location in locations if (error := location["locationOrLoadError"])]
        lost = any(error["className"] == _UNREACHABLE for error in errors)
        for error in errors:
            if error["className"] != _UNREACHABLE and (reason := _root_cause(error)) not in failures:
                failures.add(reason)
                console.note(f"the definitions do not load: {reason}")
                console.note("  mend them, then reload them in Dagster: Deployment, Reload all")
        if not served or lost:
            console.note("the process that serves the definitions has died; loading them again")
            _ask(url, "mutation { reloadWorkspace { __typename } }")
            return True
    except (urllib.error.URLError, OSError, KeyError, ValueError, psutil.NoSuchProcess) as error:
        console.note(f"Dagster does not answer: {error}")  # Dagster may be stopping; the next check decides
    return False


class _Loaded:
    """Which operators had an experiment when Dagster loaded the definitions, which have assets for those alone.

    Args:
        lake: of the experiments.
    """

    def __init__(self, lake: Lake) -> None:
        self._lake = lake
        self._tried = self._look() or frozenset[str]()

    def renew(self, url: str, console: Console) -> bool:
        """Reload the definitions if other operators have an experiment now. Returns True if a reload was requested."""
        tried = self._look()
        if tried is None or tried == self._tried:
            return False
        try:
            _ask(url, "mutation { reloadWorkspace { __typename } }")
        except (urllib.error.URLError, OSError, ValueError) as error:
            console.note(f"Dagster does not answer: {error}")  # the next check asks again
            return False
        changed = ", ".join(sorted(tried ^ self._tried))
        console.note(f"loaded the definitions again, for the assets of experiments: {changed}")
        self._tried = tried
        return True

    def _look(self) -> frozenset[str] | None:
        """None if the lake cannot be read now."""
        from floodmark.lake.restore import experiments

        try:
            return experiments.operators(self._lake)
        except (FloodmarkError, OSError, ValueError):
            return None


def _root_cause(error: dict[str, Any]) -> str:
    """The message of the root cause of a Python error that Dagster reports."""
    messages = [error["message"], *(link["error"]["message"] for link in error["errorChain"])]
    return str(messages[-1]).strip()


def _serves_code(process: psutil.Process) -> bool:
    import psutil

    try:
        return {"api", "grpc"} <= set(process.cmdline()) and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def _ask(url: str, query: str) -> Any:
    request = urllib.request.Request(url, json.dumps({"query": query}).encode(), {"Content-Type": "application/json"})  # noqa: S310 - our own server
    with urllib.request.urlopen(request, timeout=30) as answer:  # noqa: S310 - the same
        return json.load(answer)["data"]


def _failed(log: Path, process: subprocess.Popen[bytes]) -> ExecutionError:
    lines = log.read_text("utf-8", "replace").splitlines()[-5:]
    ended = "no answer" if process.poll() is None else f"exit status {process.returncode}"
    fix = f"Read {log}, and try: dagster definitions validate -w workspace.yaml"
    return ExecutionError("floodmark up", "Dagster to run", f"{ended}: {' | '.join(lines)}", fix, code="EXECUTION-030")
