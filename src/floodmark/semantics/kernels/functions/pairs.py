"""The kernel of regular joins without a further condition: as ``RegularJoinKernel``, with the rows of a call in columns.

Rows that come are paired in columns with those that are stored and with each other, and are added to the stored ones as these lie in state. The
rows of a key go one by one in a call in which one of them is taken back, or in which its rows, alone so far in another than an inner join, get a partner.
The rows of a call, their times and the state are those of ``RegularJoinKernel``, and either reads what the other has kept; rows of one call may come
in another order.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from floodmark.core.time import NEVER
from floodmark.semantics.aggregates.numbers import Ints
from floodmark.semantics.encoding.identity import identities
from floodmark.semantics.kernels.arrivals import Arrivals, plain_keys
from floodmark.semantics.kernels.elements import ProcessStage
from floodmark.semantics.kernels.functions.regular import RegularJoinKernel, is_regular_join
from floodmark.semantics.kernels.functions.sides import Item
from floodmark.semantics.kernels.functions.stored import Stored, StoredKey
from floodmark.semantics.kernels.kernel import Tick
from floodmark.semantics.kernels.keyed import column
from floodmark.semantics.state.entries import KeyGroup
from floodmark.semantics.state.store import Store
from floodmark.semantics.time.ordering import Spans
from floodmark.spec.keyed.regular import RegularJoin
from floodmark.spec.values.schema import RETRACTION, ROW

_MOST_PAIRS = 4_000_000
"""Pairs that are made at once; rows of a call with more go one by one."""


def only_pairs(stage: ProcessStage) -> bool:
    """Whether a stage is a regular join without a further condition or an end of rows."""
    function = stage.step.function.function
    if not is_regular_join(stage):
        return False
    assert isinstance(function, RegularJoin)
    return function.tree is None and function.ttl is None


@dataclass(frozen=True, slots=True)
class _Fresh:
    """The rows of a call whose keys have no null, key by key in order of arrival.

    Args:
        positions: among the rows of the call.
        keys: number of the key of each.
        tags: side of each.
        times: event times.
        values: of the columns of each one's side.
        partners: rows of the other side when each came.
        taken_back: whether each is a retraction.
    """

    positions: Ints
    keys: Ints
    tags: Ints
    times: Ints
    values: list[tuple[Any, ...]]
    partners: Ints
    taken_back: Ints

    def only(self, some: Any) -> _Fresh:
        """Some of the rows."""
        if some.all():
            return self
        own = (self.positions, self.keys, self.tags, self.times, self.partners, self.taken_back)
        positions, keys, tags, times, partners, taken_back = (values[some] for values in own)
        values = [self.values[at] for at in np.flatnonzero(some).tolist()]
        return _Fresh(positions, keys, tags, times, values, partners, taken_back)

    def codes(self, wanted: Ints, columns: Sequence[Sequence[pa.Array]]) -> Ints:
        """What says in which part of its side a row is, of some rows; 0 for the others.

        Args:
            wanted: places of rows.
            columns: of each side, by position.
        """
        codes = np.zeros(len(self.keys), np.int64)
        for tag, own in enumerate(columns):
            places = wanted[self.tags[wanted] == tag]
            if len(places):
                positions = pa.array(self.positions[places])
                names = [_names(values.take(positions)) for values in own]
                codes[places] = [zlib.crc32(b"".join(parts)) for parts in zip(*names, strict=True)] if names else 0
        return codes


def _names(values: pa.Array) -> list[bytes]:
    """The identity of each value."""
    if pa.types.is_timestamp(values.type) and values.type.unit == "us" and not values.null_count:
        letter = "N" if values.type.tz is None else "T"
        return [f"{letter}{len(text)}:{text}".encode() for text in map(str, values.cast(pa.int64()).to_pylist())]
    return identities(plain_keys(pa.chunked_array([values])))


@dataclass(frozen=True, slots=True)
class _Pairs:
    """Pairs of rows, in the order in which they are emitted. Places are those of fresh rows; the stored rows of a side have places behind them; -1 is none.

    Args:
        causes: place of the row that makes each.
        sides: places of the left and of the right row of each.
        times: event times.
        latest: place of the row that it has its stamp from.
        often: how often each is emitted.
        stored: rows of each side that were stored.
    """

    causes: Ints
    sides: tuple[Ints, Ints]
    times: Ints
    latest: Ints
    often: Ints
    stored: Sequence[Sequence[Stored]]


class PairsKernel(RegularJoinKernel):
    """Pairs of rows of the keys of one group, for a stage of which there are ``only_pairs``."""

    def __init__(self, stage: ProcessStage, store: Store) -> None:
        self.columns: list[pa.Table] = []
        super().__init__(stage, store)
        self.turns = (True, False) if self.one_sided else self.alone
        """Per side, whether the first row of the other one changes what the rows that are there give."""

    def _at_once(
        self, arrivals: Arrivals, spans: Spans, stores: Mapping[int, Store], opened: Mapping[int, KeyGroup | None]
    ) -> dict[int, dict[str, Any]] | None:
        states = self._all_open(arrivals, spans, stores, opened)
        return states if self._paired(arrivals, spans, lambda group: self._resume(states[group])) else None

    def _rows_and_ticks(self, arrivals: Arrivals, start: int, stop: int, moves: list[tuple[int, Tick]]) -> None:
        self._expect(arrivals, start, stop)
        if moves or not self._paired(arrivals, {0: (start, stop)}, _nothing):
            super()._rows_and_ticks(arrivals, start, stop, moves)
            return
        self.arrived += stop - start

    def _paired(self, arrivals: Arrivals, spans: Spans, resume: Callable[[int], None]) -> bool:
        """Process rows; False, and nothing has changed, if all have to go one by one. Those of some keys may: of one that has a row twice.

        Args:
            arrivals: the rows.
            spans: where those of each key group are.
            resume: goes on with a key group.
        """
        begin, end = min(first for first, _ in spans.values()), max(last for _, last in spans.values())
        table = arrivals.table.slice(begin, end - begin)
        if self.form.nested:
            return False
        keys = dict[tuple[Any, ...], StoredKey]()
        for group, (first, last) in spans.items():
            resume(group)
            for key in dict.fromkeys(arrivals.keys[first:last]):
                if None not in key:  # null is equal to nothing
                    keys[key] = StoredKey(self.entries.opened(key), self.entries, self.form)
        columns, held = self._columns(table), list(keys.values())
        fresh = self._fresh(arrivals.keys[begin:end], table, columns, keys)
        codes = fresh.codes(self._in_parts(fresh, held), columns)
        apart = self._apart(fresh, held, codes)
        in_columns = ~np.isin(fresh.keys, apart)
        by_row = np.sort(np.r_[fresh.positions[~in_columns], self._alone_by_null(arrivals.keys[begin:end], table)])
        fresh, codes = fresh.only(in_columns), codes[in_columns]
        pairs = self._pairs(fresh, held, codes)
        if pairs is None:
            return False
        self._emit(table, columns, fresh, pairs)
        self._store(fresh, held, codes, table)
        self._count_late(table.take(pa.array(np.delete(np.arange(len(table)), by_row))))
        for group, (first, last) in spans.items() if len(by_row) else ():
            own = by_row[(by_row >= first - begin) & (by_row < last - begin)]
            if len(own):
                resume(group)
                arrived = self.arrived
                super()._rows_and_ticks(Arrivals(self.stage, table.take(pa.array(own)), own.tolist()), 0, len(own), [])
                self.arrived = arrived
        return True

    # ---- rows in

    def _alone_by_null(self, keys: Sequence[tuple[Any, ...]], table: pa.Table) -> Ints:
        """The positions of rows that an outer join has on their own, as null is equal to nothing."""
        if not any(self.alone):
            return np.zeros(0, np.int64)
        null = np.fromiter((None in key for key in keys), bool, len(keys))
        return np.flatnonzero(null & np.array(self.alone)[table["v0"].to_numpy()])

    def _columns(self, table: pa.Table) -> list[list[pa.Array]]:
        """Of each side the columns of all rows: those of the other side have null, or anything, in them."""
        whole = table["row"].combine_chunks()
        return [[pc.struct_field(whole, name) for name in names] for names in self.form.united]

    def _fresh(
        self,
        of_row: Sequence[tuple[Any, ...]],
        table: pa.Table,
        columns: Sequence[Sequence[pa.Array]],
        keys: Mapping[tuple[Any, ...], StoredKey],
    ) -> _Fresh:
        numbers = {key: number for number, key in enumerate(keys)}
        which = np.fromiter((numbers.get(key, -1) for key in of_row), np.int64, len(of_row))
        positions = np.flatnonzero(which >= 0)
        positions = positions[np.argsort(which[positions], kind="stable")]
        which, tags, times = (
            values[positions] for values in (which, table["v0"].to_numpy(), table["t"].to_numpy().astype(np.int64))
        )
        first = np.searchsorted(which, np.arange(len(numbers)))
        totals = np.array([[side.total for side in key.sides] for key in keys.values()], np.int64).reshape(-1, 2)
        partners = np.zeros(len(which), np.int64)
        values: list[tuple[Any, ...]] = [()] * len(which)
        for tag, own in enumerate(columns):
            mine = tags == tag
            before = np.cumsum(mine) - mine
            before -= before[first][which] if len(which) else 0
            partners[~mine] = (before + totals[which, tag])[~mine]
            places = np.flatnonzero(mine)
            taken = pa.array(positions[places])
            lists = [plain_keys(pa.chunked_array([part.take(taken)])) for part in own]
            for row_at, row in zip(
                places.tolist(), zip(*lists, strict=True) if lists else [()] * len(places), strict=True
            ):
                values[row_at] = row
        taken_back = (table["kind"].to_numpy() == RETRACTION)[positions]
        return _Fresh(positions, which, tags, times, values, partners, taken_back)

    def _in_parts(self, fresh: _Fresh, held: Sequence[StoredKey]) -> Ints:
        """The places of rows whose side has, or will have, several parts."""
        counts = np.bincount(fresh.keys * 2 + fresh.tags, minlength=2 * len(held)).reshape(-1, 2)
        several = np.array(
            [
                [key.parts_with(tag, fresh_rows) > 1 for tag, fresh_rows in enumerate(row)]
                for key, row in zip(held, counts.tolist(), strict=True)
            ],
            bool,
        ).reshape(-1, 2)
        return np.flatnonzero(several[fresh.keys, fresh.tags])

    def _apart(self, fresh: _Fresh, held: Sequence[StoredKey], codes: Ints) -> list[int]:
        """The numbers of keys whose rows go one by one; reads what the others need of their state."""
        counts = np.bincount(fresh.keys * 2 + fresh.tags, minlength=2 * len(held)).reshape(-1, 2).tolist()
        order, bounds = _by_side(fresh, len(held))
        in_turn = codes[order].tolist()
        for number, key in enumerate(held):
            for tag in (0, 1):
                start, stop = bounds[2 * number + tag : 2 * number + tag + 2]
                key.ready(tag, in_turn[start:stop], whole=counts[number][1 - tag] > 0 and not self.one_sided)
        by_row = {number for number, key in enumerate(held) if not key.fits} | self._again(fresh, held, codes)
        by_row |= set(fresh.keys[fresh.taken_back].tolist())
        for tag in np.flatnonzero(self.turns).tolist():
            by_row |= {
                number
                for number, key in enumerate(held)
                if key.sides[tag].count > 0 and key.sides[1 - tag].total <= 0 and counts[number][1 - tag] > 0
            }
        return [*by_row]

    def _again(self, fresh: _Fresh, held: Sequence[StoredKey], codes: Ints) -> set[int]:
        """The numbers of keys that have a row twice: it only counts once more."""
        order = np.lexsort((fresh.times, fresh.tags, fresh.keys))
        alike = np.ones(max(len(order) - 1, 0), bool)
        for values in (fresh.keys, fresh.tags, fresh.times):
            in_turn = values[order]
            alike &= in_turn[1:] == in_turn[:-1]
        some = order[np.r_[alike, False] | np.r_[False, alike]] if len(order) else order
        known, again = set[Any](), set[int]()
        columns = (values[some].tolist() for values in (fresh.keys, fresh.tags, fresh.times))
        for row_at, key, tag, time in zip(some.tolist(), *columns, strict=True):
            item = key, tag, self.form.item(fresh.values[row_at], time)
            if item in known:
                again.add(key)
            known.add(item)
        latest = np.array([key.latest for key in held], np.int64)
        for row_at in np.flatnonzero(fresh.times <= latest[fresh.keys]).tolist() if len(held) else []:
            number, tag = int(fresh.keys[row_at]), int(fresh.tags[row_at])
            items = held[number].items(tag, int(codes[row_at]) % held[number].sides[tag].parts)
            if self.form.item(fresh.values[row_at], int(fresh.times[row_at])) in items:
                again.add(number)
        return again

    # ---- pairs

    def _pairs(self, fresh: _Fresh, held: Sequence[StoredKey], codes: Ints) -> _Pairs | None:
        """The pairs in order, or the left rows of a semi- or anti-join; None if there are too many."""
        if self.one_sided:
            return self._left_rows(fresh, held)
        counts = np.bincount(fresh.keys * 2 + fresh.tags, minlength=2 * len(held)).reshape(-1, 2)
        parts = np.array([[side.parts for side in key.sides] for key in held], np.int64).reshape(-1, 2)
        size, made, stored = len(fresh.keys), list[tuple[Ints, Ints, Ints]](), [list[Stored](), list[Stored]()]
        for tag in (0, 1):
            owners, numbers = list[int](), list[int]()
            for number in np.flatnonzero(counts[:, 1 - tag]).tolist():
                for part, rows in held[number].all_rows(tag):
                    stored[tag] += rows
                    owners += [number] * len(rows)
                    numbers += [part] * len(rows)
            mine = np.flatnonzero(fresh.tags == tag)
            others = np.r_[np.arange(len(owners)) + size, mine]
            keys = np.r_[np.array(owners, np.int64), fresh.keys[mine]]
            part_of = np.r_[np.array(numbers, np.int64), codes[mine] % parts[fresh.keys[mine], tag]]
            arrived = np.r_[np.full(len(owners), -1), fresh.positions[mine]]
            order = np.lexsort((np.arange(len(keys)), part_of, keys))
            others, keys, arrived = others[order], keys[order], arrived[order]
            causes = np.flatnonzero(fresh.tags != tag)
            first, last = (np.searchsorted(keys, fresh.keys[causes], side) for side in ("left", "right"))
            lengths = last - first
            if lengths.sum() > _MOST_PAIRS:
                return None
            of = np.repeat(np.arange(len(causes)), lengths)
            at = np.arange(len(of)) - (np.cumsum(lengths) - lengths)[of] + first[of]
            before = arrived[at] < fresh.positions[causes][of]
            causes, others = causes[of[before]], others[at[before]]
            made.append((causes, *((others, causes) if tag == 0 else (causes, others))))
        causes, left, right = (np.concatenate(some) for some in zip(*made, strict=True))
        order = np.argsort(causes, kind="stable")
        causes, left, right = causes[order], left[order], right[order]
        held_times = [np.array([row[0] for row in rows], np.int64) for rows in stored]
        times = np.maximum(*(np.r_[fresh.times, own][at] for own, at in zip(held_times, (left, right), strict=True)))
        often = [np.r_[np.ones(size, np.int64), np.array([row[1] for row in rows], np.int64)] for rows in stored]
        pairs = _Pairs(causes, (left, right), times, causes, often[0][left] * often[1][right], stored)
        return self._with_rows_alone(fresh, held, self._united(fresh, pairs))

    def _left_rows(self, fresh: _Fresh, held: Sequence[StoredKey]) -> _Pairs:
        """The left rows that have a partner, or none, each once; one that waited for its partner has the stamp of that."""
        totals = np.array([key.sides[1].total for key in held], np.int64)
        right = fresh.tags == 1
        counts = np.bincount(fresh.keys[right], minlength=len(held))
        there = (totals + counts > 0)[fresh.keys]
        rows = np.flatnonzero(~right & (there if self.form.kind == "semi" else ~there))
        latest = rows
        if self.form.kind == "semi" and len(rows):
            others, before = np.flatnonzero(right), np.cumsum(counts) - counts
            first = before + np.maximum(-totals, 0)  # of the right rows, the one with which there is a partner
            came = np.r_[others, -1][
                np.where((totals > 0) | (counts == 0), len(others), np.minimum(first, len(others)))
            ]
            latest = np.maximum(rows, came[fresh.keys[rows]])
        none, often = np.full(len(rows), -1), np.ones(len(rows), np.int64)
        return _Pairs(rows, (rows, none), fresh.times[rows], latest, often, ([], []))

    def _with_rows_alone(self, fresh: _Fresh, held: Sequence[StoredKey], pairs: _Pairs) -> _Pairs:
        """The pairs, and the rows that an outer join has on their own: those of keys without a row of the other side."""
        if not any(self.alone):
            return pairs
        totals = np.array([[side.total for side in key.sides] for key in held], np.int64).reshape(-1, 2)
        totals += np.bincount(fresh.keys * 2 + fresh.tags, minlength=2 * len(held)).reshape(-1, 2)
        lonely = np.array(self.alone)[fresh.tags] & (totals[fresh.keys, 1 - fresh.tags] <= 0)
        rows = np.flatnonzero(lonely)
        if not len(rows):
            return pairs
        causes = np.r_[pairs.causes, rows]
        order = np.argsort(causes, kind="stable")
        left, right = (
            np.r_[places, np.where(fresh.tags[rows] == tag, rows, -1)][order] for tag, places in enumerate(pairs.sides)
        )
        times, latest = np.r_[pairs.times, fresh.times[rows]], np.r_[pairs.latest, rows]
        often = np.r_[pairs.often, np.ones(len(rows), np.int64)]
        return _Pairs(causes[order], (left, right), times[order], latest[order], often[order], pairs.stored)

    def _united(self, fresh: _Fresh, pairs: _Pairs) -> _Pairs:
        """Pairs of equal values and event time as one, at the place of the first, with the stamp of the last."""
        order = np.lexsort((pairs.times, fresh.keys[pairs.causes]))
        alike = np.ones(max(len(order) - 1, 0), bool)
        for values in (fresh.keys[pairs.causes], pairs.times):
            alike &= values[order][1:] == values[order][:-1]
        some = np.sort(order[np.r_[alike, False] | np.r_[False, alike]]) if alike.any() else order[:0]
        if not len(some):
            return pairs
        codes = [fresh.keys[pairs.causes[some]], pairs.times[some]]
        for tag, places in enumerate(pairs.sides):
            names = dict[Item, int]()
            different, at = np.unique(places[some], return_inverse=True)
            rows = (self._values(fresh, pairs.stored[tag], tag, row_at) for row_at in different.tolist())
            codes.append(np.array([names.setdefault(self.form.item(row, 0), len(names)) for row in rows], np.int64)[at])
        order = np.lexsort(codes[::-1])
        starts = np.flatnonzero(np.r_[True, np.any([code[order][1:] != code[order][:-1] for code in codes], axis=0)])
        first = some[order[starts]]
        often, latest = pairs.often.copy(), pairs.latest.copy()
        often[first] = np.add.reduceat(pairs.often[some[order]], starts)
        latest[first] = pairs.latest[some[order[np.r_[starts[1:], len(order)] - 1]]]
        stay = np.ones(len(often), bool)
        stay[some] = False
        stay[first] = True
        left, right = pairs.sides
        return _Pairs(
            pairs.causes[stay], (left[stay], right[stay]), pairs.times[stay], latest[stay], often[stay], pairs.stored
        )

    def _values(self, fresh: _Fresh, stored: Sequence[Stored], tag: int, row_at: int) -> tuple[Any, ...]:
        """The values of a row."""
        size = len(fresh.keys)
        if row_at < size:
            return fresh.values[row_at]
        ((values, _),) = self.form.loaded([stored[row_at - size]], tag)
        return values

    def _emit(self, table: pa.Table, columns: Sequence[Sequence[pa.Array]], fresh: _Fresh, pairs: _Pairs) -> None:
        """Add pairs to the results."""
        schema, rows, times = self.stage.result_schema, table.num_rows, pairs.often
        causes, latest = (
            pa.array(np.repeat(fresh.positions[places], times)) for places in (pairs.causes, pairs.latest)
        )
        made = [table[key].take(causes) for key in self.stage.keys]
        shown = 1 if self.one_sided else 2
        for tag, (places, held) in enumerate(zip(pairs.sides[:shown], pairs.stored[:shown], strict=True)):
            numbers = np.repeat(np.r_[fresh.positions, rows + np.arange(len(held)), -1][places], times)
            taken = pa.array(numbers, mask=numbers < 0)
            for name, own in zip(self.form.columns[tag], columns[tag], strict=True):
                field = schema.field(len(made))
                before = column([row[3][name] for row in held], field)
                made.append(pa.concat_arrays([own.cast(field.type), before]).take(taken))
        size = len(causes)
        stamps = [np.repeat(pairs.times, times), np.full(size, ROW, np.int32), np.arange(size) + self.units]
        event, kinds, units = map(pa.array, stamps)
        made += [event, table["w"].take(latest), kinds, units]
        fitted = [values.cast(field.type) for values, field in zip(made, schema, strict=True)]
        self.columns.append(pa.table(fitted, schema=schema))
        self.units += size

    # ---- state

    def _store(self, fresh: _Fresh, held: Sequence[StoredKey], codes: Ints, table: pa.Table) -> None:
        """Add rows to the state of their keys."""
        order, bounds = _by_side(fresh, len(held))
        in_turn = codes[order].tolist()
        names = self.form.columns
        rows: list[Stored] = [
            [time, 1, partners, dict(zip(names[tag], fresh.values[row_at], strict=True))]
            for row_at, tag, time, partners in zip(
                *(values.tolist() for values in (order, fresh.tags[order], fresh.times[order], fresh.partners[order])),
                strict=True,
            )
        ]
        last = np.searchsorted(fresh.keys, np.arange(len(held)), "right") - 1
        stamps = table["w"].to_numpy()[fresh.positions[last]].tolist() if len(fresh.keys) else [NEVER] * len(held)
        latest = np.full(len(held), NEVER, np.int64)
        np.maximum.at(latest, fresh.keys, fresh.times)
        for number, (key, stamp, time) in enumerate(zip(held, stamps, latest.tolist(), strict=True)):
            start, middle, stop = bounds[2 * number : 2 * number + 3]
            if start == stop:  # of a key whose rows go one by one
                continue
            key.add((rows[start:middle], rows[middle:stop]), (in_turn[start:middle], in_turn[middle:stop]), stamp, time)

    def _count_late(self, table: pa.Table) -> None:
        times = table["t"].to_numpy()
        behind = (times <= table["w"].to_numpy()) & (table["kind"].to_numpy() == ROW)
        if self.stage.clip is not None:
            interval = self.stage.clip.interval
            behind &= (interval.start <= times) & (times < interval.end)
        self.late += int(behind.sum())

    # ---- rows out

    def _lists(self) -> list[list[Any]]:
        return [*super()._lists(), self.columns]

    def _results(self) -> pa.Table:
        return self._with_columns(super()._results(), self.columns)


def _by_side(fresh: _Fresh, keys: int) -> tuple[Ints, list[int]]:
    """The places of rows, side by side of each key; where those of each side begin, and the end."""
    sides = fresh.keys * 2 + fresh.tags
    order = np.argsort(sides, kind="stable")
    return order, np.searchsorted(sides[order], np.arange(2 * keys + 1)).tolist()


def _nothing(group: int) -> None:
    """The key group is open."""
