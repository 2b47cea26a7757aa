"""Two writers of one table: whose commit comes second tries again, or says so."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TypeVar

from deltalake.exceptions import CommitFailedError
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from floodmark.core.errors import LifecycleError

Result = TypeVar("Result")

_CONFLICTS = re.compile(r"DELTA_(CONCURRENT|METADATA_CHANGED|PROTOCOL_CHANGED)\w*")
_TRIES = 5


def retried(write: Callable[[], Result], path: str) -> Result:
    """Run a write again when another writer came in between; it looks at the table anew each time.

    Raises:
        LifecycleError: LIFECYCLE-004, it came in between every time.
    """
    for left in reversed(range(_TRIES)):
        try:
            return write()
        except (PySparkException, Py4JError, CommitFailedError) as error:
            if not isinstance(error, CommitFailedError) and not _CONFLICTS.search(str(error)):
                raise
            if not left:
                raise interrupted(path, "one each time") from error
    raise AssertionError


def interrupted(path: str, got: str) -> LifecycleError:
    """LIFECYCLE-004, for what cannot be tried again."""
    fix = "Run it again when the other writer has finished."
    return LifecycleError(f"table {path}", "no other writer", got, fix, code="LIFECYCLE-004")
