"""Timers of process functions: declared as class attributes, like states."""

from __future__ import annotations

from datetime import datetime

from floodmark.core.errors import DefinitionError
from floodmark.core.time import to_ms
from floodmark.spec.keyed.handle import Handle
from floodmark.spec.rows.kinds import unfit


class Timer(Handle):
    """A timer per key, declared as a class attribute; ``on_timer`` is called at the time it is ``set`` to.

    A timer may be set to several times; setting the same time twice counts once. ``Timer()`` is of event time: it fires when progress
    reaches the time, in order of times. ``Timer("processing")`` fires when the clock reaches the time; a replay repeats it from recorded
    ticks. At the end of input all timers fire; a timer that is set by a firing of its own name then does not fire.
    Source: Flink ``TimerService``, Beam ``TimerSpec``.
    """

    noun = "timer"
    use = ".set(ctx.timestamp + 60_000)"

    def __init__(self, time: str = "event") -> None:
        if time not in {"event", "processing"}:
            raise DefinitionError(
                "Timer", '"event" or "processing"', repr(time), 'Timer() or Timer("processing").', code="DEFINITION-120"
            )
        self.time = time

    def set(self, time: int | datetime) -> None:
        """Fire at ``time``: ms UTC, or a datetime. If progress has passed that time, the timer fires at once, before the key's next row."""
        self._opened().set(self.name, _moment(time, self.name))

    def delete(self, time: int | datetime | None = None) -> None:
        """Delete the firing at ``time``; without ``time`` all firings."""
        self._opened().delete(self.name, None if time is None else _moment(time, self.name))

    def pending(self) -> list[int]:
        """Times at which the timer will fire, ms UTC, ascending."""
        times: list[int] = self._opened().pending(self.name)
        return times

    def canonical(self) -> dict[str, object]:
        """The timer's clock, as JSON values."""
        return {"timer": self.time}


def _moment(time: object, name: str) -> int:
    if isinstance(time, datetime):
        return to_ms(time)
    if isinstance(time, bool) or not isinstance(time, int):
        raise unfit(f"timer '{name}'", "time (ms UTC, or a datetime)", time)
    return time
