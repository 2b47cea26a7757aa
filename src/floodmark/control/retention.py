"""How long the control plane keeps things: packages nobody names, logs of drivers, records of what was done."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

from floodmark.control import references
from floodmark.control.package import packing
from floodmark.control.rollout import Rollouts
from floodmark.control.store import Store
from floodmark.core.errors import FloodmarkError
from floodmark.lake.removal import Removed, contents, take_away
from floodmark.lake.removal import clear as clear_removed

_DAY = 86_400
_LARGEST_LOG = 64 << 20
"""Bytes of the log of a driver that runs, above which its beginning goes."""
_TAIL = 1 << 20
"""Bytes that are kept of it."""


def tidy(store: Store, home: Path, *, days: float, dry_run: bool = False) -> tuple[list[Removed], list[str]]:
    """Remove what is old and what nobody needs.

    Args:
        store: the control store.
        home: folder of packages and logs.
        days: since a package was last packed, a log last written, a record made.
        dry_run: only say what would go.

    Returns:
        What is gone, and why other things stay.
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
    """Logs nobody has written to for long, but that of the newest driver; of one that runs, what is too long."""
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
    """Keep the end of a log whose process goes on writing to it: at its end, wherever that is then."""
    with log.open("rb") as stream:
        stream.seek(-_TAIL, os.SEEK_END)
        tail = stream.read()
    with log.open("ab") as stream:
        stream.truncate(0)
        stream.write(tail[tail.find(b"\n") + 1 :])
