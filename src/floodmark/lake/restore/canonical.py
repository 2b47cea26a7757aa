"""Canonical savepoints: state as Parquet rows instead of engine-specific files, to resume on another engine, version or state configuration.

Source: canonical savepoints of Flink. An export holds state by key group, timers, and positions by table and version, and no data that only
one engine can read. An import creates the savepoint that the importing engine would have created itself.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import pyarrow as pa

from floodmark.core.errors import StateError
from floodmark.lake.folder.copies import copy, remove
from floodmark.lake.folder.paths import Lake
from floodmark.lake.folder.storage import read, write
from floodmark.lake.restore import savepoints
from floodmark.lake.restore.savepoints import Savepoint
from floodmark.lake.stream.checkpoint import Checkpoint, Position, checkpoint_at
from floodmark.lake.stream.identity import IDENTITY
from floodmark.lake.stream.timeline import CHECKPOINT
from floodmark.lifecycle.savepoint import MANIFEST, MARKS, PLAIN, Manifest, broken

STATE = "state"
"""Folder of the state rows; absent if the stream has no state."""
ROWS = pa.schema(
    [
        ("group", pa.int32()),
        ("deadline", pa.int64()),
        ("index", pa.binary()),
        ("number", pa.int64()),
        ("piece", pa.int32()),
        ("pieces", pa.int32()),
        ("chunk", pa.binary()),
    ]
)
"""Columns of the state rows. Per key group: one row with the index of its state and the progress at which its next timer is due, then one row per piece of each chunk."""
_FORMAT = 1


class Passed(NamedTuple):
    """Position in a log up to which rows were read commit by commit, before the stream switched to the files of a later version."""

    sequence: int
    """The last ``_sequence`` that was read."""
    version: int
    """The last table version that was read completely at the switch."""


class BatchMetadata(NamedTuple):
    """The contents of a checkpoint at a micro-batch, except state."""

    before: int
    """Spark's watermark (``carrier``) up to which timers have fired, ms."""
    after: int
    """Spark's watermark after the rows of the micro-batch, ms."""
    clock: int
    """Processing time, ms."""
    positions: list[Position]
    """The end position of each source of the query. Some engines have a second source of markers per input."""
    passed: dict[str, Passed]
    """Table id -> switch position of that log."""


Unfold = Callable[[str, int, str], BatchMetadata]
"""(checkpoint folder, micro-batch, folder to create for state rows) -> the checkpoint's other contents. Writes the state rows."""
Fold = Callable[[str | None, Checkpoint, Manifest, BatchMetadata], None]
"""(folder of state rows or None, checkpoint to create, manifest of the savepoint, marks of its checkpoint) -> None. Writes the checkpoint."""


def export(savepoint: Savepoint, target: str, unfold: Unfold) -> str:
    """Export a savepoint to another folder or store in the canonical format. Writes the manifest last.

    Args:
        savepoint: the savepoint to export, with or without state.
        target: parent folder or URI; the export becomes a folder in it, named after the savepoint.
        unfold: checkpoint reader of the engine that created the savepoint.

    Returns:
        Path of the exported folder.

    Raises:
        StateError: STATE-021, the savepoint is damaged.
    """
    savepoints.check(savepoint)
    manifest = savepoint.manifest
    folder = f"{target.rstrip('/')}/{manifest.id}"
    unfolded = f"{folder}.draft"
    remove(folder)
    savepoints.restore(savepoint, unfolded)
    marks = unfold(f"{unfolded}/{CHECKPOINT}", manifest.batch, f"{folder}/{STATE}")
    for path in manifest.files:
        if not path.startswith(f"{CHECKPOINT}/") or path == f"{CHECKPOINT}/{IDENTITY}":
            copy(f"{savepoint.path}/{path}", f"{folder}/{path.removeprefix(f'{CHECKPOINT}/')}", link=False)
    document = {
        "format": _FORMAT,
        **_nonempty_fields(marks),
        "positions": [_nonempty_fields(one) for one in marks.positions],
    }
    write(f"{folder}/{MARKS}", json.dumps(document, indent=1).encode())
    remove(unfolded)
    whole = replace(manifest, files=savepoints.digests(folder), shared=(), format=PLAIN)
    write(f"{folder}/{MANIFEST}", whole.as_json().encode())
    return folder


