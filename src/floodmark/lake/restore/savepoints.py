"""Savepoints of unbounded runs: created from a running or stopped stream, verified, exported, imported, and restored as a new timeline."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any

from floodmark.core import crash
from floodmark.core.errors import ExecutionError, LifecycleError, StateError, closest
from floodmark.lake.folder import storage
from floodmark.lake.folder.bucket import is_bucket
from floodmark.lake.folder.copies import copy, files_of, remove
from floodmark.lake.folder.locks import exclusive
from floodmark.lake.folder.paths import Lake
from floodmark.lake.folder.storage import file_system, folders, open_hashed, read, write
from floodmark.lake.restore import shared, spared, versions
from floodmark.lake.stream import marks, positions
from floodmark.lake.stream.batch_state import began_with, is_there, state_at
from floodmark.lake.stream.checkpoint import checkpoint_at, engine_of
from floodmark.lake.stream.identity import IDENTITY, Identity
from floodmark.lake.stream.timeline import CHECKPOINT, REACHED, STARTS, TICKS, Timeline
from floodmark.lake.table import entries, sequences
from floodmark.lifecycle.savepoint import MANIFEST, File, Manifest, broken, damage
from floodmark.lifecycle.savepoint_id import latest_of, new_id, operator_of

_PIN = "pinned"
_DRAFT = ".draft"
"""Ending of the folder of a savepoint that is being written or deleted."""
_ABANDONED_MS = 86_400_000
"""Age of a draft that counts as left by a killed process where no lock tells so, ms."""
_VERSIONS = "versions"
"""Folder in a savepoint with the list of files of each output at its restored version."""


@dataclass(frozen=True, slots=True)
class Savepoint:
    """One savepoint of a lake.

    Args:
        path: folder of the savepoint.
        manifest: description of its contents.
        pinned: True if the savepoint may not be deleted.
    """

    path: str
    manifest: Manifest
    pinned: bool = False

    @property
    def id(self) -> str:
        """Name of the savepoint."""
        return self.manifest.id

    @property
    def since(self) -> dict[str, int]:
        """``began_with`` for the savepoint's positions: input name -> table version the stream started from."""
        read = checkpoint_at(f"{self.path}/{CHECKPOINT}").positions(self.manifest.batch)
        return began_with(positions.of_inputs(self.manifest.graph, read))

    def holds(self, table: str) -> str:
        """The folder that lists the files of an output at its restored version (``versions``); "" if the savepoint has none."""
        folder = f"{_VERSIONS}/{table}"
        return f"{self.path}/{folder}" if any(path.startswith(f"{folder}/") for path in self.manifest.files) else ""

    def located(self, path: str) -> str:
        """Path or URI of a file of the savepoint, which may be among those that savepoints share."""
        if path not in self.manifest.shared:
            return f"{self.path}/{path}"
        return shared.location(self.path.rsplit("/", 1)[0], self.manifest.files[path].sha256)

    def put_back(self, lake: Lake) -> None:
        """Restore the log entries and files of the savepoint's output versions that clean-ups removed.

        Tables that were deleted or created again are left unchanged.

        Args:
            lake: lake of the outputs.
        """
        for output in self.manifest.outputs:
            path = lake.output(output.table)
            if (folder := self.holds(output.table)) and is_there(lake, output):
                versions.put_back(path, output.version, folder)
                spared.put_back(path, versions.files(folder))


