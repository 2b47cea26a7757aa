"""Commit conflicts between two writers of one table: retries, and the error after the last retry."""

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
    """Run a write, and retry it up to four times if another writer commits first.

    Args:
        write: () -> result. Opens the table anew at each call.
        path: path of the table.
        conflict: exception -> True if it reports a conflicting commit; by default True for delta-rs' ``CommitFailedError``.

    Raises:
        LifecycleError: LIFECYCLE-004, every attempt conflicted with another writer.
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
    """The error LIFECYCLE-004 for a conflict that cannot be retried.

    Args:
        path: path of the table.
        got: the other writer, for the error's text.
    """
    fix = "Run it again when the other writer has finished."
    return LifecycleError(f"table {path}", "no other writer", got, fix, code="LIFECYCLE-004")
