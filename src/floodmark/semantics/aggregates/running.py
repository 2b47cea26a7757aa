"""Running partials: the partials of a group after each of its late units, all versions of all groups at once.

A *unit* is what revises a group in one step; a *version* is the group after that step, numbered by *turn*. Turn 0 of all groups is computed
in columns, then turn 1, and so on, over the groups that have such a turn: the work is linear in the number of units. Each step adds up the
same numbers in the same order as ``Accumulators.merge`` of the version before and the unit, so that results have the same bits.
Bags are listed once per version, as results are computed from whole bags.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from floodmark.core.errors import user_code_boundary
from floodmark.semantics.aggregates.accumulators import Accumulators, Measure, Partials
from floodmark.semantics.aggregates.grouping import group_ids, positions
from floodmark.semantics.aggregates.numbers import WIDE, Floats, Ints, spread_groups
from floodmark.semantics.aggregates.parts import SPREAD
from floodmark.spec.windowing.aggregates import Aggregate

TURN = "turn"

_BAG_ROWS = 1 << 20
"""Versions come in blocks whose bags have about so many rows."""

Array = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class Chain:
    """The versions of all groups, sorted by turn, then groups with most turns first: the groups of a turn are the first of the turn before.

    Args:
        first: for each version of turn 0 the row of its group before, -1 where there is none.
        starts: for each turn its first version; at the end the number of versions.
    """

    first: Ints
    starts: Ints

    def steps(self) -> Iterator[tuple[slice, slice]]:
        """(versions of the turn before, versions of a turn), from turn 1 on."""
        starts = self.starts.tolist()
        for before, start, stop in zip(starts, starts[1:], starts[2:], strict=False):
            yield slice(before, before + stop - start), slice(start, stop)

    def accumulated(self, before: Array, units: Array, combine: Callable[[Array, Array], Array]) -> Array:
        """A column of the versions: ``combine`` of the version before and the unit."""
        versions, known = units.copy(), np.flatnonzero(self.first >= 0)
        with np.errstate(all="ignore"):  # infinity less infinity is NaN, as in SQL
            versions[known] = combine(before[self.first[known]], units[known])
            for last, now in self.steps():
                versions[now] = combine(versions[last], versions[now])
        return versions


@dataclass(frozen=True, slots=True)
class Versions:
    """All versions of the groups that late units revise.

    Args:
        blocks: versions by the block; dimensions and ``turn``.
        last: partials of each group after its last unit.
    """

    blocks: Iterator[Partials]
    last: Partials


def running(accumulators: Accumulators, before: Partials, units: Partials, dims: Sequence[str]) -> Versions:
    """The versions of groups.

    Args:
        accumulators: the arithmetic.
        before: partials of these groups and no others, by ``dims``.
        units: partials by ``dims`` and ``turn``; a group with n units has turns 0 to n - 1.
        dims: the dimensions.
    """
    ids, groups = group_ids(units["main"], dims)
    turns = units["main"][TURN].to_numpy()
    last_turns = np.bincount(ids, minlength=groups.num_rows) - 1
    sorted_units = units["main"].take(pa.array(np.lexsort((ids, -last_turns[ids], turns))))
    starts = np.r_[0, np.cumsum(np.bincount(turns))]
    first = pc.fill_null(positions(sorted_units.slice(0, int(starts[1])), dims, before["main"]), -1)
    chain = Chain(first.to_numpy(), starts)
    main = _mains(accumulators, before["main"], sorted_units, chain, dims)
    bags = {
        name: _Bag.of(before[name], units[name], groups, last_turns, dims) for name in units if name.startswith("bag")
    }
    final = main.filter(pa.array(main[TURN].to_numpy() == last_turns[positions(main, dims, groups).to_numpy()]))
    last = {"main": final.drop_columns([TURN])} | {
        name: _trimmed(accumulators, name, bag.last(), dims) for name, bag in bags.items()
    }
    return Versions(_blocks(accumulators, main, chain, bags, dims), last)


def _blocks(
    accumulators: Accumulators, main: pa.Table, chain: Chain, bags: dict[str, _Bag], dims: Sequence[str]
) -> Iterator[Partials]:
    """Versions of successive turns, as many at a time as bags allow."""
    number = len(chain.starts) - 1
    sizes = sum((bag.sizes(number) for bag in bags.values()), np.zeros(number, dtype=np.int64))
    bounds = np.flatnonzero(np.diff(np.cumsum(sizes) // _BAG_ROWS, prepend=-1)).tolist()
    for start, stop in zip(bounds, [*bounds[1:], number], strict=True):
        low, high = int(chain.starts[start]), int(chain.starts[stop])
        block = {"main": main.slice(low, high - low)}
        for name, bag in bags.items():
            block[name] = _trimmed(accumulators, name, bag.versions(start, stop), [*dims, TURN])
        yield block


def _trimmed(accumulators: Accumulators, name: str, bag: pa.Table, dims: Sequence[str]) -> pa.Table:
    return accumulators.trimmed(bag, dims) if name.endswith("_hashes") else bag


# ---- one row per version


def _mains(
    accumulators: Accumulators, before: pa.Table, units: pa.Table, chain: Chain, dims: Sequence[str]
) -> pa.Table:
    values = range(len(accumulators.values))
    plan = dict([("n", "sum"), *(step for j in values for part in accumulators.parts_of(j) for step in part.plan(j))])
    main = units.select([*dims, TURN])
    whole = [name for name in plan if plan[name] == "sum" and pa.types.is_integer(units[name].type)]
    sums = chain.accumulated(_stacked(before, whole), _stacked(units, whole), np.add)
    columns: dict[str, Any] = {name: sums[:, i] for i, name in enumerate(whole)}
    for name in plan.keys() - columns.keys():
        columns[name] = _accumulated(before[name], units[name], plan[name], chain)
    for name, column in columns.items():
        main = main.append_column(name, pa.array(column) if isinstance(column, np.ndarray) else column)
    for j in values:
        for part in accumulators.parts_of(j):
            main = part.stored(j, main)
        if accumulators.spreads(j):
            for prefix, column in zip(SPREAD, _spreads(before, units, columns[f"count{j}"], chain, j), strict=True):
                main = main.append_column(f"{prefix}{j}", pa.array(column))
    for i, measure in accumulators.users():
        texts = _users(before[f"user{i}"], units[f"user{i}"], measure, chain)
        main = main.append_column(f"user{i}", pa.array(texts, pa.string()))
    return main.select([*dims, TURN, *(name for name in before.column_names if name not in dims)])


def _stacked(table: pa.Table, names: Sequence[str]) -> Ints:
    return np.stack([table[name].to_numpy().astype(np.int64) for name in names], axis=1)


def _accumulated(before: pa.ChunkedArray, units: pa.ChunkedArray, function: str, chain: Chain) -> Any:
    """Sums of floats and decimals, extremes of anything."""
    if function != "sum":
        return _extremes(before, units, function, chain)
    if pa.types.is_floating(units.type):
        return chain.accumulated(before.to_numpy(), units.to_numpy(), np.add)
    scale = units.type.scale
    sums = chain.accumulated(_unscaled(before, scale), _unscaled(units, scale), np.add)
    return pa.array([Decimal(v).scaleb(-scale, WIDE) for v in sums.tolist()], units.type)


def _unscaled(column: pa.ChunkedArray, scale: int) -> Array:
    return np.array([int(value.scaleb(scale, WIDE)) for value in column.to_pylist()], dtype=object)


def _extremes(before: pa.ChunkedArray, units: pa.ChunkedArray, function: str, chain: Chain) -> pa.ChunkedArray:
    """By the rank of each value among all; a null never wins."""
    both = pa.concat_arrays([*before.chunks, *units.chunks])
    encoded = both.dictionary_encode()
    order = pc.sort_indices(encoded.dictionary)
    ranks = np.empty(len(order) + 1, dtype=np.int64)
    ranks[order.to_numpy()] = np.arange(len(order))
    ranks[-1] = nothing = -1 if function == "max" else len(order)
    of_rows = ranks[pc.fill_null(encoded.indices, -1).to_numpy()]
    winners = chain.accumulated(
        of_rows[: len(before)], of_rows[len(before) :], np.maximum if function == "max" else np.minimum
    )
    return encoded.dictionary.take(order).take(pa.array(winners, mask=winners == nothing))


def _spreads(before: pa.Table, units: pa.Table, counts: Ints, chain: Chain, j: int) -> list[Floats]:
    """Deviations; each version is of two parts, the version before and the unit."""
    names = (f"count{j}", *(f"{prefix}{j}" for prefix in SPREAD))
    old, new = ([t[name].to_numpy().astype(np.float64) for name in names] for t in (before, units))
    versions = [counts.astype(np.float64), *(np.empty_like(column) for column in new[1:])]
    known, size = np.flatnonzero(chain.first >= 0), len(chain.first)
    parts = [np.r_[a[chain.first[known]], b[:size]] for a, b in zip(old, new, strict=True)]
    results = spread_groups(np.r_[known, np.arange(size)], size, *parts)
    for column, result in zip(versions[1:], results, strict=True):
        column[:size] = result
    for last, now in chain.steps():
        size = now.stop - now.start
        parts = [np.r_[a[last], b[now]] for a, b in zip(versions, new, strict=True)]
        results = spread_groups(np.tile(np.arange(size), 2), size, *parts)
        for column, result in zip(versions[1:], results, strict=True):
            column[now] = result
    return versions[1:]


def _users(before: pa.ChunkedArray, units: pa.ChunkedArray, measure: Measure, chain: Chain) -> list[str | None]:
    """Accumulators of an aggregate of the user's; each is written between two units, as it is between two micro-batches."""
    user, old = measure.aggregate, before.to_pylist()
    versions: list[str | None] = units.to_pylist()
    assert isinstance(user, Aggregate)

    def merged(*texts: str | None) -> str | None:
        present = [json.loads(text) for text in texts if text is not None]
        if not present:
            return None
        accumulator = user.create()
        for other in present:
            accumulator = user.merge(accumulator, other)
        return json.dumps(accumulator)

    with user_code_boundary(f"aggregate '{measure.name}'"):
        for version, row in enumerate(chain.first.tolist()):
            versions[version] = merged(old[row] if row >= 0 else None, versions[version])
        for last, now in chain.steps():
            versions[now] = [merged(*pair) for pair in zip(versions[last], versions[now], strict=True)]
    return versions


