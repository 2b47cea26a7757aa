"""The kernel of sessions whose every pane is final: the same as ``RecordWindowKernel``, in one loop over the rows of a key group.

Such a session fires once, when progress reaches its last millisecond, and is freed with that. So no trigger, no pane and no evictor is asked
for each row. What comes out, and what lies in state, is byte for byte that of ``RecordWindowKernel``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from floodmark.core.errors import ExecutionError
from floodmark.core.time import END
from floodmark.semantics.kernels.arrivals import Arrivals
from floodmark.semantics.kernels.elements import ElementStage
from floodmark.semantics.kernels.kernel import Tick
from floodmark.semantics.kernels.panes import KeyWindows, OpenWindow, RecordWindowKernel
from floodmark.semantics.state.directory import NONE
from floodmark.semantics.state.store import Store
from floodmark.spec.values.functions import Pane
from floodmark.spec.values.schema import ROW
from floodmark.spec.windowing.aggregates import ORDERED
from floodmark.spec.windowing.windows import Session

_WAITS = [True, None, None]
"""State of the default trigger: the end of the window is still to come."""


def has_final_sessions(stage: ElementStage) -> bool:
    """Whether every window of a stage is a session of one gap that fires once, over built-in aggregates that need no rows."""
    step = stage.step
    if not isinstance(step.window, Session) or not isinstance(step.window.gap, int):
        return False
    special = step.trigger or step.evictor or step.function or step.allowed_lateness or step.order
    own = step.own_aggregates or step.on_error == "quarantine" or stage.whole_rows
    ordered = any(getattr(aggregate, "function", "") in ORDERED for _, aggregate in step.aggregates)
    return not (special or own or ordered or step.revises or stage.clip) and step.time == "event"


class SessionKernel(RecordWindowKernel):
    """Sessions of one key group, of a stage that ``has_final_sessions``."""

    def __init__(self, stage: ElementStage, store: Store) -> None:
        super().__init__(stage, store)
        assert isinstance(stage.step.window, Session)
        assert isinstance(stage.step.window.gap, int)
        self.gap = stage.step.window.gap
        self.folds = [(form.add, value, by) for form, value, by in self.contents.measures]
        self.outcomes = [form.result for form, _, _ in self.contents.measures]

    def _rows_and_ticks(self, arrivals: Arrivals, start: int, stop: int, moves: list[tuple[int, Tick]]) -> None:
        """Process rows in their order; rows near the end of time go the general way."""
        times, stamps = arrivals.times, arrivals.stamps
        if moves or max(*times[start:stop], *stamps[start:stop]) >= END - self.gap - 1:
            super()._rows_and_ticks(arrivals, start, stop, moves)
            return
        self._expect(arrivals, start, stop)
        keys, values = arrivals.keys, arrivals.values
        for position in range(start, stop):
            key, stamp = keys[position], stamps[position]
            key_state: KeyWindows = self.keys.get(key) or self._key(key)
            if key_state.event <= stamp:
                self._fire(key_state, stamp)
            self._session(key_state, position, times[position], stamp, values[position])
        self.arrived += stop - start

    def _session(self, key_state: KeyWindows, position: int, time: int, stamp: int, values: tuple[Any, ...]) -> None:
        """Add a row to the session it belongs to, unless its stamp drops it."""
        key_state.stamp = stamp
        end = time + self.gap
        windows = key_state.windows
        touched = [w for w in windows if w.start <= end and w.end >= time and w.end - 1 > stamp]  # type: ignore[operator]  # sessions have both
        if touched:
            window = touched[0]
            if len(touched) > 1:
                self._join(windows, touched)
            window.start, window.end = min(window.start, time), max(window.end, end)  # type: ignore[type-var]
        elif end - 1 <= stamp:
            self.dropped += 1
            self.refused.append(position)
            return
        else:
            window = OpenWindow(time, end, self.contents.nothing(), list(_WAITS))
            windows.append(window)
        contents = window.contents
        for number, (add, value, by) in enumerate(self.folds):
            contents[number] = add(
                contents[number], None if value is None else values[value], None if by is None else values[by]
            )
        window.fresh += 1
        window.held += 1
        key_state.event = end - 1 if len(windows) == 1 and not touched else min(w.end for w in windows) - 1  # type: ignore[type-var,operator]

    def _join(self, windows: list[OpenWindow], touched: Sequence[OpenWindow]) -> None:
        """Merge sessions into the first of them."""
        first = touched[0]
        for other in touched[1:]:
            first.start, first.end = min(first.start, other.start), max(first.end, other.end)  # type: ignore[type-var]
            first.contents = self.contents.joined(first.contents, other.contents)
            first.fresh, first.held = first.fresh + other.fresh, first.held + other.held
            windows.remove(other)

    def _fire(self, key_state: KeyWindows, progress: int) -> None:
        """Emit and free a key's sessions that progress has reached, in the order of their ends."""
        windows = key_state.windows
        due = [w for w in windows if w.end - 1 <= progress]  # type: ignore[operator]  # sessions have an end
        if any(w.end >= END or w.trigger != _WAITS for w in due):  # type: ignore[operator]
            super()._fire(key_state, progress)
            return
        if len(due) > 1:
            due.sort(key=lambda w: (w.end, w.start))
        for window in due:
            results = self._outcome(key_state, window)
            event = window.end - 1  # type: ignore[operator]
            stamp = max(event - 1, key_state.stamp)
            self.out.append((*key_state.entry.key, window.start, window.end, *results, event, stamp, ROW, self.units))
            self.units += 1
        if len(due) == len(windows):
            windows.clear()
            key_state.event = NONE
        else:
            key_state.windows = [w for w in windows if w.end - 1 > progress]  # type: ignore[operator]
            key_state.event = min(w.end for w in key_state.windows) - 1  # type: ignore[type-var,operator]

    def _outcome(self, key_state: KeyWindows, window: OpenWindow) -> list[Any]:
        """The aggregates of a session; an overflow names its key."""
        try:
            return [outcome(state) for outcome, state in zip(self.outcomes, window.contents, strict=True)]
        except ExecutionError:
            key = dict(zip(self.step.keys, key_state.entry.key, strict=True))
            pane = Pane(
                key=key,
                start=window.start,
                end=window.end,
                index=0,
                timing="on_time",
                is_last=True,
                watermark=key_state.stamp,
            )
            return list(self.contents.results(window.contents, pane)[0])
