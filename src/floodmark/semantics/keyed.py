"""The kernel of steps that take rows one after the other, per key: what windows with an order, process functions and their timers share.

Before each row every timer its watermark has reached fires; then the row is judged by its own stamp and processed. At a boundary (the end
of a micro-batch or of the input) everything up to the boundary's progress fires. Keys are independent, so on a landed log every
answer is exact however rows are cut into micro-batches. Where arrival is not reproducible (outputs of operators, several inputs), rows
wait until progress reaches their *effective time*, max(event time, stamp + 1), and come sorted by it.
"""

from __future__ import annotations

import copy
import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from floodmark.core.errors import UserCodeError, user_code_boundary
from floodmark.core.time import END, NEVER
from floodmark.semantics.columns import arrow_type, decode, encode, fitted, inside
from floodmark.semantics.directory import NONE
from floodmark.semantics.elements import ElementStage, ProcessStage
from floodmark.semantics.entries import Entries, Entry
from floodmark.semantics.failures import Failure, failure, set_aside
from floodmark.semantics.index import TOGETHER
from floodmark.semantics.kernel import Emission, Tick
from floodmark.semantics.order import order_key
from floodmark.semantics.store import Store
from floodmark.semantics.triggers import Now
from floodmark.spec.schema import Schema


class Kept(Protocol):
    """What is kept for one key."""

    entry: Entry
    event: int
    """The progress its timers wait for."""
    tick: int
    """The clock they wait for."""
    stamp: int
    """The last one it saw."""

    def close(self) -> bool:
        """Put it into the entry; False when there is nothing to keep."""

    def dump(self) -> Any:
        """What a row that fails may have changed, as plain data that does not change with it."""

    def restore(self, dumped: Any) -> None:
        """As it was."""


