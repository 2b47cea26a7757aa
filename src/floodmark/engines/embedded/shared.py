"""A server that several processes use, such as the drivers of a workspace: started by the one that needs it first, gone with the last one.

A file in a folder names the server that is to be used. Whoever finds none that answers starts one, under a lock, and names it there. Each process
holds a connection to the socket of the server it uses: when nobody does, the server ends. Temporary views, settings and what else belongs to a
session are each process's own.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path

import psutil
from filelock import FileLock

from floodmark.core.errors import ExecutionError
from floodmark.engines.embedded import server
from floodmark.lake import storage

FOLDER = "FLOODMARK_SERVER"
"""Variable that names the folder of a workspace's server, where processes share one."""

_FILE, _LOG = "server.json", "server.log"
_SECONDS_TO_ANSWER = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Named:
    """A server as the file names it.

    Args:
        pid: of its process.
        born: when the process was made, s since 1970.
        port: on loopback.
        socket: path; who holds a connection to it keeps the server.
    """

    pid: int
    born: float
    port: int
    socket: str


@dataclass(slots=True)
class SharedServer:
    """This process's use of a shared server.

    Args:
        folder: of the file that names it.
        memory: what its queries may hold in memory, MB, where this process starts it.
        instead_of: the one that was used so far: another one is taken, or started.
    """

    folder: Path
    memory: int
    instead_of: SharedServer | None = None
    named: Named = field(init=False)
    _use: socket.socket = field(init=False)

    def __post_init__(self) -> None:
        """Take the one that is there, or start one.

        Raises:
            ExecutionError: EXECUTION-070, it has ended before it listened.
        """
        before = None if self.instead_of is None else self.instead_of.named
        self.instead_of = None
        self.folder.mkdir(parents=True, exist_ok=True)
        with FileLock(self.folder / "server.lock"):
            named = _named(self.folder)
            use = None if named is None or named == before else _used(named)
            if named is None or use is None:
                named = _started(self.folder, self.memory)
                use = _used(named)
                if use is None:
                    raise self._lost("before it answered")
                storage.write(str(self.folder / _FILE), json.dumps(asdict(named)).encode())
        self.named, self._use = named, use

    @property
    def pid(self) -> int:
        """Of the server's process."""
        return self.named.pid

    @property
    def port(self) -> int:
        """On loopback."""
        return self.named.port

    @property
    def alive(self) -> bool:
        """Whether the process is there."""
        return _process(self.named) is not None

    @property
    def megabytes(self) -> int:
        """Memory the process holds; 0 when it is gone."""
        return server.megabytes(self.named.pid) if self.alive else 0

    @property
    def replaced(self) -> bool:
        """Whether another server is to be used from now on."""
        return _named(self.folder) != self.named

    def wait(self, seconds: float) -> None:
        """Until the process has ended, at most so long."""
        with suppress(psutil.Error):
            if (process := _process(self.named)) is not None:
                process.wait(seconds)

    def lost(self, when: str) -> ExecutionError:
        """EXECUTION-070: the process has ended by itself, with the last line it has written."""
        return self._lost(when)

    def kill(self) -> None:
        """Let go of the server: others go on with it, and what this process has asked of it is nobody's."""
        self.close()

    def close(self) -> None:
        """Let go of the server; it ends when nobody uses it."""
        self._use.close()

    def _lost(self, when: str) -> ExecutionError:
        return server.lost(f"ended {when}", self.folder / _LOG)


def _named(folder: Path) -> Named | None:
    content = storage.read(str(folder / _FILE))
    try:
        return None if content is None else Named(**json.loads(content))
    except (ValueError, TypeError):  # of another version: a new one is started
        return None


def _process(named: Named) -> psutil.Process | None:
    """The process, unless it has ended, or a later one has its number."""
    with suppress(psutil.Error):
        process = psutil.Process(named.pid)
        if abs(process.create_time() - named.born) < 1 and process.status() != psutil.STATUS_ZOMBIE:
            return process
    return None


def _used(named: Named) -> socket.socket | None:
    """A connection that keeps a server; None where it does not answer."""
    use = socket.socket(socket.AF_UNIX)
    use.settimeout(_SECONDS_TO_ANSWER)
    try:
        use.connect(named.socket)
        if use.recv(1) == b"\n" and _process(named) is not None:
            return use
    except OSError:
        pass
    use.close()
    return None


def _started(folder: Path, memory: int) -> Named:
    """A server of a session of its own: neither Ctrl-C nor the end of the process group of a driver ends it."""
    with (folder / _LOG).open("wb") as log:
        process = subprocess.Popen(
            server.command("shared"),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=log,
            env={**os.environ, **server.environment(memory)},
            start_new_session=True,
        )
    assert process.stdout is not None
    with process.stdout:
        line = process.stdout.readline()
    try:
        answer = json.loads(line)
        born = psutil.Process(process.pid).create_time()
        return Named(pid=process.pid, born=born, port=answer["port"], socket=answer["socket"])
    except (ValueError, psutil.Error):
        process.kill()
        process.wait()
        raise server.lost("ended before it listened", folder / _LOG) from None
