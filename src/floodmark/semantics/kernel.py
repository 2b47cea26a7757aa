"""The kernel of a windowed aggregation: one key group, in columns.

A row is judged by its own stamp before it comes here (``pack``): its on-time windows get it as a partial, the windows it is late for
get it one by one, in arrival order. ``Kernel.advance`` fires whatever progress has closed. That order is enough to be exact:
a row on time for a window by its stamp always arrives before progress reaches that window's end, and rows late for it only count after
its on-time pane. So nothing here depends on how rows are cut into micro-batches.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from floodmark.core.time import END, NEVER
from floodmark.semantics.aggregates.accumulators import Accumulators, Partials, Value, normalised
from floodmark.semantics.aggregates.numbers import Ints
from floodmark.semantics.assignment import assigner, judge
from floodmark.semantics.columns import decode, encode, result_schema
from floodmark.semantics.failures import split
from floodmark.semantics.revisions import matching, revise
from floodmark.semantics.store import Store
from floodmark.semantics.windows import extent
from floodmark.semantics.windows.kinds import Assigner
from floodmark.spec.schema import MARKER, RETRACTION, ROW
from floodmark.spec.steps import WindowAggregate
from floodmark.spec.windows import Calendar, Global, Sliding, Tumbling


@dataclass(frozen=True, slots=True)
class Stage:
    """A stateful step, ready to compute. Frozen and picklable: it travels to the workers.

    Row columns, in and between the parts: ``k0...`` keys, ``t`` event time, ``w`` stamp, ``s`` sequence, ``kind``, ``v0...`` values,
    ``side`` the whole row where it may be too late.
    """

    step: WindowAggregate
    accumulators: Accumulators

    @staticmethod
    def of(step: WindowAggregate, *, revisable: bool) -> Stage:
        """The stage of a step whose input is or is not revisable."""
        return Stage(step, Accumulators.of(step, revisable=revisable))

    @property
    def keys(self) -> tuple[str, ...]:
        """Internal names of the key columns."""
        return tuple(f"k{i}" for i in range(len(self.step.keys)))

    @property
    def assigner(self) -> Assigner:
        """The window arithmetic."""
        window = self.step.window
        assert isinstance(window, (Tumbling, Sliding, Calendar, Global))  # see WindowAggregate.columnar
        return assigner(window)

    @property
    def values(self) -> tuple[Value, ...]:
        """What is computed from each row beforehand."""
        return self.accumulators.values

    @property
    def whole_rows(self) -> bool:
        """No function of the user sees the rows."""
        return False

    def pack(self, batches: Iterable[pa.RecordBatch]) -> dict[int, dict[str, pa.Table]]:
        """See ``pack``."""
        return pack(self, batches)

    @property
    def result_schema(self) -> pa.Schema:
        """What ``advance`` emits: the step's columns, then ``_event_time`` and ``_watermark`` in ms, ``_kind``, ``_order``."""
        return result_schema(self.step.schema)


# ---- before the shuffle


