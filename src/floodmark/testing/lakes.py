"""A lake with hand-written logs in Delta tables, and the content of an operator's output tables. No engine."""

from __future__ import annotations

import shutil
import time
from abc import ABC, abstractmethod
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable, write_deltalake

from floodmark.core.time import Interval
from floodmark.lake.folder.paths import Lake
from floodmark.lake.stream import ticks
from floodmark.lake.table.ranges import unmeasured
from floodmark.spec.graph.operator import Operator
from floodmark.spec.values.run import LateRows, RunResult
from floodmark.spec.values.schema import TICK
from floodmark.testing.log import Log


def append(path: str, table: pa.Table) -> None:
    """Append stamped rows, as runs in memory read them, to a log or an output, in one commit."""
    rows = as_written(table)
    write_deltalake(path, rows, mode="append", writer_properties=unmeasured(rows.schema))


def as_written(table: pa.Table) -> pa.Table:
    """Stamped rows, as runs in memory read them, with the columns of a log or an output."""
    moments = pc.multiply(table["_event_time"], 1000).cast(pa.timestamp("us", "UTC"))
    table = table.set_column(table.column_names.index("_event_time"), "_event_time", moments)
    now = pa.scalar(time.time_ns() // 1000, pa.int64()).cast(pa.timestamp("us", "UTC"))
    return table.append_column("_ingest_time", pa.repeat(now, table.num_rows))


def land(
    lake: Lake, operator: Operator, log: Log, start: int = 0, stop: int | None = None, *, name: str | None = None
) -> None:
    """Append entries of a log to an input's table, by default the first's, in one commit; ticks are left out."""
    table = log.table(start, stop)
    table = table.filter(pc.not_equal(table["_kind"], TICK))
    if not table.num_rows and start:
        return
    input_ = next(i for i in operator.inputs if name in {None, i.name})
    append(lake.input(input_), table)


def outputs(lake: Lake, operator: Operator) -> dict[str, pa.Table]:
    """Output name -> its whole table, sorted by sequence."""
    tables = {}
    for output in operator.outputs:
        path = lake.output(output.table)
        if DeltaTable.is_deltatable(path):
            rows = DeltaTable(path).to_pyarrow_table()
            tables[output.name] = rows.sort_by([("_sequence", "ascending"), ("_kind", "ascending")])
    return tables


class LakeCase(ABC):
    """One operator with a lake of its own.

    Args:
        operator: reads logs only.
        folder: of the lake, empty.
    """

    def __init__(self, operator: Operator, folder: str) -> None:
        self.operator, self.folder = operator, folder
        self.lake = Lake(folder)

    def land(self, log: Log, start: int = 0, stop: int | None = None, *, name: str | None = None) -> None:
        """Append entries of a log to an input's table, by default the first's, in one commit; ticks are left out."""
        land(self.lake, self.operator, log, start, stop, name=name)

    def replay(self, other: LakeCase) -> None:
        """Copy the ticks that another run has recorded, if there are any."""
        recorded = Path(ticks.folder(other.operator, other.lake))
        if recorded.exists():
            shutil.copytree(recorded, ticks.folder(self.operator, self.lake))

    @abstractmethod
    def run_unbounded(self, clock: int | None = None, files_per_batch: int | None = None) -> RunResult:
        """Run unbounded until the stream has caught up.

        Args:
            clock: processing time to run at, ms; the machine's by default.
            files_per_batch: most commits of an input that one micro-batch reads.
        """

    @abstractmethod
    def run_bounded(self, interval: Interval | None = None, late_rows: LateRows = "as_landed") -> RunResult:
        """Run bounded over an interval, by default all of time; late rows as the stream took them, or all on time."""

    def outputs(self) -> dict[str, pa.Table]:
        """Output name -> its whole table, sorted by sequence."""
        return outputs(self.lake, self.operator)
