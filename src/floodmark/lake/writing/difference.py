"""The difference between two contents of an output, as one commit that readers of the commits follow: retractions of rows that go, and rows that come.

DuckDB computes the difference from the files of both tables, and spills to a folder beside a local table: neither of them needs to fit into memory. Rows
that both have, as often in one as in the other, are in it neither as retractions nor as rows. No JVM is needed.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable, Transaction
from deltalake.transaction import AddAction

from floodmark.core import crash
from floodmark.core.sql import quoted
from floodmark.core.time import iso
from floodmark.lake.table.commits import MicroBatch
from floodmark.lake.writing import derived
from floodmark.lake.writing.graft import linked
from floodmark.lake.writing.writer import Writer
from floodmark.spec.values.schema import MARKER, RETRACTION, ROW, SEQUENCES, STAMPS

ROOM = SEQUENCES - 1
"""Most rows of a difference, retractions included: one commit numbers no more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """The difference that turns what readers have read of a table into the contents of another one.

    Args:
        standing: (path, version) of the table that is read.
        coming: (path, version) of the table whose contents replace the rows of the first.
        first: ``_sequence`` of the first row.
        keys: columns that identify a result: its retraction stands before the row that replaces it.
        reached: progress up to which readers have read, ms; the ``_watermark`` and ``_progress`` of all rows.
        progress: progress after the difference, ms.
        now: ingestion time, ms UTC.
    """

    standing: tuple[str, int]
    coming: tuple[str, int]
    first: int
    keys: Sequence[str]
    reached: int
    progress: int
    now: int

    def write(self, target: str) -> int:
        """Write the difference into a new table, with a marker for the progress after it. Replaces an existing table at ``target``.

        Returns:
            The number of rows, retractions included.
        """
        old, new = (DeltaTable(path, version=version) for path, version in (self.standing, self.coming))
        rows = {"standing": old.to_pyarrow_dataset(), "coming": new.to_pyarrow_dataset()}
        derived.write(target, old, rows, self._query(rows["standing"].schema))
        return written(target)

    def _query(self, schema: pa.Schema) -> str:
        """SQL with the columns of the table. Rows of bounded runs, which have no progress, are read by no reader of the commits."""
        names = [name for name in schema.names if name not in STAMPS or name == "_event_time"]
        columns, keys = (", ".join(map(quoted, some)) for some in (names, self.keys))
        first = f"min(_event_time) OVER (PARTITION BY {keys})" if keys else "_event_time"
        order = ", ".join(filter(None, ("_first", keys, "_kind", "_event_time")))
        counted = (
            f"SELECT {columns}, CASE WHEN _kind = {ROW} THEN -1 ELSE 1 END AS _n FROM standing WHERE _kind <> {MARKER} AND _progress IS NOT NULL "
            f"UNION ALL SELECT {columns}, CASE WHEN _kind = {ROW} THEN 1 ELSE -1 END FROM coming WHERE _kind <> {MARKER}"
        )
        summed = f"SELECT {columns}, sum(_n) AS _n FROM ({counted}) GROUP BY ALL HAVING sum(_n) <> 0"
        kind = f"CASE WHEN _n < 0 THEN {RETRACTION} ELSE {ROW} END AS _kind"
        kinds = f"SELECT {columns}, _n, {kind}, {first} AS _first FROM ({summed})"
        copies = f"SELECT *, unnest(range(abs(_n)::BIGINT)) FROM ({kinds})"
        stamps = {
            "_watermark": f"{self.reached}",
            "_progress": f"{self.reached}",
            "_ingest_time": f"TIMESTAMPTZ '{iso(self.now)}'",
            "_sequence": f"{self.first} - 1 + row_number() OVER (ORDER BY {order})",
        }
        mark = {"_watermark": f"{self.progress}", "_progress": f"{self.progress}", "_kind": f"{MARKER}"}
        mark |= {"_ingest_time": stamps["_ingest_time"]}
        rows, marker = (
            ", ".join(f"{values.get(name, other(name))} AS {quoted(name)}" for name in schema.names)
            for values, other in ((stamps, quoted), (mark, lambda _: "NULL"))
        )
        return f"(SELECT {rows} FROM ({copies})) UNION ALL (SELECT {marker}) ORDER BY _sequence NULLS LAST"


def holds_bounded_runs(table: DeltaTable) -> bool:
    """True if a table holds rows without progress, which bounded runs have written."""
    actions = pa.table(table.get_add_actions(flatten=True))
    name = "null_count._progress"
    unknown = name not in actions.column_names or actions[name].null_count
    if unknown:
        return bool(table.to_pyarrow_dataset().count_rows(filter=pc.field("_progress").is_null()))
    return bool(pc.any(pc.greater(actions[name], 0)).as_py())


def written(scratch: str) -> int:
    """The number of rows of a difference in a table that ``Difference.write`` has written."""
    return int(DeltaTable(scratch).to_pyarrow_dataset().count_rows()) - 1


def append(
    scratch: str, standing: tuple[str, int], app: str, record: MicroBatch, fences: Sequence[Transaction]
) -> None:
    """Append a difference to a table, in one commit.

    Args:
        scratch: table that ``Difference.write`` has written.
        standing: (path, version) of the table that readers read, as the difference was computed for.
        app: application id of the transaction.
        record: record of the commit.
        fences: fences to include in the commit.

    Raises:
        LifecycleError: LIFECYCLE-004, another writer has committed to the table since that version.
    """
    path, version = standing
    crash.point("difference.before_files")
    files = sorted(linked(scratch, DeltaTable(scratch), path), key=_last_sequence)
    crash.point("difference.before_commit")
    Writer(path).extend(version, files, record, (app, 1), fences)
    crash.point("difference.after_commit")


def rows_that_come(scratch: str) -> int:
    """The number of rows of a difference without retractions."""
    return int(DeltaTable(scratch).to_pyarrow_dataset().count_rows(filter=pc.equal(pc.field("_kind"), ROW)))


def _last_sequence(file: AddAction) -> int:
    """The last ``_sequence`` of a file; more than any for a file with the marker alone."""
    return int(json.loads(file.stats or "{}").get("maxValues", {}).get("_sequence", 1 << 62))
