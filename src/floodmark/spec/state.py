"""State of process functions: declared as class attributes, so that its layout is known without running anything.

Source: Flink ``ValueState``, ``ListState``, ``MapState``, ``ReducingState``, ``AggregatingState``, ``BroadcastState``; names of the methods
are those of PySpark's ``transformWithState``. Time to live is in event time here, so that a replay forgets the same.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import timedelta
from functools import cached_property
from typing import Any, Protocol, Self

from attrs import Attribute, define, field

from floodmark.core.code import Code
from floodmark.core.errors import DefinitionError, StateError, UserCodeError
from floodmark.core.fingerprint import OMITTED, SKIPPED, Declared, renamed
from floodmark.core.time import span
from floodmark.core.types import parse
from floodmark.spec.aggregates import Aggregate
from floodmark.spec.checks import converting
from floodmark.spec.kinds import Kind, widened

Migrate = Callable[[Any], Any] | Mapping[int, Callable[[Any], Any]]
"""Version -> how a value of the one before becomes one of it; a function alone is the way to version 2."""

StateType = Any
"""A Python type of contracts (``int``, ``float``, ``datetime``, ``list[str]``), a Spark SQL type, or a contract for whole rows."""


class Cell(Protocol):
    """Where the value of one state of the key at hand lies."""

    raw: Any
    """What is kept; None for nothing."""
    now: int
    """Effective time of the row or timer, ms."""
    open: bool
    """Whether there is a key."""


def _kind(given: object, state: object = None, _: Any = None) -> Kind:
    return Kind.of(given, type(state).__name__)


def _ttl(given: str | timedelta | None, state: object = None, _: Any = None) -> int | None:
    where = type(state).__name__
    length = None if given is None else span(given, f"{where}, ttl")
    if length is not None and length <= 0:
        fix = 'ttl="1 hour" forgets what was not written for an hour of event time.'
        raise DefinitionError(where, "a positive ttl", repr(given), fix, code="DEFINITION-120")
    return length


@define(eq=False, repr=False, slots=False, kw_only=True, field_transformer=converting)
class State(Declared):
    """A state a process function keeps per key. Use one of its subclasses."""

    entry = "state"
    name: str = field(default="", init=False, metadata=SKIPPED)
    kind: Kind = field(init=False, metadata=renamed("type"))
    ttl: int | None = field(default=None, converter=_ttl, metadata=OMITTED)
    version: int = field(default=1, metadata=OMITTED)
    migrate: Migrate | None = field(default=None, metadata=SKIPPED)
    cell: Cell | None = field(default=None, init=False, metadata=SKIPPED)

    @version.validator
    def _is_version(self, _: Attribute[Any], version: object) -> None:
        if not isinstance(version, int) or isinstance(version, bool) or version < 1:
            fix = "Count up by one when what is kept changes its meaning, and say how: version=2, migrate=to_celsius."
            where = type(self).__name__
            raise DefinitionError(where, "a version, 1 or more", repr(version), fix, code="DEFINITION-120")

    @migrate.validator
    def _leads_to_version(self, _: Attribute[Any], migrate: object) -> None:
        ways = self.ways
        if not all(callable(way) for way in ways.values()) or (ways and set(ways) != set(range(2, self.version + 1))):
            fix = (
                "Say how values of each version become the next one's, as a key that is not touched keeps its old one: version=2, "
                "migrate=to_kelvin, or version=3, migrate={2: to_kelvin, 3: to_rankine}."
            )
            where = type(self).__name__
            raise DefinitionError(where, "a way to every version from 2 on", repr(migrate), fix, code="DEFINITION-120")

    @property
    def ways(self) -> dict[int, Callable[[Any], Any]]:
        """Version -> how a value of the one before becomes one of it."""
        if isinstance(self.migrate, Mapping):
            return dict(self.migrate)
        return {} if self.migrate is None else {2: self.migrate}

    @property
    def shape(self) -> str:
        """How its values are kept: value, list, map."""
        return str(self.called)

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __get__(self, instance: Any, owner: type | None = None) -> Self:
        if instance is None:
            return self
        found: Self = vars(instance).get(f"_state_{self.name}", self)
        return found

    def __set__(self, instance: Any, value: Any) -> None:
        fix = f"Write self.{self.name}.update(...), or what its kind of state has."
        raise UserCodeError(f"state '{self.name}'", "a change of what is kept", "an assignment", fix, code="USER-004")

    def bound(self, cell: Cell) -> Self:
        """A handle on the cell of the key at hand."""
        found = object.__new__(type(self))
        vars(found).update(vars(self))
        found.cell = cell
        return found

    def code(self) -> dict[str, Callable[..., Any]]:
        """Functions of the user's that it calls, by what they are for."""
        return {f"migrate to version {number}": way for number, way in sorted(self.ways.items())}

    def migrated(self, value: Any, version: int) -> Any:
        """A value of an older version as one of this."""
        for number in range(version + 1, self.version + 1):
            value = self.ways[number](value)
        return value if self.shape == "aggregating" else self._checked(value)

    # ---- for handles

    def _cell(self) -> Cell:
        if self.cell is None or not self.cell.open:
            fix = "Use it in on_element, on_timer and their like: only there is there a key."
            raise UserCodeError(f"state '{self.name}'", "a key", "none at this point", fix, code="USER-006")
        return self.cell

    def exists(self) -> bool:
        """Whether something is kept for the key."""
        return self._cell().raw is not None

    def clear(self) -> None:
        """Forget what is kept for the key."""
        self._cell().raw = None

    def _checked(self, value: Any) -> Any:
        return self.kind.checked(value, f"state '{self.name}'")

    # ---- time to live: raw values are (written, value) where there is one

    def _keep(self, value: Any) -> Any:
        return value if self.ttl is None else (self._cell().now, value)

    def _kept(self, raw: Any) -> Any:
        return raw if self.ttl is None else raw[1]

    def live(self, raw: Any, watermark: int) -> Any:
        """What of it has not outlived its time; None for nothing."""
        return raw if self.ttl is None or raw is None or raw[0] + self.ttl > watermark else None

    def expires(self, raw: Any) -> int | None:
        """When the first of it has outlived its time."""
        return None if self.ttl is None or raw is None else raw[0] + self.ttl

    def evolved(self, raw: Any, timed: bool, written: int, change: Callable[[Any], Any]) -> Any:  # noqa: FBT001 - of a layout
        """What an older version of the function has written, as it is kept now.

        Args:
            raw: what there is.
            timed: it says when its values were written.
            written: when, where it does not say.
            change: of every value.
        """
        when, value = raw if timed else (written, raw)
        return change(value) if self.ttl is None else (when, change(value))


