"""Accumulators in columns: rows -> partials -> merged partials -> results. One arithmetic for every engine and mode.

Partials are a set of Arrow tables that share the *dimensions* (keys and a window): ``main`` with one row per group of
dimensions, and one *bag* per value whose aggregates need the values themselves (``v`` and how often, ``n``). On an input that can
be revised every row has a sign, and whatever cannot be undone by subtraction is kept in a bag.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from floodmark.core.errors import ExecutionError, user_code_boundary
from floodmark.semantics.columns import arrow_type, fitted
from floodmark.semantics.folds import KEPT_HASHES, from_bag
from floodmark.spec.aggregates import BAGGED, Aggregate, AnyAggregate, Builtin
from floodmark.spec.expressions import check
from floodmark.spec.steps import WindowAggregate

Partials = dict[str, pa.Table]

_BAGGED = BAGGED | {"approx_count_distinct"}
_EXACT = ("tinyint", "smallint", "int", "bigint")


@dataclass(frozen=True, slots=True)
class Value:
    """An input column of the aggregates.

    Args:
        sql: the Spark SQL that computes it.
        type: its Spark SQL type.
        bag: keep the values themselves.
    """

    sql: str
    type: str
    bag: bool

    @property
    def exact(self) -> bool:
        """Integers and decimals: sums do not depend on order."""
        return self.type in _EXACT or self.type.startswith("decimal")


@dataclass(frozen=True, slots=True)
class Measure:
    """One aggregate over one value (None: over rows)."""

    name: str
    aggregate: AnyAggregate
    value: int | None
    type: str

    @property
    def function(self) -> str:
        """``count`` ... or ``user``."""
        return self.aggregate.function if isinstance(self.aggregate, Builtin) else "user"


@dataclass(frozen=True, slots=True)
class Accumulators:
    """The arithmetic of one windowed aggregation; the dimensions are the keys and a window, so there is at least one.

    Args:
        values: input columns ``v0, v1, ...``.
        measures: the aggregates, in output order.
        revisable: rows come with a sign.
    """

    values: tuple[Value, ...]
    measures: tuple[Measure, ...]
    revisable: bool

    @staticmethod
    def of(step: WindowAggregate, *, revisable: bool) -> Accumulators:
        """What a step's aggregates need; equal expressions share a column."""
        values: dict[str, Value] = {}
        measures = []
        for name, aggregate in step.aggregates:
            sql, kind = aggregate.expression, ""
            if sql is not None:
                kind = check(sql, step.parent.schema, f"aggregate '{name}'")
                if isinstance(aggregate, Builtin) and aggregate.function == "approx_count_distinct":
                    sql, kind = f"CASE WHEN ({sql}) IS NULL THEN NULL ELSE xxhash64({sql}) END", "bigint"
                bag = _needs_bag(aggregate, kind, revisable=revisable)
                known = values.get(sql)
                values[sql] = Value(sql, kind, bag or (known is not None and known.bag))
            position = list(values).index(sql) if sql is not None else None
            measures.append(Measure(name, aggregate, position, step.schema[name].type))
        return Accumulators(tuple(values.values()), tuple(measures), revisable)

    def bagged(self, measure: Measure) -> bool:
        """Whether the measure is computed from the bag of its value."""
        if measure.value is None or not self.values[measure.value].bag:
            return False
        return _needs_bag(measure.aggregate, self.values[measure.value].type, revisable=self.revisable)

    # ---- rows -> partials

    def partials(self, rows: pa.Table, dims: Sequence[str]) -> Partials:
        """Aggregate rows (dimensions, ``sign`` where revisable, ``v0``...) that may be few or many."""
        rows = self._normal(rows)
        prepared, plan = rows.select([*dims]), [("n", "sum")]
        sign = rows["sign"].cast(pa.int64()) if self.revisable else None
        ones = pa.chunked_array([pa.array(np.ones(rows.num_rows, dtype=np.int64))])
        prepared = prepared.append_column("n", sign if sign is not None else ones)
        for name, column, function in self._scalars(rows, sign):
            prepared, plan = prepared.append_column(name, column), [*plan, (name, function)]
        found: Partials = {"main": self._spread(_group(prepared, dims, plan))}
        for j, value in enumerate(self.values):
            if value.bag:
                bag = rows.select([*dims]).append_column("v", rows[f"v{j}"])
                bag = bag.append_column("n", prepared["n"]).filter(pc.is_valid(rows[f"v{j}"]))
                found[f"bag{j}"] = self._trim(j, _group(bag, [*dims, "v"], [("n", "sum")]), dims)
        for i, measure in self._users():
            found["main"] = self._fold(found["main"], rows, dims, f"u{i}", measure, add=True)
        return found

    def _scalars(self, rows: pa.Table, sign: pa.ChunkedArray | None) -> list[tuple[str, pa.ChunkedArray, str]]:
        found = []
        for j, value in enumerate(self.values):
            column = rows[f"v{j}"]
            wanted = {m.function for m in self.measures if m.value == j and not self.bagged(m)}
            if not wanted:
                continue
            valid = pc.cast(pc.is_valid(column), pa.int64())
            found.append((f"c{j}", valid if sign is None else pc.multiply(valid, sign), "sum"))
            if "sum" in wanted and value.exact:
                wide = column.cast(_sum_type(value.type))
                self._guard(wide, f"s{j}")
                found.append((f"s{j}", wide if sign is None else _signed(wide, sign), "sum"))
            if "mean" in wanted or ("sum" in wanted and not value.exact):
                found.append((f"f{j}", column.cast(pa.float64()), "sum"))
            if "min" in wanted:
                found.append((f"lo{j}", column, "min"))
            if "max" in wanted:
                found.append((f"hi{j}", column, "max"))
            if "stddev" in wanted:
                found.append((f"m{j}", column.cast(pa.float64()), "mean"))
                found.append((f"q{j}", column.cast(pa.float64()), "variance"))
        return found

    def _spread(self, main: pa.Table) -> pa.Table:
        """Variance -> sum of squared deviations, which can be merged."""
        for j in range(len(self.values)):
            if f"q{j}" in main.column_names:
                squares = pc.multiply(main[f"q{j}"], main[f"c{j}"].cast(pa.float64()))
                main = main.set_column(main.column_names.index(f"q{j}"), f"q{j}", squares)
        return main

    # ---- partials + partials

    def merge(self, parts: Sequence[Partials], dims: Sequence[str]) -> Partials:
        """Partials of the same dimensions made one; associative and commutative."""
        mains = pa.concat_tables([part["main"] for part in parts])
        plan = [(n, _MERGED[n.rstrip("0123456789")]) for n in mains.column_names if n not in dims and n[0] not in "mqu"]
        for name, _ in plan:
            if name[0] == "s":
                self._guard(mains[name], name)
        found: Partials = {"main": _group(mains, dims, plan)}
        for j in range(len(self.values)):
            if f"m{j}" in mains.column_names:
                found["main"] = _merge_deviations(found["main"], mains, dims, j)
            if f"bag{j}" in parts[0]:
                bags = pa.concat_tables([part[f"bag{j}"] for part in parts])
                bag = _group(bags, [*dims, "v"], [("n", "sum")])
                found[f"bag{j}"] = self._trim(j, bag.filter(pc.not_equal(bag["n"], 0)), dims)
        for i, measure in self._users():
            found["main"] = self._fold(found["main"], mains, dims, f"u{i}", measure, add=False)
        return found

    def _guard(self, column: pa.ChunkedArray, name: str) -> None:
        """Sums are exact or an error, never wrapped around."""
        if not pa.types.is_integer(column.type) or len(column) == 0:
            return
        ends = pc.min_max(column)
        largest = max(abs(ends["min"].as_py() or 0), abs(ends["max"].as_py() or 0))
        if largest * len(column) >= 2**63:
            total = sum(v for v in column.to_pylist() if v is not None)
            if abs(total) >= 2**63 or largest >= 2**62:
                sql = self.values[int(name[1:])].sql
                fix = f'Widen it: sum("CAST({sql} AS decimal(38,0))").'
                raise ExecutionError(
                    f"sum of '{sql}'", "a total that fits bigint", "an overflow", fix, code="EXECUTION-001"
                )

    # ---- partials -> results

    def finish(self, partials: Partials, dims: Sequence[str]) -> pa.Table:
        """Dimensions, ``n`` (rows behind the result) and ``r0, r1...``, one per measure; groups without rows are left out."""
        main = partials["main"]
        main = main.filter(pc.greater(main["n"], 0))
        result = main.select([*dims, "n"])
        for i, measure in enumerate(self.measures):
            column = self._result(i, measure, main, partials, dims)
            result = result.append_column(f"r{i}", column.cast(arrow_type(measure.type)))
        return result

    def _result(self, i: int, measure: Measure, main: pa.Table, partials: Partials, dims: Sequence[str]) -> Any:
        j, function = measure.value, measure.function
        if j is None:
            return main["n"]
        if self.bagged(measure):
            found = _aligned(main, dims, *self._from_bag(measure, partials[f"bag{j}"], dims))
            return _filled(found, measure.aggregate)
        match function:
            case "count":
                return main[f"c{j}"]
            case "sum":
                some = pc.greater(main[f"c{j}"], 0)
                total = main[f"s{j}" if self.values[j].exact else f"f{j}"]
                return pc.if_else(some, total, pa.scalar(None, total.type))
            case "mean":
                return _quotient(main[f"f{j}"], main[f"c{j}"])
            case "stddev":
                spread = pc.max_element_wise(main[f"q{j}"], 0.0)
                return pc.sqrt(_quotient(spread, pc.subtract(main[f"c{j}"], 1)))
            case "min" | "max":
                return main[f"lo{j}" if function == "min" else f"hi{j}"]
            case _:
                user = measure.aggregate
                assert isinstance(user, Aggregate)
                with user_code_boundary(f"aggregate '{measure.name}', result()"):
                    values = [user.result(json.loads(a) if a else user.create()) for a in main[f"u{i}"].to_pylist()]
                    return pa.chunked_array([fitted(values, arrow_type(measure.type))])

    def _from_bag(self, measure: Measure, bag: pa.Table, dims: Sequence[str]) -> tuple[pa.Table, pa.ChunkedArray]:
        """The dimensions that have values at all, and their results."""
        bag = bag.filter(pc.greater(bag["n"], 0))
        match measure.function:
            case "count_distinct":
                grouped = _group(bag, dims, [("v", "count")])
                return grouped, grouped["v"]
            case "approx_count_distinct":
                return _estimates(bag, dims)
            case "min" | "max" as function:
                grouped = _group(bag, dims, [("v", function)])
                return grouped, grouped["v"]
            case "user":
                return self._refold(measure, bag, dims)
            case "median" | "distinct" | "top_n":
                return self._listed(measure, bag, dims)
        bag = bag.take(pc.sort_indices(bag["v"]))  # so that floating sums depend on the set of values alone
        weights, values = bag["n"].cast(pa.float64()), bag["v"].cast(pa.float64())
        weighted = bag.select([*dims, "n"]).append_column("x", pc.multiply(values, weights))
        grouped = _group(weighted, dims, [("n", "sum"), ("x", "sum")])
        if measure.function == "sum":
            return grouped, grouped["x"]
        if measure.function == "mean":
            return grouped, _quotient(grouped["x"], grouped["n"])
        means = _aligned(bag, dims, grouped, _quotient(grouped["x"], grouped["n"]))
        distance = pc.subtract(values, means)
        squares = bag.select([*dims]).append_column("q", pc.multiply(pc.multiply(distance, distance), weights))
        totals = _group(squares, dims, [("q", "sum")])
        spread = _aligned(grouped, dims, totals, totals["q"])
        return grouped, pc.sqrt(_quotient(spread, pc.subtract(grouped["n"], 1)))

    # ---- user aggregates: plain Python, one accumulator at a time

    def _users(self) -> list[tuple[int, Measure]]:
        return [(i, m) for i, m in enumerate(self.measures) if m.function == "user" and not self.bagged(m)]

    def _fold(
        self, main: pa.Table, items: pa.Table, dims: Sequence[str], name: str, measure: Measure, *, add: bool
    ) -> pa.Table:
        user = measure.aggregate
        assert isinstance(user, Aggregate)
        ids, groups = group_ids(items, dims)
        accumulators: list[Any] = [None] * groups.num_rows
        column = items[f"v{measure.value}" if add else name].to_pylist()
        signs = items["sign"].to_pylist() if add and self.revisable else [1] * len(column)
        with user_code_boundary(f"aggregate '{measure.name}'"):
            for group, item, sign in zip(ids.tolist(), column, signs, strict=True):
                if item is None:
                    continue
                if accumulators[group] is None:
                    accumulators[group] = user.create()
                if not add:
                    accumulators[group] = user.merge(accumulators[group], json.loads(item))
                elif sign > 0:
                    accumulators[group] = user.add(accumulators[group], item)
                else:
                    accumulators[group] = user.retract(accumulators[group], item)  # type: ignore[attr-defined]  # see _needs_bag
            texts = [None if a is None else json.dumps(a) for a in accumulators]
        return main.append_column(name, _aligned(main, dims, groups, pa.chunked_array([pa.array(texts, pa.string())])))

    def _refold(self, measure: Measure, bag: pa.Table, dims: Sequence[str]) -> tuple[pa.Table, pa.ChunkedArray]:
        user = measure.aggregate
        assert isinstance(user, Aggregate)
        ids, groups = group_ids(bag, dims)
        with user_code_boundary(f"aggregate '{measure.name}'"):
            accumulators = [user.create() for _ in range(groups.num_rows)]
            for group, value, times in zip(ids.tolist(), bag["v"].to_pylist(), bag["n"].to_pylist(), strict=True):
                for _ in range(times):
                    accumulators[group] = user.add(accumulators[group], value)
            results = fitted([user.result(a) for a in accumulators], arrow_type(measure.type))
        return groups, pa.chunked_array([results])

    def _listed(self, measure: Measure, bag: pa.Table, dims: Sequence[str]) -> tuple[pa.Table, pa.ChunkedArray]:
        assert isinstance(measure.aggregate, Builtin)
        ids, groups = group_ids(bag, dims)
        found: list[list[tuple[Any, int]]] = [[] for _ in range(groups.num_rows)]
        for group, value, times in zip(ids.tolist(), bag["v"].to_pylist(), bag["n"].to_pylist(), strict=True):
            found[group].append((value, times))
        results = [from_bag(measure.aggregate, values) for values in found]
        return groups, pa.chunked_array([pa.array(results, arrow_type(measure.type))])

    def _normal(self, rows: pa.Table) -> pa.Table:
        """-0.0 is 0.0, so that they are one value in bags, as in SQL."""
        for j, value in enumerate(self.values):
            if value.type in {"float", "double"}:
                name = f"v{j}"
                rows = rows.set_column(
                    rows.column_names.index(name), name, pc.add(rows[name], pa.scalar(0.0, rows[name].type))
                )
        return rows

    def _trim(self, j: int, bag: pa.Table, dims: Sequence[str]) -> pa.Table:
        """Only the smallest hashes matter to an approximate count; on a revisable input any of them may go again."""
        users = {m.function for m in self.measures if m.value == j}
        if users != {"approx_count_distinct"} or self.revisable or bag.num_rows <= KEPT_HASHES + 1:
            return bag
        order, rank = _rank(bag, dims)
        return bag.take(pa.array(order[rank <= KEPT_HASHES]))


