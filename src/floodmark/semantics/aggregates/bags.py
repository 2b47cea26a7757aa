"""Results from bags (per group: value, number of occurrences), for aggregates that need the values or cannot subtract one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from floodmark.semantics.aggregates.grouping import group_ids, grouped, quotient
from floodmark.semantics.aggregates.numbers import ranks, spread_groups, unranked
from floodmark.semantics.aggregates.rows import from_bag, sum_fits
from floodmark.semantics.encoding.columns import arrow_type
from floodmark.spec.windowing.aggregates import Builtin

Groups = tuple[pa.Table, pa.ChunkedArray]
"""The groups that have values, and their results."""

FromBag = Callable[[pa.Table, Sequence[str], Builtin, str], Groups]
"""(bag with dims, ``v`` and ``n`` > 0; dims; declaration; type of the result) -> results."""


def number(bag: pa.Table, dims: Sequence[str], aggregate: Builtin, kind: str) -> Groups:  # noqa: ARG001 - one shape for all
    """The number of different values."""
    result = grouped(bag, dims, [("v", "count")])
    return result, result["v"]


def least(bag: pa.Table, dims: Sequence[str], aggregate: Builtin, kind: str) -> Groups:  # noqa: ARG001 - one shape for all
    """The smallest."""
    return _extreme(bag, dims, "min")


def greatest(bag: pa.Table, dims: Sequence[str], aggregate: Builtin, kind: str) -> Groups:  # noqa: ARG001 - one shape for all
    """The largest."""
    return _extreme(bag, dims, "max")


def _extreme(bag: pa.Table, dims: Sequence[str], which: str) -> Groups:
    kind = bag["v"].type
    result = grouped(bag.select([*dims]).append_column("v", ranks(bag["v"])), dims, [("v", which)])
    return result, unranked(result["v"], kind)


def total(bag: pa.Table, dims: Sequence[str], aggregate: Builtin, kind: str) -> Groups:  # noqa: ARG001 - one shape for all
    """The total of floats, added in order of size, so that it depends on the set of values alone."""
    result = _weighted(bag, dims)
    return result, result["x"]


def average(bag: pa.Table, dims: Sequence[str], aggregate: Builtin, kind: str) -> Groups:  # noqa: ARG001 - one shape for all
    """The mean of floats; the total as in ``total``."""
    result = _weighted(bag, dims)
    return result, quotient(result["x"], result["n"])


def _weighted(bag: pa.Table, dims: Sequence[str]) -> pa.Table:
    bag = bag.take(pc.sort_indices(bag["v"]))
    product = pc.multiply(bag["v"].cast(pa.float64(), safe=False), bag["n"].cast(pa.float64(), safe=False))
    return grouped(bag.select([*dims, "n"]).append_column("x", product), dims, [("n", "sum"), ("x", "sum")])


def deviation(bag: pa.Table, dims: Sequence[str], aggregate: Builtin, kind: str) -> Groups:  # noqa: ARG001 - one shape for all
    """The standard deviation; equal values are one part."""
    bag = bag.take(pc.sort_indices(bag["v"]))
    ids, groups = group_ids(bag, dims)
    weights, nothing = bag["n"].to_numpy().astype(np.float64), np.zeros(bag.num_rows)
    values = bag["v"].cast(pa.float64(), safe=False).to_numpy()
    *_, squares = spread_groups(ids, groups.num_rows, weights, values, nothing, nothing)
    freedom = pa.chunked_array([pa.array(np.bincount(ids, weights, groups.num_rows) - 1)])
    return groups, pc.sqrt(quotient(pa.chunked_array([pa.array(squares)]), freedom))


class TooLargeError(ArithmeticError):
    """A sum that its type does not hold.

    Args:
        group: dimension -> value, of the group.
    """

    def __init__(self, group: dict[str, Any]) -> None:
        super().__init__(group)
        self.group = group


def distinct_totals(bag: pa.Table, dims: Sequence[str], aggregate: Builtin, kind: str) -> Groups:
    """The sums of the different values.

    Raises:
        TooLargeError: the first one that the type does not hold.
    """
    groups, results = _listed(bag, dims, aggregate)
    for number, total in enumerate(results):
        if not sum_fits(total, kind):
            raise TooLargeError(groups.slice(number, 1).to_pylist()[0])
    return groups, pa.chunked_array([pa.array(results, arrow_type(kind))])


def listed(bag: pa.Table, dims: Sequence[str], aggregate: Builtin, kind: str) -> Groups:
    """The result by row (``rows.from_bag``), one group after the other."""
    groups, results = _listed(bag, dims, aggregate)
    return groups, pa.chunked_array([pa.array(results, arrow_type(kind))])


def _listed(bag: pa.Table, dims: Sequence[str], aggregate: Builtin) -> tuple[pa.Table, list[Any]]:
    """The groups, and the result of each."""
    ids, groups = group_ids(bag, dims)
    pairs: list[list[tuple[Any, int]]] = [[] for _ in range(groups.num_rows)]
    for group, value, times in zip(ids.tolist(), bag["v"].to_pylist(), bag["n"].to_pylist(), strict=True):
        pairs[group].append((value, times))
    return groups, [from_bag(aggregate, values) for values in pairs]