@define(eq=False, repr=False, slots=False, field_transformer=converting)
class ValueState(State):
    """One value per key.

    Args:
        type: of the value.
        ttl: forget it when it was not written for so long, in event time; by default never.
        version: of its meaning; with ``migrate`` it may change in a running stream.
        migrate: a value of version 1 -> one of version 2; for later versions a mapping of each version to its way, from 2 on.

    Example:
        >>> class LastSeen(ProcessFunction):
        ...     last = ValueState(float, ttl="1 day")
        ...     def on_element(self, row, ctx):
        ...         if self.last.exists() and row["value"] > self.last.get() + 20: yield {"rise": row["value"] - self.last.get()}
        ...         self.last.update(row["value"])
    """

    called = "value"
    kind: Kind = field(alias="type", converter=_kind, metadata=renamed("type"))

    def get(self, default: Any = None) -> Any:
        """The value; ``default`` where nothing is kept."""
        raw = self._cell().raw
        return default if raw is None else _copied(self._kept(raw))

    def update(self, value: Any) -> None:
        """Keep another value; None is ``clear()``."""
        if value is None:
            self.clear()
        else:
            self._cell().raw = self._keep(self._checked(value))


@define(eq=False, repr=False, slots=False, field_transformer=converting)
class ListState(State):
    """A list of values per key, in the order they were added. See ``ValueState``; each value has its own time to live."""

    called = "list"
    kind: Kind = field(alias="type", converter=_kind, metadata=renamed("type"))

    def get(self) -> list[Any]:
        """All values; changes to the list are not kept."""
        return [_copied(self._kept(item)) for item in self._cell().raw or ()]

    def update(self, values: Iterable[Any]) -> None:
        """Keep these values instead."""
        self._cell().raw = [self._keep(self._checked(value)) for value in values] or None

    def append(self, value: Any) -> None:
        """One value more."""
        cell, item = self._cell(), self._keep(self._checked(value))
        if cell.raw is None:
            cell.raw = []
        cell.raw.append(item)

    def extend(self, values: Iterable[Any]) -> None:
        """Several values more."""
        for value in values:
            self.append(value)

    def __len__(self) -> int:
        return len(self._cell().raw or ())

    def __iter__(self) -> Iterator[Any]:
        return iter(self.get())

    def live(self, raw: Any, watermark: int) -> Any:
        """See ``State.live``."""
        if self.ttl is None or raw is None:
            return raw
        return [item for item in raw if item[0] + self.ttl > watermark] or None

    def expires(self, raw: Any) -> int | None:
        """See ``State.expires``."""
        return None if self.ttl is None or not raw else min(item[0] for item in raw) + self.ttl

    def evolved(self, raw: Any, timed: bool, written: int, change: Callable[[Any], Any]) -> Any:  # noqa: FBT001 - as above
        """See ``State.evolved``."""
        return [super(ListState, self).evolved(item, timed, written, change) for item in raw]


