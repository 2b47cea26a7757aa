"""Timelines: one unbroken history of commits of an operator's stream, with a folder of its own for all it has to remember.

A rollback begins a new one. The transaction ids of its commits carry its number, so that no commit of it is taken for one that was
undone: Delta keeps the marks of these, also in a table that was restored.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from functools import cache
from typing import Any, Literal

from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from floodmark.core.errors import StateError
from floodmark.lake import positions
from floodmark.lake.checkpoint import Checkpoint, Position, checkpoint_at
from floodmark.lake.identity import Identity
from floodmark.lake.outputs import input_path
from floodmark.lake.paths import Lake
from floodmark.lake.storage import folders, read, write
from floodmark.lake.writer import committed
from floodmark.lifecycle.plan import Deployed
from floodmark.lifecycle.savepoint import TableVersion

CHECKPOINT = "checkpoint"
"""The folder of the checkpoint."""
STARTS = "starts"
"""The folder of the markers that an engine appends at each start."""
TICKS = "ticks"
"""The folder of what micro-batches were told of processing time."""
REACHED = "reached.json"
"""The file that says, beside a checkpoint that a savepoint was made of, which row of each log was the last one read."""
Beside = Literal["settle", "restate"]
"""What a stream commits beside its micro-batches: how far it is, and results that an upgrade restates."""


@dataclass(frozen=True, slots=True)
class Move:
    """Of a stream to another lake.

    Args:
        root: of that.
        savepoint: id of the one it goes on from there.
    """

    root: str
    savepoint: str


@dataclass(frozen=True, slots=True)
class Timeline:
    """One timeline of an operator's stream; nothing is opened or created here.

    Args:
        lake: the stream's tables lie in.
        operator: its name.
        number: 0 for the first.
    """

    lake: Lake
    operator: str
    number: int = 0

    @staticmethod
    def current(lake: Lake, operator: str) -> Timeline:
        """The one the stream goes on with."""
        return Timeline(lake, operator, int(_pointed(lake, operator).get("timeline", 0)))

    def make_current(self, *, ends: Timeline | None = None) -> None:
        """Go on with this one from the next start on; whole or not at all.

        Args:
            ends: that is still to be fenced (``fence.settle``); None for none.
        """
        unfenced = {} if ends is None else {"unfenced": ends.number}
        write(_pointer(self.lake, self.operator), json.dumps({"timeline": self.number, **unfenced}).encode())

    @property
    def unfenced(self) -> Timeline | None:
        """The one before this, where whoever should have fenced it was killed."""
        number = _pointed(self.lake, self.operator).get("unfenced")
        return None if number is None else replace(self, number=int(number))

    def leave(self, move: Move) -> None:
        """Go on with none here any more: the stream moves."""
        write(_pointer(self.lake, self.operator), json.dumps({"timeline": self.number, "moved": asdict(move)}).encode())

    @property
    def moved(self) -> Move | None:
        """Where the stream has moved, or is on its way to."""
        target = _pointed(self.lake, self.operator).get("moved")
        return None if target is None else Move(**target)

    def next(self) -> Timeline:
        """One that was never begun."""
        return replace(self, number=max([self.number, *_begun(self.lake, self.operator)]) + 1)

    def unused(self, tables: Iterable[str]) -> Timeline:
        """This one, or the next one that has committed nothing to these tables.

        Args:
            tables: names of outputs that are there.
        """
        timeline, opened = self, {name: DeltaTable(self.lake.output(name)) for name in tables}
        while any(table.transaction_version(timeline.app(name)) is not None for name, table in opened.items()):
            timeline = replace(timeline, number=timeline.number + 1)
        return timeline

    @property
    def checkpoint(self) -> Checkpoint:
        """Of its query."""
        return checkpoint_at(self.folder(CHECKPOINT))

    @property
    def identity(self) -> Identity:
        """Of its checkpoint."""
        return Identity(self.checkpoint)

    def written(self, table: str) -> int:
        """The last micro-batch that a table has rows of; -1 for none."""
        batch = committed(self.lake.output(table), self.app(table))
        return -1 if batch is None else batch

    @property
    def newest_written(self) -> int:
        """The last micro-batch that any table has rows of; -1 for none."""
        deployed = self.identity.deployed()
        return max((self.written(name) for name in deployed.tables), default=-1) if deployed is not None else -1

    @property
    def fresh(self) -> bool:
        """Whether no micro-batch has written or ended: the first one will read all there is."""
        return self.checkpoint.last_committed() < 0 and self.newest_written < 0

    @property
    def deployed(self) -> Deployed | None:
        """The definition its stream goes on under; None before the first micro-batch, which any definition of the operator may begin with."""
        definition = self.identity.deployed()
        return None if definition is None or self.fresh else definition

    def folder(self, *parts: str) -> str:
        """A folder of its own: ``CHECKPOINT``, ``STARTS``, ``TICKS``, ``current``."""
        return self.lake.internal("operators", self.operator, "timelines", str(self.number), *parts)

    def app(self, table: str, beside: Beside | None = None) -> str:
        """Application id of the transactions it commits to a table.

        Args:
            table: of an output.
            beside: of what it commits beside its micro-batches; None for these.
        """
        own = f"{self.operator}/{self.number}/{table}"
        return own if beside is None else f"{own}/{beside}"


def positions_at(timeline: Timeline, batch: int) -> dict[str, Position]:
    """The position in each input at the end of a micro-batch, by the input's name, in the order they are read; nothing where it is not kept."""
    deployed = timeline.identity.deployed()
    return {} if deployed is None else positions.of_inputs(deployed.graph, timeline.checkpoint.positions(batch))


def inputs_at(timeline: Timeline, batch: int) -> dict[str, TableVersion]:
    """How far a stream had read each input at the end of a committed micro-batch, by the input's name, in the order they are read.

    Of an input that is read file by file from a version on, nothing is read completely until all of that version is.
    """
    return inputs_of(timeline, positions_at(timeline, batch))


def inputs_of(timeline: Timeline, read: Mapping[str, Position]) -> dict[str, TableVersion]:
    """As ``inputs_at``, of positions."""
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
    """How many files a version of a table has, by its id: of one whose commits are gone none, as nobody can read more of it."""
    try:
        return len(DeltaTable(path, version=version).file_uris())
    except DeltaError:
        return 0


def streams(lake: Lake) -> dict[str, Deployed]:
    """What every stream of a lake was started with, by the operator's name; upstream first."""
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
    """What the pointer of a stream says; nothing where the stream has never left its first timeline.

    Raises:
        StateError: STATE-030, it says something else than floodmark writes.
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
    """Numbers of the timelines that have a folder; what else somebody has put beside them does not count."""
    names = folders(lake.internal("operators", operator, "timelines"))
    return [int(name) for name in names if name.isascii() and name.isdecimal()]


def _pointer(lake: Lake, operator: str) -> str:
    return lake.internal("operators", operator, "timeline.json")
