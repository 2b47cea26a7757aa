"""State of process functions: declared as class attributes, so that its layout is known without running a function.

Source: Flink ``ValueState``, ``ListState``, ``MapState``, ``ReducingState``, ``AggregatingState``, ``BroadcastState``; methods are named as in
PySpark's ``transformWithState``. Time to live is in event time, so that a replay expires the same values: the distance of event times decides
what a row sees; progress frees what no row on time can see any more.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import timedelta
from functools import cached_property
from typing import Any, Protocol

from attrs import Attribute, define, field

from floodmark.core.code import Code
from floodmark.core.errors import DefinitionError, StateError, UserCodeError
from floodmark.core.fingerprint import OMITTED, SKIPPED, Declared, renamed
from floodmark.core.time import span
from floodmark.core.types import parse
from floodmark.spec.keyed.handle import Handle
from floodmark.spec.rows.checks import converting
from floodmark.spec.rows.kinds import Kind, widened
from floodmark.spec.windowing.aggregates import Aggregate

Migrate = Callable[[Any], Any] | Mapping[int, Callable[[Any], Any]]
"""Version -> function from a value of the version before to a value of this version; a function alone leads to version 2."""

StateType = Any
"""A Python type of contracts (``int``, ``float``, ``datetime``, ``list[str]``), a Spark SQL type, or a contract for whole rows."""


class Cell(Protocol):
    """The storage of one state for the current key."""

    raw: Any
    """The stored value; None if there is none."""
    now: int
    """Effective time of the row or timer, ms."""
    open: bool
    """Whether there is a current key."""


def _kind(declared: object, state: object = None, _: Any = None) -> Kind:
    return Kind.of(declared, type(state).__name__)


def _ttl(duration: str | timedelta | None, state: object = None, _: Any = None) -> int | None:
    where = type(state).__name__
    length = None if duration is None else span(duration, f"{where}, ttl")
    if length is not None and length <= 0:
        fix = 'ttl="1 hour" forgets what was not written for an hour of event time.'
        raise DefinitionError(where, "a positive ttl", repr(duration), fix, code="DEFINITION-120")
    return length


@define(eq=False, repr=False, slots=False, kw_only=True, field_transformer=converting)
class State(Declared, Handle):
    """A state a process function keeps per key. Use one of its subclasses."""

    noun = "state"
    use = ".update(...), or what its kind of state has"
    entry = "state"
    name: str = field(default="", init=False, metadata=SKIPPED)
    kind: Kind = field(init=False, metadata=renamed("type"))
    ttl: int | None = field(default=None, converter=_ttl, metadata=OMITTED)
    version: int = field(default=1, metadata=OMITTED)
    migrate: Migrate | None = field(default=None, metadata=SKIPPED)

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
        """Version -> function from a value of the version before to a value of this version."""
        if isinstance(self.migrate, Mapping):
            return dict(self.migrate)
        return {} if self.migrate is None else {2: self.migrate}

    @property
    def shape(self) -> str:
        """How its values are stored: value, list, map."""
        return str(self.called)

    def code(self) -> dict[str, Callable[..., Any]]:
        """Purpose -> function of the user that the state calls."""
        return {f"migrate to version {number}": way for number, way in sorted(self.ways.items())}

    def migrated(self, value: Any, version: int) -> Any:
        """(value of an older version, that version) -> the value in the declared version."""
        for number in range(version + 1, self.version + 1):
            value = self.ways[number](value)
        return value if self.shape == "aggregating" else self._checked(value)

    # ---- for handles

    def _cell(self) -> Cell:
        cell: Cell = self._opened()
        return cell

    def exists(self) -> bool:
        """Whether the key has a value."""
        return self._visible() is not None

    def clear(self) -> None:
        """Remove the key's value."""
        self._cell().raw = None

    def _checked(self, value: Any) -> Any:
        return self.kind.checked(value, f"state '{self.name}'")

    # ---- time to live: with a ttl a raw value is (time it was written, value)

    def _stamped(self, value: Any) -> Any:
        return value if self.ttl is None else (self._cell().now, value)

    def _unstamped(self, raw: Any) -> Any:
        return raw if self.ttl is None else raw[1]

    def _is_visible(self, item: Any) -> bool:
        """Whether a stored value has not expired before the time of the row or timer."""
        return self.ttl is None or bool(item[0] + self.ttl >= self._cell().now)

    def _visible(self) -> Any:
        """The raw value without the parts that expire before the time of the row or timer. The cell keeps those parts: earlier timers see them."""
        cell = self._cell()
        return cell.raw if self.ttl is None else self.live(cell.raw, cell.now - 1)

    def live(self, raw: Any, watermark: int) -> Any:
        """The part of a raw value that has not expired at ``watermark``; None if there is none."""
        return raw if self.ttl is None or raw is None or raw[0] + self.ttl > watermark else None

    def expires(self, raw: Any) -> int | None:
        """Event time at which the first part of a raw value expires; None if it never does."""
        return None if self.ttl is None or raw is None else raw[0] + self.ttl

    def evolved(self, raw: Any, timed: bool, written: int, change: Callable[[Any], Any]) -> Any:  # noqa: FBT001 - of a layout
        """A raw value in the layout of an older version of the function -> the raw value in the declared layout.

        Args:
            raw: in the older layout.
            timed: whether ``raw`` holds the time at which its values were written: the older layout had a ttl.
            written: time to assume if it does not.
            change: conversion of each value.
        """
        when, value = raw if timed else (written, raw)
        return change(value) if self.ttl is None else (when, change(value))


