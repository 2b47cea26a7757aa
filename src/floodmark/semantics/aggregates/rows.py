"""Aggregates by row: for windows whose rows have an order. A fold's accumulator is plain data; ``add`` and ``merge`` return it, changed or new."""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any

from floodmark.core.errors import user_code_boundary
from floodmark.core.types import parse
from floodmark.semantics.aggregates import sketch
from floodmark.semantics.aggregates.numbers import (
    WIDE,
    fits,
    order,
    overflow,
    spread_add,
    spread_merge,
)
from floodmark.spec.windowing.aggregates import Aggregate, Builtin, Percentile, total_type

_NAN = None
"""NaN in a bag, where a dictionary would not find it again; nulls are never in one."""


@dataclass(frozen=True, slots=True)
class Fold:
    """One aggregate as functions.

    Args:
        create: an empty accumulator.
        add: (accumulator, value, by) -> accumulator; the value may be null.
        merge: (earlier, later) -> accumulator.
        result: accumulator -> value of the output.
    """

    create: Callable[[], Any]
    add: Callable[[Any, Any, Any], Any]
    merge: Callable[[Any, Any], Any]
    result: Callable[[Any], Any]


def with_one_zero(fold: Fold) -> Fold:
    """The fold with -0.0 read as 0.0."""
    added = fold.add

    def add(state: Any, value: Any, by: Any) -> Any:
        if isinstance(value, float):
            value += 0.0
        if isinstance(by, float):
            by += 0.0
        return added(state, value, by)

    return replace(fold, add=add)


def of_values(
    create: Callable[[], Any], add: Callable[[Any, Any], Any], merge: Callable[[Any, Any], Any], result: Any
) -> Fold:
    """A fold that passes over nulls and needs no ``by``."""
    return Fold(create, lambda state, value, by: state if value is None else add(state, value), merge, result)  # noqa: ARG005 - one shape for all


# ---- one function per aggregate: (name of the output column, declaration, type of its expression) -> fold


def counts(name: str, aggregate: Builtin, kind: str) -> Fold:  # noqa: ARG001 - one shape for all
    """Rows, or values."""
    if aggregate.expression is None:
        return Fold(int, lambda state, value, by: state + 1, operator.add, _same)  # noqa: ARG005 - one shape for all
    return of_values(int, lambda state, value: state + 1, operator.add, _same)  # noqa: ARG005 - one shape for all


def totals(name: str, aggregate: Builtin, kind: str) -> Fold:
    """Exact for integers and decimals; null without values."""
    total, plus = total_type(kind), _plus(kind)
    scale = parse(total).scale if parse(kind).is_decimal else None

    def result(state: Any) -> Any:
        if state is not None and parse(kind).is_exact and not fits(state, scale):
            raise overflow(name, aggregate.expression or "", total)
        return state

    return of_values(
        lambda: None,
        lambda state, value: value if state is None else plus(state, value),
        lambda left, right: (
            plus(left, right) if left is not None and right is not None else right if left is None else left
        ),
        result,
    )


def means(name: str, aggregate: Builtin, kind: str) -> Fold:  # noqa: ARG001 - one shape for all
    """An exact total for integers and decimals, divided at the end."""
    plus = _plus(kind)
    return of_values(
        lambda: (0, 0 if parse(kind).is_exact else 0.0),
        lambda state, value: (state[0] + 1, plus(state[1], value)),
        lambda left, right: (left[0] + right[0], plus(left[1], right[1])),
        lambda state: float(state[1]) / state[0] if state[0] else None,
    )


def _plus(kind: str) -> Callable[[Any, Any], Any]:
    return WIDE.add if parse(kind).is_decimal else operator.add


def deviations(name: str, aggregate: Builtin, kind: str) -> Fold:  # noqa: ARG001 - one shape for all
    """See ``numbers.spread_add``."""
    return of_values(
        lambda: (0, 0.0, 0.0, 0.0), lambda state, value: spread_add(state, float(value)), spread_merge, _deviation
    )


def _deviation(state: tuple[int, float, float, float]) -> float | None:
    if state[0] <= 1:
        return None
    return math.sqrt(state[3] / (state[0] - 1)) if not state[3] < 0 else 0.0


def least(name: str, aggregate: Builtin, kind: str) -> Fold:  # noqa: ARG001 - one shape for all
    """The smallest value."""
    better = _better(operator.lt, _same)
    return of_values(lambda: None, better, better, _same)