def pack(stage: Stage, batches: Iterable[pa.RecordBatch]) -> dict[int, dict[str, pa.Table]]:
    """Judge and pre-aggregate rows; key group -> named tables.

    Args:
        stage: of the step.
        batches: with ``group`` and the row columns of ``Stage``; markers are passed over (they only move time).

    Returns:
        Per group any of ``main``/``bagN`` (on-time partials by ``slice`` and ``from_end``), ``late`` (one row per late window),
        ``side`` (rows dropped for all their windows), ``dropped`` (``end``, ``n``) and ``failed`` (rows set aside before they came here).
    """
    step, dims = stage.step, ["group", *stage.keys, "slice", "from_end"]
    parts: list[Partials] = []
    kept: dict[str, list[pa.Table]] = {"late": [], "side": [], "dropped": [], "failed": []}
    for batch in batches:
        rows, failed = split(pa.Table.from_batches([batch]))
        kept["failed"] += failed
        rows = normalised(rows.filter(pc.not_equal(rows["kind"], MARKER)), stage.keys)
        if rows.num_rows == 0:
            continue
        times, stamps = rows["t"].to_numpy().astype(np.int64), rows["w"].to_numpy().astype(np.int64)
        verdict = judge(stage.assigner, step.allowed_lateness, times, stamps)
        placed = rows.append_column("slice", pa.array(verdict.slices)).append_column(
            "from_end", pa.array(verdict.from_end)
        )
        placed = _signed(placed.filter(pa.array(verdict.on_time)))
        if placed.num_rows:
            parts.append(stage.accumulators.partials(placed, dims))
        if len(verdict.late):
            late = rows.take(pa.array(verdict.late)).append_column("end", pa.array(verdict.late_end))
            kept["late"].append(late.drop_columns([n for n in ("side",) if n in late.column_names]))
        if len(verdict.dropped):
            lost = (
                rows.take(pa.array(verdict.dropped))
                .select(["group", "kind"])
                .append_column("end", pa.array(verdict.dropped_end))
            )
            once = pc.cast(pc.equal(lost["kind"], ROW), pa.int64())  # a retraction pair is one
            kept["dropped"].append(lost.drop_columns(["kind"]).append_column("n", once))
        if step.late == "side_output" and verdict.side.any():
            kept["side"].append(rows.filter(pa.array(verdict.side)).select(["group", "t", "w", "s", "kind", "side"]))
        if len(parts) > _MERGE_EVERY:
            parts = [stage.accumulators.merge(parts, dims)]
    tables = {name: pa.concat_tables(found) for name, found in kept.items() if found}
    if "dropped" in tables:
        counts = tables["dropped"].group_by(["group", "end"], use_threads=False).aggregate([("n", "sum")])
        tables["dropped"] = counts.select(["group", "end", "n_sum"]).rename_columns(["group", "end", "n"])
    if parts:
        tables |= stage.accumulators.merge(parts, dims) if len(parts) > 1 else parts[0]
    return by_group(tables)


_MERGE_EVERY = 16


def _signed(rows: pa.Table) -> pa.Table:
    """Retractions count -1, rows 1."""
    return rows.append_column("sign", pc.if_else(pc.equal(rows["kind"], RETRACTION), -1, 1).cast(pa.int64()))


def by_group(tables: dict[str, pa.Table]) -> dict[int, dict[str, pa.Table]]:
    """Named tables with a column ``group`` -> the named parts of each group."""
    found: dict[int, dict[str, pa.Table]] = {}
    for name, table in tables.items():
        ordered = table.take(pc.sort_indices(table["group"])) if table.num_rows else table
        groups = ordered["group"].to_numpy()
        bounds = np.flatnonzero(np.r_[True, groups[1:] != groups[:-1], True]).tolist() if len(groups) else []
        ordered = ordered.drop_columns(["group"])
        for start, stop in itertools.pairwise(bounds):
            found.setdefault(int(groups[start]), {})[name] = ordered.slice(start, stop - start)
    bags = {n: t.slice(0, 0).drop_columns(["group"]) for n, t in tables.items() if n.startswith("bag")}
    return {group: (bags | part if "main" in part else part) for group, part in found.items()}


# ---- after it

_FOREVER = 1 << 60
"""Progress once there is an end of input: windows that end behind the end of time come out too."""


@dataclass(slots=True)
class _Chunk:
    """A chunk of partials: how many rows, and the slices in it with the first end each is on time for."""

    rows: int
    slices: list[int]
    from_ends: list[int]


_MANY = 1 << 40
"""Keys in a layer that does not say how many."""


