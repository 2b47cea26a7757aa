"""The kernel of ``top`` over rows that are never retracted: the same as ``TopKernel``, without an object for each row that comes in or goes out.

Rows stay in columns; a key holds where its first rows are. State and results are those of ``TopKernel``, and either reads what the other has kept.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from floodmark.core.time import NEVER
from floodmark.semantics.aggregates.numbers import Ints, dense, has_ranks, row_codes
from floodmark.semantics.encoding.columns import arrow_schema, python_values
from floodmark.semantics.kernels.arrivals import Arrivals
from floodmark.semantics.kernels.elements import ProcessStage
from floodmark.semantics.kernels.functions.top import TopCells, TopKernel
from floodmark.semantics.kernels.kernel import Emission, Tick
from floodmark.semantics.kernels.keyed import column
from floodmark.semantics.state.entries import KeyGroup
from floodmark.semantics.state.store import Store
from floodmark.semantics.time.ordering import Spans
from floodmark.spec.keyed.top import Top
from floodmark.spec.values.schema import RETRACTION, ROW


def only_grows(stage: ProcessStage) -> bool:
    """Whether a stage takes the first rows of each key, numbered one by one, of rows that are never retracted, and fails where a row fails."""
    function = stage.step.function.function
    if not isinstance(function, Top) or stage.revised or stage.step.on_error == "quarantine":
        return False
    ranking, types = function.ranking, arrow_schema(stage.step.parent.schema)
    return ranking.numbering == "row_number" and all(has_ranks(types.field(by.column).type) for by in ranking.by)


@dataclass(slots=True)
class _Changes:
    """Rows that came among the first, and where the others were.

    Args:
        arrivals: among which they are.
        keys: of the rows that were stored.
        stored: values of these; the row with the number n is known as -n - 1.
        events: position of a row, its place among the first, how many were behind it, whether the last of them is none of the first any more, and
            its unit: a list of tuples of numbers, or an array.
        behind: the rows that were behind each, one after the other: a list, or an array.
    """

    arrivals: Arrivals
    keys: list[tuple[Any, ...]] = field(default_factory=list)
    stored: list[tuple[Any, ...]] = field(default_factory=list)
    events: Any = field(default_factory=list)
    behind: Any = field(default_factory=list)


@dataclass(slots=True)
class _Unstored:
    """A key whose state is not stored."""

    stamp: int = NEVER
    latest: int = NEVER


class FirstRowsKernel(TopKernel):
    """The first rows of the keys of one key group, of a stage that ``only_grows``."""

    def __init__(self, stage: ProcessStage, store: Store) -> None:
        self.changes: list[_Changes] = []
        super().__init__(stage, store)

    def _rows_and_ticks(self, arrivals: Arrivals, start: int, stop: int, moves: list[tuple[int, Tick]]) -> None:
        self._expect(arrivals, start, stop)
        cells: dict[Any, TopCells] = {key: self._key(key) for key in dict.fromkeys(arrivals.keys[start:stop])}
        if moves or not self._taken(arrivals, start, stop, cells):
            super()._rows_and_ticks(arrivals, start, stop, moves)
            return
        self.arrived += stop - start

    def _at_once(
        self, arrivals: Arrivals, spans: Spans, stores: Mapping[int, Store], opened: Mapping[int, KeyGroup | None]
    ) -> dict[int, dict[str, Any]] | None:
        states = self._all_open(arrivals, spans, stores, opened)
        key_states = self._keys_of(arrivals, spans, states)
        return states if self._taken(arrivals, 0, arrivals.table.num_rows, key_states) else None

    def whole(self, packed: Sequence[dict[str, pa.Table]]) -> Emission | None:
        """As ``advance`` for all rows of a key group at once, to the end of input: no state is read or written; None if the rows need it.

        Args:
            packed: as of ``advance``.
        """
        arrivals = self._all_rows(packed)
        if arrivals is None or RETRACTION in pc.unique(arrivals.table["kind"]).to_pylist():
            return None
        table, self.keys = arrivals.table, {}
        with self._undisturbed():
            self._restart()
            keys = row_codes([table[key] for key in self.stage.keys], np.zeros(table.num_rows, np.int64))
            codes = self._codes(table["row"], [])
            changes = _Changes(arrivals)
            self.changes.append(changes)
            if self.ranking.n == 1:
                self._best(keys, np.array(codes, np.int64), changes)
            else:
                held = {key: (_Unstored(), list[int](), list[int]()) for key in range(int(keys.max()) + 1)}
                self._placed(arrivals, 0, table.num_rows, keys.tolist(), codes, held, changes)
            return self._emission([], {}, None, None)

    def _best(self, keys: Ints, codes: Ints, changes: _Changes) -> None:
        """As ``_placed`` where only the first row of each key is wanted, from the first row of all keys on.

        Args:
            keys: number of the key of each row.
            codes: place of each row in the order of all.
            changes: to which what happens is added.
        """
        table = changes.arrivals.table
        late = table["t"].to_numpy()[table["t"].to_numpy() <= table["w"].to_numpy()]
        self.late += sum(self._wanted(time) for time in late.tolist())
        order = np.argsort(keys, kind="stable")
        stride = int(codes.max()) + 2
        falling = (
            codes[order] - keys[order] * stride
        )  # keys ascend, so each begins below the least code of the one before
        least = np.minimum.accumulate(falling)
        before = np.r_[np.iinfo(np.int64).max, least[:-1]]
        wins = falling <= before if self.ranking.latest else falling < before
        begins = np.r_[True, np.diff(keys[order]) > 0]
        winners = np.flatnonzero(wins | begins)
        follows = ~begins[winners]
        beaten = np.where(follows, np.r_[-1, winners[:-1]], -1)
        arrival = np.argsort(order[winners])
        positions, follows, beaten = order[winners][arrival], follows[arrival], beaten[arrival]
        zeros = np.zeros(len(positions), np.int64)
        changes.events = np.stack([positions, zeros, follows, follows, np.arange(len(positions))], axis=1)
        changes.behind = order[beaten[follows]]
        self.units = len(positions)

    def _taken(self, arrivals: Arrivals, start: int, stop: int, cells: Mapping[Any, TopCells]) -> bool:
        """Process rows of these keys; False, and nothing has changed, if one is retracted or waited for."""
        retracted = any(kind == RETRACTION for kind in arrivals.kinds[start:stop])
        if retracted or any(cell.owes for cell in cells.values()):
            return False
        if not self.changes or self.changes[-1].arrivals is not arrivals:
            self.changes.append(_Changes(arrivals))
        changes, first = self.changes[-1], len(self.changes[-1].stored)
        for key, cell in cells.items():
            changes.stored += cell.rows
            changes.keys += [key] * len(cell.rows)
        codes = self._codes(arrivals.table["row"].slice(start, stop - start), changes.stored[first:])
        held, taken = dict[Any, tuple[TopCells, list[int], list[int]]](), 0
        for key, cell in cells.items():
            size = len(cell.rows)
            held[key] = (
                cell,
                codes[taken : taken + size],
                [-number - 1 for number in range(first + taken, first + taken + size)],
            )
            taken += size
        self._placed(arrivals, start, stop, arrivals.keys[start:stop], codes[taken:], held, changes)
        self._store(arrivals, held.values(), changes.stored)
        return True

    def _placed(
        self,
        arrivals: Arrivals,
        start: int,
        stop: int,
        keys: Sequence[Any],
        codes: Sequence[int],
        held: Any,
        changes: _Changes,
    ) -> None:
        """Put each row among the first ones of its key, if it is one of them.

        Args:
            arrivals: the rows.
            start: position of the first one.
            stop: position behind the last one.
            keys: of these rows.
            codes: places of these rows in the order of all.
            held: key -> its state, and the codes and handles of its first rows, which are changed here.
            changes: to which what happens is added.
        """
        latest, n, numbered = self.ranking.latest, self.ranking.n, bool(self.ranking.number)
        put = bisect_left if latest else bisect_right
        events, behind, units = changes.events, changes.behind, self.units
        times, stamps = arrivals.times[start:stop], arrivals.stamps[start:stop]
        rows = zip(range(start, stop), keys, codes, times, stamps, strict=True)
        for position, key, code, time, stamp in rows:
            cell, own, among = held[key]
            cell.stamp = stamp
            cell.latest = max(cell.latest, time)
            if time <= stamp:
                self.late += self._wanted(time)
            if len(own) == n and (code > own[-1] or (code == own[-1] and not latest)):
                continue
            at = put(own, code)
            others, full = among[at:], len(among) == n
            events.append((position, at, len(others), full, units))
            behind += others
            units += len(others) + (not full) if numbered else 1
            own.insert(at, code)
            among.insert(at, position)
            if full:
                own.pop()
                among.pop()
        self.units = units

    def _codes(self, rows: pa.ChunkedArray, stored: Sequence[tuple[Any, ...]]) -> list[int]:
        """The place of each stored row and of each row in the order of all of them; equal rows have one."""
        rows = rows.combine_chunks()
        codes: Ints = np.zeros(len(stored) + len(rows), np.int64)
        for by in self.ranking.by:
            at, values = self.read.index(by.column), pc.struct_field(rows, by.column)
            ranks = dense(pa.concat_arrays([pa.array([row[at] for row in stored], values.type), values]))
            there, most = ranks >= 0, int(ranks.max(initial=-1)) + 1
            ranks = np.where(there, most - ranks if by.descending else ranks + 1, 0 if by.nulls_first else most + 1)
            _, codes = np.unique(codes * (most + 2) + ranks, return_inverse=True)
        return codes.tolist()  # type: ignore[no-any-return]

    def _store(self, arrivals: Arrivals, held: Any, stored: Sequence[tuple[Any, ...]]) -> None:
        """Keep the first rows of each key as plain data."""
        fresh = [handle for _, _, among in held for handle in among if handle >= 0]
        whole = arrivals.table["row"].take(pa.array(fresh, pa.int64())).combine_chunks()
        columns = [python_values(pc.struct_field(whole, name)) for name in self.read]
        made = dict(zip(fresh, zip(*columns, strict=True), strict=True))
        for cell, _, among in held:
            cell.keep([made[handle] if handle >= 0 else stored[-handle - 1] for handle in among])

    # ---- rows out

    def _lists(self) -> list[list[Any]]:
        return [*super()._lists(), self.changes]

    def _results(self) -> pa.Table:
        tables = [self._changed(changes) for changes in self.changes if len(changes.events)]
        return self._with_columns(super()._results(), tables)

    def _changed(self, changes: _Changes) -> pa.Table:
        """What becomes of the first rows, in order: where one is gone its retraction, then what takes its number."""
        position, at, behind, full, unit = np.array(changes.events, np.int64).T
        others = np.array(changes.behind, np.int64)
        if self.ranking.number:
            pairs = behind + (1 - full)
            of, step = _counted(pairs)
            offset = (np.cumsum(behind) - behind)[of] + step
            goes = step < behind[of]
        else:  # the last one is gone, if any is
            of, step = np.arange(len(position)), np.zeros(len(position), np.int64)
            offset, goes = np.cumsum(behind) - 1, full > 0
        padded = np.r_[others, 0]
        gone = padded[np.where(goes, offset, len(others))]
        come = np.where(step == 0, position[of], padded[np.where(step == 0, len(others), offset - 1)])
        there = np.stack([goes, np.ones(len(of), bool)], axis=1).ravel()
        handles = np.stack([gone, come], axis=1).ravel()[there]
        cause = np.repeat(position[of], 2)[there]
        kinds = np.tile(np.array([RETRACTION, ROW], np.int32), len(of))[there]
        numbers, units = (np.repeat(values, 2)[there] for values in (at[of] + 1 + step, unit[of] + step))
        return self._table_of(changes, handles, cause, {"_kind": kinds, "_order": units, self.ranking.number: numbers})

    def _table_of(self, changes: _Changes, handles: Ints, cause: Ints, own: dict[str, Any]) -> pa.Table:
        """Rows and stored rows by their handles, with the stamps of the rows that are the cause."""
        table, schema = changes.arrivals.table, self.stage.result_schema
        size, whole = table.num_rows, table["row"].combine_chunks()
        picked, causes = pa.array(np.where(handles < 0, size - handles - 1, handles)), pa.array(cause)
        stamps = {"_event_time": "t", "_watermark": "w"}
        columns = []
        for target in schema:
            if target.name in own:
                columns.append(pa.array(own[target.name]).cast(target.type))
            elif target.name in stamps:
                columns.append(table[stamps[target.name]].take(causes).cast(target.type))
            else:
                rows, stored = self._both(changes, target.name, table, whole)
                both = [*rows.cast(target.type).chunks, column(stored, target)]
                columns.append(pa.chunked_array(both).combine_chunks().take(picked))
        return pa.table(columns, schema=schema)

    def _both(
        self, changes: _Changes, name: str, table: pa.Table, whole: pa.StructArray
    ) -> tuple[pa.ChunkedArray, list[Any]]:
        """A column of the rows, and of the stored rows."""
        keys = self.stage.step.keys
        if name in keys:
            at = keys.index(name)
            return table[self.stage.keys[at]], [key[at] for key in changes.keys]
        at = self.read.index(name)
        return pa.chunked_array([pc.struct_field(whole, name)]), [row[at] for row in changes.stored]


def _counted(lengths: Ints) -> tuple[Ints, Ints]:
    """(lengths of runs) -> the run of each item, and its place in it."""
    of = np.repeat(np.arange(len(lengths)), lengths)
    return of, np.arange(len(of)) - (np.cumsum(lengths) - lengths)[of]
