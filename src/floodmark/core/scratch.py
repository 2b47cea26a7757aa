"""Scratch folders, removed when their process ends; after a kill, when the next scratch folder is made."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from uuid import uuid4

from filelock import FileLock


class Scratch:
    """A folder that belongs to this process as long as it lives: its lock goes with it however it ends.

    What processes that were killed have left is removed first. As a context it is the folder's path, and is removed at the end.

    Args:
        root: of such folders, there already; by default the system's for temporary files.
    """

    def __init__(self, root: Path | None = None) -> None:
        root = root or Path(tempfile.gettempdir())
        _clear(root)
        self.path = root / f"floodmark-{uuid4().hex}"
        self._lock = FileLock(_lock_of(self.path))
        self._lock.acquire()  # before there is a folder: nobody finds one without it
        self.path.mkdir(mode=0o700)

    def __enter__(self) -> Path:
        """Its path."""
        return self.path

    def __exit__(self, *_: object) -> None:
        """Remove it."""
        self.remove()

    def remove(self) -> None:
        """The folder and its lock."""
        _remove(self.path, self._lock)


def _clear(root: Path) -> None:
    for held in root.glob("floodmark-*.lock"):
        lock = FileLock(held)
        try:
            lock.acquire(blocking=False)
        except OSError:  # its process lives, or is another user's
            continue
        _remove(held.with_suffix(""), lock)


def _remove(path: Path, lock: FileLock) -> None:
    shutil.rmtree(path, ignore_errors=True)
    _lock_of(path).unlink(missing_ok=True)
    lock.release()


def _lock_of(path: Path) -> Path:
    return path.with_name(f"{path.name}.lock")
