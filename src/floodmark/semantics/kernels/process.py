"""The kernel of process functions: rows and timers of a key through code of the user's, with state.

Source: Flink ``KeyedProcessOperator``, ``CoBroadcastWithKeyedOperator``; the order of rows is ``semantics.kernels.keyed``'s. What is kept says in
which layout, so that a new version of the function reads what an older one has written.
"""

from __future__ import annotations

import pickle
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from pydantic import BaseModel

from floodmark.core.errors import StateError, UserCodeError, user_code_boundary, user_error
from floodmark.core.time import END, NEVER
from floodmark.semantics.encoding.columns import check_names, result_schema, table_fitted
from floodmark.semantics.encoding.plain import pack, unpack
from floodmark.semantics.kernels.arrivals import Arrivals
from floodmark.semantics.kernels.elements import ProcessStage
from floodmark.semantics.kernels.kernel import Tick
from floodmark.semantics.kernels.keyed import KeyedKernel
from floodmark.semantics.state.directory import NONE
from floodmark.semantics.state.entries import Entry
from floodmark.semantics.state.store import Store
from floodmark.spec.keyed.metric import Metric, Part
from floodmark.spec.keyed.model import ModelState
from floodmark.spec.keyed.process import StatefulFunction
from floodmark.spec.keyed.state import State, evolution
from floodmark.spec.values.schema import RETRACTION, ROW, Schema

SHARED = 1 << 62
"""Chunk of the states that all keys share; those of entries have smaller numbers."""


class _Cell:
    """One state of the current key."""

    __slots__ = ("now", "open", "raw")

    def __init__(self) -> None:
        self.raw: Any = None
        self.now = NEVER
        self.open = False


class _Times:
    """The timers of the current key.

    ``firing`` is the name and time of the timer that fires; ``ending`` says that the input has ended; ``chains`` then which timers each one
    that is set comes from.
    """

    __slots__ = ("chains", "clocks", "ending", "firing", "open", "times")

    def __init__(self, clocks: frozenset[str]) -> None:
        self.clocks = clocks
        self.open = self.ending = False
        self.times: dict[str, list[int]] = {}
        self.firing: tuple[str, int] | None = None
        self.chains: dict[tuple[str, int], frozenset[str]] = {}

    def set(self, name: str, time: int) -> None:
        time = _clamped(time)
        if self.firing is not None and (name in self.clocks) == (self.firing[0] in self.clocks):
            if time <= self.firing[1]:
                got = f"{time}, set by '{self.firing[0]}' at {self.firing[1]}"
                fix = "A timer that sets a timer sets it to a later time; otherwise it would fire for ever."
                raise UserCodeError(f"timer '{name}'", "a later time", got, fix, code="USER-007")
            if self.ending:
                before = self.chains.get(self.firing, frozenset()) | {self.firing[0]}
                if name in before:
                    return  # a period is not repeated for ever
                self.chains[(name, time)] = before
        times = self.times.setdefault(name, [])
        position = bisect_left(times, time)
        if position == len(times) or times[position] != time:
            times.insert(position, time)

    def delete(self, name: str, time: int | None) -> None:
        time = None if time is None else _clamped(time)
        left = [] if time is None else [t for t in self.times.get(name, ()) if t != time]
        if left:
            self.times[name] = left
        else:
            self.times.pop(name, None)

    def pending(self, name: str) -> list[int]:
        return list(self.times.get(name, ()))


class _Observed:
    """The observations of metrics in a micro-batch: name, event time, value."""

    __slots__ = ("items", "open", "time")

    def __init__(self) -> None:
        self.items: list[tuple[str, int, float]] = []
        self.open, self.time = False, NEVER

    def add(self, name: str, value: float) -> None:
        self.items.append((name, self.time, value))

    def taken(self, metrics: Mapping[str, Metric]) -> dict[str, Part]:
        """Remove the observations; returns metric -> what is observed of it."""
        by_name: dict[str, list[tuple[int, float]]] = {}
        for name, time, value in self.items:
            by_name.setdefault(name, []).append((time, value))
        self.items.clear()
        return {name: metrics[name].part(observations) for name, observations in by_name.items()}


def _clamped(time: int) -> int:
    return min(max(time, NEVER), END)


