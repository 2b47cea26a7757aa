"""Triggers at work: each is a small state machine over one window of one key.

A machine keeps its state in a list, which is stored with the window, and derives from it when it wants to be asked again; so
nothing has to be registered or forgotten. Decisions are plain integers here (the values of ``Decision``): they are taken once per row.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from floodmark.core.errors import user_code_boundary
from floodmark.core.time import END
from floodmark.semantics.state.directory import NONE
from floodmark.spec.windowing import triggers as spec
from floodmark.spec.windowing.triggers import Decision

CONTINUE, FIRE, PURGE = (d.value for d in (Decision.CONTINUE, Decision.FIRE, Decision.PURGE))

State = list[Any]


class Window(Protocol):
    """A window as its trigger's machine sees it."""

    start: int | None
    end: int | None
    fresh: int
    """Rows since the last firing."""


@dataclass(slots=True)
class Now:
    """The current watermark and processing clock."""

    watermark: int
    clock: int


class Machine:
    """One trigger. ``state`` is always what ``begin`` or ``merged`` returned."""

    def begin(self) -> State:
        """The state of a new window."""
        return []

    def element(self, state: State, time: int, row: Mapping[str, Any], window: Window, now: Now) -> int:
        """A row was added: the decision."""
        raise NotImplementedError

    def event(self, state: State, time: int, window: Window, now: Now) -> int:  # noqa: ARG002 - one shape for all
        """Progress has reached ``time``, the one of ``next_event``: the decision."""
        return CONTINUE

    def tick(self, state: State, window: Window, now: Now) -> int:  # noqa: ARG002 - one shape for all
        """The clock has reached ``next_tick``: the decision."""
        return CONTINUE

    def next_event(self, state: State, window: Window) -> int:  # noqa: ARG002 - one shape for all
        """The next progress at which ``event`` must be called."""
        return NONE

    def next_tick(self, state: State) -> int:  # noqa: ARG002 - one shape for all
        """The next clock at which ``tick`` must be called."""
        return NONE

    def merged(self, states: list[State], window: Window, now: Now) -> State:  # noqa: ARG002 - one shape for all
        """The state of a window that has grown, or was merged from several."""
        return states[0]

    def reset(self, state: State, window: Window) -> None:
        """Reset the state, as the combination that this trigger is part of has fired."""

    def leftover(self, state: State, window: Window) -> bool:  # noqa: ARG002 - one shape for all
        """Whether a window that is freed must emit a last pane for rows that were in none."""
        return False


class _AfterWatermark(Machine):
    """State: waits for the end, early's, late's."""

    def __init__(self, early: Machine | None, late: Machine | None) -> None:
        self.early, self.late = early, late

    def begin(self) -> State:
        return [False, self.early.begin() if self.early else None, self.late.begin() if self.late else None]

    def element(self, state: State, time: int, row: Mapping[str, Any], window: Window, now: Now) -> int:
        if last_of(window) <= now.watermark:
            return self.late.element(state[2], time, row, window, now) if self.late else FIRE
        state[0] = True
        return self.early.element(state[1], time, row, window, now) if self.early else CONTINUE

    def event(self, state: State, time: int, window: Window, now: Now) -> int:
        if state[0] and time == last_of(window):
            state[0] = False
            if self.early:
                state[1] = self.early.begin()
            return FIRE
        if state[0]:
            return self.early.event(state[1], time, window, now) if self.early else CONTINUE
        return self.late.event(state[2], time, window, now) if self.late else CONTINUE

    def tick(self, state: State, window: Window, now: Now) -> int:
        if state[0]:
            return self.early.tick(state[1], window, now) if self.early else CONTINUE
        return self.late.tick(state[2], window, now) if self.late else CONTINUE

    def next_event(self, state: State, window: Window) -> int:
        if state[0]:
            last = last_of(window)
            return min(last, self.early.next_event(state[1], window)) if self.early else last
        return self.late.next_event(state[2], window) if self.late else NONE

    def next_tick(self, state: State) -> int:
        if state[0]:
            return self.early.next_tick(state[1]) if self.early else NONE
        return self.late.next_tick(state[2]) if self.late else NONE

    def merged(self, states: list[State], window: Window, now: Now) -> State:
        early = self.early.merged([s[1] for s in states], window, now) if self.early else None
        on_time = last_of(window) > now.watermark
        late = None
        if self.late:
            late = self.late.begin() if on_time else self.late.merged([s[2] for s in states], window, now)
        return [on_time, early, late]

    def reset(self, state: State, window: Window) -> None:
        for part, inner in ((self.early, state[1]), (self.late, state[2])):
            if part:
                part.reset(inner, window)

    def leftover(self, state: State, window: Window) -> bool:
        return self.late is not None and not state[0] and window.fresh > 0