@dataclass(slots=True)
class _Index:
    """What a group holds, by chunk number.

    Args:
        parts: chunks of on-time partials.
        pending: chunks of late rows whose windows have not fired -> those windows' ends.
        fired: end of a window that has fired and may refire -> its layers, [chunk, keys] each; what a newer one has of a key replaces
            what older ones have.
        fired_to: progress of the last firing.
        next: chunk number.
    """

    parts: dict[int, _Chunk] = field(default_factory=dict)
    pending: dict[int, list[int]] = field(default_factory=dict)
    fired: dict[int, list[list[int]]] = field(default_factory=dict)
    fired_to: int = NEVER - 1
    next: int = 0

    @staticmethod
    def load(text: bytes | None) -> _Index:
        if text is None:
            return _Index()
        raw = json.loads(bytes(text))
        pending, fired = ({int(n): v for n, v in raw[k].items()} for k in ("pending", "fired"))
        parts = {int(n): _Chunk(*chunk) for n, chunk in raw["parts"].items()}
        # an older release has kept each window in one chunk
        fired = {end: [[layers, _MANY]] if isinstance(layers, int) else layers for end, layers in fired.items()}
        return _Index(parts, pending, fired, raw["fired_to"], raw["next"])

    def dump(self) -> bytes:
        parts = {n: [c.rows, c.slices, c.from_ends] for n, c in self.parts.items()}
        rest = {"pending": self.pending, "fired": self.fired, "fired_to": self.fired_to, "next": self.next}
        return json.dumps({"parts": parts, **rest}, separators=(",", ":")).encode()


@dataclass(frozen=True, slots=True)
class Tick:
    """The processing clock moves, at a place among the rows.

    Args:
        clock: to here, ms.
        sequence: after the row with this sequence, where rows come as they arrive.
        progress: after the rows with this effective time, where they come sorted by it; timers up to here have fired.
    """

    clock: int
    sequence: int = NEVER
    progress: int = NEVER


@dataclass(frozen=True, slots=True)
class Emission:
    """What one call of ``advance`` sends out.

    Args:
        results: rows of ``result_schema``.
        late: rows that came late but still counted, per window.
        deadline: progress at which this group has something to do again; None when nothing waits for it.
        tick: processing time at which it has; None when nothing waits for it.
        dropped: rows that came too late, per window; where the kernel judges them itself.
        side: rows dropped for all their windows, with their stamps; where the kernel judges them itself.
        failed: rows and panes the user's code failed for, as side rows.
        sides: rows for outputs beside the result, by name, as ``results``; they share its numbering.
    """

    results: pa.Table
    late: int
    deadline: int | None
    tick: int | None = None
    dropped: int = 0
    side: pa.Table | None = None
    failed: pa.Table | None = None
    sides: Mapping[str, pa.Table] = field(default_factory=dict)


