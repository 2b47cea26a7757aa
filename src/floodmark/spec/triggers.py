"""Triggers: when a window's result comes out. Declarations; ``semantics.triggers`` runs them.

They are composed: ``AfterCount(100) | AfterDelay("1 hour")``, ``AfterWatermark().early(Every("1 minute"))``. A window fires as often as its
trigger says, each time with everything it holds (accumulating) or with what is new (discarding).
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
from floodmark.spec.checks import converting

Clock = Literal["event", "processing"]


class Decision(Flag):
    """What a trigger wants: FIRE emits a pane and keeps the contents, PURGE forgets the contents. Source: Flink ``TriggerResult``."""

    CONTINUE = 0
    FIRE = 1
    PURGE = 2
    FIRE_AND_PURGE = 3


class TriggerContext(Protocol):
    """What a trigger of your own sees of one key's window."""

    @property
    def window(self) -> tuple[int, int] | None:
        """(start, end) in ms; None for windows without bounds."""

    @property
    def watermark(self) -> int:
        """In force for the row or timer at hand, ms."""

    @property
    def clock(self) -> int:
        """Processing time, ms: the last tick."""

    @property
    def state(self) -> dict[str, Any]:
        """Plain data of this window, kept with it."""

    def at_event_time(self, time: int) -> None:
        """Ask for ``on_event_time`` when progress reaches ``time``."""

    def at_processing_time(self, time: int) -> None:
        """Ask for ``on_processing_time``, which your trigger then has, when the clock reaches ``time``."""


class Trigger:
    """When to fire; subclass it for one of your own.

    The class's source and its attributes are part of the operator's version.
    """

    def on_element(self, time: int, row: Mapping[str, Any], context: TriggerContext) -> Decision:
        """A row has come into the window."""
        raise NotImplementedError

    def on_event_time(self, time: int, context: TriggerContext) -> Decision:  # noqa: ARG002 - for subclasses
        """An event-time timer of this window is due."""
        return Decision.CONTINUE

    def on_processing_time(self, time: int, context: TriggerContext) -> Decision:  # noqa: ARG002 - for subclasses
        """A processing-time timer of this window is due."""
        return Decision.CONTINUE

    def on_merge(self, states: list[dict[str, Any]], context: TriggerContext) -> None:
        """Windows have become one: put what their ``states`` said into ``context.state``, and set timers again.

        Raises:
            NotImplementedError: by default; session windows need it.
        """
        message = f"{type(self).__name__} has no on_merge, which session windows need"
        raise NotImplementedError(message)

    @property
    def clocked(self) -> bool:
        """Whether the processing clock moves for it: its class has an ``on_processing_time`` of its own."""
        return type(self).on_processing_time is not Trigger.on_processing_time

    def canonical(self) -> dict[str, object]:
        """As of ``Declared``; the class by its code."""
        return {"trigger": type(self).__qualname__} | class_of(self, "trigger")

    def describe(self) -> str:
        """For explain."""
        return type(self).__name__

    def __or__(self, other: Trigger) -> Trigger:
        return any_of(self, other)

    def __and__(self, other: Trigger) -> Trigger:
        return all_of(self, other)


class _Known(Declared, Trigger):
    """A trigger of floodmark's own: a declaration that ``semantics.triggers`` interprets."""

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

    ``.early(trigger)`` adds approximate panes before it, ``.late(trigger)`` says when late rows count (by default each at once).
    """

    early_trigger: Trigger | None = None
    late_trigger: Trigger | None = None

    def early(self, trigger: Trigger) -> AfterWatermark:
        """Fire before the end too, whenever ``trigger`` says."""
        return evolve(self, early_trigger=_checked(trigger, "early"))

    def late(self, trigger: Trigger) -> AfterWatermark:
        """After the end, let late rows wait until ``trigger`` says."""
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

    Event time: source Flink ``ContinuousEventTimeTrigger``; the first multiple after the first row's time, then each next. Processing time:
    the first multiple after the clock; firings the clock has jumped over collapse to one.
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
        """Whether it goes by processing time."""
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
        """Always."""
        return True


@frozen
class EndOfInput(_Known):
    """When the input ends: the default of ``Global``. Source: Flink ``EndOfStreamTrigger``."""

    def describe(self) -> str:
        """For explain."""
        return "EndOfInput()"


@frozen
class Purging(_Known):
    """Fires like ``trigger`` and forgets the contents each time. Source: Flink ``PurgingTrigger``."""

    trigger: Trigger = field()

    @trigger.validator
    def _is_trigger(self, _: Attribute[Any], trigger: object) -> None:
        _checked(trigger, "Purging")

    def describe(self) -> str:
        """For explain."""
        return f"Purging({self.trigger.describe()})"


@frozen
class AnyOf(_Known):
    """When one of ``triggers`` fires; all of them then begin anew. Source: Beam ``AfterFirst``, repeated."""

    triggers: tuple[Trigger, ...]

    def describe(self) -> str:
        """For explain."""
        return " | ".join(t.describe() for t in self.triggers)


@frozen
class AllOf(_Known):
    """When each of ``triggers`` has fired since the last time. Source: Beam ``AfterAll``, repeated."""

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
    """The trigger and everything it is made of."""
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
    """The parts of it that are classes of the user's."""
    return [part for part in parts(trigger) if type(part).__module__ != Trigger.__module__] if trigger else []


def once(trigger: Trigger) -> bool:
    """Whether a window has one pane at most before rows come late."""
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
    """Why a trigger cannot fire at all on windows that do or do not end before the input does; None when it can.

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
            found = [never_fires(t, ends=ends) for t in trigger.triggers]
            return "; ".join(why for why in found if why) if all(found) else None
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
