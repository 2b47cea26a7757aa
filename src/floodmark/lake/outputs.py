"""Tables of stamped rows as their logs show them: columns, division, the rows of an interval."""

from __future__ import annotations

from collections.abc import Mapping

from deltalake import DeltaTable, Field
from deltalake import Schema as TableSchema
from deltalake.schema import PrimitiveType
from pyarrow.fs import FileType

from floodmark.core.errors import ExecutionError
from floodmark.core.time import END, NEVER, Interval
from floodmark.lake import division, entries
from floodmark.lake.paths import Lake
from floodmark.lake.rows import row_schema
from floodmark.lake.storage import file_system
from floodmark.spec import partitions
from floodmark.spec.operator import Operator, Output
from floodmark.spec.partitions import Partitions, literal
from floodmark.spec.schema import MARKER, PARTITION, STAMPS, Schema
from floodmark.spec.steps import WindowAggregate
from floodmark.spec.windows import Global

KEPT = {"delta.logRetentionDuration": "interval 36500 days"}
"""Properties of logs and outputs: new streams begin with the first commit, savepoints go back to old versions, whoever's clean-up runs."""
PROPERTIES = {"delta.checkpointInterval": "100", **KEPT}
"""Properties of logs and outputs when they are created."""
SETTLE_SECONDS = 5.0
"""After which side outputs without rows say again how far their stream is."""


def keep_history(table: DeltaTable) -> bool:
    """Set the properties ``KEPT`` of a table where others stand; whether that was so."""
    configuration = table.metadata().configuration
    other = {name: value for name, value in KEPT.items() if configuration.get(name) != value}
    if other:
        table.alter.set_table_properties(other)
    return bool(other)


def added(output: Output) -> tuple[str, ...]:
    """The columns an output's table has beside its own."""
    return (*STAMPS, PARTITION) if output.partitions else STAMPS


def partition_by(output: Output) -> tuple[str, ...]:
    """The columns an output's table is divided by."""
    return (PARTITION,) if output.partitions else ()


def predicate(output: Output, interval: Interval) -> str:
    """The rows of an interval; markers are never among them."""
    if output.partitions:
        return partitions.predicate(output.partitions, interval)
    low = f"_event_time >= {literal(interval.start)}" if interval.start > NEVER else f"_kind <> {MARKER}"
    return low + (f" AND _event_time < {literal(interval.end)}" if interval.end <= END else "")


def never_fires(operator: Operator, watermark: int) -> tuple[str, ...]:
    """What to say of windows that only the end of input fires, when a stream has caught up with inputs that have none.

    Args:
        operator: of the stream.
        watermark: its progress, ms.
    """
    step = operator.stateful
    if not isinstance(step, WindowAggregate) or not isinstance(step.window, Global):
        return ()
    if step.trigger is not None or watermark >= END:
        return ()
    sources = " and ".join(f"floodmark land {given.table} --end" for given in operator.inputs)
    text = (
        f"'{operator.name}' uses Global(), which fires at the end of input: it will never fire while its input has no end. "
        f"End the input ({sources}), run it bounded (floodmark run {operator.name}), or use Tumbling, Sliding or Calendar."
    )
    return (text,)


def set_aside(operator: Operator, rows: Mapping[str, int]) -> tuple[str, ...]:
    """What to say of rows and panes a run has put into the quarantine."""
    table = next((o.table for o in operator.outputs if o.side == "quarantine" and rows.get(o.table)), None)
    if table is None:
        return ()
    text = (
        f"functions of '{operator.name}' failed for {rows[table]:,} rows or panes, which were set aside. "
        f"See them: floodmark quarantine show {operator.name}"
    )
    return (text,)


def check_there(path: str, what: str, fix: str) -> None:
    """Raise ExecutionError EXECUTION-002 when a table is not there (any more); without Spark, and cheap enough for every micro-batch."""
    files, log = file_system(f"{path}/_delta_log")
    if files.get_file_info(log).type == FileType.NotFound:
        raise ExecutionError(what, f"a Delta table at {path}", "none", fix, code="EXECUTION-002")


def table_schema(schema: Schema, cut: Partitions | None = None) -> TableSchema:
    """The columns of a table of stamped rows, all nullable, with the descriptions of its own columns as comments.

    Args:
        schema: of its own columns.
        cut: the asset partitions the table is divided by.
    """
    comments = {column.name: column.description for column in schema.columns if column.description}
    fields = [
        Field(f.name, f.type, nullable=True, metadata={"comment": comments[f.name]} if f.name in comments else None)
        for f in TableSchema.from_arrow(row_schema(schema)).fields
    ]
    if cut is not None:
        fields.append(Field(PARTITION, PrimitiveType("string"), nullable=True, metadata=division.metadata(cut)))
    return TableSchema(fields)


def input_path(lake: Lake, table: str) -> str:
    """The path of an input's table: a log, or an output of another operator."""
    return lake.log(table) if entries.is_table(lake.log(table)) else lake.read(table)
