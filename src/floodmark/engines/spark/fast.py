"""The fast path of bounded runs: windows as plain Spark SQL, where that is proven to equal the kernel.

Used for tumbling, sliding and global windows without refires, over inputs that are not revised, with aggregates SQL has too.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

from py4j.protocol import Py4JJavaError
from pyspark.sql import Column, DataFrame, Observation
from pyspark.sql import functions as F

from floodmark.core.time import END, Interval
from floodmark.engines.spark.compile import maybe_dropped
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
    window = step.window
    time = "unix_millis(`_event_time`)"
    if isinstance(window, Global):
        placed = rows.withColumn("_end", F.lit(END + 1).cast("bigint"))
    elif isinstance(window, Tumbling):
        placed = rows.withColumn(
            "_end", F.expr(f"{time} - pmod({time} - ({window.offset}), {window.size}) + {window.size}")
        )
    else:
        assert isinstance(window, Sliding)
        last = f"{time} - pmod({time} - ({window.offset}), {window.slide}) + {window.size}"
        lowest = f"{time} + 1 + pmod(({last}) - {time} - 1, {window.slide})"
        ends = f"CASE WHEN ({last}) > {time} THEN sequence({lowest}, {last}, {window.slide}L) ELSE array() END"
        placed = rows.withColumn("_end", F.explode(F.expr(ends)))
    if not interval.everything:
        placed = placed.filter((F.col("_end") > interval.start) & (F.col("_end") <= interval.end))
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
    if not isinstance(window, Global):
        bounds = [
            F.expr(f"timestamp_millis(_end - {window.size})").alias("window_start"),
            F.expr("timestamp_millis(_end)").alias("window_end"),
        ]
    result = grouped.select(
        *(F.col(f"`{k}`") for k in step.keys),
        *bounds,
        *(F.col(f"`{n}`") for n, _ in step.aggregates),
        F.least(F.col("_end") - 1, F.lit(END)).alias("_event_time"),
        (F.col("_end") - 2).alias("_watermark"),
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
