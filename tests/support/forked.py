"""Programs of tests as processes that are forked: what most of them import is imported once, before the first of them begins.

``run`` takes the command of ``subprocess.run``: this Python with a file, ``-m MODULE`` or ``-c TEXT``. The process is one of its own, with its own
arguments, environment and folder, that a test may kill; it does without a second or two of imports. Java is never forked.

The processes are children of a server, which the first call starts and which ends with the process of the tests. It imports, and does nothing
else: it has one thread, so that what it forks holds no lock of another one.
"""

from __future__ import annotations

import atexit
import gc
import json
import os
import random
import runpy
import signal
import subprocess
import sys
import tempfile
import threading
import traceback
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import import_module, invalidate_caches
from pathlib import Path
from typing import Any

import forks_alone

IMPORTED = (
    "deltalake",
    "duckdb",
    "pandas",
    "psutil",
    "pydantic_settings",
    "pyspark.sql.connect.session",
    "sqlalchemy",
    "floodmark.cli.main",
    "floodmark.cli.verbs.run",
    "floodmark.cli.verbs.workspace",
    "floodmark.control.delivery.rollouts",
    "floodmark.control.processes.upkeep",
    "floodmark.engines.embedded.bounded.run",
    "floodmark.engines.embedded.landing.run",
    "floodmark.engines.embedded.unbounded.run",
    "floodmark.engines.upgrading",
)


def run(
    command: Sequence[str],
    *,
    env: Mapping[str, str] | None = None,
    cwd: str | Path | None = None,
    timeout: float = 300,
) -> subprocess.CompletedProcess[str]:
    """As ``subprocess.run`` with its output captured as text, and nothing on its standard input.

    Raises:
        subprocess.TimeoutExpired: the process has not ended in time, and was killed.
    """
    assert command[0] == sys.executable, command
    if sys.platform != "linux":  # libraries of macOS do not take a fork
        return subprocess.run(
            list(command),
            env=env,
            cwd=cwd,
            timeout=timeout,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
    with tempfile.TemporaryDirectory() as folder:
        printed = [str(Path(folder, name)) for name in ("stdout", "stderr")]
        variables = dict(os.environ if env is None else env)
        asked = {"command": list(command[1:]), "env": variables, "cwd": str(cwd or Path.cwd()), "printed": printed}
        status = _server().ask(asked, timeout)
        stdout, stderr = (Path(name).read_text(errors="replace") for name in printed)
    if status is None:
        raise subprocess.TimeoutExpired(list(command), timeout, stdout, stderr)
    return subprocess.CompletedProcess(list(command), status, stdout, stderr)


class _Server:
    """The process that forks; one of its children runs at a time."""

    def __init__(self) -> None:
        self._turn = threading.Lock()
        pipe = subprocess.PIPE
        command = [sys.executable, str(Path(__file__).resolve())]
        self._process = subprocess.Popen(
            command, stdin=pipe, stdout=pipe, text=True, env=os.environ | forks_alone.ALONE
        )
        atexit.register(self._process.kill)

    def ask(self, asked: dict[str, Any], timeout: float) -> int | None:
        """The exit status of a program, negative for a signal; None where it has not ended in time."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with self._turn:
            self._process.stdin.write(json.dumps(asked) + "\n")
            self._process.stdin.flush()
            pid = int(self._process.stdout.readline())
            late = threading.Event()

            def end() -> None:
                late.set()
                os.kill(pid, signal.SIGKILL)

            timer = threading.Timer(timeout, end)
            timer.start()
            status = int(self._process.stdout.readline())
            timer.cancel()
        return None if late.is_set() else status


@cache
def _server() -> _Server:
    return _Server()


def _serve() -> dict[str, Any] | None:
    """Fork a process for each line that is read; in it, what it is to do; None at the end of the lines."""
    for name in IMPORTED:
        import_module(name)
    forks_alone.check()
    gc.freeze()  # what is collected in a child need not look at all that was imported
    for line in sys.stdin:
        pid = os.fork()
        if pid == 0:
            found: dict[str, Any] = json.loads(line)
            return found
        _answer(pid)
        _, status = os.waitpid(pid, 0)
        _answer(os.waitstatus_to_exitcode(status))
    return None


def _answer(number: int) -> None:
    sys.stdout.write(f"{number}\n")
    sys.stdout.flush()


def base_path() -> list[str]:
    """Import path of a Python that runs a file, without those of the environment and the file's own."""
    given = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    return [path for path in sys.path[1:] if path not in given]


def become(asked: dict[str, Any], base: Sequence[str]) -> list[str]:
    """Make this process the one of a command; the command's arguments.

    Args:
        asked: command, environment, folder, and files for what is printed.
        base: import path of a Python without any of these.
    """
    with Path(os.devnull).open("rb") as nothing:
        os.dup2(nothing.fileno(), 0)
    for number, name in enumerate(asked["printed"], 1):
        with Path(name).open("wb") as file:
            os.dup2(file.fileno(), number)
    return settle(asked, base)


def settle(asked: Mapping[str, Any], base: Sequence[str]) -> list[str]:
    """Take environment, folder and import path of a command, whose files are open; the command's arguments."""
    os.environ.clear()
    os.environ.update(asked["env"])
    os.chdir(asked["cwd"])
    random.seed()
    tempfile.tempdir = None  # as the environment says
    first, *rest = asked["command"]
    folder = {"-c": "", "-m": os.getcwd()}.get(first)  # noqa: PTH109 - as Python writes it there
    paths = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]
    sys.path[:] = [str(Path(first).resolve().parent) if folder is None else folder, *paths, *base]
    invalidate_caches()
    return [first, *rest]


def _perform(first: str, *rest: str) -> None:
    """What Python does with a command."""
    if first == "-c":
        text, *arguments = rest
        sys.argv = ["-c", *arguments]
        exec(compile(text, "<string>", "exec"), {"__name__": "__main__"})  # noqa: S102 - the text of a test
    elif first == "-m":
        module, *arguments = rest
        sys.argv = [module, *arguments]
        sys.modules.pop(module, None)
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    else:
        sys.argv = [first, *rest]
        runpy.run_path(first, run_name="__main__")


def status(command: Sequence[str]) -> int:
    """Exit status of a command, as Python has it."""
    try:
        _perform(*command)
    except SystemExit as error:
        if error.code is None or isinstance(error.code, int):
            return error.code or 0
        sys.stderr.write(f"{error.code}\n")
        return 1
    except BaseException:  # noqa: BLE001 - whatever the program has raised, Python prints it
        traceback.print_exc()
        return 1
    return 0


def end(status: int) -> None:
    """End this process as Python does, but leave its memory to the system: to take apart what was imported takes half a second."""
    threading._shutdown()
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


if __name__ == "__main__":
    base = base_path()
    what = _serve()
    if what is not None:
        end(status(become(what, base)))