def create(
    operator: str, lake: Lake, *, why: str = "", code: Mapping[str, Any] | None = None, batch: int | None = None
) -> Savepoint:
    """Create a savepoint of an operator's stream as of a committed micro-batch. The stream may keep running.

    Args:
        operator: name of the operator. The savepoint holds the definition the stream was started with.
        lake: the lake the stream runs in.
        why: note stored in the savepoint.
        code: description of the stream's code, stored in the savepoint.
        batch: a micro-batch that the checkpoint retains; by default the last committed one.

    Raises:
        LifecycleError: LIFECYCLE-003 another savepoint of the operator is being created, LIFECYCLE-030 the stream never started.
        ExecutionError: EXECUTION-009, the disk is full or cannot be written.
        StateError: STATE-021 the checkpoint lacks files, STATE-036 a file of it cannot be read.
    """
    timeline = Timeline.current(lake, operator)
    with drafted(operator, lake) as draft:
        deployed, last = timeline.identity.deployed(), batch
        if last is None:
            last = timeline.checkpoint.last_committed()
        if deployed is None or last < 0:
            raise error_not_started(operator, lake)
        timeline.checkpoint.check(last)
        crash.point("savepoint.before_copy")
        together = _copy(timeline, last, draft.path)
        state, copied = state_at(timeline, last), checkpoint_at(f"{draft.path}/{CHECKPOINT}")
        crash.point("savepoint.before_versions")
        for output in state.outputs:
            versions.hold(lake.output(output.table), output.version, f"{draft.path}/{_VERSIONS}/{output.table}")
        sequences.note(f"{draft.path}/{REACHED}", lake, state.inputs.values())
        manifest = Manifest(
            id=draft.name,
            at=draft.at,
            operator=operator,
            version=deployed.version,
            fingerprint=deployed.fingerprint,
            graph=deployed.graph,
            tables={table: tuple(columns) for table, columns in deployed.tables.items()},
            timeline=timeline.number,
            batch=last,
            watermark=state.watermark,
            inputs=state.inputs,
            outputs=state.outputs,
            engine=copied.engine(last),
            code=code or {},
            why=why,
            files=digests(draft.path) | together,
            shared=tuple(together),
            format=copied.manifest_format(last),
        )
        crash.point("savepoint.before_manifest")
        write(f"{draft.path}/{MANIFEST}", manifest.as_json().encode())
        crash.point("savepoint.after_manifest")
    return Savepoint(f"{_home(lake, operator)}/{draft.name}", manifest)


@dataclass(frozen=True, slots=True)
class Draft:
    """A savepoint that is being written.

    Args:
        name: id of the finished savepoint.
        path: folder of the draft.
        at: start time of the draft, ms UTC; later than that of each savepoint the operator has, whatever the clock says.
    """

    name: str
    path: str
    at: int


@contextmanager
def drafted(operator: str, lake: Lake, name: str = "") -> Iterator[Draft]:
    """Context manager with a draft folder that becomes the savepoint's folder on success, and is removed on an error.

    Args:
        operator: name of the operator.
        lake: lake of the savepoint.
        name: id of the savepoint; by default a new id.

    Raises:
        LifecycleError: LIFECYCLE-003, another savepoint of the operator is being created.
        ExecutionError: EXECUTION-009, the disk is full or cannot be written.
    """
    home = _home(lake, operator)
    with exclusive(lake, "savepoints", operator, "savepoint"):
        clock, taken = time.time_ns() // 1_000_000, folders(home)
        ending = "" if is_bucket(home) else _DRAFT  # in a bucket a savepoint is there once its manifest is
        for folder in (folder for folder in taken if folder.endswith(_DRAFT)):
            if lake.is_local or latest_of([folder.removesuffix(_DRAFT)]) < clock - _ABANDONED_MS:
                remove(f"{home}/{folder}")  # left by a killed process
        now = max(clock, latest_of(folder.removesuffix(_DRAFT) for folder in taken) + 1)
        name = name or new_id(operator, now)
        draft = Draft(name, f"{home}/{name}{ending}", now)
        try:
            yield draft
            if ending:
                remove(f"{home}/{name}")  # at most a folder without a manifest
                files, path = file_system(draft.path)
                files.move(path, path.removesuffix(_DRAFT))
            crash.point("savepoint.after_rename")
        except OSError as error:
            remove(draft.path)
            fix = "Nothing is left of it, and the stream keeps running. Make room, then try again."
            where = f"savepoint of '{operator}' in {home}"
            raise ExecutionError(where, "files that can be written", str(error), fix, code="EXECUTION-009") from error
        except BaseException:
            remove(draft.path)
            raise


