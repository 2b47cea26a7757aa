"""Some rows of an operator's inputs, with their stamps, in order of arrival."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from deltalake import DeltaTable

from floodmark.core.time import END, NEVER, Interval, from_ms
from floodmark.lake.folder.paths import Lake
from floodmark.lake.results.needs import input_versions, reads
from floodmark.spec.graph.operator import Operator
from floodmark.spec.values.schema import MARKER


def sample(operator: Operator, lake: Lake, interval: Interval, limit: int) -> list[tuple[str, dict[str, Any]]]:
    """(name of an input, row) for input rows that decide the results of an interval, in order of arrival. Of a process function: rows of the interval.

    Rows have the input's columns, and ``_event_time`` in ms, ``_watermark``, ``_sequence`` and ``_kind``. Rows with one sequence (a retraction
    and its replacement) are adjacent.

    Args:
        operator: the operator that reads the inputs.
        lake: the lake of the inputs.
        interval: event time of the results.
        limit: most rows of each input, the first to arrive.

    Raises:
        ExecutionError: EXECUTION-002, an input has no table.
    """
    versions, needed = input_versions(operator, lake), interval if operator.reads_history else reads(operator, interval)
    sampled_rows: list[tuple[str, dict[str, Any]]] = []
    for input_ in operator.inputs:
        table = DeltaTable(lake.input(input_), version=versions[input_.table]).to_pyarrow_dataset()
        wanted = ds.field("_kind") != MARKER
        if needed.start > NEVER:
            wanted &= ds.field("_event_time") >= pa.scalar(from_ms(needed.start), pa.timestamp("us", "UTC"))
        if needed.end <= END:
            wanted &= ds.field("_event_time") < pa.scalar(from_ms(needed.end), pa.timestamp("us", "UTC"))
        stamps = ["_event_time", "_watermark", "_sequence", "_kind"]
        rows = table.to_table(columns=[*input_.schema.names, *stamps], filter=wanted)
        order = pc.select_k_unstable(
            rows, min(limit, rows.num_rows), [("_sequence", "ascending"), ("_kind", "ascending")]
        )
        rows = rows.take(order)
        times = np.floor_divide(rows["_event_time"].cast(pa.timestamp("us", "UTC")).cast(pa.int64()).to_numpy(), 1000)
        rows = rows.set_column(rows.column_names.index("_event_time"), "_event_time", pa.array(times))
        sampled_rows += [(input_.name, row) for row in rows.to_pylist()]
    return sampled_rows
