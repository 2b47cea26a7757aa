"""The last value per key of a changelog at one of its versions, as a table that ``<output>__current`` becomes in one commit. No JVM is needed.

The stream's follower keeps ``<output>__current`` up to date while the changelog grows (``current``). A rollback or a rebuild replaces the
changelog, and ``<output>__current`` with it; a fork begins with both.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence

import duckdb
import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

from floodmark.core.sql import literal, quoted
from floodmark.lake import storage
from floodmark.lake.copies import remove
from floodmark.lake.paths import is_local
from floodmark.lake.ranges import unmeasured
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


def write(changelog: str, version: int, keys: Sequence[str], target: str) -> None:
    """Write the last values of a changelog into a new table; what is there is replaced.

    Args:
        changelog: path of the table.
        version: of it.
        keys: columns that identify a result.
        target: path of the new table, with the columns, division and properties of the changelog.
    """
    remove(target)
    source = DeltaTable(changelog, version=version)
    metadata, schema = source.metadata(), source.schema()
    DeltaTable.create(
        target, schema, partition_by=metadata.partition_columns, configuration=metadata.configuration, mode="error"
    )
    rows = source.to_pyarrow_dataset()
    with duckdb.connect() as engine:
        engine.execute("SET TimeZone = 'UTC'")
        if is_local(target):  # where sorts that do not fit into memory go
            engine.execute(f"SET temp_directory = {literal(f'{target}.spill')}")
        engine.register("changelog", rows)
        last = query(", ".join(map(quoted, rows.schema.names)), "changelog", keys)
        batches = pa.RecordBatchReader.from_stream(engine.sql(last))
        write_deltalake(
            target,
            pa.RecordBatchReader.from_batches(rows.schema, _cast(batches, rows.schema)),
            mode="append",
            writer_properties=unmeasured(rows.schema),
        )
    remove(f"{target}.spill")


def followed(timeline: Timeline, table: str, first: int) -> None:
    """Write down with which version of a changelog the follower of a timeline begins; the table of last values has all before it."""
    storage.write(_begins(timeline, table), json.dumps({"first": first}).encode())


def follows_from(timeline: Timeline, table: str) -> int | None:
    """The version of a changelog with which the follower of a timeline begins; None where nobody has said so."""
    content = storage.read(_begins(timeline, table))
    return None if content is None else int(json.loads(content)["first"])


def _begins(timeline: Timeline, table: str) -> str:
    return timeline.folder("current", f"{table}.json")


def _cast(batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> Iterable[pa.RecordBatch]:
    """Batches with the exact types of a table: DuckDB widens some, and names time zones in its own way."""
    for batch in batches:
        yield from pa.Table.from_batches([batch]).cast(schema).to_batches()
