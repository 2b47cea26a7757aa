"""Switches: streams that go on from other states than their own, with the tables that belong to these, all of them or none.

A switch is written down before it begins. Whoever comes after a crash does it again from its start: every part of it can be done twice.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field

from pydantic import TypeAdapter

from floodmark.lifecycle.cutover import Cut
from floodmark.lifecycle.savepoint import Manifest, TableVersion
from floodmark.lifecycle.steps import Empty, MakeCurrent, RestoreState, RestoreTable, RestoreValues, Seek, Switching


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """What one stream becomes.

    Args:
        operator: its name.
        savepoint: id of the savepoint it goes on from.
        version: of the operator, in the savepoint.
        timeline: the new one.
        ends: the one it was on, which can write nothing any more.
        batch: last micro-batch that is part of it.
        watermark: progress of its outputs then, ms UTC.
        tables: its outputs, with the versions they go back to.
        source: root of a lake whose tables of the same names they become instead; empty for none.
        moves: place of an input -> the table of this switch it reads.
        cut: which results stay as they are, where those of ``source`` come instead; None for none.
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
    cut: Cut | None = None

    @staticmethod
    def onto(state: Manifest, *, timeline: int, ends: int, source: str, cut: Cut | None = None) -> Target:
        """Of a stream that goes on from a savepoint which was made in another lake.

        Args:
            state: what the savepoint holds.
            timeline: see the class.
            ends: see the class.
            source: see the class.
            cut: see the class.
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
            cut=cut,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Switch:
    """All of it.

    Args:
        again: the command that does it, for whoever has to finish it.
        targets: one per stream, upstream first.
        back: id of the savepoint that was made before it, to go back to; empty for none.
    """

    again: str
    targets: tuple[Target, ...]
    back: str = ""

    @property
    def operators(self) -> tuple[str, ...]:
        """Names, upstream first."""
        return tuple(target.operator for target in self.targets)

    def as_json(self) -> str:
        """For the journal."""
        return json.dumps(asdict(self))

    @staticmethod
    def parse(text: bytes) -> Switch:
        """From the journal; earlier versions called targets steps."""
        found = json.loads(text)
        if "steps" in found:
            found["targets"] = found.pop("steps")
        return TypeAdapter(Switch).validate_python(found)


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """A stream in a switch.

    Args:
        operator: its name.
        timeline: the new one.
        origin: what state and tables come from, in words.
        tables: name of each output -> where its rows come from, in words; the main one first.
        values: those whose last values are kept.
        retired: tables that it writes no more.
        follows: tables of the switch that it reads.
    """

    operator: str
    timeline: int
    origin: str
    tables: Mapping[str, str]
    values: Collection[str] = ()
    retired: Sequence[str] = ()
    follows: Sequence[str] = ()


def steps(turns: Sequence[Turn]) -> Iterator[Switching]:
    """The steps of a switch: state first, of which nobody knows; then the tables, as a micro-batch commits them; and last which timeline counts.

    Args:
        turns: upstream first.
    """
    for turn in turns:
        yield RestoreState(operator=turn.operator, timeline=turn.timeline, origin=turn.origin)
    for turn in turns:
        for table in turn.retired:
            yield Empty(operator=turn.operator, table=table)
        for table, origin in reversed(list(turn.tables.items())):  # the main output last, its last values before it
            if table in turn.values:
                yield RestoreValues(operator=turn.operator, table=f"{table}__current")
            yield RestoreTable(operator=turn.operator, table=table, origin=origin)
    for turn in turns:
        if turn.follows:
            yield Seek(operator=turn.operator, tables=tuple(turn.follows))
    for turn in turns:
        yield MakeCurrent(operator=turn.operator, timeline=turn.timeline)
