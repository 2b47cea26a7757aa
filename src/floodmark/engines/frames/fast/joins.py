"""Bounded runs of joins as joins of the engine: its optimiser chooses which side is copied to all workers, and how the others are divided.

These are regular joins without a time to live, and interval joins that are not full, over rows that are never taken back. The rows are those of
the kernel: each pair with the later event time of its two, each row without a partner with its own, of an interval join with the last instant
at which a partner was possible.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pyspark.sql import DataFrame

from floodmark.core.time import END, Interval
from floodmark.core.types import parse
from floodmark.engines.frames.compile import compiled, plain_key, without_filtered
from floodmark.engines.frames.expressions import Rendering, as_written, expr
from floodmark.engines.frames.fast.lateness import LATE, Number, counted
from floodmark.engines.frames.results import Computed, Outputs, bounds
from floodmark.spec.graph.operator import Operator
from floodmark.spec.graph.steps import IntervalJoin, KeyedProcess, Step, Union, WindowAggregate, quarantines, walk
from floodmark.spec.keyed.regular import RegularJoin
from floodmark.spec.values.schema import BOUNDED, ROW, Column, Schema

Joined = tuple[DataFrame, Number]
"""The rows of a join, stamped, and the number of late rows: they count in a regular join, and are dropped from an interval join."""

HOW = {"inner": "inner", "left": "left", "right": "right", "full": "full", "semi": "left_semi", "anti": "left_anti"}
_TIME, _STAMP = ("_left_time", "_right_time"), ("_left_watermark", "_right_watermark")
_STRETCH = "_stretch"


def possible(operator: Operator, step: Step, interval: Interval) -> bool:
    """(operator of at most one stage, its last step, interval of the run) -> True if a join of the engine has the rows of the kernel."""
    return isinstance(step, (KeyedProcess, IntervalJoin)) and _is_plain(step, interval) and joinable(operator, step)


def joinable(operator: Operator, step: KeyedProcess | IntervalJoin | WindowAggregate) -> bool:
    """Whether the engine joins the rows of a step as the kernel does: all of them, none taken back or set aside, by keys that it compares alike."""
    if step.only is not None or any(given.revisable for given in operator.inputs):
        return False
    if any(quarantines(one) for _, result in operator.results for one in walk(result)):
        return False
    kinds = [parse(step.parent.schema.types[key]) for key in step.keys]
    return all(not kind.is_floating and not kind.inner for kind in kinds)


def _is_plain(step: KeyedProcess | IntervalJoin, interval: Interval) -> bool:
    """Whether a step is a join whose rows follow from the pairs alone."""
    if isinstance(step, IntervalJoin):
        return step.kind != "full"
    function = step.function.function
    return isinstance(function, RegularJoin) and function.ttl is None and interval.everything


def compute(
    step: Step, inputs: Mapping[str, DataFrame], interval: Interval, rendering: Rendering = as_written
) -> Joined:
    """The rows of a join.

    Args:
        step: of an operator for which ``possible`` is true.
        inputs: input name -> stamped rows.
        interval: of the event times of the results.
        rendering: of expressions, for the session of the frames.
    """
    if isinstance(step, IntervalJoin):
        return _within(step, sides(step, inputs, rendering), interval)
    assert isinstance(step, KeyedProcess)
    return _regular(step, sides(step, inputs, rendering), rendering)


def with_late(step: Step, outputs: Outputs, late: Number) -> Computed:
    """The outputs of a join with its number of late rows."""
    if isinstance(step, IntervalJoin):
        return Computed(outputs=outputs, dropped=late)
    return Computed(outputs=outputs, late=late)


def sides(
    step: KeyedProcess | IntervalJoin | WindowAggregate, inputs: Mapping[str, DataFrame], rendering: Rendering
) -> list[DataFrame]:
    """The rows of each side."""
    assert isinstance(step.parent, Union)
    frames = (compiled(part, inputs, {}, rendering) for part in step.parent.parents)
    return [without_filtered(side).filter(f"`_kind` = {ROW}") for side in frames]


def _keys(step: KeyedProcess | IntervalJoin) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The names of the key columns of each side."""
    return tuple(step.keys), tuple(f"_right_key_{number}" for number, _ in enumerate(step.keys))


def _named(
    step: KeyedProcess | IntervalJoin, sides: Sequence[DataFrame], names: Sequence[Sequence[tuple[str, str]]]
) -> list[DataFrame]:
    """The sides with columns of different names.

    Args:
        step: the join.
        sides: left, right.
        names: of each side (column of the union, its name).
    """
    named = []
    for tag, rows in enumerate(sides):
        columns = [f"{plain_key(rows, key)} AS `{name}`" for key, name in zip(step.keys, _keys(step)[tag], strict=True)]
        columns += [f"`{column}` AS `{name}`" for column, name in names[tag]]
        columns += [f"`_event_time` AS `{_TIME[tag]}`", f"`_watermark` AS `{_STAMP[tag]}`"]
        named.append(rows.selectExpr(*columns))
    return named


def _later(pair: tuple[str, str]) -> str:
    return f"greatest(`{pair[0]}`, `{pair[1]}`)"


def _result(
    joined: DataFrame, step: KeyedProcess | IntervalJoin, columns: Sequence[str], times: Sequence[str]
) -> DataFrame:
    """The rows of a join with their stamps: SQL of its columns, of the event time and of the watermark."""
    result = joined.selectExpr(
        *columns,
        f"{times[0]} AS `_event_time`",
        f"{times[1]} AS `_watermark`",
        f"CAST({ROW} AS int) AS `_kind`",
        f"{BOUNDED}L + monotonically_increasing_id() AS `_sequence`",
    )
    return result.select(
        *(f"`{name}`" for name in (*step.schema.names, "_event_time", "_watermark", "_kind", "_sequence"))
    )


