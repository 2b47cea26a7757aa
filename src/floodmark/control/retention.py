"""How long the control plane keeps things: packages nobody names, logs of drivers, records of what was done, savepoints of a schedule."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

from floodmark.control import references
from floodmark.control.fleet import Fleet
from floodmark.control.package import packing
from floodmark.control.rollout import Rollouts
from floodmark.control.store import Store
from floodmark.core.errors import FloodmarkError, LifecycleError
from floodmark.lake import experiments, savepoints, switch
from floodmark.lake.locks import data_files
from floodmark.lake.removal import Removed, contents, take_away
from floodmark.lake.removal import clear as clear_removed
from floodmark.lake.savepoints import Savepoint
from floodmark.lake.timeline import Timeline

_DAY = 86_400
_PATIENCE_SECONDS = 60
"""For upkeep or a fork of the lake."""
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


def thin(fleet: Fleet, operator: str, why: str, keep: int) -> tuple[list[str], dict[str, str]]:
    """Delete savepoints of a stream that were made for one reason, but the newest, pinned and needed ones.

    What it costs follows the savepoints of the operator that there are. Killed anywhere, each savepoint is there whole, or gone.

    Args:
        fleet: of the stream.
        operator: whose savepoints.
        why: the note they were made with.
        keep: the newest so many are retained, 1 or more.

    Returns:
        Ids of those that are gone, and id -> why, of those that are retained beside the newest.

    Raises:
        LifecycleError: LIFECYCLE-105, without a note nobody knows which are meant; LIFECYCLE-003, upkeep or a fork is at work for long.
    """
    if not why:
        fix = f"Give one: floodmark savepoint create {operator} --note hourly --keep {keep}"
        where = f"retention of savepoints of '{operator}'"
        raise LifecycleError(where, "the note of those that are counted", "none", fix, code="LIFECYCLE-105")
    with data_files(fleet.lake, "retention of savepoints", _PATIENCE_SECONDS):  # no fork is on its way
        made = [one for one in savepoints.savepoints(fleet.lake, operator) if one.manifest.why == why]
        needed, gone, stay = _needed(fleet, operator), list[str](), dict[str, str]()
        for one in made[:-keep]:
            reason = "it is pinned" if one.pinned else needed.get(one.manifest.id, "")
            if reason:
                stay[one.manifest.id] = reason
            else:
                savepoints.delete(one)
                gone.append(one.manifest.id)
    return gone, stay


def check_unneeded(fleet: Fleet, savepoint: Savepoint) -> None:
    """Make sure that nothing at work goes back to a savepoint, or begins with it.

    Raises:
        LifecycleError: LIFECYCLE-113.
    """
    reason = _needed(fleet, savepoint.manifest.operator).get(savepoint.id)
    if reason:
        fix = (
            "Wait until that is over, or end it: floodmark rollout abort OPERATOR; floodmark experiment stop NAME, then floodmark experiment clean NAME. "
            "How things are: floodmark rollout status, floodmark experiment list, floodmark status"
        )
        where = f"savepoint '{savepoint.id}'"
        raise LifecycleError(where, "one that nothing needs", reason, fix, code="LIFECYCLE-113")


def _needed(fleet: Fleet, operator: str) -> dict[str, str]:
    """Savepoint -> who needs it: what is at work may go back to it, or begin with it again after a crash."""
    lake, stream = fleet.lake, fleet.stream(operator)
    found = {one.savepoint: f"experiment '{one.name}' began with it" for one in experiments.known(lake)}
    for action in fleet.store.open_actions():
        if action.savepoint:
            found[action.savepoint] = f"a {action.kind} that is not finished may go back to it"
    rollout = Rollouts(fleet.store).open(stream)
    if rollout is not None and rollout.savepoint:
        found[rollout.savepoint] = f"{rollout.name} may go back to it"
    begun = switch.pending(lake)
    if begun is not None:
        found |= dict.fromkeys(
            [begun.back, *(target.savepoint for target in begun.targets)], "a rollback that is not finished"
        )
    moved = Timeline.current(lake, operator).moved
    if moved is not None:
        found[moved.savepoint] = f"its stream has moved to {moved.root} with it"
    return found


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
        kept = living | {Path(driver.log) for drivers in newest for driver in drivers[:1]}
        files, size = 0, 0
        for log in sorted(folder.glob("*.log")):
            held = log.stat()
            if log not in kept and held.st_mtime < before:
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
