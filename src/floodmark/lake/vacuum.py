"""Removal of the data files of a table that nobody needs: those that were replaced, and those that killed writers have left.

A file stays that the newest version has, that a version has to which a savepoint goes back, or that was replaced behind what a reader has
read: a reader reads commit by commit, and these name files that a compaction has replaced since. What was replaced a short time ago stays
too, for whoever is reading it now.

What the commits say of each file is kept in a small file beside the lake's tables, so that each commit is read once, however many there are.
"""

from __future__ import annotations

import json
import os
import time
from bisect import bisect_left
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from deltalake.exceptions import DeltaError
from pyarrow.fs import FileSelector, FileType

from floodmark.core import crash
from floodmark.lake import entries, history, spared, storage, versions
from floodmark.lake.commits import Cleaned
from floodmark.lake.conflicts import retried
from floodmark.lake.entries import entry_of, log_files
from floodmark.lake.paths import is_local
from floodmark.lake.storage import file_system
from floodmark.lake.writer import Writer

_HOUR_MS = 3_600_000


@dataclass(slots=True)
class Seen:
    """What the commits of a table say of its files.

    Args:
        id: of the table.
        known: the first version whose commit was there to read.
        next: the version to go on with.
        at: time of the last commit, ms; it does not go back when a clock does.
        live: file -> the version that added it; -1 for one before ``known``.
        gone: file that was replaced -> the versions that added and removed it, and when it was removed, ms.
        marked: the table's history says that files of old versions were removed.
    """

    id: str
    known: int = 0
    next: int = 0
    at: int = 0
    live: dict[str, int] = field(default_factory=dict)
    gone: dict[str, tuple[int, int, int]] = field(default_factory=dict)
    marked: bool = False

    def read(self, path: str, newest: int) -> None:
        """Take in the commits up to a version."""
        written = {one.version: one.at for name, one in log_files(path).items() if name == entry_of(one.version)}
        first = max(self.next, min(written, default=newest + 1))
        if first > self.next:  # entries were removed before they were read here
            self.known, self.live, self.gone = first, {}, {}
        for version in range(first, newest + 1):
            entry = entries.entry(path, version)
            if entry is None:
                self.known, self.live, self.gone = version + 1, {}, {}
                continue
            self.at = max(self.at, written.get(version, 0))
            for action in entries.actions(entry):
                self._take(action, version)
        self.next = newest + 1

    def _take(self, action: Mapping[str, Any], version: int) -> None:
        if "remove" in action:
            file = unquote(action["remove"]["path"])
            self.gone[file] = (self.live.pop(file, -1), version, self.at)
        elif "add" in action:
            file = unquote(action["add"]["path"])
            again = self.gone.pop(file, None)  # a version that had it came back: it is as old as it was first
            self.live[file] = version if again is None else again[0]


@dataclass(frozen=True, slots=True)
class Vacuumed:
    """What was removed of a table.

    Args:
        files: that are gone, or would be.
        size: of these, bytes.
        why: files that nobody may need stay: why that is; empty where none do.
    """

    files: int = 0
    size: int = 0
    why: str = ""


def vacuum(
    path: str,
    seen_at: str,
    *,
    floor: int | None,
    restorable: Mapping[int, str],
    owed: Collection[str] = (),
    hours: float,
    dry_run: bool = False,
    writer: Writer | None = None,
) -> Vacuumed:
    """Remove what nobody needs of a table; the caller holds the lock of the lake's data files.

    Args:
        path: of the table.
        seen_at: path of the file with what its commits say.
        floor: the version up to which its slowest reader has read; None without one.
        restorable: versions to which savepoints go back, each with the folder that holds what it consists of, or nothing (``versions.hold``).
        owed: folders in the table's, whose files a stream has yet to commit.
        hours: for which replaced files stay, and those no commit names.
        dry_run: only say what would go.
        writer: of the table, where it is opened already.
    """
    writer = Writer(path) if writer is None else writer
    table = writer.table()
    seen, newest = _seen(seen_at, str(table.metadata().id)), table.version()
    seen.read(path, newest)
    floor = newest if floor is None else min(floor, newest)
    before = time.time_ns() // 1_000_000 - int(hours * _HOUR_MS)
    active = versions.named(table)
    of_newest = frozenset(active)
    if (why := _unknown(path, seen, floor, restorable, active)) != "":
        return Vacuumed(why=why)
    there, folders = _on_disk(path)
    ordered = sorted(version for version in restorable if version <= newest)
    unneeded = [
        file
        for file, (added, removed, at) in seen.gone.items()
        if removed <= floor and at < before and not _between(ordered, added, removed) and file not in active
    ]
    named = active | seen.live.keys() | seen.gone.keys()
    orphans = [
        file
        for file, (_, modified) in there.items()
        if file not in named and modified < before and file.split("/")[0] not in owed
    ]
    going = [file for file in (*unneeded, *orphans) if file in there]
    if not dry_run:
        taken_back = {name for name, (added, removed, _) in seen.gone.items() if _between(ordered, added, removed)}
        spared.spare(path, (taken_back | active) - of_newest)
        if any(file in seen.gone for file in going):
            _mark(writer, seen, seen_at, floor)
        _delete(path, going)
        _delete_empty(path, folders, there.keys() - set(going), before)
        for file in unneeded:
            del seen.gone[file]
        crash.point("vacuum.before_seen")
        _write(seen_at, seen)
    return Vacuumed(len(going), sum(there[file][0] for file in going))


