"""The last value per key of a changelog, or its rows that are not retracted, at a version, written as a table that replaces ``<output>__current`` in one commit. No JVM is needed.

The stream's follower keeps ``<output>__current`` up to date while the changelog grows (``current``). A rollback or a rebuild replaces both the changelog
and ``<output>__current``; a fork starts with both.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from deltalake import DeltaTable

from floodmark.core.sql import quoted
from floodmark.lake.folder import storage
from floodmark.lake.stream.timeline import FOLLOWERS, Timeline
from floodmark.lake.writing import derived
from floodmark.lake.writing.copies import remaining
from floodmark.lake.writing.cutover import Part
from floodmark.spec.values.schema import MARKER, PARTITION, ROW, STAMPS


def query(columns: str, changelog: str, keys: Sequence[str], where: str = "true") -> str:
    """DuckDB SQL that selects the last values of a changelog.

    The last row of a key has the greatest ``_sequence``. If that row is a retraction, the key has no value.

    Args:
        columns: columns to select, as SQL.
        changelog: relation to select from, as SQL.
        keys: columns that identify a result.
        where: condition on the changelog's rows, as SQL; all rows by default.
    """
    partition = ", ".join(map(quoted, keys))
    return (
        f"SELECT {columns} FROM {changelog} WHERE _kind <> {MARKER} AND {where} QUALIFY row_number() OVER "
        f"(PARTITION BY {partition} ORDER BY _sequence DESC NULLS LAST, _kind DESC) = 1 AND _kind = {ROW}"
    )


def write(changelog: str, version: int | None, keys: Sequence[str], target: str, also: Part | None = None) -> None:
    """Write the last values of a changelog into a new table. Replaces an existing table at ``target``.

    Args:
        changelog: path of the changelog's table.
        version: version of the changelog; None for the newest.
        keys: columns that identify a result; none for a multiset of rows.
        target: path of the new table, which gets the columns, partitioning and properties of the changelog.
        also: files of another table whose rows belong to the changelog too.
    """
    source = DeltaTable(changelog, version=version)
    rows = source.to_pyarrow_dataset()
    if also is not None:
        from pyarrow import dataset  # noqa: PLC0415 - with pandas

        rows = dataset.UnionDataset(rows.schema, [rows, also.rows(rows.schema)])
    selected = ", ".join(map(quoted, rows.schema.names))
    own = [name for name in rows.schema.names if name not in {*STAMPS, PARTITION}]
    last = query(selected, "changelog", keys) if keys else remaining(selected, "changelog", own)
    derived.write(target, source, {"changelog": rows}, last)


def followed(timeline: Timeline, table: str, first: int) -> None:
    """Record the first changelog version that a timeline's follower reads. The table of last values includes all earlier versions."""
    storage.write(_begins(timeline, table), json.dumps({"first": first}).encode())


def follows_from(timeline: Timeline, table: str) -> int | None:
    """The first changelog version that a timeline's follower reads; None if none is recorded."""
    content = storage.read(_begins(timeline, table))
    return None if content is None else int(json.loads(content)["first"])


def _begins(timeline: Timeline, table: str) -> str:
    return timeline.folder(FOLLOWERS, f"{table}.json")
