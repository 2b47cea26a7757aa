"""Process functions: the user's code over rows and timers of one key, with state.

Source: Flink ``KeyedProcessFunction``, ``CoProcessFunction``, ``KeyedBroadcastProcessFunction``.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import FunctionType, MethodType
from typing import Any, Protocol, Self

from floodmark.core.code import cells, check_source, class_of, code_of, settings_of
from floodmark.core.errors import DefinitionError, UserCodeError
from floodmark.core.fingerprint import canonical
from floodmark.spec.keyed.metric import Metric
from floodmark.spec.keyed.state import BroadcastState, State
from floodmark.spec.keyed.timer import Timer

Row = Mapping[str, Any]
Rows = Iterable[Row] | None
"""The rows a callback yields; None for none."""


class Context(Protocol):
    """The argument ``ctx`` of callbacks: time, key and side outputs.

    Args:
        timestamp: event time of the row, or the time of the timer, ms UTC.
        watermark: in force for the row, ms: the row is late if its timestamp is not greater. For a timer, the timer's time.
    """

    timestamp: int
    watermark: int

    @property
    def key(self) -> Row:
        """Columns of the key and their values; empty in ``on_broadcast``."""

    @property
    def clock(self) -> int:
        """Processing time, ms UTC; only functions with a ``Timer("processing")`` have one, as it is recorded for replays."""

    def output(self, name: str, row: Row) -> None:
        """Send a row to a side output, named as in ``process(sides=...)``."""


class StatefulFunction:
    """Base of all process functions. State, timers and metrics are class attributes; settings are attributes set in ``__init__``.

    Attributes may be set in ``__init__`` and ``open`` alone: an attribute that a callback set would be lost with the process.
    """

    callbacks: tuple[str, ...] = ()
    revises: bool = False
    """Whether the function retracts rows it has emitted; some of floodmark's own do."""
    revises_with_input: bool = False
    """Whether the function retracts rows it has emitted if rows of its input are retracted, and otherwise none."""
    identity: tuple[str, ...] | None = ()
    """The columns that, with the key, identify a row that may be retracted; None if nothing does."""
    multiset: bool = False
    """Whether a row of its result may be there more than once, so that nothing but all of its columns identifies it."""
    unordered: bool = False
    """Whether rows minus retractions are the same in whichever order rows of the input come."""
    sequence: str | None = None
    """The column that orders rows of one event time, null first, if rows are processed in order of event time."""

    def open(self) -> None:
        """Called before the first row, in every worker and micro-batch: to open what cannot be pickled. There is no key yet."""

    def on_timer(self, timer: str, ctx: Context) -> Rows:  # noqa: ARG002 - for subclasses
        """A timer fires.

        Args:
            timer: the timer's name.
            ctx: ``ctx.timestamp`` is the timer's time.
        """
        return None

    def close(self) -> None:
        """Called after the last row, in every worker and micro-batch. There is no key any more."""

    def __setattr__(self, name: str, value: Any) -> None:
        declared = getattr(type(self), name, None)
        if vars(self).get("_opened") and not isinstance(declared, (State, Timer, Metric)):
            fix = f"Declare it: {name} = ValueState(float), as an attribute of the class {type(self).__name__}."
            where = f"process function '{type(self).__name__}'"
            raise UserCodeError(where, "state that is declared", f"self.{name} = ...", fix, code="USER-004")
        super().__setattr__(name, value)

    @classmethod
    def states(cls) -> dict[str, State]:
        """Name -> state per key."""
        return {name: found for name, found in cls._declared(State) if not isinstance(found, BroadcastState)}

    @classmethod
    def broadcast_states(cls) -> dict[str, BroadcastState]:
        """Name -> broadcast state, which all keys share."""
        return dict(cls._declared(BroadcastState))

    @classmethod
    def timers(cls) -> dict[str, Timer]:
        """Name -> timer."""
        return dict(cls._declared(Timer))

    @classmethod
    def metrics(cls) -> dict[str, Metric]:
        """Name -> metric."""
        return dict(cls._declared(Metric))

    @classmethod
    def _declared(cls, kind: type[Any]) -> Iterator[tuple[str, Any]]:
        attributes: dict[str, Any] = {}
        for base in reversed(cls.__mro__):
            attributes |= {name: value for name, value in vars(base).items() if not name.startswith("__")}
        yield from ((name, value) for name, value in attributes.items() if isinstance(value, kind))

    def opened(self, cells: Mapping[str, Any]) -> tuple[Self, dict[str, Any]]:
        """An opened copy with handles on ``cells``; from then on, setting one of its attributes is an error.

        Args:
            cells: name of a state, timer or metric -> its handle.

        Returns:
            The copy, and its settings: the attributes that ``open`` has not replaced.
        """
        instance = copy.deepcopy(self)
        before = dict(vars(instance))
        instance.open()
        settings = {name: value for name, value in before.items() if vars(instance).get(name) is value}
        vars(instance).update({f"_state_{name}": handle for name, handle in cells.items()})
        vars(instance)["_opened"] = True
        return instance, settings

    def layout(self) -> dict[str, object]:
        """State -> its canonical form: part of the version, and stored with the state."""
        forms: dict[str, object] = {name: state.canonical() for name, state in self.states().items()}
        return forms | {name: state.canonical() for name, state in self.broadcast_states().items()}

    def canonical(self) -> dict[str, object]:
        """The class's code, the settings, states and timers, as JSON values. Versions are digests of this form."""
        timers = {name: timer.canonical() for name, timer in self.timers().items()}
        text = class_of(self, "process function")
        declared = {**self.states(), **self.broadcast_states()}
        ways = {name: {what: code_of(way) for what, way in state.code().items()} for name, state in declared.items()}
        migrations = {name: codes for name, codes in ways.items() if declared[name].ways}
        text |= {"migrate": migrations} if migrations else {}
        return text | {"states": self.layout(), "timers": timers}

    @property
    def clocked(self) -> bool:
        """Whether the function has a timer of processing time."""
        return any(timer.time == "processing" for timer in self.timers().values())

    @property
    def takes_back(self) -> bool:
        """Whether the function handles retractions of its input."""
        return False