@define(eq=False, repr=False, slots=False, field_transformer=converting)
class MapState(State):
    """Values by a key of their own, per key. See ``ValueState``; each value has its own time to live.

    Args:
        key_type: of the keys.
        type: of the values.
    """

    called = "map"
    keys_kind: Kind = field(alias="key_type", converter=_kind, metadata=renamed("key"))
    kind: Kind = field(alias="type", converter=_kind, metadata=renamed("type"))

    @keys_kind.validator
    def _is_comparable(self, _: Attribute[Any], kind: Kind) -> None:
        if kind.columns is not None or not parse(kind.text, "MapState").is_groupable:
            fix = "Use a text, a number or a time as the key."
            raise DefinitionError("MapState", "keys that can be compared", kind.text, fix, code="DEFINITION-120")

    def get(self, key: Any, default: Any = None) -> Any:
        """The value of a key; ``default`` where there is none."""
        raw = self._cell().raw
        return default if raw is None or key not in raw else _copied(self._kept(raw[key]))

    def put(self, key: Any, value: Any) -> None:
        """Keep a value under a key."""
        cell = self._cell()
        key = self.keys_kind.checked(key, f"key of state '{self.name}'")
        if key != key:  # noqa: PLR0124 - NaN
            fix = "Use a key that can be found again."
            where = f"key of state '{self.name}'"
            raise UserCodeError(where, "a key that is equal to itself", repr(key), fix, code="USER-005")
        item = self._keep(self._checked(value))
        if cell.raw is None:
            cell.raw = {}
        cell.raw[key] = item

    def remove(self, key: Any) -> None:
        """Forget a key, if it is there."""
        cell = self._cell()
        if cell.raw is not None:
            cell.raw.pop(key, None)
            cell.raw = cell.raw or None

    def keys(self) -> list[Any]:
        """The keys, in the order in which they came."""
        return list(self._cell().raw or ())

    def values(self) -> list[Any]:
        """The values, in the order in which their keys came."""
        return [value for _, value in self.items()]

    def items(self) -> list[tuple[Any, Any]]:
        """Keys and values, in the order in which the keys came."""
        return [(key, _copied(self._kept(item))) for key, item in (self._cell().raw or {}).items()]

    def __contains__(self, key: object) -> bool:
        return key in (self._cell().raw or ())

    def __len__(self) -> int:
        return len(self._cell().raw or ())

    def live(self, raw: Any, watermark: int) -> Any:
        """See ``State.live``."""
        if self.ttl is None or raw is None:
            return raw
        return {key: item for key, item in raw.items() if item[0] + self.ttl > watermark} or None

    def expires(self, raw: Any) -> int | None:
        """See ``State.expires``."""
        return None if self.ttl is None or not raw else min(item[0] for item in raw.values()) + self.ttl

    def evolved(self, raw: Any, timed: bool, written: int, change: Callable[[Any], Any]) -> Any:  # noqa: FBT001 - as above
        """See ``State.evolved``."""
        return {key: super(MapState, self).evolved(item, timed, written, change) for key, item in raw.items()}


@define(eq=False, repr=False, slots=False, field_transformer=converting)
class ReducingState(State):
    """One value per key that every added value is folded into. See ``ValueState``.

    Args:
        type: of the values.
        function: (the value so far, the one added) -> the value from now on; the first is kept as it is.
    """

    called = "reducing"
    kind: Kind = field(alias="type", converter=_kind, metadata=renamed("type"))
    function: Callable[[Any, Any], Any] = field(metadata=SKIPPED)
    followed: Code = field(init=False, metadata=renamed("function"))

    @function.validator
    def _is_function(self, _: Attribute[Any], function: object) -> None:
        if not callable(function):
            fix = "For example ReducingState(int, max)."
            raise DefinitionError("ReducingState", "a function", repr(function), fix, code="DEFINITION-120")

    @followed.default
    def _followed(self) -> Code:
        return Code(self.function)  # once in a process: the layout is asked for in every micro-batch

    def code(self) -> dict[str, Callable[..., Any]]:
        """See ``State.code``."""
        return super().code() | {"function": self.function}

    def get(self, default: Any = None) -> Any:
        """The value so far; ``default`` before the first."""
        raw = self._cell().raw
        return default if raw is None else _copied(self._kept(raw))

    def add(self, value: Any) -> None:
        """Fold a value in."""
        cell, value = self._cell(), self._checked(value)
        found = value if cell.raw is None else self._checked(self.function(self._kept(cell.raw), value))
        cell.raw = self._keep(found)


