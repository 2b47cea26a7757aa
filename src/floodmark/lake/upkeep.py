"""Upkeep of tables: small files become large ones, and what nobody can need any more is removed. No JVM is needed.

What was replaced, and what killed writers have left behind, goes. Kept, whatever its age: what the newest version has, what a savepoint goes back to, and what a stream has yet to read. Nothing of a
log is removed, because a stream begins at its first row and reads it commit by commit. Commits of logs and outputs are kept too: where somebody has set a table's properties back, so that Delta's own
clean-up would remove them, they are set again.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass

from deltalake import DeltaTable

from floodmark.lake import compaction, coverage, history, savepoints, storage
from floodmark.lake.conflicts import retried
from floodmark.lake.locks import data_files
from floodmark.lake.outputs import keep_history
from floodmark.lake.paths import Lake
from floodmark.lake.storage import folders
from floodmark.lake.timeline import Timeline, inputs_at, streams
from floodmark.lifecycle.savepoint import TableVersion

HOURS = 168
"""For which files that were replaced are kept: whoever reads a table meanwhile has so long."""
_MS = 3_600_000
_PATIENCE_SECONDS = 60
"""For a graft that is at work."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """What was done to a table.

    Args:
        table: its name; of a log ``logs/<name>``.
        before: data files of its newest version.
        after: the same afterwards.
        removed: files that are gone, or would be.
        versions: that savepoints go back to, and that were kept whole.
        hours: files replaced within these are there; more than was asked for where a stream is further behind.
        mended: the table's properties let Delta remove commits, and now do no more.
    """

    table: str
    before: int
    after: int
    removed: int
    versions: tuple[int, ...]
    hours: int
    mended: bool = False


def maintain(lake: Lake, *, hours: int = HOURS, dry_run: bool = False) -> list[Kept]:
    """Compact every log and output of a lake, and clean the outputs; streams and landings may be at work.

    Args:
        lake: any.
        hours: for which files that were replaced are kept, and those that a writer has yet to commit: 0 only where none is at work.
        dry_run: only say what would be removed.

    Raises:
        LifecycleError: LIFECYCLE-003 a rebuild, rollback or fork is at work, LIFECYCLE-004 another writer came in between every time,
            LIFECYCLE-060 a savepoint cannot be read: nothing is removed.
    """
    with data_files(lake, "upkeep, rebuild, rollback or fork", _PATIENCE_SECONDS):
        return _maintained(lake, hours, dry_run=dry_run)


def _maintained(lake: Lake, hours: int, *, dry_run: bool) -> list[Kept]:
    versions = dict[str, set[int]]()
    for one in savepoints.all_readable(lake):
        for output in one.manifest.outputs:
            versions.setdefault(output.table, set()).add(output.version)
        for given in one.manifest.inputs.values():
            versions.setdefault(given.table, set()).update((given.version, given.version + 1))
    reading = _reading(lake)
    logs = _tables(lake.log("x")) if lake.logs is None else ()
    return [
        *(_kept_log(lake, name, dry_run=dry_run) for name in logs if not name.endswith("__quarantine")),
        *(
            _kept(lake, name, versions.get(name, set()), reading.get(name), hours, dry_run=dry_run)
            for name in _tables(lake.output("x"))
        ),
    ]


def _kept_log(lake: Lake, name: str, *, dry_run: bool) -> Kept:
    """Make a log few large files; what they were made of stays, as streams read a log commit by commit."""
    path = lake.log(name)
    before, mended = len(DeltaTable(path).file_uris()), False
    if not dry_run:
        mended = retried(lambda: keep_history(path), path)
        compaction.compact(path)
    after = len(DeltaTable(path).file_uris())
    return Kept(table=f"logs/{name}", before=before, after=after, removed=0, versions=(), hours=0, mended=mended)


def _kept(lake: Lake, name: str, versions: set[int], read: TableVersion | None, hours: int, *, dry_run: bool) -> Kept:
    path = lake.output(name)
    table = DeltaTable(path)
    before, newest = len(table.file_uris()), table.version()
    known = tuple(sorted(version for version in versions if 0 <= version <= newest))
    if read is not None and _unread(table, read):
        hours = max(hours, _age(table, read.version) + 1)
    mended = False
    if not dry_run:
        if not name.endswith("__current"):
            coverage.keep(lake, name)
            mended = retried(lambda: keep_history(path), path)
        retried(lambda: _compact(path), path)
    gone = retried(lambda: _vacuum(path, hours, known, dry_run=dry_run), path)
    after = len(DeltaTable(path).file_uris())
    return Kept(table=name, before=before, after=after, removed=len(gone), versions=known, hours=hours, mended=mended)


def _compact(path: str) -> None:
    DeltaTable(path).optimize.compact()  # opened anew at each try


def _vacuum(path: str, hours: int, versions: tuple[int, ...], *, dry_run: bool) -> list[str]:
    return DeltaTable(path).vacuum(
        retention_hours=hours,
        dry_run=dry_run,
        enforce_retention_duration=False,
        full=True,
        keep_versions=list(versions) or None,
    )


def _reading(lake: Lake) -> dict[str, TableVersion]:
    """Table -> how far the stream that is furthest behind has read it."""
    found: dict[str, TableVersion] = {}
    for name in streams(lake):
        timeline = Timeline.current(lake, name)
        last = timeline.checkpoint.last_committed()
        for given in inputs_at(timeline, last).values() if last >= 0 else ():
            other = found.get(given.table, given)
            found[given.table] = min(given, other, key=lambda one: (one.version, one.file))
    return found


def _unread(table: DeltaTable, read: TableVersion) -> bool:
    """Whether there are files a stream has yet to read; true where the log does not tell any more."""
    for version in range(read.version + 1, table.version() + 1):
        entry = storage.read(f"{table.table_uri.rstrip('/')}/_delta_log/{version:020d}.json")
        if entry is None:
            return True
        actions = [json.loads(line).get("add") for line in entry.splitlines()]
        new = sum(bool(action and action["dataChange"]) for action in actions)
        if new > (read.file + 1 if version == read.version + 1 else 0):
            return True
    return False


def _age(table: DeltaTable, version: int) -> int:
    """Hours since the commit behind a version."""
    for commit in history.of_table(table, table.table_uri, None):
        if commit.version == version + 1:
            return int((time.time() * 1000 - commit.at) // _MS)
    return 10 * 365 * 24  # its entry in the log is gone: nobody knows how old it is


def _tables(beside: str) -> Iterator[str]:
    """Names of the tables in the folder of a table."""
    folder = beside.rsplit("/", 1)[0]
    return (name for name in folders(folder) if DeltaTable.is_deltatable(f"{folder}/{name}"))
