"""Switches: streams resume from other states than their own, with the matching tables; all streams of a switch or none.

A switch is journalled before its first step. After a crash the next process repeats the switch from its start: every step is idempotent.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field

from pydantic import TypeAdapter

from floodmark.lifecycle.cutover import CutoverPlan
from floodmark.lifecycle.savepoint import Manifest, TableVersion
from floodmark.lifecycle.steps import (
    AppendDifference,
    Empty,
    MakeCurrent,
    NoteRevision,
    RestoreState,
    RestoreTable,
    RestoreValues,
    Seek,
    Switching,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Followed:
    """How the readers of a stream follow its rebuild as a difference.

    Args:
        readers: replaced table -> versions of the operators whose streams read it, ``name@3f9a2c1b``.
        revises: tables of all streams that follow, directly or through others.
    """

    readers: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    revises: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """The state to which one stream switches.

    Args:
        operator: its name.
        savepoint: id of the savepoint from which the stream resumes.
        version: of the operator, in the savepoint.
        timeline: the new timeline.
        ends: the old timeline, which is fenced.
        batch: last micro-batch that the savepoint contains.
        watermark: progress of the outputs after that micro-batch, ms UTC.
        tables: the outputs, with the versions to which they are restored.
        source: root of a lake whose tables of the same names replace the outputs instead; empty for none.
        moves: position of an input -> the table of this switch that the input reads.
        cutover: which results remain when ``source`` replaces the outputs; None if none remain.
        followed: how readers follow the replacement; None if no reader does.
    """

    operator: str
    savepoint: str
    version: str
    timeline: int
    ends: int
    batch: int
    watermark: int
    tables: tuple[TableVersion, ...]
    source: str = ""
    moves: Mapping[int, str] = field(default_factory=dict)
    cutover: CutoverPlan | None = None
    followed: Followed | None = None

    @staticmethod
    def onto(state: Manifest, *, timeline: int, ends: int, source: str, cutover: CutoverPlan | None = None) -> Target:
        """The target of a stream that resumes from a savepoint of another lake.

        Args:
            state: manifest of the savepoint.
            timeline: see the class.
            ends: see the class.
            source: see the class.
            cutover: see the class.
        """
        return Target(
            operator=state.operator,
            savepoint=state.id,
            version=state.version,
            timeline=timeline,
            ends=ends,
            batch=state.batch,
            watermark=state.watermark,
            tables=state.outputs,
            source=source,
            cutover=cutover,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Switchover:
    """One or more streams that resume from other states than their own: all of them or none.

    Args:
        again: the command that repeats the switch, for the person who has to finish an interrupted one.
        targets: one per stream, upstream first.
        back: id of the savepoint created before the switch, for a rollback; empty for none.
    """

    again: str
    targets: tuple[Target, ...]
    back: str = ""

    @property
    def operators(self) -> tuple[str, ...]:
        """Names, upstream first."""
        return tuple(target.operator for target in self.targets)

    def as_json(self) -> str:
        """The text of the journal."""
        return json.dumps(asdict(self))

    @staticmethod
    def parse(text: bytes) -> Switchover:
        """The switchover from the text of a journal. Earlier releases called ``targets`` ``steps``, and a target's ``cutover`` ``cut``."""
        document = json.loads(text)
        if "steps" in document:
            document["targets"] = document.pop("steps")
        for target in document["targets"]:
            if "cut" in target:
                target["cutover"] = target.pop("cut")
        return TypeAdapter(Switchover).validate_python(document)


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """One stream's part in a switch, as input of its steps.

    Args:
        operator: its name.
        timeline: the new timeline.
        origin: source of state and tables, in words.
        tables: name of each output -> source of its rows, in words; the main output first.
        values: outputs that have a ``__current`` table.
        retired: tables that the stream no longer writes.
        follows: tables of the switch that the stream reads.
        followed: how readers follow the replacement of the tables.
    """

    operator: str
    timeline: int
    origin: str
    tables: Mapping[str, str]
    values: Collection[str] = ()
    retired: Sequence[str] = ()
    follows: Sequence[str] = ()
    followed: Followed = field(default_factory=Followed)


def steps(turns: Sequence[Turn]) -> Iterator[Switching]:
    """The steps of a switch: state first, which no reader sees; then the tables, in the order of a micro-batch's commits; the timelines last.

    Args:
        turns: upstream first.
    """
    for turn in turns:
        yield RestoreState(operator=turn.operator, timeline=turn.timeline, origin=turn.origin)
    for turn in turns:
        yield from _of_tables(turn)
    for turn in turns:
        if turn.follows:
            yield Seek(operator=turn.operator, tables=tuple(turn.follows))
    for turn in turns:
        yield MakeCurrent(operator=turn.operator, timeline=turn.timeline)


def _of_tables(turn: Turn) -> Iterator[Switching]:
    if turn.followed.revises:
        yield NoteRevision(operator=turn.operator, tables=turn.followed.revises)
    for table in turn.retired:
        yield Empty(operator=turn.operator, table=table)
    for table, origin in reversed(list(turn.tables.items())):  # the main output last, its last values before it
        if table in turn.values:
            yield RestoreValues(operator=turn.operator, table=f"{table}__current")
        if readers := turn.followed.readers.get(table):
            yield AppendDifference(operator=turn.operator, table=table, readers=readers)
        yield RestoreTable(operator=turn.operator, table=table, origin=origin)