def _aggregate(given: Aggregate, _: object = None, __: Any = None) -> Aggregate:
    if not isinstance(given, Aggregate):
        fix = "Give an instance of a subclass of Aggregate."
        raise DefinitionError("AggregatingState", "an Aggregate", repr(given), fix, code="DEFINITION-120")
    return given


@define(eq=False, repr=False, slots=False, field_transformer=converting)
class AggregatingState(State):
    """An accumulator per key. See ``ValueState``.

    Args:
        aggregate: one of your own; its expression is not looked at, as values come by ``add``.
    """

    called = "aggregating"
    aggregate: Aggregate = field(converter=_aggregate, metadata=SKIPPED)
    kind: Kind = field(init=False, metadata=renamed("type"))

    @kind.default
    def _result(self) -> Kind:
        return Kind(self.aggregate.type)

    @cached_property
    def followed(self) -> dict[str, object]:
        """The canonical form of the aggregate; once in a process, as the layout is asked for in every micro-batch."""
        return self.aggregate.canonical()

    def canonical(self) -> dict[str, Any]:
        """As of ``Declared``; with the aggregate."""
        return super().canonical() | {"aggregate": self.followed}

    def code(self) -> dict[str, Callable[..., Any]]:
        """See ``State.code``."""
        return super().code() | {"aggregate": type(self.aggregate)}

    def get(self) -> Any:
        """The result so far; None before the first value."""
        raw = self._cell().raw
        return None if raw is None else self.aggregate.result(_copied(self._kept(raw)))

    def add(self, value: Any) -> None:
        """One value more."""
        cell = self._cell()
        before = self.aggregate.create() if cell.raw is None else self._kept(cell.raw)
        cell.raw = self._keep(self.aggregate.add(before, value))


@define(eq=False, repr=False, slots=False, field_transformer=converting)
class BroadcastState(MapState):
    """Values by key that every key of the stream sees: rules. Written in ``on_broadcast`` only. See ``MapState``."""

    called = "broadcast"
    ttl: int | None = field(default=None, init=False, metadata=OMITTED)
    writable: bool = field(default=False, init=False, metadata=SKIPPED)

    def put(self, key: Any, value: Any) -> None:
        """Keep a value under a key; in ``on_broadcast`` only."""
        self._allowed()
        super().put(key, value)

    def remove(self, key: Any) -> None:
        """Forget a key; in ``on_broadcast`` only."""
        self._allowed()
        super().remove(key)

    def clear(self) -> None:
        """Forget all; in ``on_broadcast`` only."""
        self._allowed()
        super().clear()

    def _allowed(self) -> None:
        if not self.writable:
            fix = "Change it in on_broadcast: every key must see the same."
            got = "a change while a row of one key is processed"
            raise UserCodeError(f"state '{self.name}'", "a read", got, fix, code="USER-006")


def _copied(value: Any) -> Any:
    """Changes to what ``get`` gives are not kept unseen."""
    return copy.deepcopy(value) if isinstance(value, (dict, list)) else value


def evolution(name: str, before: Mapping[str, Any], state: State) -> Callable[[Any], Any]:
    """How a value in an older layout becomes one of this: by ``migrate`` to the next version, or a wider type.

    Args:
        name: of the state.
        before: its canonical form when the value was written.
        state: as it is declared now.

    Raises:
        StateError: STATE-005, there is no rule.
    """
    after = state.canonical()
    older, newer = before.get("version", 1), after.get("version", 1)
    folded = {"function", "aggregate"}
    if before["state"] == after["state"] and before.get("key") == after.get("key"):
        if newer > older and state.ways:
            return lambda value: state.migrated(value, older)
        same = all(before.get(part) == after.get(part) for part in folded)
        found = widened(before["type"], str(after["type"])) if same else None
        if newer == older and found is not None:
            return found
    expected = f"{after['state']} of {after['type']}, version {newer}"
    got = f"{before['state']} of {before['type']}, version {older}"
    fix = "Raise its version and say how: version=2, migrate=...; or compute all anew: floodmark apply --rebuild"
    raise StateError(f"state '{name}'", f"a rule that makes it {expected}", got, fix, code="STATE-005")
