"""Aggregates of each prefix of each key's rows, in columns: what a fold by row gives after every row.

Rows lie key by key, those of a key in order of arrival. A key may have a state already, that of its fold by row (``rows``); behind the rows it
has the state that the fold would have. Aggregates without such a form, and numbers that may overflow, go by row.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from floodmark.semantics.aggregates.numbers import Ints, dense, has_ranks, normal
from floodmark.semantics.encoding.columns import python_values
from floodmark.spec.windowing.aggregates import AnyAggregate, Builtin

_SAFE = 2.0**62
"""Totals of integers below are exact in 64 bits."""


@dataclass(frozen=True, slots=True)
class Segments:
    """The rows of each key, one key after the other.

    Args:
        of_row: number of the key of each row, ascending.
        first: position of the first row of each key.
    """

    of_row: Ints
    first: Ints
    picks: dict[tuple[int, bool], Pick] = field(default_factory=dict)
    """(number of a column, whether its least value is wanted) -> which row has it: aggregates that are chosen by one column share it."""

    @property
    def last(self) -> Ints:
        """Position of the last row of each key."""
        stops: Ints = np.r_[self.first[1:], len(self.of_row)]
        return stops - 1

    def summed(self, values: Ints) -> Ints:
        """The sum of each prefix."""
        sums = np.cumsum(values)
        return sums - (sums - values)[self.first][self.of_row]

    def winners(self, codes: Ints, before: Ints) -> Ints:
        """Of each prefix the position of the first row with its greatest code, plus the number of keys; a key's number where what it had before is as great.

        Args:
            codes: of each row; -1: it never wins.
            before: code of each key's state.
        """
        keys, stride = len(self.first), int(max(codes.max(initial=-1), before.max(initial=-1))) + 2
        base = self.of_row * stride
        greatest = np.maximum.accumulate(np.maximum(codes, before[self.of_row]) + base) - base
        earlier = np.r_[-1, greatest[:-1]]
        earlier[self.first] = before
        wins = np.maximum.accumulate(np.where(codes > earlier, np.arange(len(codes)), -1))
        return np.where(wins >= self.first[self.of_row], wins + keys, self.of_row)


@dataclass(frozen=True, slots=True)
class Pick:
    """The row with the greatest or least value of each prefix.

    Args:
        before: the value of each key's state.
        chosen: of each prefix: the number of the key, or the position of a row plus the number of keys.
        last: the value behind the last row of each key.
    """

    before: Sequence[Any]
    chosen: Ints
    last: pa.Array


@dataclass(frozen=True, slots=True)
class Prefixes:
    """The results of one aggregate.

    Args:
        results: of each prefix.
        states: results of the last rows of all keys -> their states; to be asked once, as it may change the states before.
        last: the results of the last rows, where they are known as a fold gives them.
    """

    results: pa.Array
    states: Callable[[list[Any]], list[Any]]
    last: list[Any] | None = None


@dataclass(frozen=True, slots=True)
class Column:
    """What an aggregate reads of each row: a column and its number."""

    number: int
    values: pa.ChunkedArray


Form = Callable[[Segments, Any, Any, Sequence[Any]], "Prefixes | None"]
"""(rows, the ``Column`` of its value, or None, that of its ``by``, states before) -> results; None: go by row."""


def form_of(aggregate: AnyAggregate, value: pa.DataType | None, by: pa.DataType | None) -> Form | None:
    """An aggregate in columns.

    Args:
        aggregate: built in, or the user's.
        value: type of its expression.
        by: type of what it is chosen by.
    """
    if not isinstance(aggregate, Builtin):
        return None
    ordered, chosen = value is not None and has_ranks(value), by is not None and has_ranks(by)
    match aggregate.function:
        case "count":
            return _counts
        case "sum" if value is not None and pa.types.is_integer(value):
            return _totals
        case "mean" if value is not None and pa.types.is_integer(value):
            return _means
        case "min" | "max" if ordered:
            return _least if aggregate.function == "min" else _greatest
        case "min_by" | "max_by" if chosen:
            return _least_by if aggregate.function == "min_by" else _greatest_by
        case "first" | "last":
            return _firsts if aggregate.function == "first" else _lasts
        case "count_distinct" if ordered:
            return _distinct
        case _:
            return None


# ---- counts and totals


def _counts(rows: Segments, value: Column | None, by: Any, states: Sequence[int]) -> Prefixes:  # noqa: ARG001 - counted shape for all
    counted = np.ones(len(rows.of_row), np.int64) if value is None else _there(value).astype(np.int64)
    return Prefixes(pa.array(np.array(states, np.int64)[rows.of_row] + rows.summed(counted)), _itself)


def _totals(rows: Segments, value: Column, by: Any, states: Sequence[Any]) -> Prefixes | None:  # noqa: ARG001 - one shape for all
    added = _added(rows, value, [0 if state is None else state for state in states])
    if added is None:
        return None
    there = rows.summed(_there(value).astype(np.int64)) > 0
    there |= np.array([state is not None for state in states])[rows.of_row]
    return Prefixes(pa.array(added, mask=~there), _itself)


def _means(rows: Segments, value: Column, by: Any, states: Sequence[tuple[int, int]]) -> Prefixes | None:  # noqa: ARG001 - one shape for all
    added = _added(rows, value, [total for _, total in states])
    if added is None:
        return None
    counts = np.array([n for n, _ in states], np.int64)[rows.of_row] + rows.summed(_there(value).astype(np.int64))
    results = pa.array(added.astype(np.float64) / np.maximum(counts, 1), mask=counts == 0)
    after = [array[rows.last].tolist() for array in (counts, added)]
    return Prefixes(results, lambda _: list(zip(*after, strict=True)))


def _added(rows: Segments, value: Column, before: Sequence[int]) -> Ints | None:
    """Totals of integers; None if they may not fit 64 bits."""
    numbers = pc.fill_null(value.values, 0).to_numpy()
    most = float(np.abs(numbers.astype(np.float64)).sum()) + max(map(abs, before), default=0)
    if not most < _SAFE:
        return None
    return np.array(before, np.int64)[rows.of_row] + rows.summed(numbers.astype(np.int64))


def _there(value: Column) -> npt.NDArray[np.bool_]:
    return pc.is_valid(value.values).to_numpy()  # type: ignore[no-any-return]


def _itself(last: list[Any]) -> list[Any]:
    return last


def _alone(last: list[Any]) -> list[Any]:
    return [(value,) for value in last]


# ---- one value of the prefix


def _least(rows: Segments, value: Column, by: Any, states: Sequence[Any]) -> Prefixes:  # noqa: ARG001 - one shape for all
    return _extreme(rows, value, states, least=True)


def _greatest(rows: Segments, value: Column, by: Any, states: Sequence[Any]) -> Prefixes:  # noqa: ARG001 - one shape for all
    return _extreme(rows, value, states, least=False)


def _extreme(rows: Segments, value: Column, states: Sequence[Any], *, least: bool) -> Prefixes:
    both = _behind(value, states)
    return Prefixes(both.take(pa.array(_chosen(rows, both, least=least))), _itself)


def _least_by(rows: Segments, value: Column, by: Column, states: Sequence[Any]) -> Prefixes:
    return _beside(rows, value, by, states, least=True)


def _greatest_by(rows: Segments, value: Column, by: Column, states: Sequence[Any]) -> Prefixes:
    return _beside(rows, value, by, states, least=False)


def _beside(rows: Segments, value: Column, by: Column, states: Sequence[Any], *, least: bool) -> Prefixes:
    pairs = [(None, None) if state is None else state for state in states]
    before = [rank for _, rank in pairs]
    pick = rows.picks.get((by.number, least))
    if pick is None or pick.before != before:
        both = _behind(by, before)
        chosen = _chosen(rows, both, least=least)
        pick = rows.picks[by.number, least] = Pick(before, chosen, both.take(pa.array(chosen[rows.last])))
    ranks = pick.last

    def states_after(last: list[Any]) -> list[Any]:
        pairs = zip(last, python_values(ranks), strict=True)
        return [None if rank is None else (item, rank) for item, rank in pairs]

    return Prefixes(_behind(value, [item for item, _ in pairs]).take(pa.array(pick.chosen)), states_after)


def _firsts(rows: Segments, value: Column, by: Any, states: Sequence[Any]) -> Prefixes:  # noqa: ARG001 - one shape for all
    both, known = _behind(value, [state[0] if state else None for state in states]), np.array(list(map(bool, states)))
    keys = len(known)
    chosen = np.where(known, np.arange(keys), rows.first + keys)
    return Prefixes(both.take(pa.array(chosen[rows.of_row])), _alone)


def _lasts(rows: Segments, value: Column, by: Any, states: Sequence[Any]) -> Prefixes:  # noqa: ARG001 - one shape for all
    return Prefixes(_one_zero(value).combine_chunks(), _alone)


def _one_zero(column: Column) -> pa.ChunkedArray:
    """Floats with 0.0 for -0.0."""
    values = column.values
    return pc.add(values, pa.scalar(0.0, values.type)) if pa.types.is_floating(values.type) else values


def _behind(column: Column, before: Sequence[Any]) -> pa.Array:
    """What each key had before, then what each row has."""
    values = _one_zero(column)
    return pa.concat_arrays([pa.array(before, values.type), *values.chunks])


def _chosen(rows: Segments, both: pa.Array, *, least: bool) -> Ints:
    """The position of the value of each prefix among ``both``; NaN is the greatest number, null never wins."""
    codes = dense(both)
    if least:
        codes = np.where(codes < 0, -1, codes.max(initial=0) - codes)
    return rows.winners(codes[len(rows.first) :], codes[: len(rows.first)])


# ---- bags


def _distinct(rows: Segments, value: Column, by: Any, states: Sequence[dict[Any, int]]) -> Prefixes:  # noqa: ARG001 - one shape for all
    encoded = normal(value.values).combine_chunks().dictionary_encode()
    there = np.flatnonzero(pc.is_valid(encoded.indices).to_numpy(zero_copy_only=False))
    size = max(len(encoded.dictionary), 1)
    both = rows.of_row[there] * size + pc.drop_null(encoded.indices).to_numpy()
    different, first, times = np.unique(both, return_index=True, return_counts=True)
    order = np.argsort(first)  # values come into a bag in the order in which they arrive
    values = [_name_of(v) for v in encoded.dictionary.take(pa.array(different[order] % size)).to_pylist()]
    keys, times_of = (different[order] // size).tolist(), times[order].tolist()
    fresh = np.zeros(len(rows.of_row), np.int64)
    fresh[there[first[order]]] = [name not in states[key] for key, name in zip(keys, values, strict=True)]
    results = np.array([len(state) for state in states], np.int64)[rows.of_row] + rows.summed(fresh)

    def states_after(last: list[Any]) -> list[Any]:  # noqa: ARG001 - one shape for all
        for key, name, number in zip(keys, values, times_of, strict=True):
            bag = states[key]
            bag[name] = bag.get(name, 0) + number
        return list(states)

    return Prefixes(pa.array(results), states_after)


def _name_of(value: Any) -> Any:
    """A value as it is called in a bag: None is NaN."""
    return None if isinstance(value, float) and math.isnan(value) else value