class _AfterCount(Machine):
    """State: rows since the last firing."""

    def __init__(self, n: int) -> None:
        self.n = n

    def begin(self) -> State:
        return [0]

    def element(self, state: State, time: int, row: Mapping[str, Any], window: Window, now: Now) -> int:  # noqa: ARG002 - one shape for all
        state[0] += 1
        if state[0] < self.n:
            return CONTINUE
        state[0] = 0
        return FIRE

    def merged(self, states: list[State], window: Window, now: Now) -> State:  # noqa: ARG002 - one shape for all
        return [sum(s[0] for s in states)]

    def reset(self, state: State, window: Window) -> None:  # noqa: ARG002 - one shape for all
        state[0] = 0


class _EveryEvent(Machine):
    """State: the next multiple, whether the end of the window is still to come."""

    def __init__(self, period: int, *, late: bool) -> None:
        self.period, self.late = period, late

    def begin(self) -> State:
        return [NONE, False]

    def element(self, state: State, time: int, row: Mapping[str, Any], window: Window, now: Now) -> int:  # noqa: ARG002 - one shape for all
        if self.late:
            if state[0] == NONE:
                state[0] = _multiple(max(time, now.watermark), self.period)
            return CONTINUE
        if last_of(window) <= now.watermark:
            return FIRE
        if state[0] == NONE:
            state[0] = _multiple(time, self.period)
        state[1] = window.end is not None
        return CONTINUE

    def event(self, state: State, time: int, window: Window, now: Now) -> int:  # noqa: ARG002 - one shape for all
        if state[1] and time == last_of(window):
            state[0], state[1] = NONE, False
            return FIRE
        if time != state[0]:
            return CONTINUE
        state[0] = NONE if self.late else time + self.period
        return FIRE

    def next_event(self, state: State, window: Window) -> int:
        return int(min(state[0], last_of(window)) if state[1] else state[0])

    def merged(self, states: list[State], window: Window, now: Now) -> State:
        ends = not self.late and window.end is not None and last_of(window) > now.watermark
        return [min(s[0] for s in states), ends]


class _Clocked(Machine):
    """State: the clock it waits for, whether the end of the window is still to come, where it fires too.

    Args:
        late: it says when late rows count, after the end of their window.
    """

    def __init__(self, *, late: bool) -> None:
        self.late = late

    def begin(self) -> State:
        return [NONE, False]

    def element(self, state: State, time: int, row: Mapping[str, Any], window: Window, now: Now) -> int:  # noqa: ARG002 - one shape for all
        if state[0] == NONE:
            state[0] = self.waits(now)
        state[1] = self._ends(window, now)
        return CONTINUE

    def waits(self, now: Now) -> int:
        """The clock at which it fires next."""
        raise NotImplementedError

    def event(self, state: State, time: int, window: Window, now: Now) -> int:  # noqa: ARG002 - one shape for all
        if not state[1] or time != last_of(window):
            return CONTINUE
        state[:] = self.begin()
        return FIRE

    def next_event(self, state: State, window: Window) -> int:
        return last_of(window) if state[1] else NONE

    def next_tick(self, state: State) -> int:
        return int(state[0])

    def merged(self, states: list[State], window: Window, now: Now) -> State:
        return [min(s[0] for s in states), self._ends(window, now)]

    def leftover(self, state: State, window: Window) -> bool:  # noqa: ARG002 - one shape for all
        return not self.late and window.fresh > 0

    def _ends(self, window: Window, now: Now) -> bool:
        return not self.late and window.end is not None and last_of(window) > now.watermark


class _EveryTick(_Clocked):
    """Waits for the next multiple."""

    def __init__(self, period: int, *, late: bool) -> None:
        super().__init__(late=late)
        self.period = period

    def waits(self, now: Now) -> int:
        return _multiple(now.clock, self.period)

    def tick(self, state: State, window: Window, now: Now) -> int:
        if state[0] > now.clock:
            return CONTINUE
        if now.clock >= END:
            state[0] = NONE
            return FIRE if window.fresh else CONTINUE
        state[0] = _multiple(now.clock, self.period)
        return FIRE