def import_savepoint(lake: Lake, source: str, engine: str, fold: Fold) -> Savepoint:
    """Import a canonical savepoint into a lake, in the checkpoint format of an engine.

    Args:
        lake: the lake with the tables that the stream reads and writes.
        source: folder of the canonical savepoint.
        engine: name of the engine that will run the stream.
        fold: checkpoint writer of that engine.

    Returns:
        The new savepoint.

    Raises:
        StateError: STATE-020 the format is newer, STATE-021 the folder is damaged or no savepoint.
        LifecycleError: LIFECYCLE-003, another savepoint of the operator is being created.
    """
    manifest = savepoints.opened(source).manifest
    with savepoints.drafted(manifest.operator, lake) as draft:
        checkpoint = fill(source, draft.path, engine, fold)
        for path in manifest.files:
            if path.startswith("versions/"):
                copy(f"{source.rstrip('/')}/{path}", f"{draft.path}/{path}", link=False)
        made = replace(
            manifest,
            id=draft.name,
            at=draft.at,
            engine=checkpoint.engine(manifest.batch),
            why=manifest.why or f"import of {manifest.id}",
            files=savepoints.digests(draft.path),
        )
        write(f"{draft.path}/{MANIFEST}", made.as_json().encode())
    return savepoints.find(lake, draft.name)


def fill(source: str, folder: str, engine: str, fold: Fold) -> Checkpoint:
    """Create the folder of a timeline from a canonical savepoint. The identity file comes last: without it the checkpoint belongs to no operator.

    Args:
        source: folder of the canonical savepoint.
        folder: folder of the timeline; empty.
        engine: name of the engine that will resume from the checkpoint.
        fold: checkpoint writer of that engine.

    Returns:
        The checkpoint that was created.

    Raises:
        StateError: STATE-020 the format is newer, STATE-021 the folder is damaged or no savepoint.
    """
    source = source.rstrip("/")
    canonical = savepoints.opened(source)
    savepoints.check(canonical)
    marks, manifest = _marks(source), canonical.manifest
    checkpoint = checkpoint_at(f"{folder}/{CHECKPOINT}", engine)
    state = f"{source}/{STATE}" if any(path.startswith(f"{STATE}/") for path in manifest.files) else None
    fold(state, checkpoint, manifest, marks)
    for path in manifest.files:
        if not path.startswith((f"{STATE}/", "versions/")) and path not in {IDENTITY, MARKS}:
            copy(f"{source}/{path}", f"{folder}/{path}", link=False)
    copy(f"{source}/{IDENTITY}", f"{folder}/{CHECKPOINT}/{IDENTITY}", link=False)
    return checkpoint


def _nonempty_fields(record: BatchMetadata | Position) -> dict[str, Any]:
    """Fields of a record for JSON. Omits empty optional fields, which readers of earlier versions do not expect."""
    return {name: value for name, value in record._asdict().items() if value not in (None, {})}


def _marks(source: str) -> BatchMetadata:
    document: dict[str, Any] = json.loads(read(f"{source}/{MARKS}") or b"{}")
    if not document:
        raise broken(f"folder {source}", f"one without '{MARKS}'")
    if (written := int(document.pop("format"))) > _FORMAT:
        fix = "Use the floodmark that wrote it, or a newer one: pip install --upgrade floodmark"
        expected = f"format {_FORMAT} or older"
        raise StateError(f"savepoint {source}", expected, f"format {written}", fix, code="STATE-020")
    passed = {table: Passed(*one) for table, one in document.get("passed", {}).items()}
    return BatchMetadata(
        **document | {"positions": [Position(**one) for one in document["positions"]], "passed": passed}
    )
