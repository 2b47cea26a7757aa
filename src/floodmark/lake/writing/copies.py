"""Merges of rows and retractions into a table that holds each row as often as it counts, by delta-rs. No micro-batch is merged twice."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake

from floodmark.core.sql import quoted
from floodmark.lake.table.ranges import unmeasured
from floodmark.lake.writing import conflicts
from floodmark.lake.writing.confirmed import confirmed
from floodmark.lake.writing.merging import opened_table
from floodmark.lake.writing.writer import check_open
from floodmark.spec.values.schema import MARKER, RETRACTION, ROW


def remaining(columns: str, changelog: str, names: Sequence[str]) -> str:
    """DuckDB SQL that selects the rows of a changelog that are not retracted, each as often as it counts.

    Args:
        columns: columns to select, as SQL.
        changelog: relation to select from, as SQL.
        names: columns that make a row, without stamps.
    """
    partition = ", ".join(map(quoted, names))
    return (
        f"SELECT {columns} FROM (SELECT *, sum(CASE _kind WHEN {ROW} THEN 1 ELSE -1 END) OVER (PARTITION BY {partition}) AS _left, "
        f"row_number() OVER (PARTITION BY {partition} ORDER BY _kind DESC, _sequence DESC NULLS LAST) AS _copy "
        f"FROM {changelog} WHERE _kind <> {MARKER}) WHERE _kind = {ROW} AND _copy <= _left"
    )


def merge(
    path: str,
    rows: pa.Table,
    names: Sequence[str],
    once: tuple[str, int],
    opened: dict[str, DeltaTable] | None = None,
) -> None:
    """Add rows, and remove a copy of a row for each retraction of it.

    Args:
        path: of the table.
        rows: with the columns of the table, stamps included; those that cancel each other change nothing.
        names: columns that make a row, without stamps.
        once: (application id, number) of the micro-batch.
        opened: path -> table that an earlier call has opened in a bucket.

    Raises:
        LifecycleError: LIFECYCLE-004, every attempt conflicted with another writer; LIFECYCLE-057, a rollback has fenced the application.
    """

    def attempt() -> None:
        table = opened_table(path, {} if opened is None else opened)
        if not check_open(path, *once, table.transaction_version(once[0])):
            return
        changed = _changes(table, rows, names)
        deletes = bool(pc.any(pc.equal(changed["_kind"], RETRACTION)).as_py())
        written = unmeasured(changed.schema)

        def commit(properties: CommitProperties) -> None:
            if not deletes:
                write_deltalake(table, changed, mode="append", writer_properties=written, commit_properties=properties)
                return
            merger = table.merge(
                changed,
                "t.`_sequence` = s.`_sequence`",
                source_alias="s",
                target_alias="t",
                writer_properties=written,
                commit_properties=properties,
            )
            merger = merger.when_matched_delete(f"s.`_kind` = {RETRACTION}")
            merger.when_not_matched_insert_all(f"s.`_kind` = {ROW}").execute()

        if changed.num_rows:
            confirmed(table, path, commit, transactions=[Transaction(*once)])

    conflicts.retried(attempt, path)


def note(path: str, once: tuple[str, int]) -> None:
    """Record that a table holds the rows of a micro-batch and of all before it."""
    table = DeltaTable(path)
    nothing = table.to_pyarrow_dataset().schema.empty_table()

    def commit(properties: CommitProperties) -> None:
        write_deltalake(table, nothing, mode="append", commit_properties=properties)

    confirmed(table, path, commit, transactions=[Transaction(*once)])


def _changes(table: DeltaTable, rows: pa.Table, names: Sequence[str]) -> pa.Table:
    """The rows to insert, as ``ROW``; and for each copy that goes, a ``RETRACTION`` with its ``_sequence``."""
    import duckdb  # noqa: PLC0415 - slow, and few streams have such a table

    kinds = pc.unique(rows["_kind"]).to_pylist()
    if RETRACTION not in kinds:
        return rows
    columns = ", ".join(map(quoted, rows.schema.names))
    own = ", ".join(map(quoted, names))
    same = " AND ".join(f"t.{quoted(name)} IS NOT DISTINCT FROM d.{quoted(name)}" for name in names)
    with duckdb.connect() as engine:
        engine.execute("SET TimeZone = 'UTC'")
        engine.register("changes", rows)
        added = engine.sql(remaining(columns, "changes", names)).to_arrow_table()
        engine.register("target", table.to_pyarrow_dataset())
        removed = engine.sql(
            f"WITH d AS (SELECT {own}, -sum(CASE _kind WHEN {ROW} THEN 1 ELSE -1 END) AS _less FROM changes "
            f"WHERE _kind <> {MARKER} GROUP BY {own} HAVING _less > 0) "
            f"SELECT _sequence FROM (SELECT t._sequence, d._less, row_number() OVER "
            f"(PARTITION BY {', '.join(f't.{quoted(name)}' for name in names)} ORDER BY t._sequence) AS _copy "
            f"FROM target AS t JOIN d ON {same}) WHERE _copy <= _less"
        ).to_arrow_table()
    added = added.cast(rows.schema)
    if not removed.num_rows:
        return added
    blank = {name: pa.nulls(removed.num_rows, rows.schema.field(name).type) for name in rows.schema.names}
    kind = pa.array([RETRACTION] * removed.num_rows, rows.schema.field("_kind").type)
    gone = pa.table(
        blank | {"_sequence": removed["_sequence"].cast(rows.schema.field("_sequence").type), "_kind": kind},
        schema=rows.schema,
    )
    return pa.concat_tables([added, gone])
