"""The tables of an operator: made, checked, emptied where a stream begins, and removed. No JVM.

An engine with credentials of its own for tables that are not on a local disk hands in how it makes and empties one.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from deltalake import DeltaTable, Field
from deltalake import Schema as TableSchema

from floodmark.core.errors import PlanError
from floodmark.lake import division, entries, history, last_values, readiness
from floodmark.lake.copies import remove
from floodmark.lake.outputs import PROPERTIES, added, partition_by, table_schema
from floodmark.lake.paths import Lake
from floodmark.lake.timeline import Timeline
from floodmark.semantics.columns import arrow_schema
from floodmark.spec.operator import Operator, Output
from floodmark.spec.schema import PARTITION

Create = Callable[[str, TableSchema, tuple[str, ...], Mapping[str, str]], None]
"""Makes an empty table where there is none: path, columns, partition columns, properties."""


def create(path: str, columns: TableSchema, partitioned: tuple[str, ...], properties: Mapping[str, str]) -> None:
    """Make an empty table on a local disk, where there is none."""
    DeltaTable.create(
        path,
        columns,
        mode="ignore",
        partition_by=list(partitioned),
        configuration=dict(properties),
        raise_if_key_not_exists=False,  # floodmark's own properties
    )


def ensure(lake: Lake, operator: Operator, output: Output, make: Create = create, *, replace: bool = False) -> str:
    """Make an output's table, or check that it has the columns and the division it should have. Its path.

    Columns that an upgrade of its stream was killed before it added are added.

    Args:
        lake: it is in.
        operator: whose.
        output: of the operator, or the table of its last values.
        make: makes it.
        replace: all of it will be replaced, columns and all; nothing is checked.

    Raises:
        PlanError: PLAN-002 the table has other columns, PLAN-003 it is divided by something else.
    """
    path, wanted = lake.output(output.table), table_schema(output.schema, output.partitions)
    if _is_unused(lake, operator, output, wanted):
        remove(path)
    if not entries.is_table(path):
        properties = PROPERTIES if output in operator.outputs else {}  # nobody goes back to old last values
        make(path, wanted, partition_by(output), properties)
        return path
    if replace:
        return path
    division.check(path, operator, output)
    there = _own(TableSchema.from_json(entries.schema_of(path)), output)
    if there != _own(wanted, output) and _deployed(lake, operator):
        widen(lake, output)
        there = _own(TableSchema.from_json(entries.schema_of(path)), output)
    if there != _own(wanted, output):
        fix = f"Compute all of it anew, which replaces the table: floodmark run {operator.name} --force (without --from and --to)."
        got = ", ".join(f"{name} {_described(kind)}" for name, kind in there.items() if name != PARTITION)
        raise PlanError(f"table {path}", output.schema.describe(), got, fix, code="PLAN-002")
    return path


def widen(lake: Lake, output: Output) -> None:
    """Add the columns a table lacks, where it is there; its rows have null in them."""
    path = lake.output(output.table)
    if not DeltaTable.is_deltatable(path):
        return
    table = DeltaTable(path)
    there = {field.name for field in table.schema().fields}
    wanted = TableSchema.from_arrow(arrow_schema(output.schema)).fields
    lacking = [Field(field.name, field.type, nullable=True) for field in wanted if field.name not in there]
    if lacking:
        table.alter.add_columns(lacking)


def _is_unused(lake: Lake, operator: Operator, output: Output, wanted: TableSchema) -> bool:
    """Whether a table has no row, and no stream that goes on, and is another one than its output should have: of a stream that failed at its first micro-batch."""
    path = lake.output(output.table)
    if not entries.is_table(path) or Timeline.current(lake, operator.name).identity.deployed() is not None:
        return False
    there = TableSchema.from_json(entries.schema_of(path))
    differs = _own(there, output) != _own(wanted, output) or division.other(path, output) is not None
    return differs and not history.holds_files(path)


def _deployed(lake: Lake, operator: Operator) -> bool:
    """Whether the stream of an operator goes on under this definition."""
    deployed = Timeline.current(lake, operator.name).identity.deployed()
    return deployed is not None and deployed.version == operator.version


def _own(schema: TableSchema, output: Output) -> dict[str, Any]:
    """The columns of a table without its stamps, each with its type as Delta writes it in JSON."""
    return {field.name: json.loads(field.type.to_json()) for field in schema.fields if field.name not in added(output)}


def _described(kind: Any) -> str:
    """A type as Spark SQL names it."""
    if isinstance(kind, str):
        return _SPARK_NAMES.get(kind, kind)
    return f"array<{_described(kind['elementType'])}>" if kind["type"] == "array" else str(kind["type"])


_SPARK_NAMES = {"long": "bigint", "integer": "int", "short": "smallint", "byte": "tinyint"}
"""Of Delta's types, those Spark SQL names otherwise."""


# ---- where a stream begins


def forget(operator: Operator, lake: Lake) -> None:
    """Remove the timelines and the tables of an operator."""
    remove(lake.internal("operators", operator.name, "timelines"))
    for output in operator.outputs:
        remove(lake.output(output.table))
        if output.current is not None:
            remove(lake.output(output.current.table))


def empty(path: str) -> None:
    """Delete the rows of a table on a local disk, but for its markers."""
    DeltaTable(path).delete("_kind <> 1")


def take_over(operator: Operator, timeline: Timeline, clear: Callable[[str], None] = empty) -> None:
    """Remove what bounded runs have computed: a stream that begins computes the whole log, and its rows would be there twice.

    Last values are there once per key. They stay until the stream replaces them, also those of windows the stream has yet to reach, where
    the stream computes the same keys. Done again after a crash: the stream owns its checkpoint only afterwards.

    Args:
        operator: whose stream begins.
        timeline: it begins.
        clear: deletes the rows of a table, but for its markers.
    """
    lake = timeline.lake
    staying = {
        output.current.table
        for output in operator.outputs
        if output.current is not None and readiness.replaces_each(operator, lake, output)
    }
    tables = [output.current for output in operator.outputs if output.current is not None]
    for output in (*tables, *operator.outputs):
        path = lake.output(output.table)
        if output.table not in staying and entries.is_table(path) and history.holds_files(path):
            clear(path)
    for output in operator.outputs:
        version = DeltaTable(lake.output(output.table)).version()
        if output.current is not None and version > 0:
            last_values.followed(timeline, output.table, version + 1)