class Runner:
    """A function opened in this process, with handles on the state of the current key."""

    def __init__(self, function: StatefulFunction) -> None:
        self.states, self.shared = function.states(), function.broadcast_states()
        self.cells = {name: _Cell() for name in (*self.states, *self.shared)}
        timers = function.timers()
        self.times = _Times(frozenset(name for name, timer in timers.items() if timer.time == "processing"))
        handles: dict[str, Any] = {name: state.bound(self.cells[name]) for name, state in self.states.items()}
        self.broadcast = {name: state.bound(self.cells[name]) for name, state in self.shared.items()}
        handles |= self.broadcast | {name: timer.bound(self.times) for name, timer in timers.items()}
        self.metrics, self.observed = function.metrics(), _Observed()
        handles |= {name: metric.bound(self.observed) for name, metric in self.metrics.items()}
        with user_code_boundary(f"open() of '{type(function).__name__}'"):
            self.function, settings = function.opened(handles)
        self.settings = {name: (value, _image(value)) for name, value in settings.items()}
        self.own = [(name, self.cells[name]) for name in self.states]
        self.mortal = [(name, state, state.ttl) for name, state in self.states.items() if state.ttl is not None]
        self.models = [(name, state) for name, state in self.states.items() if isinstance(state, ModelState)]

    def close(self) -> None:
        """Call the function's ``close``; refuse settings that a callback has changed: USER-004."""
        own = type(self.function).__name__
        with user_code_boundary(f"close() of '{own}'"):
            self.function.close()
        held = vars(self.function)
        changed = [
            name
            for name, (value, image) in self.settings.items()
            if held.get(name) is not value or _image(value) != image
        ]
        if changed:
            fix = f"Keep it in a state: {changed[0]} = ListState(float), as an attribute of the class {own}."
            where, got = f"process function '{own}'", f"another self.{changed[0]} than before"
            raise UserCodeError(where, "settings that stay as they are", got, fix, code="USER-004")


def _image(setting: Any) -> bytes | None:
    """The bytes of a setting; None for one that cannot change, and for code, of which only another object can be seen."""
    if setting is None or type(setting) in {bool, int, float, str}:
        return None
    try:
        return pickle.dumps(setting)
    except (pickle.PicklingError, AttributeError, TypeError):
        return None


class _Context:
    """The ``ctx`` of callbacks; see ``spec.keyed.process.Context``."""

    __slots__ = ("_kernel", "key_state", "timestamp", "watermark")

    def __init__(self, kernel: ProcessKernel) -> None:
        self._kernel = kernel
        self.key_state: KeyCells | None = None
        self.timestamp = self.watermark = NEVER

    @property
    def key(self) -> Mapping[str, Any]:
        keys = self._kernel.stage.step.keys
        return {} if self.key_state is None else dict(zip(keys, self.key_state.entry.key, strict=True))

    @property
    def clock(self) -> int:
        kernel = self._kernel
        if not kernel.stage.step.clocked:
            fix = 'Declare one, Timer("processing"), so that the clock is recorded; or take the time from the row.'
            raise UserCodeError("ctx.clock", "a timer of processing time", "none", fix, code="USER-006")
        return kernel.now.clock

    def output(self, name: str, row: Mapping[str, Any]) -> None:
        self._kernel.side(name, row)

    def retract(self, row: Mapping[str, Any]) -> None:
        """For functions of floodmark's own that revise: take back a row; what is yielded next is in its place."""
        self._kernel.retract(row)

    def drop(self) -> None:
        """For functions of floodmark's own: the row came too late, so it is dropped and no late row that counts."""
        self._kernel.count_dropped(self.timestamp, self.watermark)


class KeyCells:
    """The state of one key: its states and timers, its last stamp and its latest event time.

    Nothing in its states has outlived its time before ``expiry``. That is said without looking through them after every row; ``loose`` then.
    """

    __slots__ = ("entry", "event", "expiry", "latest", "loose", "stamp", "states", "tick", "timers")

    def __init__(self, entry: Entry) -> None:
        self.entry = entry
        self.stamp: int = NEVER
        self.states: dict[str, Any] = {}
        self.timers: dict[str, list[int]] = {}
        self.latest: int = NEVER
        if entry.value:
            _, self.stamp, self.states, self.timers, self.latest = entry.value
        self.event, self.tick = entry.event, entry.tick
        self.expiry, self.loose = NONE, False

    def close(self) -> bool:
        """Write the timers into the entry; False if there is no state."""
        self.entry.event, self.entry.tick = self.event, self.tick
        return bool(self.states or self.timers)

    def dump(self) -> Any:
        """States and timers."""
        return self.states, self.timers

    def restore(self, dumped: Any) -> None:
        """Restore the states and timers that ``dump`` returned."""
        self.states, self.timers = dumped


