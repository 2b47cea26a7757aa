"""The rows of a regular join in state: the sides of a key, each a multiset of rows with their event times.

A small side lies whole in the entry of its key. The rows of a large one lie in parts by their values, each an entry of its own: a call reads
the parts that it asks for and writes those that it changes, so that one row more of a key with many rows costs as much as of one with few.
"""

from __future__ import annotations

import itertools
import math
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from floodmark.semantics.encoding.columns import arrow_type
from floodmark.semantics.encoding.identity import identity
from floodmark.semantics.patterns.values import compiled
from floodmark.semantics.state.directory import NONE
from floodmark.semantics.state.entries import Entry, KeyGroup
from floodmark.spec.expressions.typed import Typed
from floodmark.spec.graph.steps import KeyedProcess
from floodmark.spec.keyed.regular import RegularJoin

SIDES = ("left", "right")

MOST, FEWEST = 64, 8
"""Rows per part, on average, above which there are twice as many parts, and below which there are half as many."""

Values = tuple[Any, ...]
Item = tuple[Values, int]
"""(values of a row that can be compared, event time)."""
Match = Callable[[Values, Values, Values], bool]
"""(key, values of a left row, values of a right row) -> whether the further condition is true."""


class Row:
    """A row of a side: its values, how often it is there, and with how many rows of the other side it makes a pair."""

    __slots__ = ("partners", "times", "values")

    def __init__(self, values: Values, times: int, partners: int) -> None:
        self.values, self.times, self.partners = values, times, partners


Part = dict[Item, Row]


class JoinForm:
    """What a stage says about rows in state: columns of a side, which rows make a pair.

    Args:
        step: of the stage.
    """

    def __init__(self, step: KeyedProcess) -> None:
        function = step.function.function
        assert isinstance(function, RegularJoin)
        self.kind, self.condition, self.ttl = function.kind, function.condition, function.ttl
        self.columns = tuple(tuple(name for name, _ in side) for side in function.places)
        ports = [dict(port.columns) for port in step.ports]
        self.united = tuple(tuple(ports[tag][name] for name in side) for tag, side in enumerate(self.columns))
        types = step.parent.schema.types
        kinds = [[arrow_type(types[name]) for name in side] for side in self.united]
        self.floats = any(pa.types.is_floating(kind) for side in kinds for kind in side)
        self.nested = any(pa.types.is_nested(kind) for side in kinds for kind in side)
        shown = [dict(side) for side in function.places]
        self.condition_test = (
            None
            if function.tree is None
            else _tested(function.tree, step.keys, [list(side.values()) for side in shown])
        )
        self.all_match = self.condition_test is None and self.ttl is None
        self.layout = 0

    def item(self, values: Values, time: int) -> Item:
        """What a row is known by in its side: rows that differ in the sign of a zero alone are two, so that each comes out with its own."""
        return (tuple(map(_frozen, values)) if self.nested or self.floats else values), time

    def loaded(self, rows: Sequence[Sequence[Any]], tag: int) -> Part:
        """Rows as they lie in state -> rows of a side; a column that an older version did not read is null."""
        part: Part = {}
        for time, times, partners, row in rows:
            values = tuple(row.get(name) for name in self.columns[tag])
            if self.floats:
                values = tuple(math.nan if type(v) is float and v != v else v for v in values)  # noqa: PLR0124 - NaN
            item = self.item(values, time)
            if item in part:  # they differed in a column that is read no more
                part[item].times += times
            else:
                part[item] = Row(values, times, partners)
        return part

    def dumped(self, part: Part, tag: int) -> list[list[Any]]:
        """Rows of a side as plain data."""
        names = self.columns[tag]
        return [
            [time, row.times, row.partners, dict(zip(names, row.values, strict=True))]
            for (_, time), row in part.items()
        ]

    def pairs(self, key: Values, tag: int, values: Values, time: int, others: Side) -> Iterator[tuple[int, Row]]:
        """(time, row) of each row of the other side with which a row makes a pair, which is about to be counted there."""
        test, ttl = self.condition_test, self.ttl
        for number, part in others.read():
            for (_, other_time), other in part.items():
                if ttl is not None and abs(other_time - time) > ttl:
                    continue
                if test is None or (test(key, values, other.values) if tag == 0 else test(key, other.values, values)):
                    others.changed.add(number)
                    yield other_time, other

    def count_partners(self, key: Values, sides: tuple[Side, Side]) -> None:
        """Count the partners of every row anew, as another condition counted them."""
        for tag, side in enumerate(sides):
            for number, part in side.read():
                side.changed.add(number)
                for (_, time), row in part.items():
                    row.partners = sum(
                        other.times for _, other in self.pairs(key, tag, row.values, time, sides[1 - tag])
                    )


