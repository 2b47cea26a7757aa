"""Importing the client of Spark Connect, which is Sail's too, in any process and without Spark."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType

_ASKED = "pyspark.testing.connectutils"


@contextmanager
def importable() -> Iterator[None]:
    """Around the first import of ``pyspark.sql.connect`` in a process.

    Its ``check_dependencies`` (PySpark 4.2) takes a process whose main module has no file, such as that of a Dagster run, for a run of
    doctests. It then asks pyspark's test utilities whether to skip them; these end the process where only ``pyspark-client`` is installed.
    """
    if _ASKED in sys.modules:
        yield
        return
    answer = ModuleType(_ASKED)
    answer.__dict__.update(should_test_connect=True, connect_requirement_message="")
    sys.modules[_ASKED] = answer
    try:
        yield
    finally:
        sys.modules.pop(_ASKED, None)
