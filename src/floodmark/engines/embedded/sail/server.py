"""The server of Sail, a process of its own on this machine: its start, supervision and end.

Each query leaks 150 to 170 kB in the server's process until that process ends, and a server may die; so no data of floodmark's lives in it.
The server has no authentication: any user who reaches its port on loopback can run code as the server's user.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import psutil

from floodmark.core import background
from floodmark.core.errors import ExecutionError, SetupError
from floodmark.core.import_path import import_folders
from floodmark.core.scratch import Scratch

SAIL = "0.7.2"
"""The version whose answers are compared with Spark's."""
INSTALL = f"pip install pysail=={SAIL} pyspark-client==4.2.0"
_PACKAGES = ("pysail", "grpcio", "grpcio-status", "googleapis-common-protos")
_PROGRAM = Path(__file__).with_name("child.py")
_LOG = "server.log"
_TAIL_BYTES = 4_000
_SECONDS_TO_END = 10
_SESSION_SECONDS = 10 * 365 * 24 * 3600
"""Idle seconds after which Sail ends a session. By default 15 minutes, which would end the session of a stream without new rows."""
_PER_MEGABYTE = 1 << 20
_STACK = 32 * _PER_MEGABYTE
"""Memory that a thread of the server may use for calls within each other; a sum of 500 doubles needs more than the 8 MB that it has by itself, and ended the server."""


def missing() -> list[str]:
    """The packages of the embedded engine that are not installed."""
    return [name for name in _PACKAGES if _version(name) is None]


def check_installed() -> None:
    """Make sure that the packages of the embedded engine are installed.

    Raises:
        SetupError: SETUP-070 pysail, or what the client of Spark Connect needs, is missing; SETUP-071 pysail is of another version.
    """
    if lacking := missing():
        fix = f"Run `{INSTALL}`. Or run on Spark: --engine spark."
        where, expected = "engine 'embedded'", f"pysail {SAIL} and the client of Spark Connect"
        raise SetupError(where, expected, f"no {', '.join(lacking)}", fix, code="SETUP-070")
    if (installed := _version("pysail")) != SAIL:
        fix = f"Run `{INSTALL}`: its answers are compared with Spark's for this version only. Or run on Spark: --engine spark."
        raise SetupError("engine 'embedded'", f"pysail {SAIL}", f"pysail {installed}", fix, code="SETUP-071")


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def default_memory() -> int:
    """Memory, MB, of a server's queries before they spill: two fifths of the machine's memory."""
    return max(256, int(psutil.virtual_memory().total * 0.4) // _PER_MEGABYTE)


def command(*arguments: str) -> list[str]:
    """The command line of a server process."""
    return [sys.executable, str(_PROGRAM), *arguments]


def environment(memory: int) -> dict[str, str]:
    """The environment variables of a server process.

    Args:
        memory: of its queries before they spill, MB.
    """
    return {
        "PYTHONPATH": os.pathsep.join(import_folders(sys.path)),
        "TZ": "UTC",
        "RUST_LOG": "error",
        "SAIL_SPARK__SESSION_TIMEOUT_SECS": str(_SESSION_SECONDS),
        # the least and greatest value of a file leave NaN out: Sail would take a column for constant if the two are equal, and would
        # skip rows of NaN, which is greater than all numbers, if the greatest value is too small for a condition
        "SAIL_EXECUTION__COLLECT_STATISTICS": "false",
        "SAIL_PARQUET__PRUNING": "false",
        "SAIL_PARQUET__ENABLE_PAGE_INDEX": "false",
        "SAIL_RUNTIME__STACK_SIZE": str(_STACK),
        "SAIL_RUNTIME__MEMORY_POOL__TYPE": "fair",
        "SAIL_RUNTIME__MEMORY_POOL__FAIR__MAX_SIZE": str(memory * _PER_MEGABYTE),
    }


def megabytes(pid: int) -> int:
    """Memory of a process, MB; 0 if the process has ended."""
    try:
        return int(psutil.Process(pid).memory_info().rss) // _PER_MEGABYTE
    except psutil.Error:
        return 0


def lost(how: str, log: Path) -> ExecutionError:
    """The error EXECUTION-070: a server has ended by itself.

    Args:
        how: such as "ended with signal 9 while it was used".
        log: of the server; its last line is part of the message.
    """
    lines = background.tail(log, _TAIL_BYTES)[0].strip().splitlines()
    got = f"one that {how}" + (f": {lines[-1][:500]}" if lines else "")
    fix = (
        "Nothing is lost or there twice; run it again. If it ends again, give it memory (signal 9 is often the system's answer to too "
        "little), or run on Spark: --engine spark."
    )
    return ExecutionError("server of the embedded engine", "one that answers", got, fix, code="EXECUTION-070")


@dataclass(slots=True)
class Server:
    """A server that only this process uses. The server is being started; ``port`` waits until it listens.

    Args:
        memory: of its queries before they spill to disk, MB.
    """

    memory: int
    process: subprocess.Popen[str] = field(init=False)
    _scratch: Scratch = field(init=False)
    _port: int | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        """Start the process."""
        self._scratch = Scratch()
        with (self._scratch.path / _LOG).open("wb") as log:
            self.process = subprocess.Popen(
                command(),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env={**os.environ, **environment(self.memory), "TMPDIR": str(self._scratch.path)},  # where it spills
            )

    @property
    def pid(self) -> int:
        """Id of the server's process."""
        return self.process.pid

    @property
    def port(self) -> int:
        """The port on loopback.

        Raises:
            ExecutionError: EXECUTION-070, the process has ended before it listened.
        """
        if self._port is None:
            assert self.process.stdout is not None
            line = self.process.stdout.readline()
            if not line.endswith("\n"):
                raise self.lost("before it listened")
            self._port = int(json.loads(line)["port"])
        return self._port

    @property
    def alive(self) -> bool:
        """Whether the process runs."""
        return self.process.poll() is None

    @property
    def megabytes(self) -> int:
        """Memory of the process, MB; 0 if the process has ended."""
        return megabytes(self.process.pid)

    @property
    def replaced(self) -> bool:
        """Whether other processes have replaced this server: never, as only this process uses it."""
        return False

    def wait(self, seconds: float) -> None:
        """Wait until the process has ended, at most ``seconds``."""
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(seconds)

    def lost(self, when: str) -> ExecutionError:
        """The error EXECUTION-070: the process has ended by itself, with the last line of its log."""
        code = self.process.wait(_SECONDS_TO_END)
        how = f"signal {-code}" if code < 0 else f"exit code {code}"
        return lost(f"ended with {how} {when}", self._scratch.path / _LOG)

    def kill(self) -> None:
        """Kill the process, with the queries that run in it."""
        self.process.kill()

    def close(self) -> None:
        """End the process and remove its spilled data."""
        if self.process.stdin is not None:
            self.process.stdin.close()
        try:
            self.process.wait(_SECONDS_TO_END)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        if self.process.stdout is not None:
            self.process.stdout.close()
        self._scratch.remove()
