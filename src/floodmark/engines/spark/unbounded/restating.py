"""Restatement at the first start of a stream on Spark after an upgrade (``frames/restating``): state from the checkpoint, steps on Spark."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import pyarrow as pa
from pyspark.sql import SparkSession

from floodmark.engines.frames.attempts import blaming
from floodmark.engines.frames.compile import compiled, failures, without_failures
from floodmark.engines.frames.packing import output_ddl
from floodmark.engines.frames.restating import Restating
from floodmark.engines.spark.state.canonical import fired
from floodmark.lake.stream.timeline import Timeline
from floodmark.lake.table.rows import row_schema
from floodmark.semantics.kernels.stage import stage_of
from floodmark.spec.graph.operator import Operator, Output
from floodmark.spec.values.schema import MARKER


def restate(spark: SparkSession, operator: Operator, timeline: Timeline, run: str) -> None:
    """Restate the outputs that an upgrade has marked. The follower of each output then merges the restated rows into its last values.

    Args:
        spark: session.
        operator: as the code defines it.
        timeline: of its stopped stream.
        run: id of the process.
    """

    def behind(rows: pa.Table, outputs: Sequence[Output]) -> Mapping[str, pa.Table]:
        step = operator.stateful
        assert step is not None
        frame = spark.createDataFrame(rows, schema=output_ddl(step.schema))
        by_table, results = {}, dict(operator.results)

        def failing(twin: Operator) -> Iterator[object]:
            stage = stage_of(twin)
            yield failures(twin, {}, {stage.step: frame} if stage is not None else {})

        with blaming(operator, "unbounded", failing):  # type: ignore[arg-type]  # DataFrames
            for output in outputs:
                frames = without_failures(compiled(results[output.name], {}, {step: frame}))
                schema = row_schema(output.schema)
                by_table[output.table] = (
                    frames.filter(f"_kind <> {MARKER}").select(*schema.names).toArrow().cast(schema)
                )
        return by_table

    batch = timeline.checkpoint.last_committed()
    Restating(
        operator=operator,
        timeline=timeline,
        stores=lambda: fired(spark, timeline.checkpoint.path, batch),
        behind=behind,
        run=run,
        engine="spark",
    ).restate()
