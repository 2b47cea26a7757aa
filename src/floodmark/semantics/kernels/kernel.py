"""The kernel of a windowed aggregation, in columns: one key group, or several at once.

A row is classified by its own stamp before the kernel (``columnar.pack``): its on-time windows get it as a partial, the windows it is late
for get it one by one, in arrival order. ``ColumnarWindowKernel.advance`` fires whatever progress has closed. That order is enough to be exact:
a row on time for a window by its stamp always arrives before progress reaches that window's end, and rows late for it only count after
its on-time pane. So results do not depend on how rows are cut into micro-batches.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from floodmark.core.time import END, NEVER
from floodmark.semantics.aggregates.accumulators import Partials
from floodmark.semantics.aggregates.numbers import Ints
from floodmark.semantics.encoding.columns import decode, encode
from floodmark.semantics.kernels.columnar import GROUP, Stage, by_group, signed
from floodmark.semantics.kernels.revisions import matching, revise
from floodmark.semantics.state.index import TOGETHER, Chunk, Index
from floodmark.semantics.state.store import Store
from floodmark.semantics.windows import extent
from floodmark.spec.keyed.metric import Part
from floodmark.spec.values.schema import ROW

_FOREVER = 1 << 60
"""Progress at the end of input: windows that end after the end of time fire too."""


@dataclass(frozen=True, slots=True)
class Tick:
    """A move of the processing clock, at a position among the rows.

    Args:
        clock: the new processing time, ms.
        sequence: the tick follows the row with this sequence, if rows are processed in order of arrival.
        progress: the tick follows rows with this effective time, if rows are sorted by effective time; timers up to it have fired.
    """

    clock: int
    sequence: int = NEVER
    progress: int = NEVER


@dataclass(frozen=True, slots=True)
class Emissions:
    """The result of one call of ``Kernels.advance_all``.

    Args:
        results: rows of ``result_schema``, those of one key group after those of another.
        late: rows that came late but still counted, per window, of all groups.
        deadlines: key group -> progress of its next timer; None if it has none.
    """

    results: pa.Table
    late: int
    deadlines: dict[int, int | None]


@dataclass(frozen=True, slots=True)
class Emission:
    """The result of one call of ``advance``.

    Args:
        results: rows of ``result_schema``.
        late: rows that came late but still counted, per window.
        deadline: progress of the group's next timer; None if it has none.
        tick: processing time of its next timer; None if it has none.
        dropped: (row, window) pairs that were dropped as too late, if the kernel itself classifies rows.
        side: rows dropped for all their windows, with their stamps, if the kernel itself classifies rows.
        failed: rows and panes the user's code failed for, as side rows.
        sides: output name -> rows of a side output, as ``results``; numbered together with these.
        metrics: metric of a process function -> what is observed of it.
    """

    results: pa.Table
    late: int
    deadline: int | None
    tick: int | None = None
    dropped: int = 0
    side: pa.Table | None = None
    failed: pa.Table | None = None
    sides: Mapping[str, pa.Table] = field(default_factory=dict)
    metrics: Mapping[str, Part] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Placed:
    """The slices of chunks of partials, one chunk's behind another's.

    Args:
        chunks: group and number of each chunk.
        starts: place of the first slice of each chunk.
        slices: starts of slices.
        from_ends: the first end that each slice is on time for.
    """

    chunks: list[tuple[int, int]]
    starts: list[int]
    slices: Ints
    from_ends: Ints

    @property
    def sizes(self) -> Ints:
        """The number of slices of each chunk."""
        bounds = np.array([*self.starts, len(self.slices)], dtype=np.int64)
        sizes: Ints = bounds[1:] - bounds[:-1]
        return sizes

    @property
    def owners(self) -> Ints:
        """The place in ``chunks`` of the chunk of each slice."""
        return np.repeat(np.arange(len(self.chunks), dtype=np.int64), self.sizes)


class Kernels:
    """Several key groups of one stage, each over a store of its own. They are computed together: the group is a column.

    Args:
        stage: what to compute.
        stores: key group -> store of its state.
    """

    def __init__(self, stage: Stage, stores: Mapping[int, Store]) -> None:
        self.stage, self.stores = stage, stores
        self.lateness = stage.step.allowed_lateness
        self.dims = [GROUP, *stage.keys, "end"]
        self._indexes: dict[int, Index] = {}

    def advance_all(self, parts: Sequence[Mapping[str, pa.Table]], progress: int) -> Emissions:
        """Add packed rows, then fire and free the windows that ``progress`` closes, in time order.

        Args:
            parts: tables of ``columnar.judged``, with the column ``group``, whose values all have a store.
            progress: all rows on time up to here are in.
        """
        self._indexes = {group: Index.load(store.index()) for group, store in self.stores.items()}
        if progress >= END:
            progress = _FOREVER
        out: list[pa.Table] = []
        fresh = [
            {n: _leading(t) for n, t in part.items() if n == "main" or n.startswith("bag")}
            for part in parts
            if "main" in part
        ]
        fired = self._fire(fresh, progress, out)
        self._keep_parts(fresh, progress)
        refired = self._refire([_leading(part["late"]) for part in parts if "late" in part], progress, fired, out)
        ends = self._next_ends(progress)
        deadlines = {group: self._closed(group, index, progress, ends) for group, index in self._indexes.items()}
        return Emissions(_numbered(self.stage, out), refired, deadlines)

    def revisable(self, progress: int) -> pa.Table:
        """The results of fired windows that a row behind ``progress`` may still revise, stamped with ``progress``, as ``Emissions.results``. Does not change the state."""
        self._indexes = {group: Index.load(store.index()) for group, store in self.stores.items()}
        windows = {
            (group, end): layers
            for group, index in self._indexes.items()
            for end, layers in index.fired.items()
            if end - 1 + self.lateness > progress
        }
        results = [layer["out"] for layer in self._layers(windows)]
        rows = [self._rows(one, np.full(one.num_rows, progress), np.full(one.num_rows, ROW)) for one in results]
        return _numbered(self.stage, rows)

    def _closed(self, group: int, index: Index, progress: int, next_ends: Mapping[int, int]) -> int | None:
        """Free state that a group no longer needs, and write its index; returns the progress of its next timer."""
        for end in [end for end in index.fired if end - 1 + self.lateness <= progress]:
            for number, _ in index.fired.pop(end):
                self.stores[group].remove(number)
        index.fired_to = progress
        waits = [end - 1 for ends in index.pending.values() for end in ends]
        waits += [end - 1 + self.lateness for end in index.fired]
        waits += [next_ends[group] - 1] if group in next_ends else []
        deadline = min((min(wait, END) for wait in waits), default=None)  # whatever is kept waits to be fired or freed
        self.stores[group].put_index(None if deadline is None else index.dump())
        return deadline

    def _next_ends(self, progress: int) -> dict[int, int]:
        """Group with chunks of partials -> the end of its next window."""
        placed = self._placed()
        if not placed.chunks:
            return {}
        ends = self.stage.assigner.next_end(placed.from_ends, np.full_like(placed.from_ends, progress + 2))
        least, by_group = np.minimum.reduceat(ends, placed.starts).tolist(), dict[int, int]()
        for (group, _), end in zip(placed.chunks, least, strict=True):
            by_group[group] = min(end, by_group.get(group, end))
        return by_group

    def _placed(self) -> _Placed:
        """The slices of the chunks of partials of all groups."""
        chunks, slices, from_ends, starts = list[tuple[int, int]](), list[int](), list[int](), list[int]()
        for group, index in self._indexes.items():
            for number, chunk in index.parts.items():
                chunks.append((group, number))
                starts.append(len(slices))
                slices += chunk.slices
                from_ends += chunk.from_ends
        return _Placed(chunks, starts, np.array(slices, dtype=np.int64), np.array(from_ends, dtype=np.int64))

    # ---- chunks

    def _put(self, group: int, tables: dict[str, pa.Table]) -> int:
        index = self._indexes[group]
        number, index.next = index.next, index.next + 1
        self.stores[group].put(number, encode(tables))
        return number

    def _read(self, chunks: Sequence[tuple[int, int]]) -> Partials:
        """(group and number of chunks) -> their tables, concatenated per name, with the column ``group``."""
        tables: dict[str, list[pa.Table]] = {}
        for group, number in chunks:
            for name, table in decode(self.stores[group].get(number)).items():
                tables.setdefault(name, []).append(table)
        groups = [group for group, _ in chunks]
        return {name: _with_groups(groups, found) for name, found in tables.items()}

    def _remove(self, chunks: Iterable[tuple[int, int]]) -> None:
        for group, number in chunks:
            self.stores[group].remove(number)

    # ---- on-time panes

    def _fire(self, fresh: list[Partials], progress: int, out: list[pa.Table]) -> Partials | None:
        """Emit on-time panes with end - 1 <= progress. Returns their partials if late rows may still revise them."""
        upto = progress + 1
        due = self._due(upto)
        parts = [self._expanded(part, upto) for part in ([self._read(due)] if due else []) + fresh]
        parts = [part for part in parts if part["main"].num_rows]
        if not parts:
            return None
        merged = self.stage.accumulators.merge(parts, self.dims)
        results = self.stage.accumulators.finish(merged, self.dims)
        results = results.take(pc.sort_indices(results["end"]))
        out.append(self._rows(results, None, np.full(results.num_rows, ROW)))
        return merged | {"out": results.drop_columns(["n"])} if self.lateness else None

    def _due(self, upto: int) -> list[tuple[int, int]]:
        """The chunks of partials, by group and number, that have a part of a window which has not fired and ends up to ``upto``."""
        placed = self._placed()
        if not placed.chunks:
            return []
        fired_to = np.array([self._indexes[group].fired_to + 1 for group, _ in placed.chunks], dtype=np.int64)
        after = np.repeat(fired_to, placed.sizes)
        rows, ends = self.stage.assigner.expand(placed.slices, placed.from_ends, int(fired_to.min()), upto)
        due = np.bincount(placed.owners[rows[ends > after[rows]]], minlength=len(placed.chunks))
        return [placed.chunks[number] for number in np.flatnonzero(due).tolist()]

    def _expanded(self, tables: Partials, upto: int) -> Partials:
        """Partials by slice -> partials by window, for the windows that have not fired and end up to ``upto``."""
        fired_to = {group: index.fired_to + 1 for group, index in self._indexes.items()}
        by_window = {}
        for name, table in tables.items():
            slices, from_ends = (table[column].to_numpy().astype(np.int64) for column in ("slice", "from_end"))
            rows, ends = self.stage.assigner.expand(slices, from_ends, min(fired_to.values()), upto)
            after = np.array([fired_to[group] for group in table[GROUP].to_pylist()], dtype=np.int64)
            left = ends > after[rows]
            placed = table.drop_columns(["slice", "from_end"]).take(pa.array(rows[left]))
            by_window[name] = placed.add_column(len(self.stage.keys) + 1, "end", pa.array(ends[left]))
        return by_window

    def _keep_parts(self, fresh: list[Partials], progress: int) -> None:
        """Store the partials of windows that have not fired, in chunks of falling size: merging is geometric."""
        dims = [GROUP, *self.stage.keys, "slice", "from_end"]
        self._shorten(progress)
        parts = [alive for part in fresh if (alive := self._alive(part, progress))["main"].num_rows]
        if not parts:
            return
        part = self.stage.accumulators.merge(parts, dims) if len(parts) > 1 else parts[0]
        while older := list(self._smaller(_sizes(part["main"]))):
            old = self._alive(self._read(older), progress)
            part = self.stage.accumulators.merge([old, part], dims)
            self._remove(older)
            for group, number in older:
                del self._indexes[group].parts[number]
        for group, tables in _split(part).items():
            main = tables["main"]
            pairs = dict.fromkeys(zip(main["slice"].to_pylist(), main["from_end"].to_pylist(), strict=True))
            chunk = Chunk(main.num_rows, [pair[0] for pair in pairs], [pair[1] for pair in pairs])
            self._indexes[group].parts[self._put(group, tables)] = chunk

    def _shorten(self, progress: int) -> None:
        """Free the chunks whose windows have all fired, and forget the slices of others whose windows have."""
        placed = self._placed()
        live = self._live(placed.slices, progress)
        if live.all():
            return
        left = np.bincount(placed.owners, weights=live, minlength=len(placed.chunks))
        for number in np.flatnonzero(left < placed.sizes).tolist():
            group, name = placed.chunks[number]
            chunk, start = self._indexes[group].parts[name], placed.starts[number]
            if not left[number]:
                self.stores[group].remove(name)
                del self._indexes[group].parts[name]
            else:
                alive = live[start : start + len(chunk.slices)]
                chunk.slices = np.array(chunk.slices)[alive].tolist()
                chunk.from_ends = np.array(chunk.from_ends)[alive].tolist()

    def _smaller(self, sizes: Mapping[int, int]) -> Iterator[tuple[int, int]]:
        """(group, number) of each group's newest chunk, if it has fewer than twice as many rows as ``sizes`` says."""
        for group, size in sizes.items():
            parts = self._indexes[group].parts
            newest = max(parts, default=None)
            if newest is not None and parts[newest].rows < 2 * size:
                yield group, newest

    def _alive(self, part: Partials, progress: int) -> Partials:
        return {n: t.filter(pa.array(self._live(t["slice"].to_numpy(), progress))) for n, t in part.items()}

    def _live(self, slices: Any, progress: int) -> Any:
        """(slice starts) -> whether the slice is in a window that has not fired."""
        starts = np.asarray(slices, dtype=np.int64)
        return self.stage.assigner.last_end(starts) - 1 > progress if len(starts) else np.zeros(0, dtype=bool)

    # ---- late rows

    def _refire(self, late: list[pa.Table], progress: int, fired: Partials | None, out: list[pa.Table]) -> int:
        """Emit a pane for each late row of a fired window, in order of arrival. Late rows of windows that have not fired wait. Returns the number of refires."""
        due = [
            (group, number)
            for group, index in self._indexes.items()
            for number, ends in index.pending.items()
            if min(ends) - 1 <= progress
        ]
        rows = [*([self._read(due)["late"]] if due else []), *late]
        self._remove(due)
        for group, number in due:
            self._indexes[group].forget(number)
        states, refired, ready = [fired] if fired else [], 0, None
        if rows:
            table = pa.concat_tables(rows)
            closed = pc.less_equal(pc.subtract(table["end"], 1), progress)
            waiting, ready = table.filter(pc.invert(closed)), table.filter(closed)
            for group, tables in by_group({"late": waiting}).items():
                # late by their stamp, but the window has not fired yet
                self._wait(group, tables["late"])
            refired = ready.num_rows
            stacks = {(group, end): self._indexes[group].fired.get(end, ()) for group, end in _windows(ready)}
            states += self._layers(stacks, ready)
        state = {n: pa.concat_tables([s[n] for s in states]) for n in states[0]} if states else None
        if ready is not None and refired:
            state = self._revised(state, ready, out)
        if state is not None:
            self._keep_fired(state, progress)
        return refired

    def _wait(self, group: int, rows: pa.Table) -> None:
        """Store waiting late rows, merged with the newest small chunks, so that chunks are of falling size."""
        index = self._indexes[group]
        while index.pending and (size := index.waiting.get(newest := max(index.pending), 0)) < 2 * rows.num_rows:
            if size + rows.num_rows > TOGETHER:
                break
            rows = pa.concat_tables([decode(self.stores[group].get(newest))["late"], rows])
            self.stores[group].remove(newest)
            index.forget(newest)
        number = self._put(group, {"late": rows.combine_chunks()})
        index.pending[number], index.waiting[number] = pc.unique(rows["end"]).to_pylist(), rows.num_rows

    def _revised(self, state: Partials | None, rows: pa.Table, out: list[pa.Table]) -> Partials:
        """Emit a revision for each late row. Returns the state after the last one."""
        revisions = revise(self.stage.accumulators, state, signed(rows), self.dims)
        sent = self._rows(revisions.results, revisions.stamps, revisions.kinds)
        out.append(sent.set_column(sent.num_columns - 1, "_order", pa.array(revisions.follows)))
        return revisions.state

    def _layers(
        self, windows: Mapping[tuple[int, int], Sequence[Sequence[int]]], rows: pa.Table | None = None
    ) -> Iterator[Partials]:
        """The stored partials of fired windows: the newest layer of each window, then the layer before, without keys of newer layers.

        Args:
            windows: group and end -> its layers.
            rows: only keys of these rows; None for all keys.
        """
        stacks = {window: list(layers) for window, layers in windows.items()}
        newer: list[pa.Table] = []
        while top := [(group, layers.pop()[0]) for (group, _), layers in stacks.items() if layers]:
            part = self._read(top)
            if rows is not None:
                part = {name: table.filter(matching(table, rows, self.dims)) for name, table in part.items()}
            for main in newer:
                part = self._without(part, main)
            newer.append(part["main"])
            yield part

    def _without(self, part: Partials, newer: pa.Table) -> Partials:
        return {name: table.filter(pc.invert(matching(table, newer, self.dims))) for name, table in part.items()}

    def _keep_fired(self, state: Partials, progress: int) -> None:
        """Store partials that late rows may still revise, as the newest layer of their window. Layers are of falling size: merging is geometric."""
        last = progress + 1 - self.lateness
        part = {name: table.filter(pc.greater(table["end"], last)) for name, table in state.items()}
        while older := list(self._thinner(_windows(part["main"]))):
            old = self._without(self._read(older), part["main"])
            part = {name: pa.concat_tables([old[name], table]) for name, table in part.items()}
            self._remove(older)
        for group, tables in _split(part).items():
            ends = pc.unique(tables["main"]["end"]).to_pylist()
            for end in ends:
                window = {n: t.filter(pc.equal(t["end"], end)) for n, t in tables.items()} if len(ends) > 1 else tables
                layer = [self._put(group, window), window["main"].num_rows]
                self._indexes[group].fired.setdefault(end, []).append(layer)

    def _thinner(self, sizes: Mapping[tuple[int, int], int]) -> Iterator[tuple[int, int]]:
        """(group, number) of each window's newest layer, if it has fewer than twice as many keys as ``sizes`` says; removes it from the index."""
        for (group, end), size in sizes.items():
            layers = self._indexes[group].fired.get(end)
            if layers and layers[-1][1] < 2 * size:
                yield group, layers.pop()[0]

    # ---- rows out

    def _rows(self, results: pa.Table, stamps: Ints | None, kinds: Ints) -> pa.Table:
        """Results as rows of the output, with their group in front. ``stamps`` None: of on-time panes. ``_order`` is set later."""
        schema, step, size = self.stage.result_schema, self.stage.step, results.num_rows
        columns: dict[str, Any] = {name: results[f"k{i}"] for i, name in enumerate(step.keys)}
        times = extent.event_times(results["end"].to_numpy())
        if "window_end" in schema.names:
            ends, which = np.unique(results["end"].to_numpy(), return_inverse=True)
            starts = np.array([self.stage.assigner.start(int(end)) for end in ends], dtype=np.int64)
            columns["window_start"] = extent.bounds(starts[which] if size else starts)
            columns["window_end"] = extent.bounds(results["end"].to_numpy())
        columns |= {m.name: results[f"r{i}"] for i, m in enumerate(self.stage.accumulators.measures)}
        columns["_event_time"] = pa.array(times, pa.int64())
        columns["_watermark"] = pa.array(times - 1 if stamps is None else stamps, pa.int64())
        columns["_kind"] = pa.array(kinds, pa.int32())
        columns["_order"] = pa.array(np.zeros(size, dtype=np.int64))
        rows = pa.table([columns[name] for name in schema.names], schema=schema)
        return rows.add_column(0, pa.field(GROUP, pa.int32()), results[GROUP])


