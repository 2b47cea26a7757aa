"""Processing time is data too: where the clock stood at each micro-batch is recorded, and a bounded run replays it.

A small table per timeline of an operator that waits for processing time, ``ticks``, has a row per micro-batch: the clock before its first row,
the progress in force, and the last sequence of all rows before it.
"""

from __future__ import annotations

import uuid
from dataclasses import astuple, dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable
from deltalake import Schema as TableSchema

from floodmark.core.errors import CapabilityError
from floodmark.core.time import NEVER
from floodmark.lake import marks
from floodmark.lake.checkpointer import Checkpointer
from floodmark.lake.commits import Ticked
from floodmark.lake.files import Written
from floodmark.lake.paths import Lake
from floodmark.lake.storage import sync
from floodmark.lake.timeline import TICKS, Timeline
from floodmark.lake.writer import Writer
from floodmark.semantics.kernel import Tick
from floodmark.spec.operator import Operator

COLUMNS = pa.schema([(name, pa.int64()) for name in ("batch", "clock", "progress", "sequence", "reached")])
"""``sequence``: of the last row before the micro-batch; ``reached``: of its own last row."""


@dataclass(frozen=True, slots=True)
class Recorded:
    """The clock of a micro-batch, as a row of the table behind the number of the micro-batch.

    Args:
        clock: it ran at, ms UTC.
        progress: before its first row, ms.
        sequence: of the last row before it.
        reached: sequence of its own last row.
    """

    clock: int
    progress: int
    sequence: int
    reached: int


def schema() -> TableSchema:
    """The columns of the table."""
    return TableSchema.from_arrow(COLUMNS)


def reached(path: str) -> int:
    """The last sequence that ticks have reached; NEVER where there are none."""
    last = marks.reached(path)
    return NEVER if last is None else last


def record(timeline: Timeline, batch: int, tick: Recorded, checkpointer: Checkpointer | None = None) -> None:
    """Append the row of a micro-batch, once, synced; the table is there."""
    operator, path = timeline.operator, Path(timeline.folder(TICKS))

    def written() -> Written:
        folder = path / uuid.uuid4().hex
        folder.mkdir()
        row = pa.table([[value] for value in (batch, *astuple(tick))], schema=COLUMNS)
        pq.write_table(row, folder / "part-00000.parquet")
        for changed in (folder / "part-00000.parquet", folder, path):
            sync(changed)
        return Written(folder=folder)

    writer = Writer(str(path), checkpointer)
    writer.append(written, Ticked(operator=operator, batch=batch), application(timeline, batch))


def application(timeline: Timeline, batch: int) -> tuple[str, int]:
    """Application id and number of the transaction that records the clock of a micro-batch."""
    return f"{timeline.operator}/ticks", batch


def folder(operator: Operator, lake: Lake) -> str:
    """Where the ticks of an operator's stream are."""
    return Timeline.current(lake, operator.name).folder(TICKS)


def recorded(operator: Operator, lake: Lake) -> list[Tick]:
    """Every tick of the unbounded run, in order; none where there was no such run and no window is of processing time.

    Raises:
        CapabilityError: CAPABILITY-004, its windows are of processing time and there is no record.
    """
    step, path = operator.stateful, folder(operator, lake)
    if step is None or not step.clocked:
        return []
    if DeltaTable.is_deltatable(path):
        rows = DeltaTable(path).to_pyarrow_table().sort_by("batch").to_pylist()
        return [Tick(row["clock"], row["sequence"], row["progress"]) for row in rows]
    if step.time == "processing":
        where = f"bounded run of '{operator.name}', whose windows are of processing time"
        fix = f"Run it unbounded first, which records the clock: floodmark run {operator.name} --unbounded"
        raise CapabilityError(where, f"recorded ticks at {path}", "none", fix, code="CAPABILITY-004")
    return []
