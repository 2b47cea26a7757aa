"""An Airflow of the tests' own on the loopback: scheduler, processor of DAG files, triggerer and API server, in a folder that is thrown away."""

from __future__ import annotations

import json
import os
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import psutil
import pytest

T = TypeVar("T")
SECONDS = 300
"""For one step on a busy machine."""
PARTS = ("api-server", "dag-processor", "scheduler", "triggerer")
FLOODMARK = os.environ.get("FLOODMARK", str(Path(__file__).parents[2] / ".venv" / "bin" / "floodmark"))
"""The program of the workspace's environment."""
ORDERS = "ordered_at,order_id,country,items,cents,voucher"
DAYS = ("2025-03-01", "2025-03-02", "2025-03-03", "2025-03-04")


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def settings(home: Path, port: int) -> dict[str, str]:
    """The variables of an Airflow in a folder."""
    url = f"http://127.0.0.1:{port}"
    return {
        "AIRFLOW_HOME": str(home),
        "AIRFLOW__API__BASE_URL": url,
        "AIRFLOW__API__HOST": "127.0.0.1",
        "AIRFLOW__API__PORT": str(port),
        "AIRFLOW__API__WORKERS": "1",
        "AIRFLOW__API__SECRET_KEY": secrets.token_hex(),
        "AIRFLOW__API_AUTH__JWT_SECRET": secrets.token_hex(32),
        "AIRFLOW__CORE__DAGS_FOLDER": str(home / "dags"),
        "AIRFLOW__CORE__EXECUTION_API_SERVER_URL": f"{url}/execution/",
        "AIRFLOW__CORE__EXECUTOR": "LocalExecutor",
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__CORE__PARALLELISM": "2",
        "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_ALL_ADMINS": "True",
        "AIRFLOW__DAG_PROCESSOR__REFRESH_INTERVAL": "2",
        "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": f"sqlite:///{home}/airflow.db",
        # a scheduler that comes after a killed one looks for its tasks as often, once it holds it for dead; by default every 300 s, after 30
        "AIRFLOW__SCHEDULER__ORPHANED_TASKS_CHECK_INTERVAL": "3",
        "AIRFLOW__SCHEDULER__SCHEDULER_HEALTH_CHECK_THRESHOLD": "10",
        "AIRFLOW__SCHEDULER__SCHEDULER_HEARTBEAT_SEC": "2",
        "AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT": "10",
        "AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT_DETECTION_INTERVAL": "2",
        "AIRFLOW__TRIGGERER__DEFAULT_CAPACITY": "10",
    }


@dataclass
class Airflow:
    """A running Airflow."""

    home: Path
    port: int
    environment: dict[str, str]
    parts: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    def start(self, part: str) -> None:
        with (self.home / f"{part}.log").open("ab") as log:
            self.parts[part] = subprocess.Popen(
                [sys.executable, "-m", "airflow", part],
                env=os.environ | self.environment,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def kill(self, part: str) -> None:
        """SIGKILL to a part with all of Airflow's processes under it: a scheduler's workers, and the tasks in them. Verbs live on."""
        process = self.parts.pop(part)
        for one in [psutil.Process(process.pid), *_airflows(psutil.Process(process.pid))]:
            with suppress(psutil.NoSuchProcess):
                one.kill()
        process.wait()

    def ask(self, path: str, body: Any = None, method: str | None = None) -> Any:
        """What the API says."""
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}/api/v2/{path}", data, {"Content-Type": "application/json"}, method=method
        )
        request.add_header("Authorization", f"Bearer {self._token}")
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as error:
            raise AssertionError(f"{path}: {error.code} {error.read().decode()}") from error

    @property
    def _token(self) -> str:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/auth/token", timeout=60) as answer:
            return str(json.load(answer)["access_token"])

    def launch(self, dag: str, **body: Any) -> str:
        """Start a run of a DAG; its id."""
        until(lambda: self._there(dag))
        self.ask(f"dags/{dag}", {"is_paused": False}, "PATCH")
        run = self.ask(f"dags/{dag}/dagRuns", {"logical_date": None, **body})
        return str(run["dag_run_id"])

    def _there(self, dag: str) -> bool:
        errors = self.ask("importErrors")["import_errors"]
        assert not errors, errors
        try:
            return bool(self.ask(f"dags/{dag}"))
        except AssertionError:
            return False

    def state(self, dag: str, run: str) -> str:
        return str(self.ask(f"dags/{dag}/dagRuns/{run}")["state"])

    def ended(self, dag: str, run: str) -> str:
        """The state of a run once it has ended."""
        found: str = until(lambda: state if (state := self.state(dag, run)) in {"success", "failed"} else None)
        return found

    def events(self, asset: str) -> list[str]:
        """The partition keys of an asset's events, oldest first."""
        (found,) = [one for one in self.ask("assets?limit=100")["assets"] if one["name"] == asset]
        listed = self.ask(f"assets/events?asset_id={found['id']}&order_by=timestamp&limit=100")["asset_events"]
        return [event["partition_key"] for event in listed if event["partition_key"]]

    def log(self, dag: str, run: str, task: str, attempt: int = 1) -> str:
        return json.dumps(self.ask(f"dags/{dag}/dagRuns/{run}/taskInstances/{task}/logs/{attempt}?full_content=true"))


