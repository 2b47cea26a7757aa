"""Reading results as people mean them, without a JVM: rows only, final values, no stamps."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable

from floodmark.spec.graph.operator import Output
from floodmark.spec.values.schema import PARTITION, ROW, STAMPS


def read(path: str) -> pa.Table:
    """Everything in a table, stamps included."""
    return DeltaTable(path).to_pyarrow_table()


def commits(path: str) -> int:
    """How many commits a table's log lists; 0 when there is no table."""
    return len(list((Path(path) / "_delta_log").glob("*.json")))


def final(table: pa.Table, output: Output) -> pa.Table:
    """The rows of an output as they stand in the end: for a revisable one the last value of each key."""
    rows = table.filter(pc.equal(table["_kind"], ROW))
    if output.current:
        rows = _last(rows, output.keys)
    return without_stamps(rows)


def without_stamps(table: pa.Table) -> pa.Table:
    """The columns of the schema alone."""
    return table.drop_columns([name for name in (*STAMPS, PARTITION) if name in table.column_names])


def _last(rows: pa.Table, keys: Sequence[str]) -> pa.Table:
    ordered = rows.sort_by("_sequence")
    place = ordered.select(list(keys)).append_column("_place", pa.array(range(ordered.num_rows), pa.int64()))
    last = place.group_by(list(keys)).aggregate([("_place", "max")])["_place_max"]
    return ordered.take(last)