_MERGED = {"n": "sum", "c": "sum", "s": "sum", "f": "sum", "lo": "min", "hi": "max"}


def _signed(values: pa.ChunkedArray, sign: pa.ChunkedArray) -> pa.ChunkedArray:
    """Values, those that are taken back negated; a product of decimals would ask for twice the digits."""
    return pc.if_else(pc.less(sign, 0), pc.negate(values), values)


def _needs_bag(aggregate: AnyAggregate, kind: str, *, revisable: bool) -> bool:
    if isinstance(aggregate, Aggregate):
        return revisable and not hasattr(aggregate, "retract")
    exact = kind in _EXACT or kind.startswith("decimal")
    return aggregate.function in _BAGGED or (
        revisable and aggregate.function != "count" and not (aggregate.function == "sum" and exact)
    )


def _sum_type(kind: str) -> pa.DataType:
    return pa.decimal128(38, arrow_type(kind).scale) if kind.startswith("decimal") else pa.int64()


def _group(table: pa.Table, dims: Sequence[str], plan: Sequence[tuple[str, str]]) -> pa.Table:
    """Group by, with the columns keeping their names and order."""
    options = {"sum": pc.ScalarAggregateOptions(min_count=0), "variance": pc.VarianceOptions(ddof=0)}
    grouped = table.group_by(list(dims), use_threads=False).aggregate([(n, f, options.get(f)) for n, f in plan])
    return grouped.select([*dims, *(f"{n}_{f}" for n, f in plan)]).rename_columns([*dims, *(n for n, _ in plan)])


