"""The last value per key of a changelog at one of its versions, as a table that ``<output>__current`` becomes in one commit. No JVM is needed.

The stream's follower keeps ``<output>__current`` up to date while the changelog grows (``current``). A rollback or a rebuild replaces the
changelog, and ``<output>__current`` with it; a fork begins with both.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from deltalake import DeltaTable

from floodmark.core.sql import quoted
from floodmark.lake import derived, storage
from floodmark.lake.cutover import Part
from floodmark.lake.timeline import Timeline
from floodmark.spec.schema import MARKER, ROW


def query(columns: str, changelog: str, keys: Sequence[str], where: str = "true") -> str:
    """The last values of a changelog, in DuckDB's SQL.

    The last row of a key is the one with the greatest ``_sequence``; a retraction there means that the key has no value.

    Args:
        columns: to select, as SQL.
        changelog: to select from, as SQL.
        keys: columns that identify a result.
        where: which rows of the changelog there are, as SQL.
    """
    partition = ", ".join(map(quoted, keys))
    return (
        f"SELECT {columns} FROM {changelog} WHERE _kind <> {MARKER} AND {where} QUALIFY row_number() OVER "
        f"(PARTITION BY {partition} ORDER BY _sequence DESC NULLS LAST, _kind DESC) = 1 AND _kind = {ROW}"
    )


def write(changelog: str, version: int | None, keys: Sequence[str], target: str, also: Part | None = None) -> None:
    """Write the last values of a changelog into a new table; what is there is replaced.

    Args:
        changelog: path of the table.
        version: of it; None for the newest.
        keys: columns that identify a result.
        target: path of the new table, with the columns, division and properties of the changelog.
        also: files of another table that belong to the changelog.
    """
    source = DeltaTable(changelog, version=version)
    rows = source.to_pyarrow_dataset()
    if also is not None:
        from pyarrow import dataset  # noqa: PLC0415 - with pandas

        rows = dataset.UnionDataset(rows.schema, [rows, also.rows(rows.schema)])
    last = query(", ".join(map(quoted, rows.schema.names)), "changelog", keys)
    derived.write(target, source, {"changelog": rows}, last)


def followed(timeline: Timeline, table: str, first: int) -> None:
    """Write down with which version of a changelog the follower of a timeline begins; the table of last values has all before it."""
    storage.write(_begins(timeline, table), json.dumps({"first": first}).encode())


def follows_from(timeline: Timeline, table: str) -> int | None:
    """The version of a changelog with which the follower of a timeline begins; None where nobody has said so."""
    content = storage.read(_begins(timeline, table))
    return None if content is None else int(json.loads(content)["first"])


def _begins(timeline: Timeline, table: str) -> str:
    return timeline.folder("current", f"{table}.json")
