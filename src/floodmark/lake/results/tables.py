"""Creates, checks, empties and removes the tables of an operator. No JVM.

An engine with its own credentials for remote tables passes functions that create and empty a table.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from deltalake import CommitProperties, DeltaTable, Field
from deltalake import Schema as TableSchema

from floodmark.core.errors import PlanError
from floodmark.core.time import Interval
from floodmark.lake.folder.copies import remove
from floodmark.lake.folder.paths import Lake
from floodmark.lake.results import frozen, readiness, verdicts
from floodmark.lake.stream import last_values
from floodmark.lake.stream.timeline import Timeline
from floodmark.lake.table import division, entries, history
from floodmark.lake.table.outputs import PROPERTIES, added, partition_by, table_schema
from floodmark.lake.writing.confirmed import create_table, revise
from floodmark.semantics.encoding.columns import arrow_schema
from floodmark.spec.graph.operator import Operator, Output
from floodmark.spec.values.schema import MARKER, PARTITION

Create = Callable[[str, TableSchema, tuple[str, ...], Mapping[str, str]], None]
"""(path, columns, partition columns, properties) -> None. Creates an empty table unless it exists."""


def create(path: str, columns: TableSchema, partitioned: tuple[str, ...], properties: Mapping[str, str]) -> None:
    """Create an empty table unless it exists."""
    create_table(path, columns, partition_by=partitioned, properties=properties)


def ensure(lake: Lake, operator: Operator, output: Output, make: Create = create, *, replace: bool = False) -> str:
    """Create an output's table, or check the columns and partitioning of an existing one. Returns its path.

    Adds columns that an interrupted upgrade of the stream did not add. Deletes and recreates an empty table of another definition that no stream uses.

    Args:
        lake: lake of the table.
        operator: operator of the output.
        output: an output of the operator, or its table of last values.
        make: creates an empty table; by default on a local disk.
        replace: True if the caller will replace all rows and columns, so an existing table is not checked.

    Raises:
        PlanError: PLAN-002 the table has other columns, PLAN-003 the table has other partitions.
    """
    path, wanted = lake.output(output.table), table_schema(output.schema, output.partitions)
    if _is_unused(lake, operator, output, wanted):
        remove(path)
    if not entries.is_table(path):
        properties = PROPERTIES if output in operator.outputs else {}  # old versions of last values are never restored
        make(path, wanted, partition_by(output), properties)
        return path
    if replace:
        return path
    division.check(path, operator, output)
    there = _declared_columns(TableSchema.from_json(entries.schema_of(path)), output)
    if there != _declared_columns(wanted, output) and _deployed(lake, operator):
        widen(lake, output)
        there = _declared_columns(TableSchema.from_json(entries.schema_of(path)), output)
    if there != _declared_columns(wanted, output):
        fix = f"Compute all of it anew, which replaces the table: floodmark run {operator.name} --force (without --from and --to)."
        got = ", ".join(f"{name} {sql_type(kind)}" for name, kind in there.items() if name != PARTITION)
        raise PlanError(f"table {path}", output.schema.describe(), got, fix, code="PLAN-002")
    return path


def fits(path: str, output: Output) -> bool:
    """True if an existing table has exactly the columns and the partitioning of an output, whichever engine created the table."""
    if division.other(path, output) is not None:
        return False
    there, wanted = TableSchema.from_json(entries.schema_of(path)), table_schema(output.schema, output.partitions)
    return _names(there) == _names(wanted) and _declared_columns(there, output) == _declared_columns(wanted, output)


def widen(lake: Lake, output: Output) -> None:
    """Add the output's columns that an existing table lacks. They are null in existing rows."""
    path = lake.output(output.table)
    if not DeltaTable.is_deltatable(path):
        return
    wanted = TableSchema.from_arrow(arrow_schema(output.schema)).fields

    def add(table: DeltaTable, properties: CommitProperties) -> None:
        there = _names(table.schema())
        lacking = [Field(field.name, field.type, nullable=True) for field in wanted if field.name not in there]
        if lacking:
            table.alter.add_columns(lacking, commit_properties=properties)

    revise(path, add)


