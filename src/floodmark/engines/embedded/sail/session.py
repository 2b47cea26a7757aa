"""Sessions of Sail for this process, whose server is replaced before it grows too large, and after it has died."""

from __future__ import annotations

import atexit
import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypeVar
from weakref import WeakSet

from grpc import RpcError
from pyspark.errors import PySparkException

from floodmark.core.errors import ExecutionError, FloodmarkError
from floodmark.engines.embedded.sail.server import Server, check_installed, default_memory
from floodmark.engines.embedded.sail.shared import FOLDER, SharedServer
from floodmark.engines.frames.client import importable
from floodmark.lake.folder.bucket import store_variables
from floodmark.lake.folder.credentials import refreshed

if TYPE_CHECKING:
    from pyspark.sql.connect.session import SparkSession

Made = TypeVar("Made")
"""The result of a piece of work on Sail."""

_TRIES = 3
"""Servers that may die, one after the other, before a piece of work fails."""
_SETTINGS = {"spark.sql.session.timeZone": "UTC", "spark.sql.ansi.enabled": "true"}
_SECONDS_TO_SEE = 2
_UNREADABLE = "Exception deserializing response!"
"""What gRPC's client says where it cannot read an answer."""
_AHEAD = 0.8
"""Share of a server's limits at which the next server is started."""


class ServerLost(ExecutionError):  # noqa: N818 - errors of floodmark are named after what is wrong
    """The server has died while it was used, or an answer of it was lost on the way: the work has to be done again."""

    @staticmethod
    def of(error: ExecutionError) -> ServerLost:
        """The same error as a ``ServerLost``."""
        return ServerLost(error.where, error.expected, error.got, error.fix, code=error.code)


class Rehearsed(Protocol):
    """What is asked on one server after the other."""

    def rehearse(self, connection: Connection) -> None:
        """Do on a server that is not in use yet what takes longer the first time."""


@dataclass(slots=True)
class Connection:
    """A session on one server. Temporary views and other state of the session end with the server.

    Args:
        number: of the server, from 1 on. A connection with a new number has no views yet.
        server: that is being started.
        variables: with which the server reaches the lake's store, of the environment in which the server was started or found.
    """

    number: int
    server: Server | SharedServer
    variables: tuple[tuple[str, str], ...]
    spark: SparkSession = field(init=False)
    uses: int = field(init=False, default=0)
    users: int = field(init=False, default=0)
    _asked: WeakSet[Rehearsed] = field(init=False, default_factory=WeakSet)
    _lock: threading.Lock = field(init=False, default_factory=threading.Lock)

    def __post_init__(self) -> None:
        """Connect.

        Raises:
            ServerLost: EXECUTION-070, the server has died before there was a session.
        """
        try:
            with self.lost("before it had a session"):
                self.spark = _connected(self.server)
        except BaseException:
            self.server.close()
            raise

    @contextmanager
    def lost(self, when: str) -> Iterator[None]:
        """A context that turns errors of the client into ``ServerLost`` if the work has to be done again.

        So it is if the server has ended, if the client could not read an answer, or if the variables of the lake's store have changed meanwhile.

        Args:
            when: such as "while it was used".
        """
        try:
            yield
        except (PySparkException, RpcError, OSError) as error:
            if _UNREADABLE in str(error):
                where = "server of the embedded engine"
                fix = "Nothing is lost or there twice; run it again. If it comes each time, the answer may be larger than a message, 2 GB: ask for fewer rows or columns."
                got = f"an answer that gRPC could not read {when}"
                raise ServerLost(where, "one that answers", got, fix, code="EXECUTION-070") from error
            if self.outdated():
                where = "server of the embedded engine"
                fix = "Nothing is lost or there twice; run it again."
                got = f"{error} from one that knows the variables of before, {when}"
                raise ServerLost(where, "one that reaches the lake's store", got, fix, code="EXECUTION-070") from error
            if not self.gone(error):
                raise
            raise ServerLost.of(self.server.lost(when)) from error

    def asks(self, query: Rehearsed) -> None:
        """Note what is asked on this server, so that a server which follows is ready for it; what nobody holds is forgotten."""
        with self._lock:
            self._asked.add(query)

    def rehearse(self, before: Connection) -> None:
        """Rehearse what is asked on another server, whose place this one may take. What fails here will say so where it is asked."""
        with before._lock:
            asked = list(before._asked)
        for query in asked:
            with suppress(PySparkException, RpcError, FloodmarkError):
                query.rehearse(self)

    def outdated(self) -> bool:
        """Whether the store is reached with other variables than those that the server has; credentials in files are read again."""
        refreshed()
        return self.variables != store_variables()

    def gone(self, error: Exception) -> bool:
        """Whether the server has ended. After an error of a lost connection, its process gets a moment to end."""
        if "UNAVAILABLE" not in str(error) and "Socket closed" not in str(error):
            return not self.server.alive
        self.server.wait(_SECONDS_TO_SEE)
        return not self.server.alive

    def close(self) -> None:
        """End the server, or this process's use of a shared server."""
        with suppress(PySparkException, RpcError, ValueError):
            self.spark.client.close()
        self.server.close()


