"""The commits of a table, newest first, with their records. Uses no JVM and reads no rows."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import dropwhile, islice
from typing import Any, TypeVar

from deltalake import DeltaTable
from deltalake.exceptions import TableNotFoundError

from floodmark.core.time import END
from floodmark.lake.folder.storage import read, write
from floodmark.lake.table import entries
from floodmark.lake.table.commits import (
    BoundedRun,
    Cleaned,
    Compacted,
    Fenced,
    Forgotten,
    Landing,
    MicroBatch,
    Record,
    Restored,
    Revised,
    Ticked,
    decode,
    progress_of,
)

LIMIT = 1000
"""Commits that are searched when only recent ones matter."""
_FIRST, _TIMES = 20, 10
"""Number of commits read first, and the factor by which it grows when more are needed."""

UPKEEP = {"OPTIMIZE", "VACUUM START", "VACUUM END", "SET TBLPROPERTIES", "ADD COLUMN", "ADD COLUMNS"}
"""Delta operations that change no row."""
_WITHOUT_ROWS = (Fenced, Cleaned, Compacted, Forgotten, Revised)
"""Records of commits that change no row."""
_REVISED = "revised.json"
"""Name of the file beside a table that may have a ``Revised`` commit."""
_MOST = 10_000
"""Most commits stored when their entries expire; about a year of hourly bounded runs."""

Kind = TypeVar("Kind", Landing, MicroBatch, BoundedRun, Restored, Ticked)


@dataclass(frozen=True, slots=True)
class Commit:
    """One commit of a table.

    Args:
        version: table version that the commit created.
        at: time of the commit by the writer's clock, ms UTC.
        operation: Delta's name of the operation: ``WRITE``, ``OPTIMIZE``, ``RESTORE``.
        record: floodmark's record of the commit; None for commits of other programs.
    """

    version: int
    at: int
    operation: str
    record: Record | None

    @property
    def changes_rows(self) -> bool:
        """True if the commit adds, removes or replaces rows."""
        upkeep = self.record is None and self.operation in UPKEEP
        return not upkeep and not isinstance(self.record, _WITHOUT_ROWS)


def every(path: str, limit: int | None = None, *, upto: int | None = None) -> Iterator[Commit]:
    """The commits of a table, newest first.

    Commits are read lazily, so a search that ends among the newest reads only those. The table is not opened.

    Args:
        path: path of the table.
        limit: most commits to yield; by default all.
        upto: the newest version to yield; by default the table's newest.

    Raises:
        TableNotFoundError: there is no table.
        StateError: STATE-040, a record cannot be read.
    """
    newest = entries.newest(path)
    commits = _opened(DeltaTable(path), path) if newest is None else _read(path, newest if upto is None else upto)
    commits = commits if upto is None else dropwhile(lambda commit: commit.version > upto, commits)
    return islice(commits, limit)


def _read(path: str, newest: int) -> Iterator[Commit]:
    oldest = newest + 1
    for entry in entries.backwards(path, newest):
        yield _commit(path, entry.version, entries.commit_info(entry))
        oldest = entry.version
    yield from _StoredHistory.read(path).before(path, oldest) if oldest > 0 else ()


def _opened(table: DeltaTable, path: str) -> Iterator[Commit]:
    read, asked, oldest = 0, _FIRST, 0
    while True:
        commits = table.history(asked)
        for commit in commits[read:]:
            oldest = int(commit["version"])
            yield _commit(path, oldest, commit)
        if len(commits) < asked:
            yield from _StoredHistory.read(path).before(path, oldest) if oldest > 0 else ()
            return
        read, asked = asked, asked * _TIMES


def _commit(path: str, version: int, info: Mapping[str, Any]) -> Commit:
    record = decode(info.get("userMetadata"), f"commit {version} of table {path}")
    return Commit(version, int(info.get("timestamp", 0)), str(info.get("operation")), record)


# ---- the file that outlives expired entries


def keep(path: str, first: int) -> None:
    """Store permanent facts about the commits before a version, before their entries are removed.

    These are bounded runs, restores, revisions, writes of other programs except upkeep operations, and which commits changed no row. Micro-batches and landing commits
    are not stored: they matter only while their entries exist.

    Args:
        path: path of the table.
        first: the first version whose commit is not stored.
    """
    retained = _StoredHistory.read(path)
    commits, quiet, lost = list[list[Any]](), list[list[int]](), retained.lost
    for version in range(first - 1, retained.upto - 1, -1):
        entry = entries.entry(path, version)
        if entry is None:  # another program's clean-up removed this entry and all earlier ones
            lost = version
            break
        info = entries.commit_info(entry)
        commit = _commit(path, version, info)
        if isinstance(commit.record, BoundedRun | Restored | Revised) or (
            commit.record is None and commit.operation not in UPKEEP
        ):
            commits.append([version, commit.at, commit.operation, info.get("userMetadata")])
        if not commit.changes_rows:
            if quiet and quiet[-1][0] == version + 1:
                quiet[-1][0] = version
            else:
                quiet.append([version, version])
    if retained.upto < first:
        content = {
            "upto": first,
            "commits": [*commits, *retained.commits][:_MOST],
            "quiet": [*quiet, *retained.quiet][:_MOST],
            "lost": lost,
        }
        write(_file(path), json.dumps(content, separators=(",", ":")).encode())


@dataclass(frozen=True, slots=True)
class _StoredHistory:
    """The content of the file.

    Args:
        upto: the first version whose commit is not stored yet.
        commits: [version, time, operation, ``userMetadata``] of each stored commit, newest first.
        quiet: [first, last] version of each run of commits that changed no row, newest first.
        lost: the last version whose entry was removed before its commit was stored; -1 for none.
    """

    upto: int = 0
    commits: list[list[Any]] = field(default_factory=list)
    quiet: list[list[int]] = field(default_factory=list)
    lost: int = -1

    @staticmethod
    def read(path: str) -> _StoredHistory:
        """The stored facts of a table; empty without a file."""
        content = read(_file(path))
        return _StoredHistory() if content is None else _StoredHistory(**json.loads(content))

    def before(self, path: str, version: int) -> Iterator[Commit]:
        """The stored commits before a version, newest first."""
        for number, at, operation, user_metadata in self.commits:
            if number < version:
                yield Commit(number, at, operation, decode(user_metadata, f"commit {number} of table {path}"))


def row_changes_known(path: str, since: int, upto: int) -> bool:
    """True if for each commit in a range it is known whether it changed rows, from its entry or from the stored facts.

    Args:
        path: path of the table.
        since: the version before the first commit.
        upto: the version of the last commit.
    """
    quiet = _StoredHistory.read(path).quiet if since < upto and entries.entry(path, since + 1) is None else []
    while since < upto and entries.entry(path, since + 1) is None:
        last = next((last for first, last in quiet if first <= since + 1 <= last), None)
        if last is None:
            return False
        since = last
    return True


def complete(path: str) -> bool:
    """True if the entry of a table's first commit exists, and so those of all commits."""
    return entries.entry(path, 0) is not None