def _is_unused(lake: Lake, operator: Operator, output: Output, wanted: TableSchema) -> bool:
    """True if a table differs from its output's definition, is empty and has no stream, as after a stream failed in its first micro-batch."""
    path = lake.output(output.table)
    if not entries.is_table(path) or Timeline.current(lake, operator.name).identity.deployed() is not None:
        return False
    there = TableSchema.from_json(entries.schema_of(path))
    differs = (
        _declared_columns(there, output) != _declared_columns(wanted, output)
        or division.other(path, output) is not None
    )
    return differs and not history.holds_files(path)


def _deployed(lake: Lake, operator: Operator) -> bool:
    """True if the stream of an operator is deployed under this version."""
    deployed = Timeline.current(lake, operator.name).identity.deployed()
    return deployed is not None and deployed.version == operator.version


def _names(schema: TableSchema) -> set[str]:
    return {field.name for field in schema.fields}


def _declared_columns(schema: TableSchema, output: Output) -> dict[str, Any]:
    """Column name -> type in Delta's JSON form, without stamps."""
    return {field.name: json.loads(field.type.to_json()) for field in schema.fields if field.name not in added(output)}


def sql_type(kind: Any) -> str:
    """A type in Delta's JSON form -> Spark SQL's name of the type, such as ``array<struct<a:bigint>>``."""
    if isinstance(kind, str):
        return _SPARK_NAMES.get(kind, kind)
    if kind["type"] == "array":
        return f"array<{sql_type(kind['elementType'])}>"
    if kind["type"] == "map":
        return f"map<{sql_type(kind['keyType'])},{sql_type(kind['valueType'])}>"
    fields = ",".join(f"{field['name']}:{sql_type(field['type'])}" for field in kind["fields"])
    return f"struct<{fields}>"


_SPARK_NAMES = {"long": "bigint", "integer": "int", "short": "smallint", "byte": "tinyint"}
"""Delta type -> Spark SQL's name, where the two differ."""


# ---- the start of a stream


def forget(operator: Operator, lake: Lake) -> None:
    """Remove all timelines and output tables of an operator.

    Raises:
        LifecycleError: LIFECYCLE-201, results of it are frozen.
    """
    frozen.check(lake, operator.name, [Interval()], "a run from scratch")
    remove(lake.internal("operators", operator.name, "timelines"))
    for output in operator.outputs:
        remove(lake.output(output.table))
        if output.current is not None:
            remove(lake.output(output.current.table))


def empty(path: str) -> None:
    """Delete all rows of a table except its markers."""
    revise(path, lambda table, properties: table.delete(f"_kind <> {MARKER}", commit_properties=properties))


def take_over(operator: Operator, timeline: Timeline, clear: Callable[[str], None] = empty) -> None:
    """Remove the results of bounded runs when a stream starts: the stream computes the whole log, so they would be duplicated.

    Last values, one per key, stay until the stream replaces them if the stream computes the same keys, even for windows it has yet to reach. Repeated
    after a crash, as the stream claims its checkpoint only afterwards.

    Args:
        operator: operator of the stream.
        timeline: the new timeline.
        clear: path -> None; deletes all rows of a table except its markers.

    Raises:
        LifecycleError: LIFECYCLE-201, results of the operator are frozen.
    """
    lake = timeline.lake
    frozen.check(lake, operator.name, [Interval()], "the start of a stream, which computes all results anew")
    staying = {
        output.current.table
        for output in operator.outputs
        if output.current is not None and readiness.replaces_each(operator, lake, output)
    }
    tables = [output.current for output in operator.outputs if output.current is not None]
    for output in (*tables, *operator.outputs):
        path = lake.output(output.table)
        verdicts.forget(path)
        if output.table not in staying and entries.is_table(path) and history.holds_files(path):
            clear(path)
    for output in operator.outputs:
        version = DeltaTable(lake.output(output.table)).version()
        if output.current is not None and version > 0:
            last_values.followed(timeline, output.table, version + 1)
