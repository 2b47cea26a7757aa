"""The clock that an unbounded run has recorded, as a bounded run reads it to do the same."""

from __future__ import annotations

from deltalake import DeltaTable

from floodmark.core.errors import CapabilityError
from floodmark.lake.paths import Lake
from floodmark.lake.timeline import TICKS, Timeline
from floodmark.semantics.kernel import Tick
from floodmark.spec.operator import Operator


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
