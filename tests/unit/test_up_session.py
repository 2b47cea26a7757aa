"""What a killed `floodmark up` has left is found by the next one, and stopped; one that is at work is left alone."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import psutil
import pytest
import yaml
from dagster._core.definitions.run_request import InstigatorType
from dagster._core.scheduler.instigation import TickStatus

from floodmark.cli.shell import session
from floodmark.cli.shell.console import Console
from floodmark.cli.verbs import up
from floodmark.core.errors import SetupError
from floodmark.core.host import birth

FAMILY = "import subprocess, sys, time; subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)']); print(1, flush=True); time.sleep(60)"


@pytest.fixture
def leader() -> Iterator[int]:
    """The first of two processes of a session of their own."""
    process = subprocess.Popen([sys.executable, "-c", FAMILY], stdout=subprocess.PIPE, start_new_session=True)
    assert process.stdout is not None
    process.stdout.readline()
    yield process.pid
    session.end(process.pid)
    process.wait()


@pytest.fixture
def dagster() -> Iterator[subprocess.Popen[bytes]]:
    """This process in Dagster's place, with a child."""
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    process = subprocess.Popen.__new__(subprocess.Popen)
    process.pid, process.returncode = os.getpid(), 0
    yield process
    child.kill()
    child.wait()


def killed(home: Path) -> None:
    """The `up` of the record is no process any more."""
    about = json.loads((home / "up.json").read_text())
    about["born"]["up"] -= 100
    (home / "up.json").write_text(json.dumps(about))


def test_the_dagster_of_a_killed_up_is_stopped_and_named(leader: int, tmp_path: Path, capsys):
    session.record(tmp_path, leader, "http://127.0.0.1:3000")
    killed(tmp_path)
    assert len(session.members(leader)) == 2
    psutil.Process(leader).kill()  # its child is an orphan then, which listens on
    session.end_killed(tmp_path, Console(as_json=False))
    assert session.members(leader) == []
    assert "was killed; stopping its Dagster: processes " in capsys.readouterr().err
    assert not (tmp_path / "up.json").exists()


def test_an_up_that_is_at_work_is_named_with_the_command_that_stops_it(leader: int, tmp_path: Path):
    session.record(tmp_path, leader, "http://127.0.0.1:3000")
    with pytest.raises(SetupError, match=f"SETUP-060.*kill -INT {os.getpid()}"):
        session.end_killed(tmp_path, Console(as_json=True))
    assert len(session.members(leader)) == 2


def test_processes_older_than_the_record_are_others(leader: int):
    for born in (birth(psutil.Process(leader)), psutil.Process(leader).create_time()):
        assert session.members(leader, born)
        assert session.members(leader, born + 100) == []


def test_a_port_that_is_taken_is_refused_with_the_process_that_listens():
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        with pytest.raises(SetupError, match=f"SETUP-032.*by process {os.getpid()} "):
            up._check_port("127.0.0.1", port)


@pytest.mark.parametrize(("serving", "asked"), [(True, 0), (False, 1)])
def test_definitions_are_loaded_again_only_when_nobody_serves_them(monkeypatch, dagster, serving: bool, asked: int):
    queries = list[str]()

    def ask(_url: str, query: str) -> dict[str, dict[str, list[object]]]:
        queries.append(query)
        return {"workspaceOrError": {"locationEntries": []}}

    monkeypatch.setattr(up, "_ask", ask)
    monkeypatch.setattr(up, "_serves_code", lambda _: serving)
    assert up._revive("", dagster, Console(as_json=True), set()) is bool(asked)
    assert sum("reloadWorkspace" in query for query in queries) == asked


def test_why_the_definitions_do_not_load_is_said_once(monkeypatch, dagster, capsys: pytest.CaptureFixture[str]):
    cause = {"error": {"message": "ModuleNotFoundError: No module named 'pricing'\n"}}
    error = {"className": "DagsterImportError", "message": "Encountered ImportError", "errorChain": [cause]}
    entries = [{"locationOrLoadError": error}, {"locationOrLoadError": {}}]
    monkeypatch.setattr(up, "_ask", lambda *_: {"workspaceOrError": {"locationEntries": entries}})
    monkeypatch.setattr(up, "_serves_code", lambda _: True)
    failures = set[str]()
    for _ in range(2):
        assert not up._revive("", dagster, Console(as_json=False), failures)
    assert (
        capsys.readouterr().err.count("the definitions do not load: ModuleNotFoundError: No module named 'pricing'")
        == 1
    )


def test_a_run_may_take_minutes_to_start(tmp_path: Path):
    """Dagster writes down each partition of each asset before a run starts: 3,650 for a year of ten assets, 30 to 95 ms each."""
    up._settings(tmp_path)
    settings = yaml.safe_load((tmp_path / "dagster.yaml").read_text())
    assert settings["run_monitoring"]["start_timeout_seconds"] >= 0.1 * 3650


def test_a_day_of_looks_of_the_sensors_is_kept(tmp_path: Path):
    """Those that launched nothing: of the sensor `streams` alone 40,000 a week."""
    up._settings(tmp_path)
    with dg.DagsterInstance.from_config(str(tmp_path)) as instance:
        assert instance.get_tick_retention_settings(InstigatorType.SENSOR)[TickStatus.SKIPPED] == 1
