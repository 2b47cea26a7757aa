"""The set-up of a clone: what is complete is left alone, what was cut begins again, and what is missing is said."""

from __future__ import annotations

import fcntl
import os
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import bootstrap

LATER = 2_000_000_000


class Clone:
    """A clone with nothing in it, and what its set-up ran and said."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.root, self.venv = root, root / ".venv"
        self.commands: list[str] = []
        self.text = ""
        self.failing = ""
        self.programs = {"uv"}
        for name in bootstrap.REQUIREMENTS:
            (root / name).touch()
            os.utime(root / name, (0, 0))
        (root / "bootstrap.py").touch()
        for name, value in {
            "ROOT": root,
            "VENV": self.venv,
            "PYTHON": str(self.venv / "bin" / "python"),
            "AT_WORK": self.venv / ".at-work",
            "__file__": str(root / "bootstrap.py"),
            "_say": self.say,
        }.items():
            monkeypatch.setattr(bootstrap, name, value)
        monkeypatch.setattr(bootstrap.subprocess, "run", self.run)
        monkeypatch.setattr(
            bootstrap.shutil,
            "which",
            lambda name, path=None: f"/usr/bin/{name}" if name in self.programs else None,
        )
        monkeypatch.setattr(bootstrap.os, "geteuid", lambda: 1000)
        self.free_megabytes(10_000)
        self._patch = monkeypatch

    def say(self, text: str) -> None:
        self.text += text + "\n"

    def run(self, command: Sequence[object], **_: Any) -> SimpleNamespace:
        """No command runs; one that makes an environment leaves a Python there."""
        text = " ".join(map(str, command))
        self.commands.append(text)
        if text.endswith(f"-m venv {self.venv}"):
            (self.venv / "bin").mkdir(parents=True)
            (self.venv / "bin" / "python").touch()
        failed = (self.failing != "" and self.failing in text) or (
            text.endswith("import floodmark") and not self.installs()
        )
        stdout = "https://index.example/simple/\n" if "simple_url" in text else ""
        return SimpleNamespace(returncode=int(failed), stdout=stdout, stderr=b"")

    def free_megabytes(self, free: int) -> None:
        bootstrap.shutil.disk_usage = lambda _: SimpleNamespace(free=free * 1e6)  # type: ignore[assignment]

    def installs(self) -> list[str]:
        return [command.split(" -e ")[1] for command in self.commands if " -e " in command]


@pytest.fixture
def clone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Clone:
    monkeypatch.setattr(bootstrap.shutil, "disk_usage", bootstrap.shutil.disk_usage)  # given back afterwards
    monkeypatch.delenv("INSTALLER", raising=False)
    return Clone(tmp_path, monkeypatch)


def test_a_set_is_installed_once(clone: Clone) -> None:
    assert [bootstrap.main("base"), bootstrap.main("base")] == [0, 0]
    assert clone.installs() == [".[demo]"]
    assert (clone.venv / ".base").exists()
    assert not any("setup.jars" in command or "java" in command for command in clone.commands)


def test_the_packages_of_tests_are_compiled_also_those_that_a_demo_has_installed(clone: Clone) -> None:
    bootstrap.main("base")
    assert not any("compile" in command for command in clone.commands)
    bootstrap.main("dev")
    assert clone.installs() == [".[demo]", ".[dev]"]
    assert clone.commands[-1].startswith(f"{clone.venv}/bin/python -m compileall ")
    assert clone.commands[-1].endswith(f"{clone.venv}/lib")


def test_a_set_is_complete_with_one_that_includes_it(clone: Clone) -> None:
    bootstrap.main("dagster")
    bootstrap.main("base")
    assert clone.installs() == [".[demo,dagster]"]
    assert bootstrap.is_complete("base")
    assert not bootstrap.is_complete("dev")


def test_other_requirements_install_it_again(clone: Clone) -> None:
    bootstrap.main("base")
    os.utime(clone.root / "requirements.lock", (LATER, LATER))
    assert not bootstrap.is_complete("base")
    bootstrap.main("base")
    assert clone.installs() == [".[demo]", ".[demo]"]


def test_what_was_killed_begins_with_a_new_environment(clone: Clone) -> None:
    bootstrap.main("base")
    (clone.venv / "half").touch()
    bootstrap.AT_WORK.touch()  # as a kill leaves it
    assert bootstrap.main("base") == 0
    assert not (clone.venv / "half").exists()
    assert clone.installs() == [".[demo]", ".[demo]"]
    assert bootstrap.is_complete("base")


def test_a_failure_leaves_what_was_complete_complete(clone: Clone) -> None:
    bootstrap.main("base")
    clone.failing = "demo,dagster"
    assert bootstrap.main("dagster") == 1
    assert bootstrap.is_complete("base")
    assert not bootstrap.is_complete("dagster")
    assert "Installing packages failed." in clone.text
    assert "Run the same command again" in clone.text


def test_a_full_disk_is_said_before_anything_is_fetched(clone: Clone) -> None:
    clone.free_megabytes(300)
    assert bootstrap.main("base") == 1
    assert f"No space: {clone.root} has 300 MB free, and 760 MB are needed." in clone.text
    assert clone.commands == []


def test_a_disk_that_fills_up_is_said_and_the_environment_begins_again(clone: Clone) -> None:
    clone.failing = " -e "
    run = clone.run

    def fill(command: Sequence[object], **options: Any) -> SimpleNamespace:
        clone.free_megabytes(3 if clone.failing and " -e " in " ".join(map(str, command)) else 10_000)
        return run(command, **options)

    clone._patch.setattr(bootstrap.subprocess, "run", fill)
    assert bootstrap.main("base") == 1
    assert f"No space: {clone.root} has 3 MB free." in clone.text
    clone.failing = ""
    clone.free_megabytes(10_000)
    assert bootstrap.main("base") == 0
    assert sum(f"-m venv {clone.venv}" in command for command in clone.commands) == 2


def test_a_network_that_is_away_is_said(clone: Clone, monkeypatch: pytest.MonkeyPatch) -> None:
    clone.failing = " -e "

    def away(url: str, timeout: int) -> None:
        raise bootstrap.urllib.error.URLError("Name or service not known")

    monkeypatch.setattr(bootstrap.urllib.request, "urlopen", away)
    assert bootstrap.main("base") == 1
    assert "No network: https://index.example/simple/ cannot be reached (Name or service not known)." in clone.text


def test_pip_installs_where_it_is_asked_for(clone: Clone, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INSTALLER", "pip")
    assert bootstrap.main("base") == 0
    [install] = [command for command in clone.commands if " -e " in command]
    assert install.startswith(f"{clone.venv}/bin/python -m pip install")
    assert "-c requirements.lock" in install


def test_java_that_is_missing_is_said_where_it_may_not_be_installed(clone: Clone) -> None:
    clone.failing = "find_java"
    assert bootstrap.main("ready") == 1
    assert "Spark needs Java 17 or newer, and there is none" in clone.text
    assert "make demo and make up need no Java" in clone.text
    assert clone.installs() == [".[demo]"], "nothing of Spark's is fetched"
    assert bootstrap.is_complete("base")


def test_root_gets_java_chromium_and_servers_from_debian(clone: Clone, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bootstrap.os, "geteuid", lambda: 0)
    clone.programs.add("apt-get")
    clone.failing = "find_java"
    assert bootstrap.main("browser") == 0
    installed = [
        command.split()[-1] for command in clone.commands if command.startswith("apt-get") and "install" in command
    ]
    assert installed == ["openjdk-17-jre-headless", "chromium", "mariadb-server-core", "redis-server"]
    assert (clone.venv / ".browser").exists()


def test_without_chromium_and_mariadb_the_set_is_not_complete_and_says_so_each_time(clone: Clone) -> None:
    assert [bootstrap.main("browser"), bootstrap.main("browser")] == [0, 0]
    assert clone.text.count("*** NO CHROMIUM: the browser tests will FAIL.") == 2
    assert clone.text.count("*** NO MARIADB: tests of databases will FAIL.") == 2
    assert not (clone.venv / ".browser").exists()
    assert bootstrap.is_complete("ready")


def test_of_two_at_once_the_second_waits_and_finds_it_complete(clone: Clone) -> None:
    waits = threading.Event()
    clone._patch.setattr(bootstrap, "_say", lambda text: waits.set() if "waiting" in text else None)
    with ThreadPoolExecutor(1) as pool:
        with (clone.root / "bootstrap.py").open("r+b") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            second = pool.submit(bootstrap.main, "base")
            assert waits.wait(60)
            assert clone.commands == []
            (clone.venv / "bin").mkdir(parents=True)
            (clone.venv / "bin" / "python").touch()
            (clone.venv / ".base").touch()
        assert second.result() == 0
    assert clone.installs() == []


def test_a_virtual_environment_that_cannot_be_made_is_said(clone: Clone) -> None:
    clone.failing = "-m venv"
    run = bootstrap.subprocess.run

    def without_python(command: Sequence[object], **settings: Any) -> SimpleNamespace:
        if command[0] == bootstrap.PYTHON:
            raise FileNotFoundError(bootstrap.PYTHON)
        done: SimpleNamespace = run(command, **settings)
        (clone.venv / "bin" / "python").unlink(missing_ok=True)
        return done

    bootstrap.subprocess.run = without_python  # the fixture gives it back
    assert bootstrap.main("base") == 1
    assert "Installing a virtual environment failed." in clone.text
