"""One writer at a time, in a lake on a local disk."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path

from filelock import FileLock, Timeout

from floodmark.core.errors import LifecycleError
from floodmark.lake.paths import Lake

STREAM = "stream"
"""The role of a stream, which holds its lock until it is stopped. Nothing waits for it."""
CATCHING_UP = "stream, which ends once it has caught up"
"""The role of a stream that ends by itself."""
_STOPPING_SECONDS = 0.5
"""How long the lock of a stream is waited for: the stream may be ending, or was killed and its lock was just taken by another process."""


@contextmanager
def exclusive(
    lake: Lake,
    folder: str,
    name: str,
    what: str,
    wait_seconds: float = 0,
    *,
    role: str = "",
    on_wait: Callable[[str], None] | None = None,
) -> Iterator[None]:
    """Hold the lock of a thing while it is written.

    The lock goes with its process, also when that is killed. In a lake that is not on a local disk there is none: Spark and Delta
    then notice the second writer at their next commit.

    Args:
        lake: it lies in.
        folder: ``"sources"`` or ``"operators"``.
        name: of the thing.
        what: is being done: ``"landing"``, ``"run"``.
        wait_seconds: for the process that holds it; a stream is not waited for.
        role: of this process, for those that wait for it: ``STREAM``; by default ``what``.
        on_wait: called with a line that names the holder, once, before the wait.

    Raises:
        LifecycleError: LIFECYCLE-003, another process holds it.
    """
    if not lake.is_local:
        yield
        return
    path = Path(lake.internal(folder, name, "lock"))
    path.parent.mkdir(parents=True, exist_ok=True)
    lock, holder = FileLock(path), path.with_name("lock.holder")
    where = f"{folder.removesuffix('s')} '{name}' in {lake.root}"
    try:
        _acquire(lock, holder, where, wait_seconds, on_wait)
    except Timeout:
        pid, held_by = _holder(holder)
        expected, got = f"no other {what}", f"one by process {pid}"
        if held_by == STREAM:  # never done by itself; a supervisor would start one that is killed again
            stream = f"It is the stream: stop it with floodmark stop {name}, or where no supervisor runs it with kill -INT {pid}."
            raise LifecycleError(where, expected, got, stream, code="LIFECYCLE-003") from None
        fix = f"Wait until it is done, or stop it: kill -INT {pid}."
        raise LifecycleError(where, expected, got, fix, code="LIFECYCLE-003") from None
    try:
        holder.write_text(f"{os.getpid()} {role or what}")
        yield
    finally:
        holder.unlink(missing_ok=True)
        lock.release()


def _acquire(
    lock: FileLock, holder: Path, where: str, wait_seconds: float, on_wait: Callable[[str], None] | None
) -> None:
    """Take the lock; say who holds it before waiting.

    Raises:
        Timeout: another process holds it for longer than the wait, or is a stream.
    """
    with suppress(Timeout):
        lock.acquire(timeout=0)
        return
    if wait_seconds and _holder(holder)[1] == STREAM:
        with suppress(Timeout):
            lock.acquire(timeout=min(wait_seconds, _STOPPING_SECONDS))
            return
    pid, role = _holder(holder)
    if not wait_seconds or role == STREAM:
        raise Timeout(lock.lock_file)
    if on_wait is not None:
        on_wait(f"{where} is held by its {role}, process {pid}: waiting for at most {wait_seconds:,.0f} s")
    lock.acquire(timeout=wait_seconds)


def _holder(file: Path) -> tuple[str, str]:
    """Process and role of the one that holds a lock."""
    pid, _, role = (file.read_text() if file.exists() else "").partition(" ")
    return pid or "unknown", role or "writer"


def data_files(lake: Lake, what: str, wait_seconds: float) -> AbstractContextManager[None]:
    """Hold the lock of the data files of a lake's outputs.

    Upkeep removes files that no commit names; grafts write files that a later commit names. Only one of them is at work. Streams do not take
    the lock: upkeep leaves young files alone.

    Args:
        lake: whose outputs they are.
        what: is being done: ``"upkeep"``, ``"fork"``.
        wait_seconds: for the process that holds it.

    Raises:
        LifecycleError: LIFECYCLE-003, another process holds it.
    """
    return exclusive(lake, "actions", "files", what, wait_seconds)
