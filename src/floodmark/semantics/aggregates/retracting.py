"""Aggregates by row over rows that are retracted: each in the smallest state that its law allows.

An aggregate whose values can be subtracted keeps a total. Others keep values with how often each is there, or, where the order of arrival
counts, the values in that order; they compute their result from them. A retraction that comes before its row is remembered until the row
comes. State is plain data.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from floodmark.core.errors import user_code_boundary
from floodmark.core.types import parse
from floodmark.semantics.aggregates import sketch
from floodmark.semantics.aggregates.numbers import WIDE, order
from floodmark.semantics.aggregates.rows import Fold, from_bag
from floodmark.semantics.aggregates.table import fold, needs_bag
from floodmark.spec.windowing.aggregates import LAWS, Aggregate, AnyAggregate, Builtin

_NAN = None
"""NaN among values, where a dictionary would not find it again; nulls are never among them."""


@dataclass(frozen=True, slots=True)
class Retracting:
    """One aggregate as functions.

    Args:
        create: an empty state.
        change: (state, value, by, event time, 1 or -1) -> state, changed or new; the value may be null.
        result: state -> value of the output.
    """

    create: Callable[[], Any]
    change: Callable[[Any, Any, Any, int, int], Any]
    result: Callable[[Any], Any]


def retracting(name: str, aggregate: AnyAggregate, kind: str) -> Retracting:
    """An aggregate over rows that are retracted.

    Args:
        name: of its column, for errors.
        aggregate: a built-in one, or the user's.
        kind: Spark SQL type of its expression.
    """
    plain = fold(name, aggregate, kind)
    if isinstance(aggregate, Aggregate):
        return _bagged(plain) if needs_bag(aggregate, kind, revisable=True) else _users(name, aggregate)
    if LAWS[aggregate.function].in_order:
        return _in_order(plain)
    if aggregate.function == "approx_count_distinct":
        return _hashed(kind)
    if aggregate.function in {"min", "max"}:
        return replace(_bagged(plain), result=_least if aggregate.function == "min" else _greatest)
    if needs_bag(aggregate, kind, revisable=True):
        return _bagged(plain, aggregate if LAWS[aggregate.function].keeps_values else None)
    if aggregate.function == "count":
        return _counted(aggregate)
    return _totalled(aggregate, plain, kind)


def _counted(aggregate: Builtin) -> Retracting:
    """Rows, or values."""
    every = aggregate.expression is None

    def change(number: int, value: Any, by: Any, time: int, sign: int) -> int:  # noqa: ARG001 - one shape for all
        return number + sign if every or value is not None else number

    return Retracting(int, change, int)


def _totalled(aggregate: Builtin, plain: Fold, kind: str) -> Retracting:
    """Number and total of exact values: of a sum, of a mean."""
    decimal = parse(kind).is_decimal

    def change(state: tuple[int, Any], value: Any, by: Any, time: int, sign: int) -> tuple[int, Any]:  # noqa: ARG001 - one shape for all
        if value is None:
            return state
        total = (WIDE.add if sign > 0 else WIDE.subtract)(state[1], value) if decimal else state[1] + sign * value
        return state[0] + sign, total

    def result(state: tuple[int, Any]) -> Any:
        if aggregate.function == "mean":
            return plain.result(state)
        return plain.result(state[1] if state[0] else None)

    return Retracting(lambda: (0, 0), change, result)


def _bagged(plain: Fold, aggregate: Builtin | None = None) -> Retracting:
    """Values and how often each is there.

    Args:
        plain: computes the result from the values in ascending order.
        aggregate: one whose result is that of its values and their numbers.
    """

    def change(bag: dict[Any, int], value: Any, by: Any, time: int, sign: int) -> dict[Any, int]:  # noqa: ARG001 - one shape for all
        if isinstance(value, float):
            return _changed(bag, _NAN if math.isnan(value) else value + 0.0, sign)
        return bag if value is None else _changed(bag, value, sign)

    def result(bag: dict[Any, int]) -> Any:
        pairs = [(math.nan if value is _NAN else value, times) for value, times in bag.items() if times > 0]
        if aggregate is not None:
            return from_bag(aggregate, pairs)
        state = plain.create()
        for value, times in sorted(pairs, key=lambda pair: order(pair[0])):
            for _ in range(times):
                state = plain.add(state, value, None)
        return plain.result(state)

    return Retracting(dict, change, result)


def _least(bag: dict[Any, int]) -> Any:
    """The smallest value of a bag; None of none. NaN is the greatest number."""
    values = [value for value, times in bag.items() if times > 0]
    return min((value for value in values if value is not _NAN), default=math.nan if values else None)


def _greatest(bag: dict[Any, int]) -> Any:
    """The largest value of a bag; None of none."""
    values = [value for value, times in bag.items() if times > 0]
    return math.nan if _NAN in values else max(values, default=None)


def _changed(bag: dict[Any, int], name: Any, sign: int) -> dict[Any, int]:
    """The bag with a value more or less; a value that came as often as it was taken back is not in it."""
    times = bag.get(name, 0) + sign
    if times:
        bag[name] = times
    else:
        del bag[name]
    return bag


def _in_order(plain: Fold) -> Retracting:
    """Values, each with its ``by`` and its event time, in order of arrival; a retraction removes the first of the equal ones, by its event time if it can."""

    def change(items: list[Any], value: Any, by: Any, time: int, sign: int) -> list[Any]:
        same = [
            position
            for position, (other, other_by, _, other_sign) in enumerate(items)
            if other_sign == -sign and _same(other, value) and _same(other_by, by)
        ]
        if same:
            del items[next((position for position in same if items[position][2] == time), same[0])]
        else:
            items.append((value, by, time, sign))
        return items

    def result(items: list[Any]) -> Any:
        state = plain.create()
        for value, by, _, sign in items:
            if sign > 0:
                state = plain.add(state, value, by)
        return plain.result(state)

    return Retracting(list, change, result)


def _same(a: Any, b: Any) -> bool:
    return bool(order(a) == order(b))


def _hashed(kind: str) -> Retracting:
    """All hashes, as any value may be retracted; the result is that of the smallest ones."""

    def change(bag: dict[int, int], value: Any, by: Any, time: int, sign: int) -> dict[int, int]:  # noqa: ARG001 - one shape for all
        if value is None:
            return bag
        return _changed(bag, sketch.hash_of(value + 0.0 if isinstance(value, float) else value, kind), sign)

    def result(bag: dict[int, int]) -> int:
        hashes: set[int] = set()
        for number, times in bag.items():
            hashes = sketch.sketch_add(hashes, number) if times > 0 else hashes
        return sketch.sketch_count(hashes)

    return Retracting(dict, change, result)


def _users(name: str, aggregate: Aggregate) -> Retracting:
    """An aggregate of the user's that takes a value out again, each call inside ``user_code_boundary``."""
    own: Any = aggregate

    def change(state: Any, value: Any, by: Any, time: int, sign: int) -> Any:  # noqa: ARG001 - one shape for all
        if value is None:
            return state
        call, what = (own.add, "add") if sign > 0 else (own.retract, "retract")
        with user_code_boundary(f"aggregate '{name}', {what}()", f"The value was {value!r}."):
            return call(own.create() if state is None else state, value)

    def result(state: Any) -> Any:
        with user_code_boundary(f"aggregate '{name}', result()"):
            return own.result(own.create() if state is None else state)

    return Retracting(lambda: None, change, result)
