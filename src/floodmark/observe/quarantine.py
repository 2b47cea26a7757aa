"""What the functions of an operator failed for: the quarantine beside its outputs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import duckdb
from deltalake import DeltaTable

from floodmark.lake.paths import Lake
from floodmark.spec.operator import Operator
from floodmark.spec.schema import QUARANTINE, ROW


@dataclass(frozen=True, slots=True, kw_only=True)
class SetAside:
    """Rows and panes that were set aside and not computed again since.

    Args:
        operator: its name.
        rows: all of them.
        by_reason: (step, reason, count), most first.
        newest: some of them by event time, the newest first: the columns of the quarantine and ``event_time``.
    """

    operator: str
    rows: int
    by_reason: tuple[tuple[str, str, int], ...]
    newest: tuple[dict[str, Any], ...]


def set_aside(operator: Operator, lake: Lake, *, limit: int) -> SetAside:
    """What is in the quarantine of an operator.

    Args:
        operator: any; one without ``on_error="quarantine"`` has an empty one.
        lake: its outputs are in.
        limit: reasons, and rows, at most.
    """
    found = [lake.output(output.table) for output in operator.outputs if output.side == "quarantine"]
    if not found or not DeltaTable.is_deltatable(found[0]):
        return SetAside(operator=operator.name, rows=0, by_reason=(), newest=())
    table = DeltaTable(found[0]).to_pyarrow_dataset()
    with duckdb.connect() as connection:
        rows = connection.register("quarantine", table).table("quarantine").filter(f"_kind = {ROW}")
        (count,) = rows.aggregate("count(*)").fetchall()[0]
        reasons = rows.aggregate("step, reason, count(*) AS n", "step, reason").order("n DESC, step, reason")
        newest = rows.order("_event_time DESC, _sequence").limit(limit)
        names = (*QUARANTINE.names, "event_time")
        newest = newest.project(", ".join([*QUARANTINE.names, "epoch_ms(_event_time) AS event_time"]))
        return SetAside(
            operator=operator.name,
            rows=count,
            by_reason=tuple(reasons.limit(limit).fetchall()),
            newest=tuple(dict(zip(names, row, strict=True)) for row in newest.fetchall()),
        )