def _file(path: str) -> str:
    return entries.beside(path, "commits.json")


def standing(path: str, limit: int | None = LIMIT) -> Iterator[Commit]:
    """The commits of floodmark that are in force, newest first, without fences and upkeep; none without a table.

    A commit is in force unless it was revoked: a ``Restored`` revokes all commits after the restored version.

    Args:
        path: path of the table.
        limit: most commits to search; None for all.
    """
    try:
        commits = every(path, limit)
    except TableNotFoundError:
        return
    undone = None
    for commit in commits:
        if undone is not None and commit.version > undone:
            continue
        if isinstance(commit.record, Restored):
            undone = commit.record.restored
        if commit.record is not None and not isinstance(commit.record, _WITHOUT_ROWS):
            yield commit


def standing_of(path: str, kind: type[Kind], limit: int | None = LIMIT) -> Iterator[tuple[Commit, Kind]]:
    """The commits of ``standing`` with records of one class, as (commit, record)."""
    return ((commit, commit.record) for commit in standing(path, limit) if isinstance(commit.record, kind))


def rewritten(path: str) -> bool:
    """True if a table cannot be read commit by commit: it was restored or replaced, or files or entries of old versions were removed."""
    return not complete(path) or any(
        isinstance(c.record, Restored | Cleaned) or c.operation.startswith("VACUUM") for c in every(path)
    )


def replaced(path: str, since: int) -> bool:
    """True if a commit after a version replaced rows, or may have: nothing is known about commits whose entries were removed unrecorded."""
    oldest = None
    for commit in every(path):
        if commit.version <= since:
            return False
        if isinstance(commit.record, BoundedRun | Restored):
            return True
        if commit.record is None and commit.operation not in UPKEEP and commit.version:
            return True
        oldest = commit.version if oldest in {None, commit.version + 1} else oldest
    retained = _StoredHistory.read(path)
    return oldest is not None and oldest > since + 1 and (retained.upto < oldest or retained.lost > since)


def will_be_revised(path: str) -> None:
    """Write the file that makes ``revised`` look for a ``Revised`` commit. Without the file no entry is read."""
    write(entries.beside(path, _REVISED), b"{}")


def revised(path: str, version: int | None = None) -> bool:
    """True if rows of a table take back rows of any event time, because its stream has followed a rebuild as a difference.

    Args:
        path: path of the table.
        version: the version that is asked about; by default the newest.
    """
    if read(entries.beside(path, _REVISED)) is None:
        return False
    undone = None
    for commit in every(path, upto=version):
        if undone is not None and commit.version > undone:
            continue
        if isinstance(commit.record, Restored):
            undone = commit.record.restored
        if isinstance(commit.record, Revised):
            return True
    return False


def progress(path: str, version: int | None = None) -> int | None:
    """Progress of a table by its landing or unbounded run, ms; None if neither has written it.

    Args:
        path: path of the table.
        version: table version at which progress is asked; by default the newest.
    """
    for commit in standing(path, limit=None) if version is None or version >= 0 else ():
        reached = progress_of(commit.record)
        if reached is not None and (version is None or commit.version <= version):
            return reached
    return None


def reached_by(path: str) -> int | None:
    """The oldest version whose entry is needed to determine a table's progress, and its progress before the end of input.

    Restores need no entry, as ``keep`` stores them. None if no entry is needed.
    """
    oldest = None
    for commit in standing(path, limit=None):
        reached = progress_of(commit.record)
        if reached is None:
            continue
        if not isinstance(commit.record, Restored):
            oldest = commit.version
        if reached < END:
            break
    return oldest


def holds_files(path: str) -> bool:
    """True if a table has at least one data file."""
    return bool(DeltaTable(path).file_uris())
