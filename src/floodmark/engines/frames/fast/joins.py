"""Bounded runs of regular joins as joins of the engine: its optimiser chooses which side is copied to all workers, and how the others are divided.

These are joins without a time to live over rows that are never taken back. The rows are those of the kernel: each pair with the later event time of
its two, each row without a partner with its own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from pyspark.sql import DataFrame

from floodmark.core.time import Interval
from floodmark.core.types import parse
from floodmark.engines.frames.compile import compiled, plain_zero, without_filtered
from floodmark.engines.frames.expressions import Rendering, as_written, expr
from floodmark.spec.graph.operator import Operator
from floodmark.spec.graph.steps import KeyedProcess, Union, quarantines, walk
from floodmark.spec.keyed.regular import RegularJoin
from floodmark.spec.values.schema import BOUNDED, ROW, Column, Schema

_HOW = {"inner": "inner", "left": "left", "right": "right", "full": "full", "semi": "left_semi", "anti": "left_anti"}
_TIME, _STAMP = ("_left_time", "_right_time"), ("_left_watermark", "_right_watermark")


def possible(operator: Operator, step: KeyedProcess, interval: Interval) -> bool:
    """(operator of at most one stage, the stage, interval of the run) -> True if a join of the engine has the rows of the kernel."""
    function = step.function.function
    if not isinstance(function, RegularJoin):
        return False
    if function.ttl is not None or step.only is not None or not interval.everything:
        return False
    if any(given.revisable for given in operator.inputs):
        return False
    if any(quarantines(one) for _, result in operator.results for one in walk(result)):
        return False
    kinds = [parse(step.parent.schema.types[key]) for key in step.keys]
    return all(not kind.is_floating and not kind.inner for kind in kinds)


def compute(
    step: KeyedProcess, inputs: Mapping[str, DataFrame], rendering: Rendering = as_written
) -> tuple[DataFrame, Callable[[], int]]:
    """The rows of a join, stamped, and a function for the number of late rows.

    Args:
        step: of an operator for which ``possible`` is true.
        inputs: input name -> stamped rows.
        rendering: of expressions, for the session of the frames.
    """
    function, union = step.function.function, step.parent
    assert isinstance(function, RegularJoin)
    assert isinstance(union, Union)
    sides = [
        without_filtered(compiled(part, inputs, {}, rendering)).filter(f"`_kind` = {ROW}") for part in union.parents
    ]
    keys = [tuple(step.keys), tuple(f"_right_key_{number}" for number, _ in enumerate(step.keys))]
    named = []
    for tag, rows in enumerate(sides):
        united = dict(step.ports[tag].columns)
        columns = [f"{plain_zero(rows, key)} AS `{name}`" for key, name in zip(step.keys, keys[tag], strict=True)]
        columns += [f"`{united[column]}` AS `{name}`" for column, name in function.places[tag]]
        columns += [f"`_event_time` AS `{_TIME[tag]}`", f"`_watermark` AS `{_STAMP[tag]}`"]
        named.append(rows.selectExpr(*columns))
    equal = [f"`{left}` = `{right}`" for left, right in zip(*keys, strict=True)]
    if function.condition:
        equal.append(f"({rendering(function.condition, _schema(step, function))})")
    left, right = named
    joined = left.join(right, expr(left, " AND ".join(equal) or "true"), _HOW[function.kind])
    shown = {"right": "`{1}`", "full": "coalesce(`{0}`, `{1}`)"}.get(function.kind, "`{0}`")
    one_sided = function.kind in {"semi", "anti"}
    times, stamps = (f"`{of[0]}`" if one_sided else f"greatest(`{of[0]}`, `{of[1]}`)" for of in (_TIME, _STAMP))
    values = [name for side in function.places[: 1 if one_sided else 2] for _, name in side]
    result = joined.selectExpr(
        *(f"{shown.format(one, other)} AS `{one}`" for one, other in zip(*keys, strict=True)),
        *(f"`{name}`" for name in values),
        f"{times} AS `_event_time`",
        f"{stamps} AS `_watermark`",
        f"CAST({ROW} AS int) AS `_kind`",
        f"{BOUNDED}L + monotonically_increasing_id() AS `_sequence`",
    )
    late = "`_watermark` >= unix_millis(`_event_time`)"
    return result.select(
        *(f"`{name}`" for name in (*step.schema.names, "_event_time", "_watermark", "_kind", "_sequence"))
    ), lambda: sum(rows.filter(late).count() for rows in sides)


def _schema(step: KeyedProcess, function: RegularJoin) -> Schema:
    """The columns that the condition reads: the keys, and both sides' by their names in the result."""
    known = step.parent.schema
    columns = [known[key] for key in step.keys]
    for tag, side in enumerate(function.places):
        united = dict(step.ports[tag].columns)
        columns += [Column(name=name, type=known[united[column]].type) for column, name in side]
    return Schema(tuple(columns))
