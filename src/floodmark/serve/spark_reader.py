"""The process that reads Spark's state for the service: a session of its own, started by the first question that needs it and ended when nobody asks."""

# ruff: noqa: PLC0415 - only a state of Spark's needs PySpark

from __future__ import annotations

import os
import re
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from multiprocessing import get_context
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import TYPE_CHECKING, Literal

from floodmark.compiler.paths import Node
from floodmark.core.errors import SetupError, described
from floodmark.lake.restore.canonical import BatchMetadata

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_IDLE_SECONDS = 600.0
"""Seconds without a question after which the process ends: Java takes memory."""
_BEHIND = 5
"""How much later than others the process gets its turns: it takes what answering leaves."""
_ENDS = "a service that ends"
"""What is there instead of an answer after ``close``."""
_TRIES = 2
"""A process that has ended since the last question is replaced once."""

Order = tuple[str, int, Node, str]
"""Folder of the checkpoint, micro-batch, graph of the operator, folder to create for the rows."""

_SETTINGS = re.compile(r"spark\.(driver\.memory|driver\.extraClassPath$|local\.dir$|sql\.)")
"""Settings of the workspace that concern reading state; those of a cluster, ports or logs would be a second driver's."""

_OF_MEMORY = ("OutOfMemoryError", "GC overhead", "spark.driver.memory", "Py4JNetworkError")
"""Words of errors of a Java whose memory is too small, or that was ended for it."""

Cause = Literal["setup", "memory", "state"]
"""Why a state cannot be read: Java or Spark does not start, its memory is too small, or the state itself."""


class UnreadableError(Exception):
    """The process could not read a state.

    Args:
        why: for people.
        cause: of what kind it is.
    """

    def __init__(self, why: str, cause: Cause) -> None:
        super().__init__(why, cause)
        self.why, self.cause = why, cause


Answer = BatchMetadata | UnreadableError | None
"""What a checkpoint has beside state, why it cannot be read, or that Spark is there."""


@dataclass(slots=True)
class SparkReader:
    """Spark's state as rows of the canonical format. For threads: one reads, the others wait for it.

    Args:
        settings: of Spark, of the workspace; those that concern reading state are used.
    """

    settings: Mapping[str, str] = field(default_factory=dict)
    _process: BaseProcess | None = field(init=False, default=None)
    _connection: Connection | None = field(init=False, default=None)
    _lock: threading.Lock = field(init=False, default_factory=threading.Lock)
    _closed: bool = field(init=False, default=False)

    def start(self) -> None:
        """Start Spark, if it has not been started.

        Raises:
            UnreadableError: there is no Java or no Spark.
        """
        self._answered(None)

    def read(self, folder: str, batch: int, graph: Node, target: str) -> BatchMetadata:
        """Write the state of a micro-batch as rows; returns the other contents of its checkpoint.

        Args:
            folder: of the checkpoint, on this machine; no query runs on it.
            batch: the micro-batch.
            graph: of the operator, in its canonical form.
            target: folder to create for the rows; not created if there is no state.

        Raises:
            UnreadableError: there is no Java, no Spark, or the state cannot be read.
        """
        marks = self._answered((folder, batch, graph, target))
        assert marks is not None
        return marks

    def close(self) -> None:
        """End the process, if there is one; a read that is at work ends with an error."""
        self._closed = True
        process = self._process
        if process is not None:
            process.terminate()
        with self._lock:
            self._end()

    def _answered(self, order: Order | None) -> BatchMetadata | None:
        with self._lock:
            answer: Answer = UnreadableError("a process of Spark's that has ended twice", "memory")
            for _ in range(_TRIES):
                try:
                    answer = self._asked(order)
                    break
                except (EOFError, OSError):
                    self._end()
        if isinstance(answer, UnreadableError):
            raise answer
        return answer

    def _asked(self, order: Order | None) -> Answer:
        if self._closed:
            return UnreadableError(_ENDS, "state")
        if self._connection is None or self._process is None or not self._process.is_alive():
            self._end()
            context = get_context("spawn")
            self._connection, its = context.Pipe(duplex=True)
            process = context.Process(target=_main, args=(its, dict(self.settings)), daemon=True)
            process.start()
            its.close()
            self._process = process
            if self._closed:  # since it was looked at above: the process was not there yet to be ended
                self._end()
                return UnreadableError(_ENDS, "state")
        self._connection.send(order)
        answer: Answer = self._connection.recv()
        return answer

    def _end(self) -> None:
        if self._connection is not None:
            self._connection.close()
        if self._process is not None:
            self._process.terminate()
            self._process.join()
        self._connection = self._process = None


def _main(connection: Connection, settings: Mapping[str, str]) -> None:
    """Read what is asked for until nobody asks, or the service has gone."""
    os.nice(_BEHIND)
    try:
        answer: Answer = None
        while not isinstance(answer, UnreadableError) and connection.poll(
            _IDLE_SECONDS
        ):  # after an error the next question begins anew
            answer = _answer(connection.recv(), settings)
            connection.send(answer)
    except (EOFError, BrokenPipeError, ConnectionResetError):
        return


def _answer(order: Order | None, settings: Mapping[str, str]) -> Answer:
    try:
        from floodmark.engines.spark.state.canonical import unfolding

        if order is None:
            _session(settings)
            return None
        folder, batch, graph, target = order
        return unfolding(lambda: _session(settings), graph)(folder, batch, target)
    except Exception as error:  # noqa: BLE001 - the question is answered with it
        return UnreadableError(described(error), _cause(error))


def _cause(error: Exception) -> Cause:
    text = f"{type(error).__name__} {error}"
    if any(word in text for word in _OF_MEMORY):
        return "memory"
    return "setup" if isinstance(error, (SetupError, ImportError)) else "state"


def _session(settings: Mapping[str, str]) -> SparkSession:
    """The session of this process."""
    from floodmark.engines.spark.session.builder import spark_session
    from floodmark.engines.spark.setup import jars

    jars.fetch()
    extra = {name: value for name, value in settings.items() if _SETTINGS.match(name)}
    return spark_session(app="floodmark serve", cores="local[1]", shuffle_partitions=1, extra=extra)
