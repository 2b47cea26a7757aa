"""Bounded runs of sessions as SQL: the rows of a key in the order of their times, and a new session where the one before has ended.

Which session a row finds open is decided by its stamp. Where the rows of a key arrive in the order of their times, the row before says it. Where they
do not, sessions are those of the times alone, as long as no stamp has come to the end of a session to which a later row belongs: runs with a key of
which both is true are left to the kernel. These are sessions of one gap that fire once, of the rows of one source, with aggregates that SQL has too.
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from floodmark.core.time import END, Interval
from floodmark.core.types import parse
from floodmark.engines.frames.compile import without_filtered
from floodmark.engines.frames.expressions import Rendering, as_written, expr, on_sail
from floodmark.engines.frames.fast import ranked, windows
from floodmark.engines.frames.fast.windows import Measured
from floodmark.engines.frames.portions import is_stamped
from floodmark.semantics.aggregates.table import sql_of
from floodmark.spec.graph.operator import Operator
from floodmark.spec.graph.steps import Union, WindowAggregate, quarantines, walk
from floodmark.spec.values.run import LateRows
from floodmark.spec.windowing.aggregates import Builtin
from floodmark.spec.windowing.windows import Session

_FLAGS = ("_dropped", "_disordered", "_doubtful")
"""Whether rows of a session, 0 or 1: come too late; come in another order than that of their times; may have found the session ended."""

_OF_ANY_ROWS = ("count", "sum", "mean", "min", "max")
"""Aggregates that Spark merges from session to session."""


def possible(operator: Operator, interval: Interval, late_rows: LateRows, measured: Measured = sql_of) -> bool:
    """Whether SQL has the sessions of the kernel, unless ``judged`` says of the rows that it may not."""
    step = operator.stateful
    if not isinstance(step, WindowAggregate) or not isinstance(step.window, Session) or step.time != "event":
        return False
    special = step.trigger or step.evictor or step.function or step.allowed_lateness or step.order
    own = step.accumulation != "accumulating" or step.own_aggregates or step.only is not None or ranked.orders(step)
    if special or own or not isinstance(step.window.gap, int) or not interval.everything:
        return False
    steps = [one for _, result in operator.results for one in walk(result)]
    if any(quarantines(one) or isinstance(one, Union) for one in steps) or any(o.side for o in operator.outputs):
        return False
    if not is_stamped(operator, late_rows) or any(given.revisable or given.inner for given in operator.inputs):
        return False
    kinds = [parse(step.parent.schema.types[key]) for key in step.keys]
    return windows.has_sql(step, measured) and all(not kind.is_floating and not kind.inner for kind in kinds)


def has_windows_of_spark(step: WindowAggregate) -> bool:
    """Whether Spark aggregates over its own windows of sessions what a step does."""
    return all(isinstance(a, Builtin) and a.function in _OF_ANY_ROWS for _, a in step.aggregates)


def by_time(step: WindowAggregate, rows: DataFrame) -> DataFrame:
    """As ``grouped``, by Spark's own windows of sessions, which know the times of rows alone: a session is doubtful if its rows have stamps that can have closed one.

    A row whose stamp is more than a millisecond behind its time comes too late for no session, and finds the one that it is in, or touches, open.

    Args:
        step: of an operator for which a run is ``possible``, and ``has_windows_of_spark``.
        rows: input of the step, stamped.
    """
    assert isinstance(step.window, Session)
    gap, keys = int(step.window.gap), [f"k{i}" for i, _ in enumerate(step.keys)]
    values = (windows.argument(step, a.expression, as_written, guard=False) for _, a in step.aggregates)
    read = without_filtered(rows).selectExpr(
        *(f"`{name}` AS {key}" for name, key in zip(step.keys, keys, strict=True)),
        *(f"{value} AS v{i}" for i, value in enumerate(values)),
        "unix_millis(`_event_time`) AS _t",
        "`_watermark` AS _w",
        "timestamp_millis(unix_millis(`_event_time`)) AS _at",
    )
    doubt = f"max(CASE WHEN _w >= _t - 1 OR _t >= {END - gap - 1} THEN 1 ELSE 0 END)"
    texts = {"_start": "min(_t)", "_end": f"max(_t) + {gap}", "_dropped": "0", "_disordered": doubt, "_doubtful": doubt}
    made = [expr(read, text).alias(name) for name, text in texts.items()]
    in_sessions = read.groupBy(*keys, F.session_window("_at", f"{gap} milliseconds"))
    return in_sessions.agg(*made, *windows.measures(step, read, sql_of)).drop("session_window")


def grouped(
    step: WindowAggregate, rows: DataFrame, rendering: Rendering = as_written, measured: Measured = sql_of
) -> DataFrame:
    """The sessions: keys ``k``, ``_start``, ``_end``, aggregates ``m``, and flags. To be computed once, and kept.

    Args:
        step: of an operator for which a run is ``possible``.
        rows: input of the step, stamped.
        rendering: of expressions, for the session of the frames.
        measured: rendering of aggregates.
    """
    assert isinstance(step.window, Session)
    gap, guard = int(step.window.gap), on_sail(rows)
    keys = [f"k{i}" for i, _ in enumerate(step.keys)]
    values = (windows.argument(step, a.expression, rendering, guard=guard) for _, a in step.aggregates)
    read = without_filtered(rows).selectExpr(
        *(f"`{name}` AS {key}" for name, key in zip(step.keys, keys, strict=True)),
        *(f"{value} AS v{i}" for i, value in enumerate(values)),
        "unix_millis(`_event_time`) AS _t",
        "`_watermark` AS _w",
        "`_sequence` AS _q",
    )
    within = f"PARTITION BY {', '.join(keys)} " if keys else ""
    before = read.selectExpr(
        "*", *(f"lag({name}) OVER ({within}ORDER BY _t, _q) AS _before{name}" for name in ("_t", "_w", "_q"))
    )
    touches, last = f"_before_t + {gap} >= _t", f"_before_t + {gap - 1}"
    dropped, edge = f"_t + {gap - 1} <= _w", f"greatest(_t, _w) >= {END - gap - 1}"
    flags = {
        "_begins": f"_before_t IS NULL OR NOT ({touches}) OR {last} <= _w",
        "_dropped": dropped,
        "_disordered": f"coalesce(_before_q > _q, false) OR {edge}",
        "_doubtful": f"{dropped} OR {edge} OR coalesce({touches} AND {last} <= greatest(_w, _before_w), false)",
    }
    seen = before.selectExpr(
        *keys,
        *(f"v{i}" for i, _ in enumerate(step.aggregates)),
        "_t",
        "_q",
        *(f"CASE WHEN {text} THEN 1 ELSE 0 END AS {name}" for name, text in flags.items()),
    )
    count = f"sum(_begins) OVER ({within}ORDER BY _t, _q ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW)"
    numbered = seen.selectExpr("*", f"{count} AS _number")
    texts = {"_start": "min(_t)", "_end": f"max(_t) + {gap}", **{name: f"max({name})" for name in _FLAGS}}
    sessions = [expr(numbered, text).alias(name) for name, text in texts.items()]
    return numbered.groupBy(*keys, "_number").agg(*sessions, *windows.measures(step, numbered, measured))


def judged(step: WindowAggregate, sessions: DataFrame) -> tuple[bool, int]:
    """Whether the stream may have had other sessions of a key than SQL; how many rows came too late, each of which is a session of its own here."""
    keys = [f"k{i}" for i, _ in enumerate(step.keys)]
    texts = [f"max({name})" for name in ("_disordered", "_doubtful")] + ["sum(_dropped)"]
    by_key = sessions.groupBy(*keys).agg(*(expr(sessions, text).alias(f"b{n}") for n, text in enumerate(texts)))
    totals = ("sum(CASE WHEN b0 = 1 AND b1 = 1 THEN 1 ELSE 0 END)", "sum(b2)")
    both, dropped = by_key.agg(*(expr(sessions, text).alias(f"t{n}") for n, text in enumerate(totals))).collect()[0]
    return bool(both), int(dropped or 0)


def overflows(error: Exception) -> bool:
    """Whether an error of the engine says that a total does not fit. SQL may have such a total where the kernel has none: of rows that came too late."""
    return "EXECUTION-001 " in str(error)


def results(step: WindowAggregate, sessions: DataFrame, interval: Interval) -> DataFrame:
    """The results of the step, stamped."""
    on_time = sessions.filter("_dropped = 0")
    return windows.stamped(step, on_time, [name for name, _ in step.aggregates], interval, start="_start")
