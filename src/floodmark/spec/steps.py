"""The nodes of an operator's graph. Frozen; each knows its output schema and its canonical form."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal

from floodmark.core.code import Code
from floodmark.core.time import describe_span
from floodmark.spec.aggregates import ORDERED, AnyAggregate, Builtin
from floodmark.spec.evictors import Evictor, KeepNear, canonical_evictor
from floodmark.spec.functions import Function
from floodmark.spec.process import Process
from floodmark.spec.schema import Schema
from floodmark.spec.triggers import Clock, Purging, Trigger, once, own_parts, parts
from floodmark.spec.windows import (
    Calendar,
    Count,
    Global,
    Session,
    Sliding,
    Tumbling,
    Window,
    WindowAssigner,
    canonical_window,
    describe_window,
)

Late = Literal["drop", "side_output"]
Accumulation = Literal["accumulating", "discarding"]
Order = Literal["arrival", "event_time"]
OnError = Literal["stop", "quarantine"]
JoinKind = Literal["inner", "left", "right", "full", "semi", "anti"]
"""Source: SQL; semi keeps the left rows with a partner, once, anti those without one."""
RowFunction = Callable[[Mapping[str, Any]], Iterable[Mapping[str, Any]]]


@dataclass(frozen=True, slots=True)
class Read:
    """The rows of one input."""

    input: str
    schema: Schema

    @property
    def parents(self) -> tuple[Step, ...]:
        """The steps this one reads."""
        return ()

    def canonical(self) -> dict[str, object]:
        """For fingerprints."""
        return {"step": "read", "input": self.input, "schema": self.schema.canonical()}


@dataclass(frozen=True, slots=True)
class Filter:
    """Keep the rows for which the condition is true."""

    parent: Step
    condition: str
    on_error: OnError = "stop"

    @property
    def schema(self) -> Schema:
        """Unchanged."""
        return self.parent.schema

    @property
    def parents(self) -> tuple[Step, ...]:
        """The steps this one reads."""
        return (self.parent,)

    def canonical(self) -> dict[str, object]:
        """For fingerprints."""
        failing = _on_error(self.on_error)
        return {"step": "filter", "condition": self.condition, **failing, "of": self.parent.canonical()}


@dataclass(frozen=True, slots=True)
class Project:
    """New columns out of expressions: ``select`` (only these) and ``with_columns`` (these beside the others)."""

    parent: Step
    columns: tuple[tuple[str, str], ...]
    schema: Schema
    on_error: OnError = "stop"

    @property
    def parents(self) -> tuple[Step, ...]:
        """The steps this one reads."""
        return (self.parent,)

    def canonical(self) -> dict[str, object]:
        """For fingerprints."""
        columns = [[name, text, self.schema[name].type] for name, text in self.columns]
        return {"step": "project", "columns": columns, **_on_error(self.on_error), "of": self.parent.canonical()}


@dataclass(frozen=True, slots=True)
class FlatMap:
    """A Python function from a row to any number of rows."""

    parent: Step
    function: RowFunction = field(compare=False)
    schema: Schema
    code: Code
    on_error: OnError = "stop"

    @staticmethod
    def of(parent: Step, function: RowFunction, schema: Schema, on_error: OnError = "stop") -> FlatMap:
        """With the function's code, by which it is compared."""
        return FlatMap(parent, function, schema, Code.of(function), on_error)

    @property
    def name(self) -> str:
        """For people."""
        return f"flat_map '{getattr(self.function, '__name__', 'function')}'"

    @property
    def parents(self) -> tuple[Step, ...]:
        """The steps this one reads."""
        return (self.parent,)

    def canonical(self) -> dict[str, object]:
        """For fingerprints."""
        schema = self.schema.canonical()
        found: dict[str, object] = {"step": "flat_map", "code": str(self.code), "schema": schema}
        return found | _on_error(self.on_error) | {"of": self.parent.canonical()}


def _on_error(setting: OnError) -> dict[str, object]:
    """For fingerprints: nothing for the default."""
    return {} if setting == "stop" else {"on_error": setting}


