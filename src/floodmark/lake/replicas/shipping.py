"""Shipping of a table: its commits, each as it is, with the files they name, into a lake elsewhere.

A replica has the home's versions: entry 7 of its log has the bytes of entry 7 of the home's log, and its files have their names. Stamps, commit records,
transaction ids, merges of files and changes of columns thereby follow without being understood, and a position or a savepoint means the same in both.
The newest entry of the replica is the position from which shipping resumes; an entry is created only if it does not exist, after the files it names.
"""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import unquote

import pyarrow as pa
from deltalake import DeltaTable
from pyarrow.fs import FileType

from floodmark.core import crash
from floodmark.core.errors import LifecycleError, StateError
from floodmark.lake.folder import bucket, storage
from floodmark.lake.folder.copies import copy, files_of, remove
from floodmark.lake.folder.paths import is_local
from floodmark.lake.table import entries, history, origin
from floodmark.lake.table.commits import BoundedRun, Landing, MicroBatch, Revised, decode, progress_of
from floodmark.lake.table.entries import LOG, Entry, checkpoint_of, entry_of
from floodmark.lake.table.origin import Origin
from floodmark.lake.writing.checkpointer import write_checkpoint

_BYTES = 1 << 26
"""Bytes of files after which a shipment gets no further commit."""
_COMMITS = 500
"""Most commits of a shipment."""
_INTERVAL = 100
"""Commits between checkpoints of a replica's log."""
_FACTS = ("id", "landing.json", "commits.json", "lost.json", "changes.json", "revised.json")
"""Files beside a log with facts of its removed entries."""
_LOOKED_AT = 100
"""Most commits that are searched for the first one in which two lakes differ."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shipment:
    """Commits that were shipped together.

    Args:
        table: id of the table.
        first: version of the first commit.
        version: version of the last commit.
        rows: rows that the commits have added, by their records.
        files: data files that were copied.
        size: their bytes.
        progress: progress of the table by the last commit that tells of it, ms; None if none does.
        at: time of the last commit, ms.
        left_out: commits before the last whose entries the home no longer has; their rows came with the files of the last.
        merged: files that the home had removed before they were copied; their rows came with the files that replaced them, unless they were taken back.
    """

    table: str
    first: int
    version: int
    rows: int
    files: int
    size: int
    progress: int | None = None
    at: int = 0
    left_out: int = 0
    merged: int = 0


@dataclass(slots=True)
class _Load:
    """Commits that are to be shipped, and what they name."""

    first: int
    last: int
    added: dict[str, int] = field(default_factory=dict)
    """File -> bytes."""
    removed: set[str] = field(default_factory=set)
    rows: int = 0
    progress: int | None = None
    at: int = 0
    revised: bool = False
    """True if a commit says that rows of any event time may be taken back."""

    def take(self, entry: Entry, path: str) -> None:
        """Add a commit."""
        self.last = entry.version
        for action in entries.actions(entry):
            if (file := action.get("add")) is not None:
                self.added[unquote(file["path"])] = int(file["size"])
            elif (file := action.get("remove")) is not None:
                self.removed.add(unquote(file["path"]))
        info = entries.commit_info(entry)
        record = decode(info.get("userMetadata"), f"commit {entry.version} of table {path}")
        self.rows += record.rows if isinstance(record, Landing | MicroBatch | BoundedRun) else 0
        self.revised |= isinstance(record, Revised)
        self.progress, self.at = progress_of(record) or self.progress, int(info.get("timestamp", self.at))

    @property
    def is_full(self) -> bool:
        """True if no further commit is to be shipped with these."""
        return self.last - self.first + 1 >= _COMMITS or sum(self.added.values()) >= _BYTES


@dataclass(slots=True)
class Shipping:
    """The shipping of one table to one lake.

    Args:
        source: path of the table.
        target: path of its replica.
        home: root of the lake that ``source`` lies in.
        name: name by which a command takes the table, for errors.
    """

    source: str
    target: str
    home: str
    name: str
    _done: int | None = None
    """The newest version of the replica; None if it is not known yet."""
    _takes: bool | None = None
    """What ``begin`` has returned; None before."""

    @property
    def exists(self) -> bool:
        """True if there is a table to ship."""
        return entries.is_table(self.source)

    def newest(self) -> int:
        """The newest version of the table."""
        return entries.version_of(self.source)

    def begin(self) -> bool:
        """Check that the table may be replicated to the target, and mark the target as its replica.

        A replica of a table that its home has made anew since is cleared.

        Returns:
            False if the target is the home of the table, which takes no commit from its replicas.

        Raises:
            LifecycleError: LIFECYCLE-271 the target has another table of that name, LIFECYCLE-272 the target has commits that the table lacks,
                LIFECYCLE-273 the target has become the home.
        """
        if self._takes is None:
            self._takes = self._begin()
        return self._takes

    def _begin(self) -> bool:
        table, there, exists = entries.id_of(self.source), origin.read(self.target), entries.is_table(self.target)
        own = origin.read(self.source) or Origin(table=table)
        replica = Origin(table=table, home=own.home or self.home, term=own.term)
        if (exists and entries.id_of(self.target) != table) or (there is not None and there.table != table):
            if there is None or there.home != replica.home:
                raise self._other_table(there)
            self._clear(replica)  # the home has made the table anew
            exists, there = False, replica
        if exists and (there is None or not there.is_replica):
            term = 0 if there is None else there.term
            if own.is_replica and own.term <= term:
                return False
            if term >= own.term:
                raise self._other_home(term)
            self._check_behind()
        elif there is not None and there.term > own.term:
            raise self._other_home(there.term)
        elif exists:
            self._check_agrees()
        if there != replica:
            crash.point("replica.before_origin")
            origin.write(self.target, replica)
            crash.point("replica.after_origin")
        return True

    def next(self, upto: int) -> Shipment | None:
        """Ship the next commits; None if the replica has all of them.

        Args:
            upto: the last version to ship.

        Raises:
            StateError: STATE-060, a file of the table's newest version is gone.
            LifecycleError: LIFECYCLE-272, another program has committed to the replica.
        """
        if self._done is None:
            newest = entries.newest(self.target) if entries.is_table(self.target) else None
            self._done = -1 if newest is None else newest
        if self._done >= upto:
            return None
        first = self._done + 1
        if entries.entry(self.source, first) is None:
            return self._ship_version(first)
        load = self._load(first, upto)
        missing = self._missing(load)
        if missing:  # the commits that removed these files are shipped with them
            load = self._load(first, self.newest(), whole=True)
            missing = self._missing(load)
            if lost := missing - load.removed:
                raise self._lost(lost)
        copied = self._copy({name: size for name, size in load.added.items() if name not in missing})
        if load.revised:
            history.will_be_revised(self.target)
        for version in range(first, load.last + 1):
            entry = entries.entry(self.source, version)
            if entry is None:  # removed meanwhile
                self._done = version - 1
                return self.next(upto)
            self._commit(entry)
        return Shipment(
            table=entries.id_of(self.source),
            first=first,
            version=load.last,
            rows=load.rows,
            files=len(copied),
            size=sum(copied.values()),
            progress=load.progress,
            at=load.at,
            merged=len(missing),
        )

    def copy_files(self, names: Iterable[str], spared: str) -> None:
        """Copy files that no version of the replica names any more, which a savepoint restores.

        Args:
            names: paths of the files in the table's folder.
            spared: folder of the table with links to such files.
        """
        there = self._sizes(self.target, {unquote(name) for name in names})
        for name in (name for name, size in there.items() if size is None):
            with suppress(FileNotFoundError):
                copy(f"{self.source}/{name}", f"{self.target}/{name}")
                continue
            copy(f"{spared}/{name}", f"{self.target}/{name}")

    def _clear(self, replica: Origin) -> None:
        """Remove all of a replica but its mark. A cleared one whose files are not all gone still has another id than its mark says."""
        origin.write(self.target, replica)
        crash.point("replica.before_clear")
        remove(f"{self.target}/{LOG}")
        crash.point("replica.after_log")
        files, base = storage.file_system(self.target)
        for name in list(files_of(self.target)):
            if f"{self.target}/{name}" != origin.file_of(self.target):
                files.delete_file(f"{base}/{name}")

    # ---- commits

    def _load(self, first: int, upto: int, *, whole: bool = False) -> _Load:
        load = _Load(first, first - 1)
        while load.last < upto and (whole or not load.is_full):
            entry = entries.entry(self.source, load.last + 1)
            if entry is None:
                break
            load.take(entry, self.source)
        return load

    def _missing(self, load: _Load) -> set[str]:
        """Files that the home no longer has, of those that the replica lacks."""
        return {name for name, size in self._sizes(self.source, load.added).items() if size is None} - {
            name for name, size in self._sizes(self.target, load.added).items() if size == load.added[name]
        }

    def _ship_version(self, first: int) -> Shipment:
        """Ship the newest version as a checkpoint with its files, as the entries before it are gone."""
        version = self.newest()
        write_checkpoint(self.source, version)
        actions = pa.table(DeltaTable(self.source, version=version).get_add_actions()).to_pylist()
        checkpoint = f"{LOG}/{checkpoint_of(version)}"
        content, entry = storage.read(f"{self.source}/{checkpoint}"), entries.entry(self.source, version)
        if content is None or entry is None:
            raise self._lost({checkpoint if content is None else f"{LOG}/{entry_of(version)}"})
        sizes = {unquote(action["path"]): int(action["size_bytes"]) for action in actions}
        copied = self._copy(sizes)
        for name in _FACTS:
            facts = storage.read(entries.beside(self.source, name))
            if facts is not None:
                storage.write(entries.beside(self.target, name), facts)
        crash.point("replica.before_checkpoint")
        storage.write(f"{self.target}/{checkpoint}", content)
        crash.point("replica.after_checkpoint")
        pointer = {"version": version, "size": len(actions)}
        storage.write(f"{self.target}/{LOG}/_last_checkpoint", json.dumps(pointer).encode())
        load = _Load(version, version)
        load.take(entry, self.source)
        self._commit(entry)
        return Shipment(
            table=entries.id_of(self.source),
            first=first,
            version=version,
            rows=sum(int(action["num_records"] or 0) for action in actions) if first == 0 else load.rows,
            files=len(copied),
            size=sum(copied.values()),
            progress=load.progress,
            at=load.at,
            left_out=version - first,
        )

    def _commit(self, entry: Entry) -> None:
        """Create an entry of the replica's log, and now and then a checkpoint."""
        crash.point("replica.before_entry")
        path = f"{self.target}/{LOG}/{entry_of(entry.version)}"
        if not _create(path, entry.content) and storage.read(path) != entry.content:
            raise self._differs(entry.version, 1)
        self._done = entry.version
        crash.point("replica.after_entry")
        if (entry.version + 1) % _INTERVAL == 0:
            write_checkpoint(self.target, entry.version)

    # ---- files

    def _copy(self, sizes: Mapping[str, int]) -> dict[str, int]:
        """Copy the files that the replica lacks. Returns file -> bytes of those."""
        there = self._sizes(self.target, sizes)
        lacking = {name: size for name, size in sizes.items() if there[name] != size}
        if lacking:
            crash.point("replica.before_files")
            bucket.together(self._copy_file, lacking)
            if is_local(self.target):
                storage.sync_all(Path(self.target, name) for name in lacking)
        crash.point("replica.after_files")
        return lacking

    def _copy_file(self, name: str) -> None:
        copy(f"{self.source}/{name}", f"{self.target}/{name}")
        crash.point("replica.after_file")

    @staticmethod
    def _sizes(path: str, names: Iterable[str]) -> dict[str, int | None]:
        """File -> bytes; None if it does not exist."""
        files, base = storage.file_system(path)
        listed = list(names)
        infos = files.get_file_info([f"{base}/{name}" for name in listed])
        return {
            name: None if info.type == FileType.NotFound else int(info.size)
            for name, info in zip(listed, infos, strict=True)
        }

    # ---- agreement of the two logs

    def _check_agrees(self) -> None:
        """Check that the replica has no commit that the table lacks or has otherwise."""
        both = min(self.newest(), entries.version_of(self.target))
        if count := self._differing(both):
            raise self._differs(both - count + 1, count)

    def _check_behind(self) -> None:
        """``_check_agrees`` of a table that was the home before: it has no later commit either."""
        newest, there = self.newest(), entries.version_of(self.target)
        if there > newest:
            raise self._differs(newest + 1, there - newest)
        self._check_agrees()

    def _differing(self, upto: int) -> int:
        """Number of the last commits up to a version that are not the same in both logs."""
        count = 0
        while count < _LOOKED_AT and upto - count >= 0:
            pair = [entries.entry(path, upto - count) for path in (self.source, self.target)]
            if None in pair or pair[0] == pair[1]:
                break
            count += 1
        return count

    # ---- errors

    def _other_table(self, there: Origin | None) -> LifecycleError:
        got = "another table of that name" if there is None else f"another one, replicated from lake {there.home}"
        fix = (
            f"Replicate this one under another name: floodmark replicate {self.name} --to LAKE --as OTHER. If the replica is of a table that was made "
            "anew since, remove its folder and replicate it again."
        )
        return LifecycleError(
            f"replica {self.target}", f"none, or the table {self.source}", got, fix, code="LIFECYCLE-271"
        )

    def _differs(self, version: int, count: int) -> LifecycleError:
        many = f"{count:,} commits from version {version} on" if count > 1 else f"a commit, version {version},"
        fix = (
            "Two programs have written them. Rows that only the other lake has stay there: replicate it from there under another name, then remove "
            "its folder and replicate this one again."
        )
        got = f"{many} that {self.source} has not"
        return LifecycleError(f"replica {self.target}", "the commits of its home", got, fix, code="LIFECYCLE-272")

    def _other_home(self, term: int) -> LifecycleError:
        fix = f"Replicate it from there, so that this lake follows: floodmark replicate {self.name} --to {self.home}"
        got = f"a lake that has become the home of '{self.name}' (term {term})"
        return LifecycleError(
            f"replica {self.target}", f"a replica of lake {self.home}", got, fix, code="LIFECYCLE-273"
        )

    def _lost(self, names: set[str]) -> StateError:
        fix = "Put it back from a backup, or from another replica: the table cannot be read either."
        got = f"none; {len(names):,} are gone"
        return StateError(f"table {self.source}", f"file {min(names)}", got, fix, code="STATE-060")


def _create(path: str, content: bytes) -> bool:
    """Create a file durably unless it exists. Returns False if it exists."""
    if bucket.is_bucket(path):
        return bucket.create(path, content)
    file = Path(path)
    file.parent.mkdir(parents=True, exist_ok=True)
    draft = file.parent / f"_commit_{uuid.uuid4()}.json.tmp"
    try:
        with draft.open("wb") as stream:
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
        try:
            os.link(draft, file)
        except FileExistsError:
            return False
        except OSError:  # a disk without hard links, where one process replicates a table
            if file.exists():
                return False
            draft.replace(file)
    finally:
        draft.unlink(missing_ok=True)
    storage.sync(file.parent)
    return True
