"""New tables from a query over rows of other tables, with the columns, partitioning and properties of a model table. No JVM is needed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, write_deltalake

from floodmark.core.sql import literal
from floodmark.lake.folder.copies import remove
from floodmark.lake.folder.paths import is_local
from floodmark.lake.table.ranges import unmeasured
from floodmark.lake.writing.confirmed import confirmed, create_table

if TYPE_CHECKING:
    from pyarrow import dataset


def write(target: str, like: DeltaTable, rows: Mapping[str, dataset.Dataset], query: str) -> None:
    """Write the result of a query into a new table. Replaces an existing table. DuckDB spills to a folder beside a local table if memory is short.

    Args:
        target: path of the new table.
        like: the table whose columns, partitioning and properties the new table gets.
        rows: name in the query -> rows.
        query: DuckDB's SQL, with the columns of ``like`` in their order.
    """
    import duckdb  # noqa: PLC0415 - every stream start imports this module, but few streams write such tables

    remove(target)
    metadata, schema = like.metadata(), like.to_pyarrow_dataset().schema
    create_table(
        target,
        like.schema(),
        partition_by=metadata.partition_columns,
        properties=metadata.configuration,
        must_be_new=True,
    )
    table = DeltaTable(target)
    spilled = f"{target}.spill"
    with duckdb.connect() as engine:
        engine.execute("SET TimeZone = 'UTC'")
        if is_local(target):
            engine.execute(f"SET temp_directory = {literal(spilled)}")
        for name, table_rows in rows.items():
            engine.register(name, table_rows)

        def append(properties: CommitProperties) -> None:
            batches = pa.RecordBatchReader.from_stream(engine.sql(query))
            write_deltalake(
                table,
                pa.RecordBatchReader.from_batches(schema, _cast(batches, schema)),
                mode="append",
                writer_properties=unmeasured(schema),
                commit_properties=properties,
            )

        confirmed(table, target, append)
    remove(spilled)


def whole(target: str) -> bool:
    """True if a table exists and was written completely: ``write`` creates it empty, then adds all rows in one commit."""
    return DeltaTable.is_deltatable(target) and DeltaTable(target).version() > 0


def _cast(batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> Iterable[pa.RecordBatch]:
    """Batches cast to the exact types of a table. DuckDB widens some types and names time zones in its own way."""
    for batch in batches:
        yield from pa.Table.from_batches([batch]).cast(schema).to_batches()
