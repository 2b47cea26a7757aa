"""Who reads the tables of a lake and how far: what nobody has yet to read, and no savepoint goes back to, upkeep may remove."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field

from deltalake import DeltaTable

from floodmark.core.errors import LifecycleError
from floodmark.lake import last_values, savepoints, storage
from floodmark.lake.checkpoint import checkpoint_at
from floodmark.lake.copies import files_of
from floodmark.lake.outputs import input_path
from floodmark.lake.paths import Lake
from floodmark.lake.savepoints import Savepoint
from floodmark.lake.sequences import FAR_BEHIND, in_order, last_read
from floodmark.lake.timeline import CHECKPOINT, Timeline, inputs_at, streams
from floodmark.lifecycle.plan import Deployed
from floodmark.lifecycle.savepoint import TableVersion

_FORKS = "forks"


@dataclass(frozen=True, slots=True)
class Needs:
    """What of the tables of a lake somebody needs, by the path of the table.

    Args:
        floors: a version, all of whose files and all of whose later commits' files have to stay.
        kept: versions savepoints go back to, whose files have to stay.
    """

    floors: dict[str, int] = field(default_factory=dict)
    kept: dict[str, set[int]] = field(default_factory=dict)

    def reads(self, path: str, version: int) -> None:
        """Somebody has read a table up to a version; -1 for nothing."""
        self.floors[path] = min(self.floors.get(path, version), version)

    def goes_back(self, path: str, version: int) -> None:
        """Somebody may take a table back to a version."""
        self.kept.setdefault(path, set()).add(version)


def needs(lake: Lake) -> Needs:
    """Of all streams and savepoints of a lake, of rebuilds beside its streams, and of its forks.

    Raises:
        LifecycleError: LIFECYCLE-060 a savepoint cannot be read, LIFECYCLE-063 a fork is not there; so it is not known.
        StateError: STATE-036, a checkpoint cannot be read.
    """
    found, catches_up = Needs(), _Catching()
    for place in _places(lake):
        made = savepoints.all_readable(place)
        for savepoint in made:
            for output in savepoint.manifest.outputs:
                found.goes_back(place.output(output.table), output.version)
            for given in savepoint.manifest.inputs.values():
                path = input_path(place, given.table)
                if not catches_up(path, savepoint, given):
                    found.reads(path, unchanged_until(path, given))
        for name, deployed in streams(place).items():
            _add_stream(found, Timeline.current(place, name), deployed, goes_back=bool(made))
    return found


@dataclass(slots=True)
class _Catching:
    """Whether the stream of a savepoint would go on with the files a log has now, because what it has read is far behind; tables are opened once."""

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
        return of_commits and last_read(path, read.version, read.file) is not None


def _add_stream(found: Needs, timeline: Timeline, deployed: Deployed, *, goes_back: bool) -> None:
    checkpoint, lake = timeline.checkpoint, timeline.lake
    if timeline.moved is not None:
        return
    last = checkpoint.last_committed()
    if last < 0 and checkpoint.begun():  # nobody knows where its first micro-batch begins
        for table in deployed.reads:
            found.reads(input_path(lake, table), -1)
    back = (
        checkpoint.restorable()[:1] if goes_back else []
    )  # a rollback may take a reader back so far, and what it has written
    for batch in back:
        for output in savepoints.state_at(timeline, batch).outputs:
            found.reads(lake.output(output.table), output.version)
    for batch in [last, *back]:
        for given in inputs_at(timeline, batch).values() if batch >= 0 and checkpoint.positions(batch) else ():
            path = input_path(lake, given.table)
            found.reads(path, unchanged_until(path, given))
    for table in timeline.identity.result_keys() if last >= 0 else ():
        path = lake.output(table)
        found.reads(path, unchanged_until(path, _followed(timeline, table)))


def _followed(timeline: Timeline, table: str) -> TableVersion:
    """How far a changelog is read by what keeps its last values."""
    follower = checkpoint_at(timeline.folder("current", table))
    last = follower.last_committed()
    if last < 0:
        first = last_values.follows_from(timeline, table) if not follower.begun() else None
        return TableVersion(table=table, id="", version=-1 if first is None else first - 1)
    at = follower.positions(last)[0]
    return TableVersion(table=table, id=at.table, version=at.version, file=at.file)


def unchanged_until(path: str, read: TableVersion) -> int:
    """The last version of a table that has no rows a reader has yet to read; its own where the log does not tell any more."""
    if not DeltaTable.is_deltatable(path):
        return read.version
    version, known = read.version, read.file + 1
    while (entry := storage.read(commit_path(path, version + 1))) is not None:
        actions = [json.loads(line).get("add") for line in entry.splitlines()]
        if sum(bool(action and action["dataChange"]) for action in actions) > known:
            break
        version, known = version + 1, 0
    return version


def commit_path(path: str, version: int) -> str:
    """Where a table's commit is written."""
    return f"{path.rstrip('/')}/_delta_log/{version:020d}.json"


# ---- lakes that read a lake


def forked(lake: Lake, root: str) -> None:
    """Write down that another lake reads this one."""
    storage.write(_fork(lake, root), json.dumps({"root": root}).encode())


def begins(reader: Lake) -> None:
    """Write down in the lake whose logs another one reads that a stream there reads them; a rebuild is known by its place.

    One that may not be written is not told: its owner's upkeep does not know of the reader.
    """
    if reader.logs is None or reader.root.startswith(f"{reader.logs}/"):
        return
    file = _fork(Lake(reader.logs), reader.root)
    if storage.read(file) is None:
        with suppress(PermissionError):
            storage.write(file, json.dumps({"root": reader.root, "logs": reader.logs}).encode())


def forget(lake: Lake, root: str) -> bool:
    """Forget a fork that is gone for good; whether it was known."""
    known = storage.read(_fork(lake, root)) is not None
    if known:
        files, path = storage.file_system(_fork(lake, root))
        files.delete_file(path)
    return known


def _places(lake: Lake) -> Iterator[Lake]:
    """A lake, and those that read its tables."""
    yield lake
    for name in storage.folders(lake.internal("operators")):
        for version in storage.folders(lake.internal("operators", name, "rebuild")):
            root = lake.internal("operators", name, "rebuild", version)
            yield Lake(root, logs=lake.logs or lake.root, upstream=lake.upstream or lake.root)
    for file in files_of(lake.internal(_FORKS)):
        said = json.loads(storage.read(f"{lake.internal(_FORKS)}/{file}") or b"{}")
        root = str(said["root"])
        fork = Lake.forked(root) or (Lake(**said) if "logs" in said else None)
        if fork is None or not fork.there:
            fix = f"Nothing was removed. Put it back; if it is gone for good: floodmark maintain --forget {root}"
            where, expected = f"lake {root}, which reads lake {lake.root}", "a lake that says what it has yet to read"
            raise LifecycleError(where, expected, "none there", fix, code="LIFECYCLE-063")
        yield from _places(fork)


def _fork(lake: Lake, root: str) -> str:
    return lake.internal(_FORKS, f"{hashlib.sha256(root.encode()).hexdigest()[:16]}.json")
