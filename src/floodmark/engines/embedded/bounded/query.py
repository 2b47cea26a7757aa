"""A statement of SQL over tables of a lake, at once and as one plan of Sail: what no stream can say, such as ORDER BY over all rows. Writes nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa
from pyspark.errors import PySparkException

from floodmark.core.errors import ExecutionError
from floodmark.core.scratch import Scratch
from floodmark.engines.embedded.parity.rendering import one_nan
from floodmark.engines.embedded.sail import stored
from floodmark.engines.embedded.sail.session import Connection, Sail, on_sail
from floodmark.engines.frames.inputs import advice
from floodmark.engines.frames.messages import text_of
from floodmark.lake.table import entries
from floodmark.spec.values.schema import ROW, Schema


@dataclass(frozen=True, slots=True)
class Table:
    """A table to query.

    Args:
        path: of its folder.
        schema: columns that the statement sees.
        stamped: whether its rows have a ``_kind``, by which rows that are no results are left out.
        grows: whether it may lack columns that may be null, as the log of a source whose contract has gained some.
        operator: name of the operator that writes it; empty for a source.
    """

    path: str
    schema: Schema
    stamped: bool = True
    grows: bool = False
    operator: str = ""

    def selected(self, name: str) -> list[str]:
        """The columns as expressions over the stored ones.

        Args:
            name: of the table in the statement.

        Raises:
            ExecutionError: EXECUTION-082, the table lacks columns.
        """
        stored = entries.fields_of(self.path)
        missing = {c.name: c.type for c in self.schema.columns if c.name not in stored}
        lost = [c.name for c in self.schema.columns if c.name in missing and not (self.grows and c.nullable)]
        if lost:
            got, fix = f"a table without {', '.join(lost)}", advice(lost, self.operator)
            raise ExecutionError(
                f"table '{name}'", "the columns that its definition has", got, fix, code="EXECUTION-082"
            )
        texts = {name: f"CAST(NULL AS {kind})" for name, kind in missing.items()}
        return [
            f"{texts.get(name) or one_nan(f'`{name}`', kind)} AS `{name}`" for name, kind in self.schema.types.items()
        ]


def selections(tables: Mapping[str, Table]) -> dict[str, list[str]]:
    """(name in the statement -> table) -> its columns as expressions over the stored ones.

    Raises:
        ExecutionError: EXECUTION-081, a table is not there yet; EXECUTION-082, it lacks columns.
    """
    selected = dict[str, list[str]]()
    for name, table in tables.items():
        if not entries.is_table(table.path):
            fix = f"Fill it first: floodmark land {name}, or if it is an operator's: floodmark run {name}"
            raise ExecutionError(f"table '{name}'", f"a Delta table at {table.path}", "none", fix, code="EXECUTION-081")
        selected[name] = table.selected(name)
    return selected


def query(sail: Sail, sql: str, tables: Mapping[str, Table]) -> pa.Table:
    """(statement, name in it -> table) -> its rows.

    Raises:
        ExecutionError: EXECUTION-080, Sail does not compute the statement; EXECUTION-081 and EXECUTION-082, as ``selections``.
    """
    selected = selections(tables)

    def answered(connection: Connection) -> pa.Table:
        spark, scratch = connection.spark, Scratch()
        try:
            for name, table in tables.items():
                rows = stored.table(spark, table.path, entries.version_of(table.path), scratch.path)
                rows = rows.filter(f"`_kind` = {ROW}" if table.stamped else "true")
                rows.selectExpr(*selected[name]).createOrReplaceTempView(name)
            return spark.sql(sql).toArrow()
        except PySparkException as error:
            fix = "Correct the statement; functions and types are Spark's, as far as Sail has them."
            raise ExecutionError(
                "statement", "one that Sail computes", text_of(error), fix, code="EXECUTION-080"
            ) from error
        finally:
            scratch.remove()

    return on_sail(sail, answered)
