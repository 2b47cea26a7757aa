"""Late rows of bounded runs: their number beside the results, and for ``--late-rows all`` the stamps of rows that all count as on time.

Spark observes them while it computes the results, so they cost no query. Sail has no observations, and a client of Spark Connect has none of a
plan that adaptive execution has left out: these count by a query.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

from py4j.protocol import Py4JJavaError
from pyspark.sql import DataFrame, Observation
from pyspark.sql import functions as F

from floodmark.core.time import NEVER
from floodmark.engines.frames.client import is_connected
from floodmark.spec.graph.operator import Input, Operator
from floodmark.spec.graph.steps import KeyedProcess, Read, Step, WindowAggregate, walk

Number = Callable[[], int]
"""A number of rows, to be asked for after the results are computed."""

_BEFORE_THE_ROW = "least(`_watermark`, unix_millis(`_event_time`) - 1)"
LATE = "`_watermark` >= unix_millis(`_event_time`)"
"""SQL: a row lies at or before its own watermark."""


def counted(rows: DataFrame, condition: str) -> tuple[DataFrame, Number]:
    """(rows, SQL) -> the rows, of which the results have to be computed; the number of those for which the condition holds."""
    if is_connected(rows):
        return rows, cache(lambda: rows.filter(condition).count())
    return _observed(rows, condition)


def watched(rows: DataFrame) -> tuple[DataFrame, Number]:
    """(rows) -> the rows, of which the results have to be computed; a number that is 0 if none of them is late."""
    if is_connected(rows):
        return rows, cache(lambda: rows.filter(LATE).limit(1).count())
    return _observed(rows, LATE)


def totals(rows: DataFrame, *texts: str) -> tuple[DataFrame, Callable[[], tuple[int, ...]]]:
    """(rows, SQL of aggregates) -> the rows, of which the results have to be computed by Spark; the aggregates."""
    observation = Observation()
    aggregates = [F.expr(text).alias(f"n{place}") for place, text in enumerate(texts)]

    @cache
    def numbers() -> tuple[int, ...]:
        try:
            observed = observation.get
        except Py4JJavaError:  # adaptive execution leaves an empty plan out, and its observation too
            observed = rows.agg(*aggregates).collect()[0].asDict()
        return tuple(int(observed[f"n{place}"] or 0) for place in range(len(texts)))

    return rows.observe(observation, *aggregates), numbers


def _observed(rows: DataFrame, condition: str) -> tuple[DataFrame, Number]:
    observed, numbers = totals(rows, f"count_if({condition})")
    return observed, lambda: numbers()[0]


def on_time(operator: Operator) -> frozenset[str]:
    """The names of the inputs whose rows are never late: results inside the operator of windows that come out once, each stamped just before its own time."""
    return frozenset(each.name for each in operator.inputs if _comes_once(each))


def _comes_once(read: Input) -> bool:
    stage = read.upstream.operator.stateful if read.inner and read.upstream is not None else None
    return isinstance(stage, WindowAggregate) and stage.once_on_grid and stage.allowed_lateness == 0


def reads_only(step: Step, names: frozenset[str]) -> bool:
    """(step, names of inputs) -> True if all rows of the step are from these inputs."""
    return all(read.input in names for read in walk(step) if isinstance(read, Read))


def watermark_on_time(operator: Operator) -> str:
    """SQL of the ``_watermark`` under which every input row of an operator is on time.

    A process function sees progress between its rows, so a row that is on time keeps its watermark, and its timers fire as they do in the
    stream. Other steps are computed as if no progress were made before the last row.
    """
    return _BEFORE_THE_ROW if isinstance(operator.stateful, KeyedProcess) else f"CAST({NEVER} AS bigint)"