class Side:
    """The rows of a side of a key.

    Args:
        form: of the rows.
        tag: of the side.
        entry: of the key, as it was stored.
        entries: of the key group.
    """

    __slots__ = ("changed", "count", "entries", "firsts", "form", "key", "parts", "sizes", "tag", "total")

    def __init__(self, form: JoinForm, tag: int, entry: Entry, entries: KeyGroup) -> None:
        self.form, self.tag, self.key, self.entries = form, tag, entry.key, entries
        self.changed: set[int] = set()
        self.sizes: dict[int, int] = {}
        """Rows of each part when it was read."""
        states: Mapping[str, Any] = entry.value[2] if entry.value else {}
        stored = states.get(f"{SIDES[tag]}_parts")
        self.parts: list[Part | None]
        """The rows by part; None for one that was not read."""
        self.firsts: list[int]
        """Earliest event time of each part, where rows have an end."""
        if stored is None:
            part = form.loaded(states.get(SIDES[tag], ()), tag)
            self.parts, self.firsts, self.count = [part], [NONE], len(part)
            self.sizes[0], self.total = len(part), sum(row.times for row in part.values())
            return
        columns, size, self.total, self.count, self.firsts = stored
        self.parts = [None] * size
        if tuple(columns) != form.columns[tag]:  # parts are by the values of the columns
            self._divide(size)

    def of(self, item: Item) -> Part:
        """The rows among which a row is, or will be; they are about to be changed."""
        number = self._number(item)
        self.changed.add(number)
        return self._part(number)

    def read(self) -> Iterator[tuple[int, Part]]:
        """(number, rows) of all parts."""
        unread = [number for number, part in enumerate(self.parts) if part is None]
        if unread:
            self.entries.expect([self._name(number) for number in unread])
        for number in range(len(self.parts)):
            yield number, self._part(number)

    def rows(self) -> Iterator[tuple[int, Row]]:
        """(event time, row) of all rows."""
        return ((time, row) for _, part in self.read() for (_, time), row in part.items())

    def first(self) -> int:
        """The earliest event time of a row; ``NONE`` without rows."""
        return min(self._first(number) for number in range(len(self.parts)))

    def free(self, until: int) -> None:
        """Remove the rows whose event time is at most so late."""
        for number in range(len(self.parts)):
            if self._first(number) <= until:
                part = self._part(number)
                self.changed.add(number)
                for item in [item for item in part if item[1] <= until]:
                    self.total -= part.pop(item).times

    def close(self, states: dict[str, Any]) -> bool:
        """Write the parts that have changed, and what the entry of the key says of the side; False without rows."""
        self.count += sum(len(self._part(number)) - self.sizes[number] for number in self.changed)
        wanted = len(self.parts)
        while self.count > wanted * MOST:
            wanted *= 2
        while wanted > 1 and self.count < wanted * FEWEST:
            wanted //= 2
        if wanted != len(self.parts):
            self._divide(wanted)
        name, columns = SIDES[self.tag], list(self.form.columns[self.tag])
        if wanted == 1:
            if self.count:
                states[name] = self.form.dumped(self._part(0), self.tag)
            return self.count > 0
        for number in self.changed:
            self._write(number)
        firsts = [] if self.form.ttl is None else [self._first(number) for number in range(wanted)]
        states[f"{name}_parts"] = columns, wanted, self.total, self.count, firsts
        return True

    def _write(self, number: int) -> None:
        part, entry = self._part(number), self.entries.opened(self._name(number))
        if part:
            entry.value = self.form.layout, self.form.dumped(part, self.tag)
            self.entries.put(entry)
        else:
            self.entries.drop(entry)

    def _divide(self, size: int) -> None:
        """Divide all rows into so many parts."""
        items = [(item, row) for _, part in self.read() for item, row in part.items()]
        for number in range(len(self.parts)) if len(self.parts) > 1 else ():
            self.entries.drop(self.entries.opened(self._name(number)))
        divided: list[Part] = [{} for _ in range(size)]
        self.parts, self.firsts = list(divided), [NONE] * size
        for item, row in items:
            part = divided[self._number(item)]
            if item in part:  # they differed in a column that is read no more
                part[item].times += row.times
            else:
                part[item] = row
        self.sizes = {number: len(part) for number, part in enumerate(divided)}
        self.count, self.changed = sum(self.sizes.values()), set(range(size))

    def _number(self, item: Item) -> int:
        """The part of a row: rows of equal values, whose event times may differ, are in one."""
        size = len(self.parts)
        return 0 if size == 1 else zlib.crc32(identity(item[0])) % size

    def _name(self, number: int) -> tuple[Any, ...]:
        """The key of the entry of a part: longer than that of a key, and in its key group."""
        return (*self.key, self.tag, number)

    def _part(self, number: int) -> Part:
        part = self.parts[number]
        if part is None:
            entry = self.entries.opened(self._name(number))
            part = self.parts[number] = self.form.loaded(entry.value[1] if entry.value else (), self.tag)
            self.sizes[number] = len(part)
        return part

    def _first(self, number: int) -> int:
        """The earliest event time of a part."""
        part = self.parts[number]
        if part is None or (number not in self.changed and len(self.parts) > 1):
            return self.firsts[number]
        return min((time for _, time in part), default=NONE)