class Kernel:
    """One key group of one stage, over a store.

    Args:
        stage: what to compute.
        store: where it is kept.
    """

    def __init__(self, stage: Stage, store: Store) -> None:
        self.stage, self.store = stage, store
        self.lateness = stage.step.allowed_lateness
        self.dims = [*stage.keys, "end"]

    def advance(
        self,
        packed: Sequence[dict[str, pa.Table]],
        progress: int,
        ticks: Sequence[Tick] = (),  # noqa: ARG002 - nothing here looks at the clock
        reached: int = NEVER,  # noqa: ARG002 - what fires fires once
    ) -> Emission:
        """Take in packed rows, then fire and free everything that ``progress`` closes, in time order.

        Args:
            packed: parts from ``pack`` for this group, in any order.
            progress: all rows on time up to here are in.
            ticks: of the processing clock.
            reached: progress before the input ended.
        """
        index = _Index.load(self.store.index())
        if progress >= END:
            progress = _FOREVER
        out: list[pa.Table] = []
        fresh = [
            {n: t for n, t in part.items() if n == "main" or n.startswith("bag")} for part in packed if "main" in part
        ]
        fired = self._fire(index, fresh, progress, out)
        self._keep_parts(index, fresh, progress)
        refired = self._refire(index, [part["late"] for part in packed if "late" in part], progress, fired, out)
        for end in [end for end in index.fired if end - 1 + self.lateness <= progress]:
            for number, _ in index.fired.pop(end):
                self.store.remove(number)
        index.fired_to = progress
        deadline = self._deadline(index, progress)  # whatever is kept waits to be fired or freed
        self.store.put_index(None if deadline is None else index.dump())
        results = pa.concat_tables(out) if out else self.stage.result_schema.empty_table()
        return Emission(_numbered(results), refired, deadline)

    def _deadline(self, index: _Index, progress: int) -> int | None:
        waits = [end - 1 for ends in index.pending.values() for end in ends]
        waits += [end - 1 + self.lateness for end in index.fired]
        for chunk in index.parts.values():
            from_ends = np.array(chunk.from_ends, dtype=np.int64)
            waits.append(int(self.stage.assigner.next_end(from_ends, np.full_like(from_ends, progress + 2)).min()) - 1)
        return min((min(wait, END) for wait in waits), default=None)

    def _put(self, index: _Index, tables: dict[str, pa.Table]) -> int:
        number, index.next = index.next, index.next + 1
        self.store.put(number, encode(tables))
        return number

    # ---- on-time panes

    def _fire(self, index: _Index, fresh: list[Partials], progress: int, out: list[pa.Table]) -> Partials | None:
        """Send the on-time panes that are due; what stays behind for refires."""
        after, upto, parts = index.fired_to + 1, progress + 1, []
        for number, chunk in index.parts.items():
            slices, from_ends = (np.array(values, dtype=np.int64) for values in (chunk.slices, chunk.from_ends))
            if len(self.stage.assigner.expand(slices, from_ends, after, upto)[0]):
                parts.append(self._expanded(decode(self.store.get(number)), after, upto))
        parts += [self._expanded(part, after, upto) for part in fresh]
        parts = [part for part in parts if part["main"].num_rows]
        if not parts:
            return None
        merged = self.stage.accumulators.merge(parts, self.dims)
        results = self.stage.accumulators.finish(merged, self.dims)
        results = results.take(pc.sort_indices(results["end"]))
        out.append(self._rows(results, None, np.full(results.num_rows, ROW)))
        return merged | {"out": results.drop_columns(["n"])} if self.lateness else None

    def _expanded(self, tables: Partials, after: int, upto: int) -> Partials:
        """Partials by slice -> partials by window, for the windows that end in (after, upto]."""
        found = {}
        for name, table in tables.items():
            slices, from_ends = (table[column].to_numpy().astype(np.int64) for column in ("slice", "from_end"))
            rows, ends = self.stage.assigner.expand(slices, from_ends, after, upto)
            placed = table.drop_columns(["slice", "from_end"]).take(pa.array(rows))
            found[name] = placed.add_column(len(self.stage.keys), "end", pa.array(ends))
        return found

    def _keep_parts(self, index: _Index, fresh: list[Partials], progress: int) -> None:
        """Store what windows still to fire need, in chunks of falling size: merging is geometric."""
        dims = [*self.stage.keys, "slice", "from_end"]
        for number, chunk in list(index.parts.items()):
            live = self._live(chunk.slices, progress)
            if not live.any():
                self.store.remove(number)
                del index.parts[number]
            elif not live.all():
                chunk.slices = np.array(chunk.slices)[live].tolist()
                chunk.from_ends = np.array(chunk.from_ends)[live].tolist()
        parts = [kept for part in fresh if (kept := self._alive(part, progress))["main"].num_rows]
        if not parts:
            return
        part = self.stage.accumulators.merge(parts, dims) if len(parts) > 1 else parts[0]
        for number, chunk in sorted(index.parts.items(), reverse=True):
            if chunk.rows >= 2 * part["main"].num_rows:
                break
            old = self._alive(decode(self.store.get(number)), progress)
            part = self.stage.accumulators.merge([old, part], dims)
            self.store.remove(number)
            del index.parts[number]
        pairs = part["main"].group_by(["slice", "from_end"], use_threads=False).aggregate([])
        chunk = _Chunk(part["main"].num_rows, pairs["slice"].to_pylist(), pairs["from_end"].to_pylist())
        index.parts[self._put(index, part)] = chunk

    def _alive(self, part: Partials, progress: int) -> Partials:
        return {n: t.filter(pa.array(self._live(t["slice"].to_numpy(), progress))) for n, t in part.items()}

    def _live(self, slices: Any, progress: int) -> Any:
        """Which slices are in a window that has not fired."""
        starts = np.asarray(slices, dtype=np.int64)
        return self.stage.assigner.last_end(starts) - 1 > progress if len(starts) else np.zeros(0, dtype=bool)

    # ---- late rows

    def _refire(
        self, index: _Index, late: list[pa.Table], progress: int, fired: Partials | None, out: list[pa.Table]
    ) -> int:
        """Late rows of closed windows, each in arrival order a pane of its own; those of open windows wait."""
        due = [number for number, ends in index.pending.items() if min(ends) - 1 <= progress]
        rows = [*(decode(self.store.get(number))["late"] for number in due), *late]
        for number in due:
            self.store.remove(number)
            del index.pending[number]
        states, refired, ready = [fired] if fired else [], 0, None
        if rows:
            table = pa.concat_tables(rows)
            closed = pc.less_equal(pc.subtract(table["end"], 1), progress)
            waiting, ready = table.filter(pc.invert(closed)), table.filter(closed)
            if waiting.num_rows:  # late by their stamp, but the on-time pane is not out yet: they wait for it
                index.pending[self._put(index, {"late": waiting})] = pc.unique(waiting["end"]).to_pylist()
            refired = ready.num_rows
            touched = pc.unique(ready["end"]).to_pylist()
            states += [part for end in touched for part in self._layers(index.fired.get(end, ()), ready)]
        state = {n: pa.concat_tables([s[n] for s in states]) for n in states[0]} if states else None
        if ready is not None and refired:
            state = self._revised(state, ready, out)
        if state is not None:
            self._keep_fired(index, state, progress)
        return refired

    def _revised(self, state: Partials | None, rows: pa.Table, out: list[pa.Table]) -> Partials:
        """Send a revision for each late row; the state after the last one."""
        revisions = revise(self.stage.accumulators, state, _signed(rows), self.dims)
        sent = self._rows(revisions.results, revisions.stamps, revisions.kinds)
        out.append(sent.set_column(sent.num_columns - 1, "_order", pa.array(revisions.follows)))
        return revisions.state

    def _layers(self, layers: Iterable[Sequence[int]], rows: pa.Table) -> Iterator[Partials]:
        """What a fired window has of the keys of some rows."""
        newer: list[pa.Table] = []
        for number, _ in reversed([*layers]):
            layer = decode(self.store.get(number))
            part = {name: table.filter(matching(table, rows, self.dims)) for name, table in layer.items()}
            for main in newer:
                part = self._without(part, main)
            newer.append(part["main"])
            yield part

    def _without(self, part: Partials, newer: pa.Table) -> Partials:
        return {name: table.filter(pc.invert(matching(table, newer, self.dims))) for name, table in part.items()}

    def _keep_fired(self, index: _Index, state: Partials, progress: int) -> None:
        """Store what may be revised again, as the newest layer of its window; layers are of falling size: merging is geometric."""
        for end in pc.unique(state["main"]["end"]).to_pylist():
            if end - 1 + self.lateness <= progress:
                continue
            part = {name: table.filter(pc.equal(table["end"], end)) for name, table in state.items()}
            layers = index.fired.setdefault(end, [])
            while layers and layers[-1][1] < 2 * part["main"].num_rows:
                number, _ = layers.pop()
                older = self._without(decode(self.store.get(number)), part["main"])
                part = {name: pa.concat_tables([older[name], table]) for name, table in part.items()}
                self.store.remove(number)
            layers.append([self._put(index, part), part["main"].num_rows])

    # ---- rows out

    def _rows(self, results: pa.Table, stamps: Ints | None, kinds: Ints) -> pa.Table:
        """Results as rows of the output: window bounds, stamps by cause (None: the watermark), kind, and a place holder for the order."""
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
        return pa.table([columns[name] for name in schema.names], schema=schema)


def _numbered(results: pa.Table) -> pa.Table:
    """Give every row its place; the second of a pair (marked -1) shares the first one's."""
    marks = results["_order"].to_numpy()
    order = np.cumsum(marks == 0) - 1
    return results.set_column(results.num_columns - 1, "_order", pa.array(order.astype(np.int64)))