def error_not_started(operator: str, lake: Lake) -> LifecycleError:
    """The error LIFECYCLE-030 for an action that needs a committed micro-batch."""
    fix = f"Start it: floodmark run {operator} --unbounded"
    where = f"operator '{operator}' in {lake.root}"
    return LifecycleError(where, "a stream that has begun", "none", fix, code="LIFECYCLE-030")


def _copy(timeline: Timeline, batch: int, draft: str) -> dict[str, File]:
    """Copy what a timeline holds of a micro-batch. Returns the files that savepoints share, by their paths in the savepoint."""
    together, home = timeline.checkpoint.copy_to(f"{draft}/{CHECKPOINT}", batch), draft.rsplit("/", 1)[0]
    for name, file in together.items():
        try:
            shared.put(home, f"{timeline.folder(CHECKPOINT)}/{name}", file)
        except FileNotFoundError as error:
            raise broken(f"checkpoint {timeline.folder(CHECKPOINT)}", f"one without '{name}'") from error
    read, deployed = checkpoint_at(f"{draft}/{CHECKPOINT}").positions(batch), timeline.identity.deployed()
    if deployed and (starts := positions.of_starts(deployed.graph, read)):
        marks.copied(timeline.folder(STARTS), f"{draft}/{STARTS}", max(starts).version)
    path = timeline.folder(TICKS)
    if entries.is_table(path):
        marks.copied(path, f"{draft}/{TICKS}", marks.ticked(path, batch))
    return {f"{CHECKPOINT}/{name}": file for name, file in together.items()}


def digests(folder: str) -> dict[str, File]:
    """Path -> size and SHA-256 of each file of a savepoint, except its manifest and pin."""
    files = {}
    for path in sorted(files_of(folder)):
        if path not in {MANIFEST, _PIN}:
            size, digest = open_hashed(f"{folder}/{path}").finish()
            files[path] = File(sha256=digest, size=size)
    return files


