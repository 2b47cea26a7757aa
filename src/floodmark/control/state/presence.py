"""Presence: whether the process of a driver is on this machine, and alive."""

from __future__ import annotations

from contextlib import suppress

import psutil

from floodmark.control.state.records import Driver
from floodmark.core import host


def is_here(driver: Driver) -> bool:
    """True if a driver's process is on this machine, so that its process id is valid here."""
    return driver.host is None or host.is_here(driver.host)


def lives(driver: Driver) -> bool:
    """True if a driver's process on this machine is alive, and its id was not reused by a later process."""
    assert driver.pid is not None
    try:
        process = psutil.Process(driver.pid)
        same = driver.born is None or abs(process.create_time() - driver.born) < 1
        return bool(same and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def is_gone(driver: Driver) -> bool:
    """True if the process of a driver on this machine has ended, and its record does not say so yet."""
    return driver.ended_at is None and is_here(driver) and driver.pid is not None and not lives(driver)


def is_paused(driver: Driver) -> bool:
    """True if a driver's process on this machine is stopped by a signal, such as SIGSTOP."""
    with suppress(psutil.NoSuchProcess):
        return driver.pid is not None and psutil.Process(driver.pid).status() == psutil.STATUS_STOPPED and lives(driver)
    return False
