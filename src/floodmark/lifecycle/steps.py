"""Steps: the actions of a verb on streams and their tables, in order, as data.

A verb plans all of its steps before it takes the first, so that a dry run lists the steps of a real run. Each step is idempotent: after a
crash the next process takes the same steps again, or the steps that undo them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import asdict, dataclass
from typing import Any, Literal, TypeVar

from floodmark.core import crash


@dataclass(frozen=True, slots=True, kw_only=True)
class Stop:
    """Streams stop, each at its next micro-batch boundary; upstream first, so that downstream streams catch up before they stop."""

    operators: tuple[str, ...]

    def __str__(self) -> str:
        return f"stop {', '.join(self.operators)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Save:
    """A savepoint is created for a later rollback, coordinated with the downstream streams if they share a consistent cut."""

    operator: str
    why: str

    def __str__(self) -> str:
        return f"make a savepoint of {self.operator}, to go back to: {self.why}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Compute:
    """All input of a stream is computed with another definition, beside the stream; ``again``: the input since then, once the stream has stopped."""

    operator: str
    version: str
    again: bool = False

    def __str__(self) -> str:
        if self.again:
            return f"compute with {self.version} what {self.operator} has read since, once it has stopped"
        return f"compute {self.version} beside {self.operator}, up to the end of its input"


@dataclass(frozen=True, slots=True, kw_only=True)
class Follow:
    """An arm of an experiment reads all that the stopped stream has read, and stops."""

    operator: str
    arm: str

    def __str__(self) -> str:
        return f"let arm {self.arm} read what {self.operator} has read, and stop it"


@dataclass(frozen=True, slots=True, kw_only=True)
class Define:
    """A stopped stream will resume from its own state under another definition."""

    operator: str
    version: str

    def __str__(self) -> str:
        return f"keep the state of {self.operator} under {self.version}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Widen:
    """Missing columns are added to tables; existing rows have null in them."""

    operator: str
    tables: tuple[str, ...]

    def __str__(self) -> str:
        return f"add to {', '.join(self.tables)} the columns that they lack"


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoreState:
    """State and positions of a stream are restored from a savepoint, on a new timeline that is not current yet."""

    operator: str
    timeline: int
    origin: str

    def __str__(self) -> str:
        return f"put back state and positions of {self.operator} from {self.origin}, on timeline {self.timeline}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Empty:
    """A table that the stream no longer writes is emptied."""

    operator: str
    table: str

    def __str__(self) -> str:
        return f"empty {self.table}, which {self.operator} does not write then"


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoreValues:
    """The ``__current`` table of an output is restored to the values of its restored changelog, in one commit."""

    operator: str
    table: str

    def __str__(self) -> str:
        return f"make {self.table} what the changelog then says, in one commit"


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoreTable:
    """An output is restored to one of its versions, or replaced by another lake's table of that name, in one commit that fences its writer."""

    operator: str
    table: str
    origin: str

    def __str__(self) -> str:
        return f"make {self.table} what it is in {self.origin}, in one commit"


@dataclass(frozen=True, slots=True, kw_only=True)
class NoteRevision:
    """The tables of streams that follow a rebuild record that their rows may take back rows of any event time from now on."""

    operator: str
    tables: tuple[str, ...]

    def __str__(self) -> str:
        return f"note in {', '.join(self.tables)} that rows of any event time may be taken back"


@dataclass(frozen=True, slots=True, kw_only=True)
class AppendDifference:
    """Retractions and rows that make an output what it is in another lake, in one commit that fences its writer and that readers of the output follow."""

    operator: str
    table: str
    readers: tuple[str, ...]

    def __str__(self) -> str:
        return f"append to {self.table}, in one commit, what changes in it, which {', '.join(self.readers)} will follow"


@dataclass(frozen=True, slots=True, kw_only=True)
class Seek:
    """A stream's positions move behind the commits that restored its input tables."""

    operator: str
    tables: tuple[str, ...]

    def __str__(self) -> str:
        return f"let {self.operator} resume reading {', '.join(self.tables)} behind that"


@dataclass(frozen=True, slots=True, kw_only=True)
class MakeCurrent:
    """A timeline becomes current: the stream resumes on it."""

    operator: str
    timeline: int

    def __str__(self) -> str:
        return f"resume {self.operator} on timeline {self.timeline}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Leave:
    """The stream moves to another lake: starts in this lake are refused."""

    operator: str
    lake: str

    def __str__(self) -> str:
        return f"resume {self.operator} in {self.lake} only"


@dataclass(frozen=True, slots=True, kw_only=True)
class Fork:
    """A stream starts in another lake from a savepoint, with its outputs linked or copied."""

    operator: str
    lake: str

    def __str__(self) -> str:
        return f"begin {self.operator} in {self.lake} from the savepoint, with its tables"


