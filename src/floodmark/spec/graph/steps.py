"""The nodes of an operator's graph. Frozen; each has its output schema and its canonical form."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal

from attrs import evolve, field, frozen

from floodmark.core.code import Code
from floodmark.core.fingerprint import OMITTED, SKIPPED, Declared, digest, renamed
from floodmark.core.time import describe_span
from floodmark.spec.expressions.expression import itself
from floodmark.spec.keyed.process import Process
from floodmark.spec.values.functions import Function
from floodmark.spec.values.schema import Schema
from floodmark.spec.windowing.aggregates import ORDERED, AnyAggregate, Builtin, texts
from floodmark.spec.windowing.evictors import Evictor, KeepNear
from floodmark.spec.windowing.triggers import AfterCount, Clock, Purging, Trigger, once, own_parts, parts
from floodmark.spec.windowing.windows import (
    Calendar,
    Count,
    Cumulative,
    Global,
    Session,
    Sliding,
    Tumbling,
    Window,
    WindowAssigner,
    bounded_in_time,
    describe_window,
)

Late = Literal["drop", "side_output"]
Accumulation = Literal["accumulating", "discarding"]
Order = Literal["arrival", "event_time"]
OnError = Literal["stop", "quarantine"]
JoinKind = Literal["inner", "left", "right", "full", "semi", "anti"]
"""Source: SQL; semi keeps the left rows with a partner, once, anti those without one."""
RowFunction = Callable[[Mapping[str, Any]], Iterable[Mapping[str, Any]]]


PARENT = renamed("of")
BOUNDS = ("window_start", "window_end")
"""Columns of a window's results, where windows have bounds in time."""
KEY_GROUPS = 128
"""Key groups of a new stream whose operator does not declare a number, as in Flink."""
MOST_KEY_GROUPS = 1 << 15
"""Key groups at most, as in Flink."""
FORMER_KEY_GROUPS = 64
"""Key groups of every stream of earlier releases: of each checkpoint that records no number."""


class _Node(Declared):
    """A node of the graph: its fields, and ``parents``, the steps it reads."""

    __slots__ = ()
    entry = "step"


class _OfOne(_Node):
    """A node that reads one step."""

    __slots__ = ()
    parent: Step

    @property
    def parents(self) -> tuple[Step, ...]:
        """The parent."""
        return (self.parent,)


@frozen
class Read(_Node):
    """The rows of one input."""

    called = "read"
    input: str
    schema: Schema

    @property
    def parents(self) -> tuple[Step, ...]:
        """None."""
        return ()


@frozen
class Filter(_OfOne):
    """Keep the rows for which the condition is true."""

    called = "filter"
    parent: Step = field(metadata=PARENT)
    condition: str
    on_error: OnError = field(default="stop", metadata=OMITTED)

    @property
    def schema(self) -> Schema:
        """Unchanged."""
        return self.parent.schema


@frozen
class Expect(_OfOne):
    """Quarantine the rows that do not meet an expectation.

    Args:
        parent: whose rows are judged.
        expectations: (name, the expectation in words, SQL condition for the rows that do not meet it).
    """

    called = "expect"
    parent: Step = field(metadata=PARENT)
    expectations: tuple[tuple[str, str, str], ...]

    @property
    def schema(self) -> Schema:
        """Unchanged."""
        return self.parent.schema

    @property
    def on_error(self) -> OnError:
        """Rows are set aside."""
        return "quarantine"


@frozen
class Project(_OfOne):
    """New columns out of expressions: ``select`` (only these) and ``with_columns`` (these beside the others)."""

    called = "project"
    parent: Step = field(metadata=PARENT)
    columns: tuple[tuple[str, str], ...]
    schema: Schema = field(metadata=SKIPPED)
    on_error: OnError = field(default="stop", metadata=OMITTED)

    def canonical(self) -> dict[str, Any]:
        """As ``Declared.canonical``; columns with their types."""
        columns = [[name, text, self.schema[name].type] for name, text in self.columns]
        return super().canonical() | {"columns": columns}


