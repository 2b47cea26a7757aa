"""Merge of each micro-batch into the table of last values, ``<output>__current``. A repeated merge changes nothing."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable

from floodmark.lake.folder.bucket import is_bucket
from floodmark.lake.folder.paths import Lake
from floodmark.lake.stream.timeline import Timeline
from floodmark.lake.table.outputs import check_there
from floodmark.lake.writing import copies, merging
from floodmark.spec.graph.operator import Operator, Output
from floodmark.spec.values.schema import MARKER


def latest(rows: pa.Table, output: Output) -> pa.Table:
    """The last row of each key; a retraction if the key has no value at the end."""
    values = rows.filter(pc.not_equal(rows["_kind"], MARKER))
    values = values.sort_by([("_sequence", "ascending"), ("_kind", "ascending")])
    order = pa.array(range(values.num_rows), pa.int64())
    last = values.append_column("_last", order).group_by(list(output.keys)).aggregate([("_last", "max")])["_last_max"]
    return values.take(last)


def app_of(timeline: Timeline, output: Output) -> str:
    """Application id of the transactions that merge an output into its table of last values."""
    return timeline.app(f"current/{output.table}")


def merge(
    operator: Operator,
    lake: Lake,
    output: Output,
    current: Output,
    rows: pa.Table,
    opened: dict[str, DeltaTable],
    once: tuple[str, int],
) -> None:
    """Merge the last values of rows of an output into its table of last values.

    Args:
        operator: of the output.
        lake: of the tables.
        output: whose rows these are.
        current: its table of last values.
        rows: of a micro-batch.
        opened: path -> table that an earlier call has opened in a bucket, where to open a table takes requests for all of its log.
        once: (application id, number) of the micro-batch: what is merged into a multiset is not merged again.
    """
    values = latest(rows, output) if output.keys else rows.filter(pc.not_equal(rows["_kind"], MARKER))
    if not values.num_rows:
        return
    path = lake.output(current.table)
    fix = f"Run it again: floodmark run {operator.name} --unbounded"
    if not is_bucket(path):  # where each look is a request
        check_there(path, f"current table of '{output.table}'", fix)
    if output.keys:
        merging.merge(path, values, output.keys, opened)
    else:
        copies.merge(path, values, output.schema.names, once, opened)
