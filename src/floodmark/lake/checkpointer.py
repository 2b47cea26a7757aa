"""Delta's checkpoints of tables, written while the next commits go on.

Every so many commits Delta wants a checkpoint of a table, so that readers need not read all entries of its log. For that delta-rs opens the table,
which takes several times as long as a micro-batch. The commit is in the log before that, and readers do not need the checkpoint: a process that
is killed meanwhile leaves at most a draft that no reader looks at, and the next checkpoint comes as many commits later.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from threading import Thread
from typing import Self

from deltalake import DeltaTable

from floodmark.core import crash
from floodmark.core.errors import ExecutionError
from floodmark.lake import entries
from floodmark.lake.outputs import KEPT

_CLEANED = "delta.enableExpiredLogCleanup"
_PATIENCE = 2
"""Checkpoints of one table that may not fail one after the other."""


def write_checkpoint(path: str, version: int) -> None:
    """Write the checkpoint of a version of a table; entries that the table's properties let expire go with it, as at a commit of delta-rs.

    Nothing is done where the table has that of a later version: upkeep may have removed the entries before it.

    Raises:
        DeltaError: delta-rs could not write it, as all ``OSError``.
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
    """Writes checkpoints in threads, at most one per table at a time, and has none at work when it is left."""

    _threads: dict[str, Thread] = field(default_factory=dict, init=False)
    """By path of the table."""
    _failed: dict[str, list[str]] = field(default_factory=dict, init=False)
    """By path of the table: why checkpoints failed since the last one that was written."""
    _untold: deque[str] = field(default_factory=deque, init=False)

    def __enter__(self) -> Self:
        """As it is."""
        return self

    def __exit__(self, *_: object) -> None:
        """Wait for all checkpoints."""
        for path in list(self._threads):
            self._join(path)

    def start(self, path: str, version: int) -> None:
        """Begin the checkpoint of a version of a table, when that of an earlier version is done."""
        self._join(path)
        thread = Thread(target=self._write, args=(path, version), name=f"checkpoint of {path}")
        try:
            thread.start()
        except RuntimeError as error:  # the limit of threads
            self._fail(path, version, error)
        else:
            self._threads[path] = thread

    def failures(self) -> tuple[str, ...]:
        """The checkpoints that failed since this was asked last, for people. Waits for none."""
        return tuple(self._untold.popleft() for _ in range(len(self._untold)))

    def check(self) -> None:
        """Refuse to go on where checkpoints fail one after the other; waits for none.

        Raises:
            ExecutionError: EXECUTION-062.
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
        except BaseException as error:  # noqa: BLE001 - nobody else hears of what a thread raises
            self._fail(path, version, error)
        else:
            self._failed.pop(path, None)

    def _fail(self, path: str, version: int, error: BaseException) -> None:
        self._failed.setdefault(path, []).append(f"version {version}: {error}")
        self._untold.append(
            f"no checkpoint was written of table {path} at version {version}: {error}. No row is lost; "
            "who opens the table reads more of its log until the next checkpoint."
        )
