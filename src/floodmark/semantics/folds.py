"""Aggregates one row at a time, for windows whose rows have an order: the same answers as ``semantics.accumulators``, which has none.

A fold's accumulator is plain data, so that it can be kept; ``add`` and ``merge`` return it, changed or new.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Context
from hashlib import blake2b
from typing import Any

from floodmark.core.errors import ExecutionError, user_code_boundary
from floodmark.spec.aggregates import Aggregate, AnyAggregate, Builtin

KEPT_HASHES = 4096
"""``approx_count_distinct`` looks at no more than these smallest hashes; the standard error is about 1 / sqrt(KEPT_HASHES)."""

_WIDE = Context(prec=80)
_LARGEST = 2**63

_NAN = None
"""NaN in a bag, where a dictionary would not find it again; nulls are never in one."""


@dataclass(frozen=True, slots=True)
class Fold:
    """One aggregate as functions.

    Args:
        create: an empty accumulator.
        add: (accumulator, value, by) -> accumulator; the value may be null.
        merge: (earlier, later) -> accumulator.
        result: what goes into the output.
    """

    create: Callable[[], Any]
    add: Callable[[Any, Any, Any], Any]
    merge: Callable[[Any, Any], Any]
    result: Callable[[Any], Any]


def fold(name: str, aggregate: AnyAggregate, value_type: str) -> Fold:
    """The fold of an aggregate.

    Args:
        name: of its column, for errors.
        aggregate: any.
        value_type: Spark SQL type of its expression.
    """
    if isinstance(aggregate, Aggregate):
        return _user(name, aggregate)
    if aggregate.function == "sum":
        return _sum(aggregate, value_type)
    if aggregate.function == "count" and aggregate.expression is None:
        return _ROWS
    known = _FOLDS.get(aggregate.function)
    return known or Fold(dict, _bag_add, _bag_merge, lambda bag: from_bag(aggregate, _pairs(bag)))


def from_bag(aggregate: Builtin, bag: list[tuple[Any, int]]) -> Any:
    """The result of an aggregate that depends on the set of values and how often each came."""
    values = sorted(((v, n) for v, n in bag if n > 0), key=lambda pair: _order(pair[0]))
    match aggregate.function:
        case "count_distinct":
            return len(values)
        case "distinct":
            return [v for v, _ in values]
        case "top_n":
            found: list[Any] = []
            for value, times in reversed(values):
                found += [value] * min(times, (aggregate.n or 0) - len(found))
            return found
        case "median":
            return _median(values)
        case "approx_count_distinct":
            return _estimate([v for v, _ in values])
        case _:
            message = f"'{aggregate.function}' has no fold"
            raise TypeError(message)


def _order(value: Any) -> tuple[bool, Any]:
    """NaN after all numbers, as in Spark."""
    return (True, 0.0) if isinstance(value, float) and math.isnan(value) else (False, value)


def _estimate(values: list[Any]) -> int:
    """K minimum values: (k - 1) / the k-th smallest hash, as a share of all hashes."""
    if len(values) <= KEPT_HASHES:
        return len(values)
    hashes = sorted(int.from_bytes(blake2b(repr(v).encode(), digest_size=8).digest(), "big") for v in values)
    return math.floor((KEPT_HASHES - 1) / ((hashes[KEPT_HASHES - 1] + 1) / 2**64) + 0.5)


def _median(values: list[tuple[Any, int]]) -> float | None:
    total = sum(n for _, n in values)
    if not total:
        return None
    middle, seen = ((total - 1) // 2, total // 2), 0
    found: list[float] = []
    for value, times in values:
        found += [float(value)] * sum(seen <= place < seen + times for place in middle)
        seen += times
    return (found[0] + found[1]) / 2


def _pairs(bag: dict[Any, int]) -> list[tuple[Any, int]]:
    return [(math.nan if value is _NAN else value, times) for value, times in bag.items()]


def _bag_add(bag: dict[Any, int], value: Any, by: Any) -> dict[Any, int]:  # noqa: ARG001 - one shape for all
    if value is not None:
        if isinstance(value, float):
            value = _NAN if math.isnan(value) else value + 0.0
        bag[value] = bag.get(value, 0) + 1
    return bag


def _bag_merge(left: dict[Any, int], right: dict[Any, int]) -> dict[Any, int]:
    for value, times in right.items():
        left[value] = left.get(value, 0) + times
    return left


def _collected(values: list[Any], value: Any, by: Any) -> list[Any]:  # noqa: ARG001 - one shape for all
    if value is not None:
        values.append(value)
    return values


def _sum(aggregate: Builtin, value_type: str) -> Fold:
    sql = aggregate.expression or ""
    if value_type.startswith("decimal"):
        add: Callable[[Any, Any], Any] = lambda a, v: v if a is None else _WIDE.add(a, v)  # noqa: E731 - one of two
    else:
        add = lambda a, v: v if a is None else a + v  # noqa: E731 - one of two

    def result(total: Any) -> Any:
        if isinstance(total, int) and abs(total) >= _LARGEST:
            fix = f'Widen it: sum("CAST({sql} AS decimal(38,0))").'
            raise ExecutionError(
                f"sum of '{sql}'", "a total that fits bigint", "an overflow", fix, code="EXECUTION-001"
            )
        return total

    return Fold(
        lambda: None,
        lambda a, v, b: a if v is None else add(a, v),  # noqa: ARG005 - one shape for all
        lambda a, b: a if b is None else add(a, b),
        result,
    )


def _mean_add(state: tuple[int, float], value: Any, by: Any) -> tuple[int, float]:  # noqa: ARG001 - one shape for all
    return state if value is None else (state[0] + 1, state[1] + float(value))


def _mean(state: tuple[int, float]) -> float | None:
    return state[1] / state[0] if state[0] else None


def _deviation_add(state: tuple[int, float, float], value: Any, by: Any) -> tuple[int, float, float]:  # noqa: ARG001 - one shape for all
    """Welford's recurrence: count, mean, squared deviations."""
    if value is None:
        return state
    n, middle, squares = state[0] + 1, state[1], state[2]
    distance = float(value) - middle
    middle += distance / n
    return n, middle, squares + distance * (float(value) - middle)


