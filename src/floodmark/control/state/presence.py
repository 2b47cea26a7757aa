"""Presence: whether the process of a driver is on this machine, and alive; whether an open folder still has its path."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

import psutil

from floodmark.control.state.records import Driver
from floodmark.core import host


def is_here(driver: Driver) -> bool:
    """True if a driver's process is on this machine, so that its process id is valid here."""
    return driver.host is None or host.is_here(driver.host)


def lives(driver: Driver) -> bool:
    """True if a driver's process on this machine is alive, and its id was not reused by a later process."""
    assert driver.pid is not None
    return host.living(driver.pid, driver.born) is not None


def is_gone(driver: Driver) -> bool:
    """True if the process of a driver on this machine has ended, and its record does not say so yet."""
    return driver.ended_at is None and is_here(driver) and driver.pid is not None and not lives(driver)


def is_paused(driver: Driver) -> bool:
    """True if a driver's process on this machine is stopped by a signal, such as SIGSTOP."""
    with suppress(psutil.NoSuchProcess):
        return driver.pid is not None and psutil.Process(driver.pid).status() == psutil.STATUS_STOPPED and lives(driver)
    return False


class OpenFolder:
    """A folder that stays open for as long as the context lasts, so that no later folder of the same path can be taken for it. It is made where there is none.

    Args:
        path: of the folder.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        path.mkdir(parents=True, exist_ok=True)
        self._descriptor = os.open(path, os.O_RDONLY)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self._descriptor)

    @property
    def is_gone(self) -> bool:
        """True if the folder was removed or moved away. False also if that cannot be seen now, as on a file system that does not answer."""
        try:
            there = self.path.stat()
        except (FileNotFoundError, NotADirectoryError):
            return True
        except OSError:
            return False
        return not os.path.samestat(os.fstat(self._descriptor), there)