@frozen
class FlatMap(_OfOne):
    """A Python function from a row to any number of rows."""

    called = "flat_map"
    parent: Step = field(metadata=PARENT)
    function: RowFunction = field(eq=False, metadata=SKIPPED)
    schema: Schema
    code: Code
    on_error: OnError = field(default="stop", metadata=OMITTED)

    @staticmethod
    def of(parent: Step, function: RowFunction, schema: Schema, on_error: OnError = "stop") -> FlatMap:
        """A step with the function's code, by which steps are compared."""
        return FlatMap(parent, function, schema, Code.of(function), on_error)

    @property
    def name(self) -> str:
        """For people."""
        return f"flat_map '{getattr(self.function, '__name__', 'function')}'"


@frozen
class Call(FlatMap):
    """A function that asks another system about each row. Answers are recorded, and a recorded answer is not asked for again.

    Args:
        uid: names the answers.
        cache: the columns that the function receives, whose values are asked about once per ``cache_for``; empty for the whole row.
        cache_for: length of event time for which an answer about ``cache`` holds, ms.
        version: names the function's code for the answers; None for its digest.
        concurrency: calls of one worker process at a time.
        timeout: longest wait for an answer, ms.
        retries: calls after the first one that fails.
        ordered: whether a call begins only once every row ``concurrency`` before its row has been answered.
        keep: event time for which upkeep leaves answers, ms; 0 for ever.
        folders: where answers are recorded, then where they are read only; empty for no record. Set by ``recording``.
    """

    called = "call"
    uid: str = "call"
    cache: tuple[str, ...] = field(default=(), metadata=OMITTED)
    cache_for: int = field(default=0, metadata=OMITTED)
    version: str | None = field(default=None, metadata=OMITTED)
    concurrency: int = field(default=100, metadata=SKIPPED)
    timeout: int = field(default=30_000, metadata=SKIPPED)
    retries: int = field(default=3, metadata=SKIPPED)
    ordered: bool = field(default=True, metadata=SKIPPED)
    keep: int = field(default=0, metadata=SKIPPED)
    folders: tuple[str, ...] = field(default=(), eq=False, metadata=SKIPPED)

    @property
    def name(self) -> str:
        """For people."""
        return f"call '{self.uid}'"

    @property
    def asked(self) -> tuple[str, ...]:
        """The columns that the function receives."""
        return self.cache or self.parent.schema.names

    @property
    def answered(self) -> Schema:
        """The columns of an answer: all of the step's, or with ``cache`` those that the row does not have."""
        if not self.cache:
            return self.schema
        return Schema(tuple(column for column in self.schema.columns if column.name not in self.parent.schema))

    @property
    def answers(self) -> str:
        """Name of the folder of its answers, another one wherever an old answer might not be what the function would answer now."""
        form = [self.version or str(self.code), self.answered.canonical(), list(self.asked), self.cache_for]
        return f"{self.uid}-{digest(form)[:16]}"


@frozen
class Union(_Node):
    """All rows of several streams of one schema."""

    called = "union"
    parents: tuple[Step, ...] = field(metadata=PARENT)

    @property
    def schema(self) -> Schema:
        """The schema of each parent."""
        return self.parents[0].schema


@frozen
class Port(Declared):
    """One input of a step with several inputs, as columns of their tagged union.

    Args:
        name: for people: left, right, broadcast.
        columns: (name in the input, name in the union).
        broadcast: every key group receives its rows.
    """

    name: str
    columns: tuple[tuple[str, str], ...]
    broadcast: bool = False


