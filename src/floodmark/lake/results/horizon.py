"""The horizon of results that depend on history: up to where rows that land later leave the results of earlier event time unchanged.

A process function computes an interval from all rows. A row behind the interval that lands later changes nothing in the interval if all
timers of the interval have fired before it, and all late rows of the interval are processed before it. Both are known from progress and stamps.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable

from floodmark.core.time import END, NEVER, Interval, from_ms
from floodmark.lake.folder.paths import Lake
from floodmark.lake.table import history
from floodmark.lake.table.commits import BoundedRun, progress_of
from floodmark.spec.graph.operator import Input, Operator
from floodmark.spec.values.run import LateRows
from floodmark.spec.values.schema import MARKER


def reached(operator: Operator, lake: Lake, versions: Mapping[str, int]) -> int:
    """The least progress of an operator's inputs, before the end of an input that has ended; NEVER if unknown."""
    return min((_reached(lake, input_, versions[input_.table]) for input_ in operator.inputs), default=NEVER)


def _reached(lake: Lake, input_: Input, version: int) -> int:
    """The progress of an input; of an input that bounded runs alone have written, the progress of what the newest of these runs has read."""
    progress = progress_before_end(lake.input(input_), version)
    if progress is not None:
        return progress
    run = _newest_run(lake.input(input_), version)
    if run is None or input_.upstream is None:
        return NEVER
    read = {table: int(at.get("version", -1)) for table, at in run.inputs.items()}
    upstream = input_.upstream.operator.inputs
    return min((_reached(lake, source, read.get(source.table, -1)) for source in upstream), default=NEVER)


def progress_before_end(path: str, version: int) -> int | None:
    """The newest progress in the commits of a table up to a version that is not the end of input, ms; None if no commit has one."""
    for commit in history.standing(path, limit=None):
        progress = progress_of(commit.record)
        if commit.version <= version and progress is not None and NEVER < progress < END:
            return progress
    return None


def _newest_run(path: str, version: int) -> BoundedRun | None:
    runs = history.standing_of(path, BoundedRun, limit=None)
    return next((run for commit, run in runs if commit.version <= version), None)


def horizon(
    operator: Operator, lake: Lake, versions: Mapping[str, int], interval: Interval, late_rows: LateRows
) -> int:
    """The event time, ms, up to which the results of a run do not depend on rows of later event time that have yet to land.

    Args:
        operator: whose step reads history.
        lake: of the inputs.
        versions: input table -> the version that the run reads.
        interval: that the run computes.
        late_rows: as the run treats them.
    """
    progress = reached(operator, lake, versions)
    if operator.order == "arrival":
        recorded = len(operator.inputs) == 1 and operator.inputs[0].upstream is None
        return progress if recorded and late_rows == "as_landed" else NEVER
    for input_ in operator.inputs if late_rows == "as_landed" else ():
        path, version, after = lake.input(input_), versions[input_.table], progress
        if (
            progress_before_end(path, version) is None
        ):  # runs may add rows whose place is before late rows that are there
            after = min(progress, interval.end - 1)
        if holds_late(path, version, before=interval.end, after=after):
            return NEVER
    return progress


def holds_late(path: str, version: int, *, before: int, after: int) -> bool:
    """Whether a table has late rows that are processed, in order of event time, only when progress is greater than ``after``.

    Args:
        path: of the table.
        version: of the table.
        before: event time of the rows, ms, exclusive.
        after: progress, ms.
    """
    wanted: Any = (pc.field("_kind") != MARKER) & (pc.field("_watermark") >= after)
    if before <= END:
        wanted &= pc.field("_event_time") < pa.scalar(from_ms(before), pa.timestamp("us", "UTC"))
    try:
        dataset = DeltaTable(path, version=version).to_pyarrow_dataset()
        rows = dataset.to_table(columns=["_event_time", "_watermark"], filter=wanted)
    except FileNotFoundError:  # vacuumed
        return True
    micros = rows["_event_time"].cast(pa.timestamp("us", "UTC")).cast(pa.int64())
    return bool(pc.any(pc.greater_equal(pc.multiply(rows["_watermark"], 1000), micros)).as_py())