@define(eq=False, repr=False, slots=False, field_transformer=converting)
class ValueState(State):
    """One value per key.

    Args:
        type: of the value.
        ttl: a value expires when it was not written for so long, in event time; by default never.
        version: of its meaning; with ``migrate`` it may change in a running stream.
        migrate: function from a value of version 1 to one of version 2; for later versions a mapping, from 2 on, of each version to its function.

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
        """The value; ``default`` if there is none."""
        raw = self._visible()
        return default if raw is None else _copied(self._unstamped(raw))

    def update(self, value: Any) -> None:
        """Replace the value; None is ``clear()``."""
        if value is None:
            self.clear()
        else:
            self._cell().raw = self._stamped(self._checked(value))


@define(eq=False, repr=False, slots=False, field_transformer=converting)
class ListState(State):
    """A list of values per key, in the order they were added. See ``ValueState``; each value has its own time to live."""

    called = "list"
    kind: Kind = field(alias="type", converter=_kind, metadata=renamed("type"))

    def get(self) -> list[Any]:
        """All values; changes to the list are not kept."""
        return [_copied(self._unstamped(item)) for item in self._visible() or ()]

    def update(self, values: Iterable[Any]) -> None:
        """Replace all values by these."""
        self._cell().raw = [self._stamped(self._checked(value)) for value in values] or None

    def append(self, value: Any) -> None:
        """Append a value."""
        cell, item = self._cell(), self._stamped(self._checked(value))
        if cell.raw is None:
            cell.raw = []
        cell.raw.append(item)

    def extend(self, values: Iterable[Any]) -> None:
        """Append several values."""
        for value in values:
            self.append(value)

    def __len__(self) -> int:
        return len(self._visible() or ())

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
    """A map per key, with keys of its own. See ``ValueState``; each value of the map has its own time to live.

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
        """The value of a key; ``default`` if the map lacks the key."""
        raw = self._cell().raw
        if raw is None or key not in raw:
            return default
        item = raw[key]
        return _copied(self._unstamped(item)) if self._is_visible(item) else default

    def put(self, key: Any, value: Any) -> None:
        """Set the value of a key."""
        cell = self._cell()
        key = self.keys_kind.checked(key, f"key of state '{self.name}'")
        if key != key:  # noqa: PLR0124 - NaN
            fix = "Use a key that can be found again."
            where = f"key of state '{self.name}'"
            raise UserCodeError(where, "a key that is equal to itself", repr(key), fix, code="USER-005")
        item = self._stamped(self._checked(value))
        if cell.raw is None:
            cell.raw = {}
        elif self.ttl is not None and key not in self:
            cell.raw.pop(key, None)  # expired: the key is added anew
        cell.raw[key] = item

    def remove(self, key: Any) -> None:
        """Remove a key if the map has it."""
        cell = self._cell()
        if cell.raw is not None:
            cell.raw.pop(key, None)
            cell.raw = cell.raw or None

    def keys(self) -> list[Any]:
        """The keys, in the order in which they were added."""
        return list(self._visible() or ())

    def values(self) -> list[Any]:
        """The values, in the order in which their keys were added."""
        return [value for _, value in self.items()]

    def items(self) -> list[tuple[Any, Any]]:
        """Keys and values, in the order in which the keys were added."""
        return [(key, _copied(self._unstamped(item))) for key, item in (self._visible() or {}).items()]

    def __contains__(self, key: object) -> bool:
        raw = self._cell().raw
        return raw is not None and key in raw and self._is_visible(raw[key])

    def __len__(self) -> int:
        return len(self._visible() or ())

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
        function: (current value, added value) -> new value; the first added value is stored as it is.
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
        return Code(self.function)  # once in a process, as every micro-batch reads the layout

    def code(self) -> dict[str, Callable[..., Any]]:
        """See ``State.code``."""
        return super().code() | {"function": self.function}

    def get(self, default: Any = None) -> Any:
        """The value; ``default`` before the first ``add``."""
        raw = self._visible()
        return default if raw is None else _copied(self._unstamped(raw))

    def add(self, value: Any) -> None:
        """Fold a value into the stored one."""
        raw, value = self._visible(), self._checked(value)
        folded = value if raw is None else self._checked(self.function(self._unstamped(raw), value))
        self._cell().raw = self._stamped(folded)