def _within(step: IntervalJoin, sides: Sequence[DataFrame], interval: Interval) -> Joined:
    """An interval join. Time is cut into stretches as long as the interval: a row may have partners in two of them, so one side is there for two."""
    names = iter(step.schema.names[len(step.keys) :])
    one_sided, twice = step.kind in {"semi", "anti"}, 0 if step.kind == "right" else 1
    places = [
        [(column, next(names)) for _, column in port.columns if column not in step.keys]
        for port in step.ports[: 1 if one_sided else 2]
    ]
    places += [[]] * one_sided
    inside = "true" if interval.everything else bounds(interval)
    observed, numbers = _counted(sides, f"{LATE} AND {inside}")
    left, right = _named(step, [rows.filter(f"NOT ({LATE})") for rows in observed], places)
    width = step.upper - step.lower + 1
    stretches = [
        _stretch(f"(unix_millis(`{_TIME[0]}`) + ({step.lower}L))", width),
        _stretch(f"unix_millis(`{_TIME[1]}`)", width),
    ]
    stretches[twice] = f"explode(array({stretches[twice]}, {stretches[twice]} {'+-'[twice]} {width}L))"
    left = left.selectExpr("*", f"{stretches[0]} AS `{_STRETCH}`")
    right = right.selectExpr("*", f"{stretches[1]} AS `_right{_STRETCH}`")
    distance = f"(unix_millis(`{_TIME[1]}`) - unix_millis(`{_TIME[0]}`))"
    equal = [f"`{one}` = `{other}`" for one, other in zip(*_keys(step), strict=True)]
    equal += [f"`{_STRETCH}` = `_right{_STRETCH}`", f"{distance} BETWEEN {step.lower}L AND {step.upper}L"]
    joined = left.join(right, expr(left, " AND ".join(equal)), HOW[step.kind])
    shown = _keys(step)[1 if step.kind == "right" else 0]
    columns = [*(f"`{key}` AS `{name}`" for key, name in zip(shown, step.keys, strict=True))]
    columns += [f"`{name}`" for side in places for _, name in side]
    return _result(joined, step, columns, _times(step)).filter(inside), numbers


def _counted(sides: Sequence[DataFrame], condition: str) -> tuple[list[DataFrame], Number]:
    """(sides, SQL) -> the sides; the number of the rows of both for which the condition holds."""
    pairs = [counted(rows, condition) for rows in sides]
    return [rows for rows, _ in pairs], lambda: sum(number() for _, number in pairs)


def _times(step: IntervalJoin) -> tuple[str, str]:
    """SQL of event time and watermark of a result: a row without a partner has the last instant at which a partner was possible."""
    if step.kind in {"inner", "semi"}:
        return (_later(_TIME), _later(_STAMP)) if step.kind == "inner" else (f"`{_TIME[0]}`", f"`{_STAMP[0]}`")
    side = 1 if step.kind == "right" else 0
    time, stamp = _TIME[side], _STAMP[side]
    final = f"least(unix_millis(`{time}`) + ({(step.upper, -step.lower)[side]}L), {END}L)"
    alone = f"greatest(`{time}`, timestamp_millis({final}))", f"greatest(`{stamp}`, {final} - 1)"
    if step.kind == "anti":
        return alone
    lonely = f"`{_STAMP[1 - side]}` IS NULL"
    return f"if({lonely}, {alone[0]}, {_later(_TIME)})", f"if({lonely}, {alone[1]}, {_later(_STAMP)})"


def _stretch(time: str, width: int) -> str:
    """SQL of the start of the stretch that a time in ms is in."""
    return f"({time} - pmod({time}, {width}L))"


def _regular(step: KeyedProcess, sides: Sequence[DataFrame], rendering: Rendering) -> Joined:
    """A regular join."""
    function = step.function.function
    assert isinstance(function, RegularJoin)
    united = [dict(port.columns) for port in step.ports]
    places = [[(united[tag][column], name) for column, name in function.places[tag]] for tag in (0, 1)]
    observed, number = _counted(sides, LATE)
    left, right = _named(step, observed, places)
    keys = _keys(step)
    equal = [f"`{one}` = `{other}`" for one, other in zip(*keys, strict=True)]
    if function.condition:
        equal.append(f"({rendering(function.condition, _schema(step, function))})")
    joined = left.join(right, expr(left, " AND ".join(equal) or "true"), HOW[function.kind])
    shown = {"right": "`{1}`", "full": "coalesce(`{0}`, `{1}`)"}.get(function.kind, "`{0}`")
    one_sided = function.kind in {"semi", "anti"}
    times = [f"`{pair[0]}`" if one_sided else _later(pair) for pair in (_TIME, _STAMP)]
    values = [name for side in function.places[: 1 if one_sided else 2] for _, name in side]
    columns = [f"{shown.format(one, other)} AS `{one}`" for one, other in zip(*keys, strict=True)]
    return _result(joined, step, [*columns, *(f"`{name}`" for name in values)], times), number


def _schema(step: KeyedProcess, function: RegularJoin) -> Schema:
    """The columns that the condition reads: the keys, and both sides' by their names in the result."""
    known = step.parent.schema
    columns = [known[key] for key in step.keys]
    for tag, side in enumerate(function.places):
        united = dict(step.ports[tag].columns)
        columns += [Column(name=name, type=known[united[column]].type) for column, name in side]
    return Schema(tuple(columns))
