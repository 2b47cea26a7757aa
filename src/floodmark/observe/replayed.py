"""How much event time a run has gone through, beside the time that it took: the speed of a replay against live."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable

from floodmark.core.time import NEVER, Interval, describe_roughly
from floodmark.lake.folder.paths import Lake
from floodmark.lake.table.entries import is_table
from floodmark.lake.table.history import progress
from floodmark.spec.graph.operator import Operator

WORTH = 86_400_000
"""Event time from which on a run counts as a replay, ms: a day."""


@dataclass(frozen=True, slots=True)
class Replayed:
    """What a run has gone through.

    Args:
        event_time: between the first and the last moment of the rows that it read, ms.
        seconds: of the run.
    """

    event_time: int
    seconds: float

    @property
    def times_live(self) -> float:
        """Event time per time: 1 is as fast as rows come live."""
        return self.event_time / 1000 / self.seconds

    def __str__(self) -> str:
        """For people."""
        return f"replayed {describe_roughly(self.event_time / 1000)} of event time, {self.times_live:,.0f} times as fast as live"


@dataclass(frozen=True, slots=True)
class Beginning:
    """Where a run of an operator begins.

    Args:
        operator: that runs.
        lake: in which it runs.
        progress: of its outputs before the run, ms; NEVER if there is none.
        interval: of event time that a bounded run computes.
    """

    operator: Operator
    lake: Lake
    progress: int
    interval: Interval

    @staticmethod
    def of_stream(operator: Operator, lake: Lake, *, from_scratch: bool = False) -> Beginning:
        """The beginning of an unbounded run."""
        path = lake.output(operator.outputs[0].table)
        known = progress(path) if not from_scratch and is_table(path) else None
        return Beginning(operator, lake, NEVER if known is None else known, Interval())

    def replayed(self, watermark: int, seconds: float) -> Replayed | None:
        """What the run has gone through; None if that is less than a day, or is not known.

        Args:
            watermark: progress the outputs reached, ms.
            seconds: wall clock of the run.
        """
        first, last = max(self.progress, self.interval.start), min(watermark, self.interval.end)
        if seconds <= 0 or last - first < WORTH:  # whatever the inputs hold, of which all files are looked at
            return None
        times = [span for one in self.operator.inputs if (span := _event_times(self.lake.input(one))) is not None]
        if not times:
            return None
        first, last = max(first, min(low for low, _ in times)), min(last, max(high for _, high in times))
        return Replayed(last - first, seconds) if last - first >= WORTH else None


def _event_times(path: str) -> tuple[int, int] | None:
    """The smallest and the greatest event time of the rows of a table, ms, by the statistics of its files; None if they do not say it."""
    if not is_table(path):
        return None
    actions = pa.table(DeltaTable(path).get_add_actions(flatten=True))
    if "min._event_time" not in actions.column_names:
        return None
    low, high = pc.min(actions["min._event_time"]).as_py(), pc.max(actions["max._event_time"]).as_py()
    return None if low is None or high is None else (int(low.timestamp() * 1000), int(high.timestamp() * 1000))
