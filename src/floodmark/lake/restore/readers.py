"""The readers of a lake's tables and their positions. Upkeep may remove what no reader has yet to read and no savepoint restores."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field

from deltalake import DeltaTable

from floodmark.core.errors import LifecycleError
from floodmark.lake.folder import storage
from floodmark.lake.folder.copies import files_of
from floodmark.lake.folder.paths import Lake
from floodmark.lake.restore import savepoints
from floodmark.lake.restore.savepoints import Savepoint
from floodmark.lake.results import coverage
from floodmark.lake.stream import last_values
from floodmark.lake.stream.batch_state import state_at
from floodmark.lake.stream.checkpoint import checkpoint_at
from floodmark.lake.stream.delivered import all_delivered
from floodmark.lake.stream.timeline import CHECKPOINT, FOLLOWERS, REACHED, Timeline, inputs_at, streams
from floodmark.lake.table import entries
from floodmark.lake.table.outputs import input_path
from floodmark.lake.table.sequences import FAR_BEHIND, in_order, noted
from floodmark.lifecycle.plan import Deployed
from floodmark.lifecycle.savepoint import TableVersion

_FORKS = "forks"


@dataclass(frozen=True, slots=True)
class Needs:
    """The versions, entries and files of a lake's tables that readers and savepoints need, by path of the table.

    Args:
        floors: path -> a version whose files, and those of all later commits, must be retained.
        entries: path -> the first version whose log entry must be retained, with all later entries.
        restorable: path -> {version that a savepoint restores, whose files must be retained: folder that lists these files, or ""}.
        owed: path -> folders of files that no commit names yet and that a stream has yet to commit.
    """

    floors: dict[str, int] = field(default_factory=dict)
    entries: dict[str, int] = field(default_factory=dict)
    restorable: dict[str, dict[int, str]] = field(default_factory=dict)
    owed: dict[str, set[str]] = field(default_factory=dict)

    def reads(self, path: str, read: TableVersion) -> None:
        """Add a reader at a position of a table. The entry of the position's version is needed too, as an engine may read it again."""
        _lower_to(self.entries, path, read.version)
        _lower_to(self.floors, path, unchanged_until(path, read))

    def begins(self, path: str, version: int) -> None:
        """Add a reader that may read the entries from a version on again, but no files."""
        _lower_to(self.entries, path, version)

    def goes_back(self, path: str, version: int, folder: str) -> None:
        """Add a savepoint that restores a version of a table.

        Args:
            path: path of the table.
            version: the version.
            folder: folder that lists the files of the version; "" if none does, and the log's entries are needed.
        """
        folders = self.restorable.setdefault(path, {})
        folders[version] = folders.get(version) or folder
        if not folder:
            _lower_to(self.entries, path, version)


def _lower_to(versions: dict[str, int], path: str, version: int) -> None:
    versions[path] = min(versions.get(path, version), version)


def needs(lake: Lake) -> Needs:
    """The needs of all streams, deliveries, savepoints, rebuilds and forks of a lake.

    Raises:
        LifecycleError: LIFECYCLE-060 a savepoint cannot be read, LIFECYCLE-063 a fork is missing; the needs are unknown then.
        StateError: STATE-036, a checkpoint cannot be read.
    """
    needed, catches_up = Needs(), _ReadsCurrentFiles()
    for reader in places(lake):
        made = savepoints.all_readable(reader)
        for savepoint in made:
            for output in savepoint.manifest.outputs:
                needed.goes_back(reader.output(output.table), output.version, savepoint.holds(output.table))
            for read in savepoint.manifest.inputs.values():
                path = input_path(reader, read.table)
                if not catches_up(path, savepoint, read):
                    needed.reads(path, read)
        for name, deployed in streams(reader).items():
            timeline = Timeline.current(reader, name)
            _add_stream(needed, timeline, deployed, goes_back=bool(made))
            for table, folder in timeline.checkpoint.owed():
                needed.owed.setdefault(reader.output(table), set()).add(folder)
        for position in all_delivered(reader):
            if position.table and entries.is_table(path := input_path(reader, position.name)):
                needed.reads(path, TableVersion(table=position.name, id=position.table, version=position.version))
    return needed


@dataclass(slots=True)
class _ReadsCurrentFiles:
    """(path, savepoint, position) -> True if a stream restored from the savepoint lags so far that it would read the log's current files.

    Such a stream needs no old commits. Each table is opened once.
    """

    newest: dict[str, int] = field(default_factory=dict)
    ordered: dict[str, bool] = field(default_factory=dict)

    def __call__(self, path: str, savepoint: Savepoint, read: TableVersion) -> bool:
        if path not in self.newest:
            self.newest[path] = DeltaTable(path).version() if DeltaTable.is_deltatable(path) else -1
        if self.newest[path] - read.version < FAR_BEHIND:
            return False
        if path not in self.ordered:
            self.ordered[path] = in_order(DeltaTable(path)) is not None
        if not self.ordered[path]:
            return False
        positions = checkpoint_at(f"{savepoint.path}/{CHECKPOINT}").positions(savepoint.manifest.batch)
        of_commits = all(position.snapshot is None for position in positions)
        return of_commits and noted(f"{savepoint.path}/{REACHED}", read) is not None


