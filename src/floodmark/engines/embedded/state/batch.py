"""What a micro-batch of the embedded engine says of itself, in the header of its file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from floodmark.core.time import NEVER
from floodmark.engines.embedded.state import segment
from floodmark.lake.checkpoint import Position
from floodmark.lake.ticks import Recorded


@dataclass(frozen=True, slots=True, kw_only=True)
class Owed:
    """Files a micro-batch owes to a table.

    Args:
        table: its name.
        app: application id of the transaction; the number of the micro-batch is its version.
        folder: of the files, in the table's; empty for none.
        partition_by: the table's partition columns.
        record: of the commit, encoded.
    """

    table: str
    app: str
    folder: str
    partition_by: tuple[str, ...]
    record: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """What a micro-batch says of itself.

    Args:
        number: from 0 on.
        progress: of the outputs once it is done, ms.
        reached: of each input, by name, ms.
        clock: processing time, ms.
        positions: in each input, in the order they are read.
        owed: to tables, in the order they are committed.
        segments: files its state lies in behind its own, older first.
        next_merge: number of the next file that holds several others.
        tick: where the clock stood; None for an operator that does not wait for it.
        behind: input -> the last ``_sequence`` that was read before its files are read in their order.
    """

    number: int
    progress: int
    reached: dict[str, int]
    clock: int
    positions: tuple[Position, ...]
    owed: tuple[Owed, ...]
    segments: tuple[str, ...]
    next_merge: int = 0
    tick: Recorded | None = None
    behind: dict[str, int] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        """Plain values."""
        return {"format": 1, **asdict(self), "positions": [list(one) for one in self.positions]}

    @staticmethod
    def from_json(value: dict[str, Any]) -> Batch:
        """From what ``as_json`` gives."""
        fields = {name: value[name] for name in ("number", "progress", "reached", "clock", "next_merge")}
        owed = tuple(Owed(**one | {"partition_by": tuple(one["partition_by"])}) for one in value["owed"])
        positions = tuple(Position(*one) for one in value["positions"])
        tick = Recorded(**value["tick"]) if value.get("tick") else None
        fields["segments"], fields["behind"] = tuple(value["segments"]), value.get("behind", {})
        return Batch(**fields, owed=owed, positions=positions, tick=tick)


def rewritten(checkpoint: str, batch: int, positions: Mapping[int, Position]) -> None:
    """Let inputs, by their number, go on somewhere else behind a micro-batch; for a checkpoint no stream runs on."""
    old = segment.read(checkpoint, file_of(batch))
    recorded = Batch.from_json(old.header)
    moved = tuple(positions.get(number, place) for number, place in enumerate(recorded.positions))
    segment.copy(checkpoint, file_of(batch), replace(recorded, positions=moved).as_json(), [old])


def progress_of(batch: Batch | None) -> int:
    """Progress behind a micro-batch, ms; NEVER before the first."""
    return NEVER if batch is None else batch.progress


def file_of(batch: int) -> str:
    """The file of a micro-batch, relative to the checkpoint."""
    return f"batches/{batch}"
