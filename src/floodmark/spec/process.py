"""Process functions: code of the user's over rows and timers of one key, with state.

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
from floodmark.spec.state import BroadcastState, State
from floodmark.spec.timer import Timer

Row = Mapping[str, Any]
Rows = Iterable[Row] | None
"""What a callback yields; None for nothing."""


class Context(Protocol):
    """What a callback knows beside its row.

    Args:
        timestamp: event time of the row, or the time of the timer, ms UTC.
        watermark: in force for the row, ms: a row is late when its timestamp is not greater. Of a timer its time.
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
        """Send a row to a side output, by the name it has in ``process(sides=...)``."""


class StatefulFunction:
    """What all process functions share. State and timers are class attributes; settings are attributes set in ``__init__``.

    Attributes may be set in ``__init__`` and ``open`` alone: what a callback would keep in one is lost with the process.
    """

    callbacks: tuple[str, ...] = ()
    revises: bool = False
    """Whether it takes rows back that it has sent out: some of floodmark's own do."""
    identity: tuple[str, ...] = ()
    """The columns that, with the key, tell such rows apart."""
    sequence: str | None = None
    """The column by which rows of one event time come, null first, where rows come by event time."""

    def open(self) -> None:
        """Before the first row, in every worker and micro-batch: for what cannot travel there. There is no key yet."""

    def on_timer(self, timer: str, ctx: Context) -> Rows:  # noqa: ARG002 - for subclasses
        """A timer fires.

        Args:
            timer: its name.
            ctx: its time is ``ctx.timestamp``.
        """
        return None

    def close(self) -> None:
        """After the last row, in every worker and micro-batch. There is no key any more."""

    def __setattr__(self, name: str, value: Any) -> None:
        declared = getattr(type(self), name, None)
        if vars(self).get("_opened") and not isinstance(declared, (State, Timer)):
            fix = f"Declare it: {name} = ValueState(float), as an attribute of the class {type(self).__name__}."
            where = f"process function '{type(self).__name__}'"
            raise UserCodeError(where, "state that is declared", f"self.{name} = ...", fix, code="USER-004")
        super().__setattr__(name, value)

    @classmethod
    def states(cls) -> dict[str, State]:
        """The states per key, by name."""
        return {name: found for name, found in cls._declared(State) if not isinstance(found, BroadcastState)}

    @classmethod
    def broadcast_states(cls) -> dict[str, BroadcastState]:
        """The states all keys share, by name."""
        return dict(cls._declared(BroadcastState))

    @classmethod
    def timers(cls) -> dict[str, Timer]:
        """The timers, by name."""
        return dict(cls._declared(Timer))

    @classmethod
    def _declared(cls, kind: type[Any]) -> Iterator[tuple[str, Any]]:
        found: dict[str, Any] = {}
        for base in reversed(cls.__mro__):
            found |= {name: value for name, value in vars(base).items() if not name.startswith("__")}
        yield from ((name, value) for name, value in found.items() if isinstance(value, kind))

    def opened(self, cells: Mapping[str, Any]) -> tuple[Self, dict[str, Any]]:
        """A copy with handles on ``cells``, opened; changes to its attributes are errors from now on.

        Args:
            cells: name of a state or timer -> its handle.

        Returns:
            The copy, and its settings: the attributes that ``open`` has not set anew.
        """
        found = copy.deepcopy(self)
        before = dict(vars(found))
        found.open()
        settings = {name: value for name, value in before.items() if vars(found).get(name) is value}
        vars(found).update({f"_state_{name}": handle for name, handle in cells.items()})
        vars(found)["_opened"] = True
        return found, settings

    def layout(self) -> dict[str, object]:
        """What is kept, per state: part of the version, and written with the state."""
        found: dict[str, object] = {name: state.canonical() for name, state in self.states().items()}
        return found | {name: state.canonical() for name, state in self.broadcast_states().items()}

    def canonical(self) -> dict[str, object]:
        """Its class by its code, its settings, states and timers, as JSON values. Versions are digests of it."""
        timers = {name: timer.canonical() for name, timer in self.timers().items()}
        text = class_of(self, "process function")
        declared = {**self.states(), **self.broadcast_states()}
        ways = {name: {what: code_of(way) for what, way in state.code().items()} for name, state in declared.items()}
        migrations = {name: codes for name, codes in ways.items() if declared[name].ways}
        text |= {"migrate": migrations} if migrations else {}
        return text | {"states": self.layout(), "timers": timers}

    @property
    def clocked(self) -> bool:
        """Whether it has a timer of processing time."""
        return any(timer.time == "processing" for timer in self.timers().values())

    @property
    def takes_back(self) -> bool:
        """Whether it says what becomes of rows of its input that are taken back."""
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
        """A row: its columns, read only."""
        raise NotImplementedError

    def on_retract(self, row: Row, ctx: Context) -> Rows:
        """A row that came before is taken back; an update takes one back and brings another, next to each other.

        Write it to read an input whose rows may be taken back (a table's changes, results with ``allowed_lateness``). What this function
        has sent out stays: yield what makes it right. A row it fails for is set aside like any other.
        """
        raise NotImplementedError

    @property
    def takes_back(self) -> bool:
        """Whether it says what becomes of rows of its input that are taken back."""
        return type(self).on_retract is not ProcessFunction.on_retract