def _add_stream(needed: Needs, timeline: Timeline, deployed: Deployed, *, goes_back: bool) -> None:
    checkpoint, lake = timeline.checkpoint, timeline.lake
    if timeline.moved is not None:
        return
    last = checkpoint.last_committed()
    if last < 0 and checkpoint.begun():  # the start position of its first micro-batch is unknown
        for table in deployed.reads:
            needed.reads(input_path(lake, table), _unread(table))
    back = (
        checkpoint.restorable()[:1] if goes_back else []
    )  # a rollback may restore a reader, and its outputs, to this micro-batch
    for batch in back:
        for output in state_at(timeline, batch).outputs:
            needed.reads(lake.output(output.table), output)
    for batch in [last, *back]:
        for read in _inputs(timeline, batch):
            needed.reads(input_path(lake, read.table), read)
    for read in _inputs(
        timeline, last - 1
    ):  # a start plans the last micro-batch again, from its predecessor's positions
        needed.begins(input_path(lake, read.table), read.version)
    for table in timeline.identity.result_keys() if last >= 0 else ():
        _add_follower(needed, timeline, table)


def _inputs(timeline: Timeline, batch: int) -> Iterable[TableVersion]:
    """The position in each input at the end of a micro-batch; empty if the checkpoint no longer has them."""
    return inputs_at(timeline, batch).values() if batch >= 0 and timeline.checkpoint.positions(batch) else ()


def _unread(table: str) -> TableVersion:
    return TableVersion(table=table, id="", version=-1)


def _add_follower(needed: Needs, timeline: Timeline, table: str) -> None:
    """Add the needs of the follower that maintains the last values of a changelog."""
    path, follower = timeline.lake.output(table), checkpoint_at(timeline.folder(FOLLOWERS, table))
    last, first = follower.last_committed(), last_values.follows_from(timeline, table)
    if last < 0:
        known = first is not None and not follower.begun()
        needed.reads(path, _unread(table) if not known else TableVersion(table=table, id="", version=(first or 0) - 1))
    for at in follower.positions(last)[:1] if last >= 0 else ():
        needed.reads(path, TableVersion(table=table, id=at.table, version=at.version, file=at.file))
    if last == 0:  # a start plans the last micro-batch again, from its predecessor's positions
        needed.begins(path, (first or 0) - 1)
    for at in follower.positions(last - 1)[:1] if last > 0 else ():
        needed.begins(path, at.version)


def unchanged_until(path: str, read: TableVersion) -> int:
    """The last version up to which a table has no rows that a reader has yet to read.

    Args:
        path: path of the table.
        read: position of the reader. Its version is the result if later entries were removed.
    """
    if not DeltaTable.is_deltatable(path):
        return read.version
    version, known = read.version, read.file + 1
    while (entry := entries.entry(path, version + 1)) is not None:
        actions = [action.get("add") for action in entries.actions(entry)]
        if sum(bool(action and action["dataChange"]) for action in actions) > known:
            break
        version, known = version + 1, 0
    return version


def bounded_reads(lake: Lake) -> dict[str, set[int]]:
    """Path of a table -> its versions that bounded runs have read, in a lake and in its forks and rebuilds."""
    versions: dict[str, set[int]] = {}
    for reader in places(lake):
        for output in storage.folders(reader.output("x").rsplit("/", 1)[0]):
            for table, version in coverage.read_by(reader, output):
                versions.setdefault(input_path(reader, table), set()).add(version)
    return versions


# ---- lakes that read a lake


def forked(lake: Lake, root: str) -> None:
    """Record that another lake reads this one."""
    storage.write(_fork(lake, root), json.dumps({"root": root}).encode())


def passing(reader: Lake) -> None:
    """Mark a lake as a short-lived reader, which is not recorded in the lake it reads. It must be deleted before upkeep removes its inputs."""
    storage.write(_passing(reader), b"")


def _passing(reader: Lake) -> str:
    return reader.internal("passing")


def begins(reader: Lake) -> None:
    """Record a reading lake in the lake whose logs it reads, when a stream starts there.

    Rebuilds are not recorded, as their folder lies in the lake. Short-lived readers (``passing``) are not recorded, nor is a reader of a lake without write
    permission: the upkeep of that lake does not consider the reader.
    """
    if reader.logs is None or reader.root.startswith(f"{reader.logs}/") or storage.read(_passing(reader)) is not None:
        return
    file = _fork(Lake(reader.logs), reader.root)
    if storage.read(file) is None:
        with suppress(PermissionError):
            storage.write(file, json.dumps({"root": reader.root, "logs": reader.logs}).encode())


def forget(lake: Lake, root: str) -> bool:
    """Remove the record of a fork that was deleted. Returns True if the fork was recorded."""
    known = storage.read(_fork(lake, root)) is not None
    if known:
        files, path = storage.file_system(_fork(lake, root))
        files.delete_file(path)
    return known


def places(lake: Lake) -> Iterator[Lake]:
    """A lake, its rebuilds and, recursively, its forks.

    Raises:
        LifecycleError: LIFECYCLE-063, a recorded fork is missing.
    """
    yield lake
    for name in storage.folders(lake.internal("operators")):
        for version in storage.folders(lake.internal("operators", name, "rebuild")):
            root = lake.internal("operators", name, "rebuild", version)
            yield Lake(root, logs=lake.logs or lake.root, upstream=lake.upstream or lake.root)
    for file in files_of(lake.internal(_FORKS)):
        roots = json.loads(storage.read(f"{lake.internal(_FORKS)}/{file}") or b"{}")
        root = str(roots["root"])
        fork = Lake.forked(root) or (Lake(**roots) if "logs" in roots else None)
        if fork is None or not fork.there:
            fix = f"Nothing was removed. Put it back; if it is gone for good: floodmark maintain --forget {root}"
            where, expected = f"lake {root}, which reads lake {lake.root}", "a lake that says what it has yet to read"
            raise LifecycleError(where, expected, "none there", fix, code="LIFECYCLE-063")
        yield from places(fork)


def _fork(lake: Lake, root: str) -> str:
    return lake.internal(_FORKS, f"{hashlib.sha256(root.encode()).hexdigest()[:16]}.json")
