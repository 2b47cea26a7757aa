"""The commits of a table, newest first, with what each says of itself. No JVM, no scan of rows."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import dropwhile, islice
from typing import Any, TypeVar

from deltalake import DeltaTable
from deltalake.exceptions import TableNotFoundError

from floodmark.core.time import END
from floodmark.lake import entries
from floodmark.lake.commits import (
    BoundedRun,
    Cleaned,
    Compacted,
    Fenced,
    Landing,
    MicroBatch,
    Record,
    Restored,
    Ticked,
    decode,
    progress_of,
)
from floodmark.lake.paths import is_local
from floodmark.lake.storage import read, write

LIMIT = 1000
"""Commits that are looked at where the newest are enough."""
_FIRST, _TIMES = 20, 10
"""Commits that are read at first, and how many times more whenever these were not enough."""

UPKEEP = {"OPTIMIZE", "VACUUM START", "VACUUM END", "SET TBLPROPERTIES", "ADD COLUMN", "ADD COLUMNS"}
"""Operations that change no row."""
_MOST = 10_000
"""Commits of which something is kept when their entries go; there are so many bounded runs after a year of hourly ones."""

Kind = TypeVar("Kind", Landing, MicroBatch, BoundedRun, Restored, Ticked)


@dataclass(frozen=True, slots=True)
class Commit:
    """One commit of a table.

    Args:
        version: of the table.
        at: when, ms UTC, by the clock of the writer.
        operation: as Delta names it: ``WRITE``, ``OPTIMIZE``, ``RESTORE``.
        record: of the commit; None where floodmark did not make it.
    """

    version: int
    at: int
    operation: str
    record: Record | None

    @property
    def changes_rows(self) -> bool:
        """Whether who reads the table finds other rows behind it."""
        upkeep = self.record is None and self.operation in UPKEEP
        return not upkeep and not isinstance(self.record, Fenced | Cleaned | Compacted)


def every(path: str, limit: int | None = None, *, upto: int | None = None) -> Iterator[Commit]:
    """Each commit of a table, or the newest ``limit``, newest first.

    Commits are read as they are asked for, so that who finds what it looks for among the newest pays for these alone. On a local disk the
    table is not opened, whatever its size.

    Args:
        path: of the table.
        limit: most commits.
        upto: the version to begin with; by default the newest.

    Raises:
        TableNotFoundError: there is no table.
        StateError: STATE-040, a record cannot be read.
    """
    newest = entries.newest(path) if is_local(path) else None
    commits = _opened(DeltaTable(path), path) if newest is None else _read(path, newest if upto is None else upto)
    commits = commits if upto is None else dropwhile(lambda commit: commit.version > upto, commits)
    return islice(commits, limit)


def _read(path: str, newest: int) -> Iterator[Commit]:
    oldest = newest + 1
    for entry in entries.backwards(path, newest):
        yield _commit(path, entry.version, entries.commit_info(entry))
        oldest = entry.version
    yield from _Kept.read(path).before(path, oldest) if oldest > 0 else ()


def _opened(table: DeltaTable, path: str) -> Iterator[Commit]:
    read, asked, oldest = 0, _FIRST, 0
    while True:
        commits = table.history(asked)
        for commit in commits[read:]:
            oldest = int(commit["version"])
            yield _commit(path, oldest, commit)
        if len(commits) < asked:
            yield from _Kept.read(path).before(path, oldest) if oldest > 0 else ()
            return
        read, asked = asked, asked * _TIMES


def _commit(path: str, version: int, info: Mapping[str, Any]) -> Commit:
    record = decode(info.get("userMetadata"), f"commit {version} of table {path}")
    return Commit(version, int(info.get("timestamp", 0)), str(info.get("operation")), record)


# ---- what stays of commits whose entries go


def keep(path: str, first: int) -> None:
    """Keep what counts for ever of the commits before a version, before somebody removes their entries.

    That is: bounded runs, what was put in place of the table, and writes that are not floodmark's, but for those of upkeep; and which commits have
    changed no row. Micro-batches and landings count only while their entries are there.

    Args:
        path: of the table.
        first: the version.
    """
    retained = _Kept.read(path)
    commits, quiet, lost = list[list[Any]](), list[list[int]](), retained.lost
    for version in range(first - 1, retained.upto - 1, -1):
        entry = entries.entry(path, version)
        if entry is None:  # somebody's clean-up has removed it, and all before it
            lost = version
            break
        info = entries.commit_info(entry)
        commit = _commit(path, version, info)
        if isinstance(commit.record, BoundedRun | Restored) or (
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
class _Kept:
    """The content of the file.

    Args:
        upto: the first version whose entry was not looked at.
        commits: version, time, operation and ``userMetadata`` of each, newest first.
        quiet: first and last version of commits in a row that have changed no row, newest first.
        lost: the last version whose entry was gone before it was looked at; -1 for none.
    """

    upto: int = 0
    commits: list[list[Any]] = field(default_factory=list)
    quiet: list[list[int]] = field(default_factory=list)
    lost: int = -1

    @staticmethod
    def read(path: str) -> _Kept:
        """Of a table."""
        content = read(_file(path))
        return _Kept() if content is None else _Kept(**json.loads(content))

    def before(self, path: str, version: int) -> Iterator[Commit]:
        """The commits before a version, newest first."""
        for number, at, operation, user_metadata in self.commits:
            if number < version:
                yield Commit(number, at, operation, decode(user_metadata, f"commit {number} of table {path}"))


def row_changes_known(path: str, since: int, upto: int) -> bool:
    """Whether it is known of each commit behind a version whether it has changed rows: its entry is there, or was kept; the last one is of ``upto``."""
    quiet = _Kept.read(path).quiet if since < upto and entries.entry(path, since + 1) is None else []
    while since < upto and entries.entry(path, since + 1) is None:
        last = next((last for first, last in quiet if first <= since + 1 <= last), None)
        if last is None:
            return False
        since = last
    return True


def complete(path: str) -> bool:
    """Whether the entry of the first commit of a table is there, and so those of all commits."""
    return entries.entry(path, 0) is not None


def _file(path: str) -> str:
    return entries.beside(path, "commits.json")


def standing(path: str, limit: int | None = LIMIT) -> Iterator[Commit]:
    """Commits of floodmark's that stand, but fences and those of upkeep, newest first; nothing without a table.

    A commit that was taken back does not stand: a ``Restored`` puts a version in place of all commits behind that one.

    Args:
        path: of the table.
        limit: commits that are looked at.
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
        if commit.record is not None and not isinstance(commit.record, Fenced | Cleaned | Compacted):
            yield commit