def _between(versions: list[int], added: int, removed: int) -> bool:
    """Whether one of the versions has a file that was added by one and removed by another."""
    index = bisect_left(versions, added)
    return index < len(versions) and versions[index] < removed


def _unknown(path: str, seen: Seen, floor: int, restorable: Mapping[int, str], active: set[str]) -> str:
    """Why it is not known what somebody needs, or nothing; files of versions whose commits are gone join ``active``."""
    if floor < seen.known - 1:
        return f"a reader stands at version {floor}, and commits before version {seen.known} are gone"
    for version, folder in restorable.items():
        if version < seen.known:
            try:
                active |= versions.files(folder) if folder else versions.files(path, version)
            except DeltaError:
                return f"a savepoint goes back to version {version}, and commits before version {seen.known} are gone"
    return ""


def _on_disk(path: str) -> tuple[dict[str, tuple[int, int]], dict[str, int]]:
    """Every data file in the folder of a table -> its bytes and when it was written, ms; and every folder of one commit -> when that was written."""
    files, base = file_system(path)
    data_files, folders = dict[str, tuple[int, int]](), dict[str, int]()
    for info in files.get_file_info(FileSelector(base, recursive=True)):
        name = info.path[len(base.rstrip("/")) + 1 :]
        own = not any(part.startswith(".") or (part.startswith("_") and "=" not in part) for part in name.split("/"))
        at = (info.mtime_ns or 0) // 1_000_000
        if info.type == FileType.File and own and name.endswith(".parquet"):
            data_files[name] = (info.size, at)
        elif info.type == FileType.Directory and own and "/" not in name and "=" not in name:
            folders[name] = at
    return data_files, folders


def _mark(writer: Writer, seen: Seen, seen_at: str, floor: int) -> None:
    """Say in the table's history, once and before it is so, that its old versions lack files: who begins to read it takes it as it is."""
    if not seen.marked:
        crash.point("vacuum.before_mark")
        if not history.rewritten(writer.path):
            retried(lambda: writer.note(Cleaned(before=floor)), writer.path)
        seen.marked = True
        _write(seen_at, seen)
    crash.point("vacuum.after_mark")


def _delete(path: str, names: Iterable[str]) -> None:
    files, base = file_system(path)
    for name in names:
        with suppress(FileNotFoundError):
            files.delete_file(f"{base}/{name}")
        crash.point("vacuum.after_file")


def _delete_empty(path: str, folders: Mapping[str, int], held: Iterable[str], before: int) -> None:
    """Remove folders of commits in which no file is left; those written a short time ago may be of a writer that has yet to fill them."""
    if not is_local(path):  # what looks like a folder there is none
        return
    full = {name.split("/")[0] for name in held}
    for name, at in folders.items():
        if name not in full and at < before:
            _remove_folders(Path(path, name))


def _remove_folders(folder: Path) -> None:
    """Remove a folder and those in it, where none of them holds anything; a checksum says nothing where its file is gone."""
    for inner, _, names in os.walk(folder, topdown=False):
        for name in names:
            if name.startswith(".") and name.endswith(".crc"):
                Path(inner, name).unlink(missing_ok=True)
        with suppress(OSError):  # somebody has put something there
            Path(inner).rmdir()


def _seen(seen_at: str, table: str) -> Seen:
    """What is known already; nothing where that is of another table, or cannot be read: the commits tell it again."""
    with suppress(ValueError, TypeError):
        seen = Seen(**json.loads(storage.read(seen_at) or b"null"))
        seen.gone = {file: (added, removed, at) for file, (added, removed, at) in seen.gone.items()}
        if seen.id == table:
            return seen
    return Seen(table)


def _write(seen_at: str, seen: Seen) -> None:
    storage.write(seen_at, json.dumps(asdict(seen), separators=(",", ":")).encode())
