"""Timers of process functions: declared as class attributes, as their state is."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from floodmark.core.errors import DefinitionError, UserCodeError
from floodmark.core.time import to_ms
from floodmark.spec.kinds import unfit


class Timer:
    """A timer per key, declared as a class attribute; ``set`` it to a time, and ``on_timer`` is called then.

    One timer stands per key, name and time: setting it twice is setting it once; several times may be set. Event time by default: it
    fires when progress reaches the time, in time order. ``Timer("processing")`` fires when the clock does; a replay repeats it from
    recorded ticks. At the end of input every timer fires; one that a timer of its own name sets then does not.
    Source: Flink ``TimerService``, Beam ``TimerSpec``.
    """

    name = ""

    def __init__(self, time: str = "event") -> None:
        if time not in {"event", "processing"}:
            raise DefinitionError(
                "Timer", '"event" or "processing"', repr(time), 'Timer() or Timer("processing").', code="DEFINITION-120"
            )
        self.time = time
        self.times: Any = None

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __get__(self, instance: Any, owner: type | None = None) -> Timer:
        if instance is None:
            return self
        found: Timer = vars(instance).get(f"_state_{self.name}", self)
        return found

    def __set__(self, instance: Any, value: Any) -> None:
        fix = f"Write self.{self.name}.set(ctx.timestamp + 60_000)."
        raise UserCodeError(f"timer '{self.name}'", "set(time)", "an assignment", fix, code="USER-004")

    def bound(self, times: Any) -> Timer:
        """A handle on the timers of the key at hand."""
        found = object.__new__(Timer)
        found.name, found.time, found.times = self.name, self.time, times
        return found

    def set(self, time: int | datetime) -> None:
        """Fire at ``time``: ms UTC, or a datetime. A time that progress has passed already fires at once, before the next row of the key."""
        self._times().set(self.name, _moment(time, self.name))

    def delete(self, time: int | datetime | None = None) -> None:
        """Do not fire at ``time``, or not at all."""
        self._times().delete(self.name, None if time is None else _moment(time, self.name))

    def pending(self) -> list[int]:
        """Times it is set to, ms UTC, in order."""
        found: list[int] = self._times().pending(self.name)
        return found

    def canonical(self) -> dict[str, object]:
        """Its clock, as JSON values."""
        return {"timer": self.time}

    def _times(self) -> Any:
        if self.times is None or not self.times.open:
            fix = "Use it in on_element, on_timer and their like: only there is there a key."
            raise UserCodeError(f"timer '{self.name}'", "a key", "none at this point", fix, code="USER-006")
        return self.times


def _moment(time: object, name: str) -> int:
    if isinstance(time, datetime):
        return to_ms(time)
    if isinstance(time, bool) or not isinstance(time, int):
        raise unfit(f"timer '{name}'", "time (ms UTC, or a datetime)", time)
    return time