class ProcessFunction(StatefulFunction):
    """Code over the rows of one key, one after the other, with state and timers.

    Example:
        >>> class Rises(ProcessFunction):
        ...     last = ValueState(float)
        ...     def on_element(self, row, ctx):
        ...         if row["value"] > self.last.get(row["value"]): yield {"rise": row["value"] - self.last.get()}
        ...         self.last.update(row["value"])
    """

    callbacks = ("on_element",)

    def on_element(self, row: Row, ctx: Context) -> Rows:
        """Process a row; ``row`` is read only."""
        raise NotImplementedError

    def on_retract(self, row: Row, ctx: Context) -> Rows:
        """An earlier row is retracted; an update is a retraction followed at once by the new row.

        Needed to read an input whose rows may be retracted (a table's changes, results with ``allowed_lateness``). Rows that the function has
        emitted stay: yield rows that correct them. A retraction that fails is quarantined like any row.
        """
        raise NotImplementedError

    @property
    def takes_back(self) -> bool:
        """Whether the function handles retractions of its input: it defines ``on_retract``."""
        return type(self).on_retract is not ProcessFunction.on_retract


class CoProcessFunction(StatefulFunction):
    """Code over the rows of two streams of one key, which share its state. Write ``on_left`` and ``on_right``."""

    callbacks = ("on_left", "on_right")

    def on_left(self, row: Row, ctx: Context) -> Rows:
        """Process a row of the stream ``connect`` was called on."""
        raise NotImplementedError

    def on_right(self, row: Row, ctx: Context) -> Rows:
        """Process a row of the stream ``connect`` was called with."""
        raise NotImplementedError


class BroadcastProcessFunction(StatefulFunction):
    """Code over the rows of one key and the rows of a broadcast stream, which every key receives.

    Both streams are processed in order of event time, so a replay applies the same rule to the same row.
    """

    callbacks = ("on_element", "on_broadcast")

    def on_element(self, row: Row, ctx: Context) -> Rows:
        """Process a row of the keyed stream; ``BroadcastState`` is read only here."""
        raise NotImplementedError

    def on_broadcast(self, row: Row, ctx: Context) -> None:
        """Process a row of the broadcast stream. There is no key: ``BroadcastState`` alone may be used."""
        raise NotImplementedError


