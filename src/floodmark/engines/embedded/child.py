"""The program of a server's process: a Spark Connect server of Sail on loopback, that ends when nobody needs it any more.

It is run as a file, so that it imports nothing of floodmark's. Without an argument it belongs to the process that has started it: its standard
input is a pipe of its parent's, and at its end, however the parent has ended, the process is gone. With ``shared`` it belongs to whoever
holds a connection to its socket: when there has been none for a while, it removes its folder and is gone.

The only line that is written is JSON: the port, and the socket of a shared one.
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
    """Serve until nobody needs it."""
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
    os._exit(0)  # queries that still run are nobody's


def _served() -> Any:
    """The server; it ends with the last reference to it."""
    from pysail.spark import SparkConnectServer  # noqa: PLC0415 - after the folder in which it spills is known

    server = SparkConnectServer(ip="127.0.0.1", port=0)
    server.start(background=True)
    if server.listening_address is None:
        os._exit(1)
    return server


class _Users:
    """Who holds a connection to the socket of this process, in a folder of its own, where it spills too.

    A lock that goes with this process says whose the folder is (``floodmark.core.scratch``): what a killed server leaves is removed by the next
    process that makes such a folder.
    """

    def __init__(self) -> None:
        from filelock import FileLock  # noqa: PLC0415 - as below

        root = Path(tempfile.gettempdir())
        self._folder = root / f"floodmark-{uuid4().hex}"
        self._lock = FileLock(f"{self._folder}.lock")
        self._lock.acquire()
        self._folder.mkdir(mode=0o700)  # nobody else reaches the socket
        os.environ["TMPDIR"] = str(self._folder)
        self.path = str(self._folder / "users")
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.bind(self.path)
        self._socket.listen(128)
        self._count, self._changed = 0, threading.Condition()
        threading.Thread(target=self._accept, daemon=True).start()

    def wait(self) -> None:
        """Until there has been no user for a while; then the folder is gone."""
        with self._changed:
            alone = time.monotonic()
            while self._count or time.monotonic() - alone < _SECONDS_ALONE:
                used = bool(self._count)
                self._changed.wait(None if used else _SECONDS_ALONE)
                if used:
                    alone = time.monotonic()
            self._socket.close()  # who comes now finds nobody, and starts another server
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
        """Until the user has gone, however it has ended."""
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
