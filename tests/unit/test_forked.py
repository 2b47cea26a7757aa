"""A program that is forked does what it does as a process that Python starts: arguments, paths, what it prints, how it ends."""

from __future__ import annotations

import json
import os
import signal
import socket
import struct
import subprocess
import sys
from pathlib import Path

import forked
import psutil
import pytest

SHOWN = "import os, sys; print(__name__, sys.argv, sys.path, os.getcwd(), os.environ['GIVEN'], sys.stdin.read())"
COMMANDS = {
    "text": ["-c", f"import threading; {SHOWN}; print(threading.active_count())", "a", "b c"],
    "file": ["shown.py", "a"],
    "module": ["-m", "shown", "a"],
    "status": ["-c", "import sys; print('before'); sys.exit(3)"],
    "words": ["-c", "import sys; sys.exit('no such thing')"],
    "exception": ["-c", "1 / 0"],
    "at its end": ["-c", "import atexit; atexit.register(print, 'the end'); print('first')"],
    "killed": ["-c", "import os, sys; print('seen', flush=True); print('lost'); os.kill(os.getpid(), 9)"],
}


@pytest.mark.parametrize("name", COMMANDS)
def test_it_prints_and_ends_as_a_process_of_its_own(tmp_path: Path, name: str) -> None:
    (tmp_path / "shown.py").write_text(SHOWN)
    command = [sys.executable, *COMMANDS[name]]
    environment = {**os.environ, "PYTHONPATH": f"{tmp_path / 'more'}", "GIVEN": "x"}
    plain = subprocess.run(
        command, cwd=tmp_path, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    found = forked.run(command, cwd=tmp_path, env=environment)
    assert (found.returncode, found.stdout) == (plain.returncode, plain.stdout)
    assert found.stderr.splitlines()[-1:] == plain.stderr.splitlines()[-1:]


def test_what_does_not_end_in_time_is_killed() -> None:
    with pytest.raises(subprocess.TimeoutExpired):
        forked.run([sys.executable, "-c", "import signal; signal.pause()"], timeout=0.1)
    assert forked.run([sys.executable, "-c", "print(1)"]).stdout == "1\n"


def test_it_is_talked_to_and_killed_as_one_that_python_starts() -> None:
    command = [sys.executable, "-c", "for line in iter(input, ''): print(line * 2, flush=True)"]
    with forked.begin(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write("ab\n")
        process.stdin.flush()
        assert process.stdout.readline() == "abab\n"
        assert process.poll() is None
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.01)
        process.kill()
    assert process.returncode == -signal.SIGKILL
    both = subprocess.PIPE
    with forked.begin(command, stdin=both, stdout=both, stderr=subprocess.STDOUT, text=True) as process:
        assert process.communicate("x\n\n", timeout=60) == ("xx\n", None)
    assert process.returncode == 0


def test_what_a_forked_process_starts_is_forked_where_it_is_told(tmp_path: Path) -> None:
    parents = "import psutil; print([' '.join(one.cmdline()) for one in psutil.Process().parents()][0])"
    (tmp_path / "starts.py").write_text(
        "import subprocess, sys\n"
        "for command in (['-m', 'floodmark.cli.main', '--version'], ['-c', 'import sys; print(sys.executable)']):\n"
        "    print(subprocess.run([sys.executable, *command], capture_output=True, text=True).stdout.strip())"
    )
    environment = {**os.environ, **forked.starting_forks()}
    done = forked.run([sys.executable, "starts.py"], cwd=tmp_path, env=environment)
    assert done.returncode == 0, done.stderr
    version, executable = done.stdout.splitlines()
    assert "version" in version
    assert executable == sys.executable
    assert "forked.py" in forked.run([sys.executable, "-c", parents]).stdout


@pytest.mark.skipif(not forked.FORKS, reason="libraries of other systems do not take a fork")
def test_the_process_of_a_stream_is_a_fork_of_the_server_and_connects_to_java() -> None:
    with socket.create_server(("127.0.0.1", 0)) as java:
        java.settimeout(60)
        port = str(java.getsockname()[1])
        environment = os.environ | {"PYTHON_WORKER_FACTORY_PORT": port, "PYTHON_WORKER_FACTORY_SECRET": "secret"}
        command = [forked.python(), "-m", forked.MODULES[-1]]
        nothing = subprocess.DEVNULL
        with subprocess.Popen(
            command, env=environment, stdin=nothing, stdout=nothing, stderr=subprocess.PIPE
        ) as started:
            connection, _ = java.accept()
            with connection, connection.makefile("rwb") as stream:
                (length,) = struct.unpack("!i", stream.read(4))
                assert stream.read(length) == b"secret"
                stream.write(struct.pack("!i", 2) + b"ok")
                stream.flush()
                (pid,) = struct.unpack("!i", stream.read(4))
                assert pid != started.pid
                assert started.poll() is None, "it lives as long as what it stands for"
                assert "forked.py" in " ".join(psutil.Process(pid).cmdline())
            assert started.stderr is not None
            assert "Error" in started.stderr.read().decode(), "what the process says of its end"
        assert started.returncode == 1


def test_anything_else_is_the_python_of_the_tests() -> None:
    shown = "import sys; print(sys.executable, sys.argv, sys.flags.isolated)"
    done = subprocess.run([forked.python(), "-c", shown, "a"], capture_output=True, text=True, check=True)
    assert done.stdout == f"{sys.executable} ['-c', 'a'] 0\n"


def test_who_is_killed_while_asking_takes_nobody_along() -> None:
    """Before it has asked, in the middle, and before it has the answer."""
    assert forked.run([sys.executable, "-c", ""]).returncode == 0
    command = {"command": ["-c", ""], "env": dict(os.environ), "cwd": os.getcwd(), "session": False, "tied": False}  # noqa: PTH109
    text = json.dumps(command).encode() + b"\n"
    for part in (b"", text[:40], text):
        with socket.socket(socket.AF_UNIX) as asking:
            asking.connect(str(forked._folder() / "server"))
            if part:
                socket.send_fds(asking, [part], [0, 1, 2])
    assert forked.run([sys.executable, "-c", "print(3)"]).stdout == "3\n"
