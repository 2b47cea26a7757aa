"""The kernel of ``deduplicate``: the same as ``ProcessKernel`` with ``Deduplicate``, without an object or a call of a function for each row.

The rows stay in columns, and state has marks alone (``state/marks``). What comes out is that of ``ProcessKernel``, and either reads what the
other has kept. A mark that the stamp of a row of its key has reached says nothing any more; it is removed once progress reaches it.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from floodmark.core.time import END, NEVER
from floodmark.semantics.encoding.identity import identities, identity
from floodmark.semantics.encoding.plain import unpack
from floodmark.semantics.kernels.arrivals import Arrivals, plain_keys
from floodmark.semantics.kernels.elements import ProcessStage
from floodmark.semantics.kernels.kernel import Tick
from floodmark.semantics.kernels.keyed import Turns
from floodmark.semantics.kernels.process import ProcessKernel
from floodmark.semantics.kernels.triggers import Now
from floodmark.semantics.state.directory import NONE
from floodmark.semantics.state.entries import KeyGroup
from floodmark.semantics.state.marks import CODEC, Marks, Numbers, Rows, codes_of
from floodmark.semantics.state.store import Store
from floodmark.spec.keyed.matching import Deduplicate
from floodmark.spec.values.schema import ROW

_SEEN, _MARKS = "seen", "over"
"""The state and the timer of ``Deduplicate``."""


def is_deduplication(stage: ProcessStage) -> bool:
    """Whether a stage drops duplicates, and fails where a row fails."""
    step = stage.step
    return isinstance(step.function.function, Deduplicate) and step.on_error != "quarantine" and not step.clocked


class DeduplicateKernel(ProcessKernel):
    """Duplicates of one key group, of a stage that ``is_deduplication``."""

    of_group = (*ProcessKernel.of_group, "marks")

    def __init__(self, stage: ProcessStage, store: Store) -> None:
        self.columns: list[pa.Table] = []
        super().__init__(stage, store)
        function = stage.step.function.function
        assert isinstance(function, Deduplicate)
        self.within = function.within

    def _opened_entries(self, entries: KeyGroup | None = None) -> KeyGroup:
        """The marks, in place of entries: whoever asks them what is due finds nothing to do, as they free themselves."""
        self.marks = marks_of(self.store) if entries is None else cast("Marks", entries)
        return cast("KeyGroup", self.marks)

    def _begin(self) -> None:
        super()._begin()
        self.marks.form = self.layout, _SEEN, _MARKS

    def advance_all(
        self, stores: Mapping[int, Store], rows: pa.Table | None, progress: int, ticks: Sequence[Tick] = ()
    ) -> Turns:
        """As ``KeyedKernel``, with the rows of all groups judged at once; rows of another shape than the result's go the general way."""
        if ticks or self.stage.by_time or rows is None or not rows.num_rows or not self._shaped(rows):
            return super().advance_all(stores, rows, progress, ticks)
        self._restart()
        rows = rows.take(pc.sort_indices(rows, [("group", "ascending"), ("s", "ascending")]))
        names, which = self._named(rows)
        codes, known, opened = codes_of(names), dict[int, list[int]](), dict[int, tuple[Marks, int, int]]()
        owners, counts = np.zeros(len(names), np.int64), Counter(groups := rows["group"].to_numpy().tolist())
        owners[which] = groups
        keys_by_group = _places(owners)
        for group, store in stores.items():
            self._open(store)
            opened[group] = self.marks, self.arrived + counts[group], self.now.clock
            keys = keys_by_group.get(group, [])
            own = self.marks.known([names[key] for key in keys], codes[keys])
            known |= {keys[place]: marks for place, marks in own.items()}
        positions, marked = self._judged(rows, which, known, len(names))
        fresh = dict[int, list[tuple[int, int]]]()
        for key, mark in marked:
            fresh.setdefault(int(owners[key]), []).append((key, mark))
        nothing, waits = Arrivals(self.stage, rows, []), dict[int, tuple[int | None, int | None]]()
        for group, (marks, arrived, clock) in opened.items():
            self.marks, self.entries, self.arrived, self.now = (
                marks,
                cast("KeyGroup", marks),
                arrived,
                Now(NEVER, clock),
            )
            own_marks = fresh.get(group, [])
            marks.add(Rows.of([names[key] for key, _ in own_marks], [mark for _, mark in own_marks]))
            waits[group] = self._turn(nothing, 0, 0, progress, ())
        self.columns.append(self._rows(rows, rows["row"].combine_chunks(), positions))
        return Turns(self._emission([], {}, None, None), waits)

    def _rows_and_ticks(self, arrivals: Arrivals, start: int, stop: int, moves: list[tuple[int, Tick]]) -> None:
        """Process rows in their order; rows of another shape than the result's go the general way."""
        table = arrivals.table.slice(start, stop - start)
        if moves or not self._shaped(table):
            self.marks.close()
            self.entries = KeyGroup.open(self.store)
            super()._rows_and_ticks(arrivals, start, stop, moves)
            return
        names, which = self._named(table)
        known = self.marks.known(names, codes_of(names))
        positions, marked = self._judged(table, which, known, len(names))
        self.marks.add(Rows.of([names[key] for key, _ in marked], [mark for _, mark in marked]))
        self.arrived += table.num_rows
        self.columns.append(self._rows(table, table["row"].combine_chunks(), positions))

    def _shaped(self, table: pa.Table) -> bool:
        """Whether rows have all columns of the result, and values where it needs some."""
        whole = table["row"].combine_chunks()
        shaped = set(self.result.names) <= {field.name for field in whole.type}
        return shaped and not any(pc.struct_field(whole, name).null_count for name in self.result.needed)

    def _judged(
        self,
        table: pa.Table,
        which: np.ndarray[Any, np.dtype[np.intp]],
        known: Mapping[int, list[int]],
        keys: int,
    ) -> tuple[np.ndarray[Any, np.dtype[np.int64]], list[tuple[int, int]]]:
        """As ``_originals``; counts the late rows."""
        times, stamps = (table[name].to_numpy().astype(np.int64) for name in ("t", "w"))
        behind = times <= stamps
        if self.stage.clip is not None:
            interval = self.stage.clip.interval
            behind &= (interval.start <= times) & (times < interval.end)
        self.late += int(behind.sum())
        return self._originals(which, times, stamps, known, keys)

    def _named(self, table: pa.Table) -> tuple[list[bytes], np.ndarray[Any, np.dtype[np.intp]]]:
        """The identities of the keys of some rows, and the place among them of the key of each row."""
        columns = [table[key] for key in self.stage.keys]
        if len(columns) == 1 and not pa.types.is_nested(columns[0].type):
            encoded = pc.dictionary_encode(columns[0].combine_chunks(), null_encoding="encode")
            which, names_of_values = encoded.indices.to_numpy(), identities(encoded.dictionary.to_pylist())
        else:
            values = zip(*map(plain_keys, columns), strict=True) if columns else [()] * table.num_rows
            places = dict[Any, int]()
            which = np.array([places.setdefault(identity(key), len(places)) for key in values], dtype=np.intp)
            return list(places), which
        names = dict(zip(dict.fromkeys(names_of_values), range(len(names_of_values)), strict=False))
        if len(names) < len(names_of_values):  # values that are one: -0.0 and 0.0
            which = np.array([names[name] for name in names_of_values], dtype=np.intp)[which]
        return list(names), which.astype(np.intp)

    def _originals(
        self,
        which: np.ndarray[Any, np.dtype[np.intp]],
        times: Numbers,
        stamps: Numbers,
        known: Mapping[int, list[int]],
        keys: int,
    ) -> tuple[np.ndarray[Any, np.dtype[np.int64]], list[tuple[int, int]]]:
        """Positions of the rows that are no duplicates, and (key, mark) of the marks they set.

        Most rows are decided at once: duplicates of the only mark of their key, and then those that are alone with their key.
        """
        only, several = np.full(keys, NEVER, np.int64), np.zeros(keys, bool)
        for key, instants in known.items():
            only[key], several[key] = instants[0], len(instants) > 1
        mark = only[which]
        duplicate = (mark > stamps) & (times <= mark) & (mark - 2 * self.within <= times) & ~several[which]
        left = np.flatnonzero(~duplicate)
        alone = (np.bincount(which[left], minlength=keys) == 1) & ~several
        simple = alone[which[left]]
        uncovered, crowded = left[simple], left[~simple].tolist()
        own = np.clip(times[uncovered] + self.within, NEVER, END)
        lasting = own > stamps[uncovered]
        marked = list(zip(which[uncovered][lasting].tolist(), own[lasting].tolist(), strict=True))
        emitted, marks_by_key = [], dict[int, list[int]]()
        rows = zip(crowded, which[crowded].tolist(), times[crowded].tolist(), stamps[crowded].tolist(), strict=True)
        for position, key, time, stamp in rows:
            marks = marks_by_key.get(key)
            if marks is None:
                marks = marks_by_key[key] = list(known.get(key, ()))
            first = bisect_left(marks, max(time, stamp + 1))
            if first < len(marks) and marks[first] - 2 * self.within <= time:
                continue
            emitted.append(position)
            new = min(max(time + self.within, NEVER), END)
            if new > stamp:
                insort(marks, new)
                marked.append((key, new))
        return np.sort(np.concatenate([uncovered, np.array(emitted, dtype=np.int64)])), marked

    def _rows(self, table: pa.Table, whole: pa.StructArray, positions: np.ndarray[Any, np.dtype[np.int64]]) -> pa.Table:
        """The rows at some positions as rows of the result."""
        schema, chosen = self.result.schema, pa.array(positions)
        columns: dict[str, Any] = dict(
            zip(self.stage.step.keys, (table[k].take(chosen) for k in self.stage.keys), strict=True)
        )
        columns |= {name: pc.struct_field(whole, name).take(chosen) for name in self.result.names}
        columns |= {"_event_time": table["t"].take(chosen), "_watermark": table["w"].take(chosen)}
        columns["_kind"] = pa.array(np.full(len(positions), ROW))
        columns["_order"] = pa.array(np.arange(self.units, self.units + len(positions)))
        self.units += len(positions)
        return pa.table([columns[name] for name in schema.names], schema.names).cast(schema)

    def _lists(self) -> list[list[Any]]:
        return [*super()._lists(), self.columns]

    def _results(self) -> pa.Table:
        return self._with_columns(super()._results(), self.columns)


def _places(owners: Numbers) -> dict[int, list[int]]:
    """(owner of each place) -> owner -> its places, ascending."""
    places = dict[int, list[int]]()
    for number, owner in enumerate(owners.tolist()):
        places.setdefault(owner, []).append(number)
    return places


def marks_of(store: Store) -> Marks:
    """The marks of a group; entries that ``ProcessKernel`` has kept are made marks."""
    index = store.index()
    codec, *fields = (CODEC, {}, 0, [], (0, "", "")) if index is None else unpack(index)
    return Marks.of_index(store, tuple(fields)) if codec == CODEC else _taken(KeyGroup.open(store))


def _taken(entries: KeyGroup) -> Marks:
    """The marks of a group whose keys had entries, which are removed."""
    times_by_name = {}
    for entry in list(entries.due(NONE, NONE)):
        times_by_name[entry.name] = entry.value[3].get(_MARKS, ())
        entries.drop(entry)
    entries.close()
    pairs = [(name, time) for name, times in times_by_name.items() for time in times]
    marks = Marks.of_index(entries.store, (entries.extra, 0, [], (0, "", "")))
    marks.add(Rows.of([name for name, _ in pairs], [time for _, time in pairs]))
    return marks