class CoProcessFunction(StatefulFunction):
    """Code over the rows of two streams of one key, which share its state. Write ``on_left`` and ``on_right``."""

    callbacks = ("on_left", "on_right")

    def on_left(self, row: Row, ctx: Context) -> Rows:
        """A row of the stream ``connect`` was called on."""
        raise NotImplementedError

    def on_right(self, row: Row, ctx: Context) -> Rows:
        """A row of the stream it was called with."""
        raise NotImplementedError


class BroadcastProcessFunction(StatefulFunction):
    """Code over the rows of one key and the rows of a broadcast stream, which every key sees.

    Rules come in order of event time among the rows, so a replay applies the same rule to the same row.
    """

    callbacks = ("on_element", "on_broadcast")

    def on_element(self, row: Row, ctx: Context) -> Rows:
        """A row of the keyed stream; ``BroadcastState`` is read only here."""
        raise NotImplementedError

    def on_broadcast(self, row: Row, ctx: Context) -> None:
        """A row of the broadcast stream. There is no key: ``BroadcastState`` alone may be used."""
        raise NotImplementedError


@dataclass(frozen=True, slots=True, eq=False)
class Process:
    """A process function as a step keeps it: compared by its canonical form.

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
            DefinitionError: DEFINITION-121 not of the kind or incomplete, 122 it holds something of Spark, 123 settings that cannot be
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
    """DEFINITION-121: not a process function of the kind that is asked for, or an incomplete one."""
    return DefinitionError(where, expected, got, fix, code="DEFINITION-121")


def _complete(function: object, kind: type[StatefulFunction], where: str) -> StatefulFunction:
    """The function, of the kind and with all it needs."""
    expected = f"a {kind.__name__}"
    if isinstance(function, type) and issubclass(function, StatefulFunction):
        fix = f"Give an instance: {function.__name__}()."
        raise unfit_function(where, expected, f"the class {function.__name__}", fix)
    if not isinstance(function, kind):
        fix = f"Subclass {kind.__name__} and write {', '.join(kind.callbacks)}."
        raise unfit_function(where, expected, repr(function), fix)
    own = type(function)
    missing = [name for name in kind.callbacks if getattr(own, name) is getattr(kind, name)]
    missing += ["on_timer"] if function.timers() and own.on_timer is StatefulFunction.on_timer else []
    if missing:
        fix = f"Write {', '.join(missing)} on {own.__name__}."
        raise unfit_function(where, f"a complete {kind.__name__}", f"none of {', '.join(missing)}", fix)
    declared = {**function.states(), **function.broadcast_states(), **function.timers()}
    wrong = [n for n in declared if n.startswith("_") or hasattr(StatefulFunction, n) or n in kind.callbacks]
    wrong += [name for name in declared if len([o for o in declared.values() if o is declared[name]]) > 1]
    if wrong:
        fix = "Give each state and timer an attribute of its own, with a name that is none of the function's methods."
        raise unfit_function(where, "names of states and timers", ", ".join(wrong), fix)
    if held := [name for name, value in vars(function).items() if isinstance(value, (State, Timer))]:
        fix = f"Declare it as an attribute of the class {own.__name__}, not in __init__."
        raise unfit_function(where, "states as attributes of the class", f"self.{held[0]}", fix)
    rules = getattr(own, "on_broadcast", None)
    if rules is not None and inspect.isgeneratorfunction(rules):
        fix = "It has no key to yield a row for: keep the rule in a BroadcastState, and yield from on_element."
        raise unfit_function(where, "an on_broadcast that yields nothing", "a generator", fix)
    return function


def _of_spark(function: StatefulFunction) -> Iterator[str]:
    """What of Spark an instance or its methods hold."""
    found: list[tuple[str, Any]] = [(f"self.{name}", value) for name, value in vars(function).items()]
    for name, member in inspect.getmembers(type(function), callable):
        plain: Callable[..., Any] = member.__func__ if isinstance(member, MethodType) else member
        if isinstance(plain, FunctionType) and not plain.__module__.startswith("floodmark."):
            used = {**plain.__globals__, **cells(plain)}
            found += [
                (f"{n} in {name}", used[n])
                for n in (*plain.__code__.co_names, *plain.__code__.co_freevars)
                if n in used
            ]
    for name, value in found:
        kind = type(value)
        if kind.__module__.startswith("pyspark.") and kind not in {type, FunctionType}:
            yield f"a {kind.__name__} ({name})"