@frozen(kw_only=True)
class _Keyed(_OfOne):
    """A step with state per key. Settings that a kind of step does not have stay at their defaults.

    Args:
        parent: the step it reads; for several inputs their tagged union.
        uid: names its state; must stay the same for a changed version to resume from the state.
        keys: columns.
        schema: of its result.
        ports: its inputs, in the order of their tags; empty for one.
        sides: outputs beside the result, by name.
        allowed_lateness: rows at most this late still revise a result, ms.
        late: what happens to later rows.
        time: the clock of its windows.
        order: in which rows are processed; None for the order that the inputs allow.
        on_error: what an exception in the user's code does.
        reduces: a function folds two rows into one.
        groups: number of parts of the state in effect, the unit of redistribution: key groups, or bundles of them. Part of the identity of a
            stream's state, not of the version: no result depends on it.
        key_groups: number of key groups whose bundles ``groups`` counts (``bundles``); None if each part is one key group.
        only: the key groups of a sample; None for all. Not part of the version.
    """

    parent: Step = field(metadata=PARENT)
    uid: str
    keys: tuple[str, ...]
    schema: Schema
    ports: tuple[Port, ...] = field(default=(), metadata=OMITTED)
    sides: tuple[tuple[str, Schema], ...] = field(default=(), metadata=OMITTED)
    allowed_lateness: int = field(default=0, metadata=OMITTED)
    late: Late = field(default="drop", metadata=OMITTED)
    time: Clock = field(default="event", metadata=OMITTED)
    order: Order | None = field(default=None, metadata=OMITTED)
    on_error: OnError = field(default="stop", metadata=OMITTED)
    reduces: bool = field(default=False, metadata=SKIPPED)
    groups: int = field(default=KEY_GROUPS, metadata=SKIPPED)
    key_groups: int | None = field(default=None, metadata=SKIPPED)
    only: tuple[int, ...] | None = field(default=None, metadata=SKIPPED)

    def canonical(self) -> dict[str, Any]:
        """As ``Declared.canonical``. ``groups`` is the same number in every version, as it was before it could be chosen."""
        return super().canonical() | {"groups": FORMER_KEY_GROUPS}

    @property
    def computed(self) -> Sequence[int]:
        """The key groups, or bundles of them, to compute: the sample, or all."""
        return range(self.groups) if self.only is None else self.only

    @property
    def columnar(self) -> bool:
        """Whether the result depends on the set of rows alone, so that columnar kernels can compute it."""
        return False

    @property
    def over_all_time(self) -> str | None:
        """Why an interval of event time cannot be computed on its own, as a clause about the step; None if it can."""
        return None

    @property
    def spans_interval(self) -> bool:
        """Whether a bounded run over an interval computes one window: the rows of the interval, whose result is not a part of all results."""
        return False

    @property
    def reads_history(self) -> bool:
        """Whether a result may depend on every earlier row of its key, so that an interval is computed from the first row on."""
        return False

    @property
    def clocked(self) -> bool:
        """Whether the step uses processing time."""
        return False

    @property
    def revises(self) -> bool:
        """Whether the step may retract rows it has emitted."""
        return False

    @property
    def revises_with_input(self) -> bool:
        """Whether the step may retract rows it has emitted if rows of its input may be retracted."""
        return False

    @property
    def identity(self) -> tuple[str, ...]:
        """The columns that identify a result; empty if results have no key."""
        return ()

    def lacking(self, names: Collection[str]) -> tuple[str, ...]:
        """What of ``identity`` some columns lack to identify a result."""
        return tuple(name for name in self.identity if name not in names)

    @property
    def broadcast(self) -> int | None:
        """The tag of the broadcast input; None if there is none."""
        return next((tag for tag, port in enumerate(self.ports) if port.broadcast), None)

    def functions(self) -> Iterator[tuple[str, object]]:
        """(description, code of the user) for each function and class of the user in this step."""
        yield from ()


