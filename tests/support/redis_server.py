"""Redis servers of tests, on a socket of their own."""

from __future__ import annotations

import json
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import redis

PATIENCE_SECONDS = 300


class Server:
    """A server, which keeps what it has over a kill: each write is synced to its log before the answer.

    Args:
        folder: with a short path, as its socket lies there.
        settings: further ones of the server.
    """

    def __init__(self, folder: Path, *settings: str) -> None:
        self.folder, self.settings = folder, settings
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """As a delivery names it."""
        return f"unix://{self.folder / 'redis.sock'}"

    def client(self) -> Any:
        """A client of it."""
        return redis.Redis.from_url(self.url)

    def start(self) -> None:
        """Start it, and wait until it answers."""
        program = shutil.which("redis-server")
        assert program is not None, "Redis is missing: apt-get install redis-server"
        own = ["--port", "0", "--unixsocket", str(self.folder / "redis.sock"), "--dir", str(self.folder), "--save", ""]
        kept = ["--appendonly", "yes", "--appendfsync", "always"]
        with (self.folder / "log").open("ab") as log:
            command = [program, *own, *kept, *self.settings]
            self._process = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
        end = time.monotonic() + PATIENCE_SECONDS
        while True:
            try:
                self.client().ping()
            except redis.AuthenticationError:
                return
            except (redis.ConnectionError, redis.BusyLoadingError):
                assert time.monotonic() < end, (self.folder / "log").read_text()[-2000:]
                assert self._process.poll() is None, (self.folder / "log").read_text()[-2000:]
                time.sleep(0.02)
            else:
                return

    def stop(self, *, kill: bool = False) -> None:
        """End it by its pid."""
        if self._process is not None:
            self._process.kill() if kill else self._process.terminate()
            self._process.wait(PATIENCE_SECONDS)


@contextmanager
def server(*settings: str) -> Iterator[Server]:
    """A new server; it goes with the block."""
    with TemporaryDirectory(prefix="redis-") as path:
        started = Server(Path(path), *settings)
        started.start()
        try:
            yield started
        finally:
            started.stop()


def rows(url: str, prefix: str) -> list[dict[str, Any]]:
    """The values of all keys of a prefix."""
    client = redis.Redis.from_url(url)
    keys = list(client.scan_iter(f"{prefix}:*", count=1000))
    return [json.loads(value) for value in client.mget(keys)] if keys else []