class ColumnarWindowKernel(Kernels):
    """One key group of one stage, over a store.

    Args:
        stage: what to compute.
        store: of its state.
    """

    def __init__(self, stage: Stage, store: Store) -> None:
        super().__init__(stage, {0: store})
        self.store = store

    def advance(
        self,
        packed: Sequence[dict[str, pa.Table]],
        progress: int,
        ticks: Sequence[Tick] = (),  # noqa: ARG002 - nothing here looks at the clock
        reached: int = NEVER,  # noqa: ARG002 - what fires fires once
    ) -> Emission:
        """As ``advance_all``.

        Args:
            packed: parts from ``pack`` for this group, in any order.
            progress: all rows on time up to here are in.
            ticks: of the processing clock.
            reached: progress before the input ended.
        """
        parts = [{name: _with_groups([0], [table]) for name, table in part.items()} for part in packed]
        emissions = self.advance_all(parts, progress)
        return Emission(emissions.results, emissions.late, emissions.deadlines[0])


def _with_groups(groups: Sequence[int], tables: Sequence[pa.Table]) -> pa.Table:
    """Tables as one, with the group of each as the first column."""
    whole = pa.concat_tables(tables).combine_chunks()
    column = np.repeat(np.array(groups, dtype=np.int32), [table.num_rows for table in tables])
    return whole.add_column(0, pa.field(GROUP, pa.int32()), pa.array(column))


