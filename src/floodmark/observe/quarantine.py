"""The quarantine of an operator: rows and panes for which the operator's functions failed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import duckdb

from floodmark.core.time import NEVER
from floodmark.lake.folder.paths import Lake
from floodmark.lake.logs import quarantines
from floodmark.lake.table import entries
from floodmark.spec.graph.operator import Operator
from floodmark.spec.values.schema import QUARANTINE, ROW


@dataclass(frozen=True, slots=True, kw_only=True)
class SetAside:
    """Quarantined rows and panes of an operator that have not been computed again.

    Args:
        operator: name of the operator.
        rows: number of quarantined rows and panes.
        by_reason: (step, reason, count), largest count first.
        newest: quarantined rows and panes with the newest event times, newest first: the columns of the quarantine and ``event_time`` in ms.
    """

    operator: str
    rows: int
    by_reason: tuple[tuple[str, str, int], ...]
    newest: tuple[dict[str, Any], ...]


def set_aside(operator: Operator, lake: Lake, *, limit: int) -> SetAside:
    """Read the quarantine of an operator.

    Args:
        operator: the operator; without ``on_error="quarantine"`` its quarantine is empty.
        lake: the lake with the operator's outputs.
        limit: most reasons, and most rows, to return.
    """
    paths = [lake.output(output.table) for output in operator.outputs if output.side == "quarantine"]
    nothing = SetAside(operator=operator.name, rows=0, by_reason=(), newest=())
    if not paths or not entries.is_table(paths[0]):
        return nothing
    (path,), live = paths, f"_kind = {ROW}"
    with duckdb.connect(config={"threads": 1}) as connection:  # several threads take longer to open many small files
        rows = quarantines.relation(connection, path, quarantines.files_of(path))
        connection.execute(
            f"""
            CREATE TABLE waiting AS
            SELECT filename, step, reason, count(*) AS n, coalesce(max(epoch_us(_event_time)), {1000 * NEVER - 1}) AS newest
            FROM {rows} WHERE {live} GROUP BY ALL
            """
        )
        reasons = connection.sql(
            f"SELECT step, reason, sum(n)::BIGINT AS n FROM waiting GROUP BY ALL ORDER BY n DESC, step, reason LIMIT {limit}"
        ).fetchall()
        (count,) = connection.sql("SELECT coalesce(sum(n), 0)::BIGINT FROM waiting").fetchall()[0]
        if not count:
            return nothing
        holders = connection.sql(
            f"""
            WITH newest AS (SELECT newest FROM waiting ORDER BY newest DESC LIMIT {limit})
            SELECT DISTINCT filename FROM waiting WHERE newest >= (SELECT min(newest) FROM newest)
            """
        ).fetchall()
        rows = quarantines.relation(connection, path, [name for (name,) in holders if name])
        names = (*QUARANTINE.names, "event_time")
        newest = connection.sql(
            f"""
            SELECT {", ".join(QUARANTINE.names)}, epoch_ms(_event_time) AS event_time FROM {rows} WHERE {live}
            ORDER BY _event_time DESC, _sequence LIMIT {limit}
            """
        ).fetchall()
    shown = tuple(dict(zip(names, row, strict=True)) for row in newest)
    return SetAside(operator=operator.name, rows=count, by_reason=tuple(reasons), newest=shown)
