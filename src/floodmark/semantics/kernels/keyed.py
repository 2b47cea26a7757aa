"""The base kernel of steps that process rows one after the other, per key: windows with an order, and process functions.

Before each row every timer its watermark has reached fires; then the row is judged by its own stamp and processed. At a boundary (the end
of a micro-batch or of the input) everything up to the boundary's progress fires. Keys are independent, so on a landed log every
answer is exact however rows are cut into micro-batches. Where arrival is not reproducible (outputs of operators, several inputs), rows
wait until progress reaches their *effective time*, max(event time, stamp + 1), and come sorted by it.
"""

from __future__ import annotations

import copy
import gc
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from floodmark.core.errors import UserCodeError, user_code_boundary
from floodmark.core.time import END, NEVER
from floodmark.semantics.encoding.columns import fitted, inside
from floodmark.semantics.kernels.arrivals import Arrivals, Waiting, divided, effective, with_group
from floodmark.semantics.kernels.elements import ElementStage, ProcessStage
from floodmark.semantics.kernels.failures import Failure, failure, set_aside
from floodmark.semantics.kernels.kernel import Emission, Tick
from floodmark.semantics.kernels.repeats import Recording, Repeats
from floodmark.semantics.kernels.triggers import Now
from floodmark.semantics.state.directory import NONE
from floodmark.semantics.state.entries import Entry, KeyGroup
from floodmark.semantics.state.store import Store
from floodmark.semantics.time.ordering import Spans
from floodmark.spec.keyed.metric import Part, merge


class KeyState(Protocol):
    """The state of one key while its rows are processed."""

    entry: Entry
    event: int
    """Earliest progress at which one of its timers fires."""
    tick: int
    """Earliest clock at which one of its timers fires."""
    stamp: int
    """Stamp of the last row of the key."""

    def close(self) -> bool:
        """Write the state into the entry; False if the key has no state."""

    def dump(self) -> Any:
        """The parts that a failing row may change, as plain data: an independent copy of them restores the state."""

    def restore(self, dumped: Any) -> None:
        """Restore the parts that ``dump`` returned."""


_Open = dict[str, Any]
"""The attributes of an open key group."""


@dataclass(frozen=True, slots=True)
class Turns:
    """What several key groups have given in one call.

    Args:
        emission: their rows, those of one group after those of another, and their counts; no deadline and no tick.
        waits: key group -> its deadline and its tick, as of ``Emission``.
    """

    emission: Emission
    waits: dict[int, tuple[int | None, int | None]]


