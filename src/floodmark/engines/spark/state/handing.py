"""What a stage hands on to the stages behind it, in the same micro-batch: its results as rows, and past them what it tells the sink."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext

from floodmark.core.time import NEVER
from floodmark.engines.frames.numbering import Numbering, of_batch
from floodmark.engines.frames.packing import Batches, Stamping, output_ddl, stamped_rows
from floodmark.lake.table.rows import marker
from floodmark.semantics.encoding.columns import decode, encode
from floodmark.semantics.kernels.stage import AnyStage
from floodmark.spec.values.schema import CARRIED, Schema

HANDED = "emitted"
"""Name of the table in a chunk that is carried past a stage: rows as ``EMITTED``."""
_BATCH = "streaming.sql.batchId"
"""Spark's name for the number of the micro-batch, among the properties of a task."""


def handing(stage: AnyStage, number: int, carries: Collection[int] | None) -> Batches:
    """EMITTED -> the results of a stage as rows of a stream, and markers that carry all emissions past the steps and stages behind it.

    ``_sequence`` of a row is the first sequence of its key group + its order, so that it depends neither on tasks nor on partitions.

    Args:
        stage: whose results are read.
        number: of the stage in its operator.
        carries: numbers of the stages whose results the sink needs; None if nothing is carried, as another copy of the stage does it.
    """

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        numbering, _ = of_batch(_micro_batch(), 0, stage.step.groups)
        nexts: dict[int, int] = {}
        for batch in batches:
            table = pa.Table.from_batches([batch])
            yield from _rows(stage, table.filter(pc.equal(table["stage"], number)), numbering, nexts)
            if carries is not None and table.num_rows:
                yield _marker(stage.step.schema, _lighter(table, carries))

    return run


def handed_ddl(schema: Schema) -> str:
    """The columns of rows that are handed on."""
    return f"{output_ddl(schema)}, `{CARRIED}` binary"


def _rows(stage: AnyStage, table: pa.Table, numbering: Numbering, nexts: dict[int, int]) -> Iterator[pa.RecordBatch]:
    schema, stamping = stage.step.schema, Stamping(NEVER, 0, numbering)
    for group, chunk in zip(table["group"].to_pylist(), table["results"].to_pylist(), strict=True):
        results = None if chunk is None else decode(chunk).get("results")
        if results is None or not results.num_rows:
            continue
        first = nexts.get(group, numbering.first(group))
        nexts[group] = first + pc.max(results["_order"]).as_py() + 1
        numbering.check(group, nexts[group] - 1)
        numbered = results.append_column("_sequence", pc.add(results["_order"], first))
        for rows in stamped_rows(numbered, schema, stamping):
            yield rows.append_column(CARRIED, pa.nulls(rows.num_rows, pa.binary()))


def _lighter(table: pa.Table, carries: Collection[int]) -> pa.Table:
    """The emissions without results that nothing behind this stage reads."""
    read = pc.is_in(table["stage"], pa.array(sorted(carries), pa.int64()))
    column = table.column_names.index("results")
    return table.set_column(column, "results", pc.if_else(read, table["results"], pa.scalar(None, pa.binary())))


def _marker(schema: Schema, table: pa.Table) -> pa.RecordBatch:
    row = marker(schema, watermark=NEVER, sequence=None, now=0)
    return row.append_column(CARRIED, pa.array([encode({HANDED: table})], pa.binary()))


def _micro_batch() -> int:
    context = TaskContext.get()
    assert context is not None, "handing runs in a task of Spark's"
    number = context.getLocalProperty(_BATCH)
    assert number is not None, f"the tasks of a stream have the property {_BATCH}"
    return int(number)
