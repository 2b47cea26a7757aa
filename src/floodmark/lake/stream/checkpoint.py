"""Port to the checkpoint of a stream, for timelines and savepoints. Each engine stores checkpoints in its own format and implements the port."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Mapping
from importlib import import_module
from typing import NamedTuple, Protocol, cast

from floodmark.core.errors import StateError, shown
from floodmark.lake.folder.storage import folders, read
from floodmark.lifecycle.savepoint import File

ENGINE = "engine.json"
"""Name of the file in a checkpoint's folder that names its engine. Spark's checkpoints have no such file."""
_STREAM = re.compile(r"(.*)/operators/([^/]+)/timelines/\d+/checkpoint")


class Position(NamedTuple):
    """The position up to which a source is read."""

    version: int
    """The last version of its table that is read completely."""
    file: int
    """Index of the last file that is read of the next version, or of ``snapshot``; -1 for none."""
    table: str
    """Id of the source's table."""
    snapshot: int | None = None
    """The version whose files are read in order when a stream starts; None once the source reads commit by commit."""


class Checkpoint(Protocol):
    """The durable state of one stream in a folder. Micro-batches are numbered from 0; only recent ones are retained and can be queried."""

    @property
    def path(self) -> str:
        """Folder or URI of the checkpoint."""
        ...

    def begun(self) -> bool:
        """True if at least one micro-batch was planned."""
        ...

    def last_committed(self) -> int:
        """Number of the last committed micro-batch; -1 for none."""
        ...

    def restorable(self) -> list[int]:
        """Committed micro-batches from which a stream can resume, ascending."""
        ...

    def check(self, batch: int) -> None:
        """Check that the existing files of a micro-batch can be read.

        Raises:
            StateError: STATE-036, a file is not what the engine writes.
        """
        ...

    def check_newest(self) -> None:
        """Check that the newest files can be read. A start reads these first.

        Raises:
            StateError: STATE-036, a file is not what the engine writes.
        """
        ...

    def final_progress(self, batch: int) -> int:
        """Progress, ms, that is safe to publish when a committed micro-batch is the last one: all timers up to it have fired."""
        ...

    def clock(self, batch: int) -> int:
        """Processing time of a micro-batch, ms UTC."""
        ...

    def positions(self, batch: int) -> list[Position]:
        """The position of each source of the query at the end of a micro-batch, in the order of the sources."""
        ...

    def skipped(self, batch: int) -> Collection[str]:
        """Names of inputs, or ids of their tables, of which the stream leaves out rows with a ``_sequence`` up to a known one."""
        ...

    def move(self, batch: int, source: int, version: int, table: str) -> None:
        """Set the position of a source in a checkpoint on which no query runs.

        Args:
            batch: the micro-batch whose position changes.
            source: index of the source.
            version: table version after which the source resumes.
            table: id of the table.
        """
        ...

    def copy_to(self, target: str, batch: int) -> Mapping[str, File]:
        """Copy the checkpoint as of a committed micro-batch into a folder. The stream may keep running.

        Returns:
            Path -> file, of the files that are not copied but are to be shared by savepoints in a bucket.

        Raises:
            StateError: STATE-021, the checkpoint lacks files of the micro-batch.
        """
        ...

    def restore_from(self, source: str, files: Iterable[str]) -> None:
        """Restore the checkpoint from a savepoint into its empty folder.

        Args:
            source: folder of the savepoint's checkpoint.
            files: paths of the files below ``source``.
        """
        ...

    def owed(self) -> list[tuple[str, str]]:
        """Folders of files that are written but not committed, which the next start commits: (table, folder inside the table's folder)."""
        ...

    def engine(self, batch: int) -> dict[str, str]:
        """What wrote the state of a micro-batch: versions of packages and of Python, and the number of state partitions."""
        ...

    def manifest_format(self, batch: int) -> int:
        """The format of the manifest of a savepoint of this state: every release that reads such manifests reads the state."""
        ...


def engine_of(path: str) -> str:
    """Name of the engine of the checkpoint in a folder; ``spark`` without an engine file.

    Raises:
        StateError: STATE-036, the engine file is malformed.
    """
    content = read(f"{path}/{ENGINE}")
    if content is None:
        return "spark"
    try:
        return str(json.loads(content)["engine"])
    except (ValueError, LookupError, TypeError):
        raise garbage(path, ENGINE, content) from None


def checkpoint_at(path: str, engine: str | None = None) -> Checkpoint:
    """The checkpoint in a folder.

    Args:
        path: the folder; it need not exist.
        engine: name of the engine, by default read from the folder. Its class is ``Checkpoint`` in ``floodmark.engines.<engine>.state.checkpoint``,
            looked up by name like a database driver, because engines stand above the lake.
    """
    name = engine_of(path) if engine is None else engine
    return cast("Checkpoint", import_module(f"floodmark.engines.{name}.state.checkpoint").Checkpoint(path))


def garbage(checkpoint: str, file: str, content: bytes) -> StateError:
    """The error STATE-036 for a file of a checkpoint that cannot be read.

    Args:
        checkpoint: folder of the checkpoint.
        file: path of the file in the folder.
        content: content of the file.
    """
    name, newest = _newest_savepoint(checkpoint)
    fix = (
        f"Put a copy of the file back, if there is one. Otherwise roll the stream back to a savepoint (floodmark savepoint list {name}, then "
        f"floodmark rollback {name} --to {newest or 'SAVEPOINT'}), or compute it anew: floodmark run {name} --unbounded --from-scratch."
    )
    got = f"{len(content):,} bytes that are not: {shown(content)}" if content else "an empty file"
    expected = "what the engine writes there"
    return StateError(f"file {checkpoint}/{file}", expected, got, fix, code="STATE-036")


def remedy(checkpoint: str) -> str:
    """The command that replaces a damaged checkpoint: a rollback to the newest savepoint; without a savepoint, a run from scratch."""
    name, newest = _newest_savepoint(checkpoint)
    if newest:
        return f"floodmark rollback {name} --to {newest}"
    return f"floodmark run {name} --unbounded --from-scratch"


def _newest_savepoint(checkpoint: str) -> tuple[str, str]:
    """Path of a checkpoint -> (operator, id of its newest savepoint). The id is empty without a savepoint."""
    stream = _STREAM.fullmatch(checkpoint)
    if stream is None:
        return "OPERATOR", ""
    made = [one for one in folders(f"{stream[1]}/savepoints/{stream[2]}") if not one.endswith(".draft")]
    return stream[2], made[-1] if made else ""
