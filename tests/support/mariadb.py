"""MariaDB servers of tests, on a socket of their own."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from sqlalchemy import create_engine, text
from sqlalchemy.exc import OperationalError

PATIENCE_SECONDS = 120
SYSTEM_TABLES = Path("/usr/share/mysql/mysql_system_tables.sql")


class Server:
    """A server over the data in a folder, which is made where there is none.

    Args:
        folder: with a short path, as its socket lies there too.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it, and wait until it answers."""
        data, log = self.folder / "data", self.folder / "log"
        found = shutil.which("mariadbd", path=f"{os.environ['PATH']}:/usr/sbin")
        assert found is not None, "MariaDB is missing: apt-get install mariadb-server-core"
        small = ["--innodb-buffer-pool-size=32M", "--innodb-log-file-size=16M", "--performance-schema=OFF"]
        program = [found, "--no-defaults", f"--datadir={data}", f"--user={Path('/proc/self').owner()}", *small]
        if not data.exists():
            data.mkdir()  # mariadb-install-db needs programs of the clients' package
            tables = f"create database mysql;\nuse mysql;\n{SYSTEM_TABLES.read_text()}"
            subprocess.run([*program, "--bootstrap"], input=tables.encode(), check=True, capture_output=True)
        own = [
            f"--socket={self._socket}",
            f"--pid-file={self.folder / 'pid'}",
            "--skip-networking",
            "--skip-grant-tables",
        ]
        with log.open("ab") as output:
            self._process = subprocess.Popen([*program, *own], stdout=output, stderr=output, start_new_session=True)
        for _ in range(10 * PATIENCE_SECONDS):
            assert self._process.poll() is None, log.read_text()[-2000:]
            if self._answers():
                return
            with_patience(self._process)
        raise AssertionError(log.read_text()[-2000:])

    def stop(self, *, kill: bool = False) -> None:
        """End it by its pid."""
        if self._process is not None:
            self._process.kill() if kill else self._process.terminate()
            self._process.wait(PATIENCE_SECONDS)

    def database(self, name: str) -> str:
        """A new one, as SQLAlchemy wants it named."""
        engine = create_engine(self._url(""))
        with engine.begin() as connection:
            connection.execute(text(f"CREATE DATABASE {name} CHARACTER SET utf8mb4"))
        engine.dispose()
        return self._url(name)

    @property
    def _socket(self) -> Path:
        return self.folder / "socket"

    def _url(self, name: str) -> str:
        return f"mysql+pymysql://root@localhost/{name}?unix_socket={self._socket}"

    def _answers(self) -> bool:
        engine = create_engine(self._url(""))
        try:
            with engine.connect():
                return True
        except OperationalError:
            return False
        finally:
            engine.dispose()


def with_patience(process: subprocess.Popen[bytes]) -> None:
    """Wait a tenth of a second, or until a process has ended."""
    try:
        process.wait(0.1)
    except subprocess.TimeoutExpired:
        return


@contextmanager
def serving() -> Iterator[Server]:
    """A new server, which ends with the block."""
    with TemporaryDirectory(prefix="mariadb-") as folder:
        server = Server(Path(folder))
        server.start()
        try:
            yield server
        finally:
            server.stop()
