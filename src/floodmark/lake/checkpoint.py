"""The checkpoint of a stream, as timelines and savepoints see it. Each engine keeps its own in its own format behind this port."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from importlib import import_module
from typing import NamedTuple, Protocol, cast

from floodmark.core.errors import StateError, shown
from floodmark.lake.storage import folders, read

ENGINE = "engine.json"
"""A file in the folder of a checkpoint that names its engine; Spark's checkpoints have none."""
_STREAM = re.compile(r"(.*)/operators/([^/]+)/timelines/\d+/checkpoint")


class Position(NamedTuple):
    """How far a source is read."""

    version: int
    """Of its table, the last one that is read completely."""
    file: int
    """Number of the last file that is read of the version behind it, or of ``snapshot``; -1 for none."""
    table: str
    """Id of the table."""
    snapshot: int | None = None
    """The version whose files are read in their order, as at the beginning of a stream; None where commits are read."""


class Checkpoint(Protocol):
    """What an engine remembers of one stream, in a folder. A micro-batch has a number; those that are kept can be asked for."""

    @property
    def path(self) -> str:
        """Folder or URI."""
        ...

    def begun(self) -> bool:
        """Whether a micro-batch was planned."""
        ...

    def last_committed(self) -> int:
        """The last micro-batch that is done; -1 for none."""
        ...

    def restorable(self) -> list[int]:
        """Committed micro-batches that a stream can be started from again, ascending."""
        ...

    def check(self, batch: int) -> None:
        """Make sure that the files of a micro-batch can be read where they are there.

        Raises:
            StateError: STATE-036, one is not what the engine writes.
        """
        ...

    def check_newest(self) -> None:
        """Make sure that the newest files can be read: a start begins with them.

        Raises:
            StateError: STATE-036, one is not what the engine writes.
        """
        ...

    def settled(self, batch: int) -> int:
        """Progress, ms, that readers may be told once a committed micro-batch has nothing behind it."""
        ...

    def clock(self, batch: int) -> int:
        """Processing time of a micro-batch, ms UTC."""
        ...

    def positions(self, batch: int) -> list[Position]:
        """How far each source of the query is read at the end of a micro-batch, in the order of the sources."""
        ...

    def move(self, batch: int, source: int, version: int, table: str) -> None:
        """Let a source, by its number, go on behind a version of the table with this id; for a checkpoint no query runs on."""
        ...

    def copy_to(self, target: str, batch: int) -> None:
        """Copy the checkpoint as of a committed micro-batch into a folder, while its stream may run on.

        Raises:
            StateError: STATE-021, it lacks files.
        """
        ...

    def restore_from(self, source: str, files: Iterable[str]) -> None:
        """Make the folder what a savepoint holds: ``files`` below ``source``. The folder is empty."""
        ...

    def owed(self) -> list[tuple[str, str]]:
        """Folders of files that are written and that a start commits: (table, folder in that of the table)."""
        ...

    def engine(self, batch: int) -> dict[str, str]:
        """What wrote the state of a micro-batch: packages and their versions, Python, state partitions."""
        ...


def engine_of(path: str) -> str:
    """Whose a checkpoint is, by the folder: ``spark`` where it does not say."""
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
        path: the folder; it need not be there.
        engine: whose it is, by default as the folder says: the module ``floodmark.engines.<engine>.state.checkpoint`` has a class ``Checkpoint``
            of the path. It is looked up by name, as a database driver is, because engines stand above the lake.
    """
    name = engine_of(path) if engine is None else engine
    return cast("Checkpoint", import_module(f"floodmark.engines.{name}.state.checkpoint").Checkpoint(path))


def garbage(checkpoint: str, file: str, content: bytes) -> StateError:
    """STATE-036: a file of a checkpoint that cannot be read.

    Args:
        checkpoint: path of its folder.
        file: in it.
        content: of the file.
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
    """The command that replaces a damaged checkpoint: a rollback to the newest savepoint; where there is none, computing anew."""
    name, newest = _newest_savepoint(checkpoint)
    if newest:
        return f"floodmark rollback {name} --to {newest}"
    return f"floodmark run {name} --unbounded --from-scratch"


def _newest_savepoint(checkpoint: str) -> tuple[str, str]:
    """(operator, its newest savepoint) of a checkpoint's path; the savepoint is empty where there is none."""
    stream = _STREAM.fullmatch(checkpoint)
    if stream is None:
        return "OPERATOR", ""
    made = [one for one in folders(f"{stream[1]}/savepoints/{stream[2]}") if not one.endswith(".draft")]
    return stream[2], made[-1] if made else ""
