"""One writer at a time, in a lake on a local disk."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from floodmark.core.errors import LifecycleError
from floodmark.engines.spark.lake import Lake


@contextmanager
def exclusive(lake: Lake, folder: str, name: str, what: str, wait_seconds: float = 0) -> Iterator[None]:
    """Hold the lock of a thing while it is written.

    The lock goes with its process, also when that is killed. In a lake that is not on a local disk there is none: Spark and Delta
    then notice the second writer at their next commit.

    Args:
        lake: it lies in.
        folder: ``"sources"`` or ``"operators"``.
        name: of the thing.
        what: is being done: ``"landing"``, ``"run"``.
        wait_seconds: for the one that holds it.

    Raises:
        LifecycleError: LIFECYCLE-003, another process holds it.
    """
    if not lake.is_local:
        yield
        return
    path = Path(lake.internal(folder, name, "lock"))
    path.parent.mkdir(parents=True, exist_ok=True)
    lock, holder = FileLock(path), path.with_name("lock.holder")
    try:
        lock.acquire(timeout=wait_seconds)
    except Timeout:
        pid = holder.read_text() if holder.exists() else "unknown"
        fix = f"Wait until it is done, or stop it: kill -INT {pid}."
        where = f"{folder.removesuffix('s')} '{name}' in {lake.root}"
        raise LifecycleError(where, f"no other {what}", f"one by process {pid}", fix, code="LIFECYCLE-003") from None
    try:
        holder.write_text(str(os.getpid()))
        yield
    finally:
        holder.unlink(missing_ok=True)
        lock.release()
