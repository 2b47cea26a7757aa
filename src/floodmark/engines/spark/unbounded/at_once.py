"""A small micro-batch of stateless steps in one job of Spark: its worker writes the rows, and counts them and those that expectations ask for.

Otherwise the rows are kept in memory, counted, judged and written, in a job or two each, which costs more than the rows themselves.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame

from floodmark.engines.frames.client import is_connected
from floodmark.engines.frames.compile import failing
from floodmark.engines.spark.delta import parquet
from floodmark.lake.folder import staging
from floodmark.lake.folder.bucket import is_bucket
from floodmark.lake.folder.paths import is_reached
from floodmark.lake.table.files import Written
from floodmark.lake.writing import synced
from floodmark.spec.graph.operator import Operator
from floodmark.spec.graph.steps import Read, walk
from floodmark.spec.values.schema import FAILED, ROW

_MOST_BYTES = 16 << 20
"""Most bytes, as Spark estimates a micro-batch, that one worker writes alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """Rows of an output that are written.

    Args:
        written: their files, with a marker behind them.
        kinds: number of rows per ``_kind``, of those too that have failed, which are not written.
        counts: of each condition.
    """

    written: Written
    kinds: Counter[int]
    counts: tuple[int, ...]


def allows(operator: Operator, path: str) -> bool:
    """Whether the rows of an operator may be written in one job: those of one output, and of a quarantine if its last step alone sets rows aside.

    Not those of a union, whose branches each read the micro-batch: Spark's counters of rows read then have each row once per branch.

    Args:
        operator: of the stream.
        path: of the table of its first output.
    """
    main, *sides = operator.outputs
    result = dict(operator.results).get(main.name)
    return (
        not operator.stages
        and main.side is None
        and result is not None
        and sum(isinstance(step, Read) for step in walk(result)) == 1
        and main.partitions is None
        and all(output.side == "quarantine" for output in sides)
        and all(step is result for step in failing(operator))
        and is_reached(path)
        and not is_bucket(path)
    )


def is_small(batch: DataFrame) -> bool:
    """Whether one worker can write a micro-batch alone, by the size of the files that it reads."""
    if is_connected(batch):
        return False
    plan: Any = batch._jdf.queryExecution().optimizedPlan()  # noqa: SLF001 - Python has no statistics of a plan
    return int(plan.stats().sizeInBytes()) <= _MOST_BYTES


def write(rows: DataFrame, conditions: Sequence[str], marker: pa.Table, path: str) -> Rows:
    """Write rows, in their order, and a marker behind them.

    Args:
        rows: with the columns of the table, and rows that have failed.
        conditions: in SQL, for rows to be counted: neither retractions nor rows that have failed.
        marker: the last row, with the columns of the table.
        path: of the table, on a disk that workers share with this process.
    """
    flags = [f"_flag_{number}" for number in range(len(conditions))]
    texts = (f"coalesce(CASE WHEN `_kind` = {ROW} THEN ({text}) END, false)" for text in conditions)
    frame = rows.selectExpr("*", *(f"{text} AS {flag}" for text, flag in zip(texts, flags, strict=True))).coalesce(1)
    folder, schema = staging.new_folder(path), marker.schema

    def run(arriving: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        kinds, counts = Counter[int](), [0] * len(flags)

        def good() -> Iterator[pa.RecordBatch]:
            for batch in arriving:
                for number, flag in enumerate(flags):
                    counts[number] += batch.column(flag).true_count
                for count in pc.value_counts(batch.column("_kind")).to_pylist():
                    kinds[count["values"]] += count["counts"]
                yield batch.filter(pc.less(batch.column("_kind"), FAILED))
            yield from marker.to_batches()

        parquet.filed(folder / "part-00000.parquet", good(), schema)
        yield pa.RecordBatch.from_pydict({"counts": [json.dumps([list(kinds.items()), counts])]})

    reports = [row["counts"] for row in frame.mapInArrow(run, "counts string").collect()]
    if not reports:  # nothing is read, so that there was no task
        folder.rmdir()
        return Rows(written=synced.written(path, marker), kinds=Counter(), counts=(0,) * len(flags))
    kinds, counts = json.loads(reports[0])
    return Rows(written=Written(folder=folder), kinds=Counter(dict(kinds)), counts=tuple(counts))