@dataclass(frozen=True, slots=True, kw_only=True)
class Repartition:
    """State is divided among another number of partitions; key groups move whole."""

    operator: str
    partitions: int

    def __str__(self) -> str:
        return f"divide the state of {self.operator} among {self.partitions} partitions"


@dataclass(frozen=True, slots=True, kw_only=True)
class Regroup:
    """State is divided among another number of key groups, on a new timeline that is not current yet."""

    operator: str
    groups: int

    def __str__(self) -> str:
        return f"divide the state of {self.operator} among {self.groups} key groups"


@dataclass(frozen=True, slots=True, kw_only=True)
class Convert:
    """State is converted to the other engine's form, on a new timeline that is not current yet."""

    operator: str
    engine: str

    def __str__(self) -> str:
        return f"write the state of {self.operator} for engine {self.engine}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Fence:
    """A timeline is fenced in the output tables: no driver can commit for it."""

    operator: str
    timeline: int

    def __str__(self) -> str:
        return f"fence timeline {self.timeline} of {self.operator}: it can write nothing any more"


@dataclass(frozen=True, slots=True, kw_only=True)
class Deploy:
    """The version of an operator that the supervisor should run, and whether it should run."""

    operator: str
    version: str
    desired: Literal["running", "stopped"]

    def __str__(self) -> str:
        return f"start {self.version}" if self.desired == "running" else f"leave {self.version} stopped"


@dataclass(frozen=True, slots=True, kw_only=True)
class Verify:
    """A version is watched: it must commit a micro-batch and run without a crash; otherwise the stream rolls back to the savepoint."""

    operator: str
    version: str
    patience: float
    soak: float

    def __str__(self) -> str:
        return (
            f"watch {self.version}: a micro-batch within {self.patience:g} s, {self.soak:g} s without a crash; "
            f"else take {self.operator} back"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Erase:
    """Rows of a key are removed from logs and quarantines; all other rows stay as and where they are."""

    tables: tuple[str, ...]

    def __str__(self) -> str:
        return f"remove rows of the key from {', '.join(self.tables)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Discard:
    """Savepoints of a stream are removed, with all its earlier states."""

    operator: str
    savepoints: int

    def __str__(self) -> str:
        return f"remove {self.savepoints} savepoints of {self.operator}, and make a new one"


@dataclass(frozen=True, slots=True, kw_only=True)
class Purge:
    """Files that tables no longer have are removed, whatever their age, and their statistics in the tables' logs."""

    tables: tuple[str, ...]

    def __str__(self) -> str:
        return f"remove old files and statistics of {', '.join(self.tables)}"


Step = (
    Stop
    | Save
    | Compute
    | Follow
    | Define
    | Widen
    | RestoreState
    | Empty
    | RestoreValues
    | NoteRevision
    | AppendDifference
    | RestoreTable
    | Seek
    | MakeCurrent
    | Leave
    | Fork
    | Repartition
    | Regroup
    | Convert
    | Fence
    | Deploy
    | Verify
    | Erase
    | Discard
    | Purge
)

Switching = RestoreState | Empty | RestoreValues | NoteRevision | AppendDifference | RestoreTable | Seek | MakeCurrent
"""Steps of a switch, each of one stream."""

Some = TypeVar("Some", bound=Step)

_taken: ContextVar[list[Step] | None] = ContextVar("_taken", default=None)


def kind(step: Step) -> str:
    """The name of a step in documents and in crash points: ``restore_table``."""
    return _kind(type(step))


def _kind(made: type[Step]) -> str:
    return re.sub(r"(?<!^)(?=[A-Z])", "_", made.__name__).lower()


def documents(steps: Iterable[Step]) -> list[dict[str, Any]]:
    """Steps as JSON, each with its kind, its fields, and a sentence."""
    return [{"step": kind(step), **asdict(step), "told": str(step)} for step in steps]


def take(steps: Iterable[Some], each: Callable[[Some], object]) -> None:
    """Takes steps in order. A crash point precedes each step and follows the last.

    Args:
        steps: to take.
        each: takes one step; a process that was killed may have taken the same step before.
    """
    for step in steps:
        crash.point(f"step.{kind(step)}")
        each(step)
        recording = _taken.get()
        if recording is not None:
            recording.append(step)
    crash.point("step.done")


@contextmanager
def recorded() -> Iterator[list[Step]]:
    """Records the steps that this thread takes inside the ``with`` block."""
    steps_taken = list[Step]()
    token = _taken.set(steps_taken)
    try:
        yield steps_taken
    finally:
        _taken.reset(token)