class KeyedKernel(ABC):
    """One key group of one stage, over a store.

    Args:
        stage: what to compute.
        store: where it is kept.
    """

    kept: ClassVar[type[Any]]
    """Makes what is kept for a key of its entry."""

    def __init__(self, stage: ElementStage | ProcessStage, store: Store) -> None:
        self.stage, self.store = stage, store
        self.now = Now(NEVER, NEVER)
        self.out: list[tuple[Any, ...]] = []
        self.units = 0
        self.quarantines = stage.step.on_error == "quarantine"
        self.undoes = False
        self.failures: list[tuple[int, int, int, Failure]] = []

    @abstractmethod
    def _element(self, kept: Any, place: int, time: int, stamp: int, values: tuple[Any, ...], row: Any) -> None:
        """One row of a key."""

    @abstractmethod
    def _fire(self, kept: Any, progress: int) -> None:
        """Timers of a key in time order, up to ``progress``."""

    @abstractmethod
    def _tick(self, kept: Any) -> None:
        """The clock has moved to what a key waits for."""

    @abstractmethod
    def _wait(self, kept: Any) -> None:
        """Say what a key waits for next."""

    def _rank(self, row: Any) -> tuple[Any, ...]:  # noqa: ARG002 - for subclasses
        """The place of a whole row among those of its event time; where it is the same the rows' values decide."""
        return ()

    # ---- one call per micro-batch

    def advance(
        self, packed: Sequence[dict[str, pa.Table]], progress: int, ticks: Sequence[Tick] = (), reached: int = NEVER
    ) -> Emission:
        """Take in rows one by one, then fire and free what ``progress`` and the clock have reached.

        Args:
            packed: parts from ``pack`` for this group, in any order.
            progress: all rows on time up to here are in.
            ticks: of the processing clock, in order, each at its place among the rows; it never goes back.
            reached: progress before the input ended, where it has and that is known.
        """
        self.reached = reached
        self.entries = Entries.open(self.store)
        self._begin()
        self.now.clock = self.entries.extra.get("clock", NEVER)
        self.keys: dict[tuple[Any, ...], Any] = {}
        self.late = self.dropped = 0
        self.arrived: int = self.entries.extra.get("arrived", 0)
        self.refused: list[int] = []
        rows, places = self._ordered([part["rows"] for part in packed if "rows" in part], progress)
        self._take(rows, places, ticks)
        self._reach(progress, END if progress >= END else self.now.clock)
        self.entries.extra |= {"clock": self.now.clock, "arrived": self.arrived}
        for key, kept in self.keys.items():
            if kept.close():
                self.entries.put(kept.entry)
            else:
                self.entries.drop(key)
        self._end()
        event, tick = self.entries.close()
        if self.stage.step.time == "processing":  # windows wait for the clock, or for the end of input
            event, tick = (END if event < NONE else NONE), min(event, tick)
        waits = [event, *self.entries.extra.get("held", {}).values()]
        side = None
        if rows is not None and self.refused and "side" in rows.column_names:
            side = rows.take(pa.array(self.refused)).select(["t", "w", "s", "kind", "side"])
            side = side if self.stage.cut is None else inside(side, side["t"], self.stage.cut.interval)
        deadline = min(waits)
        failed = set_aside(self.failures) if self.failures else None
        if failed is not None and self.stage.cut is not None:
            failed = inside(failed, failed["t"], self.stage.cut.interval)
        return Emission(
            self._results(),
            self.late,
            None if deadline >= NONE else deadline,
            tick if tick < NONE else None,
            self.dropped,
            side,
            failed,
            self._sides(),
        )

    def _begin(self) -> None:  # noqa: B027 - most have nothing to do
        """The group's entries are open."""

    def _end(self) -> None:  # noqa: B027 - most have nothing to do
        """The group's entries are about to be closed."""

    def _sides(self) -> dict[str, pa.Table]:
        """Rows for outputs beside the result."""
        return {}

    def _ordered(self, parts: list[pa.Table], progress: int) -> tuple[pa.Table | None, list[int]]:
        """The rows to process now, in order, and the place of each: its sequence or effective time. Others wait in the store."""
        if not self.stage.by_time:
            if not parts:
                return None, []
            table = pa.concat_tables(parts)
            table = table.take(pc.sort_indices(table["s"]))
            return table, table["s"].to_pylist()
        held: dict[int, int] = self.entries.extra.setdefault("held", {})
        parts += [self._released(number) for number in [n for n, first in held.items() if first <= progress]]
        if not parts:
            return None, []
        # those an older version has held may say otherwise what can be null
        table = pa.concat_tables(parts, promote_options="permissive")
        effective = pc.max_element_wise(table["t"], pc.add(table["w"], 1))
        ready = pc.less_equal(effective, progress)
        waiting = table.filter(pc.invert(ready))
        if waiting.num_rows:
            self._hold(waiting, pc.min(effective.filter(pc.invert(ready))).as_py())
        table, effective = table.filter(ready), effective.filter(ready)
        table = table.set_column(table.column_names.index("w"), "w", pc.subtract(effective, 1))
        data = [name for name in table.column_names if name not in {"s", "side"}]
        rows = table.select(data).to_pylist()
        ranks = [(*self._rank(row.get("row")), order_key(row)) for row in rows]
        times = effective.to_pylist()
        inputs = table["v0"].to_pylist() if self.stage.several else [0] * table.num_rows
        events = table["t"].to_pylist()
        order = sorted(range(table.num_rows), key=lambda i: (times[i], inputs[i], events[i], ranks[i]))
        return table.take(pa.array(order, pa.int64())), [times[i] for i in order]

    def _hold(self, rows: pa.Table, first: int) -> None:
        """Let rows wait in the store, together with those of the newest chunks that are few: chunks are of falling size.

        Args:
            rows: any.
            first: the first effective time of them.
        """
        extra = self.entries.extra
        held, sizes = extra["held"], extra.setdefault("sizes", {})
        while held and (size := sizes.get(newest := min(held), 0)) < 2 * rows.num_rows:
            if size + rows.num_rows > TOGETHER:
                break
            first = min(first, held[newest])
            rows = pa.concat_tables([self._released(newest), rows], promote_options="permissive")
        number = extra["next"] = extra.get("next", 0) - 1
        self.store.put(number, encode({"rows": rows.combine_chunks()}))
        held[number], sizes[number] = first, rows.num_rows

    def _released(self, number: int) -> pa.Table:
        """The rows of a chunk, which wait no more."""
        rows = _as_now(decode(self.store.get(number))["rows"], self.stage.step.parent.schema)
        self.store.remove(number)
        extra = self.entries.extra
        del extra["held"][number]
        extra.get("sizes", {}).pop(number, None)  # an older version has not counted
        return rows

    def _take(self, table: pa.Table | None, places: Sequence[int], ticks: Sequence[Tick]) -> None:
        """Rows one by one, and the ticks between them."""
        moves = [(tick.progress if self.stage.by_time else tick.sequence, tick) for tick in reversed(ticks)]
        if table is not None and table.num_rows:
            self._rows_and_ticks(table, places, moves)
        for _, tick in reversed(moves):
            self._reach(tick.progress, tick.clock)

    def _rows_and_ticks(self, table: pa.Table, places: Sequence[int], moves: list[tuple[int, Tick]]) -> None:
        """Rows, and the ticks before the last of them, which are taken off the end of ``moves``."""
        names, step = set(table.column_names), self.stage.step
        count = table.num_rows
        keys = list(zip(*(_plain(table[k]) for k in self.stage.keys), strict=True)) if self.stage.keys else [()] * count
        columns = [table[f"v{i}"].to_pylist() for i in range(len(self.stage.values))]
        values = list(zip(*columns, strict=True)) if columns else [()] * count
        rows = table["row"].to_pylist() if "row" in names else [None] * count
        times, stamps = table["t"].to_pylist(), table["w"].to_pylist()
        clocked = step.time == "processing"
        for place in range(count):
            while moves and moves[-1][0] < places[place]:
                tick = moves.pop()[1]
                self._reach(tick.progress, tick.clock)
            time, stamp = times[place], stamps[place]
            if clocked:
                time, stamp = self.now.clock, self.now.clock - 1
            self.arrived += 1
            self._row(keys[place], place, time, stamp, values[place], rows[place])

    def _row(self, key: tuple[Any, ...], place: int, time: int, stamp: int, values: tuple[Any, ...], row: Any) -> None:
        kept = self._key(key)
        try:
            if kept.event <= stamp:
                self._fire(kept, stamp)
            take = self._undoing if self.undoes else self._element
            take(kept, place, time, stamp, values, row)
        except UserCodeError as error:
            raise error.inside(self._about(kept)) from error.__cause__

    def _key(self, key: tuple[Any, ...]) -> Any:
        kept = self.keys.get(key)
        if kept is None:
            kept = self.keys[key] = self._opened(self.entries.get(key) or Entry(key, None))
        return kept

    def _opened(self, entry: Entry) -> Any:
        return self.kept(entry)

    # ---- rows that fail

    def _undoing(self, kept: Any, place: int, time: int, stamp: int, values: tuple[Any, ...], row: Any) -> None:
        """One row that goes to the quarantine, and leaves no trace here, when the user's code fails for it."""
        before, last = copy.deepcopy(kept.dump()), kept.stamp
        counts = self.late, self.dropped, self.units
        sizes = [(items, len(items)) for items in self._lists()]
        try:
            self._element(kept, place, time, stamp, values, row)
        except UserCodeError as error:
            kept.restore(before)
            kept.stamp = last
            self.late, self.dropped, self.units = counts
            for items, size in sizes:
                del items[size:]
            self._wait(kept)
            self._set_aside(kept, error, time, stamp, self._told(values, row))

    def _lists(self) -> list[list[Any]]:
        """What a row that fails may have added to."""
        return [self.out, self.refused, self.failures]

    def _told(self, values: tuple[Any, ...], row: Any) -> Any:
        """A row for the quarantine: all of it, or what is kept of it."""
        return dict(zip((v.sql for v in self.stage.values), values, strict=True)) if row is None else row

    def _set_aside(self, kept: Any, error: UserCodeError, event: int, stamp: int, given: Any) -> None:
        step = self.stage.step
        key = dict(zip(step.keys, kept.entry.key, strict=True))
        self.failures.append((event, stamp, 0, failure(f"step '{step.uid}'", error, given, key)))

    def _about(self, kept: Any) -> str:
        """Which key, for errors."""
        step = self.stage.step
        key = ", ".join(f"{name}={value!r}" for name, value in zip(step.keys, kept.entry.key, strict=True))
        return f"step '{step.uid}', key ({key})"

    # ---- time

    def _reach(self, progress: int, clock: int) -> None:
        """Everything of this group that waits for as much."""
        self.now.clock = max(self.now.clock, clock)
        if self.stage.step.time == "processing":
            progress = END if progress >= END else self.now.clock - 1  # rows may come until the clock moves on
        for entry in self.entries.due(progress, self.now.clock):
            self._key(entry.key)
        ended = progress >= END and self._ticks_first()  # what waits for the clock comes out before all is freed
        for kept in self.keys.values():
            try:
                if ended and kept.tick <= self.now.clock:
                    self._tick(kept)
                if kept.event <= progress:
                    self._fire(kept, progress)
                if kept.tick <= self.now.clock:
                    self._tick(kept)
            except UserCodeError as error:
                raise error.inside(self._about(kept)) from error.__cause__

    def _ticks_first(self) -> bool:
        """Whether at the end of input the clock's timers come before those of event time."""
        return True

    # ---- rows out

    @abstractmethod
    def _results(self) -> pa.Table:
        """What was sent out, as ``result_schema``."""

    def _table(self, rows: Sequence[tuple[Any, ...]], schema: pa.Schema) -> pa.Table:
        """Rows with their stamps as a table; of a part of time only what lies in it."""
        if not rows:
            return schema.empty_table()
        columns = [column(values, field) for field, values in zip(schema, zip(*rows, strict=True), strict=True)]
        return self._cut(pa.table(columns, schema=schema))

    def _cut(self, found: pa.Table) -> pa.Table:
        return found if self.stage.cut is None else inside(found, found["_event_time"], self.stage.cut.interval)


def _as_now(held: pa.Table, schema: Schema) -> pa.Table:
    """Rows that an older version has held back, with the columns rows have now: one that it did not read yet is null."""
    if "row" not in held.column_names:
        return held
    found = held["row"].combine_chunks()
    known = {found.type.field(place).name for place in range(found.type.num_fields)}
    if known == set(schema.names):
        return held
    parts = [
        pc.struct_field(found, c.name) if c.name in known else pa.nulls(len(found), arrow_type(c.type))
        for c in schema.columns
    ]
    row = pa.StructArray.from_arrays(parts, names=list(schema.names), mask=pc.is_null(found))
    return held.set_column(held.column_names.index("row"), "row", row)


def column(values: Sequence[Any], field: pa.Field) -> pa.Array:
    """Values of a column of results.

    Raises:
        UserCodeError: USER-001, one does not fit.
    """
    with user_code_boundary(f"column '{field.name}'", f"Results must fit {field.type}."):
        return fitted(values, field.type)


def _plain(values: pa.ChunkedArray) -> list[Any]:
    """Values of a key column; there is one NaN."""
    found: list[Any] = values.to_pylist()
    if pa.types.is_floating(values.type):
        found = [math.nan if v is not None and math.isnan(v) else v for v in found]
    return found