# ---- the catalog


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A savepoint whose manifest is damaged or of a newer format. Its files may still be needed.

    Args:
        path: folder of the savepoint.
        error: the error of reading the manifest, STATE-020 or STATE-021.
        pinned: True if the savepoint may not be deleted.
    """

    path: str
    error: StateError
    pinned: bool = False

    @property
    def id(self) -> str:
        """Name of the savepoint."""
        return self.path.rsplit("/", 1)[-1]


def survey(lake: Lake, operator: str | None = None) -> tuple[list[Savepoint], list[Unreadable]]:
    """The readable savepoints of a lake or of one operator in the order in which they were made, oldest first, and the unreadable ones."""
    readable, unreadable = list[Savepoint](), list[Unreadable]()
    for path, content in _manifests(lake, operator):
        try:
            readable.append(_opened(path, content))
        except StateError as error:
            unreadable.append(Unreadable(path, error, read(f"{path}/{_PIN}") is not None))
    return sorted(readable, key=order), unreadable


def order(savepoint: Savepoint) -> tuple[int, str]:
    """Sort key of savepoints: the order in which they were made."""
    return savepoint.manifest.at, savepoint.manifest.id


def savepoints(lake: Lake, operator: str | None = None) -> list[Savepoint]:
    """The readable savepoints of a lake or of one operator, oldest first. For unreadable ones see ``survey``."""
    return survey(lake, operator)[0]


def all_readable(lake: Lake) -> list[Savepoint]:
    """All savepoints of a lake, for callers that remove data no savepoint needs.

    Raises:
        LifecycleError: LIFECYCLE-060, a manifest cannot be read, so the files its savepoint needs are unknown.
    """
    readable, unreadable = survey(lake)
    if unreadable:
        first = unreadable[0]
        others = f", and {len(unreadable) - 1} more like it" if len(unreadable) > 1 else ""
        delete = f"floodmark savepoint delete {first.id} --unreadable"
        delete = f"floodmark savepoint pin {first.id} --off, then {delete}" if first.pinned else delete
        fix = (
            "Nothing was removed. Use the floodmark that wrote the savepoint, or a newer one (pip install --upgrade floodmark); put its "
            f"'{MANIFEST}' back; or delete it if nobody needs it: {delete}"
        )
        got = f"savepoint '{first.id}' with {first.error.got} instead of {first.error.expected}{others}"
        expected = "savepoints whose manifests say which files they need"
        raise LifecycleError(f"lake {lake.root}", expected, got, fix, code="LIFECYCLE-060")
    return readable


def names(lake: Lake) -> set[str]:
    """Names of all savepoint folders of a lake, including damaged savepoints; on a disk also folders without a manifest."""
    folders_of_all = (path for path, _ in _manifests(lake, None)) if is_bucket(lake.root) else _folders(lake, None)
    return {path.rsplit("/", 1)[-1] for path in folders_of_all}


def _manifests(lake: Lake, operator: str | None) -> Iterator[tuple[str, bytes]]:
    for path in _folders(lake, operator):
        content = read(f"{path}/{MANIFEST}")
        if content is not None:
            yield path, content


def _folders(lake: Lake, operator: str | None) -> Iterator[str]:
    home = lake.internal("savepoints")
    for name in [operator] if operator else folders(home):
        yield from (f"{home}/{name}/{folder}" for folder in folders(f"{home}/{name}") if not folder.endswith(_DRAFT))


def find(lake: Lake, name: str) -> Savepoint:
    """The savepoint of a name.

    Raises:
        LifecycleError: LIFECYCLE-031, there is no such savepoint.
        StateError: STATE-020 its format is newer, STATE-021 its manifest is damaged.
    """
    return _opened(*_named(lake, name))


def of(lake: Lake, operator: str, name: str | None) -> Savepoint:
    """The savepoint of a name, checked to belong to an operator; without a name the operator's newest.

    Raises:
        LifecycleError: LIFECYCLE-031, there is no such savepoint, or it belongs to another operator.
        StateError: STATE-020 its format is newer, STATE-021 its manifest is damaged.
    """
    if name is None:
        return _newest(lake, operator)
    savepoint = find(lake, name)
    if savepoint.manifest.operator != operator:
        fix = f"See those of '{operator}': floodmark savepoint list {operator}"
        got = f"one of '{savepoint.manifest.operator}'"
        raise LifecycleError(f"savepoint '{name}'", f"one of '{operator}'", got, fix, code="LIFECYCLE-031")
    return savepoint


def _newest(lake: Lake, operator: str) -> Savepoint:
    """The newest savepoint of an operator.

    Raises:
        LifecycleError: LIFECYCLE-031, there is none.
    """
    known = savepoints(lake, operator)
    if not known:
        fix = f"Make one before the next change: floodmark savepoint create {operator}"
        raise LifecycleError(
            f"lake {lake.root}", f"a savepoint of operator '{operator}'", "none", fix, code="LIFECYCLE-031"
        )
    return known[-1]


def find_any(lake: Lake, name: str) -> Savepoint | Unreadable:
    """The savepoint of a name, readable or not.

    Raises:
        LifecycleError: LIFECYCLE-031, there is no such savepoint.
    """
    path, content = _named(lake, name)
    try:
        return _opened(path, content)
    except StateError as error:
        return Unreadable(path, error, read(f"{path}/{_PIN}") is not None)


def _named(lake: Lake, name: str) -> tuple[str, bytes]:
    """(folder, content of the manifest) of the savepoint of a name."""
    operator = operator_of(name)
    path = f"{_home(lake, operator or name)}/{name}"
    content = None if operator is None else read(f"{path}/{MANIFEST}")
    if content is None:
        known = [place.rsplit("/", 1)[-1] for place, _ in _manifests(lake, None)]
        fix = f"{closest(name, known)}See those there are: floodmark savepoint list"
        raise LifecycleError(f"lake {lake.root}", f"a savepoint '{name}'", "none", fix, code="LIFECYCLE-031")
    return path, content


def _opened(path: str, content: bytes) -> Savepoint:
    manifest = Manifest.parse(content, f"savepoint {path}")
    return Savepoint(path, manifest, read(f"{path}/{_PIN}") is not None)


def verify(savepoint: Savepoint) -> list[str]:
    """The damage of a savepoint's files, one sentence per fault; empty if all match the manifest."""
    return list(damage(savepoint.manifest, digests(savepoint.path) | dict(_shared_digests(savepoint))))


