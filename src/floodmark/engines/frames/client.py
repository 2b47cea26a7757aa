"""Importing the client of Spark Connect, which is Sail's too, in any process and without Spark."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType

_ASKED = "pyspark.testing.connectutils"
_LOCK = threading.Lock()
_IMPORTING: list[str] = []
"""Names of the threads within ``importable``; the answer stays until the last one leaves."""


@contextmanager
def importable() -> Iterator[None]:
    """Around the first import of ``pyspark.sql.connect`` in a process; threads may import at the same time.

    Its ``check_dependencies`` (PySpark 4.2) takes a process whose main module has no file, such as that of a Dagster run, for a run of
    doctests. It then asks pyspark's test utilities whether to skip them; these end the process where only ``pyspark-client`` is installed.
    """
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


def _answer() -> ModuleType:
    """A module of that name whose answer is that Spark Connect can be tested."""
    answer = ModuleType(_ASKED)
    answer.__dict__.update(should_test_connect=True, connect_requirement_message="")
    return answer
