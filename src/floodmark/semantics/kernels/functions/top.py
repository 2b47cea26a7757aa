"""The kernel of ``top``: the first rows of each key so far, as rows and retractions of what changes with each row."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from functools import cached_property
from itertools import zip_longest
from typing import Any

import pyarrow as pa

from floodmark.core.types import is_same
from floodmark.semantics.kernels.arrivals import Arrivals
from floodmark.semantics.kernels.elements import ProcessStage
from floodmark.semantics.kernels.kernel import Tick
from floodmark.semantics.kernels.process import KeyCells, ProcessKernel
from floodmark.semantics.state.entries import Entry
from floodmark.semantics.state.store import Store
from floodmark.spec.keyed.top import Ranking, Top, TopAtOnce, first_of
from floodmark.spec.values.schema import RETRACTION

Numbered = list[tuple[int, tuple[Any, ...]]]
"""Number and values of the first rows, in order."""


def is_top(stage: ProcessStage) -> bool:
    """Whether a stage takes the first rows of each key."""
    return isinstance(stage.step.function.function, Top)


def is_at_once(stage: ProcessStage) -> bool:
    """Whether a stage takes the first rows of each key and event time."""
    return isinstance(stage.step.function.function, TopAtOnce)


class _Order:
    """The rows of a key in their order.

    Args:
        ranking: of the rows.
        columns: of a row.
        rows: in order.
        owed: values of retractions that came before their row.
        whole: all rows are held, as a retraction may make any of them one of the first.
    """

    def __init__(
        self, ranking: Ranking, columns: Sequence[str], rows: Sequence[Any], owed: Sequence[Any], *, whole: bool
    ) -> None:
        self.ranking, self.columns, self.whole = ranking, columns, whole
        self.rows = [tuple(row) for row in rows]
        self.owed = [tuple(row) for row in owed]
        if not whole and len(self.rows) > ranking.n:  # of a release that held all
            del self.rows[len(ranking.numbers(self.keys)) :]
            self.__dict__.pop("keys")

    @cached_property
    def keys(self) -> list[Any]:
        """What each row is sorted by."""
        return [self._key(row) for row in self.rows]

    def _key(self, row: tuple[Any, ...]) -> Any:
        return self.ranking.key(dict(zip(self.columns, row, strict=True)))

    def first(self) -> Numbered:
        """The first rows."""
        return list(zip(self.ranking.numbers(self.keys), self.rows, strict=False))

    def add(self, row: tuple[Any, ...]) -> None:
        """Put a row behind those of the same order, or before them."""
        known = next((at for at, other in enumerate(self.owed) if is_same(other, row)), None)
        if known is not None:
            del self.owed[known]
            return
        key = self._key(row)
        at = (bisect_left if self.ranking.latest else bisect_right)(self.keys, key)
        self.keys.insert(at, key)
        self.rows.insert(at, row)
        if not self.whole:
            size = len(self.ranking.numbers(self.keys))
            del self.keys[size:], self.rows[size:]

    def remove(self, row: tuple[Any, ...]) -> None:
        """Remove the row of these values that was processed last; one that is still to come, if there is none."""
        key = self._key(row)
        places = range(bisect_left(self.keys, key), bisect_right(self.keys, key))
        for at in places if self.ranking.latest else reversed(places):
            if is_same(self.rows[at], row):
                del self.keys[at], self.rows[at]
                return
        self.owed.append(row)


class TopCells(KeyCells):
    """The state of one key."""

    __slots__ = ("order",)

    def __init__(self, entry: Entry) -> None:
        super().__init__(entry)
        self.order: _Order | None = None

    @property
    def rows(self) -> list[tuple[Any, ...]]:
        """The rows in their order."""
        assert self.order is not None
        return self.order.rows

    @property
    def owes(self) -> bool:
        """Whether a retraction waits for its row."""
        assert self.order is not None
        return bool(self.order.owed)

    def keep(self, rows: list[tuple[Any, ...]]) -> None:
        """Hold these rows, which are in order, instead of those before."""
        assert self.order is not None
        self.order.rows = rows
        self.order.__dict__.pop("keys", None)

    def close(self) -> bool:
        """Write the rows into the entry; False if there are none."""
        assert self.order is not None
        parts = {"rows": self.order.rows, "owed": self.order.owed}
        self.states = {name: rows for name, rows in parts.items() if rows}
        return super().close()


class TopKernel(ProcessKernel):
    """The first rows of the keys of one key group, of a stage that ``is_top``."""

    acyclic = True

    def __init__(self, stage: ProcessStage, store: Store) -> None:
        super().__init__(stage, store)
        function = stage.step.function.function
        assert isinstance(function, Top)
        self.ranking = function.ranking
        keys = stage.step.keys
        self.read = [*function.columns, *(by.column for by in self.ranking.by if by.column not in function.columns)]
        self.own = [name for name in stage.step.schema.names if name not in keys]

    def _begin(self) -> None:
        super()._begin()
        self.entries.holds_columns()

    def _sequences(self, table: pa.Table) -> Sequence[int]:
        return table["s"].to_pylist() if self.stage.recorded else super()._sequences(table)

    def _opened(self, entry: Entry) -> TopCells:
        cells = TopCells(entry)
        cells.order = _Order(
            self.ranking,
            self.read,
            cells.states.get("rows", ()),
            cells.states.get("owed", ()),
            whole=self.stage.revised,
        )
        return cells

    def _element(
        self,
        key_state: Any,
        position: int,
        time: int,
        stamp: int,
        values: tuple[Any, ...],  # noqa: ARG002 - the base's
        row: Any,
    ) -> None:
        key_state.stamp, key_state.latest = stamp, max(key_state.latest, time)
        self.late += time <= stamp and self._wanted(time)
        order, own = key_state.order, tuple(row[name] for name in self.read)
        before = order.first()
        if self.kinds and self.kinds[position] == RETRACTION:
            order.remove(own)
        else:
            order.add(own)
        self.emits = key_state.entry.key, time, stamp
        self._emit_changes(before, order.first())

    def _emit_changes(self, before: Numbered, after: Numbered) -> None:
        """Retract the rows that are no longer first, or not with their number; emit those that are."""
        gone, come = self._apart(before, after), self._apart(after, before)
        for before_item, after_item in zip_longest(gone, come):
            if before_item is not None:
                self.retract(self._row_of(before_item))
            if after_item is not None:
                self._emit(self._row_of(after_item))

    def _apart(self, some: Numbered, others: Numbered) -> Numbered:
        """The rows of some that are not among others with the same number, where rows have one."""
        numbers = {id(values): number for number, values in others}
        if self.ranking.number:
            return [item for item in some if numbers.get(id(item[1])) != item[0]]
        return [item for item in some if id(item[1]) not in numbers]

    def _row_of(self, item: tuple[int, tuple[Any, ...]]) -> Mapping[str, Any]:
        number, values = item
        row = dict(zip(self.read, values, strict=True)) | {self.ranking.number: number}
        return {name: row[name] for name in self.own}


class AtOnceKernel(ProcessKernel):
    """The first of the rows of one key and event time, of a stage that ``is_at_once``."""

    def __init__(self, stage: ProcessStage, store: Store) -> None:
        super().__init__(stage, store)
        function = stage.step.function.function
        assert isinstance(function, TopAtOnce)
        self.ranking, self.columns = function.ranking, function.columns

    def _sequences(self, table: pa.Table) -> Sequence[int]:
        return table["s"].to_pylist() if self.stage.recorded else super()._sequences(table)

    def _rows_and_ticks(self, arrivals: Arrivals, start: int, stop: int, moves: list[tuple[int, Tick]]) -> None:  # noqa: ARG002 - no clock
        keys, times, stamps, rows = arrivals.keys, arrivals.times, arrivals.stamps, arrivals.rows
        on_time: dict[tuple[int, tuple[Any, ...]], list[Any]] = {}
        for position in range(start, stop):
            self.arrived += 1
            if times[position] <= stamps[position]:
                self.late += self._wanted(times[position])
                self.count_dropped(times[position], stamps[position])
            else:
                on_time.setdefault((times[position], keys[position]), []).append(rows[position])
        for (time, key), some in on_time.items():
            self.emits = key, time, time - 1
            for made in first_of(self.ranking, self.columns, some):
                self._emit(made)