def states_of(entry: Entry, entries: KeyGroup) -> dict[str, Any]:
    """The states of the entry of a key, with the rows of a side that lies in parts as those of a small one."""
    states = dict(entry.value[2])
    for tag, name in enumerate(SIDES):
        stored = states.pop(f"{name}_parts", None)
        if stored is not None:
            parts = (entries.get((*entry.key, tag, number)) for number in range(stored[1]))
            states[name] = [row for part in parts if part is not None for row in part.value[1]]
    return states


def _frozen(value: Any) -> Any:
    """A value that can be compared and hashed: a list, a map or a struct as tuples."""
    if isinstance(value, Mapping):
        return tuple((name, _frozen(part)) for name, part in value.items())
    if isinstance(value, (list, tuple)):
        return tuple(map(_frozen, value))
    if isinstance(value, float):
        return math.nan if math.isnan(value) else _NEGATIVE_ZERO if not value and math.copysign(1, value) < 0 else value
    return value


class _NegativeZero(float):
    """The zero that is less than none: equal to itself alone, with the ``identity`` of any zero."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _NegativeZero)

    def __hash__(self) -> int:
        return -1


_NEGATIVE_ZERO = _NegativeZero(-0.0)


def with_other_zeros(value: Any) -> list[Any]:
    """(a value that can be compared) -> the values that differ from it in the signs of its zeros, and itself."""
    if isinstance(value, tuple):
        return list(itertools.product(*map(with_other_zeros, value)))
    return [0.0, _NEGATIVE_ZERO] if isinstance(value, float) and not value else [value]


def _tested(tree: Typed, keys: Sequence[str], sides: Sequence[Sequence[str]]) -> Match:
    """(tree, key columns, columns of each side by their names in the result) -> the further condition."""
    value, names = compiled(tree), [*keys, *sides[0], *sides[1]]

    def test(key: Values, left: Values, right: Values) -> bool:
        return value(dict(zip(names, (*key, *left, *right), strict=True))) is True

    return test
