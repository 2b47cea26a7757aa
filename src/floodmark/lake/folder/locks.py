"""Locks that admit one writer at a time to an operator, source or savepoint of a lake on a local disk."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from types import MappingProxyType

import psutil
from filelock import FileLock, Timeout

from floodmark.core.errors import LifecycleError
from floodmark.lake.folder.paths import Lake

STREAM = "stream"
"""Role of a stream that runs until it is stopped. Other processes do not wait for its lock."""
CATCHING_UP = "stream, which ends once it has caught up"
"""Role of a stream that ends once it has caught up. Other processes may wait for its lock."""
BOUNDED = "bounded.lock"
"""The lock of an operator's bounded runs, which may be at work beside its stream (``lake.results.beside``)."""
_LOOK_SECONDS, _LOOK_PAUSE_SECONDS = 0.5, 0.01
"""Longest time for which a lock without a living holder is tried again, and the pause between two tries: ``held_by`` holds a lock while it looks."""
_STOPPING_SECONDS = 0.5
"""Longest wait for the lock of a stream, which may be ending, or was killed so that another process has just acquired its lock."""


def stream_role(*, until_caught_up: bool) -> str:
    """The role of a stream that holds a lock: ``CATCHING_UP`` if the stream ends once it has caught up, else ``STREAM``."""
    return CATCHING_UP if until_caught_up else STREAM


_KINDS = MappingProxyType({"deliveries": "delivery"})
"""Folder -> name of what it holds, where that is not the folder's without its last letter."""


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
    file: str = "lock",
) -> Iterator[None]:
    """Hold the lock of an operator, source or savepoint while it is written.

    The operating system releases the lock when its process ends, even if the process is killed. A lake that is not on a local disk has no locks: there
    Spark and Delta detect a second writer at their next commit.

    Args:
        lake: the lake that contains the locked object.
        folder: kind of the locked object: ``"sources"``, ``"operators"``, ``"savepoints"`` or ``"actions"``.
        name: name of the locked object.
        what: the activity under the lock, for errors: ``"landing"``, ``"run"``.
        wait_seconds: how long to wait for another process to release the lock; 0 by default. A stream is waited for at most ``_STOPPING_SECONDS``.
        role: role of this process, shown to processes that want the lock, such as ``STREAM``; by default ``what``.
        on_wait: called once with a line that names the holder, before the wait.
        file: name of the lock: an operator has one of its stream and one of its bounded runs (``BOUNDED``).

    Raises:
        LifecycleError: LIFECYCLE-003, another process holds the lock.
    """
    if not lake.is_local:
        yield
        return
    path = Path(lake.internal(folder, name, file))
    path.parent.mkdir(parents=True, exist_ok=True)
    lock, holder = FileLock(path), path.with_name(f"{file}.holder")
    where = f"{_KINDS.get(folder, folder.removesuffix('s'))} '{name}' in {lake.root}"
    try:
        _acquire(lock, holder, where, wait_seconds, on_wait)
    except Timeout:
        pid, held_by = _holder(holder)
        expected, got = f"no other {what}", f"one by process {pid}"
        if held_by == STREAM:  # a stream does not end by itself, and a supervisor restarts a killed one
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


def held_by(lake: Lake, folder: str, name: str) -> str | None:
    """The holder of a lock of ``exclusive``, for people: its role and process; None if the lock is free, or the lake has no locks."""
    path = Path(lake.internal(folder, name, "lock")) if lake.is_local else None
    if path is None or not path.exists():
        return None
    lock = FileLock(path)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        pid, role = _holder(path.with_name("lock.holder"))
        return f"{role}, process {pid}"
    lock.release()
    return None


def _acquire(
    lock: FileLock, holder: Path, where: str, wait_seconds: float, on_wait: Callable[[str], None] | None
) -> None:
    """Acquire the lock; reports its holder before a wait.

    Raises:
        Timeout: another process holds the lock for longer than the wait, or its holder is a stream.
    """
    with suppress(Timeout):
        lock.acquire(timeout=0)
        return
    if not _lives(_holder(holder)[0]):
        with suppress(Timeout):
            lock.acquire(timeout=_LOOK_SECONDS, poll_interval=_LOOK_PAUSE_SECONDS)
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


def holder(lake: Lake, folder: str, name: str, file: str = "lock") -> int | None:
    """The process that holds a lock; None if none does that is alive, or the lake has no locks."""
    pid, _ = _holder(Path(lake.internal(folder, name, f"{file}.holder"))) if lake.is_local else ("", "")
    return int(pid) if _lives(pid) else None


def _lives(pid: str) -> bool:
    """(id of a holder's process, as text) -> whether it is one, and the process is alive."""
    return pid.isdecimal() and psutil.pid_exists(int(pid))


def _holder(file: Path) -> tuple[str, str]:
    """(process id, role) of the holder of a lock."""
    try:
        text = file.read_text()
    except FileNotFoundError:  # it has none, or has just released the lock
        text = ""
    pid, _, role = text.partition(" ")
    return pid or "unknown", role or "writer"


def data_files(lake: Lake, what: str, wait_seconds: float) -> AbstractContextManager[None]:
    """Hold the lock of the data files of a lake's outputs.

    Upkeep removes files that no commit names; grafts write files that a later commit names. The lock excludes them from running at the same time. Streams
    do not acquire the lock: upkeep does not remove young files.

    Args:
        lake: the lake of the outputs.
        what: the activity under the lock, for errors: ``"upkeep"``, ``"fork"``.
        wait_seconds: how long to wait for another process to release the lock.

    Raises:
        LifecycleError: LIFECYCLE-003, another process holds the lock.
    """
    return exclusive(lake, "actions", "files", what, wait_seconds)
