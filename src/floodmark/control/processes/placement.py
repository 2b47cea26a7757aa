"""Placement: whether a stream runs in a process of its own, or in one that it shares with others of its package."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from floodmark.control.state.presence import is_here, lives
from floodmark.control.state.records import Deployment, Driver
from floodmark.control.state.store import Store
from floodmark.core import background

HEALTHY_SECONDS, LONGEST_ALONE_SECONDS = 60.0, 1800.0
"""Least and greatest time that a stream runs alone after its process has died, before it shares one again."""
_TAIL_BYTES = 4000


def shares(deployment: Deployment, drivers: Sequence[Driver]) -> str | None:
    """``Driver.shares`` of the next driver of a stream. After the death of its process a stream starts alone, so that the one that causes it becomes known.

    Args:
        deployment: deployment of the stream.
        drivers: its drivers, newest first.
    """
    alone = deployment.hosting == "isolated" or bool(drivers and drivers[0].died)
    return None if alone else deployment.process


def joined(store: Store, driver: Driver) -> Driver | None:
    """Add a driver to a process that takes it. Returns a driver in that process; None if there is no such process."""
    for other in store.living():
        mine = other.shares is not None and other.shares == driver.shares and is_here(other)
        if mine and other.pid is not None and lives(other) and store.join(driver.id, other):
            return other
    return None


def may_join(deployment: Deployment, driver: Driver, store: Store, now: float) -> bool:
    """True if a driver is alone since the process of the one before died, and has run for twice as long as that one."""
    if deployment.hosting == "isolated" or driver.shares is not None or driver.state != "running":
        return False
    before = next(iter(store.drivers(driver.stream, 2)[1:]), None)
    if before is None or not before.died:
        return False
    lived = (before.ended_at or 0) - before.started_at
    return now - driver.started_at > min(max(2 * lived, HEALTHY_SECONDS), LONGEST_ALONE_SECONDS)


def process_log(driver: Driver) -> Path:
    """The log of the process that is started for a driver. Of a shared process it has what no stream writes."""
    log = Path(driver.log)
    return log if driver.shares is None else log.with_suffix(".process.log")


def append_tail(store: Store, driver: Driver) -> None:
    """Append what a shared process has written last, such as why it ended, to the log of one of its streams."""
    if driver.shares is None:
        return
    with suppress(OSError):
        text, _ = background.tail(process_log(store.first(driver)), _TAIL_BYTES)
        with Path(driver.log).open("a", encoding="utf-8") as log:
            log.write(text)
