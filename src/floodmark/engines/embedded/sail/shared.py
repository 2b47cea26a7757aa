"""A server shared by several processes, such as the drivers of a workspace: the first process starts the server, which ends after the last.

A file in a folder names the current server of the processes that reach the lake's store with the same variables. A process that finds no
answering server starts one, under a lock, and writes its name to the file. Each process holds a connection to the socket of its server; a server
without connections ends. Each process has a session of its own, with its own temporary views and settings.
"""

from __future__ import annotations

import hashlib
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
from floodmark.core.host import birth, living
from floodmark.engines.embedded.sail import server
from floodmark.lake.folder import storage
from floodmark.lake.folder.bucket import store_variables

FOLDER = "FLOODMARK_SERVER"
"""Environment variable with the folder of a workspace's shared server."""

_FILE, _LOG = "server.json", ".log"
_SECONDS_TO_ANSWER = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Named:
    """The record of a server in the file.

    Args:
        pid: id of its process.
        born: when the process was made (``core.host.birth``).
        port: on loopback.
        socket: path of the socket; the server runs as long as a process holds a connection to it.
    """

    pid: int
    born: float
    port: int
    socket: str


@dataclass(slots=True)
class SharedServer:
    """This process's use of a shared server.

    Args:
        folder: of the file that names the server.
        memory: of its queries before they spill, MB; only used if this process starts the server.
        instead_of: the server used so far: another server is used, or started.
        variables: with which this process reaches the lake's store, by default those of now: processes with the same ones share a server.
    """

    folder: Path
    memory: int
    instead_of: SharedServer | None = None
    variables: tuple[tuple[str, str], ...] = field(default_factory=store_variables)
    named: Named = field(init=False)
    _file: Path = field(init=False)
    _use: socket.socket = field(init=False)

    def __post_init__(self) -> None:
        """Connect to the server that the file names, or start a server.

        Raises:
            ExecutionError: EXECUTION-070, the started server has ended before it listened.
        """
        before = None if self.instead_of is None else self.instead_of.named
        self.instead_of = None
        self.folder.mkdir(parents=True, exist_ok=True)
        self._file = _file_of(self.folder, self.variables)
        with FileLock(self.folder / "server.lock"):
            named = _named(self._file)
            use = None if named is None or named == before else _used(named)
            if named is None or use is None:
                self._remove_ended()
                named = _started(self._log, self.memory)
                use = _used(named)
                if use is None:
                    raise self._lost("before it answered")
                storage.write(str(self._file), json.dumps(asdict(named)).encode())
        self.named, self._use = named, use

    @property
    def pid(self) -> int:
        """Id of the server's process."""
        return self.named.pid

    @property
    def port(self) -> int:
        """The server's port on loopback."""
        return self.named.port

    @property
    def alive(self) -> bool:
        """Whether the server's process runs."""
        return _process(self.named) is not None

    @property
    def megabytes(self) -> int:
        """Memory of the server's process, MB; 0 if the process has ended."""
        return server.megabytes(self.named.pid) if self.alive else 0

    @property
    def replaced(self) -> bool:
        """Whether the file names another server than this one."""
        return _named(self._file) != self.named

    def wait(self, seconds: float) -> None:
        """Wait until the process has ended, at most ``seconds``."""
        with suppress(psutil.Error):
            if (process := _process(self.named)) is not None:
                process.wait(seconds)

    def lost(self, when: str) -> ExecutionError:
        """The error EXECUTION-070: the process has ended by itself, with the last line of its log."""
        return self._lost(when)

    def kill(self) -> None:
        """Close this process's connection: its queries are abandoned, other processes use the server on."""
        self.close()

    def close(self) -> None:
        """Close this process's connection; a server without connections ends."""
        self._use.close()

    @property
    def _log(self) -> Path:
        return self._file.with_suffix(_LOG)

    def _remove_ended(self) -> None:
        """Remove the files of servers that have ended, such as those with former credentials."""
        for file in self.folder.glob("server-*.json"):
            if (named := _named(file)) is None or _process(named) is None:
                file.unlink(missing_ok=True)
                file.with_suffix(_LOG).unlink(missing_ok=True)

    def _lost(self, when: str) -> ExecutionError:
        return server.lost(f"ended {when}", self._log)


def _file_of(folder: Path, variables: tuple[tuple[str, str], ...]) -> Path:
    """Where the server is named. Without variables as in earlier releases; else by a digest of them, with a key, as secrets are among them."""
    if not variables:
        return folder / _FILE
    key = hashlib.blake2b(str(folder.resolve()).encode(), digest_size=16).digest()
    digest = hashlib.blake2b(repr(variables).encode(), key=key, digest_size=16).hexdigest()
    return folder / f"server-{digest}.json"


def _named(file: Path) -> Named | None:
    content = storage.read(str(file))
    try:
        return None if content is None else Named(**json.loads(content))
    except (ValueError, TypeError):  # written by another version: a new server is started
        return None


def _process(named: Named) -> psutil.Process | None:
    """The process of a server; None if the process has ended, or a later process has its id."""
    with suppress(psutil.Error):
        return living(named.pid, named.born)
    return None


def _used(named: Named) -> socket.socket | None:
    """A connection that keeps a server running; None if the server does not answer."""
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


def _started(log_file: Path, memory: int) -> Named:
    """Start a server in a session of its own, so that neither Ctrl-C nor the end of a driver's process group ends the server."""
    with log_file.open("wb") as log:
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
        born = birth(psutil.Process(process.pid))
        return Named(pid=process.pid, born=born, port=answer["port"], socket=answer["socket"])
    except (ValueError, psutil.Error):
        process.kill()
        process.wait()
        raise server.lost("ended before it listened", log_file) from None
