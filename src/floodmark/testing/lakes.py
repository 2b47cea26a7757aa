"""A lake with logs written by hand as Delta tables, and what an operator's tables in it hold; no engine."""

from __future__ import annotations

import time

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable, write_deltalake

from floodmark.lake.paths import Lake
from floodmark.spec.operator import Operator
from floodmark.spec.schema import TICK
from floodmark.testing.log import Log


def append(path: str, table: pa.Table) -> None:
    """Append stamped rows, as the local engine reads them, to a log or an output, in one commit."""
    moments = pc.multiply(table["_event_time"], 1000).cast(pa.timestamp("us", "UTC"))
    table = table.set_column(table.column_names.index("_event_time"), "_event_time", moments)
    now = pa.scalar(time.time_ns() // 1000, pa.int64()).cast(pa.timestamp("us", "UTC"))
    table = table.append_column("_ingest_time", pa.repeat(now, table.num_rows))
    write_deltalake(path, table, mode="append")


def land(
    lake: Lake, operator: Operator, log: Log, start: int = 0, stop: int | None = None, *, name: str | None = None
) -> None:
    """Append entries of a log to an input's table, by default the first's, in one commit; ticks are no rows there."""
    table = log.table(start, stop)
    table = table.filter(pc.not_equal(table["_kind"], TICK))
    if not table.num_rows and start:
        return
    given = next(i for i in operator.inputs if name in {None, i.name})
    append(lake.input(given), table)


def outputs(lake: Lake, operator: Operator) -> dict[str, pa.Table]:
    """Output name -> its table as it is, in order."""
    found = {}
    for output in operator.outputs:
        path = lake.output(output.table)
        if DeltaTable.is_deltatable(path):
            rows = DeltaTable(path).to_pyarrow_table()
            found[output.name] = rows.sort_by([("_sequence", "ascending"), ("_kind", "ascending")])
    return found