def greatest(name: str, aggregate: Builtin, kind: str) -> Fold:  # noqa: ARG001 - one shape for all
    """The largest value."""
    better = _better(operator.gt, _same)
    return of_values(lambda: None, better, better, _same)


def least_by(name: str, aggregate: Builtin, kind: str) -> Fold:  # noqa: ARG001 - one shape for all
    """The value beside the smallest ``by``; the first on ties, in order of arrival."""
    return _beside(operator.lt)


def greatest_by(name: str, aggregate: Builtin, kind: str) -> Fold:  # noqa: ARG001 - one shape for all
    """The value beside the largest ``by``; the first on ties, in order of arrival."""
    return _beside(operator.gt)


def _beside(comes_before: Callable[[Any, Any], bool]) -> Fold:
    """The value beside the ``by`` that comes before all others; most rows have none, which is seen without making anything."""

    def add(state: Any, value: Any, by: Any) -> Any:
        if by is None:
            return state
        if state is not None:
            first = state[1]
            by_floats = isinstance(by, float) or isinstance(first, float)
            if not (comes_before(order(by), order(first)) if by_floats else comes_before(by, first)):
                return state
        return value, by

    return Fold(lambda: None, add, _better(comes_before, operator.itemgetter(1)), _first_of)


def _better(comes_before: Callable[[Any, Any], bool], rank: Callable[[Any], Any]) -> Callable[[Any, Any], Any]:
    """(state, candidate) -> the candidate where its rank comes before that of the state, else the state; a rank of null never does."""

    def better(state: Any, candidate: Any) -> Any:
        if candidate is None or rank(candidate) is None:
            return state
        if state is None or comes_before(order(rank(candidate)), order(rank(state))):
            return candidate
        return state

    return better


def firsts(name: str, aggregate: Builtin, kind: str) -> Fold:  # noqa: ARG001 - one shape for all
    """The value of the first row."""
    return Fold(tuple, lambda state, value, by: state or (value,), lambda a, b: a or b, _first_of)  # noqa: ARG005 - one shape for all


def lasts(name: str, aggregate: Builtin, kind: str) -> Fold:  # noqa: ARG001 - one shape for all
    """The value of the last row."""
    return Fold(tuple, lambda state, value, by: (value,), lambda a, b: b or a, _first_of)  # noqa: ARG005 - one shape for all


def collected(name: str, aggregate: Builtin, kind: str) -> Fold:  # noqa: ARG001 - one shape for all
    """All values."""
    return of_values(list, _appended, operator.add, list)


def _appended(values: list[Any], value: Any) -> list[Any]:
    values.append(value)
    return values


def hashed(name: str, aggregate: Builtin, kind: str) -> Fold:  # noqa: ARG001 - one shape for all
    """See ``sketch``."""
    return of_values(
        set,
        lambda state, value: sketch.sketch_add(state, sketch.hash_of(value, kind)),
        sketch.sketch_merge,
        sketch.sketch_count,
    )


def bagged(name: str, aggregate: Builtin, kind: str) -> Fold:  # noqa: ARG001 - one shape for all
    """Values and how often each came; the result is ``from_bag``."""
    if aggregate.function == "count_distinct":  # after every row of a rolling aggregate
        return of_values(dict, _bag_add, _bag_merge, len)
    return of_values(dict, _bag_add, _bag_merge, lambda bag: from_bag(aggregate, _pairs(bag)))


def distinct_totals(name: str, aggregate: Builtin, kind: str) -> Fold:
    """The sum of the different values; as ``bagged``, and as exact as ``totals``."""
    total = total_type(kind)

    def result(bag: dict[Any, int]) -> Any:
        value = from_bag(aggregate, _pairs(bag))
        if not sum_fits(value, total):
            raise overflow(name, aggregate.expression or "", total)
        return value

    return of_values(dict, _bag_add, _bag_merge, result)


def sum_fits(total: Any, kind: str) -> bool:
    """(a sum or null, its type) -> whether the type holds it."""
    summed = parse(kind)
    return total is None or not summed.is_exact or fits(total, summed.scale if summed.is_decimal else None)


def _bag_add(bag: dict[Any, int], value: Any) -> dict[Any, int]:
    if isinstance(value, float) and math.isnan(value):
        value = _NAN
    bag[value] = bag.get(value, 0) + 1
    return bag


