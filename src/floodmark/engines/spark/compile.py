"""Steps -> DataFrames. The same code for bounded and streaming DataFrames: a DataFrame here is rows with stamps.

No step may remove time: markers (``_kind`` 1) pass every filter, and functions never see them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import reduce
from typing import assert_never

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from floodmark.core.errors import user_code_boundary
from floodmark.semantics.columns import arrow_schema
from floodmark.semantics.stage import AnyStage
from floodmark.spec import steps
from floodmark.spec.schema import MARKER, STAMP_DDL, STAMPS
from floodmark.spec.windows import Calendar, Count, Global, Session, Sliding, Tumbling

CARRIER = "_carrier"
"""The column Spark's watermark is defined on in streams; steps carry it along where it is there."""


def compiled(
    step: steps.Step, inputs: Mapping[str, DataFrame], known: Mapping[steps.Step, DataFrame] | None = None
) -> DataFrame:
    """The DataFrame of a step: its columns, then the stamps (and the carrier).

    Args:
        step: stateless from here down to ``known`` and the inputs.
        inputs: input name -> stamped rows.
        known: steps that are DataFrames already: the stateful one.
    """
    if known and step in known:
        return known[step]
    parents = [compiled(parent, inputs, known) for parent in step.parents]
    match step:
        case steps.Read():
            return inputs[step.input]
        case steps.Filter():
            return parents[0].filter(f"({step.condition}) OR `_kind` = {MARKER}")
        case steps.Project():
            kinds = step.schema.types
            columns = [F.expr(f"CAST(({text}) AS {kinds[name]}) AS `{name}`") for name, text in step.columns]
            return parents[0].select(*columns, *_stamps(parents[0]))
        case steps.FlatMap():
            carried = (
                parents[0].schema[CARRIER].simpleString().replace(":", " ") if CARRIER in parents[0].columns else ""
            )
            ddl = ", ".join(filter(None, (step.schema.ddl(), STAMP_DDL, carried)))
            return parents[0].mapInArrow(_flat_map(step), ddl)
        case steps.Union():
            numbered = [
                parent.withColumn("_sequence", F.expr(f"`_sequence` * {len(parents)} + {i}"))
                for i, parent in enumerate(parents)
            ]
            return reduce(DataFrame.unionByName, numbered)
        case steps.WindowAggregate():
            message = "a stateful step is compiled by its host"
            raise TypeError(message)
        case _:
            assert_never(step)


def stage_rows(stage: AnyStage, rows: DataFrame) -> DataFrame:
    """Rows as the stage's ``pack`` wants them: ``group``, keys, event time in ms, stamps, values, ``row``, ``side``."""
    step = stage.step
    group = (
        f"CAST(pmod(xxhash64({', '.join(f'`{k}`' for k in step.keys)}), {step.groups}) AS int)" if step.keys else "0"
    )
    columns = [F.expr(group).alias("group")]
    columns += [_plain_zero(rows, key).alias(f"k{i}") for i, key in enumerate(step.keys)]
    columns += [F.expr("coalesce(unix_millis(`_event_time`), 0) AS t"), F.expr("`_watermark` AS w")]
    columns += [F.expr("`_sequence` AS s"), F.expr("`_kind` AS kind")]
    columns += [F.expr(f"CAST(({v.sql}) AS {v.type}) AS v{j}") for j, v in enumerate(stage.values)]
    whole = F.struct(*(F.col(f"`{name}`") for name in step.parent.schema.names))
    if stage.whole_rows or step.reduces:
        columns.append(whole.alias("row"))
    if step.late == "side_output":
        columns.append(F.when(F.expr(maybe_dropped(step)), whole).alias("side"))
    return rows.select(*columns)


def maybe_dropped(step: steps.WindowAggregate) -> str:
    """A SQL condition no row that is dropped for all its windows fails; exact for tumbling and sliding windows."""
    time, lateness = "unix_millis(`_event_time`)", step.allowed_lateness
    match step.window:
        case Tumbling() | Sliding() as window:
            last = f"{time} - pmod({time} - ({window.offset}), {window.slide}) + {window.size}"
            return f"({last}) - 1 + {lateness} <= `_watermark`"
        case Calendar():
            return f"{time} + {lateness} <= `_watermark`"
        case Session() as window:
            gap = (
                window.gap
                if isinstance(window.gap, int)
                else f"greatest(coalesce(CAST(({window.gap}) AS bigint), 1), 1)"
            )
            return f"{time} + {gap} - 1 + {lateness} <= `_watermark`"
        case Global() | Count():
            return "false"
        case _:
            return f"{time} <= `_watermark`" if step.time == "event" else "false"


def _stamps(rows: DataFrame) -> list[str]:
    return [name for name in (*STAMPS, CARRIER) if name in rows.columns]


def _plain_zero(rows: DataFrame, column: str) -> Column:
    """-0.0 and 0.0 are one key, as in SQL's GROUP BY."""
    kind = rows.schema[column].dataType.simpleString()
    return F.expr(f"`{column}` + CAST(0 AS {kind})") if kind in {"float", "double"} else F.col(f"`{column}`")


def _flat_map(step: steps.FlatMap) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    schema, function = arrow_schema(step.schema), step.function
    where = f"flat_map '{getattr(function, '__name__', 'function')}'"

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            stamped = [name for name in batch.schema.names if name in STAMPS or name == CARRIER]
            payload = [name for name in batch.schema.names if name not in stamped]
            kinds = batch.column("_kind").to_pylist()
            made: list[Mapping[str, object]] = []
            origin: list[int] = []
            for position, row in enumerate(batch.select(payload).to_pylist()):
                if kinds[position] == MARKER:
                    new: list[Mapping[str, object]] = [{}]
                else:
                    with user_code_boundary(where, f"The row was {row}."):
                        new = list(function(row))
                made += new
                origin += [position] * len(new)
            with user_code_boundary(where, f"Yield dictionaries with: {step.schema.describe()}."):
                table = pa.Table.from_pylist([dict(row) for row in made], schema=schema)
            for name in stamped:
                table = table.append_column(name, batch.column(name).take(pa.array(origin, pa.int64())))
            yield from table.combine_chunks().to_batches()

    return run