def group_ids(table: pa.Table, dims: Sequence[str]) -> tuple[npt.NDArray[np.int64], pa.Table]:
    """A dense number per row for its dimensions, and the dimensions by number; null is a value."""
    codes = np.zeros(table.num_rows, dtype=np.int64)
    for dim in dims:
        encoded = table[dim].combine_chunks()
        encoded = pc.dictionary_encode(encoded, null_encoding="encode")
        if isinstance(encoded, pa.ChunkedArray):
            encoded = encoded.combine_chunks()
        codes = codes * max(len(encoded.dictionary), 1) + encoded.indices.to_numpy(zero_copy_only=False)
        codes = np.unique(codes, return_inverse=True)[1].astype(np.int64)
    _, first, ids = np.unique(codes, return_index=True, return_inverse=True)
    return ids.astype(np.int64), table.select([*dims]).take(pa.array(first))


def _aligned(main: pa.Table, dims: Sequence[str], groups: pa.Table, column: pa.ChunkedArray) -> pa.ChunkedArray:
    """``column``, which belongs to ``groups``, in the row order of ``main``; null where a group is missing."""
    both = pa.concat_tables([groups.select([*dims]), main.select([*dims])])
    ids, _ = group_ids(both, dims)
    place = np.full(int(ids.max(initial=-1)) + 1, -1, dtype=np.int64)
    place[ids[: groups.num_rows]] = np.arange(groups.num_rows)
    found = place[ids[groups.num_rows :]]
    return column.take(pa.array(found, mask=found < 0))


