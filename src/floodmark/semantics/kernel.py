"""The kernel of a windowed aggregation: one key group, in columns.

A row is judged by its own stamp before it comes here (``pack``): its on-time windows get it as a partial, the windows it is late for
get it one by one, in arrival order. ``Kernel.advance`` fires whatever progress has closed. That order is enough to be exact:
a row on time for a window by its stamp always arrives before progress reaches that window's end, and rows late for it only count after
its on-time pane. So nothing here depends on how rows are cut into micro-batches.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from floodmark.core.time import END
from floodmark.semantics.accumulators import Accumulators, Partials, group_ids
from floodmark.semantics.assignment import Assigner, assigner, judge
from floodmark.semantics.columns import arrow_schema, arrow_type, decode, encode
from floodmark.spec.schema import MARKER, RETRACTION, ROW
from floodmark.spec.steps import WindowAggregate


class Store(Protocol):
    """What the kernel keeps between micro-batches: an index and numbered chunks."""

    def index(self) -> bytes | None:
        """The index as it was last put."""

    def put_index(self, index: bytes) -> None:
        """Replace the index."""

    def get(self, number: int) -> bytes:
        """A chunk."""

    def put(self, number: int, chunk: bytes) -> None:
        """Write a chunk."""

    def remove(self, number: int) -> None:
        """Forget a chunk."""


@dataclass(slots=True)
class MemoryStore:
    """A store in memory: bounded runs and tests."""

    chunks: dict[int, bytes] = field(default_factory=dict)
    head: bytes | None = None

    def index(self) -> bytes | None:
        """The index as it was last put."""
        return self.head

    def put_index(self, index: bytes) -> None:
        """Replace the index."""
        self.head = index

    def get(self, number: int) -> bytes:
        """A chunk."""
        return self.chunks[number]

    def put(self, number: int, chunk: bytes) -> None:
        """Write a chunk."""
        self.chunks[number] = chunk

    def remove(self, number: int) -> None:
        """Forget a chunk."""
        del self.chunks[number]


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
        return assigner(self.step.window)

    @property
    def result_schema(self) -> pa.Schema:
        """What ``advance`` emits: the step's columns, then ``_event_time`` and ``_watermark`` in ms, ``_kind``, ``order``."""
        stamps = [("_event_time", pa.int64()), ("_watermark", pa.int64()), ("_kind", pa.int32()), ("order", pa.int64())]
        return pa.schema([*arrow_schema(self.step.schema), *(pa.field(*s) for s in stamps)])


# ---- before the shuffle


def pack(stage: Stage, batches: Iterable[pa.RecordBatch]) -> dict[int, dict[str, pa.Table]]:
    """Judge and pre-aggregate rows; key group -> named tables.

    Args:
        stage: of the step.
        batches: with ``group`` and the row columns of ``Stage``; markers are passed over (they only move time).

    Returns:
        Per group any of ``main``/``bagN`` (on-time partials by ``slice`` and ``from_end``), ``late`` (one row per late window),
        ``side`` (rows dropped for all their windows) and ``dropped`` (``end``, ``n``).
    """
    step, dims = stage.step, ["group", *stage.keys, "slice", "from_end"]
    parts: list[Partials] = []
    kept: dict[str, list[pa.Table]] = {"late": [], "side": [], "dropped": []}
    for batch in batches:
        rows = pa.Table.from_batches([batch])
        rows = rows.filter(pc.not_equal(rows["kind"], MARKER))
        if rows.num_rows == 0:
            continue
        times, stamps = rows["t"].to_numpy().astype(np.int64), rows["w"].to_numpy().astype(np.int64)
        verdict = judge(stage.assigner, step.allowed_lateness, times, stamps)
        placed = rows.append_column("slice", pa.array(verdict.slices)).append_column("from_end", pa.array(verdict.from_end))
        placed = _signed(placed.filter(pa.array(verdict.on_time)))
        if placed.num_rows:
            parts.append(stage.accumulators.partials(placed, dims))
        if len(verdict.late):
            late = rows.take(pa.array(verdict.late)).append_column("end", pa.array(verdict.late_end))
            kept["late"].append(late.drop_columns([n for n in ("side",) if n in late.column_names]))
        if len(verdict.dropped):
            lost = rows.take(pa.array(verdict.dropped)).select(["group"]).append_column("end", pa.array(verdict.dropped_end))
            kept["dropped"].append(lost.append_column("n", pa.array(np.ones(len(verdict.dropped), dtype=np.int64))))
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
    return _by_group(tables)


_MERGE_EVERY = 16