def _deviation_merge(a: tuple[int, float, float], b: tuple[int, float, float]) -> tuple[int, float, float]:
    """Chan's formula."""
    if not a[0] or not b[0]:
        return a if a[0] else b
    n, distance = a[0] + b[0], b[1] - a[1]
    return n, a[1] + distance * b[0] / n, a[2] + b[2] + distance * distance * a[0] * b[0] / n


def _deviation(state: tuple[int, float, float]) -> float | None:
    return math.sqrt(max(state[2], 0.0) / (state[0] - 1)) if state[0] > 1 else None


def _extreme(*, smallest: bool) -> Fold:
    def better(a: Any, v: Any) -> Any:
        if v is None:
            return a
        return v if a is None or ((_order(v) < _order(a)) if smallest else (_order(v) > _order(a))) else a

    return Fold(lambda: None, lambda a, v, b: better(a, v), better, lambda a: a)  # noqa: ARG005 - one shape for all


def _extreme_by(*, smallest: bool) -> Fold:
    """The first on ties, in order of arrival."""

    def better(a: Any, pair: Any) -> Any:
        if pair is None or pair[1] is None:
            return a
        if a is None:
            return pair
        mine, theirs = _order(a[1]), _order(pair[1])
        return pair if (theirs < mine if smallest else theirs > mine) else a

    return Fold(lambda: None, lambda a, v, b: better(a, (v, b)), better, lambda a: a[0] if a else None)


def _user(name: str, aggregate: Aggregate) -> Fold:
    def add(state: Any, value: Any, by: Any) -> Any:  # noqa: ARG001 - one shape for all
        if value is None:
            return state
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

    return Fold(lambda: None, add, merge, result)


def _valued(a: int, value: Any, by: Any) -> int:  # noqa: ARG001 - one shape for all
    return a + (value is not None)


def _counted(a: int, value: Any, by: Any) -> int:  # noqa: ARG001 - one shape for all
    return a + 1


def _one(a: tuple[Any, ...]) -> Any:
    return a[0] if a else None


def _same(a: Any) -> Any:
    return a


_ROWS = Fold(int, _counted, operator.add, _same)

_FOLDS = {
    "count": Fold(int, _valued, operator.add, _same),
    "mean": Fold(lambda: (0, 0.0), _mean_add, lambda a, b: (a[0] + b[0], a[1] + b[1]), _mean),
    "stddev": Fold(lambda: (0, 0.0, 0.0), _deviation_add, _deviation_merge, _deviation),
    "min": _extreme(smallest=True),
    "max": _extreme(smallest=False),
    "min_by": _extreme_by(smallest=True),
    "max_by": _extreme_by(smallest=False),
    "first": Fold(tuple, lambda a, v, b: a or (v,), lambda a, b: a or b, _one),  # noqa: ARG005 - one shape for all
    "last": Fold(tuple, lambda a, v, b: (v,), lambda a, b: b or a, _one),  # noqa: ARG005 - one shape for all
    "collect": Fold(list, _collected, operator.add, list),
}
