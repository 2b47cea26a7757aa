"""The kernel for windows whose rows have an order: sessions, counts, triggers, evictors, whole contents. One row after the other, per key.

Source: Flink ``WindowOperator``, ``EvictingWindowOperator`` and ``MergingWindowSet``; lateness by stamps and retractions are floodmark's.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from floodmark.core.errors import ExecutionError, UserCodeError
from floodmark.core.time import END, NEVER, describe, describe_span
from floodmark.semantics.kernels.contents import WindowContents
from floodmark.semantics.kernels.elements import ElementStage
from floodmark.semantics.kernels.keyed import KeyedKernel, column
from floodmark.semantics.kernels.triggers import FIRE, PURGE, Machine, last_of, machine
from floodmark.semantics.state.directory import NONE
from floodmark.semantics.state.entries import Entry
from floodmark.semantics.state.store import Store
from floodmark.semantics.time.assignment import kind_of
from floodmark.semantics.windows import extent
from floodmark.spec.values.functions import Pane, Timing
from floodmark.spec.values.schema import RETRACTION, ROW
from floodmark.spec.windowing.triggers import own_parts
from floodmark.spec.windowing.windows import Count, Global, Session


class OpenWindow:
    """One window of one key."""

    __slots__ = ("contents", "emitted", "end", "fresh", "held", "index", "start", "trigger")

    def __init__(self, start: int | None, end: int | None, contents: Any, trigger: Any) -> None:
        self.start, self.end, self.contents, self.trigger = start, end, contents, trigger
        self.fresh = self.held = self.index = 0  # rows since the last firing, rows since the last purge, firings
        self.emitted: list[tuple[Any, ...]] = []

    def dump(self) -> tuple[Any, ...]:
        """The window as plain data."""
        return self.start, self.end, self.contents, self.trigger, self.fresh, self.held, self.index, self.emitted

    @staticmethod
    def load(data: tuple[Any, ...]) -> OpenWindow:
        """The window that ``dump`` returned."""
        window = OpenWindow(*data[:4])
        window.fresh, window.held, window.index, window.emitted = data[4:]
        return window


class KeyWindows:
    """The state of one key: its windows and its last stamp. ``event`` and ``tick``: earliest progress and clock its timers wait for."""

    __slots__ = ("entry", "event", "stamp", "tick", "windows")

    def __init__(self, entry: Entry) -> None:
        self.entry = entry
        windows: list[Any] = []
        self.stamp: int = NEVER
        if entry.value:
            windows, self.stamp = entry.value
        self.windows = [OpenWindow.load(data) for data in windows]
        self.event, self.tick = entry.event, entry.tick

    def close(self) -> bool:
        """Write the windows into the entry; False if there are none."""
        self.entry.value = self.dump(), self.stamp
        self.entry.event, self.entry.tick = self.event, self.tick
        return bool(self.windows)

    def dump(self) -> list[Any]:
        """The windows as plain data."""
        return [window.dump() for window in self.windows]

    def restore(self, dumped: list[Any]) -> None:
        """Restore the windows that ``dump`` returned."""
        self.windows = [OpenWindow.load(data) for data in dumped]


class RecordWindowKernel(KeyedKernel):
    """Windows of one key group."""

    state_type = KeyWindows
    stage: ElementStage

    def __init__(self, stage: ElementStage, store: Store) -> None:
        super().__init__(stage, store)
        self.step = step = stage.step
        self.revises = step.revises
        self.lateness, self.discards = step.allowed_lateness, step.accumulation == "discarding"
        self.machine: Machine = machine(stage.trigger)
        self.contents = WindowContents(stage)
        self.assign = kind_of(step.window, [v.sql for v in stage.values]).of_row
        self.merges = isinstance(step.window, Session)
        self.endless = isinstance(step.window, (Global, Count))
        folds = not self.contents.keeps_rows and (step.reduces or step.own_aggregates)
        self.undoes = self.quarantines and (folds or bool(own_parts(stage.trigger)))
        own_code = stage.whole_rows or step.function is not None or bool(step.own_aggregates)
        self.acyclic = not own_code

    # ---- rows

    def _element(
        self, key_state: KeyWindows, position: int, time: int, stamp: int, values: tuple[Any, ...], row: Any
    ) -> None:
        """Add a row to its windows, those for which its stamp does not drop it."""
        now, lost = self.now, 0
        try:
            placed = self.assign(time, values, row)
        except UserCodeError as error:
            if not self.quarantines:
                raise
            self._set_aside(key_state, error, time, stamp, self._quarantined_row(values, row))
            return
        now.watermark = key_state.stamp = stamp
        for start, end in placed:
            if self.merges:
                window = self._merged(key_state, start, end, stamp)
                last = end - 1 if window is None else window.end - 1  # type: ignore[operator]  # sessions have an end
            else:
                window = next((w for w in key_state.windows if w.end == end and w.start == start), None)
                last = END if end is None else end - 1
            if last + self.lateness <= stamp and last < END:
                lost += 1
                self.dropped += self._wanted(last)
                continue
            if last <= stamp:
                self.late += self._wanted(last)
            if window is None:
                window = OpenWindow(start, end, self.contents.nothing(), self.machine.begin())
                key_state.windows.append(window)
            self.contents.add(window.contents, self.arrived, time, values, row)
            window.fresh, window.held = window.fresh + 1, window.held + 1
            decision = self.machine.element(window.trigger, time, row or {}, window, now)
            if decision:
                cause = (time if window.end is None else window.end - 1, stamp)
                self._decided(key_state, window, decision, *cause, "late" if last <= stamp else "early")
        if lost and lost == len(placed):
            self.refused.append(position)
        self._wait(key_state)

    def _merged(self, key_state: KeyWindows, start: int | None, end: int | None, stamp: int) -> OpenWindow | None:
        """The session a row belongs to: the sessions it touches that its stamp has not freed, merged. None if there are none."""
        assert start is not None
        assert end is not None
        touched = [
            w
            for w in key_state.windows
            if w.start <= end and w.end >= start and w.end - 1 + self.lateness > stamp  # type: ignore[operator]  # sessions have an end
        ]
        if not touched:
            return None
        first = touched[0]
        before = first.start, first.end
        for other in touched[1:]:
            first.start, first.end = min(first.start, other.start), max(first.end, other.end)  # type: ignore[type-var]
            first.contents = self.contents.joined(first.contents, other.contents)
            first.fresh, first.held = first.fresh + other.fresh, first.held + other.held
            first.index = max(first.index, other.index)
            first.emitted += other.emitted
            key_state.windows.remove(other)
        if len(touched) > 1:  # retracted in order of the windows, whichever of them began first
            keys = len(self.step.keys)
            first.emitted.sort(key=lambda row: row[keys : keys + 2])
        first.start, first.end = min(first.start, start), max(first.end, end)  # type: ignore[type-var]
        if before != (first.start, first.end):
            first.trigger = self.machine.merged([w.trigger for w in touched], first, self.now)
        return first

    # ---- time

    def _ticks_first(self) -> bool:
        return self.endless

    def _fire(self, key_state: KeyWindows, progress: int) -> None:
        """Fire a key's timers in time order up to ``progress``, and free windows whose time is over.

        At the end of input a period that is under way comes to its end once, if there are new rows; it is not repeated for ever.
        """
        ends = progress >= END and self.endless
        while key_state.event <= progress:
            time = key_state.event
            due = [w for w in key_state.windows if min(self.machine.next_event(w.trigger, w), self._free_at(w)) == time]
            for window in sorted(due, key=lambda w: (w.end or 0, w.start or 0)):
                if not ends or window.fresh or time >= END:
                    self._due(key_state, window, time)
            if ends:
                for window in list(key_state.windows):
                    self._due(key_state, window, END)
            self._wait(key_state)

    def _due(self, key_state: KeyWindows, window: OpenWindow, time: int) -> None:
        """Fire a window whose timer, or end, progress has reached; free it if its time is over."""
        self.now.watermark = time
        if self.machine.next_event(window.trigger, window) <= time:
            ended = window.end is not None and time >= window.end
            timing: Timing = "late" if ended else "on_time" if time == last_of(window) else "early"
            decision = self.machine.event(window.trigger, time, window, self.now)
            if decision:
                stamp = (
                    max(time - 1, key_state.stamp) if time < END else time - 1
                )  # a timer may lie before the row that set it
                self._decided(
                    key_state, window, decision, stamp + 1 if window.end is None else window.end - 1, stamp, timing
                )
        if self._free_at(window) <= time and (time >= END or self.machine.next_event(window.trigger, window) > time):
            if self.machine.leftover(window.trigger, window):
                self._decided(key_state, window, FIRE, last_of(window), time - 1, "late", is_last=True)
            key_state.windows.remove(window)

    def _tick(self, key_state: KeyWindows) -> None:
        """Fire the windows whose timers the clock has reached."""
        for window in list(key_state.windows):
            if self.machine.next_tick(window.trigger) > self.now.clock:
                continue
            self.now.watermark = key_state.stamp
            decision = self.machine.tick(window.trigger, window, self.now)
            if decision:
                event = key_state.stamp + 1 if window.end is None else window.end - 1
                late = window.end is not None and window.end - 1 <= key_state.stamp
                self._decided(key_state, window, decision, event, key_state.stamp, "late" if late else "early")
        self._wait(key_state)

    def _free_at(self, window: OpenWindow) -> int:
        return END if window.end is None else min(window.end - 1 + self.lateness, END)

    def _wait(self, key_state: KeyWindows) -> None:
        """Set the earliest progress and clock of the key's timers."""
        event, tick = NONE, NONE
        for window in key_state.windows:
            event = min(event, self.machine.next_event(window.trigger, window), self._free_at(window))
            tick = min(tick, self.machine.next_tick(window.trigger))
        key_state.event, key_state.tick = event, tick

    # ---- panes

    def _decided(
        self,
        key_state: KeyWindows,
        window: OpenWindow,
        decision: int,
        event: int,
        stamp: int,
        timing: Timing,
        *,
        is_last: bool = False,
    ) -> None:
        if decision & FIRE and window.held:
            last = is_last or (timing != "early" and (self.lateness == 0 or self.endless))
            pane = Pane(
                key=dict(zip(self.step.keys, key_state.entry.key, strict=True)),
                start=window.start,
                end=window.end,
                index=window.index,
                timing=timing,
                is_last=last,
                watermark=stamp,
            )
            if self._emit(key_state, window, pane, event, stamp):
                window.index, window.fresh = window.index + 1, 0
        if decision & PURGE or (decision & FIRE and self.discards):
            window.contents, window.emitted, window.fresh, window.held = self.contents.nothing(), [], 0, 0

    def _emit(self, key_state: KeyWindows, window: OpenWindow, pane: Pane, event: int, stamp: int) -> bool:
        """Emit a pane; False if the window has no rows."""
        window.contents = self.contents.evicted(window.contents, "before")
        if self.contents.keeps_rows and not window.contents:
            return False
        try:
            rows = self._computed(window, pane)
        except UserCodeError as error:
            if not self.quarantines:
                raise
            if self._without_spoiling(key_state, window, stamp):
                return self._emit(key_state, window, pane, event, stamp)
            about = {"pane": pane.index, "timing": pane.timing, "rows": window.held}
            bounds = {"start": pane.start, "end": pane.end} if pane.end is not None else {}
            self._set_aside(key_state, error, event, stamp, bounds | about)
            window.contents = self.contents.evicted(window.contents, "after")
            return True
        head = (*key_state.entry.key, *((window.start, window.end) if window.end is not None else ()))
        if self.revises or self.stage.clip:
            if self.revises:
                self.out += [(*before, stamp, RETRACTION, self.units) for before in window.emitted]
            window.emitted += [(*head, *row, event) for row in rows]
            self._check_whole(key_state, window)
            window.emitted = [(*head, *row, event) for row in rows]
        self.out += [(*head, *row, event, stamp, ROW, self.units) for row in rows]
        self.units += 1
        window.contents = self.contents.evicted(window.contents, "after")
        return True

    def _without_spoiling(self, key_state: KeyWindows, window: OpenWindow, stamp: int) -> bool:
        """Quarantine the rows of a window for which a fold fails; True if there were any."""
        spoiling = dict(self.contents.spoiling(window.contents))
        for position, error in spoiling.items():
            _, time, values, row = window.contents[position]
            self._set_aside(key_state, error, time, stamp, self._quarantined_row(values, row))
        window.contents = [item for position, item in enumerate(window.contents) if position not in spoiling]
        window.held -= len(spoiling)
        return bool(spoiling)

    def _computed(self, window: OpenWindow, pane: Pane) -> list[tuple[Any, ...]]:
        """The rows of a pane; if failures are quarantined, checked to fit the result's columns."""
        rows = self.contents.results(window.contents, pane)
        if self.quarantines:
            schema = self.stage.result_schema
            for name, values in zip(self.step.own_columns, zip(*rows, strict=True), strict=bool(rows)):
                column(values, schema.field(name))
        return rows

    def _results(self) -> pa.Table:
        schema = self.stage.result_schema
        if not self.out or self.endless:
            return self._table(self.out, schema)
        columns = []
        for field, values in zip(schema, zip(*self.out, strict=True), strict=True):
            if field.name in {"window_start", "window_end"}:
                columns.append(extent.bounds(np.array(values, dtype=np.int64)))
            else:
                columns.append(column(values, field))
        return self._cut(pa.table(columns, schema=schema))

    def _check_whole(self, key_state: KeyWindows, window: OpenWindow) -> None:
        """Refuse a session that reaches the edge of the rows read, as rows beyond the edge may extend it: EXECUTION-007."""
        clip, session = self.stage.clip, self.step.window
        if clip is None or not isinstance(session, Session) or window.start is None or window.end is None:
            return
        gap = session.gap if isinstance(session.gap, int) else session.longest
        open_start = clip.read.start > NEVER and window.start - gap < clip.read.start
        open_end = clip.read.end <= END and window.end >= clip.read.end
        if (open_start or open_end) and any(self._wanted(row[len(row) - 1]) for row in window.emitted):
            where = f"step '{self.step.uid}', key {key_state.entry.key}"
            got = f"one from {describe(window.start)} to {describe(window.end)} at the edge of the rows read"
            expected = f"sessions of at most Session(longest={describe_span(session.longest)})"
            fix = "Raise longest, or run the operator over all of time."
            raise ExecutionError(where, expected, got, fix, code="EXECUTION-007")