@dataclass(frozen=True, slots=True)
class Union:
    """All rows of several streams of one schema."""

    parents: tuple[Step, ...]

    @property
    def schema(self) -> Schema:
        """That of each parent."""
        return self.parents[0].schema

    def canonical(self) -> dict[str, object]:
        """For fingerprints."""
        return {"step": "union", "of": [parent.canonical() for parent in self.parents]}


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowAggregate:
    """What is computed per key and window: the stateful step.

    Args:
        uid: names its state; stays the same while the step keeps its meaning.
        trigger: None for the window's own.
        function: over the rows of a pane, or over its aggregates; with ``reduces``, over two rows.
        time: the clock its windows are of.
        order: in which rows are taken; None for what the inputs allow.
        on_error: what a failure of the user's code does.
        groups: number of key groups, the unit of redistribution.
    """

    parent: Step
    uid: str
    keys: tuple[str, ...]
    window: Window
    allowed_lateness: int
    late: Late
    aggregates: tuple[tuple[str, AnyAggregate], ...]
    schema: Schema
    trigger: Trigger | None = None
    evictor: Evictor | None = None
    accumulation: Accumulation = "accumulating"
    function: Function | None = None
    reduces: bool = False
    time: Clock = "event"
    order: Order | None = None
    on_error: OnError = "stop"
    groups: int = 64
    broadcast: ClassVar[int | None] = None
    sides: ClassVar[tuple[tuple[str, Schema], ...]] = ()

    @property
    def columnar(self) -> bool:
        """Whether its result depends on the set of rows of a window alone, so that columns of partial results are enough."""
        special = self.trigger or self.evictor or self.function or self.accumulation != "accumulating" or self.order
        ordered = any(isinstance(a, Builtin) and a.function in ORDERED for _, a in self.aggregates)
        grid = isinstance(self.window, (Tumbling, Sliding, Calendar, Global))
        blames = self.on_error == "quarantine" and self.own_aggregates  # one value, not a column of them
        return grid and self.time == "event" and not special and not ordered and not blames

    @property
    def own_aggregates(self) -> bool:
        """Whether an aggregate is the user's."""
        return not all(isinstance(a, Builtin) for _, a in self.aggregates)

    @property
    def identity(self) -> tuple[str, ...]:
        """The columns that identify a result; empty where results have no key."""
        return (*self.keys, "window_start", "window_end") if self.function is None or self.reduces else ()

    @property
    def revises(self) -> bool:
        """Whether a pane may replace the one before it: the old rows are then taken back first."""
        if isinstance(self.window, Count) or self.accumulation == "discarding" or isinstance(self.trigger, Purging):
            return False
        if self.trigger is not None and not once(self.trigger):
            return True
        return self.allowed_lateness > 0 and not isinstance(self.window, Global)

    @property
    def clocked(self) -> bool:
        """Whether it waits for processing time."""
        return self.time == "processing" or any(part.clocked for part in (parts(self.trigger) if self.trigger else []))

    @property
    def over_all_time(self) -> bool:
        """Whether its windows have no place in event time, so that no part of time can be computed on its own."""
        return isinstance(self.window, (Global, Count, WindowAssigner)) or self.time == "processing"

    def describe_window(self) -> str:
        """For errors."""
        return ("processing-time " if self.time == "processing" else "") + describe_window(self.window)

    @property
    def keeps_for_ever(self) -> bool:
        """Whether rows are kept for a function, and nothing ever lets go of them."""
        kept = self.function is not None and not self.aggregates and not self.reduces
        lets_go = self.evictor is not None or self.accumulation == "discarding"
        lets_go |= any(isinstance(part, Purging) for part in (parts(self.trigger) if self.trigger else []))
        return kept and isinstance(self.window, Global) and self.trigger is not None and not lets_go

    def functions(self) -> Iterator[tuple[str, object]]:
        """(what it is, code of the user) for everything of the user's in this step."""
        if self.function is not None:
            yield f"the window function of '{self.uid}'", self.function.call
        yield from ((f"aggregate '{name}'", type(a)) for name, a in self.aggregates if not isinstance(a, Builtin))
        yield from ((f"trigger '{type(p).__name__}'", type(p)) for p in own_parts(self.trigger))
        if isinstance(self.window, WindowAssigner):
            yield f"window assigner '{type(self.window).__name__}'", type(self.window)

    @property
    def own_columns(self) -> tuple[str, ...]:
        """Columns beside the keys and the window's bounds."""
        return tuple(n for n in self.schema.names if n not in {*self.keys, "window_start", "window_end"})

    @property
    def parents(self) -> tuple[Step, ...]:
        """The steps this one reads."""
        return (self.parent,)

    def canonical(self) -> dict[str, object]:
        """For fingerprints."""
        return {
            "step": "window_aggregate",
            "uid": self.uid,
            "keys": list(self.keys),
            "window": canonical_window(self.window),
            "allowed_lateness": self.allowed_lateness,
            "late": self.late,
            "aggregates": [[name, aggregate.canonical()] for name, aggregate in self.aggregates],
            "groups": self.groups,
            "of": self.parent.canonical(),
        } | self._special()

    def _special(self) -> dict[str, object]:
        """Settings that are not the default."""
        found: dict[str, object] = {}
        if self.trigger:
            found["trigger"] = self.trigger.canonical()
        if self.evictor:
            found["evictor"] = canonical_evictor(self.evictor)
        if self.function:
            found["function"] = {
                "code": str(self.function.code),
                "reduces": self.reduces,
                "schema": self.schema.canonical(),
            }
        plain = {"accumulation": "accumulating", "time": "event", "order": None, "on_error": "stop"}
        return found | {name: value for name, usual in plain.items() if (value := getattr(self, name)) != usual}