@dataclass(frozen=True, slots=True, eq=False)
class Process:
    """A process function as part of a step: compared by its canonical form.

    Args:
        function: of the user's, or one of floodmark's own.
    """

    function: StatefulFunction

    def canonical(self) -> dict[str, object]:
        """The canonical form of the function."""
        return self.function.canonical()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Process) and (
            self.function is other.function or canonical(self.canonical()) == canonical(other.canonical())
        )

    def __hash__(self) -> int:
        return hash(type(self.function).__qualname__)

    @staticmethod
    def of(function: object, kind: type[StatefulFunction], where: str) -> Process:
        """Check a function.

        Raises:
            DefinitionError: DEFINITION-121 not of the kind or incomplete, 122 it holds an object of Spark, 123 settings that cannot be
                compared.
        """
        known = _complete(function, kind, where)
        if held := next(_of_spark(known), None):
            fix = "A function runs in many processes, without Spark: give it plain values, or another input by connect(...)."
            raise DefinitionError(where, "plain settings", held, fix, code="DEFINITION-122")
        settings_of(vars(known), where)
        check_source(type(known))
        return Process(known)


def unfit_function(where: str, expected: str, got: str, fix: str) -> DefinitionError:
    """DEFINITION-121: not a process function of the expected kind, or an incomplete one."""
    return DefinitionError(where, expected, got, fix, code="DEFINITION-121")


def _complete(function: object, kind: type[StatefulFunction], where: str) -> StatefulFunction:
    """The function, once its kind, its callbacks and the names of its states and timers are checked."""
    expected = f"a {kind.__name__}"
    if isinstance(function, type) and issubclass(function, StatefulFunction):
        fix = f"Give an instance: {function.__name__}()."
        raise unfit_function(where, expected, f"the class {function.__name__}", fix)
    if not isinstance(function, kind):
        fix = f"Subclass {kind.__name__} and write {', '.join(kind.callbacks)}."
        raise unfit_function(where, expected, repr(function), fix)
    own = type(function)
    kinds = (State, Timer, Metric)
    declared = {name: one for each in kinds for name, one in own._declared(each)}  # noqa: SLF001 - a name may hide a public method
    missing = [name for name in kind.callbacks if getattr(own, name) is getattr(kind, name)]
    timed = any(isinstance(one, Timer) for one in declared.values())
    missing += ["on_timer"] if timed and own.on_timer is StatefulFunction.on_timer else []
    if missing:
        fix = f"Write {', '.join(missing)} on {own.__name__}."
        raise unfit_function(where, f"a complete {kind.__name__}", f"none of {', '.join(missing)}", fix)
    wrong = [n for n in declared if n.startswith("_") or hasattr(StatefulFunction, n) or n in kind.callbacks]
    wrong += [name for name in declared if len([o for o in declared.values() if o is declared[name]]) > 1]
    if wrong:
        fix = "Give each state, timer and metric an attribute of its own, with a name that is none of the function's methods."
        raise unfit_function(where, "names of states, timers and metrics", ", ".join(wrong), fix)
    if held := [name for name, value in vars(function).items() if isinstance(value, (State, Timer, Metric))]:
        fix = f"Declare it as an attribute of the class {own.__name__}, not in __init__."
        raise unfit_function(where, "states as attributes of the class", f"self.{held[0]}", fix)
    rules = getattr(own, "on_broadcast", None)
    if rules is not None and inspect.isgeneratorfunction(rules):
        fix = "It has no key to yield a row for: keep the rule in a BroadcastState, and yield from on_element."
        raise unfit_function(where, "an on_broadcast that yields nothing", "a generator", fix)
    return function


def _of_spark(function: StatefulFunction) -> Iterator[str]:
    """Objects of Spark that an instance or its methods refer to, described for errors."""
    held: list[tuple[str, Any]] = [(f"self.{name}", value) for name, value in vars(function).items()]
    for name, member in inspect.getmembers(type(function), callable):
        plain: Callable[..., Any] = member.__func__ if isinstance(member, MethodType) else member
        if isinstance(plain, FunctionType) and not plain.__module__.startswith("floodmark."):
            used = {**plain.__globals__, **cells(plain)}
            held += [
                (f"{n} in {name}", used[n])
                for n in (*plain.__code__.co_names, *plain.__code__.co_freevars)
                if n in used
            ]
    for name, value in held:
        kind = type(value)
        if kind.__module__.startswith("pyspark.") and kind not in {type, FunctionType}:
            yield f"a {kind.__name__} ({name})"