@frozen(kw_only=True)
class WindowAggregate(_Keyed):
    """Aggregates or a function per key and window: a stateful step.

    Args:
        trigger: None for the window's own.
        function: over the rows of a pane, or over its aggregates; with ``reduces``, over two rows.
    """

    called = "window_aggregate"
    window: Window
    allowed_lateness: int
    late: Late
    aggregates: tuple[tuple[str, AnyAggregate], ...]
    schema: Schema = field(metadata=SKIPPED)
    trigger: Trigger | None = field(default=None, metadata=OMITTED)
    evictor: Evictor | None = field(default=None, metadata=OMITTED)
    accumulation: Accumulation = field(default="accumulating", metadata=OMITTED)
    function: Function | None = field(default=None, metadata=SKIPPED)

    @property
    def columnar(self) -> bool:
        """Whether the result depends on the set of a window's rows alone, so that a columnar kernel can merge partial results."""
        return self.once_on_grid and not self.in_order

    @property
    def once_on_grid(self) -> bool:
        """Whether windows lie on a grid, and each has the result of aggregates at its end."""
        return self.fires_once_on_grid and not self.function

    @property
    def fires_once_on_grid(self) -> bool:
        """Whether windows lie on a grid, and each has its result at its end, whatever makes it."""
        special = self.trigger or self.evictor or self.accumulation != "accumulating" or self.order
        grid = isinstance(self.window, (Tumbling, Sliding, Cumulative, Calendar, Global))
        blames = self.on_error == "quarantine" and self.own_aggregates  # one value, not a column of them
        return grid and self.time == "event" and not special and not blames

    @property
    def rolling(self) -> bool:
        """Whether aggregates over all rows of a key so far are emitted for every row, so that retractions can change them."""
        special = self.evictor or self.function or self.accumulation != "accumulating" or self.order
        every = isinstance(self.window, Global) and self.trigger == AfterCount(1) and self.time == "event"
        return every and not special and not (self.on_error == "quarantine" and self.own_aggregates)

    @property
    def in_order(self) -> bool:
        """Whether an aggregate depends on the order of its rows."""
        return any(isinstance(a, Builtin) and a.function in ORDERED for _, a in self.aggregates)

    @property
    def own_aggregates(self) -> bool:
        """Whether one of the aggregates is a class of the user."""
        return not all(isinstance(a, Builtin) for _, a in self.aggregates)

    @property
    def identity(self) -> tuple[str, ...]:
        """The columns that identify a result; empty if results have no key."""
        bounds = BOUNDS if bounded_in_time(self.window) else ()
        return (*self.keys, *bounds) if self.function is None or self.reduces else ()

    def lacking(self, names: Collection[str]) -> tuple[str, ...]:
        """As of ``_Keyed``: windows of one key differ in each of their bounds, except those of an assigner of the user's; cumulative ones differ in their ends."""
        if isinstance(self.window, WindowAssigner):
            return super().lacking(names)
        if isinstance(self.window, Cumulative):  # windows that begin together have different ends
            return super().lacking({*names, BOUNDS[0]})
        return super().lacking({*names, *(BOUNDS[1:] if set(BOUNDS).isdisjoint(names) else BOUNDS)})

    @property
    def revises(self) -> bool:
        """Whether a pane may replace the window's previous pane, whose rows are then retracted."""
        if isinstance(self.window, Count) or self.accumulation == "discarding" or isinstance(self.trigger, Purging):
            return False
        if self.trigger is not None and not once(self.trigger):
            return True
        return self.allowed_lateness > 0 and not isinstance(self.window, Global)

    @property
    def clocked(self) -> bool:
        """Whether windows or triggers use processing time."""
        return self.time == "processing" or any(part.clocked for part in (parts(self.trigger) if self.trigger else []))

    @property
    def over_all_time(self) -> str | None:
        """As of ``_Keyed``: windows that belong to no interval of event time."""
        endless = isinstance(self.window, (Global, Count, WindowAssigner)) or self.time == "processing"
        return "whose results are known over all of time only" if endless else None

    @property
    def spans_interval(self) -> bool:
        """As of ``_Keyed``: ``Global`` that fires once, when the input ends."""
        at_the_end = self.trigger is None or once(self.trigger)
        return isinstance(self.window, Global) and self.time == "event" and at_the_end

    def describe_window(self) -> str:
        """For errors."""
        return ("processing-time " if self.time == "processing" else "") + describe_window(self.window)

    @property
    def keeps_for_ever(self) -> bool:
        """Whether the state holds rows for a function, and nothing ever evicts them."""
        holds_rows = self.function is not None and not self.aggregates and not self.reduces
        removes = self.evictor is not None or self.accumulation == "discarding"
        removes |= any(isinstance(part, Purging) for part in (parts(self.trigger) if self.trigger else []))
        return holds_rows and isinstance(self.window, Global) and self.trigger is not None and not removes

    def functions(self) -> Iterator[tuple[str, object]]:
        """(description, code of the user) for each function and class of the user in this step."""
        if self.function is not None:
            yield f"the window function of '{self.uid}'", self.function.call
        yield from ((f"aggregate '{name}'", type(a)) for name, a in self.aggregates if not isinstance(a, Builtin))
        yield from ((f"trigger '{type(p).__name__}'", type(p)) for p in own_parts(self.trigger))
        if isinstance(self.window, WindowAssigner):
            yield f"window assigner '{type(self.window).__name__}'", type(self.window)

    @property
    def own_columns(self) -> tuple[str, ...]:
        """The columns that are no keys and no bounds of the window."""
        head = {*self.keys, *(BOUNDS if bounded_in_time(self.window) else ())}
        return tuple(n for n in self.schema.names if n not in head)

    def canonical(self) -> dict[str, Any]:
        """As ``Declared.canonical``; the function with the schema of its rows."""
        function = self.function and {
            "code": str(self.function.code),
            "reduces": self.reduces,
            "schema": self.schema.canonical(),
        }
        return super().canonical() | ({"function": function} if function else {})


