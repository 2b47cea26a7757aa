"""The processes of a deployment, started as its files say: each takes its command line and answers its probe, without a container or a cluster."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml
from click.testing import Result
from ports import free_port
from postgres import data_folder, database, serving

from floodmark.cli.deployment import image, installation
from floodmark.cli.shell import session
from floodmark.control.serving.server import PORT

PATIENCE_SECONDS = 240
ORDER = ("code", "webserver", "daemon", "supervisor")
"""Processes in the order of their dependencies."""


@dataclass(frozen=True)
class Started:
    """A process of a deployment."""

    command: list[str]
    environment: dict[str, str]
    probe: list[str]


def of_compose(folder: Path) -> dict[str, Started]:
    """Service -> what Compose starts."""
    services = yaml.safe_load((folder / "compose.yaml").read_text("utf-8"))["services"]
    assert set(services) == set(ORDER)
    return {
        name: Started(service["command"], service["environment"], service["healthcheck"]["test"][1:])
        for name, service in services.items()
    }


def of_kubernetes(folder: Path) -> dict[str, Started]:
    """Container -> what Kubernetes starts."""
    started = {}
    for name in ("dagster", "supervisor"):
        workload = next(yaml.safe_load_all((folder / f"{name}.yaml").read_text("utf-8")))
        for container in workload["spec"]["template"]["spec"]["containers"]:
            environment = {one["name"]: one["value"] for one in container["env"] if "value" in one}
            probe: dict[str, Any] = container["livenessProbe"]["exec"]
            started[container["name"]] = Started(container["command"], environment, probe["command"])
    assert set(started) == set(ORDER)
    return started


def configuration(folder: Path, kind: str) -> dict[str, str]:
    """Name -> text of the files in Dagster's home."""
    names = ("dagster.yaml", "workspace.yaml")
    if kind == "compose":
        return {name: (folder / name).read_text("utf-8") for name in names}
    data: dict[str, str] = yaml.safe_load((folder / "config.yaml").read_text("utf-8"))["data"]
    return {name: data[name] for name in names}


@pytest.mark.soak
@pytest.mark.parametrize("kind", ["compose", "kubernetes"])
def test_each_process_takes_its_command_line_and_answers_its_probe(
    kind: str, shop: Path, verb: Callable[..., Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    with data_folder() as data, serving(data) as server, ExitStack() as stack:
        monkeypatch.setenv("FLOODMARK_ENGINE", "embedded")
        monkeypatch.setenv("FLOODMARK_CONTROL", database(server, "control"))
        database(server, installation.DAGSTER_DATABASE)
        folder = shop / "deployment"
        assert verb("deploy", kind, str(folder)).exit_code == 0
        ports = {port: free_port() for port in (PORT, session.PORT, installation.CODE_PORT)}

        def here(text: str) -> str:
            """A text of the deployment with this machine's folder and free ports; a service's name is this machine's address."""
            text = re.sub(r"\b\d{4}\b", lambda found: str(ports.get(int(found[0]), found[0])), text)
            text = re.sub(rf"{image.FOLDER}(?![\w.])", str(shop), text)
            return text.replace("host: code", f"host: {installation.LOOPBACK}")

        processes = of_compose(folder) if kind == "compose" else of_kubernetes(folder)
        dagster_home = Path(here(processes["daemon"].environment["DAGSTER_HOME"]))
        dagster_home.mkdir(parents=True)
        for name, text in configuration(folder, kind).items():
            (dagster_home / name).write_text(here(text))
        path = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
        for name in ORDER:
            process = processes[name]
            environment = {**os.environ, **{key: here(text) for key, text in process.environment.items()}, "PATH": path}
            environment["HOME"] = os.environ["HOME"]
            begun = stack.enter_context(running([here(word) for word in process.command], environment, shop))
            answers([here(word) for word in process.probe], environment, begun)
        start = ["floodmark", "start", "--all", "--environment", "prod"]
        subprocess.run(start, env=environment, cwd=shop, check=True)
        until(lambda: "running" in said(["floodmark", "status", "--environment", "prod"], environment, shop))


@dataclass(frozen=True)
class Running:
    """A process that was started in a folder, and the file with its output."""

    process: subprocess.Popen[bytes]
    folder: Path
    output: Path


@contextmanager
def running(command: list[str], environment: dict[str, str], folder: Path) -> Iterator[Running]:
    """A process, and all that it has started, until the end of the block."""
    output = folder.parent / f"{Path(command[0]).name}-{command[1]}.txt"
    with output.open("wb") as lines:
        process = subprocess.Popen(command, env=environment, cwd=folder, stdout=lines, stderr=subprocess.STDOUT)
    try:
        yield Running(process, folder, output)
    finally:
        tree = psutil.Process(process.pid).children(recursive=True) if process.poll() is None else []
        process.terminate()
        process.wait(PATIENCE_SECONDS)
        for child in tree:
            with suppress(psutil.NoSuchProcess):
                child.kill()


def answers(probe: list[str], environment: dict[str, str], begun: Running) -> None:
    """Wait until a probe of a process succeeds."""

    def succeeds() -> bool:
        assert begun.process.poll() is None, begun.output.read_text()
        asked = subprocess.run(probe, env=environment, cwd=begun.folder, capture_output=True, check=False)
        return not asked.returncode

    until(succeeds)


def said(command: list[str], environment: dict[str, str], folder: Path) -> str:
    """What a program printed."""
    return subprocess.run(command, env=environment, cwd=folder, capture_output=True, text=True, check=True).stdout


def until(seen: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE_SECONDS
    while not seen():
        assert time.monotonic() < end
        time.sleep(0.2)
