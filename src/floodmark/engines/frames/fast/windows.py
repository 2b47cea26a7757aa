"""The fast path of bounded runs: windows as plain Spark SQL, for the cases in which SQL is proven to equal the kernel.

These are tumbling, sliding and global windows without refires, and calendar windows over an interval, over inputs that are not revised, with
aggregates that SQL has too (``ranked`` for those that depend on the order of rows).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache

from pyspark.sql import Column, DataFrame

from floodmark.core.sql import spark_literal
from floodmark.core.time import END, Interval
from floodmark.core.types import parse
from floodmark.engines.frames.compile import maybe_dropped, plain_key, without_filtered
from floodmark.engines.frames.expressions import Rendering, as_written, expr, guarded_on_sail, on_sail, with_columns
from floodmark.engines.frames.fast import ranked
from floodmark.engines.frames.fast.lateness import Number, watched
from floodmark.semantics.aggregates.numbers import overflow
from floodmark.semantics.aggregates.table import sql_of
from floodmark.semantics.windows import extent
from floodmark.semantics.windows.cumulative import Cumulative
from floodmark.semantics.windows.days import ListedDays
from floodmark.semantics.windows.forever import Forever
from floodmark.semantics.windows.grid import Grid
from floodmark.spec.expressions import check
from floodmark.spec.graph.operator import Operator
from floodmark.spec.graph.steps import Expect, Step, WindowAggregate, quarantines, walk
from floodmark.spec.values.run import LateRows
from floodmark.spec.values.schema import BOUNDED
from floodmark.spec.windowing.aggregates import AnyAggregate
from floodmark.spec.windowing.windows import Calendar, Global, Sliding, Tumbling
from floodmark.spec.windowing.windows import Cumulative as CumulativeWindow

Measured = Callable[[AnyAggregate, str, str, str], str | None]
"""(an aggregate, SQL of its value, the value's type, SQL of an error's text) -> SQL for the session; None if only the kernel can compute the aggregate."""


_LISTED = 400
"""Calendar windows of one run that are listed in SQL: the days of a year and some."""


def possible(operator: Operator, interval: Interval, late_rows: LateRows, measured: Measured = sql_of) -> bool:
    """True if SQL gives the same results as the kernel for the windows of an operator over an interval."""
    step = operator.stateful
    if not isinstance(step, WindowAggregate) or not (step.columnar or ranked.possible(operator, step)):
        return False
    after = (one for _, result in operator.results for one in walk(result))
    if any(quarantines(one) and not isinstance(one, Expect) for one in after):
        return False
    plain = ranked.alone(step) or has_sql(step, measured)
    grid = grid_of(step, interval) is not None
    revisable = any(one.revisable for one in operator.inputs)
    return plain and grid and not revisable and (step.allowed_lateness == 0 or late_rows == "all")


def compute(
    step: WindowAggregate,
    rows: DataFrame,
    interval: Interval,
    rendering: Rendering = as_written,
    measured: Measured = sql_of,
    *,
    on_time: bool = False,
) -> tuple[DataFrame, DataFrame, Number]:
    """Result rows, side rows, and the number of dropped (row, window) pairs, to be asked for after the result rows are computed.

    Args:
        step: of the operator.
        rows: input of the step, stamped.
        interval: only windows whose last millisecond lies in the interval are computed.
        rendering: of expressions, for the session of the frames.
        measured: rendering of aggregates.
        on_time: no row is late (``lateness.on_time``).
    """
    guard, chosen = on_sail(rows), ranked.orders(step)
    judged, behind = (rows, None) if on_time else watched(rows)
    pairs = with_ends(step, judged, interval).selectExpr(
        *(f"{plain_key(rows, k)} AS k{i}" for i, k in enumerate(step.keys)),
        *(
            f"{argument(step, a.expression, rendering, guard=guard)} AS v{i}"
            for i, (_, a) in enumerate(step.aggregates)
        ),
        *ranked.columns(chosen, lambda text: argument(step, text, rendering, guard=guard)),
        "_end",
        "_end - 1 <= _watermark AS _late",
    )
    counting, dropped = without_late(pairs, behind)
    grouped = _measured(step, ranked.marked(step, counting) if chosen else counting, measured)
    result = stamped(step, grouped, [name for name, _ in step.aggregates], interval)
    time = "unix_millis(`_event_time`)"
    inside = f"{time} >= {interval.start} AND {time} < {interval.end}"
    side = without_filtered(rows).filter(f"({maybe_dropped(step)}) AND {inside}")
    return result, side, dropped


def _measured(step: WindowAggregate, pairs: DataFrame, measured: Measured) -> DataFrame:
    """(keys ``k``, values ``v``, ``_end``) -> for each key and window the aggregates, as ``m``."""
    keys, types = [f"k{i}" for i, _ in enumerate(step.keys)], step.schema.types
    if ranked.alone(step):
        values = (f"CAST(v{i} AS {types[n]}) AS m{i}" for i, (n, _) in enumerate(step.aggregates))
        return pairs.selectExpr(*keys, "_end", *values)
    return pairs.groupBy(*keys, "_end").agg(*measures(step, pairs, measured))


def measures(step: WindowAggregate, rows: DataFrame, measured: Measured) -> list[Column]:
    """The aggregates of a step over the values ``v`` of grouped rows, as ``m``."""
    types = step.schema.types
    return [
        expr(rows, f"CAST({_sql(step, n, a, f'v{i}', measured)} AS {types[n]})").alias(f"m{i}")
        for i, (n, a) in enumerate(step.aggregates)
    ]


def has_sql(step: WindowAggregate, measured: Measured) -> bool:
    """Whether SQL has all aggregates of a step."""
    return all(_sql(step, n, a, "v", measured) is not None for n, a in step.aggregates)


def _sql(step: WindowAggregate, name: str, aggregate: AnyAggregate, value: str, measured: Measured) -> str | None:
    """SQL of an aggregate; None if only the kernel can compute it."""
    kind, error = value_type(step, aggregate), _overflow(step, name, aggregate)
    return measured(ranked.measured(aggregate), value, kind, error)


def most_of_a_row(step: WindowAggregate) -> int:
    """The most windows that a row is in."""
    match step.window:
        case Sliding() as window:
            return -(-window.size // window.slide)
        case CumulativeWindow() as window:
            return -(-window.size // window.step)
        case _:
            return 1


def most_windows(step: Step | None, first: int, last: int) -> int:
    """The most windows of a step that have rows of event times, ms, from ``first`` up to ``last``; all times that there are if they cannot be counted."""
    match step.window if isinstance(step, WindowAggregate) else None:
        case Global():
            return 1
        case Tumbling() as window:
            apart = window.size
        case Sliding() as window:
            apart = window.slide
        case CumulativeWindow() as window:
            apart = window.step
        case _:
            return END
    assert isinstance(step, WindowAggregate)
    return (last - first) // apart + 1 + most_of_a_row(step)


def with_ends(step: WindowAggregate, rows: DataFrame, interval: Interval) -> DataFrame:
    """Rows with ``_end``, the end of their window, once for each of their windows whose last millisecond lies in an interval."""
    grid, time = grid_of(step, interval), "unix_millis(`_event_time`)"
    assert grid is not None
    if isinstance(grid, (Grid, Cumulative)) and grid.overlaps:
        end = f"explode({grid.sql_ends(time)})"
    else:
        end = grid.sql_last_end(time)
    ending = with_columns(without_filtered(rows), {"_end": end})
    if interval.everything:
        return ending
    ended = extent.sql_event_time("_end")
    return ending.filter(f"{ended} >= {interval.start} AND {ended} < {interval.end}")


def stamped(
    step: WindowAggregate, results: DataFrame, names: Sequence[str], interval: Interval, start: str = ""
) -> DataFrame:
    """The rows of windows with their stamps.

    Args:
        step: of the windows.
        results: keys ``k``, ``_end``, values ``m``.
        names: of the values.
        interval: of the run.
        start: SQL of the start of a window; by default as its grid has it.
    """
    grid, ended = grid_of(step, interval), extent.sql_event_time("_end")
    bounds = []
    if grid is not None and not isinstance(grid, Forever):
        start = grid.sql_start("_end")
    if start:
        bounds = [f"{extent.sql_bound(start)} AS window_start", f"{extent.sql_bound('_end')} AS window_end"]
    return results.selectExpr(
        *(f"k{i} AS `{k}`" for i, k in enumerate(step.keys)),
        *bounds,
        *(f"m{i} AS `{n}`" for i, n in enumerate(names)),
        f"{ended} AS _event_time",
        f"{ended} - 1 AS _watermark",
        "CAST(0 AS int) AS _kind",
        f"{BOUNDED}L + monotonically_increasing_id() AS _sequence",
    )


def grid_of(step: WindowAggregate, interval: Interval) -> Grid | Cumulative | Forever | ListedDays | None:
    """The windows of a step in SQL; None if only the kernel can compute them."""
    match step.window:
        case Global():
            return Forever()
        case Tumbling() | Sliding() as window:
            return Grid(window.size, window.slide, window.offset)
        case CumulativeWindow() as window:
            return Cumulative(window.size, window.step, window.offset)
        case Calendar() as window if not interval.everything and step.late != "side_output":
            return ListedDays.of(window, interval, _LISTED)
        case _:
            return None


def without_late(pairs: DataFrame, behind: Number | None) -> tuple[DataFrame, Number]:
    """The (row, window) pairs that are on time, and the number of the others, which are counted if any row is late, as no window ends before its rows.

    Args:
        pairs: with the condition ``_late``.
        behind: a number that is 0 if no row is late; None if that is known before.
    """
    if behind is None:
        return pairs.drop("_late"), lambda: 0
    return pairs.filter("NOT _late").drop("_late"), cache(lambda: pairs.filter("_late").count() if behind() else 0)


def value_type(step: WindowAggregate, aggregate: AnyAggregate) -> str:
    """The SQL type of an aggregate's argument."""
    return _type_of(step, aggregate.expression)


