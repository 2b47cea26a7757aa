"""How long a lake keeps what no stream goes on with: timelines a rollback or a rebuild has ended, rebuilds that were given up, and files of marks.

A savepoint holds all files of its checkpoint itself, and a rollback begins a new timeline from it. So only a switch that is not finished
needs the timeline that it ends.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

from deltalake import DeltaTable

from floodmark.lake import marks, positions
from floodmark.lake.conflicts import retried
from floodmark.lake.paths import Lake
from floodmark.lake.removal import GOING, Removed, clear, contents, take_away
from floodmark.lake.storage import folders
from floodmark.lake.switch import pending
from floodmark.lake.timeline import STARTS, TICKS, Timeline, streams
from floodmark.lake.vacuum import vacuum

DAYS = 30
"""For which these are kept."""
_DAY = 86_400
_MOST_FILES = 20
"""Files of ``starts`` or ``ticks`` above which they are merged."""


def retire(lake: Lake, *, days: float = DAYS, dry_run: bool = False) -> tuple[list[Removed], list[str]]:
    """Remove timelines and rebuilds nobody has written to for long; the caller holds the lock of the lake's data files.

    Args:
        lake: any.
        days: since the newest file of one was written.
        dry_run: only say what would go.

    Returns:
        What is gone, and why other things stay.
    """
    if pending(lake) is not None:
        return [], ["old timelines: a rollback or rebuild was begun and not finished, which may need them"]
    removed, before = list[Removed](), time.time() - days * _DAY
    for kind, name, folder in _old(lake, dry_run=dry_run):
        held = contents(folder)
        if held.newest < before:
            removed.append(Removed(kind=kind, name=name, files=held.files, size=held.size))
            if not dry_run:
                take_away(folder)
    return removed, []


def _old(lake: Lake, *, dry_run: bool) -> Iterator[tuple[str, str, str]]:
    """Kind, name and folder of what no stream goes on with."""
    for operator in folders(lake.internal("operators")):
        current = Timeline.current(lake, operator).number
        for kind, inside in (("timeline", "timelines"), ("rebuild", "rebuild")):
            home = lake.internal("operators", operator, inside)
            if not dry_run:
                clear(home)
            for name in folders(home):
                ended = name.isascii() and name.isdecimal() and int(name) < current
                if (ended or kind == "rebuild") and not name.endswith(GOING):
                    yield kind, f"{operator}/{name}", f"{home}/{name}"


def merge_marks(lake: Lake, *, hours: float, dry_run: bool = False) -> list[Removed]:
    """Merge the files of ``starts`` and ``ticks``, and remove those that no micro-batch a stream can be taken back to needs; streams may run.

    Args:
        lake: whose data files the caller holds the lock of.
        hours: for which files that were replaced stay.
        dry_run: only say what would go.
    """
    removed = []
    for operator in streams(lake):
        timeline = Timeline.current(lake, operator)
        oldest = next(iter(timeline.checkpoint.restorable()), None)
        for name in (STARTS, TICKS):
            path = timeline.folder(name)
            if oldest is None or not DeltaTable.is_deltatable(path):
                continue
            if not dry_run and len(DeltaTable(path).file_uris()) > _MOST_FILES:
                retried(DeltaTable(path).optimize.compact, path)
            floor = marks.ticked(path, oldest) if name == TICKS else _started(timeline, oldest)
            gone = vacuum(
                path, timeline.folder(f"{name}.json"), floor=floor, restorable={}, hours=hours, dry_run=dry_run
            )
            if gone.files:
                removed.append(Removed(kind=name, name=operator, files=gone.files, size=gone.size))
    return removed


def _started(timeline: Timeline, batch: int) -> int:
    """How far the markers of the starts were read at the end of a micro-batch; -1 where none are read."""
    deployed = timeline.identity.deployed()
    read = timeline.checkpoint.positions(batch)
    starts = [] if deployed is None else positions.of_starts(deployed.graph, read)
    return min((position.version for position in starts), default=-1)
