"""The program of a server process: a Spark Connect server of Sail on loopback, which ends when no process needs it any more.

The program is run as a file, so that it imports nothing of floodmark's. Without an argument the server belongs to its parent process: the
server ends with its standard input, a pipe that is closed however the parent ends. With ``shared`` the server belongs to all processes that
hold a connection to its socket: after a while without any connection, the server removes its folder and ends.

The program writes one line of JSON: the port, and the socket of a shared server.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any
from uuid import uuid4

_SECONDS_ALONE = 10.0


def main(shared: str = "") -> None:
    """Serve until no process needs the server."""
    users = _Users() if shared else None
    server = _served()
    port = server.listening_address[1]
    sys.stdout.write(json.dumps({"port": port, "socket": users.path if users else ""}) + "\n")
    sys.stdout.flush()
    if users is None:
        while os.read(0, 1024):
            pass
    else:
        users.wait()
    os._exit(0)  # no process waits for queries that still run


def _served() -> Any:
    """The running server, which ends with the last reference to this object."""
    from pysail.spark import SparkConnectServer  # noqa: PLC0415 - after the folder for spilling is set

    server = SparkConnectServer(ip="127.0.0.1", port=0)
    server.start(background=True)
    if server.listening_address is None:
        os._exit(1)
    return server


class _Users:
    """The processes that hold a connection to the socket of this server. Its folder holds the socket and spilled data.

    A lock that is freed when this process ends marks the folder as used (``floodmark.core.scratch``): the folder of a killed server is removed
    by the next process that makes such a folder.
    """

    def __init__(self) -> None:
        from filelock import FileLock  # noqa: PLC0415 - as below

        root = Path(tempfile.gettempdir())
        self._folder = root / f"floodmark-{uuid4().hex}"
        self._lock = FileLock(f"{self._folder}.lock")
        self._lock.acquire()
        self._folder.mkdir(mode=0o700)  # so that no other user reaches the socket
        os.environ["TMPDIR"] = str(self._folder)
        self.path = str(self._folder / "users")
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.bind(self.path)
        self._socket.listen(128)
        self._count, self._changed = 0, threading.Condition()
        threading.Thread(target=self._accept, daemon=True).start()

    def wait(self) -> None:
        """Wait until no process has used the server for ``_SECONDS_ALONE``, then remove the folder."""
        with self._changed:
            alone = time.monotonic()
            while self._count or time.monotonic() - alone < _SECONDS_ALONE:
                used = bool(self._count)
                self._changed.wait(None if used else _SECONDS_ALONE)
                if used:
                    alone = time.monotonic()
            self._socket.close()  # a process that connects from now on fails, and starts another server
            shutil.rmtree(self._folder, ignore_errors=True)
            Path(f"{self._folder}.lock").unlink(missing_ok=True)

    def _accept(self) -> None:
        while True:
            connection, _ = self._socket.accept()
            with self._changed:
                self._count += 1
                self._changed.notify()
            threading.Thread(target=self._hold, args=(connection,), daemon=True).start()

    def _hold(self, connection: socket.socket) -> None:
        """Hold a connection until its process closes it or ends."""
        try:
            connection.sendall(b"\n")
            while connection.recv(1024):
                pass
        except OSError:
            pass
        finally:
            connection.close()
            with self._changed:
                self._count -= 1
                self._changed.notify()


if __name__ == "__main__":
    main(*sys.argv[1:])
