"""Bounded runs of window joins as joins of the engine, by the keys and the window: the pairs of the kernel, whose order says nothing.

These are joins over tumbling, sliding and cumulative windows without refires, and calendar windows over an interval, of rows that are never
taken back.
"""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import DataFrame

from floodmark.core.time import Interval
from floodmark.core.types import parse
from floodmark.engines.frames.compile import plain_key
from floodmark.engines.frames.expressions import Rendering, as_written, expr
from floodmark.engines.frames.fast import joins, windows
from floodmark.engines.frames.fast.lateness import Number, reads_only, watched
from floodmark.spec.graph.operator import Operator
from floodmark.spec.graph.steps import Expect, Filter, Project, Read, Stateful, Step, Union, WindowAggregate, walk
from floodmark.spec.keyed.matching import WindowJoin
from floodmark.spec.values.run import LateRows


def possible(operator: Operator, step: Step, interval: Interval, late_rows: LateRows) -> bool:
    """(operator of at most one stage, its last step, interval of the run) -> True if a join of the engine has the rows of the kernel."""
    if not isinstance(step, WindowAggregate) or _function(step) is None or not step.fires_once_on_grid:
        return False
    if (step.allowed_lateness and late_rows != "all") or windows.grid_of(step, interval) is None:
        return False
    return joins.joinable(operator, step)


def a_window_each(operator: Operator, step: Step) -> int | None:
    """The side of an inner join, 0 or 1, that has at most one short row for each window: the aggregates of a stage without keys; None for neither side."""
    if not isinstance(step, WindowAggregate) or not isinstance(step.parent, Union):
        return None
    function = _function(step)
    if function is None or function.kind != "inner":
        return None
    inputs = {one.name: one for one in operator.inputs}
    for tag, side in enumerate(step.parent.parents):
        *behind, read = reversed(tuple(walk(side)))
        upstream = inputs[read.input].upstream if isinstance(read, Read) else None
        stage = upstream.operator.stateful if upstream is not None and upstream.operator.whole is not None else None
        if _has_a_short_row(stage) and all(isinstance(one, (Expect, Filter, Project)) for one in behind):
            return tag
    return None


def _has_a_short_row(stage: Stateful | None) -> bool:
    """Whether a stage has at most one row for each window, of values of a fixed size: ``distinct`` may have an element for each row that it reads."""
    if not isinstance(stage, WindowAggregate) or stage.keys or not stage.fires_once_on_grid or not stage.columnar:
        return False
    kinds = map(parse, stage.schema.types.values())
    return all(not kind.inner and kind.name not in {"string", "binary"} for kind in kinds)


def compute(
    step: WindowAggregate,
    inputs: Mapping[str, DataFrame],
    interval: Interval,
    rendering: Rendering = as_written,
    first: int = 0,
    on_time: frozenset[str] = frozenset(),
) -> tuple[DataFrame, Number]:
    """The rows of a join, and the number of dropped (row, window) pairs, to be asked for after the rows are computed.

    Args:
        step: of an operator for which ``possible`` is true.
        inputs: input name -> stamped rows.
        interval: only windows whose last millisecond lies in the interval are computed.
        rendering: of expressions, for the session of the frames.
        first: of an inner join, the side that stands first in the engine's join: the one that Sail holds in memory.
        on_time: names of the inputs whose rows are never late.
    """
    function = _function(step)
    assert function is not None
    assert isinstance(step.parent, Union)
    keys, counting, dropped = range(len(step.keys)), list[DataFrame](), list[Number]()
    for tag, side in enumerate(joins.sides(step, inputs, rendering)):
        united = dict(function.ports[tag].columns)
        rows, behind = (side, None) if reads_only(step.parent.parents[tag], on_time) else watched(side)
        pairs = windows.with_ends(step, rows, interval).selectExpr(
            *(f"{plain_key(rows, key)} AS s{tag}k{i}" for i, key in enumerate(step.keys)),
            *(f"`{united[own]}` AS s{tag}v{i}" for i, (own, _) in enumerate(function.places[tag])),
            f"`_end` AS s{tag}end",
            "_end - 1 <= _watermark AS _late",
        )
        judged, number = windows.without_late(pairs, behind)
        counting.append(judged)
        dropped.append(number)
    equal = [*(f"s0k{i} = s1k{i}" for i in keys), "s0end = s1end"]
    sides = counting[first], counting[1 - first]
    joined = sides[0].join(sides[1], expr(sides[0], " AND ".join(equal)), joins.HOW[function.kind])
    shown = {"right": "s1{0}", "full": "coalesce(s0{0}, s1{0})"}.get(function.kind, "s0{0}")
    values = [(f"s{tag}v{i}", name) for tag in (0, 1) for i, (_, name) in enumerate(function.places[tag])]
    results = joined.selectExpr(
        *(f"{shown.format(f'k{i}')} AS k{i}" for i in keys),
        f"{shown.format('end')} AS `_end`",
        *(f"{value} AS m{i}" for i, (value, _) in enumerate(values)),
    )
    stamped = windows.stamped(step, results, [name for _, name in values], interval)
    return stamped, lambda: sum(number() for number in dropped)


def _function(step: WindowAggregate) -> WindowJoin | None:
    call = None if step.function is None else step.function.call
    return call if isinstance(call, WindowJoin) else None
