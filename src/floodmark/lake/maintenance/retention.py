"""Retention of data that no stream resumes from: timelines ended by a rollback or a rebuild, abandoned rebuilds, and files of marks.

A savepoint holds all files of its checkpoint, and a rollback begins a new timeline from the savepoint. So only an unfinished switch needs the timeline
that it ends.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import suppress

from deltalake import DeltaTable

from floodmark.core.errors import LifecycleError
from floodmark.lake.folder.copies import remove
from floodmark.lake.folder.locks import exclusive
from floodmark.lake.folder.paths import Lake
from floodmark.lake.folder.storage import folders
from floodmark.lake.maintenance.removal import GOING, Removed, clear, contents, take_away
from floodmark.lake.maintenance.vacuum import vacuum
from floodmark.lake.restore.switch import pending
from floodmark.lake.stream import answers, marks, positions
from floodmark.lake.stream.timeline import STARTS, TICKS, Timeline, streams
from floodmark.lake.writing.conflicts import retried

DAYS = 30
"""Days for which ended timelines and abandoned rebuilds are retained."""
_DAY = 86_400
_MOST_FILES = 20
"""Files of ``starts`` or ``ticks`` above which they are merged."""


def retire(lake: Lake, *, days: float = DAYS, dry_run: bool = False) -> tuple[list[Removed], list[str]]:
    """Remove ended timelines and abandoned rebuilds that were not written for a while. The caller holds the lock of the lake's data files.

    Args:
        lake: the lake to clean.
        days: least age of the newest file of a removed object, days; 30 by default.
        dry_run: only report what would be removed.

    Returns:
        The removed objects, and the reasons why nothing may be removed.
    """
    if pending(lake) is not None:
        return [], ["old timelines: a rollback or rebuild was begun and not finished, which may need them"]
    removed, before = list[Removed](), time.time() - days * _DAY
    for kind, name, folder in _candidates(lake, dry_run=dry_run):
        held = contents(folder)
        if held.newest < before:
            removed.append(Removed(kind=kind, name=name, files=held.files, size=held.size))
            if not dry_run:
                take_away(folder)
    return removed, []


def _candidates(lake: Lake, *, dry_run: bool) -> Iterator[tuple[str, str, str]]:
    """(kind, name, folder) of ended timelines and rebuilds. Unless ``dry_run`` is set, removes remains of interrupted removals."""
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
    """Merge the files of ``starts`` and ``ticks``, and remove those that no restorable micro-batch needs. Streams may be running.

    Args:
        lake: the lake; the caller holds the lock of its data files.
        hours: hours for which replaced files are retained.
        dry_run: only report what would be removed.
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
            floor = marks.ticked(path, oldest) if name == TICKS else _starts_read(timeline, oldest)
            gone = vacuum(
                path, timeline.folder(f"{name}.json"), floor=floor, restorable={}, hours=hours, dry_run=dry_run
            )
            if gone.files:
                removed.append(Removed(kind=name, name=operator, files=gone.files, size=gone.size))
    return removed


def tidy_answers(lake: Lake, *, dry_run: bool = False) -> list[Removed]:
    """Remove recorded answers of calls that are older than they are kept, and merge the files of others. Streams may be running."""
    done = {name: answers.tidy(lake, name, dry_run=dry_run) for name in folders(lake.internal("answers"))}
    return [
        Removed(kind="answers", name=name, files=one.files, size=one.size) for name, one in done.items() if one.files
    ]


def tidy_fits(lake: Lake, *, dry_run: bool = False) -> list[Removed]:
    """Remove what a killed fit of a model has left. Fits may be running: where a lake has locks by their lock, in a bucket by the age of the files."""
    removed, oldest = [], time.time() - _DAY
    for name in folders(lake.internal("models")):
        home = lake.fitting(name)
        with suppress(LifecycleError), exclusive(lake, "models", name, "fit"):  # one that runs has its lock
            for left in folders(home):
                try:
                    held = contents(f"{home}/{left}")
                except FileNotFoundError:
                    continue  # in a bucket: the fit has ended meanwhile
                if not lake.is_local and held.newest > oldest:
                    continue
                removed.append(Removed(kind="unfinished fit", name=name, files=held.files, size=held.size))
                if not dry_run:
                    remove(f"{home}/{left}")
    return removed


def _starts_read(timeline: Timeline, batch: int) -> int:
    """The version of ``starts`` that was read at the end of a micro-batch; -1 if the query does not read it."""
    deployed = timeline.identity.deployed()
    read = timeline.checkpoint.positions(batch)
    starts = [] if deployed is None else positions.of_starts(deployed.graph, read)
    return min((position.version for position in starts), default=-1)
