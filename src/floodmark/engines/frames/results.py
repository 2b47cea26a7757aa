"""The outputs of a bounded run as DataFrames: conditions for the rows of an interval, and the steps after the stateful step."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from pyspark.sql import DataFrame

from floodmark.core.time import END, NEVER, Interval
from floodmark.engines.frames.compile import compiled, failures, without_failures
from floodmark.engines.frames.expressions import Rendering, as_written, with_columns
from floodmark.spec.graph import steps
from floodmark.spec.graph.operator import Operator, Output
from floodmark.spec.values.schema import PARTITION, STAMPS

Outputs = tuple[tuple[Output, DataFrame], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Computed:
    """The rows of every output for one interval, not written yet, with the counts of late and dropped rows."""

    outputs: Outputs
    late: int = 0
    dropped: Callable[[], int] = lambda: 0
    """To be called after the first output is computed."""
    held: tuple[DataFrame, ...] = ()
    """Cached frames, to be freed after the outputs are written."""


def bounds(interval: Interval) -> str:
    """The SQL condition for the rows of an interval of event time."""
    low, high = (f"timestamp_millis({ms})" for ms in (max(interval.start, NEVER), min(interval.end, END)))
    return f"`_event_time` >= {low} AND `_event_time` < {high}"


def ended(computed: Computed, interval: Interval) -> Computed:
    """The results of a window over all of time, computed from the rows of an interval, as those of a window that ends with the interval."""
    last = min(interval.end - 1, END)

    def relabelled(rows: DataFrame) -> DataFrame:
        time = f"{last}" if dict(rows.dtypes)["_event_time"] == "bigint" else f"timestamp_millis({last})"
        stamps = {"_event_time": f"least(`_event_time`, {time})", "_watermark": f"least(`_watermark`, {last - 1})"}
        return with_columns(rows, stamps)

    return replace(computed, outputs=tuple((output, relabelled(rows)) for output, rows in computed.outputs))


def latest(rows: DataFrame, output: Output) -> DataFrame:
    """The last row of each key in rows of a changelog without markers; a retraction if the key has no value at the end."""
    keys = ", ".join(f"`{key}`" for key in output.keys)
    order = f"row_number() OVER (PARTITION BY {keys} ORDER BY `_sequence` DESC, `_kind` DESC) AS `_place`"
    return rows.selectExpr("*", order).filter("`_place` = 1").drop("_place")


def stateless(
    operator: Operator,
    inputs: Mapping[str, DataFrame],
    rendering: Rendering = as_written,
    known: Mapping[steps.Step, DataFrame] | None = None,
) -> Outputs:
    """The outputs of an operator without state.

    Args:
        operator: without a stateful step.
        inputs: input name -> stamped rows.
        rendering: of expressions, for the session of the frames.
        known: step -> its DataFrame, of steps that are computed already.
    """
    results = [
        (operator.output(n), without_failures(compiled(r, inputs, known, rendering))) for n, r in operator.results
    ]
    failed = failures(operator, inputs, known, rendering)
    return tuple(results + ([(operator.output("quarantine"), failed)] if failed else []))


def with_results(
    operator: Operator,
    step: steps.Stateful,
    rows: DataFrame,
    sides: Mapping[str, DataFrame],
    rendering: Rendering = as_written,
    behind: Callable[[dict[steps.Step, DataFrame]], dict[steps.Step, DataFrame]] = lambda known: known,
) -> Outputs:
    """The outputs of an operator, computed from the results of its stateful step.

    Args:
        operator: with a stateful step.
        step: the stateful step.
        rows: results of the step.
        sides: side output -> its rows.
        rendering: of expressions, for the session of the frames.
        behind: (step -> DataFrame, of the stateful step) -> the same with more steps that are computed already.
    """
    if any(result is not step for _, result in operator.results):
        rows = _whole(rows)
    known = behind({step: rows})
    results = [(operator.output(n), without_failures(compiled(r, {}, known, rendering))) for n, r in operator.results]
    after = failures(operator, {}, known, rendering)
    if after is not None:
        before = sides.get("quarantine")
        sides = {**sides, "quarantine": after if before is None else before.unionByName(after)}
    return tuple(results + [(output, sides[output.name]) for output in operator.outputs if output.side])


def _whole(rows: DataFrame) -> DataFrame:
    """Results with all stamps, as input of the following steps."""
    if dict(rows.dtypes)["_event_time"] == "bigint":
        rows = with_columns(rows, {"_event_time": "timestamp_millis(`_event_time`)"})
    missing = {"_progress": "CAST(NULL AS bigint)", "_ingest_time": "current_timestamp()"}
    return with_columns(rows, {name: text for name, text in missing.items() if name not in rows.columns})


def stamped(rows: DataFrame, output: Output) -> DataFrame:
    """Rows of a bounded run with all columns of the output's table in order, its partition column too; ``_event_time`` may be ms or timestamp."""
    if dict(rows.dtypes)["_event_time"] == "bigint":
        rows = with_columns(rows, {"_event_time": "timestamp_millis(`_event_time`)"})
    rows = with_columns(rows, {"_progress": "CAST(NULL AS bigint)", "_ingest_time": "current_timestamp()"})
    names = [f"`{name}`" for name in (*output.schema.names, *STAMPS)]
    partition = [] if output.partitions is None else [f"{output.partitions.sql()} AS {PARTITION}"]
    return rows.selectExpr(*names, *partition)
