"""Properties of the tables of stamped rows: columns, partitioning, predicates for intervals, and warnings about runs."""

from __future__ import annotations

from collections.abc import Mapping

from deltalake import Field
from deltalake import Schema as TableSchema
from deltalake.schema import PrimitiveType
from pyarrow.fs import FileType

from floodmark.core.errors import ExecutionError
from floodmark.core.time import END, NEVER, Interval
from floodmark.lake.folder.paths import Lake
from floodmark.lake.folder.storage import file_system
from floodmark.lake.table import division, entries
from floodmark.lake.table.rows import row_schema
from floodmark.spec.graph.operator import Operator, Output
from floodmark.spec.graph.steps import WindowAggregate
from floodmark.spec.values.schema import MARKER, PARTITION, STAMPS, Schema
from floodmark.spec.windowing import partitions
from floodmark.spec.windowing.partitions import Partitions, literal
from floodmark.spec.windowing.windows import Global

KEPT = {"delta.logRetentionDuration": "interval 36500 days"}
"""Properties that disable Delta's own log clean-up: new streams read from the first commit, and savepoints need old versions."""
PROPERTIES = {"delta.checkpointInterval": "100", **KEPT}
"""Properties of new logs and outputs."""
PROGRESS_SECONDS = 5.0
"""Seconds after which a side output without rows publishes its stream's progress again."""


def added(output: Output) -> tuple[str, ...]:
    """The columns that an output's table has in addition to its declared ones."""
    return (*STAMPS, PARTITION) if output.partitions else STAMPS


def partition_by(output: Output) -> tuple[str, ...]:
    """The partition columns of an output's table."""
    return (PARTITION,) if output.partitions else ()


def predicate(output: Output, interval: Interval) -> str:
    """SQL condition for the rows of an interval, without markers."""
    if output.partitions:
        return partitions.predicate(output.partitions, interval)
    low = f"_event_time >= {literal(interval.start)}" if interval.start > NEVER else f"_kind <> {MARKER}"
    return low + (f" AND _event_time < {literal(interval.end)}" if interval.end <= END else "")


def never_fires(operator: Operator, watermark: int) -> tuple[str, ...]:
    """Warning for a stream that has caught up, but whose global windows fire only at an end of input that its inputs do not have.

    Args:
        operator: operator of the stream.
        watermark: progress of the stream, ms.
    """
    waiting = [
        step
        for step in operator.stages
        if isinstance(step, WindowAggregate) and isinstance(step.window, Global) and step.trigger is None
    ]
    if not waiting or watermark >= END:
        return ()
    sources = " and ".join(f"floodmark land {given.table} --end" for given in operator.inputs)
    text = (
        f"'{operator.name}' uses Global(), which fires at the end of input: it will never fire while its input has no end. "
        f"End the input ({sources}), run it bounded (floodmark run {operator.name}), or use Tumbling, Sliding or Calendar."
    )
    return (text,)


def set_aside(operator: Operator, rows: Mapping[str, int]) -> tuple[str, ...]:
    """Warning about rows and panes that a run quarantined; empty if there are none.

    Args:
        operator: operator of the run.
        rows: output table -> rows written.
    """
    table = next((o.table for o in operator.outputs if o.side == "quarantine" and rows.get(o.table)), None)
    if table is None:
        return ()
    text = (
        f"{rows[table]:,} rows or panes of '{operator.name}' were set aside: functions failed for them, or they do not meet an expectation. "
        f"See them: floodmark quarantine show {operator.name}"
    )
    return (text,)


def check_there(path: str, what: str, fix: str) -> None:
    """Check that a table exists. Uses no Spark, and is cheap enough for every micro-batch.

    Args:
        path: path of the table.
        what: the object that needs the table, for the error.
        fix: the remedy, for the error.

    Raises:
        ExecutionError: EXECUTION-002, the table does not exist.
    """
    files, log = file_system(f"{path}/_delta_log")
    if files.get_file_info(log).type == FileType.NotFound:
        raise ExecutionError(what, f"a Delta table at {path}", "none", fix, code="EXECUTION-002")


def table_schema(schema: Schema, divided_by: Partitions | None = None) -> TableSchema:
    """The columns of a table of stamped rows, all nullable, with column descriptions as comments.

    Args:
        schema: the table's declared columns.
        divided_by: the asset partitions of the table; None for an unpartitioned table.
    """
    comments = {column.name: column.description for column in schema.columns if column.description}
    fields = [
        Field(f.name, f.type, nullable=True, metadata={"comment": comments[f.name]} if f.name in comments else None)
        for f in TableSchema.from_arrow(row_schema(schema)).fields
    ]
    if divided_by is not None:
        fields.append(Field(PARTITION, PrimitiveType("string"), nullable=True, metadata=division.metadata(divided_by)))
    return TableSchema(fields)


def input_path(lake: Lake, table: str) -> str:
    """The path of an input's table: the log of that name if it exists, else the output of another operator."""
    return lake.log(table) if entries.is_table(lake.log(table)) else lake.read(table)