def _aggregate(aggregate: Aggregate, _: object = None, __: Any = None) -> Aggregate:
    if not isinstance(aggregate, Aggregate):
        fix = "Give an instance of a subclass of Aggregate."
        raise DefinitionError("AggregatingState", "an Aggregate", repr(aggregate), fix, code="DEFINITION-120")
    return aggregate


@define(eq=False, repr=False, slots=False, field_transformer=converting)
class AggregatingState(State):
    """An accumulator per key. See ``ValueState``.

    Args:
        aggregate: an instance of a subclass of ``Aggregate``. Its expression is ignored, as values are given to ``add``.
    """

    called = "aggregating"
    aggregate: Aggregate = field(converter=_aggregate, metadata=SKIPPED)
    kind: Kind = field(init=False, metadata=renamed("type"))

    @kind.default
    def _result(self) -> Kind:
        return Kind(self.aggregate.type)

    @cached_property
    def followed(self) -> dict[str, object]:
        """The canonical form of the aggregate; computed once in a process, as every micro-batch reads the layout."""
        return self.aggregate.canonical()

    def canonical(self) -> dict[str, Any]:
        """As ``Declared.canonical``, with the aggregate."""
        return super().canonical() | {"aggregate": self.followed}

    def code(self) -> dict[str, Callable[..., Any]]:
        """See ``State.code``."""
        return super().code() | {"aggregate": type(self.aggregate)}

    def get(self) -> Any:
        """The result of all values added; None before the first."""
        raw = self._visible()
        return None if raw is None else self.aggregate.result(_copied(self._unstamped(raw)))

    def add(self, value: Any) -> None:
        """Add a value to the accumulator."""
        raw = self._visible()
        before = self.aggregate.create() if raw is None else self._unstamped(raw)
        self._cell().raw = self._stamped(self.aggregate.add(before, value))


@define(eq=False, repr=False, slots=False, field_transformer=converting)
class BroadcastState(MapState):
    """A map that all keys of the stream share, such as rules. Written in ``on_broadcast`` only. See ``MapState``."""

    called = "broadcast"
    ttl: int | None = field(default=None, init=False, metadata=OMITTED)
    writable: bool = field(default=False, init=False, metadata=SKIPPED)

    def put(self, key: Any, value: Any) -> None:
        """Set the value of a key; in ``on_broadcast`` only."""
        self._allowed()
        super().put(key, value)

    def remove(self, key: Any) -> None:
        """Remove a key; in ``on_broadcast`` only."""
        self._allowed()
        super().remove(key)

    def clear(self) -> None:
        """Remove all keys; in ``on_broadcast`` only."""
        self._allowed()
        super().clear()

    def _allowed(self) -> None:
        if not self.writable:
            fix = "Change it in on_broadcast: every key must see the same."
            got = "a change while a row of one key is processed"
            raise UserCodeError(f"state '{self.name}'", "a read", got, fix, code="USER-006")


def _copied(value: Any) -> Any:
    """A copy of a list or dictionary, so that a caller who changes the result of ``get`` does not change the state."""
    return copy.deepcopy(value) if isinstance(value, (dict, list)) else value


def evolution(name: str, before: Mapping[str, Any], state: State) -> Callable[[Any], Any]:
    """Conversion of values from an older layout to the declared one: by ``migrate`` if the version is newer, or to a wider type.

    Args:
        name: of the state.
        before: canonical form of the state when the value was written.
        state: as declared now.

    Raises:
        StateError: STATE-005, neither applies.
    """
    after = state.canonical()
    older, newer = before.get("version", 1), after.get("version", 1)
    folded = {"function", "aggregate"}
    if before["state"] == after["state"] and before.get("key") == after.get("key"):
        if newer > older and state.ways:
            return lambda value: state.migrated(value, older)
        same = all(before.get(part) == after.get(part) for part in folded)
        conversion = widened(before["type"], str(after["type"])) if same else None
        if newer == older and conversion is not None:
            return conversion
    expected = f"{after['state']} of {after['type']}, version {newer}"
    got = f"{before['state']} of {before['type']}, version {older}"
    fix = "Raise its version and say how: version=2, migrate=...; or compute all anew: floodmark apply --rebuild"
    raise StateError(f"state '{name}'", f"a rule that makes it {expected}", got, fix, code="STATE-005")
