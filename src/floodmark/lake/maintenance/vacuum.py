"""Vacuum: removes data files of a table that no reader needs, namely replaced files and files left by killed writers.

A file is retained if it belongs to the newest version or to a version that a savepoint restores, or if it was replaced after the version a reader has
read: the reader still reads the commits that added the file. Recently replaced files are retained too, for running queries.

The facts of commits about each file are cached in a small file of the lake, so that each commit is read once.
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
from floodmark.lake.folder import storage
from floodmark.lake.folder.paths import is_local
from floodmark.lake.folder.storage import file_system
from floodmark.lake.restore import spared, versions
from floodmark.lake.table import entries, history
from floodmark.lake.table.commits import Cleaned
from floodmark.lake.table.entries import entry_of, log_files
from floodmark.lake.writing.conflicts import retried
from floodmark.lake.writing.writer import Writer

_HOUR_MS = 3_600_000


@dataclass(slots=True)
class Seen:
    """The files of a table according to its commits, as far as these were read.

    Args:
        id: id of the table.
        known: the first version whose commit could be read.
        next: the next version to read.
        at: time of the last commit read, ms; never decreases, even if the clock goes back.
        live: current file -> version that added it; -1 for a version before ``known``.
        gone: replaced file -> (version that added it, version that removed it, time of the removal in ms).
        marked: True if the table's history records that files of old versions were removed.
    """

    id: str
    known: int = 0
    next: int = 0
    at: int = 0
    live: dict[str, int] = field(default_factory=dict)
    gone: dict[str, tuple[int, int, int]] = field(default_factory=dict)
    marked: bool = False

    def read(self, path: str, newest: int) -> None:
        """Read the commits after the last one read, up to version ``newest``."""
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
            again = self.gone.pop(file, None)  # re-added by a restore: the version that first added the file counts
            self.live[file] = version if again is None else again[0]


@dataclass(frozen=True, slots=True)
class Vacuumed:
    """The result of a vacuum.

    Args:
        files: number of files removed, or that a dry run would remove.
        size: their total size, bytes.
        why: the reason why nothing was removed; empty otherwise.
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
    """Remove files of a table that no reader needs. The caller holds the lock of the lake's data files.

    Args:
        path: path of the table.
        seen_at: path of the cache of the commits' facts.
        floor: the version up to which the slowest reader has read; None without readers.
        restorable: version that a savepoint restores -> folder that lists its files (``versions.hold``), or "".
        owed: folders in the table's folder whose files a stream has yet to commit.
        hours: hours for which replaced and uncommitted files are retained.
        dry_run: only report what would be removed.
        writer: writer of the table, if the caller has one; reuses its opened table.
    """
    writer = Writer(path) if writer is None else writer
    table = writer.table()
    seen, newest = _load(seen_at, str(table.metadata().id)), table.version()
    seen.read(path, newest)
    floor = newest if floor is None else min(floor, newest)
    before = time.time_ns() // 1_000_000 - int(hours * _HOUR_MS)
    active = versions.named(table)
    of_newest = frozenset(active)
    if (why := _why_unknown(path, seen, floor, restorable, active)) != "":
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
            _record_cleaned(writer, seen, seen_at, floor)
        _delete(path, going)
        _delete_empty(path, folders, there.keys() - set(going), before)
        for file in unneeded:
            del seen.gone[file]
        crash.point("vacuum.before_seen")
        _write(seen_at, seen)
    return Vacuumed(len(going), sum(there[file][0] for file in going))


def _between(versions: list[int], added: int, removed: int) -> bool:
    """True if a file lives in one of the ascending versions.

    Args:
        versions: the versions, ascending.
        added: version that added the file.
        removed: version that removed the file.
    """
    index = bisect_left(versions, added)
    return index < len(versions) and versions[index] < removed


def _why_unknown(path: str, seen: Seen, floor: int, restorable: Mapping[int, str], active: set[str]) -> str:
    """The reason why the needed files are unknown; "" if they are known. Adds files of restorable versions with removed commits to ``active``."""
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
    """({data file: (bytes, modification time in ms)}, {folder of one commit: modification time in ms}) of a table's folder."""
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


def _record_cleaned(writer: Writer, seen: Seen, seen_at: str, floor: int) -> None:
    """Record in the table's history, once and before the removal, that old versions lack files: new readers then start from the current files."""
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
    """Remove empty folders of commits that are older than ``before``. A younger one may belong to a writer that has yet to fill it."""
    if not is_local(path):  # object stores have no folders
        return
    full = {name.split("/")[0] for name in held}
    for name, at in folders.items():
        if name not in full and at < before:
            _remove_folders(Path(path, name))


def _remove_folders(folder: Path) -> None:
    """Remove a folder and its subfolders if they are empty except for checksums of removed files."""
    for inner, _, names in os.walk(folder, topdown=False):
        for name in names:
            if name.startswith(".") and name.endswith(".crc"):
                Path(inner, name).unlink(missing_ok=True)
        with suppress(OSError):  # the folder is not empty
            Path(inner).rmdir()


def _load(seen_at: str, table: str) -> Seen:
    """The cached facts; empty if the cache is malformed or belongs to another table, and is then rebuilt from the commits."""
    with suppress(ValueError, TypeError):
        seen = Seen(**json.loads(storage.read(seen_at) or b"null"))
        seen.gone = {file: (added, removed, at) for file, (added, removed, at) in seen.gone.items()}
        if seen.id == table:
            return seen
    return Seen(table)


def _write(seen_at: str, seen: Seen) -> None:
    storage.write(seen_at, json.dumps(asdict(seen), separators=(",", ":")).encode())