class _Target:
    """An output of the function: checks rows and orders their columns.

    Args:
        schema: keys, then the columns of its contract.
        keys: how many of them are the key's.
        strict: each row must be known to fit at once, as it is set aside if not.
    """

    def __init__(self, schema: Schema, keys: int, *, strict: bool) -> None:
        self.own = Schema(schema.columns[keys:])
        head = tuple(schema.columns[:keys])
        self.keys, self.known = tuple(c.name for c in head), {*schema.names}
        self.needed = [c.name for c in self.own.columns if not c.nullable]
        self.names = self.own.names
        self.checked = Schema((*(_nullable(c) for c in head), *self.own.columns))
        self.strict = strict
        self.schema = result_schema(schema)
        self.rows: list[tuple[Any, ...]] = []

    def add(
        self, key: tuple[Any, ...], row: Mapping[str, Any], event: int, stamp: int, unit: int, kind: int = ROW
    ) -> None:
        row = row.model_dump() if isinstance(row, BaseModel) else row
        if not isinstance(row, Mapping):
            msg = f"{row!r} is no row; yield dictionaries with {', '.join(self.names)}, or return a list of them"
            raise TypeError(msg)
        if not self.known.issuperset(row) or any(row.get(name) is None for name in self.needed):
            check_names([row], self.checked)
        for name, value in zip(self.keys, key, strict=True):
            if name in row and row[name] is not value and row[name] != value and row[name] == row[name]:  # NaN is a key
                msg = f"its '{name}' is {row[name]!r}, but the key is {value!r}: leave it out, or give the column another name"
                raise ValueError(msg)
        if self.strict:
            table_fitted([{name: row.get(name) for name in self.names}], self.own)
        self.rows.append((*key, *(row.get(name) for name in self.names), event, stamp, kind, unit))

    def find(self, keys: Sequence[str], where: str) -> None:
        """Raise for the first row that does not fit, by its key."""
        for row in self.rows:
            own = dict(zip(self.names, row[len(keys) :], strict=False))
            with user_code_boundary(where, f"It was yielded for {dict(zip(keys, row, strict=False))}: {own}."):
                table_fitted([own], self.own)


def _nullable(column: Any) -> Any:
    return type(column)(name=column.name, type=column.type, nullable=True)


