"""The kernel of rolling aggregates over rows that are never retracted: the same as ``RecordWindowKernel``, with all rows of a call in columns.

After each row its key's result before is retracted and the new one emitted. State and results are those of ``RecordWindowKernel``, and either reads
what the other has kept. Each key's state is read and written once per call, whatever the number of its rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from floodmark.semantics.aggregates.numbers import Ints, of_key, row_codes
from floodmark.semantics.aggregates.prefixes import Column, Prefixes, Segments, form_of
from floodmark.semantics.encoding.columns import python_values
from floodmark.semantics.kernels.arrivals import Arrivals
from floodmark.semantics.kernels.elements import ElementStage
from floodmark.semantics.kernels.kernel import Emission, Tick
from floodmark.semantics.kernels.keyed import column
from floodmark.semantics.kernels.panes import KeyWindows, OpenWindow, RecordWindowKernel
from floodmark.semantics.state.entries import KeyGroup
from floodmark.semantics.state.store import Store
from floodmark.semantics.time.ordering import Spans
from floodmark.spec.values.schema import RETRACTION, ROW

_FEW = 50
"""Rows of a key group of which a call by columns costs as much as one by row."""


def grows(stage: ElementStage) -> bool:
    """Whether a stage is a rolling aggregate, built in, over rows that are never retracted."""
    step = stage.step
    special = stage.revisable or step.on_error == "quarantine" or step.own_aggregates
    return step.rolling and step.revises and not special


@dataclass(frozen=True, slots=True)
class _Grown:
    """Rows, key by key, and the results of each aggregate."""

    rows: pa.Table
    segments: Segments
    results: Sequence[Prefixes]


class GrowingKernel(RecordWindowKernel):
    """Rolling aggregates of the keys of one group, for a stage that ``grows``."""

    def __init__(self, stage: ElementStage, store: Store) -> None:
        self.columns: list[pa.Table] = []
        super().__init__(stage, store)

    def _at_once(
        self, arrivals: Arrivals, spans: Spans, stores: Mapping[int, Store], opened: Mapping[int, KeyGroup | None]
    ) -> dict[int, dict[str, Any]] | None:
        states = self._all_open(arrivals, spans, stores, opened)
        key_states = self._keys_of(arrivals, spans, states)
        return states if self._grown(arrivals, 0, arrivals.table.num_rows, key_states) else None

    def _rows_and_ticks(self, arrivals: Arrivals, start: int, stop: int, moves: list[tuple[int, Tick]]) -> None:
        if not moves and stop - start > _FEW:
            self._expect(arrivals, start, stop)
            key_states = {key: self._key(key) for key in dict.fromkeys(arrivals.keys[start:stop])}
            if self._grown(arrivals, start, stop, key_states):
                self.arrived += stop - start
                return
        super()._rows_and_ticks(arrivals, start, stop, moves)

    def whole(self, packed: Sequence[dict[str, pa.Table]]) -> Emission | None:
        """As ``advance`` for all rows of a key group at once, to the end of input: no state is read or written; None if the rows need it.

        Args:
            packed: as of ``advance``.
        """
        arrivals = self._all_rows(packed)
        if arrivals is None:
            return None
        table, self.keys = arrivals.table, {}
        with self._undisturbed():
            self._restart()
            which = row_codes([table[key] for key in self.stage.keys], np.zeros(table.num_rows, np.int64))
            keys = int(which.max()) + 1
            nothing = self.contents.nothing
            contents = [nothing()] * keys if self._in_columns(table) else [nothing() for _ in range(keys)]
            grown = self._grow(table, which, [None] * keys, contents)
            return None if grown is None else self._emission([], {}, None, None)

    def _in_columns(self, table: pa.Table) -> bool:
        """Whether all aggregates are computed in columns, which change no state that they read."""
        kinds = [[None if p is None else table[f"v{p}"].type for p in places] for _, *places in self.contents.measures]
        return all(
            form_of(aggregate, *own) is not None
            for (_, aggregate), own in zip(self.step.aggregates, kinds, strict=True)
        )

    def _grow(
        self,
        table: pa.Table,
        which: Ints,
        windows: Sequence[OpenWindow | None],
        contents: Sequence[Sequence[Any]],
    ) -> _Grown | None:
        """Emit the results of rows; None, and nothing is emitted, if some number may overflow.

        Args:
            table: the rows, in order of arrival.
            which: number of the key of each row.
            windows: of each key.
            contents: accumulators of each key.
        """
        order = np.argsort(which, kind="stable")
        segments = Segments(which[order], np.searchsorted(which[order], np.arange(len(windows))))
        rows = table.take(pa.array(order))
        results = self._measured(rows, segments, contents, order)
        if results is None:
            return None
        versions, known = self._versions(rows, windows, [made.results for made in results])
        self._send(table, segments, order, versions, known)
        return _Grown(rows, segments, results)

    def _grown(self, arrivals: Arrivals, start: int, stop: int, key_states: Mapping[Any, KeyWindows]) -> bool:
        """Process rows of these keys, and emit; False, and nothing has changed, if some number may overflow."""
        numbers = {key: number for number, key in enumerate(key_states)}
        which = np.fromiter((numbers[key] for key in arrivals.keys[start:stop]), np.int64, stop - start)
        windows = [key_state.windows[0] if key_state.windows else None for key_state in key_states.values()]
        contents = [self.contents.nothing() if window is None else window.contents for window in windows]
        made_all = self._grow(arrivals.table.slice(start, stop - start), which, windows, contents)
        if made_all is None:
            return False
        grown, segments, results = made_all.rows, made_all.segments, made_all.results
        last = pa.array(segments.last)
        lasts = [python_values(made.results.take(last)) if made.last is None else made.last for made in results]
        after = [made.states(values) for made, values in zip(results, lasts, strict=True)]
        states = list(map(list, zip(*after, strict=True))) if after else [[] for _ in windows]
        stamps, times = (grown[name].take(last).to_pylist() for name in ("w", "t"))
        counts = np.diff(np.r_[segments.first, stop - start]).tolist()
        emitted = zip(*lasts, times, strict=True)
        for key_state, window, state, stamp, row, count in zip(
            key_states.values(), windows, states, stamps, emitted, counts, strict=True
        ):
            self._put(key_state, window, state, count).emitted = [(*key_state.entry.key, *row)]
            key_state.stamp = stamp
            self._wait(key_state)
        return True

    def _put(self, key_state: KeyWindows, window: OpenWindow | None, contents: list[Any], count: int) -> OpenWindow:
        """The window of a key with new contents, after so many rows more."""
        if window is None:
            window = OpenWindow(None, None, contents, self.machine.begin())
            key_state.windows.append(window)
        window.contents, window.fresh = contents, 0
        window.held, window.index = window.held + count, window.index + count
        return window

    def _measured(
        self, grown: pa.Table, segments: Segments, contents: Sequence[Sequence[Any]], order: Any
    ) -> list[Prefixes] | None:
        """The results of each aggregate; None if some number may overflow."""
        measured: list[Prefixes | None] = []
        for number, ((_, aggregate), (_, value, by)) in enumerate(
            zip(self.step.aggregates, self.contents.measures, strict=True)
        ):
            own, chosen = (None if place is None else Column(place, grown[f"v{place}"]) for place in (value, by))
            form, made = (
                form_of(aggregate, *(None if read is None else read.values.type for read in (own, chosen))),
                None,
            )
            if form is not None:
                made = form(segments, own, chosen, [held[number] for held in contents])
                if made is None:
                    return None
            measured.append(made)
        left = [number for number, made in enumerate(measured) if made is None]
        by_row = dict(zip(left, self._by_row(grown, segments, contents, order, left), strict=True)) if left else {}
        return [by_row[number] if made is None else made for number, made in enumerate(measured)]

    def _by_row(
        self, grown: pa.Table, segments: Segments, contents: Sequence[Sequence[Any]], order: Any, left: Sequence[int]
    ) -> Iterator[Prefixes]:
        """The results of some aggregates, by their folds, row by row in order of arrival."""
        schema, keys = self.stage.result_schema, self.step.keys
        forms = [self.contents.measures[number] for number in left]
        places = {place for _, value, by in forms for place in (value, by) if place is not None}
        values = {place: grown[f"v{place}"].to_pylist() for place in places} | {None: [None] * grown.num_rows}
        key_rows = list(zip(*(grown[key].to_pylist() for key in self.stage.keys), strict=True))
        states = [[held[number] for number in left] for held in contents]
        results: list[list[Any]] = [[None] * grown.num_rows for _ in left]
        of_row = segments.of_row.tolist()
        for position in np.argsort(order).tolist():
            state = states[of_row[position]]
            for j, (form, value, by) in enumerate(forms):
                state[j] = form.add(state[j], values[value][position], values[by][position])
            with of_key(dict(zip(keys, key_rows[position] if keys else (), strict=True))):
                for j, (form, _, _) in enumerate(forms):
                    results[j][position] = form.result(state[j])
        for j, number in enumerate(left):
            made = column(results[j], schema.field(self.step.aggregates[number][0]))
            after = [state[j] for state in states]
            yield Prefixes(made, partial(_always, after), [results[j][place] for place in segments.last.tolist()])

    def _versions(
        self, grown: pa.Table, windows: Sequence[OpenWindow | None], results: Sequence[pa.Array]
    ) -> tuple[pa.Table, list[bool]]:
        """The results that keys had before, then those of each row, with their event times; which keys had one."""
        known = [window is not None and bool(window.emitted) for window in windows]
        before = [row for window in windows if window is not None for row in window.emitted]
        names = [*self.step.keys, *(name for name, _ in self.step.aggregates), "_event_time"]
        rows = [*(grown[key] for key in self.stage.keys), *results, grown["t"]]
        schema, columns = self.stage.result_schema, []
        for name, old, new in zip(names, zip(*before, strict=True) if before else [()] * len(names), rows, strict=True):
            field = schema.field(name)
            chunks = new.cast(field.type)
            chunks = chunks.chunks if isinstance(chunks, pa.ChunkedArray) else [chunks]
            columns.append(pa.concat_arrays([column(old, field), *chunks]))
        return pa.table(columns, names), known

    def _send(self, table: pa.Table, segments: Segments, order: Any, versions: pa.Table, known: Sequence[bool]) -> None:
        """Emit, for each row in order of arrival, the retraction of its key's result before and the new result."""
        size, had = len(order), sum(known)
        before = np.arange(size) + had - 1
        before[segments.first] = np.where(known, np.cumsum(known) - 1, -1)
        ranks = np.argsort(order)  # of each row, in order of arrival
        pairs = np.stack([before[ranks], ranks + had], axis=1).ravel()
        kinds, units = np.tile(np.array([RETRACTION, ROW], np.int32), size), np.repeat(np.arange(size), 2) + self.units
        there = np.flatnonzero(pairs >= 0)
        stamps = np.repeat(table["w"].to_numpy(), 2)
        emitted = versions.take(pa.array(pairs[there]))
        parts = {"_watermark": stamps, "_kind": kinds, "_order": units}
        for name, values in parts.items():
            emitted = emitted.append_column(name, pa.array(values[there]))
        self.columns.append(emitted.select(self.stage.result_schema.names).cast(self.stage.result_schema))
        self.units += size

    def _lists(self) -> list[list[Any]]:
        return [*super()._lists(), self.columns]

    def _results(self) -> pa.Table:
        return self._with_columns(super()._results(), self.columns)


def _always(states: list[Any], last: list[Any]) -> list[Any]:  # noqa: ARG001 - as of Prefixes
    return states