def _airflows(parent: psutil.Process) -> Iterator[psutil.Process]:
    """The processes under one, without those of verbs, which a shell begins."""
    for one in parent.children():
        if one.name() != "sh":
            yield one
            yield from _airflows(one)


def until(look: Callable[[], T | None], seconds: float = SECONDS) -> T:
    """What a look says once it says something."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if said := look():
            return said
        time.sleep(0.5)
    raise AssertionError(f"not within {seconds} s")


@pytest.fixture(scope="session")
def airflow(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Airflow]:
    home, port = Path(tempfile.mkdtemp(prefix="floodmark-airflow-")), _free_port()
    (home / "dags").mkdir()
    running = Airflow(home, port, settings(home, port))
    migrated = subprocess.run(
        [sys.executable, "-m", "airflow", "db", "migrate"],
        env=os.environ | running.environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert migrated.returncode == 0, migrated.stderr[-3000:]
    for part in PARTS:
        running.start(part)
    try:
        until(lambda: _answers(running))
        yield running
    finally:
        for part in list(running.parts):
            running.kill(part)
        shutil.rmtree(home, ignore_errors=True)


def _answers(running: Airflow) -> bool:
    dead = [part for part, process in running.parts.items() if process.poll() is not None]
    assert not dead, [(part, (running.home / f"{part}.log").read_text()[-3000:]) for part in dead]
    try:
        return bool(running.ask("monitor/health"))
    except (OSError, AssertionError):
        return False


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A workspace as ``init`` makes it, with orders of four days."""
    folder = tmp_path_factory.mktemp("made")
    subprocess.run([FLOODMARK, "init", "shop"], cwd=folder, check=True, capture_output=True)
    assets, inbox = folder / "shop" / "assets" / "orders.py", folder / "shop" / "inbox" / "orders"
    text = assets.read_text()
    assert 'end="2025-03-02"' in text
    assets.write_text(text.replace('end="2025-03-02"', 'end="2025-03-04"'))
    for file in inbox.iterdir():
        file.unlink()
    for day in DAYS:
        lines = [
            f"{day}T{hour:02}:{n:02}:00Z,{hour}{n:02},{'DE' if n % 2 else 'FR'},1,{n * 100},"
            for hour in range(3)
            for n in range(20)
        ]
        (inbox / f"orders_{day}_00.csv").write_text("\n".join([ORDERS, *lines]) + "\n")
    return folder / "shop"


@pytest.fixture
def shop(made: Path, tmp_path: Path) -> Path:
    """A workspace of the test's own."""
    return shutil.copytree(made, tmp_path / "shop")