def _shared_digests(savepoint: Savepoint) -> Iterator[tuple[str, File]]:
    """(path, size and digest) of the shared files of a savepoint that exist."""
    for path in savepoint.manifest.shared:
        with suppress(FileNotFoundError):
            size, digest = open_hashed(savepoint.located(path)).finish()
            yield path, File(sha256=digest, size=size)


def check(savepoint: Savepoint) -> None:
    """Check a savepoint's files against its manifest.

    Raises:
        StateError: STATE-021, a file is missing or damaged.
    """
    faults = verify(savepoint)
    if faults:
        others = f", and {len(faults) - 1} more" if len(faults) > 1 else ""
        raise broken(f"savepoint '{savepoint.manifest.id}'", f"one of which {faults[0]}{others}")


def pin(savepoint: Savepoint | Unreadable, *, pinned: bool) -> None:
    """Pin a savepoint so that it cannot be deleted, or unpin it."""
    path = f"{savepoint.path}/{_PIN}"
    if pinned:
        write(path, b"")
    elif read(path) is not None:
        files, file = file_system(path)
        files.delete_file(file)


def delete(savepoint: Savepoint | Unreadable) -> None:
    """Delete a savepoint atomically. The operator's next savepoint removes what a killed deletion leaves.

    Raises:
        LifecycleError: LIFECYCLE-032, the savepoint is pinned.
    """
    name = savepoint.id
    if savepoint.pinned:
        fix = f"Take the pin off first: floodmark savepoint pin {name} --off"
        raise LifecycleError(f"savepoint '{name}'", "one that is not pinned", "a pinned one", fix, code="LIFECYCLE-032")
    if is_bucket(savepoint.path):
        storage.remove(f"{savepoint.path}/{MANIFEST}")  # from here on it is no savepoint
        crash.point("savepoint.deleting")
        remove(savepoint.path)
        return
    files, path = file_system(savepoint.path)
    files.move(path, f"{path}{_DRAFT}")
    crash.point("savepoint.deleting")
    remove(f"{savepoint.path}{_DRAFT}")


def collect(lake: Lake) -> int:
    """Remove what killed processes have left of savepoints in a bucket, and the shared files that no savepoint names any more.

    Returns:
        Number of shared files removed; 0 for a lake on a disk.

    Raises:
        LifecycleError: LIFECYCLE-060, a manifest cannot be read.
    """
    if not is_bucket(lake.root):
        return 0
    before = time.time_ns() // 1_000_000 - _ABANDONED_MS
    for path in list(_folders(lake, None)):
        if latest_of([path.rsplit("/", 1)[-1]]) < before and read(f"{path}/{MANIFEST}") is None:
            remove(path)
    needed = {
        savepoint.manifest.files[path].sha256 for savepoint in all_readable(lake) for path in savepoint.manifest.shared
    }
    return sum(shared.collect(lake, operator, needed) for operator in folders(lake.internal("savepoints")))


def collect_of(lake: Lake, operator: str) -> int:
    """As ``collect``, of an operator, whatever the age of the files, while nobody makes a savepoint of it."""
    if not is_bucket(lake.root):
        return 0
    for path in list(_folders(lake, operator)):
        if read(f"{path}/{MANIFEST}") is None:
            remove(path)
    own = savepoints(lake, operator)
    needed = {savepoint.manifest.files[path].sha256 for savepoint in own for path in savepoint.manifest.shared}
    return shared.collect(lake, operator, needed, grace_ms=-_ABANDONED_MS)


def export(savepoint: Savepoint, target: str) -> None:
    """Copy a savepoint to another folder or store, without links to the lake. Writes the manifest last.

    Args:
        savepoint: the savepoint to export.
        target: parent folder or URI of the copy.

    Raises:
        StateError: STATE-021, the savepoint is damaged.
    """
    check(savepoint)
    folder = f"{target.rstrip('/')}/{savepoint.manifest.id}"
    _copy_whole(savepoint, folder)