def _bag_merge(left: dict[Any, int], right: dict[Any, int]) -> dict[Any, int]:
    for value, times in right.items():
        left[value] = left.get(value, 0) + times
    return left


def _pairs(bag: dict[Any, int]) -> list[tuple[Any, int]]:
    return [(math.nan if value is _NAN else value, times) for value, times in bag.items()]


def _same(state: Any) -> Any:
    return state


def _first_of(state: tuple[Any, ...] | None) -> Any:
    return state[0] if state else None


# ---- aggregates of values and how often each came


def from_bag(aggregate: Builtin, bag: list[tuple[Any, int]]) -> Any:
    """The result of an aggregate whose law is ``keeps_values``."""
    values = sorted(((v, n) for v, n in bag if n > 0), key=lambda pair: order(pair[0]))
    match aggregate.function:
        case "count_distinct":
            return len(values)
        case "distinct":
            return [v for v, _ in values]
        case "sum_distinct":
            return _sum_of([v for v, _ in values]) if values else None
        case "mean_distinct":
            return float(_sum_of([v for v, _ in values])) / len(values) if values else None
        case "top_n":
            largest: list[Any] = []
            for value, times in reversed(values):
                largest += [value] * min(times, (aggregate.n or 0) - len(largest))
            return largest
        case "median":
            return _median(values)
        case "percentile" | "percentile_disc" if isinstance(aggregate, Percentile):
            return (_between if aggregate.function == "percentile" else _reached)(values, aggregate.fraction)
        case "mode":
            return max(values, key=lambda pair: pair[1])[0] if values else None
        case _:
            message = f"'{aggregate.function}' needs no bag"
            raise TypeError(message)


def _sum_of(values: list[Any]) -> Any:
    """The sum of values of one type; of floats rounded once."""
    if isinstance(values[0], float):
        return math.fsum(values) if all(map(math.isfinite, values)) else sum(values)
    return functools.reduce(WIDE.add if isinstance(values[0], Decimal) else operator.add, values)


def _median(values: list[tuple[Any, int]]) -> float | None:
    total = sum(n for _, n in values)
    if not total:
        return None
    middle, seen = ((total - 1) // 2, total // 2), 0
    pair: list[float] = []
    for value, times in values:
        pair += [float(value)] * sum(seen <= rank < seen + times for rank in middle)
        seen += times
    return pair[0] if pair[0] == pair[1] else pair[0] / 2 + pair[1] / 2


def _between(values: list[tuple[Any, int]], fraction: float) -> float | None:
    """The value at a share of the way through sorted values, on the line between its neighbours; as Spark's ``Percentile``."""
    total = sum(n for _, n in values)
    if not total:
        return None
    position = fraction * (total - 1)
    below, above = math.floor(position), math.ceil(position)
    lower, upper = (float(_at(values, rank)) for rank in (below, above))
    if below == above or lower == upper:
        return lower
    return (above - position) * lower + (position - below) * upper


def _reached(values: list[tuple[Any, int]], fraction: float) -> Any:
    """The first of sorted values that a share of them does not exceed; as Spark's ``PercentileDisc``."""
    total = sum(n for _, n in values)
    return _at(values, max(math.ceil(fraction * total) - 1, 0)) if total else None


def _at(values: list[tuple[Any, int]], rank: int) -> Any:
    """The value at a rank, from 0."""
    for value, times in values:
        rank -= times
        if rank < 0:
            return value
    message = f"{rank + 1} ranks behind the last value"
    raise IndexError(message)


# ---- aggregates of the user's


def users(name: str, aggregate: Aggregate) -> Fold:
    """An aggregate of the user's, each call inside ``user_code_boundary``."""

    def add(state: Any, value: Any) -> Any:
        with user_code_boundary(f"aggregate '{name}', add()", f"The value was {value!r}."):
            return aggregate.add(aggregate.create() if state is None else state, value)

    def merge(left: Any, right: Any) -> Any:
        if left is None or right is None:
            return right if left is None else left
        with user_code_boundary(f"aggregate '{name}', merge()"):
            return aggregate.merge(left, right)

    def result(state: Any) -> Any:
        with user_code_boundary(f"aggregate '{name}', result()"):
            return aggregate.result(aggregate.create() if state is None else state)

    return of_values(lambda: None, add, merge, result)
