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
from floodmark.engines.spark.compile import maybe_dropped
from floodmark.semantics.windows import extent
from floodmark.semantics.windows.forever import Forever
from floodmark.semantics.windows.grid import Grid
from floodmark.spec.aggregates import Builtin
from floodmark.spec.expressions import quoted
from floodmark.spec.run import LateRows
from floodmark.spec.schema import BOUNDED
from floodmark.spec.steps import WindowAggregate
from floodmark.spec.windows import Global, Sliding, Tumbling

_FUNCTIONS = frozenset({"count", "sum", "min", "max", "mean", "stddev", "count_distinct"})


def possible(step: WindowAggregate, *, revisable: bool, late_rows: LateRows) -> bool:
    """True where the answer in SQL is the kernel's."""
    if not step.columnar:
        return False
    plain = all(isinstance(a, Builtin) and a.function in _FUNCTIONS for _, a in step.aggregates)
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
    aggregates = [(n, a) for n, a in step.aggregates if isinstance(a, Builtin)]
    values = [F.expr(quoted(a.expression or "1")).alias(f"v{i}") for i, (_, a) in enumerate(aggregates)]
    pairs = placed.select(*keys, *values, "_end", F.expr("_end - 1 <= _watermark").alias("_late"))
    counted = Observation()
    on_time = pairs.observe(counted, F.count_if("_late").alias("dropped")).filter("NOT _late")
    types = step.schema.types
    measures = [_aggregate(a, f"v{i}").cast(types[n]).alias(n) for i, (n, a) in enumerate(aggregates)]
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


def _aggregate(aggregate: Builtin, value: str) -> Column:
    match aggregate.function:
        case "count":
            return F.count(F.lit(1)) if aggregate.expression is None else F.count(value)
        case "mean":
            return F.avg(F.col(value).cast("double"))
        case "stddev":
            return F.stddev_samp(F.col(value).cast("double"))
        case _:
            found: Column = getattr(F, aggregate.function)(F.col(value))
            return found
