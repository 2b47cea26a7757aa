"""Background writing of Delta's table checkpoints, concurrent with the next commits.

Delta expects a checkpoint of a table every ``delta.checkpointInterval`` commits, so that readers need not read all entries of its log. To write
the checkpoint, delta-rs opens the table, which takes several times as long as a micro-batch. The commit is already in the log, and readers do not need
the checkpoint: a process killed meanwhile leaves at most a draft that no reader opens, and the next checkpoint follows one interval later.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from threading import Thread
from typing import Self

from deltalake import DeltaTable

from floodmark.core import crash
from floodmark.core.errors import ExecutionError
from floodmark.lake.table import entries
from floodmark.lake.table.outputs import KEPT

_CLEANED = "delta.enableExpiredLogCleanup"
_PATIENCE = 2
"""Consecutive failed checkpoints of one table after which ``check`` raises."""


def write_checkpoint(path: str, version: int) -> None:
    """Write the checkpoint of a version of a table, and remove expired log entries if the table's properties allow it, as delta-rs does at a commit.

    Does nothing if the table has a checkpoint of this or a later version: upkeep may have removed the entries before that one.

    Raises:
        DeltaError: delta-rs could not write the checkpoint. ``OSError`` is raised as it is.
    """
    crash.point("checkpoint.before_file")
    if (entries.checkpointed(path) or 0) >= version:
        return
    table = DeltaTable(path, version=version)
    table.create_checkpoint()
    crash.point("checkpoint.after_file")
    properties = table.metadata().configuration
    expires = any(properties.get(name) != value for name, value in KEPT.items())
    if expires and properties.get(_CLEANED, "true") != "false":
        table.cleanup_metadata()


@dataclass(slots=True)
class Checkpointer:
    """Context manager that writes checkpoints in threads, at most one per table at a time. Joins all threads on exit."""

    _threads: dict[str, Thread] = field(default_factory=dict, init=False)
    """Path of the table -> its running thread."""
    _failed: dict[str, list[str]] = field(default_factory=dict, init=False)
    """Path of the table -> messages of the failures since its last successful checkpoint."""
    _untold: deque[str] = field(default_factory=deque, init=False)

    def __enter__(self) -> Self:
        """Return the checkpointer itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Wait for all checkpoints."""
        for path in list(self._threads):
            self._join(path)

    def start(self, path: str, version: int) -> None:
        """Start writing the checkpoint of a version of a table. Waits for an earlier checkpoint of the same table."""
        self._join(path)
        thread = Thread(target=self._write, args=(path, version), name=f"checkpoint of {path}")
        try:
            thread.start()
        except RuntimeError as error:  # the limit of threads
            self._fail(path, version, error)
        else:
            self._threads[path] = thread

    def failures(self) -> tuple[str, ...]:
        """Messages of the checkpoints that failed since the last call. Does not wait for running ones."""
        return tuple(self._untold.popleft() for _ in range(len(self._untold)))

    def check(self) -> None:
        """Raise if consecutive checkpoints of one table fail. Does not wait for running ones.

        Raises:
            ExecutionError: EXECUTION-062, at least ``_PATIENCE`` checkpoints of a table failed in a row.
        """
        for path, failed in list(self._failed.items()):
            if len(failed) >= _PATIENCE:
                fix = (
                    "Nothing is lost: every commit is in the table. See that the disk has room and that the table's folder _delta_log can be written, "
                    "then start the stream again."
                )
                got = f"{len(failed)} failures in a row, the last one at {failed[-1]}"
                raise ExecutionError(f"table {path}", "a checkpoint of its log", got, fix, code="EXECUTION-062")

    def _join(self, path: str) -> None:
        if (thread := self._threads.pop(path, None)) is not None:
            thread.join()

    def _write(self, path: str, version: int) -> None:
        try:
            write_checkpoint(path, version)
        except BaseException as error:  # noqa: BLE001 - an exception in a thread reaches no caller
            self._fail(path, version, error)
        else:
            self._failed.pop(path, None)

    def _fail(self, path: str, version: int, error: BaseException) -> None:
        self._failed.setdefault(path, []).append(f"version {version}: {error}")
        self._untold.append(
            f"no checkpoint was written of table {path} at version {version}: {error}. No row is lost; "
            "who opens the table reads more of its log until the next checkpoint."
        )