def _copy_whole(savepoint: Savepoint, folder: str) -> None:
    """Copy a savepoint with the files that it shares with others. Writes the manifest last."""
    for path in savepoint.manifest.files:
        copy(savepoint.located(path), f"{folder}/{path}", link=False)
        crash.point("savepoint.taking_in")
    if savepoint.manifest.shared:
        write(f"{folder}/{MANIFEST}", replace(savepoint.manifest, shared=()).as_json().encode())
    else:
        copy(f"{savepoint.path}/{MANIFEST}", f"{folder}/{MANIFEST}", link=False)
    crash.point("savepoint.taking_in")


def opened(folder: str) -> Savepoint:
    """Open an exported savepoint. Reads only its manifest.

    Raises:
        StateError: STATE-020 its format is newer, STATE-021 the folder is no savepoint.
    """
    folder = folder.rstrip("/")
    content = read(f"{folder}/{MANIFEST}")
    if content is None:
        raise broken(f"folder {folder}", f"one without '{MANIFEST}'")
    return _opened(folder, content)


def import_savepoint(lake: Lake, source: str) -> Savepoint:
    """Copy an exported savepoint, or one of another lake, into a lake.

    Raises:
        StateError: STATE-020 its format is newer, STATE-021 the folder is damaged, canonical or no savepoint.
        LifecycleError: LIFECYCLE-003 another savepoint of the operator is being created, LIFECYCLE-033 the lake has this savepoint already.
    """
    exported = opened(source)
    if exported.manifest.canonical:
        raise broken(f"savepoint {exported.path}", "a canonical one, of which 'floodmark savepoint import' makes one")
    if operator_of(exported.id) != exported.manifest.operator:
        raise broken(
            f"savepoint {exported.path}",
            f"one named '{exported.id}', which is no id of a savepoint of '{exported.manifest.operator}'",
        )
    check(exported)
    folder = f"{_home(lake, exported.manifest.operator)}/{exported.manifest.id}"
    if read(f"{folder}/{MANIFEST}") is not None:
        fix = f"It can be used as it is: floodmark savepoint show {exported.manifest.id}"
        raise LifecycleError(
            f"lake {lake.root}", "one that has not got it", f"'{exported.manifest.id}'", fix, code="LIFECYCLE-033"
        )
    with drafted(exported.manifest.operator, lake, exported.manifest.id) as draft:
        _copy_whole(exported, draft.path)
    return Savepoint(folder, replace(exported.manifest, shared=()))


# ---- restoring


def restore(savepoint: Savepoint, folder: str, *, fresh: bool = False) -> None:
    """Replace the contents of a timeline's folder by a savepoint's. Repeatable.

    The identity file is written last: without it the checkpoint has no owner.

    Args:
        savepoint: the savepoint to restore.
        folder: folder of the timeline.
        fresh: True if the stream's outputs will be empty; by default its tables exist.
    """
    remove(folder)
    for path in savepoint.manifest.files:
        if not path.startswith((f"{CHECKPOINT}/", f"{_VERSIONS}/")):
            copy(f"{savepoint.path}/{path}", f"{folder}/{path}")
    source, target = f"{savepoint.path}/{CHECKPOINT}", f"{folder}/{CHECKPOINT}"
    held = [
        path.removeprefix(f"{CHECKPOINT}/") for path in savepoint.manifest.files if path.startswith(f"{CHECKPOINT}/")
    ]
    apart = {path.removeprefix(f"{CHECKPOINT}/"): savepoint.located(path) for path in savepoint.manifest.shared}
    for path, location in apart.items():
        copy(location, f"{target}/{path}")
    checkpoint_at(target, engine_of(source)).restore_from(
        source, [path for path in held if path != IDENTITY and path not in apart]
    )
    if fresh:
        Identity(checkpoint_at(source)).hand_over(Identity(checkpoint_at(target)))
    else:
        copy(f"{source}/{IDENTITY}", f"{target}/{IDENTITY}")


def _home(lake: Lake, operator: str) -> str:
    return lake.internal("savepoints", operator)
