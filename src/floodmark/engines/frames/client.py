"""The client of Spark Connect, by which sessions of Sail and of Spark's own servers are reached: its import, in any process, and whose a session is."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any
from weakref import WeakSet

_ASKED = "pyspark.testing.connectutils"
_LOCK = threading.Lock()
_IMPORTING: list[str] = []
"""Names of the threads within ``importable``; the answer stays until the last one leaves."""
_OF_SPARK: WeakSet[Any] = WeakSet()
"""Sessions on servers of Spark; all others are Sail's."""


@contextmanager
def importable() -> Iterator[None]:
    """Around the first import of ``pyspark.sql.connect`` in a process; threads may import at the same time.

    Its ``check_dependencies`` (PySpark 4.2) takes a process whose main module has no file, such as that of a Dagster run, for a run of
    doctests. It then asks pyspark's test utilities whether to skip them; these end the process where only ``pyspark-client`` is installed.
    It asks for the main module's ``__spec__``, which that of Python's debugger has not.
    """
    vars(sys.modules["__main__"]).setdefault("__spec__", None)
    name = threading.current_thread().name
    with _LOCK:
        answers = bool(_IMPORTING) or _ASKED not in sys.modules  # else the real module is loaded
        if answers:
            _IMPORTING.append(name)
            sys.modules.setdefault(_ASKED, _answer())
    try:
        yield
    finally:
        with _LOCK:
            if answers:
                _IMPORTING.remove(name)
                if not _IMPORTING:
                    sys.modules.pop(_ASKED, None)


def note_spark(session: Any) -> None:
    """Note that a session of Spark Connect is on a server of Spark, not of Sail."""
    _OF_SPARK.add(session)


def is_connected(session: Any) -> bool:
    """Whether a session is one of Spark Connect, as all of Sail are."""
    return type(session).__module__.startswith("pyspark.sql.connect")


def is_sail(session: Any) -> bool:
    """Whether a session is on a server of Sail."""
    return is_connected(session) and session not in _OF_SPARK


@contextmanager
def active(session: Any) -> Iterator[None]:
    """A block in which the client takes a session for that of this thread: the rows that a server holds would else be those of another session, or of none."""
    if not is_connected(session):
        yield
        return
    sessions = type(session)._active_session  # noqa: SLF001 - no method takes it back
    before = getattr(sessions, "session", None)
    sessions.session = session
    try:
        yield
    finally:
        sessions.session = before


def _answer() -> ModuleType:
    """A module of that name whose answer is that Spark Connect can be tested."""
    answer = ModuleType(_ASKED)
    answer.__dict__.update(should_test_connect=True, connect_requirement_message="")
    return answer
