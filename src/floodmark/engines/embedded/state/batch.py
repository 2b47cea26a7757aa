"""The record of a micro-batch of the embedded engine, in the header of its file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from floodmark.core.time import NEVER
from floodmark.engines.embedded.state import files, segment
from floodmark.lake.stream.checkpoint import Position
from floodmark.lake.stream.ticks import Recorded


@dataclass(frozen=True, slots=True, kw_only=True)
class Owed:
    """Files of a micro-batch that have still to be committed to a table.

    Args:
        table: name of the table.
        app: application id of the transaction; the number of the micro-batch is its version.
        folder: of the files, in the table's folder; empty if there are none.
        partition_by: the table's partition columns.
        record: of the commit, encoded.
        files: paths of the files in the folder, for a table in a bucket.
    """

    table: str
    app: str
    folder: str
    partition_by: tuple[str, ...]
    record: str
    files: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """A micro-batch.

    Args:
        number: from 0 on.
        progress: of the outputs after the micro-batch, ms.
        reached: input name -> progress of the input, ms.
        clock: processing time, ms.
        positions: in each input, in the order in which inputs are read.
        owed: commits to tables, in their order.
        segments: files of state beside the micro-batch's own file, older first.
        next_merge: number of the next merged file.
        tick: recorded clock; None for an operator that does not wait for processing time.
        behind: input name -> last ``_sequence`` that was read before the stream changed to reading the input's files in their order.
        digests: file of ``segments`` -> (SHA-256, bytes), for a checkpoint in a bucket.
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
    digests: dict[str, tuple[str, int]] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        """The record as plain values for JSON."""
        fields = {"format": 1, **asdict(self), "positions": [list(one) for one in self.positions]}
        if not self.digests:
            fields.pop("digests")
        return fields

    @staticmethod
    def from_json(value: dict[str, Any]) -> Batch:
        """The record from the values of ``as_json``."""
        fields = {name: value[name] for name in ("number", "progress", "reached", "clock", "next_merge")}
        owed = tuple(
            Owed(**one | {"partition_by": tuple(one["partition_by"]), "files": tuple(one.get("files", ()))})
            for one in value["owed"]
        )
        positions = tuple(Position(*one) for one in value["positions"])
        tick = Recorded(**value["tick"]) if value.get("tick") else None
        fields["segments"], fields["behind"] = tuple(value["segments"]), value.get("behind", {})
        fields["digests"] = {file: (digest, size) for file, (digest, size) in value.get("digests", {}).items()}
        return Batch(**fields, owed=owed, positions=positions, tick=tick)


def rewritten(checkpoint: str, batch: int, positions: Mapping[int, Position]) -> None:
    """Replace the positions of some inputs, by number, in a micro-batch. No stream may run on the checkpoint."""
    with files.working(checkpoint, [file_of(batch)]) as folder:
        old = segment.read(folder, file_of(batch))
        recorded = Batch.from_json(old.header)
        moved = tuple(positions.get(number, place) for number, place in enumerate(recorded.positions))
        segment.copy(folder, file_of(batch), replace(recorded, positions=moved).as_json(), [old], old.format)
        files.replace(checkpoint, folder, file_of(batch))


def progress_of(batch: Batch | None) -> int:
    """Progress after a micro-batch, ms; NEVER before the first micro-batch."""
    return NEVER if batch is None else batch.progress


def file_of(batch: int) -> str:
    """The file of a micro-batch, relative to the checkpoint."""
    return f"batches/{batch}"
