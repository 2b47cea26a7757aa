"""Accumulators in columns: rows -> partials -> merged partials -> results. One arithmetic for every engine and mode.

Partials are a set of Arrow tables that share the *dimensions* (keys and a window): ``main`` with one row per group of
dimensions, one *bag* per value whose aggregates need the values themselves (``v`` and how often, ``n``), and one bag of hashes per value
whose different values are counted approximately. On an input that can be revised every row has a sign, and whatever cannot be undone by
subtraction is stored in a bag.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from floodmark.core.errors import user_code_boundary
from floodmark.semantics.aggregates.bags import TooLargeError
from floodmark.semantics.aggregates.grouping import aligned, group_ids, grouped
from floodmark.semantics.aggregates.numbers import key_text, normal, overflow
from floodmark.semantics.aggregates.parts import Part, with_spread
from floodmark.semantics.aggregates.sketch import KEPT_HASHES, estimate, hashes_of
from floodmark.semantics.aggregates.table import TABLE, Columns, needs_bag
from floodmark.semantics.encoding.columns import arrow_type, fitted
from floodmark.spec.expressions import check
from floodmark.spec.graph.steps import WindowAggregate
from floodmark.spec.windowing.aggregates import Aggregate, AnyAggregate, Builtin

Partials = dict[str, pa.Table]

_SKETCHED = "approx_count_distinct"


@dataclass(frozen=True, slots=True)
class Value:
    """An input column of the aggregates.

    Args:
        sql: the Spark SQL that computes it.
        type: its Spark SQL type.
        bag: store the values themselves.
        sketch: store hashes of the values.
    """

    sql: str
    type: str
    bag: bool = False
    sketch: bool = False


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
        keys: names of the key columns, which are ``k0, k1, ...`` in the tables.
    """

    values: tuple[Value, ...]
    measures: tuple[Measure, ...]
    revisable: bool
    keys: tuple[str, ...] = ()

    @staticmethod
    def of(step: WindowAggregate, *, revisable: bool) -> Accumulators:
        """The accumulators of a step's aggregates; equal expressions share a value column."""
        values: dict[str, Value] = {}
        measures = []
        for name, aggregate in step.aggregates:
            sql = aggregate.expression
            if sql is not None:
                kind = check(sql, step.parent.schema, f"aggregate '{name}'")
                known = values.get(sql, Value(sql, kind))
                bag = known.bag or needs_bag(aggregate, kind, revisable=revisable)
                sketch = known.sketch or getattr(aggregate, "function", "") == _SKETCHED
                values[sql] = Value(sql, kind, bag, sketch)
            position = list(values).index(sql) if sql is not None else None
            measures.append(Measure(name, aggregate, position, step.schema[name].type))
        return Accumulators(tuple(values.values()), tuple(measures), revisable, step.keys)

    def bagged(self, measure: Measure) -> bool:
        """Whether the measure is computed from the bag of its value."""
        if measure.value is None:
            return False
        return needs_bag(measure.aggregate, self.values[measure.value].type, revisable=self.revisable)

    def _columns(self, j: int) -> list[Columns]:
        """The columnar forms of a value's measures."""
        forms = (
            TABLE[m.function].columns
            for m in self.measures
            if m.value == j and m.function in TABLE and not self.bagged(m)
        )
        return [form for form in forms if form is not None]

    def parts_of(self, j: int) -> list[Part]:
        """The distinct parts of a value in ``main``."""
        kind = self.values[j].type
        return list(dict.fromkeys(part for form in self._columns(j) for part in form.parts(kind)))

    def spreads(self, j: int) -> bool:
        """Whether ``main`` has deviations of a value."""
        return any(form.spread for form in self._columns(j))

    # ---- rows -> partials

    def partials(self, rows: pa.Table, dims: Sequence[str]) -> Partials:
        """Aggregate rows (dimensions, ``sign`` where revisable, ``v0``...) that may be few or many."""
        rows = normalised(rows, [*dims, *(f"v{j}" for j in range(len(self.values)))])
        sign = rows["sign"].cast(pa.int64()) if self.revisable else None
        ones = pa.chunked_array([pa.array(np.ones(rows.num_rows, dtype=np.int64))])
        prepared, plan = rows.select([*dims]).append_column("n", sign if sign is not None else ones), [("n", "sum")]
        for j, value in enumerate(self.values):
            for part in self.parts_of(j):
                for name, (column, function) in part.rows(j, rows[f"v{j}"], sign, value.type).items():
                    prepared, plan = prepared.append_column(name, column), [*plan, (name, function)]
        result: Partials = {"main": self._stored(grouped(prepared, dims, plan), rows, dims, rows=True)}
        for j, value in enumerate(self.values):
            valid = pc.is_valid(rows[f"v{j}"])
            if value.bag or value.sketch:
                some = prepared.select([*dims, "n"]).filter(valid)
                column = rows[f"v{j}"].filter(valid)
            if value.bag:
                result[f"bag{j}"] = _gathered(some.append_column("v", column), dims)
            if value.sketch:
                hashes = _gathered(some.append_column("v", hashes_of(column)), dims)
                result[f"bag{j}_hashes"] = self.trimmed(hashes, dims)
        for i, measure in self.users():
            result["main"] = self._fold(result["main"], rows, dims, f"user{i}", measure, add=True)
        return result

    def _stored(self, main: pa.Table, items: pa.Table, dims: Sequence[str], *, rows: bool) -> pa.Table:
        for j in range(len(self.values)):
            for part in self.parts_of(j):
                main = part.stored(j, main)
            if self.spreads(j):
                main = with_spread(main, items, [*dims], j, rows=rows)
        return main.select([*dims, "n", *sorted(set(main.column_names) - {*dims, "n"})])

    # ---- partials + partials

    def merge(self, parts: Sequence[Partials], dims: Sequence[str]) -> Partials:
        """Merge partials of the same dimensions; associative and commutative."""
        mains = pa.concat_tables([part["main"] for part in parts])
        plan = [
            ("n", "sum"),
            *(step for j in range(len(self.values)) for part in self.parts_of(j) for step in part.plan(j)),
        ]
        result: Partials = {"main": self._stored(grouped(mains, dims, plan), mains, dims, rows=False)}
        for name in parts[0]:
            if name.startswith("bag"):
                bag = _gathered(pa.concat_tables([part[name] for part in parts]), dims)
                bag = bag.filter(pc.not_equal(bag["n"], 0))
                result[name] = self.trimmed(bag, dims) if name.endswith("_hashes") else bag
        for i, measure in self.users():
            result["main"] = self._fold(result["main"], mains, dims, f"user{i}", measure, add=False)
        return result

    # ---- partials -> results

    def finish(self, partials: Partials, dims: Sequence[str]) -> pa.Table:
        """Dimensions, ``n`` (rows behind the result) and ``r0, r1...``, one per measure; groups without rows are left out.

        Raises:
            ExecutionError: EXECUTION-001, a total that does not fit.
        """
        main = partials["main"]
        main = main.filter(pc.greater(main["n"], 0))
        result = main.select([*dims, "n"])
        for i, measure in enumerate(self.measures):
            column = self._result(i, measure, main, partials, dims)
            result = result.append_column(f"r{i}", column.cast(arrow_type(measure.type)))
        return result

    def _result(self, i: int, measure: Measure, main: pa.Table, partials: Partials, dims: Sequence[str]) -> Any:
        j, aggregate = measure.value, measure.aggregate
        if j is None:
            return main["n"]
        if isinstance(aggregate, Aggregate):
            return self._user_result(i, measure, aggregate, main, partials, dims)
        kind, form = self.values[j].type, TABLE[aggregate.function]
        if aggregate.function == _SKETCHED:
            return _filled(aligned(main, dims, *_estimates(_present(partials[f"bag{j}_hashes"]), dims)), form.empty)
        if self.bagged(measure):
            assert form.bag is not None
            try:
                results = form.bag(_present(partials[f"bag{j}"]), dims, aggregate, measure.type)
            except TooLargeError as error:
                key = {name: error.group[f"k{place}"] for place, name in enumerate(self.keys)}
                raise overflow(measure.name, self.values[j].sql, measure.type, key_text(key)) from None
            return _filled(aligned(main, dims, *results), form.empty)
        assert form.columns is not None
        fits = form.columns.fits(main, j, kind) if form.columns.fits else None
        if fits is not None and pc.any(pc.invert(fits)).as_py():
            row = main.filter(pc.invert(fits)).slice(0, 1).to_pylist()[0]
            key = {name: row[f"k{place}"] for place, name in enumerate(self.keys)}
            raise overflow(measure.name, self.values[j].sql, measure.type, key_text(key))
        return form.columns.result(main, j, kind)

    # ---- user aggregates: plain Python, one accumulator at a time

    def _user_result(
        self, i: int, measure: Measure, user: Aggregate, main: pa.Table, partials: Partials, dims: Sequence[str]
    ) -> pa.ChunkedArray:
        if self.bagged(measure):
            with user_code_boundary(f"aggregate '{measure.name}', result()"):
                nothing = user.result(user.create())
            results = self._refold(measure, user, _present(partials[f"bag{measure.value}"]), dims)
            return _filled(aligned(main, dims, *results), nothing)
        with user_code_boundary(f"aggregate '{measure.name}', result()"):
            values = [user.result(json.loads(a) if a else user.create()) for a in main[f"user{i}"].to_pylist()]
            return pa.chunked_array([fitted(values, arrow_type(measure.type))])

    def users(self) -> list[tuple[int, Measure]]:
        """The user's aggregates that have an accumulator in ``main``, each with its number among the measures."""
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
        return main.append_column(name, aligned(main, dims, groups, pa.chunked_array([pa.array(texts, pa.string())])))

    def _refold(
        self, measure: Measure, user: Aggregate, bag: pa.Table, dims: Sequence[str]
    ) -> tuple[pa.Table, pa.ChunkedArray]:
        ids, groups = group_ids(bag, dims)
        with user_code_boundary(f"aggregate '{measure.name}'"):
            accumulators = [user.create() for _ in range(groups.num_rows)]
            for group, value, times in zip(ids.tolist(), bag["v"].to_pylist(), bag["n"].to_pylist(), strict=True):
                for _ in range(times):
                    accumulators[group] = user.add(accumulators[group], value)
            results = fitted([user.result(a) for a in accumulators], arrow_type(measure.type))
        return groups, pa.chunked_array([results])

    def trimmed(self, hashes: pa.Table, dims: Sequence[str]) -> pa.Table:
        """The smallest hashes, which are all that counts; on a revisable input all hashes, as any may be retracted."""
        if self.revisable or hashes.num_rows <= KEPT_HASHES + 1:
            return hashes
        order, rank = _rank(hashes, dims)
        return hashes.take(pa.array(order[rank <= KEPT_HASHES]))


