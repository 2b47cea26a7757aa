"""Triggers: when a window fires. Declarations; ``semantics.kernels.triggers`` runs them.

Triggers compose: ``AfterCount(100) | AfterDelay("1 hour")``, ``AfterWatermark().early(Every("1 minute"))``. A pane holds all rows of the
window (accumulating) or the rows since the previous pane (discarding).
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from enum import Flag
from typing import Any, Literal, Protocol

from attrs import Attribute, evolve, field, frozen

from floodmark.core.code import class_of
from floodmark.core.errors import DefinitionError
from floodmark.core.fingerprint import Declared
from floodmark.core.time import describe_span, span
from floodmark.spec.rows.checks import converting

Clock = Literal["event", "processing"]


class Decision(Flag):
    """Decision of a trigger: FIRE emits a pane, PURGE removes the window's rows. Source: Flink ``TriggerResult``."""

    CONTINUE = 0
    FIRE = 1
    PURGE = 2
    FIRE_AND_PURGE = 3


class TriggerContext(Protocol):
    """The window of one key, as a user's trigger sees it."""

    @property
    def window(self) -> tuple[int, int] | None:
        """(start, end) in ms; None for windows without bounds."""

    @property
    def watermark(self) -> int:
        """The watermark in force for the current row or timer, ms."""

    @property
    def clock(self) -> int:
        """Processing time, ms: the last tick."""

    @property
    def state(self) -> dict[str, Any]:
        """The trigger's own state, plain data, stored with the window."""

    def at_event_time(self, time: int) -> None:
        """Set a timer: ``on_event_time`` is called when progress reaches ``time``."""

    def at_processing_time(self, time: int) -> None:
        """Set a timer: ``on_processing_time``, which the trigger must define, is called when the clock reaches ``time``."""


class Trigger:
    """When a window fires; subclass it for a trigger of your own.

    The class's source and its attributes are part of the operator's version.
    """

    def on_element(self, time: int, row: Mapping[str, Any], context: TriggerContext) -> Decision:
        """Called for each row that is added to the window."""
        raise NotImplementedError

    def on_event_time(self, time: int, context: TriggerContext) -> Decision:  # noqa: ARG002 - for subclasses
        """Called when an event-time timer of this window is due."""
        return Decision.CONTINUE

    def on_processing_time(self, time: int, context: TriggerContext) -> Decision:  # noqa: ARG002 - for subclasses
        """Called when a processing-time timer of this window is due."""
        return Decision.CONTINUE

    def on_merge(self, states: list[dict[str, Any]], context: TriggerContext) -> None:
        """Called when windows merge: write the merged ``states`` into ``context.state``, and set timers again.

        Raises:
            NotImplementedError: by default; session windows need it.
        """
        message = f"{type(self).__name__} has no on_merge, which session windows need"
        raise NotImplementedError(message)

    @property
    def clocked(self) -> bool:
        """Whether the trigger uses processing time: its class defines ``on_processing_time``."""
        return type(self).on_processing_time is not Trigger.on_processing_time

    def canonical(self) -> dict[str, object]:
        """As ``Declared.canonical``; the class is identified by its code."""
        return {"trigger": type(self).__qualname__} | class_of(self, "trigger")

    def describe(self) -> str:
        """For explain."""
        return type(self).__name__

    def __or__(self, other: Trigger) -> Trigger:
        return any_of(self, other)

    def __and__(self, other: Trigger) -> Trigger:
        return all_of(self, other)


class _Known(Declared, Trigger):
    """A trigger of floodmark's own: a declaration that ``semantics.kernels.triggers`` interprets."""

    __slots__ = ()
    entry = "trigger"


def _positive(value: str | timedelta, trigger: object = None, _: Any = None) -> int:
    kind = type(trigger).__name__
    milliseconds = span(value, kind)
    if milliseconds <= 0:
        raise _wrong(kind, "a time of 1 ms or more", describe_span(milliseconds), f'{kind}("1 minute").')
    return milliseconds


@frozen
class AfterWatermark(_Known):
    """At the end of the window, by progress: the default of windows with an end. Source: Flink ``EventTimeTrigger``, Beam ``AfterWatermark``.

    ``.early(trigger)`` adds panes before the end, ``.late(trigger)`` decides when late rows fire the window again (by default each at once).
    """

    early_trigger: Trigger | None = None
    late_trigger: Trigger | None = None

    def early(self, trigger: Trigger) -> AfterWatermark:
        """Fire before the end too, when ``trigger`` fires."""
        return evolve(self, early_trigger=_checked(trigger, "early"))

    def late(self, trigger: Trigger) -> AfterWatermark:
        """After the end, fire for late rows only when ``trigger`` fires."""
        return evolve(self, late_trigger=_checked(trigger, "late"))

    def describe(self) -> str:
        """For explain."""
        early = f".early({self.early_trigger.describe()})" if self.early_trigger else ""
        late = f".late({self.late_trigger.describe()})" if self.late_trigger else ""
        return f"AfterWatermark(){early}{late}"


@frozen
class AfterCount(_Known):
    """At every ``n``-th row. Source: Flink ``CountTrigger``; merged windows add their counts."""

    n: int = field()

    @n.validator
    def _is_positive(self, _: Attribute[Any], n: object) -> None:
        if not isinstance(n, int) or isinstance(n, bool) or n < 1:
            raise _wrong("AfterCount", "a number of rows, 1 or more", repr(n), "AfterCount(100).")

    def describe(self) -> str:
        """For explain."""
        return f"AfterCount({self.n})"