class Sail:
    """Lends sessions on the server of a process, to any number of threads.

    Args:
        memory: of queries before they spill, MB; by default two fifths of the machine's memory.
        largest: memory of the server's process, MB, from which on the server is replaced; by default 1,000 more than ``memory``.
        most_uses: number of loans after which the server is replaced.
        folder: of a server that this process shares with others; None for a server of its own.
    """

    def __init__(
        self,
        memory: int | None = None,
        *,
        largest: int | None = None,
        most_uses: int = 1500,
        folder: Path | None = None,
    ) -> None:
        check_installed()
        self.memory = memory or default_memory()
        self._largest, self._most_uses = largest or self.memory + 1000, most_uses
        self._folder, self._cancelled = folder, False
        self._lock = threading.Lock()
        self._current: Connection | None = None
        self._next: Future[Connection] | None = None
        self._retired: list[Connection] = []
        self._closing: list[threading.Thread] = []
        self.started = 0
        """Number of servers started so far."""
        atexit.register(self.close)

    def begin(self) -> None:
        """Start a server in the background; ``lent`` waits for that server."""
        with self._lock:
            if self._current is None and self._next is None:
                self._next = self._started_ahead()

    @contextmanager
    def lent(self) -> Iterator[Connection]:
        """Lend a connection for a piece of work, such as one micro-batch. Its server is not ended during the loan.

        Raises:
            ServerLost: EXECUTION-070, the server has died meanwhile, and another call starts another server; or an answer could not be read.
            ExecutionError: EXECUTION-072, the run was cancelled.
        """
        if self._cancelled:
            fix = "Nothing is lost or there twice; run it again."
            where, got = "embedded engine", "one that was cancelled"
            raise ExecutionError(where, "a run that keeps running", got, fix, code="EXECUTION-072")
        connection = self._taken()
        try:
            with connection.lost("while it was used"):
                yield connection
        finally:
            self._given_back(connection)

    def cancel(self) -> None:
        """Kill the servers of this process, so that all work on them fails; of a shared server only this process's use ends.

        No connection is lent until ``resume``.
        """
        self._cancelled = True
        with self._lock:
            used = [*self._retired, *([self._current] if self._current else [])]
        for connection in used:
            connection.server.kill()

    def resume(self) -> None:
        """Lend connections again after ``cancel``."""
        self._cancelled = False

    def close(self) -> None:
        """End every server; a later call of ``lent`` starts another server."""
        with self._lock:
            connections = [*self._retired, *([self._current] if self._current else [])]
            ahead, self._next, self._current, self._retired = self._next, None, None, []
            closing, self._closing = self._closing, []
        if ahead is not None and ahead.exception() is None:
            connections.append(ahead.result())
        for connection in connections:
            connection.close()
        for thread in closing:
            thread.join()

    def _close_beside(self, connection: Connection) -> None:
        """End a server without users in a thread of its own: the system takes a while to free its memory, and no micro-batch should wait. Under the lock."""
        thread = threading.Thread(target=connection.close, name="sail-end")
        thread.start()
        self._closing = [*(one for one in self._closing if one.is_alive()), thread]

    def _taken(self) -> Connection:
        with self._lock:
            over = list[Connection]()
            try:
                current = self._current_one(over)
                current.users += 1
                current.uses += 1
            finally:
                for connection in over:
                    self._close_beside(connection)
        return current

    def _current_one(self, over: list[Connection]) -> Connection:
        """The connection to lend; what nobody uses any more is added to ``over``."""
        current = self._current
        before = None
        if current is not None and (not current.server.alive or current.outdated()):
            current, before = None, current
            over += self._retired_now()
        if current is None:
            ahead, self._next = self._next, None
            if ahead is not None:
                current = ahead.result()
            if current is not None and current.outdated():
                over.append(current)
                current, before = None, current
            self._current = current = current or self._connected(self._numbered(), before)
        if self._due(current, _AHEAD) and self._next is None:
            self._next = self._started_ahead()
        if self._next is not None and self._next.done() and self._due(current, 1):
            ahead, self._next = self._next, None
            # if the next server has died, the current one stays until another is started
            if not isinstance(ahead.exception(), ServerLost):
                current = ahead.result()
                over += self._retired_now()
                self._current = current
        return current

    def _given_back(self, connection: Connection) -> None:
        with self._lock:
            connection.users -= 1
            over = [unused for unused in self._retired if not unused.users]
            self._retired = [unused for unused in self._retired if unused.users]
            for unused in over:
                self._close_beside(unused)

    def _connected(self, number: int, before: Connection | None) -> Connection:
        """A connection to a new server; to another shared server than that of ``before``."""
        variables = store_variables()
        if self._folder is None:
            return Connection(number, Server(self.memory), variables)
        instead_of = before.server if before is not None and isinstance(before.server, SharedServer) else None
        return Connection(number, SharedServer(self._folder, self.memory, instead_of, variables), variables)

    def _due(self, connection: Connection, part: float) -> bool:
        if connection.server.replaced:
            return True
        return connection.uses >= self._most_uses * part or connection.server.megabytes >= self._largest * part

    def _retired_now(self) -> list[Connection]:
        """Retire the current connection; returns it if it has no users, otherwise its last user ends it."""
        old, self._current = self._current, None
        if old is not None and old.users:
            self._retired.append(old)
            return []
        return [] if old is None else [old]

    def _numbered(self) -> int:
        self.started += 1
        return self.started

    def _started_ahead(self) -> Future[Connection]:
        number, before, ahead = self._numbered(), self._current, Future[Connection]()

        def start() -> None:
            try:
                connection = self._connected(number, before)
                if before is not None:
                    connection.rehearse(before)
                ahead.set_result(connection)
            except BaseException as error:  # noqa: BLE001 - ``result()`` raises the error
                ahead.set_exception(error)

        threading.Thread(target=start, name="sail-ahead", daemon=True).start()
        return ahead


