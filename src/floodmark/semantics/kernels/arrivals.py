"""Rows of key groups in the order in which a kernel that goes row by row processes them.

Where arrival has no order, rows wait until progress reaches their effective time, and come sorted by it: those of several key groups are sorted
at once. A key group keeps its waiting rows in chunks, which its index names: ``held``, number of a chunk -> the earliest effective time in it.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from floodmark.semantics.aggregates.numbers import Ints
from floodmark.semantics.encoding.columns import arrow_type, decode, encode, python_values
from floodmark.semantics.encoding.order import order_key
from floodmark.semantics.kernels.elements import ElementStage, ProcessStage
from floodmark.semantics.state.index import TOGETHER
from floodmark.semantics.state.store import Store
from floodmark.semantics.time.ordering import Spans, in_order, spans_of
from floodmark.spec.values.schema import RETRACTION, Schema

GROUP = "group"


class Arrivals:
    """Rows of one key group or of several, those of each group in the order in which they are processed.

    A column is made Python values once, when it is first asked for, whichever rows it is asked for.

    Args:
        stage: that processes them.
        table: the rows.
        places: sequence or effective time of each.
    """

    def __init__(self, stage: ElementStage | ProcessStage, table: pa.Table, places: Sequence[int]) -> None:
        self.stage, self.table, self.places = stage, table, places

    @cached_property
    def keys(self) -> list[tuple[Any, ...]]:
        """The key of each row."""
        columns = [plain_keys(self.table[key]) for key in self.stage.keys]
        return list(zip(*columns, strict=True)) if columns else [()] * self.table.num_rows

    @cached_property
    def values(self) -> list[tuple[Any, ...]]:
        """The values of each row that the stage asks for."""
        columns = [python_values(self.table[f"v{i}"]) for i in range(len(self.stage.values))]
        return list(zip(*columns, strict=True)) if columns else [()] * self.table.num_rows

    @cached_property
    def rows(self) -> list[Any]:
        """Each row as a whole; None where the stage sees none."""
        return python_values(self.table["row"]) if "row" in self.table.column_names else [None] * self.table.num_rows

    @cached_property
    def times(self) -> list[int]:
        """Event times."""
        return self.table["t"].to_pylist()  # type: ignore[no-any-return]

    @cached_property
    def stamps(self) -> list[int]:
        """Stamps."""
        return self.table["w"].to_pylist()  # type: ignore[no-any-return]

    @cached_property
    def kinds(self) -> list[int]:
        """Kinds."""
        return self.table["kind"].to_pylist()  # type: ignore[no-any-return]


def divided(rows: pa.Table, *, by_time: bool) -> tuple[pa.Table, dict[int, tuple[int, int]]]:
    """Rows sorted by key group, those of each in order of arrival unless they are sorted later; key group -> the first of its rows, and the one after its last."""
    order = [("group", "ascending"), *([] if by_time else [("s", "ascending")])]
    rows = rows.take(pc.sort_indices(rows, order))
    return rows.drop_columns(["group"]), spans_of(rows["group"].to_numpy())


def plain_keys(values: pa.ChunkedArray) -> list[Any]:
    """Values of a key column, with a single NaN object."""
    key_values: list[Any] = python_values(values)
    if pa.types.is_floating(values.type):
        key_values = [math.nan if v is not None and math.isnan(v) else v for v in key_values]
    return key_values


@dataclass(frozen=True, slots=True)
class Waiting:
    """The waiting rows of some key groups.

    Args:
        stage: that processes them.
        stores: key group -> its store.
        extras: key group -> what its index has beside its entries; changed here.
        rank: sort key of a row as a whole among rows of one event time; None without one.
        sequences: (rows) -> what orders them within that rank, before their values.
    """

    stage: ElementStage | ProcessStage
    stores: Mapping[int, Store]
    extras: Mapping[int, dict[str, Any]]
    rank: Callable[[Any], tuple[Any, ...]] | None
    sequences: Callable[[pa.Table], Sequence[int]]

    def ordered(self, rows: pa.Table | None, progress: int) -> tuple[Arrivals, Spans]:
        """The rows to process now, in their order, and where those of each key group are. Rows that wait for progress are put into the stores.

        Args:
            rows: that have come, with the column ``group``; None for none.
            progress: all rows on time up to here are in.
        """
        due = [
            (group, [number for number, first in extra.get("held", {}).items() if first <= progress])
            for group, extra in self.extras.items()
        ]
        parts = [] if rows is None or not rows.num_rows else [rows]
        parts += self._released([(group, number) for group, numbers in due for number in numbers])
        if not parts:
            return Arrivals(self.stage, pa.table({}), []), {}
        # rows that an older version stored may differ in nullability
        table = pa.concat_tables(parts, promote_options="permissive")
        ready = pc.less_equal(effective(table), progress)
        self._hold(table.filter(pc.invert(ready)))
        return self._sorted(table.filter(ready))

    def _sorted(self, table: pa.Table) -> tuple[Arrivals, Spans]:
        moments = effective(table)
        table = table.set_column(table.column_names.index("w"), "w", pc.subtract(moments, 1))
        inputs = [table["v0"]] if self.stage.several else []
        instants = [values.to_numpy().astype(np.int64) for values in (table[GROUP], moments, *inputs, table["t"])]
        table = table.drop_columns([GROUP])
        sequences = self.sequences(table)
        order = in_order(table, instants, sequences) if self.rank is None else None
        if order is None:
            order = self._by_row(table, list(zip(*(values.tolist() for values in instants), strict=True)), sequences)
        groups, times = (values[order] for values in instants[:2])
        return Arrivals(self.stage, table.take(pa.array(order)), times.tolist()), spans_of(groups)

    def _by_row(self, table: pa.Table, instants: Sequence[tuple[int, ...]], sequences: Sequence[int]) -> Ints:
        """The positions of rows in their order; a row and its retraction at its own instant are left out."""
        shared = Counter(instants)
        crowded = [at for at, instant in enumerate(instants) if shared[instant] > 1]  # rows are compared there alone
        rows, gone = dict(zip(crowded, _whole(table.take(pa.array(crowded, pa.int64()))), strict=True)), set[int]()
        ranks: dict[int, tuple[Any, ...]] = {
            at: (*(() if self.rank is None else self.rank(row.get("row"))), sequences[at], order_key(row))
            for at, row in rows.items()
        }
        if RETRACTION in table["kind"].to_pylist():
            gone = _undone(rows, instants)
        order = sorted(
            (i for i in range(table.num_rows) if i not in gone), key=lambda i: (instants[i], ranks.get(i, ()))
        )
        return np.array(order, np.int64)

    def _hold(self, rows: pa.Table) -> None:
        """Put waiting rows into the stores, merged with the newest small chunks of their key groups, so that chunks are of falling size."""
        sizes = Counter[int](rows[GROUP].to_pylist())
        while small := list(self._small(sizes)):
            parts = self._released(small)
            rows = pa.concat_tables([*parts, rows], promote_options="permissive")
            for part in parts:
                sizes.update(part[GROUP].to_pylist())
        rows = rows.take(pc.sort_indices(rows[GROUP])).combine_chunks()
        times, spans = effective(rows).to_numpy(), spans_of(rows[GROUP].to_numpy())
        rows = rows.drop_columns([GROUP])
        for group, (start, stop) in spans.items():
            extra = self.extras[group]
            number = extra["next"] = extra.get("next", 0) - 1
            self.stores[group].put(number, encode({"rows": rows.slice(start, stop - start)}))
            extra["held"][number] = int(times[start:stop].min())
            extra.setdefault("sizes", {})[number] = stop - start

    def _small(self, sizes: Mapping[int, int]) -> Iterator[tuple[int, int]]:
        """(key group, number) of the newest chunk of each key group with new rows, if it is small beside them.

        Args:
            sizes: key group -> its new rows.
        """
        for group, size in sizes.items():
            extra = self.extras[group]
            if extra["held"]:
                newest = min(extra["held"])
                before = extra.get("sizes", {}).get(newest, 0)  # older versions did not write sizes
                if before < 2 * size and before + size <= TOGETHER:
                    yield group, newest

    def _released(self, chunks: Sequence[tuple[int, int]]) -> list[pa.Table]:
        """Remove chunks, by key group and number, from the stores; their rows, one table for each schema."""
        by_schema: dict[pa.Schema, list[tuple[int, pa.Table]]] = {}
        for group, number in chunks:
            rows, extra = decode(self.stores[group].get(number))["rows"], self.extras[group]
            by_schema.setdefault(rows.schema, []).append((group, rows))
            self.stores[group].remove(number)
            del extra["held"][number]
            extra.get("sizes", {}).pop(number, None)
        return [
            with_group(
                _as_now(pa.concat_tables([rows for _, rows in parts]), self.stage.step.parent.schema),
                np.repeat([group for group, _ in parts], [rows.num_rows for _, rows in parts]),
            )
            for parts in by_schema.values()
        ]


def with_group(rows: pa.Table, groups: Any) -> pa.Table:
    """Rows with their key groups as a column."""
    return rows.append_column(GROUP, pa.array(groups, pa.int32()))


def effective(rows: pa.Table) -> pa.ChunkedArray:
    """The effective time of each row."""
    return pc.max_element_wise(rows["t"], pc.add(rows["w"], 1))


def _whole(table: pa.Table) -> list[dict[str, Any]]:
    """Rows as they are compared: all but the order in which they came."""
    names = [name for name in table.column_names if name not in {"s", "side"}]
    columns = [python_values(table[name]) for name in names]
    return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]


def _undone(rows: Mapping[int, Mapping[str, Any]], instants: Sequence[tuple[int, ...]]) -> set[int]:
    """The positions of rows that are retracted at their own instant, and of these retractions.

    Where arrival has no order, nothing else says that such a row comes before its retraction.

    Args:
        rows: position -> row, those that share their instant with others.
        instants: of each position.
    """
    waiting: dict[tuple[Any, ...], list[int]] = {}
    positions = set[int]()
    for position, row in rows.items():
        content = instants[position], repr([value for name, value in row.items() if name not in {"w", "kind"}])
        opposite = waiting.get((row["kind"] != RETRACTION, content))
        if opposite:
            positions |= {position, opposite.pop()}
        else:
            waiting.setdefault((row["kind"] == RETRACTION, content), []).append(position)
    return positions


def _as_now(held: pa.Table, schema: Schema) -> pa.Table:
    """Waiting rows of an older version with the current columns; a column that the older version did not read is null."""
    if "row" not in held.column_names:
        return held
    rows = held["row"].combine_chunks()
    known = {rows.type.field(position).name for position in range(rows.type.num_fields)}
    if known == set(schema.names):
        return held
    parts = [
        pc.struct_field(rows, c.name) if c.name in known else pa.nulls(len(rows), arrow_type(c.type))
        for c in schema.columns
    ]
    row = pa.StructArray.from_arrays(parts, names=list(schema.names), mask=pc.is_null(rows))
    return held.set_column(held.column_names.index("row"), "row", row)
