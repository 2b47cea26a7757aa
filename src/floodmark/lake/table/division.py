"""The partitioning of an output table, recorded as metadata of its partition column in Delta. No JVM."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from deltalake.exceptions import TableNotFoundError

from floodmark.core.errors import PlanError
from floodmark.lake.table.entries import fields_of
from floodmark.spec.graph.operator import Operator, Output
from floodmark.spec.values.schema import PARTITION
from floodmark.spec.windowing import partitions
from floodmark.spec.windowing.partitions import Partitions

_CUT = "floodmark.partitions"


def metadata(partitions: Partitions) -> dict[str, str]:
    """Metadata of the partition column."""
    return {_CUT: partitions.boundaries}


def divided(rows: pa.Table, output: Output) -> pa.Table:
    """Add the asset partition column to stamped rows if the output is partitioned; null for markers.

    Engines that produce rows in Arrow call this function; Spark computes ``Partitions.sql``, which gives the same names.
    """
    if output.partitions is None:
        return rows
    instants = rows["_event_time"].cast(pa.int64())
    valid = np.flatnonzero(instants.is_valid().to_numpy())
    moments = pc.drop_null(instants).to_numpy() // 1000
    order = np.argsort(moments, kind="stable")
    keys, start = np.full(rows.num_rows, None, dtype=object), 0
    for name, size in partitions.names(output.partitions, moments[order].tolist()):
        keys[valid[order[start : start + size]]] = name
        start += size
    return rows.append_column(PARTITION, pa.array(keys, pa.string()))


def _describe_partitions(boundaries: str | None) -> str:
    return f"asset partitions by {boundaries}" if boundaries else "no asset partitions"


def other(path: str, output: Output) -> str | None:
    """The table's actual partitioning, in words, if it differs from the output's; None if they match or the table does not exist."""
    try:
        fields = fields_of(path)
    except TableNotFoundError:
        return None
    wanted = _describe_partitions(output.partitions.boundaries if output.partitions else None)
    actual = _describe_partitions(
        str(fields[PARTITION]["metadata"].get(_CUT, "unknown")) if PARTITION in fields else None
    )
    return None if actual == wanted else actual


def check(path: str, operator: Operator, output: Output) -> None:
    """Check that a table is partitioned as its output declares. Otherwise rows would land in wrong partitions.

    Raises:
        PlanError: PLAN-003, the partitioning differs.
    """
    actual = other(path, output)
    if actual is None:
        return
    fix = (
        f"Compute all of it anew, which divides the table anew: floodmark run {operator.name} --force (without --from and --to); "
        f"where a stream writes it: floodmark run {operator.name} --unbounded --from-scratch."
    )
    expected = _describe_partitions(output.partitions.boundaries if output.partitions else None)
    raise PlanError(f"table {path}", expected, actual, fix, code="PLAN-003")