def on_sail(sail: Sail, work: Callable[[Connection], Made]) -> Made:
    """Do a piece of work on Sail; the work is retried if its server dies meanwhile, or if an answer of it cannot be read.

    Raises:
        ServerLost: EXECUTION-070, the server has died, or its answer was lost, at each try.
    """
    for tries in range(_TRIES, 0, -1):
        try:
            with sail.lent() as connection:
                return work(connection)
        except ServerLost:
            if tries == 1:
                raise
    raise AssertionError


@cache
def shared(memory: int | None = None, *, alone: bool = False) -> Sail:
    """The ``Sail`` of this process. Its server is shared with other processes if ``FLOODMARK_SERVER`` names a folder.

    Args:
        memory: as of ``Sail``.
        alone: never share the server: functions of the user run in it, and import what this process imports.
    """
    folder = os.environ.get(FOLDER)
    return Sail(memory, folder=Path(folder) if folder and not alone else None)


def _connected(server: Server | SharedServer) -> SparkSession:
    """A session whose client fails at once if its server has ended; by default a client retries for ten minutes."""
    with importable():
        from pyspark.sql.connect.session import SparkSession  # noqa: PLC0415 - a second while the server starts

    try:
        port = server.port
    except ExecutionError as error:  # the server has ended before it listened
        raise ServerLost.of(error) from error
    spark = SparkSession(f"sc://127.0.0.1:{port}")
    spark.client.set_retry_policies([])
    spark.client.disable_reattachable_execute()
    for name, setting in _SETTINGS.items():
        spark.conf.set(name, setting)
    return spark