def _leading(table: pa.Table) -> pa.Table:
    """The table with the group as its first column."""
    return table.drop_columns([GROUP]).add_column(0, pa.field(GROUP, pa.int32()), table[GROUP].cast(pa.int32()))


def _split(part: Partials) -> dict[int, Partials]:
    """Group -> its tables, with all names, without the column ``group``."""
    nothing = {name: table.slice(0, 0).drop_columns([GROUP]) for name, table in part.items()}
    return {group: nothing | tables for group, tables in by_group(part).items()}


def _sizes(main: pa.Table) -> dict[int, int]:
    """Group -> number of rows."""
    groups, counts = np.unique(main[GROUP].to_numpy(), return_counts=True)
    return dict(zip(groups.tolist(), counts.tolist(), strict=True))


def _windows(rows: pa.Table) -> dict[tuple[int, int], int]:
    """(group, end) of each window -> number of rows."""
    counts = rows.group_by([GROUP, "end"], use_threads=False).aggregate([([], "count_all")])
    keys = zip(counts[GROUP].to_pylist(), counts["end"].to_pylist(), strict=True)
    return dict(zip(keys, counts["count_all"].to_pylist(), strict=True))


def _numbered(stage: Stage, out: Sequence[pa.Table]) -> pa.Table:
    """Result rows, group by group, numbered in ``_order``; the second row of a pair (marked -1) has the number of the first."""
    if not out:
        return stage.result_schema.empty_table()
    results = pa.concat_tables(out)
    results = results.take(pc.sort_indices(results.column(0))).remove_column(0)  # a result may have a ``group`` too
    marks = results["_order"].to_numpy()
    order = np.cumsum(marks == 0) - 1
    return results.set_column(results.num_columns - 1, "_order", pa.array(order.astype(np.int64)))