class _AfterDelay(_Clocked):
    """Waits until the delay is over."""

    def __init__(self, delay: int, *, late: bool) -> None:
        super().__init__(late=late)
        self.delay = delay

    def waits(self, now: Now) -> int:
        return now.clock + self.delay

    def tick(self, state: State, window: Window, now: Now) -> int:  # noqa: ARG002 - one shape for all
        if state[0] > now.clock:
            return CONTINUE
        state[0] = NONE
        return FIRE

    def reset(self, state: State, window: Window) -> None:  # noqa: ARG002 - one shape for all
        state[0] = NONE


class _EndOfInput(Machine):
    """No state: every window is asked at the end of input."""

    def element(self, state: State, time: int, row: Mapping[str, Any], window: Window, now: Now) -> int:  # noqa: ARG002 - one shape for all
        return CONTINUE

    def event(self, state: State, time: int, window: Window, now: Now) -> int:  # noqa: ARG002 - one shape for all
        return FIRE if time >= END else CONTINUE

    def next_event(self, state: State, window: Window) -> int:  # noqa: ARG002 - one shape for all
        return END


class _Purging(Machine):
    """State: that of the wrapped trigger."""

    def __init__(self, inner: Machine) -> None:
        self.inner = inner
        self.begin, self.next_event, self.next_tick = inner.begin, inner.next_event, inner.next_tick  # type: ignore[method-assign]
        self.merged, self.reset, self.leftover = inner.merged, inner.reset, inner.leftover  # type: ignore[method-assign]

    def element(self, state: State, time: int, row: Mapping[str, Any], window: Window, now: Now) -> int:
        return _purge(self.inner.element(state, time, row, window, now))

    def event(self, state: State, time: int, window: Window, now: Now) -> int:
        return _purge(self.inner.event(state, time, window, now))

    def tick(self, state: State, window: Window, now: Now) -> int:
        return _purge(self.inner.tick(state, window, now))


class _Combined(Machine):
    """State: one per part, then whether each part has fired since the last time."""

    def __init__(self, parts: list[Machine]) -> None:
        self.parts = parts

    def begin(self) -> State:
        return [[part.begin() for part in self.parts], [False] * len(self.parts)]

    def element(self, state: State, time: int, row: Mapping[str, Any], window: Window, now: Now) -> int:
        decisions = [p.element(s, time, row, window, now) for p, s in zip(self.parts, state[0], strict=True)]
        return self.decide(state, decisions, window)

    def event(self, state: State, time: int, window: Window, now: Now) -> int:
        decisions = [p.event(s, time, window, now) for p, s in zip(self.parts, state[0], strict=True)]
        return self.decide(state, decisions, window)

    def tick(self, state: State, window: Window, now: Now) -> int:
        decisions = [p.tick(s, window, now) for p, s in zip(self.parts, state[0], strict=True)]
        return self.decide(state, decisions, window)

    def next_event(self, state: State, window: Window) -> int:
        return min(p.next_event(s, window) for p, s in zip(self.parts, state[0], strict=True))

    def next_tick(self, state: State) -> int:
        return min(p.next_tick(s) for p, s in zip(self.parts, state[0], strict=True))

    def merged(self, states: list[State], window: Window, now: Now) -> State:
        inner = [p.merged([s[0][i] for s in states], window, now) for i, p in enumerate(self.parts)]
        return [inner, [any(s[1][i] for s in states) for i in range(len(self.parts))]]

    def reset(self, state: State, window: Window) -> None:
        state[1] = [False] * len(self.parts)
        for part, inner in zip(self.parts, state[0], strict=True):
            part.reset(inner, window)

    def leftover(self, state: State, window: Window) -> bool:
        return any(p.leftover(s, window) for p, s in zip(self.parts, state[0], strict=True))

    def decide(self, state: State, decisions: list[int], window: Window) -> int:
        """The decision of the combination, from its parts' decisions."""
        raise NotImplementedError


class _AnyOf(_Combined):
    def decide(self, state: State, decisions: list[int], window: Window) -> int:
        decision = 0
        for part_decision in decisions:
            decision |= part_decision
        if decision & FIRE:
            self.reset(state, window)
        return decision


