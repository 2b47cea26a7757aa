"""What a table is divided by, as metadata of the column it is divided by: Delta keeps it, and nothing else says it. No JVM."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from deltalake.exceptions import TableNotFoundError

from floodmark.core.errors import PlanError
from floodmark.lake.entries import fields_of
from floodmark.spec import partitions
from floodmark.spec.operator import Operator, Output
from floodmark.spec.partitions import Partitions
from floodmark.spec.schema import PARTITION

_CUT = "floodmark.partitions"


def metadata(cut: Partitions) -> dict[str, str]:
    """Of the column a table is divided by."""
    return {_CUT: cut.cut}


def divided(rows: pa.Table, output: Output) -> pa.Table:
    """Stamped rows with the name of their asset partition, where the output's table is divided by it; null for markers.

    Engines that make rows in Arrow call this; others compute ``Partitions.sql``, which names the same partitions.
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


def _describe_partitions(cut: str | None) -> str:
    return f"asset partitions by {cut}" if cut else "no asset partitions"


def other(path: str, output: Output) -> str | None:
    """What else a table is divided by than its output should be; None where it is as it should be, or not there."""
    try:
        fields = fields_of(path)
    except TableNotFoundError:
        return None
    wanted = _describe_partitions(output.partitions.cut if output.partitions else None)
    actual = _describe_partitions(
        str(fields[PARTITION]["metadata"].get(_CUT, "unknown")) if PARTITION in fields else None
    )
    return None if actual == wanted else actual


def check(path: str, operator: Operator, output: Output) -> None:
    """Refuse to write into asset partitions that are not those of the table: rows of one would be taken for another's.

    Raises:
        PlanError: PLAN-003.
    """
    actual = other(path, output)
    if actual is None:
        return
    fix = (
        f"Compute all of it anew, which divides the table anew: floodmark run {operator.name} --force (without --from and --to); "
        f"where a stream writes it: floodmark run {operator.name} --unbounded --from-scratch."
    )
    expected = _describe_partitions(output.partitions.cut if output.partitions else None)
    raise PlanError(f"table {path}", expected, actual, fix, code="PLAN-003")