def _signed(rows: pa.Table) -> pa.Table:
    """Retractions count -1, rows 1."""
    return rows.append_column("sign", pc.if_else(pc.equal(rows["kind"], RETRACTION), -1, 1).cast(pa.int64()))


def _by_group(tables: dict[str, pa.Table]) -> dict[int, dict[str, pa.Table]]:
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


@dataclass(slots=True)
class _Index:
    """What a group holds: chunk numbers by slice and by window end."""

    slices: dict[int, list[int]] = field(default_factory=dict)
    last_end: dict[int, int] = field(default_factory=dict)
    open: list[int] = field(default_factory=list)
    pending: dict[int, list[int]] = field(default_factory=dict)
    fired: dict[int, int] = field(default_factory=dict)
    next: int = 0

    @staticmethod
    def load(text: bytes | None) -> _Index:
        if text is None:
            return _Index()
        raw = json.loads(bytes(text))
        named = {k: {int(n): v for n, v in raw[k].items()} for k in ("slices", "last_end", "pending", "fired")}
        return _Index(**named, open=raw["open"], next=raw["next"])

    def dump(self) -> bytes:
        fields = ("slices", "last_end", "open", "pending", "fired", "next")
        return json.dumps({name: getattr(self, name) for name in fields}).encode()


@dataclass(frozen=True, slots=True)
class Emission:
    """What one call of ``advance`` sends out.

    Args:
        results: rows of ``Stage.result_schema``.
        late: rows that refired, dropped: rows dropped, counted per window.
        deadline: event time at which this group has something to do again; None when it holds nothing.
    """

    results: pa.Table
    refired: int
    deadline: int | None


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

    def advance(self, packed: Sequence[dict[str, pa.Table]], progress: int) -> Emission:
        """Take in packed rows, then fire and free everything that ``progress`` closes, in time order.

        Args:
            packed: parts from ``pack`` for this group, in any order.
            progress: all rows on time up to here are in.
        """
        index = _Index.load(self.store.index())
        late = self._take_in(index, packed)
        closing = sorted(end for end in index.open if end - 1 <= progress)
        out: list[pa.Table] = []
        fired = self._fire(index, closing, out)
        refired = self._refire(index, closing, late, progress, fired, out)
        self._free(index, closing, progress)
        self.store.put_index(index.dump())
        waits = [end - 1 for end in index.open] + [end - 1 + self.lateness for end in index.fired]
        results = pa.concat_tables(out) if out else self.stage.result_schema.empty_table()
        return Emission(_numbered(results), refired, min(waits, default=None))

    # ---- rows in

    def _take_in(self, index: _Index, packed: Sequence[dict[str, pa.Table]]) -> list[pa.Table]:
        """Append partials to their slices; the late rows."""
        late = [part["late"] for part in packed if "late" in part]
        parts = [{n: t for n, t in part.items() if n == "main" or n.startswith("bag")} for part in packed if "main" in part]
        if not parts:
            return late
        dims = [*self.stage.keys, "slice", "from_end"]
        merged = self.stage.accumulators.merge(parts, dims) if len(parts) > 1 else parts[0]
        windows, opened = self.stage.assigner, set(index.open)
        pairs = merged["main"].group_by(["slice", "from_end"], use_threads=False).aggregate([])
        for start, from_end in zip(pairs["slice"].to_pylist(), pairs["from_end"].to_pylist(), strict=True):
            last = int(windows.last_end(np.array([start], dtype=np.int64))[0])
            index.last_end[start] = last
            opened.update(windows.ends(from_end, last))
        index.open = sorted(opened)
        for start in pc.unique(merged["main"]["slice"]).to_pylist():
            part = {n: t.filter(pc.equal(t["slice"], start)) for n, t in merged.items()}
            chunks = index.slices.setdefault(start, [])
            if len(chunks) >= _COMPACT:
                part = self.stage.accumulators.merge([*(decode(self.store.get(n)) for n in chunks), part], dims)
                for number in chunks:
                    self.store.remove(number)
                chunks.clear()
            chunks.append(self._put(index, part))
        return late

    def _put(self, index: _Index, tables: dict[str, pa.Table]) -> int:
        number, index.next = index.next, index.next + 1
        self.store.put(number, encode(tables))
        return number

    # ---- on-time panes

    def _fire(self, index: _Index, closing: list[int], out: list[pa.Table]) -> Partials | None:
        """Send the on-time panes of these windows; what stays behind for refires."""
        parts = list(self._expanded(index, closing))
        if not parts:
            return None
        merged = self.stage.accumulators.merge(parts, self.dims)
        results = self.stage.accumulators.finish(merged, self.dims)
        results = results.take(pc.sort_indices(results["end"]))
        out.append(self._rows(results, pc.subtract(results["end"], 2), ROW))
        return merged | {"out": results.drop_columns(["n"])} if self.lateness else None

    def _expanded(self, index: _Index, closing: list[int]) -> Iterable[Partials]:
        """The partials of every slice, once for each closing window it is in and was on time for."""
        if not closing:
            return
        windows, wanted = self.stage.assigner, set(closing)
        for start, chunks in sorted(index.slices.items()):
            first = int(windows.first_end(np.array([start], dtype=np.int64))[0])
            if first > closing[-1]:
                continue
            ends = [end for end in windows.ends(first, index.last_end[start]) if end in wanted]
            for number in chunks if ends else ():
                tables = decode(self.store.get(number))
                for end in ends:
                    part = {n: t.filter(pc.less_equal(t["from_end"], end)) for n, t in tables.items()}
                    yield {n: _with_end(t.drop_columns(["slice", "from_end"]), end, len(self.stage.keys)) for n, t in part.items()}

    # ---- late rows

    def _refire(  # noqa: PLR0913, PLR0917 - the parts of one step, kept apart for reading
        self,
        index: _Index,
        closing: list[int],
        late: list[pa.Table],
        progress: int,
        fired: Partials | None,
        out: list[pa.Table],
    ) -> int:
        """Late rows of closed windows, each in arrival order a pane of its own; those of open windows wait."""
        numbers = [n for end in closing for n in index.pending.pop(end, ())]
        rows = [*(decode(self.store.get(n))["late"] for n in numbers), *late]
        for number in numbers:
            self.store.remove(number)
        states, refired = [fired] if fired else [], 0
        if rows:
            table = pa.concat_tables(rows)
            due = pc.less_equal(pc.subtract(table["end"], 1), progress)
            self._wait(index, table.filter(pc.invert(due)))
            ready = table.filter(due)
            refired = ready.num_rows
            touched = pc.unique(ready["end"]).to_pylist()
            states += [decode(self.store.get(index.fired[end])) for end in touched if end in index.fired]
        state = {n: pa.concat_tables([s[n] for s in states]) for n in states[0]} if states else None
        if refired:
            state = self._rounds(state, ready, out)
        if state is not None:
            self._keep(index, state, progress)
        return refired

    def _wait(self, index: _Index, rows: pa.Table) -> None:
        """Late by its stamp, but the on-time pane is not out yet: it waits for it."""
        for end in pc.unique(rows["end"]).to_pylist():
            number = self._put(index, {"late": rows.filter(pc.equal(rows["end"], end))})
            index.pending.setdefault(end, []).append(number)
            index.open = sorted({*index.open, end})

    def _rounds(self, state: Partials | None, rows: pa.Table, out: list[pa.Table]) -> Partials:
        """Round r applies the r-th late unit of every key and window at once; a retraction pair is one unit."""
        accumulators, dims = self.stage.accumulators, self.dims
        rows = _signed(rows.take(pc.sort_indices(rows, [("s", "ascending"), ("kind", "ascending")])))
        turn = _turns(group_ids(rows, dims)[0], rows["s"].to_numpy())
        if state is None:
            state = {n: t.slice(0, 0) for n, t in accumulators.partials(rows.slice(0, 1), dims).items()}
            state["out"] = accumulators.finish(state, dims).drop_columns(["n"])
        for number in range(int(turn.max()) + 1):
            chosen = rows.filter(pa.array(turn == number))
            masks = {n: _matching(t, chosen, dims) for n, t in state.items()}
            before = {n: t.filter(masks[n]) for n, t in state.items()}
            after = accumulators.merge([before, accumulators.partials(chosen, dims)], dims)
            after["out"] = accumulators.finish(after, dims).drop_columns(["n"])
            stamps = chosen.group_by(dims, use_threads=False).aggregate([("w", "max"), ("s", "min")])
            self._panes(before["out"], after["out"], stamps, out)
            state = {n: pa.concat_tables([t.filter(pc.invert(masks[n])), after[n]]) for n, t in state.items()}
        return state

    def _panes(self, old: pa.Table, new: pa.Table, stamps: pa.Table, out: list[pa.Table]) -> None:
        """Retraction and new value where they differ, adjacent, with the late row's stamp."""
        before, after = ({_key(r, self.dims): r for r in t.to_pylist()} for t in (old, new))
        for row in sorted(stamps.to_pylist(), key=lambda r: r["s_min"]):
            was, now = before.get(_key(row, self.dims)), after.get(_key(row, self.dims))
            if was == now:
                continue
            pair = [(r, kind) for r, kind in ((was, RETRACTION), (now, ROW)) if r is not None]
            tables = [self._rows(pa.Table.from_pylist([r], schema=new.schema), None, kind, row["w_max"]) for r, kind in pair]
            if len(tables) == 2:  # noqa: PLR2004 - a pair shares its number
                tables[1] = tables[1].set_column(tables[1].num_columns - 1, "order", pa.array([-1], pa.int64()))
            out.extend(tables)

    def _keep(self, index: _Index, state: Partials, progress: int) -> None:
        """Store what may be revised again; forget the rest."""
        for end in pc.unique(state["main"]["end"]).to_pylist():
            if end in index.fired:
                self.store.remove(index.fired.pop(end))
            if end - 1 + self.lateness > progress:
                index.fired[end] = self._put(index, {n: t.filter(pc.equal(t["end"], end)) for n, t in state.items()})

    def _free(self, index: _Index, closing: list[int], progress: int) -> None:
        closed = set(closing)
        index.open = [end for end in index.open if end not in closed]
        for end in [end for end in index.fired if end - 1 + self.lateness <= progress]:
            self.store.remove(index.fired.pop(end))
        for start in [start for start, last in index.last_end.items() if last - 1 <= progress]:
            for number in index.slices.pop(start, ()):
                self.store.remove(number)
            del index.last_end[start]

    # ---- rows out

    def _rows(self, results: pa.Table, stamps: pa.ChunkedArray | None, kind: int, stamp: int = 0) -> pa.Table:
        """Results as rows of the output: window bounds, stamps by cause, kind, and a place holder for the order."""
        schema, step, size = self.stage.result_schema, self.stage.step, results.num_rows
        columns: dict[str, Any] = {name: results[f"k{i}"] for i, name in enumerate(step.keys)}
        if "window_end" in schema.names:
            ends, which = np.unique(results["end"].to_numpy(), return_inverse=True)
            starts = np.array([self.stage.assigner.start(int(end)) for end in ends], dtype=np.int64)
            columns["window_start"] = pa.array((starts[which] if size else starts) * 1000).cast(arrow_type("timestamp"))
            columns["window_end"] = pc.multiply(results["end"], 1000).cast(arrow_type("timestamp"))
        columns |= {m.name: results[m.name] for m in self.stage.accumulators.measures}
        columns["_event_time"] = pc.min_element_wise(pc.subtract(results["end"], 1), END)
        columns["_watermark"] = stamps if stamps is not None else pa.array([stamp] * size, pa.int64())
        columns["_kind"] = pa.array([kind] * size, pa.int32())
        columns["order"] = pa.array([0] * size, pa.int64())
        return pa.table([columns[name] for name in schema.names], schema=schema)