@frozen(kw_only=True)
class KeyedProcess(_Keyed):
    """A process function over the rows of each key: a stateful step.

    Args:
        function: of the user's, or of floodmark's own.
    """

    called = "process"
    function: Process
    sides: tuple[tuple[str, Schema], ...] = ()

    @property
    def over_all_time(self) -> str | None:
        """As of ``_Keyed``: rows whose event time a later row may change, and rows that a later day replaces in an earlier one."""
        if self.clocked:
            return "whose processing-time timers write at the event time of the newest row of their key, which later rows move"
        return "which takes back rows of earlier intervals" if self.revises else None

    @property
    def reads_history(self) -> bool:
        """Always True: results depend on all rows before them."""
        return True

    @property
    def clocked(self) -> bool:
        """Whether the function has timers of processing time."""
        return self.function.function.clocked

    @property
    def revises(self) -> bool:
        """Whether the function may retract rows it has emitted."""
        return self.function.function.revises

    @property
    def revises_with_input(self) -> bool:
        """As of ``_Keyed``."""
        return self.function.function.revises_with_input

    @property
    def identity(self) -> tuple[str, ...]:
        """The columns that identify a result; empty if results have no key."""
        function = self.function.function
        known = (self.revises or self.revises_with_input) and not function.multiset and function.identity is not None
        return (*self.keys, *(function.identity or ())) if known else ()

    def describe_window(self) -> str:
        """For errors."""
        return f"process function {type(self.function.function).__name__}"

    def functions(self) -> Iterator[tuple[str, object]]:
        """(description, code of the user): the function with its settings, and the functions of its states."""
        function = self.function.function
        yield f"the process function of '{self.uid}'", type(function)
        yield from ((f"self.{name} of '{self.uid}'", value) for name, value in vars(function).items())
        for name, state in {**function.states(), **function.broadcast_states()}.items():
            yield from ((f"{what} of state '{name}' of '{self.uid}'", code) for what, code in state.code().items())


@frozen(kw_only=True)
class IntervalJoin(_Keyed):
    """Pairs of rows of two streams with equal keys and left + lower <= right <= left + upper in event time: a stateful step.

    Args:
        keys: columns of the join, named as on the left.
        lower: least difference of event times, right - left, ms; inclusive.
        upper: greatest such difference, ms; inclusive.
        kind: of the join: which rows without a partner are emitted.
        ports: left, right.
        schema: of the pairs: keys, columns of the left, columns of the right.
    """

    called = "interval_join"
    lower: int = field(metadata=SKIPPED)
    upper: int = field(metadata=SKIPPED)
    kind: JoinKind
    order: Order | None = field(default="arrival", metadata=SKIPPED)

    @property
    def columnar(self) -> bool:
        """Always True."""
        return True

    @property
    def margin(self) -> int:
        """Greatest distance from an instant of the rows that decide the pairs at that instant, ms."""
        return abs(self.lower) + abs(self.upper)

    def describe_window(self) -> str:
        """For errors."""
        return f"interval join from {describe_span(self.lower)} to {describe_span(self.upper)}"

    def canonical(self) -> dict[str, Any]:
        """As ``Declared.canonical``; both bounds as one interval."""
        return super().canonical() | {"interval": [self.lower, self.upper]}


Stateful = WindowAggregate | KeyedProcess | IntervalJoin
STATEFUL = (WindowAggregate, KeyedProcess, IntervalJoin)
Step = Read | Filter | Expect | Project | FlatMap | Union | Stateful


def quarantines(step: Step) -> bool:
    """Whether a step quarantines the rows it fails for itself."""
    return not isinstance(step, (Read, Union)) and step.on_error == "quarantine"