TAG = "_input"
"""Column that says which of its inputs a row of a tagged union is from, by number."""


@dataclass(frozen=True, slots=True)
class Port:
    """One input of a step with several, as columns of their tagged union.

    Args:
        name: for people: left, right, broadcast.
        columns: (its own name, the column of the union).
        broadcast: every key group gets its rows.
    """

    name: str
    columns: tuple[tuple[str, str], ...]
    broadcast: bool = False

    def canonical(self) -> dict[str, object]:
        """For fingerprints."""
        return {"name": self.name, "columns": [list(pair) for pair in self.columns], "broadcast": self.broadcast}


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyedProcess:
    """A process function over the rows of each key: a stateful step.

    Args:
        parent: its rows; of several inputs the tagged union.
        uid: names its state.
        function: of the user's, or of floodmark's own.
        ports: its inputs, in the order of their tags; empty for one.
        sides: outputs beside the result, by name.
        order: in which rows are taken; None for what the inputs allow.
    """

    parent: Step
    uid: str
    keys: tuple[str, ...]
    function: Process
    schema: Schema
    ports: tuple[Port, ...] = ()
    sides: tuple[tuple[str, Schema], ...] = ()
    order: Order | None = None
    on_error: OnError = "stop"
    groups: int = 64
    columnar: ClassVar[bool] = False
    reduces: ClassVar[bool] = False
    over_all_time: ClassVar[bool] = True
    allowed_lateness: ClassVar[int] = 0
    late: ClassVar[Late] = "drop"
    time: ClassVar[Clock] = "event"

    @property
    def clocked(self) -> bool:
        """Whether it waits for processing time."""
        return self.function.function.clocked

    @property
    def revises(self) -> bool:
        """Whether it takes back what it has sent out."""
        return self.function.function.revises

    @property
    def identity(self) -> tuple[str, ...]:
        """The columns that identify a result; empty where results have no key."""
        return (*self.keys, *self.function.function.identity) if self.revises else ()

    @property
    def broadcast(self) -> int | None:
        """The tag of the input every key group gets."""
        return next((tag for tag, port in enumerate(self.ports) if port.broadcast), None)

    def describe_window(self) -> str:
        """For errors."""
        return f"process function {type(self.function.function).__name__}"

    def functions(self) -> Iterator[tuple[str, object]]:
        """(what it is, code of the user): the function with its settings, and the functions of its states."""
        function = self.function.function
        yield f"the process function of '{self.uid}'", type(function)
        yield from ((f"self.{name} of '{self.uid}'", value) for name, value in vars(function).items())
        for name, state in {**function.states(), **function.broadcast_states()}.items():
            yield from ((f"{what} of state '{name}' of '{self.uid}'", code) for what, code in state.code().items())

    @property
    def parents(self) -> tuple[Step, ...]:
        """The steps this one reads."""
        return (self.parent,)

    def canonical(self) -> dict[str, object]:
        """For fingerprints."""
        found: dict[str, object] = {
            "step": "process",
            "uid": self.uid,
            "keys": list(self.keys),
            "function": self.function.canonical(),
            "schema": self.schema.canonical(),
            "sides": [[name, schema.canonical()] for name, schema in self.sides],
            "groups": self.groups,
        }
        found |= {"ports": [port.canonical() for port in self.ports]} if self.ports else {}
        found |= {"order": self.order} if self.order else {}
        found |= {"on_error": self.on_error} if self.on_error != "stop" else {}
        return found | {"of": self.parent.canonical()}