_COMPACT = 8


def _with_end(table: pa.Table, end: int, position: int) -> pa.Table:
    return table.add_column(position, "end", pa.array(np.full(table.num_rows, end, dtype=np.int64)))


def _turns(ids: Any, sequences: Any) -> Any:  # noqa: ANN401 - integer arrays
    """The place of each row among the units of its id; rows of one sequence are one unit."""
    seen: dict[int, tuple[int, int]] = {}
    turns = np.zeros(len(ids), dtype=np.int64)
    for row, (which, sequence) in enumerate(zip(ids.tolist(), sequences.tolist(), strict=True)):
        turn, last = seen.get(which, (-1, None))
        turn += sequence != last
        seen[which] = (turn, sequence)
        turns[row] = turn
    return turns


def _matching(table: pa.Table, chosen: pa.Table, dims: Sequence[str]) -> pa.Array:
    """Which rows of ``table`` share their dimensions with a row of ``chosen``."""
    both = pa.concat_tables([table.select([*dims]), chosen.select([*dims])])
    ids, _ = group_ids(both, dims)
    return pa.array(np.isin(ids[: table.num_rows], ids[table.num_rows :]))


def _key(row: dict[str, Any], dims: Sequence[str]) -> tuple[Any, ...]:
    return tuple(row[dim] for dim in dims)


def _numbered(results: pa.Table) -> pa.Table:
    """Give every row its place; the second of a pair (marked -1) shares the first one's."""
    marks = results["order"].to_numpy()
    order = np.cumsum(marks == 0) - 1
    return results.set_column(results.num_columns - 1, "order", pa.array(order.astype(np.int64)))
