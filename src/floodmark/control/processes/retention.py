"""Retention in the control plane: removes unreferenced packages, old logs of drivers, and old records."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

from floodmark.control.processes.package import packing
from floodmark.control.state import references
from floodmark.control.state.rollout import Rollouts
from floodmark.control.state.store import Store
from floodmark.core.errors import FloodmarkError
from floodmark.lake.maintenance.removal import Removed, contents, take_away
from floodmark.lake.maintenance.removal import clear as clear_removed

_DAY = 86_400
_LARGEST_LOG = 64 << 20
"""Size of a running driver's log, bytes, above which the beginning is removed."""
_TAIL = 1 << 20
"""Bytes at the end of a log that are retained then."""


def tidy(store: Store, home: Path, *, days: float, dry_run: bool = False) -> tuple[list[Removed], list[str]]:
    """Remove old packages, logs and records that nothing references.

    Args:
        store: the control store.
        home: folder of packages and logs.
        days: least age, days, since a package was last packed, a log last written, or a record made.
        dry_run: only report what would be removed.

    Returns:
        The removed objects, and the reasons why packages could not be removed.
    """
    before, stay = time.time() - days * _DAY, list[str]()
    removed = [*_logs(store, home, before, dry_run=dry_run)]
    try:
        references.record(home, store)
        removed += _packages(home, before, dry_run=dry_run)
    except FloodmarkError as error:
        stay.append(f"packages: {error}")
    rows = store.forget(before, dry_run=dry_run) | {"rollouts": Rollouts(store).forget(before, dry_run=dry_run)}
    removed += [Removed(kind="rows of the control store", name=name, files=n, size=0) for name, n in rows.items() if n]
    return removed, stay


def _packages(home: Path, before: float, *, dry_run: bool) -> Iterator[Removed]:
    folder = home / "packages"
    if not folder.is_dir():
        return
    with packing(folder):
        clear_removed(str(folder))
        needed = references.named(home)
        for package in sorted(folder.iterdir()):
            if package.is_dir() and package.name not in needed and package.stat().st_mtime < before:
                held = contents(str(package))
                if not dry_run:
                    take_away(str(package))
                yield Removed(kind="package", name=package.name, files=held.files, size=held.size)


def _logs(store: Store, home: Path, before: float, *, dry_run: bool) -> Iterator[Removed]:
    """Remove old logs except those of running and newest drivers, and shorten too long logs of running drivers."""
    for folder in sorted(path for path in (home / "logs").glob("*") if path.is_dir()):
        newest = [store.drivers(one.stream) for one in store.deployments() if one.operator == folder.name]
        living = {Path(driver.log) for drivers in newest for driver in drivers if driver.ended_at is None}
        retained = living | {Path(driver.log) for drivers in newest for driver in drivers[:1]}
        files, size = 0, 0
        for log in sorted(folder.glob("*.log")):
            held = log.stat()
            if log not in retained and held.st_mtime < before:
                files, size = files + 1, size + held.st_size
                if not dry_run:
                    log.unlink()
            elif log in living and held.st_size > _LARGEST_LOG:
                files, size = files + 1, size + held.st_size - _TAIL
                if not dry_run:
                    _shorten(log)
        if files:
            yield Removed(kind="logs of drivers", name=folder.name, files=files, size=size)


def _shorten(log: Path) -> None:
    """Reduce a log to its end while its process keeps appending to it."""
    with log.open("rb") as stream:
        stream.seek(-_TAIL, os.SEEK_END)
        tail = stream.read()
    with log.open("ab") as stream:
        stream.truncate(0)
        stream.write(tail[tail.find(b"\n") + 1 :])
