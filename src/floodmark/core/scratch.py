"""Scratch folders, removed when their process ends; after a kill, when the next scratch folder is made."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from uuid import uuid4

from filelock import FileLock


class Scratch:
    """A scratch folder owned by this process. A file lock marks the owner; the system releases the lock however the process ends.

    The constructor first removes folders of processes that were killed. As a context, a ``Scratch`` yields the path of the folder and
    removes the folder on exit.

    Args:
        root: existing parent of scratch folders; by default the system's folder for temporary files.
    """

    def __init__(self, root: Path | None = None) -> None:
        root = root or Path(tempfile.gettempdir())
        _clear(root)
        self.path = root / f"floodmark-{uuid4().hex}"
        self._lock = FileLock(_lock_of(self.path))
        self._lock.acquire()  # before the folder exists: no process sees the folder unlocked
        self.path.mkdir(mode=0o700)

    def __enter__(self) -> Path:
        """The path of the folder."""
        return self.path

    def __exit__(self, *_: object) -> None:
        """Remove the folder and its lock."""
        self.remove()

    def remove(self) -> None:
        """Remove the folder and its lock."""
        _remove(self.path, self._lock)


def _clear(root: Path) -> None:
    for held in root.glob("floodmark-*.lock"):
        lock = FileLock(held)
        try:
            lock.acquire(blocking=False)
        except OSError:  # the owner lives, or is another user's process
            continue
        _remove(held.with_suffix(""), lock)


def _remove(path: Path, lock: FileLock) -> None:
    shutil.rmtree(path, ignore_errors=True)
    _lock_of(path).unlink(missing_ok=True)
    lock.release()


def _lock_of(path: Path) -> Path:
    return path.with_name(f"{path.name}.lock")