class ProcessKernel(KeyedKernel):
    """A process function over one key group."""

    state_type = KeyCells
    of_group = (*KeyedKernel.of_group, "layout", "shared")
    stage: ProcessStage

    def __init__(self, stage: ProcessStage, store: Store) -> None:
        step = stage.step
        if not stage.runner:
            stage.runner.append(Runner(step.function.function))
        self.runner: Runner = stage.runner[0]
        keys, strict = len(step.keys), step.on_error == "quarantine"
        self.targets = {name: _Target(schema, keys, strict=strict) for name, schema in step.sides}
        super().__init__(stage, store)
        self.context = _Context(self)
        self.undoes = self.quarantines
        self.result = _Target(step.schema, keys, strict=strict)
        self.out = self.result.rows
        self.name = type(step.function.function).__name__
        function: Any = self.runner.function
        callbacks = [(tuple(port.columns), port.name) for port in step.ports]
        self.ports: list[tuple[Any, Callable[..., Any]]] = [
            (c, getattr(function, f"on_{name}")) for c, name in callbacks
        ]
        if not self.ports and hasattr(function, "on_element"):
            self.ports = [((), function.on_element)]
        self.taking_back = function.on_retract if step.function.function.takes_back else None
        self.kinds: list[int] = []
        timers = step.function.function.timers()
        self.timers = frozenset(timers)
        self.event_timers = sorted(name for name, timer in timers.items() if timer.time == "event")
        self.declared = step.function.function.layout()

    # ---- layouts

    def _begin(self) -> None:
        extra, layout = self.entries.extra, self.declared
        layouts = extra.setdefault("layouts", [])
        if layout not in layouts:
            layouts.append(layout)
        self.layout = layouts.index(layout)
        self.shared = self.store.get(SHARED) if extra.get("shared") else b""
        if self.runner.shared:
            self._open_shared(extra, layouts)

    def _open_shared(self, extra: dict[str, Any], layouts: Sequence[Mapping[str, Any]]) -> None:
        """Open the broadcast states; an older release stored them in the index."""
        states, number = unpack(self.shared) if self.shared else extra.pop("broadcast", ({}, self.layout))
        if number != self.layout:
            states = self._evolved(states, layouts[number], self.runner.shared, NEVER)
        for name in self.runner.shared:
            self.runner.cells[name].raw = states.get(name)
            self.runner.cells[name].open = True

    def _end(self) -> None:
        if self.runner.shared:
            shared_states = {
                name: raw for name in self.runner.shared if (raw := self.runner.cells[name].raw) is not None
            }
            self._keep_shared(pack((shared_states, self.layout)) if shared_states else b"")
        for key_state in self.keys.values():
            for name, state in self.runner.models:
                if name in key_state.states:
                    with user_code_boundary(self._about(key_state), "Its model cannot be stored."):
                        key_state.states[name] = state.stored(key_state.states[name])
            key_state.entry.value = self.layout, key_state.stamp, key_state.states, key_state.timers, key_state.latest

    def _keep_shared(self, states: bytes) -> None:
        """Write the broadcast states if they have changed: most micro-batches only read them."""
        if states == self.shared:
            return
        if self.shared:
            self.store.remove(SHARED)
        if states:
            self.store.put(SHARED, states)
        self.entries.extra["shared"] = bool(states)

    def _opened(self, entry: Entry) -> KeyCells:
        key_state = KeyCells(entry)
        if self.runner.mortal:
            key_state.expiry, key_state.loose = entry.event, True
        if key_state.timers.keys() - self.timers:  # of an older version of the function
            key_state.timers = {name: times for name, times in key_state.timers.items() if name in self.timers}
            self._wait(key_state)
        if entry.value and entry.value[0] != self.layout:
            before = self.entries.extra["layouts"][entry.value[0]]
            key_state.states = self._evolved(key_state.states, before, self.runner.states, _latest(key_state))
            self._wait(key_state)
        return key_state

    def _evolved(
        self, states: Mapping[str, Any], before: Mapping[str, Any], declared: Mapping[str, State], written: int
    ) -> dict[str, Any]:
        """States in the layout of an older version of the function, converted to the declared layout."""
        evolved = {}
        for name, raw in states.items():
            state = declared.get(name)
            if state is not None:
                change = evolution(name, before[name], state)
                with user_code_boundary(f"migrate of state '{name}' of '{self.name}'", "What was kept is as it was."):
                    evolved[name] = state.evolved(raw, before[name].get("ttl") is not None, written, change)
        return evolved

    # ---- rows and timers

    def _has_rank(self) -> bool:
        return self.stage.step.function.function.sequence is not None

    def _rank(self, row: Any) -> tuple[Any, ...]:
        name = self.stage.step.function.function.sequence
        return () if name is None else (row[name] is not None, row[name])

    def _reach(self, progress: int, clock: int) -> None:
        """Fire event timers under the previous clock, then the clock's timers. At the end of input, progress reached before the end fires first, not as the end."""
        if progress >= END and self.reached > NEVER:
            self._reach_both(self.reached, self.now.clock)
        self._reach_both(progress, clock)

    def _reach_both(self, progress: int, clock: int) -> None:
        for entry in self.entries.due(progress, max(clock, self.now.clock)):
            self._key(entry.key)
        before = self.now.clock
        for key_state in self.keys.values():
            if key_state.loose:
                self._wait(key_state)
            try:
                if key_state.event <= progress:
                    self._fire(key_state, progress)
                if key_state.tick <= max(clock, before):
                    self.now.clock = max(clock, before)
                    self._tick(key_state)
                    self._fire(key_state, progress)
                    self.now.clock = before
            except UserCodeError as error:
                raise error.inside(self._about(key_state)) from error.__cause__
        self.now.clock = max(clock, before)

    def _rows_and_ticks(self, arrivals: Arrivals, start: int, stop: int, moves: list[tuple[int, Tick]]) -> None:
        self.kinds = arrivals.kinds if self.taking_back else []
        super()._rows_and_ticks(arrivals, start, stop, moves)

    def _alike(
        self, rows: pa.Table, spans: Mapping[int, tuple[int, int]], groups: Iterable[int]
    ) -> dict[int, tuple[int, ...]]:
        if self.stage.step.broadcast is None:
            return {}
        sequences = rows["s"].to_pylist() if spans else []
        keyed = rows["v0"].to_numpy() != self.stage.step.broadcast if spans else ()
        before = np.cumsum(np.r_[0, keyed]).tolist()
        bounds = ((group, *spans.get(group, (0, 0))) for group in groups)
        return {group: tuple(sequences[first:stop]) for group, first, stop in bounds if before[stop] == before[first]}

    def _row(
        self, key: tuple[Any, ...], position: int, time: int, stamp: int, values: tuple[Any, ...], row: Any
    ) -> None:
        if values and values[0] == self.stage.step.broadcast:
            columns, callback = self.ports[values[0]]
            own_row = {own: row[column] for own, column in columns}
            self.context.key_state, self.context.timestamp, self.context.watermark = None, time, stamp
            for state in self.runner.broadcast.values():
                state.writable = True
            try:
                where = f"step '{self.stage.step.uid}', on_broadcast of '{self.name}'"
                with user_code_boundary(where, f"The row was {own_row}."):
                    if callback(own_row, self.context) is not None:
                        msg = "it must return nothing: it has no key to send a row for"
                        raise TypeError(msg)
            finally:
                for state in self.runner.broadcast.values():
                    state.writable = False
            return
        super()._row(key, position, time, stamp, values, row)

    def _element(
        self, key_state: KeyCells, position: int, time: int, stamp: int, values: tuple[Any, ...], row: Any
    ) -> None:
        key_state.stamp, key_state.latest = stamp, max(key_state.latest, time)
        self.late += time <= stamp and self._wanted(time)
        columns, callback = self.ports[values[0] if values else 0]
        if self.taking_back and self.kinds[position] == RETRACTION:
            callback = self.taking_back
        own_row = {own: row[column] for own, column in columns} if columns else dict(row) if self.undoes else row
        self.emits = key_state.entry.key, time, stamp
        self._enter(key_state, time, stamp, max(time, stamp + 1))
        try:
            for made in callback(own_row, self.context) or ():
                self._emit(made)
        except (UserCodeError, StateError):
            raise
        except Exception as error:
            raise user_error(error, self.name, f"The row was {own_row}.") from error
        finally:
            self._leave(key_state)

    def _fire(self, key_state: KeyCells, progress: int) -> None:
        self.runner.times.ending = progress >= END
        self.runner.times.chains.clear()
        while key_state.event <= progress:
            time = key_state.event
            if key_state.expiry <= time:
                for name, state, _ in self.runner.mortal:
                    if name in key_state.states:
                        _keep(key_state.states, name, state.live(key_state.states[name], time))
                self._wait(key_state)
            for name in self.event_timers:
                if key_state.timers.get(name, (NONE,))[0] <= time:
                    at = _taken(key_state.timers, name)
                    stamp = max(at - 1, key_state.stamp)  # a timer may be earlier than the row that set it
                    self._timer(key_state, name, at, stamp, max(at, stamp + 1), at)
                    break
            self._due(key_state)

    def _tick(self, key_state: KeyCells) -> None:
        self.runner.times.ending = self.now.clock >= END
        while key_state.tick <= self.now.clock:
            name = min(self.runner.times.clocks & key_state.timers.keys(), key=lambda n: (key_state.timers[n][0], n))
            at = _taken(key_state.timers, name)
            event = _latest(key_state)
            self._timer(key_state, name, at, key_state.stamp, event, event)
            self._due(key_state)

    def _timer(self, key_state: KeyCells, name: str, time: int, stamp: int, event: int, now: int) -> None:
        """Call ``on_timer``; its rows have the event time ``event``."""
        times, clocks = self.runner.times, self.runner.times.clocks
        times.firing = name, time
        self.emits = key_state.entry.key, event, stamp
        self._enter(key_state, time, stamp if name in clocks else time, now)
        try:
            with user_code_boundary(f"timer '{name}' of '{self.name}'", f"It was set to {time}."):
                for made in self.runner.function.on_timer(name, self.context) or ():
                    self._emit(made)
        finally:
            self._leave(key_state)
            times.firing = None

    def _enter(self, key_state: KeyCells, time: int, watermark: int, now: int) -> None:
        """Open the handles on a key's states and timers, for a callback."""
        context, runner, states = self.context, self.runner, key_state.states
        context.key_state, context.timestamp, context.watermark = key_state, time, watermark
        for name, cell in runner.own:
            cell.raw, cell.now, cell.open = states.get(name), now, True
        runner.times.times, runner.times.open = key_state.timers, True
        runner.observed.time, runner.observed.open = self.emits[1], True

    def _leave(self, key_state: KeyCells) -> None:
        runner, states = self.runner, key_state.states
        for name, cell in runner.own:
            if cell.raw is not None:
                states[name] = cell.raw
            elif name in states:
                del states[name]
            cell.raw, cell.open = None, False
        runner.times.open = runner.observed.open = False
        for name, _, ttl in runner.mortal:
            if name in states:
                key_state.expiry, key_state.loose = min(key_state.expiry, runner.cells[name].now + ttl, END), True
        self._due(key_state)

    def _wait(self, key_state: KeyCells) -> None:
        expiries = [state.expires(key_state.states.get(name)) for name, state, _ in self.runner.mortal]
        key_state.expiry, key_state.loose = (
            min((min(at, END) for at in expiries if at is not None), default=NONE),
            False,
        )
        self._due(key_state)

    def _due(self, key_state: KeyCells) -> None:
        clocks = self.runner.times.clocks
        event, tick = key_state.expiry, NONE
        for name, times in key_state.timers.items():
            if name in clocks:
                tick = min(tick, times[0])
            else:
                event = min(event, times[0])
        key_state.event, key_state.tick = event, tick

    # ---- rows out

    def _emit(self, made: Mapping[str, Any]) -> None:
        key, event, stamp = self.emits
        self.result.add(key, made, event, stamp, self.units)
        self.units += 1

    def retract(self, row: Mapping[str, Any]) -> None:
        """Emit a retraction; it shares its unit with the next row."""
        key, event, stamp = self.emits
        self.result.add(key, row, event, stamp, self.units, RETRACTION)

    def side(self, name: str, row: Mapping[str, Any]) -> None:
        """A row for a side output.

        Raises:
            UserCodeError: USER-008, it is not declared.
        """
        if self.context.key_state is None:
            fix = "Send rows from on_element or on_timer: they have a key."
            raise UserCodeError(f"ctx.output in '{self.name}'", "a key", "none at this point", fix, code="USER-006")
        target = self.targets.get(name)
        if target is None:
            fix = f'Declare it: process({self.name}(), schema=..., sides={{"{name}": SomeContract}}).'
            got = f"'{name}', of {', '.join(self.targets) or 'none'}"
            raise UserCodeError(f"ctx.output in '{self.name}'", "a declared side output", got, fix, code="USER-008")
        key, event, stamp = self.emits
        target.add(key, row, event, stamp, self.units)
        self.units += 1

    def count_dropped(self, time: int, stamp: int) -> None:
        """Count a row as dropped, and no longer as late."""
        self.dropped += self._wanted(time)
        self.late -= time <= stamp and self._wanted(time)

    def _quarantined_row(self, values: tuple[Any, ...], row: Any) -> Any:
        columns, _ = self.ports[values[0] if values else 0]
        return {own: row[column] for own, column in columns} if columns else row

    def _lists(self) -> list[list[Any]]:
        return [*super()._lists(), *(target.rows for target in self.targets.values()), self.runner.observed.items]

    def _emitted(self) -> list[list[tuple[Any, ...]]]:
        return [self.out, *(target.rows for target in self.targets.values())]

    def _results(self) -> pa.Table:
        return self._fitted(self.result)

    def _sides(self) -> dict[str, pa.Table]:
        return {name: self._fitted(target) for name, target in self.targets.items() if target.rows}

    def _metrics(self) -> dict[str, Part]:
        return self.runner.observed.taken(self.runner.metrics)

    def _fitted(self, target: _Target) -> pa.Table:
        try:
            return self._table(target.rows, target.schema)
        except UserCodeError:
            target.find(self.stage.step.keys, f"step '{self.stage.step.uid}', {self.name}")
            raise


def _keep(states: dict[str, Any], name: str, raw: Any) -> None:
    if raw is None:
        states.pop(name, None)
    else:
        states[name] = raw


def _latest(key_state: KeyCells) -> int:
    """The latest effective time of a key's rows."""
    return max(key_state.stamp + 1, key_state.latest)


def _taken(timers: dict[str, list[int]], name: str) -> int:
    """Remove and return the earliest time of a timer."""
    earliest = timers[name].pop(0)
    if not timers[name]:
        del timers[name]
    return earliest
