"""Timelines: a timeline is one unbroken history of a stream's commits, with its own folder for checkpoint and marks.

A rollback begins a new timeline. Transaction ids contain the timeline's number, so that a new commit is not taken for a revoked one: Delta retains the
transaction versions of a table even when the table is restored.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import cache
from typing import Any, Literal

from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from floodmark.core.errors import StateError
from floodmark.lake.folder.paths import Lake
from floodmark.lake.folder.storage import folders, read, write
from floodmark.lake.stream import positions
from floodmark.lake.stream.checkpoint import Checkpoint, Position, checkpoint_at
from floodmark.lake.stream.identity import Identity
from floodmark.lake.table.outputs import input_path
from floodmark.lake.writing.writer import committed
from floodmark.lifecycle.plan import Deployed
from floodmark.lifecycle.savepoint import TableVersion

CHECKPOINT = "checkpoint"
"""Name of the checkpoint's folder."""
FOLLOWERS = "current"
"""Name of the folder of what follows changelogs into tables of last values: their checkpoints."""
STARTS = "starts"
"""Name of the table of markers that an engine appends at each start."""
TICKS = "ticks"
"""Name of the table of processing times of micro-batches."""
REACHED = "reached.json"
"""Name of a savepoint's file with the last row read of each log."""
Beside = Literal["settle", "restate"]
"""Commits of a stream other than micro-batches: published progress, and results restated after an upgrade."""


@dataclass(frozen=True, slots=True)
class Move:
    """A move of a stream to another lake.

    Args:
        root: root of the other lake.
        savepoint: id of the savepoint from which the stream resumes there.
    """

    root: str
    savepoint: str


@dataclass(frozen=True, slots=True)
class Timeline:
    """One timeline of an operator's stream. Constructing it opens and creates nothing.

    Args:
        lake: lake of the stream's tables.
        operator: name of the operator.
        number: number of the timeline; 0 is the first.
        engine: of its checkpoint, as a runner knows it while it runs; None: the checkpoint says so, which is read each time.
    """

    lake: Lake
    operator: str
    number: int = 0
    engine: str | None = field(default=None, compare=False)

    @staticmethod
    def current(lake: Lake, operator: str) -> Timeline:
        """The timeline on which the stream's next start resumes."""
        return Timeline(lake, operator, int(_pointed(lake, operator).get("timeline", 0)))

    def make_current(self, *, ends: Timeline | None = None) -> None:
        """Make this the current timeline, atomically. The next start resumes on it.

        Args:
            ends: the predecessor that is still to be fenced (``fence.end_predecessor``); None for none.
        """
        unfenced = {} if ends is None else {"unfenced": ends.number}
        write(_pointer(self.lake, self.operator), json.dumps({"timeline": self.number, **unfenced}).encode())

    @property
    def unfenced(self) -> Timeline | None:
        """The predecessor that is not fenced yet, because the process was killed; None if there is none."""
        number = _pointed(self.lake, self.operator).get("unfenced")
        return None if number is None else replace(self, number=int(number), engine=None)

    def mark_moved(self, move: Move) -> None:
        """Records that the stream now runs in another lake. Later starts here are refused."""
        write(_pointer(self.lake, self.operator), json.dumps({"timeline": self.number, "moved": asdict(move)}).encode())

    @property
    def moved(self) -> Move | None:
        """The finished or unfinished move of the stream to another lake; None if it has not moved."""
        target = _pointed(self.lake, self.operator).get("moved")
        return None if target is None else Move(**target)

    def next(self) -> Timeline:
        """A timeline with a number that was never used."""
        return replace(self, number=max([self.number, *_begun(self.lake, self.operator)]) + 1, engine=None)

    def unused(self, tables: Iterable[str]) -> Timeline:
        """The first timeline, from this one on, that has committed nothing to some tables.

        Args:
            tables: names of existing output tables.
        """
        timeline, opened = self, {name: DeltaTable(self.lake.output(name)) for name in tables}
        while any(table.transaction_version(timeline.app(name)) is not None for name, table in opened.items()):
            timeline = replace(timeline, number=timeline.number + 1, engine=None)
        return timeline

    @property
    def checkpoint(self) -> Checkpoint:
        """The checkpoint of the timeline's query."""
        return checkpoint_at(self.folder(CHECKPOINT), self.engine)

    @property
    def identity(self) -> Identity:
        """The identity stored in the timeline's checkpoint."""
        return Identity(self.checkpoint)

    def written(self, table: str) -> int:
        """The last micro-batch of this timeline that was committed to a table; -1 for none."""
        batch = committed(self.lake.output(table), self.app(table))
        return -1 if batch is None else batch

    @property
    def newest_written(self) -> int:
        """The last micro-batch of this timeline that was committed to any output table; -1 for none."""
        deployed = self.identity.deployed()
        return max((self.written(name) for name in deployed.tables), default=-1) if deployed is not None else -1

    @property
    def fresh(self) -> bool:
        """True if no micro-batch was committed to the checkpoint or to a table, so the first one will read all rows."""
        return self.checkpoint.last_committed() < 0 and self.newest_written < 0

    @property
    def deployed(self) -> Deployed | None:
        """The definition the stream runs under; None before the first micro-batch, for which any definition of the operator is allowed."""
        definition = self.identity.deployed()
        return None if definition is None or self.fresh else definition

    def folder(self, *parts: str) -> str:
        """Path of a folder of the timeline: ``CHECKPOINT``, ``STARTS``, ``TICKS``, ``FOLLOWERS``; without parts, of the timeline itself."""
        return self.lake.internal("operators", self.operator, "timelines", str(self.number), *parts)

    def app(self, table: str, beside: Beside | None = None) -> str:
        """Application id of the timeline's transactions to a table.

        Args:
            table: name of the output table.
            beside: kind of commit; None for micro-batches.
        """
        own = f"{self.operator}/{self.number}/{table}"
        return own if beside is None else f"{own}/{beside}"


