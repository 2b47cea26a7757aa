"""``floodmark`` of a page's commands is forked, and is to a shell what the installed program is: files, arguments, statuses, signals."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import forked_verbs
import psutil
import pytest

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="libraries of other systems do not take a fork")
COMMANDS = (
    "floodmark --version; echo $?",
    "floodmark nope 2>&1; echo $?",
    "floodmark status 2>&1 | cut -c 1-40; echo ${PIPESTATUS[0]}",
    "echo first > out; floodmark --version >> out; cat out",
    "floodmark validate --help | head -n 3",
)


def environment() -> dict[str, str]:
    """Of a shell that finds the forked program first."""
    return {
        **os.environ,
        "PATH": f"{forked_verbs.folder()}{os.pathsep}{forked_verbs.PROGRAM.parent}{os.pathsep}{os.environ['PATH']}",
    }


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_prints_what_the_installed_program_prints(tmp_path: Path, command: str) -> None:
    printed = []
    for first in (forked_verbs.folder(), str(forked_verbs.PROGRAM.parent)):
        folder = tmp_path / str(len(printed))
        folder.mkdir()
        path = os.pathsep.join((first, os.environ["PATH"]))
        done = subprocess.run(
            ["bash", "-c", command],
            cwd=folder,
            env={**os.environ, "PATH": path},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=True,
        )
        printed.append(done.stdout.replace(str(folder), ""))
    assert printed[0] == printed[1]
    assert printed[0]


def stream(folder: Path) -> subprocess.Popen[bytes]:
    """A program that serves until it is told to end, and the process forked for it."""
    command = ["floodmark", "serve", "hourly_sales", "--port", "0"]
    return subprocess.Popen(command, cwd=folder, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT)


def children() -> set[int]:
    """Processes that servers of this process have forked."""
    found = set[int]()
    for one in psutil.Process().children():
        with suppress(psutil.NoSuchProcess):  # of another test: it has ended, or is about to
            if any("forked.py" in word for word in one.cmdline()):
                found |= {child.pid for child in one.children()}
    return found


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_signal_reaches_what_was_forked(tmp_path: Path, number: signal.Signals) -> None:
    """A killed program takes it along."""
    done = subprocess.run(
        ["floodmark", "init", "shop"], cwd=tmp_path, env=environment(), capture_output=True, check=False
    )
    assert done.returncode == 0, done.stderr
    before = children()
    with stream(tmp_path / "shop") as program:
        try:
            assert program.stdout is not None
            assert any(b"http://" in line for line in program.stdout), "it serves"
            (pid,) = children() - before
            program.send_signal(number)
            status = program.wait(60)
        finally:
            program.kill()
    assert status == (-signal.SIGKILL if number == signal.SIGKILL else 0)
    deadline = time.monotonic() + 60
    while psutil.pid_exists(pid):
        assert time.monotonic() < deadline
        time.sleep(0.01)