def _quotient(top: pa.ChunkedArray, count: pa.ChunkedArray) -> pa.ChunkedArray:
    """``top / count`` as double; null where the count is not positive."""
    some = pc.greater(count, 0)
    safe = pc.if_else(some, count, pa.scalar(1, count.type))
    return pc.if_else(some, pc.divide(top.cast(pa.float64()), safe.cast(pa.float64())), pa.scalar(None, pa.float64()))


def _filled(found: pa.ChunkedArray, aggregate: AnyAggregate) -> pa.ChunkedArray:
    """What an aggregate says of no values at all, where there were none."""
    if not found.null_count:
        return found
    if isinstance(aggregate, Aggregate):
        nothing = aggregate.result(aggregate.create())
        return found if nothing is None else pc.fill_null(found, pa.scalar(nothing, found.type))
    if aggregate.function in {"count_distinct", "approx_count_distinct"}:
        return pc.fill_null(found, 0)
    if aggregate.function in {"distinct", "top_n"}:
        return pa.chunked_array([pa.array([v or [] for v in found.to_pylist()], found.type)])
    return found


def _merge_deviations(main: pa.Table, mains: pa.Table, dims: Sequence[str], j: int) -> pa.Table:
    """Mean and sum of squared deviations of parts. Source: Chan, Golub, LeVeque, 1979."""
    ids, groups = group_ids(mains, dims)
    counts = mains[f"c{j}"].to_numpy().astype(np.float64)
    means = np.nan_to_num(mains[f"m{j}"].to_numpy(zero_copy_only=False).astype(np.float64))
    squares = np.nan_to_num(mains[f"q{j}"].to_numpy(zero_copy_only=False).astype(np.float64))
    size = groups.num_rows
    total = np.bincount(ids, counts, size)
    mean = np.bincount(ids, counts * means, size) / np.maximum(total, 1.0)
    spread = np.bincount(ids, squares + counts * (means - mean[ids]) ** 2, size)
    for name, values in ((f"m{j}", mean), (f"q{j}", spread)):
        main = main.append_column(name, _aligned(main, dims, groups, pa.chunked_array([pa.array(values)])))
    return main


