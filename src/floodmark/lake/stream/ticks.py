"""Ticks: records the processing time of each micro-batch, so that a bounded run can replay it.

The table ``ticks`` of a timeline has a row per micro-batch of an operator that uses processing time: the clock before the first row, the progress at
that moment, and the last sequence of all earlier rows.
"""

from __future__ import annotations

from dataclasses import astuple, dataclass

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable
from deltalake import Schema as TableSchema

from floodmark.core.errors import CapabilityError
from floodmark.core.time import NEVER
from floodmark.lake.folder import staging
from floodmark.lake.folder.bucket import is_bucket
from floodmark.lake.folder.paths import Lake
from floodmark.lake.folder.storage import sync
from floodmark.lake.stream import marks
from floodmark.lake.stream.timeline import TICKS, Timeline
from floodmark.lake.table.commits import Ticked
from floodmark.lake.table.files import Written
from floodmark.lake.writing.checkpointer import Checkpointer
from floodmark.lake.writing.writer import Writer
from floodmark.semantics.kernels.kernel import Tick
from floodmark.spec.graph.operator import Operator

COLUMNS = pa.schema([(name, pa.int64()) for name in ("batch", "clock", "progress", "sequence", "reached")])
"""``sequence``: of the last row before the micro-batch; ``reached``: of its own last row."""


@dataclass(frozen=True, slots=True)
class Recorded:
    """The processing time of a micro-batch: a row of ``ticks`` without its first column ``batch``.

    Args:
        clock: processing time of the micro-batch, ms UTC.
        progress: progress before its first row, ms.
        sequence: ``_sequence`` of the last row before the micro-batch.
        reached: ``_sequence`` of its last row.
    """

    clock: int
    progress: int
    sequence: int
    reached: int


def schema() -> TableSchema:
    """Columns of ``ticks``, as a Delta schema."""
    return TableSchema.from_arrow(COLUMNS)


def reached(path: str) -> int:
    """The greatest ``reached`` of a table of ticks; NEVER without ticks."""
    last = marks.reached(path)
    return NEVER if last is None else last


def record(timeline: Timeline, batch: int, tick: Recorded, checkpointer: Checkpointer | None = None) -> None:
    """Append the tick of a micro-batch to the existing table, synced. Does nothing if the tick was recorded before.

    Args:
        timeline: timeline of the stream.
        batch: number of the micro-batch.
        tick: clock, progress and sequences of the micro-batch.
        checkpointer: writes due checkpoints of the table in the background; by default they are written here.

    Raises:
        LifecycleError: LIFECYCLE-004, the commit conflicted with another writer.
    """
    operator, path = timeline.operator, timeline.folder(TICKS)

    def written() -> Written:
        folder = staging.new_folder(path)
        row = pa.table([[value] for value in (batch, *astuple(tick))], schema=COLUMNS)
        pq.write_table(row, folder / "part-00000.parquet")
        files = Written(folder=folder)
        if is_bucket(path):
            return files.send(path)
        for changed in (folder / "part-00000.parquet", folder, folder.parent):
            sync(changed)
        return files

    writer = Writer(path, checkpointer)
    writer.append(written, Ticked(operator=operator, batch=batch), application(timeline, batch))


def application(timeline: Timeline, batch: int) -> tuple[str, int]:
    """(application id, version) of the transaction that records the tick of a micro-batch."""
    return f"{timeline.operator}/ticks", batch


def folder(operator: Operator, lake: Lake) -> str:
    """Path of the table of ticks of an operator's stream."""
    return Timeline.current(lake, operator.name).folder(TICKS)


def recorded(operator: Operator, lake: Lake) -> list[Tick]:
    """All ticks of the operator's unbounded run, in order; empty if the operator uses no processing time, or only optionally and no run recorded any.

    Raises:
        CapabilityError: CAPABILITY-004, the windows are of processing time and no ticks are recorded.
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