@frozen(field_transformer=converting)
class Every(_Known):
    """Periodically: at whole multiples of ``period``, and at the end of a window that has one.

    Event time: the first multiple after the first row's time, then each next; source Flink ``ContinuousEventTimeTrigger``. Processing time:
    the first multiple after the clock; if the clock jumps over several multiples, the window fires once.
    """

    period: int = field(converter=_positive)
    time: Clock = field(default="event")

    @time.validator
    def _is_clock(self, _: Attribute[Any], time: object) -> None:
        if time not in ("event", "processing"):
            fix = 'Every("1 minute", time="processing").'
            raise _wrong("Every", '"event" or "processing"', repr(time), fix)

    def describe(self) -> str:
        """For explain."""
        return f"Every({describe_span(self.period)}" + (", processing time)" if self.clocked else ")")

    @property
    def clocked(self) -> bool:
        """Whether the period is of processing time."""
        return self.time == "processing"


@frozen(field_transformer=converting)
class AfterDelay(_Known):
    """``delay`` of processing time after the first row since the last firing. Source: Beam ``AfterProcessingTime.plusDelayOf``."""

    delay: int = field(converter=_positive)

    def describe(self) -> str:
        """For explain."""
        return f"AfterDelay({describe_span(self.delay)})"

    @property
    def clocked(self) -> bool:
        """Always True."""
        return True


@frozen
class EndOfInput(_Known):
    """When the input ends: the default of ``Global``. Source: Flink ``EndOfStreamTrigger``."""

    def describe(self) -> str:
        """For explain."""
        return "EndOfInput()"


@frozen
class Purging(_Known):
    """Fires like ``trigger`` and removes the window's rows each time. Source: Flink ``PurgingTrigger``."""

    trigger: Trigger = field()

    @trigger.validator
    def _is_trigger(self, _: Attribute[Any], trigger: object) -> None:
        _checked(trigger, "Purging")

    def describe(self) -> str:
        """For explain."""
        return f"Purging({self.trigger.describe()})"


@frozen
class AnyOf(_Known):
    """Fires when one of ``triggers`` fires; all of them are then reset. Source: Beam ``AfterFirst``, repeated."""

    triggers: tuple[Trigger, ...]

    def describe(self) -> str:
        """For explain."""
        return " | ".join(t.describe() for t in self.triggers)


@frozen
class AllOf(_Known):
    """Fires when each of ``triggers`` has fired since the last firing. Source: Beam ``AfterAll``, repeated."""

    triggers: tuple[Trigger, ...]

    def describe(self) -> str:
        """For explain."""
        return " & ".join(f"({t.describe()})" if isinstance(t, AnyOf) else t.describe() for t in self.triggers)


def any_of(*triggers: Trigger) -> AnyOf:
    """``a | b``: fire when one of them fires."""
    return AnyOf(_several(triggers, AnyOf))


def all_of(*triggers: Trigger) -> AllOf:
    """``a & b``: fire when all of them have fired."""
    return AllOf(_several(triggers, AllOf))


def parts(trigger: Trigger) -> list[Trigger]:
    """The trigger and all triggers it is composed of."""
    match trigger:
        case AfterWatermark():
            inner = [t for t in (trigger.early_trigger, trigger.late_trigger) if t]
        case Purging():
            inner = [trigger.trigger]
        case AnyOf() | AllOf():
            inner = list(trigger.triggers)
        case _:
            inner = []
    return [trigger, *(part for t in inner for part in parts(t))]


def own_parts(trigger: Trigger | None) -> list[Trigger]:
    """The parts of a trigger that are of the user's classes."""
    return [part for part in parts(trigger) if type(part).__module__ != Trigger.__module__] if trigger else []


def once(trigger: Trigger) -> bool:
    """Whether a trigger fires a window at most once before late rows arrive."""
    match trigger:
        case AfterWatermark():
            return trigger.early_trigger is None
        case Purging():
            return once(trigger.trigger)
        case EndOfInput():
            return True
        case _:
            return False


def never_fires(trigger: Trigger, *, ends: bool) -> str | None:
    """The reason why a trigger can never fire; None if it can.

    Args:
        trigger: of the step.
        ends: whether the windows have an end in time.
    """
    match trigger:
        case EndOfInput() if ends:
            return "EndOfInput() waits for the end of input, but the window is gone at its own end"
        case Purging():
            return never_fires(trigger.trigger, ends=ends)
        case AnyOf():
            reasons = [never_fires(t, ends=ends) for t in trigger.triggers]
            return "; ".join(why for why in reasons if why) if all(reasons) else None
        case AllOf():
            return next((why for t in trigger.triggers if (why := never_fires(t, ends=ends))), None)
        case _:
            return None


def _several(triggers: tuple[Trigger, ...], kind: type[AnyOf | AllOf]) -> tuple[Trigger, ...]:
    name = "any_of" if kind is AnyOf else "all_of"
    flat = tuple(
        t
        for one in triggers
        for t in (one.triggers if isinstance(one, (AnyOf, AllOf)) and type(one) is kind else (one,))
    )
    if len(flat) < 2:  # noqa: PLR2004 - one alone needs no combination
        raise _wrong(name, "two triggers or more", f"{len(flat)}", f'{name}(AfterCount(100), Every("1 minute")).')
    return tuple(_checked(t, name) for t in flat)


def _checked(trigger: object, where: str) -> Trigger:
    if not isinstance(trigger, Trigger):
        raise _wrong(where, "a trigger", repr(trigger), 'For example AfterCount(100) or Every("1 minute").')
    return trigger


def _wrong(where: str, expected: str, got: str, fix: str) -> DefinitionError:
    return DefinitionError(f"trigger {where}", expected, got, fix, code="DEFINITION-032")