# ---- bags


@dataclass(frozen=True, slots=True)
class _Bag:
    """The spans of turns for which a value has been in a group's bag equally often, sorted by when the value came into the bag.

    Args:
        rows: dimensions, ``v`` and ``n`` of each span.
        starts: the turn of its first version.
        stops: the turn behind its last one.
        ends: whether that is the group's last version.
    """

    rows: pa.Table
    starts: Ints
    stops: Ints
    ends: npt.NDArray[np.bool_]

    @staticmethod
    def of(before: pa.Table, units: pa.Table, groups: pa.Table, last_turns: Ints, dims: Sequence[str]) -> _Bag:
        """Of a bag by dimensions and one by dimensions and ``turn``."""
        names = [*dims, "v", "n"]
        units = units.take(pa.array(np.argsort(units[TURN].to_numpy(), kind="stable")))
        items = pa.concat_tables([before.select(names), units.select(names)])
        turns = np.r_[np.full(before.num_rows, -1), units[TURN].to_numpy()]
        of_group = positions(items, dims, groups).to_numpy()
        values, different = group_ids(items, ["v"])
        codes = of_group * max(different.num_rows, 1) + values
        order = np.argsort(codes, kind="stable")  # by group and value, then by turn
        codes, turns, last_turns = codes[order], turns[order], last_turns[of_group[order]]
        fresh = np.diff(codes, prepend=-1) != 0
        totals = np.cumsum(items["n"].to_numpy()[order])
        changes = items["n"].to_numpy()[order]
        sums = totals - (totals - changes)[fresh][np.cumsum(fresh) - 1]
        comes = np.maximum.accumulate(np.where(sums == changes, np.arange(len(order)), 0))  # it was not there before
        ends = np.r_[fresh[1:], True][: len(order)]
        stops = np.where(ends, last_turns + 1, np.roll(turns, -1))
        starts = np.maximum(turns, 0)
        spans = np.flatnonzero((sums != 0) & (stops > starts))
        spans = spans[np.argsort(order[comes[spans]], kind="stable")]
        rows = items.take(pa.array(order[spans]))
        rows = rows.set_column(rows.column_names.index("n"), "n", pa.array(sums[spans]))
        return _Bag(rows, starts[spans], stops[spans], ends[spans])

    def sizes(self, number: int) -> Ints:
        """How many rows the bags of each turn have."""
        changes = np.bincount(self.starts, minlength=number + 1) - np.bincount(self.stops, minlength=number + 1)
        return np.cumsum(changes)[:number].astype(np.int64)

    def versions(self, start: int, stop: int) -> pa.Table:
        """The bags of all versions of turns ``start`` to ``stop``, by dimensions and ``turn``."""
        low, high = np.maximum(self.starts, start), np.minimum(self.stops, stop)
        lengths = np.maximum(high - low, 0)
        spans = np.repeat(np.arange(len(lengths)), lengths)
        turns = low[spans] + np.arange(len(spans)) - (np.cumsum(lengths) - lengths)[spans]
        return self.rows.take(pa.array(spans)).append_column(TURN, pa.array(turns))

    def last(self) -> pa.Table:
        """The bag of each group's last version."""
        return self.rows.filter(pa.array(self.ends))