def quarantining(step: Step) -> Step:
    """The step and the steps before it, with rows quarantined whose expressions fail."""
    match step:
        case Read():
            return step
        case Union():
            return evolve(step, parents=tuple(quarantining(parent) for parent in step.parents))
        case Filter() | Project() | WindowAggregate():
            return evolve(step, parent=quarantining(step.parent), on_error="quarantine")
        case Expect() | FlatMap() | KeyedProcess() | IntervalJoin():
            return evolve(step, parent=quarantining(step.parent))


def sampled(step: Step, groups: tuple[int, ...]) -> Step:
    """The step, each stateful step computing only these key groups."""
    return _with_stateful(step, only=groups)


def divided(step: Step, groups: int, key_groups: int | None = None) -> Step:
    """The step, each stateful step with that number of key groups, or of bundles of ``key_groups``."""
    return _with_stateful(step, groups=groups, key_groups=None if key_groups == groups else key_groups)


def recording(step: Step, folders: tuple[str, ...]) -> Step:
    """The step, each ``Call`` in it with its folder of answers below each of some folders; the first is written."""
    match step:
        case Read():
            return step
        case Union():
            return evolve(step, parents=tuple(recording(parent, folders) for parent in step.parents))
        case Call():
            below = tuple(f"{folder}/{step.answers}" for folder in folders)
            return evolve(step, parent=recording(step.parent, folders), folders=below)
        case _:
            return evolve(step, parent=recording(step.parent, folders))


def _with_stateful(step: Step, **settings: Any) -> Step:
    """The step, each stateful step with other settings."""
    match step:
        case Read():
            return step
        case Union():
            return evolve(step, parents=tuple(_with_stateful(parent, **settings) for parent in step.parents))
        case WindowAggregate() | KeyedProcess() | IntervalJoin():
            return evolve(step, parent=_with_stateful(step.parent, **settings), **settings)
        case _:
            return evolve(step, parent=_with_stateful(step.parent, **settings))


def expressions(step: Step) -> tuple[str, ...]:
    """The Spark SQL expressions of a step, over the columns of its parent."""
    match step:
        case Filter(condition=condition):
            return (condition,)
        case Expect(expectations=expectations):
            return tuple(unmet for _, _, unmet in expectations)
        case Project(columns=columns):
            return tuple(text for _, text in columns)
        case WindowAggregate(aggregates=aggregates):
            return (*(text for _, aggregate in aggregates for text in texts(aggregate)), *bounds(step))
        case _:
            return ()


def bounds(step: WindowAggregate) -> tuple[str, ...]:
    """The Spark SQL expressions that decide which rows are in a window: the gap of sessions, the distance of an evictor."""
    gap = [step.window.gap] if isinstance(step.window, Session) and isinstance(step.window.gap, str) else []
    return (*gap, *([step.evictor.distance] if isinstance(step.evictor, KeepNear) else []))


def key_of(result: Step) -> tuple[str, ...]:
    """The columns that identify a row of a result; none if the steps behind the stateful one do not hand on enough of its ``identity``."""
    step, handed = handed_on(result)
    return handed if step is not None and not step.lacking(handed) else ()


def is_multiset(result: Step) -> bool:
    """Whether rows of a result are those of a stateful step whose result is a multiset, one for one."""
    step = result
    while isinstance(step, (Filter, Expect, Project)):
        step = step.parent
    return isinstance(step, KeyedProcess) and step.function.function.multiset


def handed_on(result: Step) -> tuple[Stateful | None, tuple[str, ...]]:
    """The stateful step of a result, and those columns of its ``identity`` that are in the result as it made them.

    A Python function hands on those that its contract has, by their names: what it makes of them is not known. None and no columns where
    rows of other streams stand beside those of the step.
    """
    step, unchanged = result, list[set[str]]()
    while not isinstance(step, STATEFUL):
        match step:
            case Project():
                unchanged.append({name for name, text in step.columns if text == itself(name)})
            case FlatMap():
                unchanged.append(set(step.schema.names))
            case Filter() | Expect():
                pass
            case _:
                return None, ()
        step = step.parent
    return step, tuple(name for name in step.identity if all(name in names for names in unchanged))


def walk(step: Step, until: Step | None = None) -> Iterator[Step]:
    """The step and all steps it reads, parents first; a step that is read twice comes twice. ``until`` and the steps it reads are left out."""
    if step is until:
        return
    for parent in step.parents:
        yield from walk(parent, until)
    yield step
