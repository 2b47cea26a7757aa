"""Switches: streams that go on from other states than their own, with the tables that belong to these, all of them or none.

A switch is written down before it begins. Whoever comes after a crash does it again from its start: every part of it can be done twice.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field

from pydantic import TypeAdapter

from floodmark.lifecycle.savepoint import Manifest, TableVersion


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One stream that switches.

    Args:
        operator: its name.
        savepoint: id of the savepoint it goes on from.
        version: of the operator, in the savepoint.
        timeline: the new one.
        ends: the one it was on, which can write nothing any more.
        batch: last micro-batch that is part of it.
        watermark: progress of its outputs then, ms UTC.
        inputs: how many it has.
        tables: its outputs, with the versions they go back to.
        source: root of a lake whose tables of the same names they become instead; empty for none.
        moves: place of an input -> the table of this switch it reads.
    """

    operator: str
    savepoint: str
    version: str
    timeline: int
    ends: int
    batch: int
    watermark: int
    inputs: int
    tables: tuple[TableVersion, ...]
    source: str = ""
    moves: Mapping[int, str] = field(default_factory=dict)

    @staticmethod
    def onto(state: Manifest, *, timeline: int, ends: int, source: str) -> Step:
        """The step of a stream that goes on from a savepoint which was made in another lake.

        Args:
            state: what the savepoint holds.
            timeline: see the class.
            ends: see the class.
            source: see the class.
        """
        return Step(
            operator=state.operator,
            savepoint=state.id,
            version=state.version,
            timeline=timeline,
            ends=ends,
            batch=state.batch,
            watermark=state.watermark,
            inputs=len(state.inputs),
            tables=state.outputs,
            source=source,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Switch:
    """All of it.

    Args:
        again: the command that does it, for whoever has to finish it.
        steps: one per stream, upstream first.
        back: id of the savepoint that was made before it, to go back to; empty for none.
    """

    again: str
    steps: tuple[Step, ...]
    back: str = ""

    @property
    def operators(self) -> tuple[str, ...]:
        """Names, upstream first."""
        return tuple(step.operator for step in self.steps)

    def as_json(self) -> str:
        """For the journal."""
        return json.dumps(asdict(self))

    @staticmethod
    def parse(text: bytes) -> Switch:
        """From the journal."""
        return TypeAdapter(Switch).validate_json(text)
