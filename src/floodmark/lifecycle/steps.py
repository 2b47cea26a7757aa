"""Steps: what a verb does to streams and to their tables, one after the other, as data.

A verb decides on its steps over what there is, before the first is taken, so that a dry run lists the same that would be done. Each step
can be taken twice: whoever comes after a crash takes them again, or those that undo them.
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
    """Streams stop, each at its next micro-batch boundary; the first one first, so that those that read it come to where it is."""

    operators: tuple[str, ...]

    def __str__(self) -> str:
        return f"stop {', '.join(self.operators)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Save:
    """A savepoint is made, to go back to; where there is a cut through those that read the stream, with theirs."""

    operator: str
    why: str

    def __str__(self) -> str:
        return f"make a savepoint of {self.operator}, to go back to: {self.why}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Compute:
    """All input of a stream is computed with another definition, beside the stream; ``again``: what came since, when the stream has stopped."""

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
    """A stopped stream goes on under another definition, from its own state."""

    operator: str
    version: str

    def __str__(self) -> str:
        return f"keep the state of {self.operator} under {self.version}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Widen:
    """Tables get the columns that they lack; rows that are there have null in them."""

    operator: str
    tables: tuple[str, ...]

    def __str__(self) -> str:
        return f"add to {', '.join(self.tables)} the columns that they lack"


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoreState:
    """State and positions of a stream come from a savepoint, on a new timeline that nobody goes on with yet."""

    operator: str
    timeline: int
    origin: str

    def __str__(self) -> str:
        return f"put back state and positions of {self.operator} from {self.origin}, on timeline {self.timeline}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Empty:
    """A table that the stream does not write any more is emptied."""

    operator: str
    table: str

    def __str__(self) -> str:
        return f"empty {self.table}, which {self.operator} does not write then"


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoreValues:
    """The last values of an output become those of the version that comes, in one commit."""

    operator: str
    table: str

    def __str__(self) -> str:
        return f"make {self.table} what the changelog then says, in one commit"


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoreTable:
    """An output becomes what it was at a version, or what another lake's table of that name is, in one commit that fences its writer."""

    operator: str
    table: str
    origin: str

    def __str__(self) -> str:
        return f"make {self.table} what it is in {self.origin}, in one commit"


@dataclass(frozen=True, slots=True, kw_only=True)
class Seek:
    """A stream goes on reading tables behind the commits by which they went back."""

    operator: str
    tables: tuple[str, ...]

    def __str__(self) -> str:
        return f"let {self.operator} resume reading {', '.join(self.tables)} behind that"


@dataclass(frozen=True, slots=True, kw_only=True)
class MakeCurrent:
    """From now on the stream goes on with a timeline."""

    operator: str
    timeline: int

    def __str__(self) -> str:
        return f"resume {self.operator} on timeline {self.timeline}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Leave:
    """From now on the stream goes on in another lake, and nowhere else."""

    operator: str
    lake: str

    def __str__(self) -> str:
        return f"resume {self.operator} in {self.lake} only"


@dataclass(frozen=True, slots=True, kw_only=True)
class Fork:
    """A stream begins in another lake from a savepoint, with its outputs linked or copied."""

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
class Convert:
    """State goes over to the other engine's form, on a new timeline that nobody goes on with yet."""

    operator: str
    engine: str

    def __str__(self) -> str:
        return f"write the state of {self.operator} for engine {self.engine}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Fence:
    """Nobody writes to outputs for a timeline any more."""

    operator: str
    timeline: int

    def __str__(self) -> str:
        return f"fence timeline {self.timeline} of {self.operator}: it can write nothing any more"


@dataclass(frozen=True, slots=True, kw_only=True)
class Deploy:
    """What a supervisor should run of an operator from now on, if it should run."""

    operator: str
    version: str
    desired: Literal["running", "stopped"]

    def __str__(self) -> str:
        return f"start {self.version}" if self.desired == "running" else f"leave {self.version} stopped"


@dataclass(frozen=True, slots=True, kw_only=True)
class Verify:
    """A version is watched: it commits a micro-batch, and gets on without a crash; else it is taken back to the savepoint."""

    operator: str
    version: str
    patience: float
    soak: float

    def __str__(self) -> str:
        return (
            f"watch {self.version}: a micro-batch within {self.patience:g} s, {self.soak:g} s without a crash; "
            f"else take {self.operator} back"
        )


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
    | RestoreTable
    | Seek
    | MakeCurrent
    | Leave
    | Fork
    | Repartition
    | Convert
    | Fence
    | Deploy
    | Verify
)

Switching = RestoreState | Empty | RestoreValues | RestoreTable | Seek | MakeCurrent
"""Steps of a switch, each of one stream."""

Some = TypeVar("Some", bound=Step)

_taken: ContextVar[list[Step] | None] = ContextVar("_taken", default=None)


def kind(step: Step) -> str:
    """What a step is called in documents and in crash points: ``restore_table``."""
    return _kind(type(step))


def _kind(made: type[Step]) -> str:
    return re.sub(r"(?<!^)(?=[A-Z])", "_", made.__name__).lower()


def documents(steps: Iterable[Step]) -> list[dict[str, Any]]:
    """Steps as JSON, each with its kind, what it is about, and a sentence."""
    return [{"step": kind(step), **asdict(step), "told": str(step)} for step in steps]


def take(steps: Iterable[Some], each: Callable[[Some], object]) -> None:
    """Take steps one after the other. Between any two, and behind the last, is a crash point.

    Args:
        steps: to take.
        each: takes one. It may have been taken before, by somebody who was killed.
    """
    for step in steps:
        crash.point(f"step.{kind(step)}")
        each(step)
        found = _taken.get()
        if found is not None:
            found.append(step)
    crash.point("step.done")


@contextmanager
def recorded() -> Iterator[list[Step]]:
    """The steps that are taken meanwhile, in this thread."""
    found = list[Step]()
    token = _taken.set(found)
    try:
        yield found
    finally:
        _taken.reset(token)
