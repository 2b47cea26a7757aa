"""The outputs of a bounded run as DataFrames: conditions for the rows of an interval, the steps after the stateful step, and link after link."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import reduce
from pathlib import Path

from pyspark.sql import DataFrame

from floodmark.core.time import END, NEVER, Interval
from floodmark.engines.frames.compile import compiled, failures, without_failures
from floodmark.engines.frames.expressions import Rendering, as_written, with_columns
from floodmark.lake.results.needs import stretches
from floodmark.spec.graph import steps
from floodmark.spec.graph.operator import Operator, Output
from floodmark.spec.values.schema import PARTITION, ROW, STAMPS

Outputs = tuple[tuple[Output, DataFrame], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ready:
    """Files of an output that are computed already.

    Args:
        rows: folder of files of complete rows.
        last: folder of the last row of each key; None if that is not computed.
    """

    rows: Path
    last: Path | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Computed:
    """The rows of every output for one interval, not written yet, with the counts of late and dropped rows."""

    outputs: Outputs
    late: Callable[[], int] = lambda: 0
    """To be called after the first output is computed."""
    dropped: Callable[[], int] = lambda: 0
    """As ``late``."""
    held: tuple[DataFrame, ...] = ()
    """Cached frames, to be freed after the outputs are written."""
    ready: Mapping[str, Ready] = field(default_factory=dict)
    """Output table -> the files of its rows, for tables whose rows lie in files already."""


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

    return replace(computed, outputs=tuple((output, relabelled(rows)) for output, rows in computed.outputs), ready={})


def latest(rows: DataFrame, output: Output) -> DataFrame:
    """The last row of each key in rows of a changelog without markers; a retraction if the key has no value at the end.

    Of a multiset the rows that are not retracted, each as often as it counts.
    """
    if not output.keys:
        own = ", ".join(f"`{name}`" for name in output.schema.names)
        left = f"sum(CASE `_kind` WHEN {ROW} THEN 1 ELSE -1 END) OVER (PARTITION BY {own}) AS `_left`"
        copy = f"row_number() OVER (PARTITION BY {own} ORDER BY `_kind` DESC, `_sequence` DESC) AS `_copy`"
        remaining = rows.selectExpr("*", left, copy).filter(f"`_kind` = {ROW} AND `_copy` <= `_left`")
        return remaining.drop("_left", "_copy")
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
        rows = whole(rows)
    known = behind({step: rows})
    results = [(operator.output(n), without_failures(compiled(r, {}, known, rendering))) for n, r in operator.results]
    after = failures(operator, {}, known, rendering)
    if after is not None:
        before = sides.get("quarantine")
        sides = {**sides, "quarantine": after if before is None else before.unionByName(after)}
    return tuple(results + [(output, sides[output.name]) for output in operator.outputs if output.side])


def whole(rows: DataFrame) -> DataFrame:
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


# ---- several stages


Linked = Callable[[int, Operator, dict[str, DataFrame], Interval], Computed]
"""(number of a link, the link, input name -> its rows, interval) -> the rows of its outputs for the interval."""


def linked(operator: Operator, inputs: Mapping[str, DataFrame], interval: Interval, computed: Linked) -> Computed:
    """All outputs of an operator for an interval.

    Counts of late and dropped rows are those of the event time over which each link is computed, which may be longer than the interval.

    Args:
        operator: any.
        inputs: input name -> its rows, stamped.
        interval: of event time.
        computed: computes one link.
    """
    links = operator.links
    if len(links) == 1:
        return computed(0, operator, dict(inputs), interval)
    known, parts, made = dict(inputs), dict[str, list[DataFrame]](), list[Computed]()
    ready = dict[str, Ready]()
    for number, (link, own) in enumerate(zip(links, stretches(operator, interval), strict=True)):
        made.append(computed(number, link, {given.name: known[given.name] for given in link.inputs}, own))
        for output, rows in made[-1].outputs:
            if link is not links[-1] and output.side is None:
                known[output.name] = whole(rows)
                continue
            inside = rows if own == interval else whole(rows).filter(bounds(interval))
            parts.setdefault(output.table, []).append(inside)
            if own == interval and output.table in made[-1].ready:
                ready[output.table] = made[-1].ready[output.table]
    return Computed(
        outputs=tuple((output, reduce(DataFrame.unionByName, parts[output.table])) for output in operator.outputs),
        late=lambda: sum(one.late() for one in made),
        dropped=lambda: sum(one.dropped() for one in made),
        held=tuple(frame for one in made for frame in one.held),
        ready={table: files for table, files in ready.items() if len(parts[table]) == 1},
    )