def _type_of(step: WindowAggregate, expression: str | None) -> str:
    return "bigint" if expression is None else check(expression, step.parent.schema, f"step '{step.uid}'")


def argument(step: WindowAggregate, expression: str | None, rendering: Rendering, *, guard: bool) -> str:
    """SQL text of an aggregate's argument for a row, in which -0.0 is 0.0 and, for Sail, which tells one with a sign apart, NaN is one value."""
    kind = _type_of(step, expression)
    text = "1" if expression is None else rendering(expression, step.parent.schema)
    sql = f"CAST(({text}) AS {kind})"
    sql = guarded_on_sail(sql, kind) if guard else sql
    if not parse(kind).is_floating:
        return sql
    sql = f"{sql} + CAST(0 AS {kind})"
    return f"nanvl({sql}, CAST('NaN' AS {kind}))" if guard else sql


def _overflow(step: WindowAggregate, name: str, aggregate: AnyAggregate) -> str:
    """SQL text that builds the message of the kernel's overflow error, with the key of the group."""
    error = overflow(name, aggregate.expression or "", step.schema[name].type, "\0" if step.keys else "")
    before, _, after = f"floodmark.core.errors.ExecutionError: {error}".partition("\0")
    key = (f"concat({spark_literal(f'{k}=')}, coalesce(CAST(k{i} AS string), 'null'))" for i, k in enumerate(step.keys))
    return f"concat({spark_literal(before)}, concat_ws(', ', {', '.join(key) or spark_literal('')}), {spark_literal(after)})"
