"""Canonical savepoints: state as rows of Parquet instead of files of an engine's own, for another engine, another version, or other settings of its state.

Source: canonical savepoints of Flink. What is exported holds state by key group, timers included, positions by table and version, and
nothing that only one engine can read; what is imported is a savepoint as the importing engine would have made it.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import pyarrow as pa

from floodmark.core.errors import StateError
from floodmark.lake import savepoints
from floodmark.lake.checkpoint import Checkpoint, Position, checkpoint_at
from floodmark.lake.copies import copy, remove
from floodmark.lake.identity import IDENTITY
from floodmark.lake.paths import Lake
from floodmark.lake.savepoints import Savepoint
from floodmark.lake.storage import read, write
from floodmark.lake.timeline import CHECKPOINT
from floodmark.lifecycle.savepoint import MANIFEST, MARKS, Manifest, broken

STATE = "state"
"""The folder of the rows of state; none where the stream has no state."""
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
"""Of a key group: one row with the index of its state and the progress it waits for, one for each piece of each chunk."""
_FORMAT = 1


class Passed(NamedTuple):
    """Rows of a log that were read commit by commit, before the stream went on with the files of a later version."""

    sequence: int
    """The last ``_sequence``."""
    version: int
    """That was read completely then."""


class Marks(NamedTuple):
    """What a checkpoint says of a micro-batch, besides its state."""

    before: int
    """Spark's watermark (``carrier``) up to which timers have fired, ms."""
    after: int
    """And the one that the rows of the micro-batch have brought."""
    clock: int
    """Processing time, ms."""
    positions: list[Position]
    """Per source of the query, how far it is read at its end; some engines read markers beside each input."""
    passed: dict[str, Passed]
    """By a table's id."""


Unfold = Callable[[str, int, str], Marks]
"""Folder of a checkpoint, micro-batch, folder for rows of state that is not there yet -> what else there is of it."""
Fold = Callable[[str | None, Checkpoint, Manifest, Marks], None]
"""Folder of rows of state, the checkpoint to make, what the savepoint says, what its checkpoint says."""


def export(savepoint: Savepoint, target: str, unfold: Unfold) -> str:
    """Write a savepoint to another folder or store in the canonical format, the manifest last.

    Args:
        savepoint: of any stream, with or without state.
        target: a folder for it is made in there.
        unfold: of the engine that has made the savepoint.

    Returns:
        The folder.

    Raises:
        StateError: STATE-021, it is damaged.
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
        **_without_nothing(marks),
        "positions": [_without_nothing(one) for one in marks.positions],
    }
    write(f"{folder}/{MARKS}", json.dumps(document, indent=1).encode())
    remove(unfolded)
    whole = replace(manifest, files=savepoints.digests(folder))
    write(f"{folder}/{MANIFEST}", whole.as_json().encode())
    return folder


def take_in(lake: Lake, source: str, engine: str, fold: Fold) -> Savepoint:
    """Make a savepoint in a lake of a canonical one, as an engine would have made it.

    Args:
        lake: that has the tables the stream reads and writes.
        source: folder of the canonical savepoint.
        engine: name of the engine.
        fold: of that engine.

    Raises:
        StateError: STATE-020 it is of a newer format, STATE-021 it is damaged or none.
        LifecycleError: LIFECYCLE-003, another savepoint of the operator is being made.
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
    """Make the folder of a timeline of a canonical savepoint. What says whose checkpoint it is comes last: without it, it counts as none.

    Args:
        source: folder of the canonical savepoint.
        folder: of the timeline; empty.
        engine: that shall go on with it.
        fold: of that engine.

    Raises:
        StateError: STATE-020 the savepoint is of a newer format, STATE-021 it is damaged or none.
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


def _without_nothing(record: Marks | Position) -> dict[str, Any]:
    """As JSON; without what versions before did not know, where it says nothing."""
    return {name: value for name, value in record._asdict().items() if value not in (None, {})}


def _marks(source: str) -> Marks:
    document: dict[str, Any] = json.loads(read(f"{source}/{MARKS}") or b"{}")
    if not document:
        raise broken(f"folder {source}", f"one without '{MARKS}'")
    if (written := int(document.pop("format"))) > _FORMAT:
        fix = "Use the floodmark that wrote it, or a newer one: pip install --upgrade floodmark"
        expected = f"format {_FORMAT} or older"
        raise StateError(f"savepoint {source}", expected, f"format {written}", fix, code="STATE-020")
    passed = {table: Passed(*one) for table, one in document.get("passed", {}).items()}
    return Marks(**document | {"positions": [Position(**one) for one in document["positions"]], "passed": passed})
