"""The fast path of bounded runs: windows as plain Spark SQL, where that is proven to equal the kernel.

Used for tumbling, sliding and global windows without refires, over inputs that are not revised, with aggregates SQL has too.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

from py4j.protocol import Py4JJavaError
from pyspark.sql import Column, DataFrame, Observation
from pyspark.sql import functions as F

from floodmark.core.time import Interval
from floodmark.core.types import parse
from floodmark.engines.spark.frames.compile import maybe_dropped
from floodmark.semantics.aggregates.numbers import overflow
from floodmark.semantics.aggregates.table import sql_of
from floodmark.semantics.windows import extent
from floodmark.semantics.windows.forever import Forever
from floodmark.semantics.windows.grid import Grid
from floodmark.spec.aggregates import AnyAggregate
from floodmark.spec.expressions import check, quoted
from floodmark.spec.run import LateRows
from floodmark.spec.schema import BOUNDED
from floodmark.spec.steps import WindowAggregate
from floodmark.spec.windows import Global, Sliding, Tumbling


def possible(step: WindowAggregate, *, revisable: bool, late_rows: LateRows) -> bool:
    """True where the answer in SQL is the kernel's."""
    if not step.columnar:
        return False
    plain = all(sql_of(a, "v", _type(step, a), "''") is not None for _, a in step.aggregates)
    grid = isinstance(step.window, (Tumbling, Sliding, Global))
    return plain and grid and not revisable and (step.allowed_lateness == 0 or late_rows == "all")


def compute(
    step: WindowAggregate, rows: DataFrame, interval: Interval
) -> tuple[DataFrame, DataFrame, Callable[[], int]]:
    """Result rows, side rows, and how many (row, window) pairs were dropped: known once the result rows are computed.

    Args:
        step: of the operator.
        rows: its input, stamped.
        interval: only windows whose last millisecond lies in it.
    """
    window, time = step.window, "unix_millis(`_event_time`)"
    assert isinstance(window, (Tumbling, Sliding, Global))
    grid = Forever() if isinstance(window, Global) else Grid(window.size, window.slide, window.offset)
    if isinstance(grid, Grid) and grid.overlaps:
        placed = rows.withColumn("_end", F.explode(F.expr(grid.sql_ends(time))))
    else:
        placed = rows.withColumn("_end", F.expr(grid.sql_last_end(time)))
    ended = extent.sql_event_time("_end")
    if not interval.everything:
        placed = placed.filter(f"{ended} >= {interval.start} AND {ended} < {interval.end}")
    keys = [F.expr(_plain(rows, k)).alias(f"k{i}") for i, k in enumerate(step.keys)]
    kinds = [_type(step, a) for _, a in step.aggregates]
    values = [
        _value(a, kind).alias(f"v{i}") for i, ((_, a), kind) in enumerate(zip(step.aggregates, kinds, strict=True))
    ]
    pairs = placed.select(*keys, *values, "_end", F.expr("_end - 1 <= _watermark").alias("_late"))
    counted = Observation()
    on_time = pairs.observe(counted, F.count_if("_late").alias("dropped")).filter("NOT _late")
    types = step.schema.types
    measures = [
        F.expr(str(sql_of(a, f"v{i}", kinds[i], _overflow(step, n, a)))).cast(types[n]).alias(n)
        for i, (n, a) in enumerate(step.aggregates)
    ]
    names = [F.col(f"k{i}").alias(k) for i, k in enumerate(step.keys)]
    grouped = on_time.groupBy(*names, "_end").agg(*measures)

    @cache
    def dropped() -> int:
        try:
            return int(counted.get["dropped"])
        except Py4JJavaError:  # nothing was on time: adaptive execution leaves an empty plan out with its observation
            return pairs.filter("_late").count()

    bounds = []
    if isinstance(grid, Grid):
        bounds = [
            F.expr(extent.sql_bound(grid.sql_start("_end"))).alias("window_start"),
            F.expr(extent.sql_bound("_end")).alias("window_end"),
        ]
    result = grouped.select(
        *(F.col(f"`{k}`") for k in step.keys),
        *bounds,
        *(F.col(f"`{n}`") for n, _ in step.aggregates),
        F.expr(ended).alias("_event_time"),
        F.expr(f"{ended} - 1").alias("_watermark"),
        F.lit(0).cast("int").alias("_kind"),
        (F.lit(BOUNDED) + F.monotonically_increasing_id()).alias("_sequence"),
    )
    inside = f"{time} >= {interval.start} AND {time} < {interval.end}"
    side = rows.filter(f"({maybe_dropped(step)}) AND {inside}")
    return result, side, dropped


def _plain(rows: DataFrame, column: str) -> str:
    kind = dict(rows.dtypes)[column]
    return f"`{column}` + CAST(0 AS {kind})" if kind in {"float", "double"} else f"`{column}`"


def _type(step: WindowAggregate, aggregate: AnyAggregate) -> str:
    sql = aggregate.expression
    return "bigint" if sql is None else check(sql, step.parent.schema, f"step '{step.uid}'")


def _value(aggregate: AnyAggregate, kind: str) -> Column:
    """The value of a row, with one zero."""
    value = F.expr(f"CAST(({quoted(aggregate.expression or '1')}) AS {kind})")
    return value + F.lit(0).cast(kind) if parse(kind).is_floating else value


def _overflow(step: WindowAggregate, name: str, aggregate: AnyAggregate) -> str:
    """SQL text of the kernel's error, with the key of the group."""
    error = overflow(name, aggregate.expression or "", step.schema[name].type, "\0" if step.keys else "")
    before, _, after = f"floodmark.core.errors.ExecutionError: {error}".partition("\0")
    key = (f"concat({_literal(f'{k}=')}, coalesce(CAST(k{i} AS string), 'null'))" for i, k in enumerate(step.keys))
    return f"concat({_literal(before)}, concat_ws(', ', {', '.join(key) or _literal('')}), {_literal(after)})"


def _literal(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
