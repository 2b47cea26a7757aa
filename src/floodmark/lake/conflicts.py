"""Two writers of one table: whose commit comes second tries again, or says so."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from deltalake.exceptions import CommitFailedError

from floodmark.core.errors import LifecycleError

Result = TypeVar("Result")

_TRIES = 5


def _committed_second(error: Exception) -> bool:
    return isinstance(error, CommitFailedError)


def retried(
    write: Callable[[], Result], path: str, conflict: Callable[[Exception], bool] = _committed_second
) -> Result:
    """Run a write again when another writer came in between; it looks at the table anew each time.

    Args:
        write: the write.
        path: of the table.
        conflict: whether an error says that another writer came in between; by default one of delta-rs.

    Raises:
        LifecycleError: LIFECYCLE-004, another writer came in between every time.
    """
    for left in reversed(range(_TRIES)):
        try:
            return write()
        except Exception as error:
            if not conflict(error):
                raise
            if not left:
                raise interrupted(path, "one each time") from error
    raise AssertionError


def interrupted(path: str, got: str) -> LifecycleError:
    """LIFECYCLE-004, for what cannot be tried again."""
    fix = "Run it again when the other writer has finished."
    return LifecycleError(f"table {path}", "no other writer", got, fix, code="LIFECYCLE-004")