def positions_at(timeline: Timeline, batch: int) -> dict[str, Position]:
    """Input name -> position at the end of a micro-batch, in the order the inputs are read; empty if the checkpoint does not retain the batch."""
    deployed = timeline.identity.deployed()
    return {} if deployed is None else positions.of_inputs(deployed.graph, timeline.checkpoint.positions(batch))


def inputs_at(timeline: Timeline, batch: int) -> dict[str, TableVersion]:
    """Input name -> table version read at the end of a committed micro-batch, in the order the inputs are read.

    While a stream reads its start version file by file, that version counts as read only once all its files are read.
    """
    return inputs_of(timeline, positions_at(timeline, batch))


def inputs_of(timeline: Timeline, read: Mapping[str, Position]) -> dict[str, TableVersion]:
    """``inputs_at`` for given positions."""
    deployed = timeline.identity.deployed()
    assert deployed is not None
    reads = {name: table for name, table, *_ in deployed.graph["inputs"]}
    return {name: _version_read(input_path(timeline.lake, reads[name]), reads[name], at) for name, at in read.items()}


def _version_read(path: str, table: str, at: Position) -> TableVersion:
    if at.snapshot is None:
        return TableVersion(table=table, id=at.table, version=at.version, file=at.file)
    whole = at.file + 1 >= _files(path, at.table, at.snapshot)
    return TableVersion(table=table, id=at.table, version=at.snapshot if whole else at.version, file=-1)


@cache
def _files(path: str, _id: str, version: int) -> int:
    """Number of files of a table version; 0 if its log entries were removed, as nothing more can be read of it. Cached by path, table id and version."""
    try:
        return len(DeltaTable(path, version=version).file_uris())
    except DeltaError:
        return 0


def streams(lake: Lake) -> dict[str, Deployed]:
    """Operator -> definition its stream was last started with, for all streams of a lake; upstream first."""
    names = folders(lake.internal("operators"))
    started = {name: Timeline.current(lake, name).identity.deployed() for name in names}
    order: dict[str, Deployed] = {}
    waiting = {name: one for name, one in started.items() if one is not None}
    while waiting:
        written = {table for one in waiting.values() for table in one.tables}
        ready = [name for name, one in waiting.items() if not written & set(one.reads)] or list(waiting)
        order |= {name: waiting.pop(name) for name in ready}
    return order


def _pointed(lake: Lake, operator: str) -> dict[str, Any]:
    """The content of a stream's pointer file; empty if the stream has never left its first timeline.

    Raises:
        StateError: STATE-030, the file is malformed.
    """
    path = _pointer(lake, operator)
    content = read(path)
    if content is None:
        return {}
    try:
        pointed = dict(json.loads(content))
        int(pointed["timeline"])
    except (ValueError, KeyError, TypeError) as error:
        number = max(_begun(lake, operator), default=0)
        fix = (
            f'Write {{"timeline": {number}}} into it: {number} is the newest timeline that was begun. If a rollback was killed before it '
            "ended, the one before is right, and the rollback says so when it is done again."
        )
        got = f"something else: {error}"
        raise StateError(path, "the number of a timeline, as JSON", got, fix, code="STATE-030") from error
    return pointed


def _begun(lake: Lake, operator: str) -> list[int]:
    """Numbers of the timelines that have a folder. Ignores other files and folders beside them."""
    names = folders(lake.internal("operators", operator, "timelines"))
    return [int(name) for name in names if name.isascii() and name.isdecimal()]


def _pointer(lake: Lake, operator: str) -> str:
    return lake.internal("operators", operator, "timeline.json")