@contextmanager
def _uncollected() -> Iterator[None]:
    """No search for cyclic garbage: keys that stay make Python look through all of them again and again."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


class KeyedKernel(ABC):
    """One key group of one stage, over a store.

    Args:
        stage: what to compute.
        store: of its state.
    """

    state_type: ClassVar[type[Any]]
    """The class of a key's state: entry -> state."""
    of_group: ClassVar[tuple[str, ...]] = ("store", "entries", "keys", "arrived", "now")
    """Attributes of the key group that is open."""
    acyclic: bool = False
    """Whether what is kept per key has no cycles; a user's objects may."""

    def __init__(self, stage: ElementStage | ProcessStage, store: Store) -> None:
        self.stage, self.store = stage, store
        self.out: list[tuple[Any, ...]] = []
        self.quarantines = stage.step.on_error == "quarantine"
        self.undoes = False
        self.failures: list[tuple[int, int, int, Failure]] = []
        self.refused: list[int] = []
        self.reached = NEVER
        self.arrived: int = 0
        self._restart()

    @abstractmethod
    def _element(self, key_state: Any, position: int, time: int, stamp: int, values: tuple[Any, ...], row: Any) -> None:
        """One row of a key."""

    @abstractmethod
    def _fire(self, key_state: Any, progress: int) -> None:
        """Timers of a key in time order, up to ``progress``."""

    @abstractmethod
    def _tick(self, key_state: Any) -> None:
        """Fire the timers of a key that the clock has reached."""

    @abstractmethod
    def _wait(self, key_state: Any) -> None:
        """Set ``event`` and ``tick`` of a key's state from its timers."""

    def _has_rank(self) -> bool:
        """Whether ``_rank`` orders rows."""
        return False

    def _rank(self, row: Any) -> tuple[Any, ...]:  # noqa: ARG002 - for subclasses
        """Sort key of a row among rows of one event time; rows with equal keys are ordered by their values."""
        return ()

    def _sequences(self, table: pa.Table) -> Sequence[int]:
        """What orders rows of one event time and rank before their values; nothing by default."""
        return [0] * table.num_rows

    # ---- one call per micro-batch

    def advance(
        self, packed: Sequence[dict[str, pa.Table]], progress: int, ticks: Sequence[Tick] = (), reached: int = NEVER
    ) -> Emission:
        """Process rows one by one, then fire timers and free state that ``progress`` and the clock have reached.

        Args:
            packed: parts from ``pack`` for this group, in any order.
            progress: all rows on time up to here are in.
            ticks: of the processing clock, ascending, each with its position among the rows.
            reached: progress before the end of input, if the input has ended and that progress is known.
        """
        with self._undisturbed():
            self._restart()
            self.reached = reached
            arrivals = self._arrivals(self.store, [part["rows"] for part in packed if "rows" in part], progress)
            deadline, tick = self._turn(arrivals, 0, len(arrivals.places), progress, ticks)
            side = self._side(arrivals)
            return self._emission([side] if side is not None else [], self._metrics(), deadline, tick)

    def advance_all(
        self, stores: Mapping[int, Store], rows: pa.Table | None, progress: int, ticks: Sequence[Tick] = ()
    ) -> Turns:
        """As ``advance``, for several key groups, one after the other: rows are made Python values, and results columns, once for all.

        Args:
            stores: key group -> its store.
            rows: of these groups, with their key group in the column ``group``; None without any.
            progress: all rows on time up to here are in.
            ticks: of the processing clock.
        """
        with self._undisturbed():
            self._restart()
            sides, metrics, waits = (
                list[pa.Table](),
                list[Mapping[str, Part]](),
                dict[int, tuple[int | None, int | None]](),
            )
            by_time = self.stage.by_time
            rows, spans = divided(rows, by_time=by_time) if rows is not None and rows.num_rows else (pa.table({}), {})
            alike, repeats = self._alike(rows, spans, stores), Repeats()
            opened = self._opened_all(stores, alike)
            for group, same in alike.items():
                if group in opened:
                    continue
                start, stop = spans.get(group, (0, 0))
                if (turn := repeats.repeated(stores[group], same)) is not None:
                    waits[group] = turn
                    continue
                recording = Recording(stores[group])
                before = self.units, len(self.failures), len(sides)
                arrivals = self._arrivals(recording, [rows.slice(start, stop - start)] if stop else [], progress)
                waits[group] = self._turn(arrivals, 0, len(arrivals.places), progress, ticks)
                side = self._side(arrivals)
                sides += [] if side is None else [side]
                metrics.append(self._metrics())
                self._separate()
                if before == (self.units, len(self.failures), len(sides)) and not metrics[-1]:
                    repeats.keep(recording, same, waits[group])
            if by_time:
                groups = np.repeat([*spans], [stop - start for start, stop in spans.values()])
                own = with_group(rows, groups).filter(pa.array(np.isin(groups, [*opened]))) if spans else None
                extras = {group: entries.extra for group, entries in opened.items() if entries is not None}
                shared, spans = self._waiting(stores, extras).ordered(own, progress)
            else:
                shared = Arrivals(self.stage, rows, rows["s"].to_pylist() if spans else [])
            done = None if ticks or not shared.table.num_rows else self._at_once(shared, spans, stores, opened)
            for group, entries in opened.items():
                start, stop = spans.get(group, (0, 0))
                if done is None:
                    self._open(stores[group], entries)
                else:
                    self._resume(done[group])
                    self.arrived += stop - start
                    start = stop = 0
                waits[group] = self._turn(shared, start, stop, progress, ticks)
                metrics.append(self._metrics())
                self._separate()
                self.keys.clear()
            side = self._side(shared)
            sides += [] if side is None else [side]
            return Turns(self._emission(sides, merge(metrics), None, None), waits)

    def _alike(
        self,
        rows: pa.Table,  # noqa: ARG002 - for subclasses
        spans: Mapping[int, tuple[int, int]],  # noqa: ARG002 - likewise
        groups: Iterable[int],  # noqa: ARG002 - likewise
    ) -> dict[int, tuple[int, ...]]:
        """(rows, key group -> bounds of its rows, key groups) -> key group that has broadcast rows alone, or none -> their sequences."""
        return {}

    def _at_once(
        self,
        arrivals: Arrivals,  # noqa: ARG002 - for subclasses
        spans: Spans,  # noqa: ARG002 - likewise
        stores: Mapping[int, Store],  # noqa: ARG002 - likewise
        opened: Mapping[int, KeyGroup | None],  # noqa: ARG002 - likewise
    ) -> dict[int, _Open] | None:
        """Process the rows of several key groups at once; None, and no state has changed, if they have to go one by one.

        Args:
            arrivals: the rows of all groups, in order; at least one.
            spans: where those of each key group are.
            stores: of the key groups.
            opened: key group -> its state; None if it is not opened yet.

        Returns:
            Key group -> what ``_resume`` goes on with.
        """
        return None

    def _all_open(
        self, arrivals: Arrivals, spans: Spans, stores: Mapping[int, Store], opened: Mapping[int, KeyGroup | None]
    ) -> dict[int, _Open]:
        """Open key groups, and read what they have of the keys of their rows."""
        states = dict[int, _Open]()
        for group, entries in opened.items():
            self._open(stores[group], entries)
            if group in spans:
                self._expect(arrivals, *spans[group])
            states[group] = {name: getattr(self, name) for name in self.of_group}
        return states

    def _keys_of(self, arrivals: Arrivals, spans: Spans, states: Mapping[int, _Open]) -> dict[tuple[Any, ...], Any]:
        """The state of each key of some rows, in the order of their first rows."""
        key_states = dict[tuple[Any, ...], Any]()
        for group, (start, stop) in spans.items():
            self._resume(states[group])
            key_states |= {key: self._key(key) for key in dict.fromkeys(arrivals.keys[start:stop])}
        return key_states

    def _resume(self, state: _Open) -> None:
        """Go on with a key group that was opened before others."""
        for name, value in state.items():
            setattr(self, name, value)

    def _opened_all(
        self, stores: Mapping[int, Store], alike: Mapping[int, tuple[int, ...]]
    ) -> dict[int, KeyGroup | None]:
        """The state of the key groups that are computed one by one: all but those without keys whose turns may be the same."""
        opened = dict[int, KeyGroup | None]()
        for group, store in stores.items():
            if not self.stage.by_time and group not in alike:
                opened[group] = None  # opened when it is computed
                continue
            self.store = store
            entries = self._opened_entries()
            if group not in alike or entries.directory.size:
                opened[group] = entries
        return opened

    @contextmanager
    def _undisturbed(self) -> Iterator[None]:
        """Around a call: without a user's code no cycles are searched meanwhile."""
        if not self.acyclic:
            yield
            return
        with _uncollected():
            yield
            self.keys.clear()  # so that the next search for garbage does not look through them
            for rows in self._emitted():
                rows.clear()

    def _restart(self) -> None:
        """Nothing is emitted yet."""
        self.late = self.dropped = self.units = 0
        for items in self._lists():
            items.clear()

    def _open(self, store: Store, entries: KeyGroup | None = None) -> None:
        """Open the state of a key group; ``entries`` if they are opened already."""
        self.store, self.now = store, Now(NEVER, NEVER)
        self.entries = self._opened_entries(entries)
        self._begin()
        self.now.clock = self.entries.extra.get("clock", NEVER)
        self.keys: dict[tuple[Any, ...], Any] = {}
        self.arrived = self.entries.extra.get("arrived", 0)

    def _turn(
        self, arrivals: Arrivals, start: int, stop: int, progress: int, ticks: Sequence[Tick]
    ) -> tuple[int | None, int | None]:
        """Process the rows of the open key group, those from ``start`` to ``stop``, and close its state. Returns its deadline and its tick."""
        moves = [(tick.progress if self.stage.by_time else tick.sequence, tick) for tick in reversed(ticks)]
        if stop > start:
            self._rows_and_ticks(arrivals, start, stop, moves)
        for _, tick in reversed(moves):
            self._reach(tick.progress, tick.clock)
        self._reach(progress, END if progress >= END else self.now.clock)
        self.entries.extra |= {"clock": self.now.clock, "arrived": self.arrived}
        for key_state in self.keys.values():
            if key_state.close():
                self.entries.put(key_state.entry)
            else:
                self.entries.drop(key_state.entry)
        self._end()
        event, clock = self.entries.close()
        if self.stage.step.time == "processing":  # windows wait for the clock, or for the end of input
            event, clock = (END if event < NONE else NONE), min(event, clock)
        deadline = min([event, *self.entries.extra.get("held", {}).values()])
        return None if deadline >= NONE else deadline, clock if clock < NONE else None

    def _separate(self) -> None:
        """Rows of the next key group share no unit with rows of this one."""
        if any(rows and rows[-1][-1] == self.units for rows in self._emitted()):
            self.units += 1

    def _emitted(self) -> list[list[tuple[Any, ...]]]:
        """The lists of emitted rows; the last value of a row is its unit."""
        return [self.out]

    def _side(self, arrivals: Arrivals) -> pa.Table | None:
        """The refused rows among some, for a side output; they are no longer held."""
        if not self.refused or "side" not in arrivals.table.column_names:
            return None
        side = arrivals.table.take(pa.array(self.refused)).select(["t", "w", "s", "kind", "side"])
        self.refused.clear()
        return side if self.stage.clip is None else inside(side, side["t"], self.stage.clip.interval)

    def _emission(
        self, sides: Sequence[pa.Table], metrics: Mapping[str, Part], deadline: int | None, tick: int | None
    ) -> Emission:
        failed = set_aside(self.failures) if self.failures else None
        if failed is not None and self.stage.clip is not None:
            failed = inside(failed, failed["t"], self.stage.clip.interval)
        side = pa.concat_tables(sides, promote_options="permissive") if sides else None
        return Emission(self._results(), self.late, deadline, tick, self.dropped, side, failed, self._sides(), metrics)

    def _opened_entries(self, entries: KeyGroup | None = None) -> KeyGroup:
        """The state of the group; ``entries`` if they are opened already."""
        return KeyGroup.open(self.store) if entries is None else entries

    def _begin(self) -> None:  # noqa: B027 - most have nothing to do
        """The group's entries are open."""

    def _end(self) -> None:  # noqa: B027 - most have nothing to do
        """The group's entries are about to be closed."""

    def _sides(self) -> dict[str, pa.Table]:
        """Output name -> rows of a side output."""
        return {}

    def _metrics(self) -> dict[str, Part]:
        """Metric -> what is observed of it."""
        return {}

    def _arrivals(self, store: Store, parts: list[pa.Table], progress: int) -> Arrivals:
        """Open a key group; its rows to process now, in order. Rows that wait for progress are put into the store."""
        self.store = store
        entries = self._opened_entries()
        if self.stage.by_time:
            rows = pa.concat_tables(parts) if parts else None
            rows = None if rows is None else with_group(rows, [0] * rows.num_rows)
            arrivals, _ = self._waiting({0: store}, {0: entries.extra}).ordered(rows, progress)
            self._open(store, entries)
            return arrivals
        self._open(store, entries)
        if not parts:
            return Arrivals(self.stage, pa.table({}), [])
        table = pa.concat_tables(parts)
        table = table.take(pc.sort_indices(table["s"]))
        return Arrivals(self.stage, table, table["s"].to_pylist())

    def _all_rows(self, packed: Sequence[dict[str, pa.Table]]) -> Arrivals | None:
        """All rows of a key group in their order, to be processed without state; None if there are none, if one waits beyond the end of time, or if keys are nested.

        Args:
            packed: as of ``advance``.
        """
        parts = [part["rows"] for part in packed if "rows" in part]
        table = pa.concat_tables(parts) if parts else pa.table({})
        if not table.num_rows or any(pa.types.is_nested(table.schema.field(key).type) for key in self.stage.keys):
            return None
        if not self.stage.by_time:
            ascending = bool((np.diff(table["s"].to_numpy()) >= 0).all())  # as hosts sort rows
            return Arrivals(self.stage, table if ascending else table.take(pc.sort_indices(table["s"])), [])
        if pc.max(effective(table)).as_py() > END:
            return None
        return self._waiting({}, {}).ordered(with_group(table, np.zeros(table.num_rows, np.int32)), END)[0]

    def _waiting(self, stores: Mapping[int, Store], extras: Mapping[int, dict[str, Any]]) -> Waiting:
        for extra in extras.values():
            extra.setdefault("held", {})
        return Waiting(self.stage, stores, extras, self._rank if self._has_rank() else None, self._sequences)

    def _rows_and_ticks(self, arrivals: Arrivals, start: int, stop: int, moves: list[tuple[int, Tick]]) -> None:
        """Process rows, and the ticks before the last row, which are removed from the end of ``moves``."""
        self._expect(arrivals, start, stop)
        keys, values, rows, times, stamps = (
            arrivals.keys,
            arrivals.values,
            arrivals.rows,
            arrivals.times,
            arrivals.stamps,
        )
        places, clocked = arrivals.places, self.stage.step.time == "processing"
        for position in range(start, stop):
            while moves and moves[-1][0] < places[position]:
                tick = moves.pop()[1]
                self._reach(tick.progress, tick.clock)
            time, stamp = times[position], stamps[position]
            if clocked:
                time, stamp = self.now.clock, self.now.clock - 1
            self.arrived += 1
            self._row(keys[position], position, time, stamp, values[position], rows[position])

    def _expect(self, arrivals: Arrivals, start: int, stop: int) -> None:
        """Read the entries of the keys of some rows at once."""
        self.entries.expect(dict.fromkeys(arrivals.keys[start:stop]))

    def _row(
        self, key: tuple[Any, ...], position: int, time: int, stamp: int, values: tuple[Any, ...], row: Any
    ) -> None:
        key_state = self._key(key)
        try:
            if key_state.event <= stamp:
                self._fire(key_state, stamp)
            take = self._undoing if self.undoes else self._element
            take(key_state, position, time, stamp, values, row)
        except UserCodeError as error:
            raise error.inside(self._about(key_state)) from error.__cause__

    def _key(self, key: tuple[Any, ...]) -> Any:
        key_state = self.keys.get(key)
        if key_state is None:
            key_state = self.keys[key] = self._opened(self.entries.opened(key))
        return key_state

    def _opened(self, entry: Entry) -> Any:
        return self.state_type(entry)

    # ---- rows that fail

    def _undoing(self, key_state: Any, position: int, time: int, stamp: int, values: tuple[Any, ...], row: Any) -> None:
        """Process one row; if the user's code fails, quarantine the row and undo its changes."""
        before, last = copy.deepcopy(key_state.dump()), key_state.stamp
        counts = self.late, self.dropped, self.units
        sizes = [(items, len(items)) for items in self._lists()]
        try:
            self._element(key_state, position, time, stamp, values, row)
        except UserCodeError as error:
            key_state.restore(before)
            key_state.stamp = last
            self.late, self.dropped, self.units = counts
            for items, size in sizes:
                del items[size:]
            self._wait(key_state)
            self._set_aside(key_state, error, time, stamp, self._quarantined_row(values, row))

    def _lists(self) -> list[list[Any]]:
        """Lists that a failing row may have appended to."""
        return [self.out, self.refused, self.failures]

    def _quarantined_row(self, values: tuple[Any, ...], row: Any) -> Any:
        """A row for the quarantine: the whole row, or its values by expression if the stage has no whole rows."""
        return dict(zip((v.sql for v in self.stage.values), values, strict=True)) if row is None else row

    def _set_aside(self, key_state: Any, error: UserCodeError, event: int, stamp: int, input_: Any) -> None:
        step = self.stage.step
        key = dict(zip(step.keys, key_state.entry.key, strict=True))
        self.failures.append((event, stamp, 0, failure(f"step '{step.uid}'", error, input_, key)))

    def _about(self, key_state: Any) -> str:
        """Step and key, for errors."""
        step = self.stage.step
        key = ", ".join(f"{name}={value!r}" for name, value in zip(step.keys, key_state.entry.key, strict=True))
        return f"step '{step.uid}', key ({key})"

    # ---- time

    def _reach(self, progress: int, clock: int) -> None:
        """Fire everything in this key group that waits for ``progress`` and ``clock`` or less."""
        self.now.clock = max(self.now.clock, clock)
        if self.stage.step.time == "processing":
            progress = END if progress >= END else self.now.clock - 1  # rows may come until the clock moves on
        for entry in self.entries.due(progress, self.now.clock):
            self._key(entry.key)
        ended = progress >= END and self._ticks_first()  # timers of the clock fire before state is freed
        for key_state in self.keys.values():
            try:
                if ended and key_state.tick <= self.now.clock:
                    self._tick(key_state)
                if key_state.event <= progress:
                    self._fire(key_state, progress)
                if key_state.tick <= self.now.clock:
                    self._tick(key_state)
            except UserCodeError as error:
                raise error.inside(self._about(key_state)) from error.__cause__

    def _ticks_first(self) -> bool:
        """Whether at the end of input timers of the clock fire before timers of event time."""
        return True

    # ---- rows out

    @abstractmethod
    def _results(self) -> pa.Table:
        """The emitted rows, as ``result_schema``."""

    def _table(self, rows: Sequence[tuple[Any, ...]], schema: pa.Schema) -> pa.Table:
        """Rows with their stamps as a table; if only an interval is computed, its rows alone."""
        if not rows:
            return schema.empty_table()
        columns = [column(values, field) for field, values in zip(schema, zip(*rows, strict=True), strict=True)]
        return self._cut(pa.table(columns, schema=schema))

    def _wanted(self, time: int) -> bool:
        """Whether a result of that event time is in the computed interval."""
        clip = self.stage.clip
        return clip is None or clip.interval.start <= time < clip.interval.end

    def _with_columns(self, general: pa.Table, tables: Sequence[pa.Table]) -> pa.Table:
        """Results that were made row by row, and those that were made in columns, in the order in which they were emitted."""
        if not tables:
            return general
        results = self._cut(pa.concat_tables(tables))
        return pa.concat_tables([results, general]).sort_by("_order") if general.num_rows else results

    def _cut(self, results: pa.Table) -> pa.Table:
        return results if self.stage.clip is None else inside(results, results["_event_time"], self.stage.clip.interval)


def column(values: Sequence[Any], field: pa.Field) -> pa.Array:
    """Values of a column of results.

    Raises:
        UserCodeError: USER-001, one does not fit.
    """
    with user_code_boundary(f"column '{field.name}'", f"Results must fit {field.type}."):
        return fitted(values, field.type)