class _AllOf(_Combined):
    """Fires once each part has fired since the last time; a part that waits for the window's end counts as fired for good after it."""

    def decide(self, state: State, decisions: list[int], window: Window) -> int:
        state[1] = [
            before or bool(part_decision & FIRE) for before, part_decision in zip(state[1], decisions, strict=True)
        ]
        if not all(state[1]):
            return CONTINUE
        ended = [isinstance(p, _AfterWatermark) and not s[0] for p, s in zip(self.parts, state[0], strict=True)]
        self.reset(state, window)
        state[1] = ended
        return FIRE | (PURGE if any(part_decision & PURGE for part_decision in decisions) else 0)


class _User(Machine):
    """State: the user's dictionary, event-time timers, processing-time timers."""

    def __init__(self, trigger: spec.Trigger) -> None:
        self.trigger, self.name = trigger, type(trigger).__name__

    def begin(self) -> State:
        return [{}, set(), set()]

    def element(self, state: State, time: int, row: Mapping[str, Any], window: Window, now: Now) -> int:
        with user_code_boundary(f"trigger '{self.name}', on_element()", f"The row was {dict(row)}."):
            return Decision(self.trigger.on_element(time, row, _Context(state, window, now))).value

    def event(self, state: State, time: int, window: Window, now: Now) -> int:
        decision = CONTINUE
        for due in sorted(t for t in state[1] if t <= time):
            state[1].discard(due)
            with user_code_boundary(f"trigger '{self.name}', on_event_time()"):
                decision |= Decision(self.trigger.on_event_time(due, _Context(state, window, now))).value
        return decision

    def tick(self, state: State, window: Window, now: Now) -> int:
        decision = CONTINUE
        for due in sorted(t for t in state[2] if t <= now.clock):
            state[2].discard(due)
            with user_code_boundary(f"trigger '{self.name}', on_processing_time()"):
                decision |= Decision(self.trigger.on_processing_time(due, _Context(state, window, now))).value
        return decision

    def next_event(self, state: State, window: Window) -> int:  # noqa: ARG002 - one shape for all
        return min(state[1], default=NONE)

    def next_tick(self, state: State) -> int:
        return min(state[2], default=NONE)

    def merged(self, states: list[State], window: Window, now: Now) -> State:
        state = self.begin()
        with user_code_boundary(f"trigger '{self.name}', on_merge()"):
            self.trigger.on_merge([s[0] for s in states], _Context(state, window, now))
        return state


class _Context:
    """A ``TriggerContext``."""

    __slots__ = ("_now", "_state", "_window")

    def __init__(self, state: State, window: Window, now: Now) -> None:
        self._state, self._window, self._now = state, window, now

    @property
    def window(self) -> tuple[int, int] | None:
        start, end = self._window.start, self._window.end
        return None if start is None or end is None else (start, end)

    @property
    def watermark(self) -> int:
        return self._now.watermark

    @property
    def clock(self) -> int:
        return self._now.clock

    @property
    def state(self) -> dict[str, Any]:
        user_state: dict[str, Any] = self._state[0]
        return user_state

    def at_event_time(self, time: int) -> None:
        self._state[1].add(operator.index(time))

    def at_processing_time(self, time: int) -> None:
        self._state[2].add(operator.index(time))


def machine(trigger: spec.Trigger, *, late: bool = False) -> Machine:
    """The machine of a trigger.

    Args:
        trigger: any.
        late: it says when late rows count, after the end of their window.
    """
    match trigger:
        case spec.AfterWatermark():
            early = machine(trigger.early_trigger) if trigger.early_trigger else None
            after = machine(trigger.late_trigger, late=True) if trigger.late_trigger else None
            return _AfterWatermark(early, after)
        case spec.AfterCount():
            return _AfterCount(trigger.n)
        case spec.Every():
            every = _EveryTick if trigger.time == "processing" else _EveryEvent
            return every(trigger.period, late=late)
        case spec.AfterDelay():
            return _AfterDelay(trigger.delay, late=late)
        case spec.EndOfInput():
            return _EndOfInput()
        case spec.Purging():
            return _Purging(machine(trigger.trigger, late=late))
        case spec.AnyOf():
            return _AnyOf([machine(part, late=late) for part in trigger.triggers])
        case spec.AllOf():
            return _AllOf([machine(part, late=late) for part in trigger.triggers])
        case _:
            return _User(trigger)


def last_of(window: Window) -> int:
    """The last millisecond of a window; the end of input for one without an end, or with one behind it."""
    return END if window.end is None else min(window.end - 1, END)


def _multiple(time: int, period: int) -> int:
    """The first whole multiple after ``time``."""
    return time - time % period + period


def _purge(decision: int) -> int:
    return decision | PURGE if decision & FIRE else decision