def _rank(bag: pa.Table, dims: Sequence[str]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Row numbers sorted by group and hash, and each one's rank in its group."""
    ids, _ = group_ids(bag, dims)
    hashes = bag["v"].to_numpy()
    order = np.lexsort((hashes, ids)).astype(np.int64)
    ordered = ids[order]
    starts = np.searchsorted(ordered, ordered, side="left")
    return order, np.arange(len(order), dtype=np.int64) - starts


def _estimates(bag: pa.Table, dims: Sequence[str]) -> tuple[pa.Table, pa.ChunkedArray]:
    """K minimum values: (k - 1) / the k-th smallest hash, as a share of all hashes."""
    ids, groups = group_ids(bag, dims)
    counts = np.bincount(ids, minlength=groups.num_rows)
    estimates = counts.astype(np.int64)
    if (counts > KEPT_HASHES).any():
        order, rank = _rank(bag, dims)
        hashes = bag["v"].to_numpy()
        for row in order[rank == KEPT_HASHES - 1].tolist():
            if counts[ids[row]] > KEPT_HASHES:
                share = (int(hashes[row]) + 2**63 + 1) / 2**64
                estimates[ids[row]] = math.floor((KEPT_HASHES - 1) / share + 0.5)
    return groups, pa.chunked_array([pa.array(estimates)])