@dataclass(frozen=True, slots=True, kw_only=True)
class IntervalJoin:
    """Pairs of rows of two streams with one key, one about as old as the other: a stateful step.

    Args:
        parent: the tagged union of both.
        uid: names its state.
        keys: columns both are joined on, named as on the left.
        lower: the right row is at least so much later than the left one, ms; inclusive.
        upper: at most so much, inclusive.
        kind: what becomes of rows without a partner.
        ports: left, right.
        schema: of the pairs: keys, columns of the left, columns of the right.
    """

    parent: Step
    uid: str
    keys: tuple[str, ...]
    lower: int
    upper: int
    kind: JoinKind
    ports: tuple[Port, ...]
    schema: Schema
    groups: int = 64
    columnar: ClassVar[bool] = True
    reduces: ClassVar[bool] = False
    revises: ClassVar[bool] = False
    identity: ClassVar[tuple[str, ...]] = ()
    over_all_time: ClassVar[bool] = False
    clocked: ClassVar[bool] = False
    allowed_lateness: ClassVar[int] = 0
    late: ClassVar[Late] = "drop"
    time: ClassVar[Clock] = "event"
    order: ClassVar[Order | None] = "arrival"
    on_error: ClassVar[OnError] = "stop"
    broadcast: ClassVar[int | None] = None
    sides: ClassVar[tuple[tuple[str, Schema], ...]] = ()

    @property
    def margin(self) -> int:
        """How far from an instant rows lie that decide the pairs of that instant, ms."""
        return abs(self.lower) + abs(self.upper)

    def describe_window(self) -> str:
        """For errors."""
        return f"interval join from {describe_span(self.lower)} to {describe_span(self.upper)}"

    def functions(self) -> Iterator[tuple[str, object]]:
        """No code of the user's."""
        yield from ()

    @property
    def parents(self) -> tuple[Step, ...]:
        """The steps this one reads."""
        return (self.parent,)

    def canonical(self) -> dict[str, object]:
        """For fingerprints."""
        return {
            "step": "interval_join",
            "uid": self.uid,
            "keys": list(self.keys),
            "interval": [self.lower, self.upper],
            "kind": self.kind,
            "ports": [port.canonical() for port in self.ports],
            "schema": self.schema.canonical(),
            "groups": self.groups,
            "of": self.parent.canonical(),
        }


Stateful = WindowAggregate | KeyedProcess | IntervalJoin
STATEFUL = (WindowAggregate, KeyedProcess, IntervalJoin)
Step = Read | Filter | Project | FlatMap | Union | Stateful


def quarantines(step: Step) -> bool:
    """Whether rows this step itself fails for go to the quarantine."""
    return not isinstance(step, (Read, Union)) and step.on_error == "quarantine"


def quarantining(step: Step) -> Step:
    """The same step, and the same before it, with rows set aside for which an expression fails."""
    match step:
        case Read():
            return step
        case Union():
            return replace(step, parents=tuple(quarantining(parent) for parent in step.parents))
        case Filter() | Project() | WindowAggregate():
            return replace(step, parent=quarantining(step.parent), on_error="quarantine")
        case FlatMap() | KeyedProcess() | IntervalJoin():
            return replace(step, parent=quarantining(step.parent))


def expressions(step: Step) -> tuple[str, ...]:
    """The Spark SQL of a step, over the columns of its parent."""
    match step:
        case Filter(condition=condition):
            return (condition,)
        case Project(columns=columns):
            return tuple(text for _, text in columns)
        case WindowAggregate(aggregates=aggregates, window=window, evictor=evictor):
            texts = [text for _, a in aggregates for text in (a.expression, getattr(a, "by", None)) if text]
            texts += [window.gap] if isinstance(window, Session) and isinstance(window.gap, str) else []
            texts += [evictor.distance] if isinstance(evictor, KeepNear) else []
            return tuple(texts)
        case _:
            return ()


def walk(step: Step) -> Iterator[Step]:
    """The step and everything it reads, parents first; a step reached twice comes twice."""
    for parent in step.parents:
        yield from walk(parent)
    yield step
