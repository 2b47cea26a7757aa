"""The kernel of regular joins: one key group, key by key.

Each side of a key is a multiset of rows with their event times. A change of a side by one row, up or down, emits the difference between the
results before and after it; so rows minus retractions are those of the join whatever the order of rows, also where a retraction comes before
its row. Changes of a key that cancel within a call are not emitted.

Source: Flink ``StreamingJoinOperator``; which pairs there are: SQL. A time to live decides by event times and the stamp of each row.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from floodmark.core.errors import user_error
from floodmark.core.time import END, NEVER
from floodmark.core.types import is_same
from floodmark.semantics.kernels.arrivals import Arrivals, plain_keys
from floodmark.semantics.kernels.elements import ProcessStage
from floodmark.semantics.kernels.functions.netting import NetKernel
from floodmark.semantics.kernels.functions.sides import Item, JoinForm, Part, Row, Side, Values, with_other_zeros
from floodmark.semantics.state.directory import NONE
from floodmark.semantics.state.entries import Entry, KeyGroup
from floodmark.semantics.state.store import Store
from floodmark.spec.keyed.regular import RegularJoin
from floodmark.spec.values.schema import RETRACTION, ROW

_FEW_ZEROS = 4
"""Zeros of a row up to which rows with other signs are looked up, one for each choice of signs; above it all rows of a part are looked at."""


def is_regular_join(stage: ProcessStage) -> bool:
    """Whether a stage is a regular join."""
    return isinstance(stage.step.function.function, RegularJoin)


class JoinedKey:
    """The state of one key: its rows on both sides. ``event``: earliest progress at which a row is freed. ``changes``: of its results, in a call."""

    __slots__ = ("changes", "entry", "event", "form", "latest", "sides", "stamp", "tick")

    def __init__(self, entry: Entry, form: JoinForm, entries: KeyGroup) -> None:
        self.entry, self.form, self.changes = entry, form, Changes(form)
        self.stamp = self.latest = NEVER
        self.sides = Side(form, 0, entry, entries), Side(form, 1, entry, entries)
        self.event, self.tick = entry.event, NONE
        if entry.value:
            _, self.stamp, states, _, self.latest = entry.value
            if states.get("on", "") != form.condition:
                form.count_partners(entry.key, self.sides)

    def close(self) -> bool:
        """Write the rows into the entry; False if there are none."""
        states = dict[str, Any]()
        holds = [side.close(states) for side in self.sides]
        states |= {"on": self.form.condition} if self.form.condition else {}
        self.entry.value = self.form.layout, self.stamp, states, {}, self.latest
        self.entry.event = self.event
        return any(holds)


class Changes:
    """Changes of results: how often each comes, less how often it is taken back."""

    __slots__ = ("counts", "form")

    def __init__(self, form: JoinForm) -> None:
        self.form, self.counts = form, dict[tuple[Item, Item], list[Any]]()

    def add(self, left: Values, right: Values, time: int, stamp: int, times: int) -> None:
        """A result comes so many times; fewer than none: it is taken back."""
        name = self.form.item(left, time), self.form.item(right, time)
        count = self.counts.get(name)
        if count is None:
            self.counts[name] = [left, right, time, stamp, times]
        else:
            count[3], count[4] = stamp, count[4] + times

    def taken(self) -> list[list[Any]]:
        """Remove the changes; returns (left, right, event time, stamp, times) of each, retractions first."""
        changed = sorted((change for change in self.counts.values() if change[4]), key=lambda change: change[4] > 0)
        self.counts.clear()
        return changed


@dataclass(frozen=True, slots=True)
class _Step:
    """A row of side ``tag`` that comes (sign 1) or is taken back (-1), and the changes that it makes."""

    changes: Changes
    tag: int
    values: Values
    time: int
    stamp: int
    sign: int


class RegularJoinKernel(NetKernel):
    """Rows of both sides of the keys of one group, for a stage that ``is_regular_join``."""

    stage: ProcessStage

    def __init__(self, stage: ProcessStage, store: Store) -> None:
        self.form = JoinForm(stage.step)
        kind, self.declared = self.form.kind, stage.step.function.function.layout()
        self.one_sided = kind in {"semi", "anti"}
        self.alone = kind in {"left", "full", "anti"}, kind in {"right", "full"}
        self.blank = tuple((None,) * len(side) for side in self.form.columns)
        self.arrivals: Arrivals | None = None
        self.values: list[Values] = []
        self.tags: list[int] = []
        self.kinds: list[int] = []
        super().__init__(stage, store)

    def _begin(self) -> None:
        self.entries.holds_columns()
        layouts, layout = self.entries.extra.setdefault("layouts", []), self.declared
        if layout not in layouts:
            layouts.append(layout)
        self.form.layout = layouts.index(layout)

    def _resume(self, state: dict[str, Any]) -> None:
        super()._resume(state)
        self._begin()

    def _opened(self, entry: Entry) -> JoinedKey:
        return JoinedKey(entry, self.form, self.entries)

    # ---- rows in

    def _arrive(self, arrivals: Arrivals) -> None:
        if arrivals is not self.arrivals:
            self.arrivals, self.kinds = arrivals, arrivals.kinds
            self._read(arrivals.table)

    def _read(self, table: pa.Table) -> None:
        """Make Python values of rows, each with the columns of its own side."""
        tags = table["v0"].to_numpy()
        whole = table["row"].combine_chunks()
        self.tags, self.values = tags.tolist(), [()] * table.num_rows
        for tag, names in enumerate(self.form.united):
            own = np.flatnonzero(tags == tag)
            rows = whole.take(pa.array(own))
            columns = [plain_keys(pa.chunked_array([pc.struct_field(rows, name)])) for name in names]
            value_rows = zip(*columns, strict=True) if columns else [()] * len(own)
            for position, values in zip(own.tolist(), value_rows, strict=True):
                self.values[position] = values

    def _refuse(self, key_state: Any, position: int, error: Exception) -> NoReturn:
        row = dict(zip(self.form.columns[self.tags[position]], self.values[position], strict=True))
        where = f"{self._about(key_state)}, condition '{self.form.condition}'"
        raise user_error(error, where, f"The row was {row}.") from error

    def _take(self, key_state: Any, position: int, time: int, stamp: int) -> None:
        """A row, without freeing others by its stamp: the other input may be behind."""
        tag, kind, ttl = self.tags[position], self.kinds[position], self.form.ttl
        if ttl is not None and time + ttl <= stamp:
            self.dropped += self._wanted(time) and kind == ROW
            return
        self.late += time <= stamp and self._wanted(time) and kind == ROW
        key_state.stamp, key_state.latest = stamp, max(key_state.latest, time)
        sign = -1 if kind == RETRACTION else 1
        if None not in key_state.entry.key:
            self._change(key_state, tag, self.values[position], time, stamp, sign)
        elif self.alone[tag]:  # null is equal to nothing: no row of the other side ever changes that
            key_state.changes.add(*self._single(tag, self.values[position], time), stamp, sign)

    def _change(self, key_state: JoinedKey, tag: int, values: Values, time: int, stamp: int, sign: int) -> None:
        """A row of a side comes (sign 1) or is taken back (-1): change the results and the side."""
        form, mine, others = self.form, key_state.sides[tag], key_state.sides[1 - tag]
        item = form.item(values, time)
        part = mine.of(item)
        row = part.get(item)
        if sign < 0 and (row is None or row.times <= 0):
            item = _earlier(part, item, values)
            row = part.get(item)
            values = values if row is None else row.values
        elif sign > 0 and row is None and (form.floats or form.nested):
            item = _owed(part, item, values)
            row = part.get(item)
            values = values if row is None else row.values
        before = mine.total
        if form.all_match:
            partners: list[tuple[int, Row]] | None = None
            count = others.total
        else:
            partners = list(form.pairs(key_state.entry.key, tag, values, item[1], others))
            count = sum(other.times for _, other in partners)
        step = _Step(key_state.changes, tag, values, item[1], stamp, sign)
        if self._shows(tag, count):
            step.changes.add(*self._single(tag, values, step.time), stamp, sign)
        if not self.one_sided or (tag == 1 and (partners is not None or (before > 0) != (before + sign > 0))):
            for other_time, other in partners if partners is not None else others.rows():
                self._meet(step, other_time, other, before if partners is None else other.partners)
        for _, other in partners or ():
            other.partners += sign
        mine.total += sign
        if row is None:
            part[item] = Row(values, sign, count)
        elif row.times + sign:
            row.times += sign
        else:
            del part[item]

    def _shows(self, tag: int, partners: int) -> bool:
        """Whether a row of a side with so many partners is in the result on its own."""
        if self.one_sided:
            return tag == 0 and (partners > 0) == (self.form.kind == "semi")
        return self.alone[tag] and partners <= 0

    def _meet(self, step: _Step, time: int, row: Row, partners: int) -> None:
        """A row of the other side, which had so many partners, gets or loses one: its pair, and itself on its own."""
        tag, stamp, sign = 1 - step.tag, step.stamp, step.sign
        shows = self._shows(tag, partners + sign) - self._shows(tag, partners)
        if shows:
            step.changes.add(*self._single(tag, row.values, time), stamp, shows * row.times)
        if not self.one_sided:
            both = (step.values, row.values) if step.tag == 0 else (row.values, step.values)
            step.changes.add(*both, max(step.time, time), stamp, sign * row.times)

    def _single(self, tag: int, values: Values, time: int) -> tuple[Values, Values, int]:
        """A row on its own, as a result."""
        return (values, self.blank[1], time) if tag == 0 else (self.blank[0], values, time)

    # ---- rows out

    def _send(self, key_state: JoinedKey) -> None:
        """Emit the changes of a key."""
        key = key_state.entry.key
        for left, right, time, stamp, times in key_state.changes.taken():
            row = (*key, *left) if self.one_sided else (*key, *left, *right)
            for _ in range(abs(times)):
                self.out.append((*row, time, stamp, ROW if times > 0 else RETRACTION, self.units))
                self.units += 1

    def _results(self) -> pa.Table:
        return self._table(self.out, self.stage.result_schema)

    # ---- time

    def _wait(self, key_state: JoinedKey) -> None:
        """Set the progress at which the first row of a key is freed."""
        ttl, key_state.event = self.form.ttl, NONE
        if ttl is not None:
            first = min(side.first() for side in key_state.sides)
            key_state.event = min(first + 2 * ttl, END) if first < NONE else NONE

    def _fire(self, key_state: JoinedKey, progress: int) -> None:
        """Free the rows of a key for which no partner and no retraction can come after ``progress``."""
        ttl = self.form.ttl
        assert ttl is not None
        for side in key_state.sides:
            side.free(END if progress >= END else progress - 2 * ttl)
        self._wait(key_state)


def _owed(part: Part, item: Item, values: Values) -> Item:
    """The retraction that a row undoes which comes behind it: one of the same time and of equal values, whose zeros may have another sign."""
    zeros = _zeros_in(item[0])
    if not zeros:
        return item
    if zeros <= _FEW_ZEROS:
        others: Iterable[Item] = ((other, item[1]) for other in with_other_zeros(item[0]))
    else:
        others = (other for other in part if other[1] == item[1] and is_same(part[other].values, values))
    return next((other for other in others if (row := part.get(other)) is not None and row.times < 0), item)


def _zeros_in(value: Any) -> int:
    """How many zeros of floating point a value that can be compared is made of."""
    return sum(map(_zeros_in, value)) if isinstance(value, tuple) else int(isinstance(value, float) and not value)


def _earlier(part: Part, item: Item, values: Values) -> Item:
    """The row that a retraction takes back: of its values, the one with the latest event time, if none has its own; else one of equal values."""
    alive = [other for other, row in part.items() if row.times > 0]
    same = [other for other in alive if other[0] == item[0]] or [o for o in alive if is_same(part[o].values, values)]
    return max(same, key=lambda other: other[1], default=item)