def standing_of(path: str, kind: type[Kind], limit: int | None = LIMIT) -> Iterator[tuple[Commit, Kind]]:
    """The commits of ``standing`` with one kind of record, each with its record."""
    return ((commit, commit.record) for commit in standing(path, limit) if isinstance(commit.record, kind))


def rewritten(path: str) -> bool:
    """Whether the rows of a table cannot be read commit by commit: it was taken back or replaced, or files or entries of old versions were removed."""
    return not complete(path) or any(
        isinstance(c.record, Restored | Cleaned) or c.operation.startswith("VACUUM") for c in every(path)
    )


def replaced(path: str, since: int) -> bool:
    """Whether a commit behind a version has put rows in place of others, or may have: nothing tells what the commits did that are gone."""
    oldest = None
    for commit in every(path):
        if commit.version <= since:
            return False
        if isinstance(commit.record, BoundedRun | Restored):
            return True
        if commit.record is None and commit.operation not in UPKEEP and commit.version:
            return True
        oldest = commit.version if oldest in {None, commit.version + 1} else oldest
    retained = _Kept.read(path)
    return oldest is not None and oldest > since + 1 and (retained.upto < oldest or retained.lost > since)


def progress(path: str, version: int | None = None) -> int | None:
    """How far a landing or an unbounded run has got with a table; None when none has written it.

    Args:
        path: of the table.
        version: as of which; by default the newest.
    """
    for commit in standing(path, limit=None) if version is None or version >= 0 else ():
        reached = progress_of(commit.record)
        if reached is not None and (version is None or commit.version <= version):
            return reached
    return None


def reached_by(path: str) -> int | None:
    """The oldest version whose entry is needed to tell how far a table has got, and how far it had got before its input ended.

    What was put in place of the table is told without its entry (``keep``). None where no entry tells.
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
    """Whether a table has a file of rows."""
    return bool(DeltaTable(path).file_uris())