def normalised(table: pa.Table, names: Sequence[str]) -> pa.Table:
    """The table with one NaN and one zero in these columns, so that each is one value in keys and bags, as in SQL."""
    for name in names:
        if pa.types.is_floating(table.schema.field(name).type):
            table = table.set_column(table.column_names.index(name), name, normal(table[name]))
    return table


def _gathered(bag: pa.Table, dims: Sequence[str]) -> pa.Table:
    return grouped(bag, [*dims, "v"], [("n", "sum")])


def _present(bag: pa.Table) -> pa.Table:
    return bag.filter(pc.greater(bag["n"], 0))


def _filled(column: pa.ChunkedArray, empty: Any) -> pa.ChunkedArray:
    """The column with ``empty``, the aggregate's result of no values, in place of null."""
    if not column.null_count or empty is None:
        return column
    if pa.types.is_list(column.type):
        return pa.chunked_array([pa.array([empty if v is None else v for v in column.to_pylist()], column.type)])
    return pc.fill_null(column, pa.scalar(empty, column.type))


def _rank(hashes: pa.Table, dims: Sequence[str]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Row numbers sorted by group and hash, and each one's rank in its group."""
    ids, _ = group_ids(hashes, dims)
    order = np.lexsort((hashes["v"].to_numpy(), ids)).astype(np.int64)
    ordered = ids[order]
    starts = np.searchsorted(ordered, ordered, side="left")
    return order, np.arange(len(order), dtype=np.int64) - starts


def _estimates(hashes: pa.Table, dims: Sequence[str]) -> tuple[pa.Table, pa.ChunkedArray]:
    ids, groups = group_ids(hashes, dims)
    counts = np.bincount(ids, minlength=groups.num_rows).astype(np.int64)
    estimates = counts.copy()
    if (counts > KEPT_HASHES).any():
        order, rank = _rank(hashes, dims)
        numbers = hashes["v"].to_numpy()
        for row in order[rank == KEPT_HASHES - 1].tolist():
            estimates[ids[row]] = estimate(int(counts[ids[row]]), int(numbers[row]))
    return groups, pa.chunked_array([pa.array(estimates)])
