"""The kernel of interval joins: one key group, in columns.

Late rows are dropped before the kernel, by their own stamp, as their partners may be evicted. A row on time by its stamp
arrives before progress reaches its event time, so a buffered row is evicted once progress has reached the last instant a partner can have;
nothing depends on how rows are cut into micro-batches, or on how the inputs interleave.

Source: Flink ``IntervalJoinOperator``; unmatched rows come out when they are freed, as in Spark's outer stream-stream joins.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from floodmark.core.time import END, NEVER
from floodmark.semantics.aggregates.accumulators import Value, normalised
from floodmark.semantics.aggregates.grouping import group_ids
from floodmark.semantics.encoding.columns import arrow_type, decode, encode, result_schema
from floodmark.semantics.kernels.columnar import by_group
from floodmark.semantics.kernels.failures import split
from floodmark.semantics.kernels.kernel import Emission, Tick
from floodmark.semantics.state.store import Store
from floodmark.spec.graph.steps import IntervalJoin
from floodmark.spec.values.schema import MARKER, ROW, TAG

_FOREVER = 1 << 60
_SIDES = ("left", "right")
_LARGE = 100_000
"""Chunks of more rows than this are not merged."""

Instants = npt.NDArray[np.int64]
Booleans = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class JoinStage:
    """An interval join, ready to compute. Frozen and picklable.

    Row columns: ``k0...`` keys, ``t`` event time, ``w`` stamp, ``s`` sequence, ``kind``, ``v0`` the tag of its input, ``row`` all of it. Of
    a side: ``k0...``, ``t``, ``w``, then its columns beside the keys, by name.
    """

    step: IntervalJoin
    whole_rows: ClassVar[bool] = True

    @property
    def keys(self) -> tuple[str, ...]:
        """Internal names of the key columns."""
        return tuple(f"k{i}" for i in range(len(self.step.keys)))

    @property
    def values(self) -> tuple[Value, ...]:
        """The tag of the input a row is from."""
        return (Value(TAG, "int", bag=False),)

    @property
    def result_schema(self) -> pa.Schema:
        """The step's columns, then ``_event_time`` and ``_watermark`` in ms, ``_kind``, ``_order``."""
        return result_schema(self.step.schema)

    def pack(self, batches: Iterable[pa.RecordBatch]) -> dict[int, dict[str, pa.Table]]:
        """Per key group: rows on time of each side, numbers of dropped rows, rows that failed in earlier steps."""
        rows = [t for b in batches if (t := pa.Table.from_batches([b])).num_rows]
        if not rows:
            return {}
        table, failed = split(normalised(pa.concat_tables(rows), self.keys))
        table = table.filter(pc.not_equal(table["kind"], MARKER))
        on_time = pc.greater(table["t"], table["w"])
        tables = {}
        for tag, side in enumerate(_SIDES):
            mine = table.filter(pc.and_(on_time, pc.equal(table["v0"], tag)))
            if mine.num_rows:
                tables[side] = self._side(mine, tag)
        lost = table.filter(pc.invert(on_time)).select(["group", "t"])
        if lost.num_rows:
            ends = lost.append_column("end", pc.add(lost["t"], 1)).append_column(
                "n", pa.array([1] * lost.num_rows, pa.int64())
            )
            tables["dropped"] = ends.drop_columns(["t"])
        return by_group(tables | ({"failed": failed[0]} if failed else {}))

    def _side(self, rows: pa.Table, tag: int) -> pa.Table:
        whole = rows["row"].combine_chunks()
        columns = {name: rows[name] for name in ("group", *self.keys, "t", "w")}
        return pa.table(columns | {name: pc.struct_field(whole, name) for name in self.columns(tag)})

    def columns(self, tag: int) -> list[str]:
        """The columns of a side in the tagged union, beside the keys."""
        return [column for _, column in self.step.ports[tag].columns if column not in self.step.keys]


@dataclass(slots=True, eq=False)
class _Chunk:
    """Buffered rows of a side.

    Args:
        tag: of the side.
        number: in the store.
        rows: how many, those before ``first`` included.
        first: event time of the first row that a partner can come for; rows before it are only written still.
        last: of the last.
        flags: number in the store of ``matched``; None where no row has had a partner, or it is beside the rows, as versions before wrote it.
        table: the rows, once they are needed.
        matched: which have had a partner; None where that makes no difference.
        stored: the store has the rows.
        marked: the store has another ``matched``.
    """

    tag: int
    number: int
    rows: int
    first: int
    last: int
    flags: int | None = None
    table: pa.Table | None = None
    matched: Booleans | None = None
    stored: bool = True
    marked: bool = False


class JoinKernel:
    """One key group of one join, over a store.

    Args:
        stage: what to compute.
        store: where it is kept.
    """

    def __init__(self, stage: JoinStage, store: Store) -> None:
        self.stage, self.step, self.store = stage, stage.step, store
        self.reach = stage.step.upper, -stage.step.lower  # per side: how much later than a row a partner may be
        kind = stage.step.kind
        self.lonely = (
            kind in {"left", "full", "anti"},
            kind in {"right", "full"},
        )  # per side: whether rows without a partner are emitted
        self.flagged = self.lonely[0] or kind == "semi", self.lonely[1]
        self.out: list[pa.Table] = []
        self.chunks: tuple[list[_Chunk], list[_Chunk]] = ([], [])
        self.next = 0

    def advance(
        self,
        packed: Sequence[dict[str, pa.Table]],
        progress: int,
        ticks: Sequence[Tick] = (),  # noqa: ARG002 - nothing here looks at the clock
        reached: int = NEVER,  # noqa: ARG002 - what fires fires once
    ) -> Emission:
        """Buffer rows, emit their pairs, then evict rows for which no partner can come after ``progress``.

        Args:
            packed: parts from ``pack`` for this group, in any order.
            progress: all rows on time up to here are in.
            ticks: of the processing clock.
            reached: progress before the input ended.
        """
        self._load(self.store.index())
        fresh = [self._fresh(tag, [part[side] for part in packed if side in part]) for tag, side in enumerate(_SIDES)]
        left, right = fresh
        if left is not None:
            for old in self.chunks[1]:
                self._match(left, old)
        if right is not None:
            for old in [*self.chunks[0], *((left,) if left is not None else ())]:
                self._match(old, right)
        for tag in (0, 1):
            self.chunks[tag].extend(chunk for chunk in (fresh[tag],) if chunk)
            self._free(tag, _FOREVER if progress >= END else progress)
            self._compact(tag)
        self._save()
        results = pa.concat_tables(self.out) if self.out else self.stage.result_schema.empty_table()
        order = pa.array(np.arange(results.num_rows, dtype=np.int64))
        return Emission(results.set_column(results.num_columns - 1, "_order", order), 0, self._deadline())

    def _deadline(self) -> int | None:
        """The earliest progress at which a row (a chunk, on sides whose rows without partner are not emitted) is evicted; None if none is buffered."""
        waits = [
            (chunk.first if self.lonely[tag] else chunk.last) + self.reach[tag]
            for tag, side in enumerate(self.chunks)
            for chunk in side
        ]
        return min((min(wait, END) for wait in waits), default=None)

    # ---- buffers

    def _load(self, text: bytes | None) -> None:
        if text is None:
            return
        raw = json.loads(bytes(text))
        self.next = raw["next"]
        for tag, side in enumerate(raw["chunks"]):
            self.chunks[tag].extend(_Chunk(tag, *chunk) for chunk in side)

    def _save(self) -> None:
        for side in self.chunks:
            for chunk in side:
                if not chunk.stored:
                    assert chunk.table is not None
                    self.store.put(chunk.number, encode({"rows": chunk.table}))
                if chunk.marked:
                    self._save_flags(chunk)
        chunk_entries = [[_index_entry(chunk) for chunk in side] for side in self.chunks]
        index = json.dumps({"chunks": chunk_entries, "next": self.next}, separators=(",", ":")).encode()
        self.store.put_index(index if any(chunk_entries) else None)

    def _save_flags(self, chunk: _Chunk) -> None:
        """Write a chunk's flags (which rows have had a partner) apart from its rows, so that a new partner does not rewrite the rows."""
        assert chunk.matched is not None
        if chunk.flags is None:
            chunk.flags, self.next = self.next, self.next + 1
        else:
            self.store.remove(chunk.flags)
        self.store.put(chunk.flags, encode({"matched": pa.table({"m": pa.array(chunk.matched)})}))

    def _fresh(self, tag: int, parts: list[pa.Table]) -> _Chunk | None:
        """New rows as a chunk of their own."""
        if not parts:
            return None
        return self._chunk(tag, pa.concat_tables(parts).combine_chunks(), None)

    def _chunk(self, tag: int, table: pa.Table, matched: Booleans | None) -> _Chunk:
        number, self.next = self.next, self.next + 1
        bounds = pc.min_max(table["t"]).as_py()
        if matched is None:
            matched = self._no_partners(tag, table)
        return _Chunk(
            tag,
            number,
            table.num_rows,
            bounds["min"],
            bounds["max"],
            table=table,
            matched=matched,
            stored=False,
            marked=matched is not None and bool(matched.any()),
        )

    def _rows(self, chunk: _Chunk) -> pa.Table:
        if chunk.table is None:
            tables = decode(self.store.get(chunk.number))
            if chunk.flags is not None:
                tables |= decode(self.store.get(chunk.flags))
            chunk.table = self._as_now(tables["rows"].combine_chunks(), chunk.tag)
            known = "matched" in tables
            chunk.matched = (
                tables["matched"]["m"].to_numpy().copy() if known else self._no_partners(chunk.tag, chunk.table)
            )
        return chunk.table

    def _no_partners(self, tag: int, table: pa.Table) -> Booleans | None:
        return np.zeros(table.num_rows, dtype=bool) if self.flagged[tag] else None

    def _as_now(self, rows: pa.Table, tag: int) -> pa.Table:
        """Rows that an older version buffered, with the current columns; a column that the older version did not read is null."""
        columns = {name: rows[name] for name in (*self.stage.keys, "t", "w")}
        kinds = self.step.parent.schema.types
        for name in self.stage.columns(tag):
            known = name in rows.column_names
            columns[name] = rows[name] if known else pa.nulls(rows.num_rows, arrow_type(kinds[name]))
        return pa.table(columns)

    def _remove(self, chunk: _Chunk) -> None:
        if chunk.stored:
            self.store.remove(chunk.number)
        if chunk.flags is not None:
            self.store.remove(chunk.flags)
        self.chunks[chunk.tag].remove(chunk)

    def _free(self, tag: int, progress: int) -> None:
        """Evict rows for which no partner can come any more; emit those of them that never had a partner."""
        bound = progress - self.reach[tag]
        for chunk in list(self.chunks[tag]):
            if chunk.last > bound and (not self.lonely[tag] or chunk.first > bound):
                continue
            if self.lonely[tag]:
                table = self._rows(chunk)
                times = table["t"].to_numpy()
                over = times <= bound
                assert chunk.matched is not None
                self._alone(tag, table.filter(pa.array(over & (times >= chunk.first) & ~chunk.matched)))
                if not over.all():
                    chunk.first = int(times[~over].min())
                    if 2 * np.count_nonzero(over) > chunk.rows:
                        self._keep_only(chunk, ~over)
                    continue
            self._remove(chunk)

    def _keep_only(self, chunk: _Chunk, mask: Booleans) -> None:
        assert chunk.table is not None
        retained = chunk.table.filter(pa.array(mask)).combine_chunks()
        retained_flags = None if chunk.matched is None else chunk.matched[mask]
        side = self.chunks[chunk.tag]
        position = side.index(chunk)
        self._remove(chunk)
        if retained.num_rows:
            side.insert(position, self._chunk(chunk.tag, retained, retained_flags))

    def _compact(self, tag: int) -> None:
        """Chunks of falling size: merging is geometric."""
        side = self.chunks[tag]
        while len(side) > 1 and side[-2].rows <= 2 * side[-1].rows and side[-2].rows + side[-1].rows <= _LARGE:
            pair, retained, flags = side[-2:], list[pa.Table](), list[Booleans]()
            for chunk in pair:
                table = self._rows(chunk)
                live = table["t"].to_numpy() >= chunk.first
                retained.append(table.filter(pa.array(live)))
                flags += [] if chunk.matched is None else [chunk.matched[live]]
            for chunk in pair:
                self._remove(chunk)
            table = pa.concat_tables(retained).combine_chunks()
            side.append(self._chunk(tag, table, np.concatenate(flags) if flags else None))

    # ---- pairs

    def _match(self, left: _Chunk, right: _Chunk) -> None:
        """Emit the pairs of two chunks."""
        lower, upper = self.step.lower, self.step.upper
        if right.last < left.first + lower or right.first > left.last + upper:
            return
        rows, others = self._rows(left), self._rows(right)
        left_positions, right_positions = pairs(rows, others, self.stage.keys, lower, upper)
        if not len(left_positions):
            return
        if self.step.kind in {"semi", "anti"}:
            self._first_partners(left, left_positions)
            return
        for chunk, places in ((left, left_positions), (right, right_positions)):
            if chunk.matched is not None and not chunk.matched[places].all():
                chunk.matched[places] = True
                chunk.marked = True
        a, b = rows.take(pa.array(left_positions)), others.take(pa.array(right_positions))
        times = np.maximum(a["t"].to_numpy(), b["t"].to_numpy())
        self._send(a, b, times, np.maximum(a["w"].to_numpy(), b["w"].to_numpy()))

    def _first_partners(self, left: _Chunk, places: Instants) -> None:
        """Flag left rows that have their first partner; a semi join emits them, an anti join will not."""
        assert left.matched is not None
        new = np.unique(places)
        new = new[~left.matched[new]]
        if not len(new):
            return
        left.matched[new] = True
        left.marked = True
        if self.step.kind == "semi":
            rows = self._rows(left).take(pa.array(new))
            self._send(rows, None, rows["t"].to_numpy(), rows["w"].to_numpy())

    def _alone(self, tag: int, rows: pa.Table) -> None:
        """Emit rows without a partner, with the last instant at which a partner was possible as event time."""
        if not rows.num_rows:
            return
        final = np.minimum(rows["t"].to_numpy() + self.reach[tag], END)
        times, stamps = np.maximum(rows["t"].to_numpy(), final), np.maximum(rows["w"].to_numpy(), final - 1)
        self._send(rows if tag == 0 else None, None if tag == 0 else rows, times, stamps)

    def _send(self, left: pa.Table | None, right: pa.Table | None, times: Instants, stamps: Instants) -> None:
        schema, present = self.stage.result_schema, left if left is not None else right
        assert present is not None
        size = present.num_rows
        columns = [present[key] for key in self.stage.keys]
        for tag, rows in enumerate((left, right)):
            if tag and self.step.kind in {"semi", "anti"}:
                continue
            for name in self.stage.columns(tag):
                kind = schema.field(len(columns)).type
                columns.append(pa.nulls(size, kind) if rows is None else rows[name])
        columns += [
            pa.array(times),
            pa.array(stamps),
            pa.repeat(pa.scalar(ROW, pa.int32()), size),
            pa.nulls(size, pa.int64()),
        ]
        self.out.append(pa.Table.from_arrays(columns, names=schema.names).cast(schema))


def _index_entry(chunk: _Chunk) -> list[int]:
    """A chunk's entry in the index of its key group."""
    flags = [] if chunk.flags is None else [chunk.flags]
    return [chunk.number, chunk.rows, chunk.first, chunk.last, *flags]


def pairs(left: pa.Table, right: pa.Table, keys: Sequence[str], lower: int, upper: int) -> tuple[Instants, Instants]:
    """(positions in left, positions in right) of the pairs with equal keys, none of them null, and ``left.t + lower <= right.t <= left.t + upper``."""
    both = pa.concat_tables([left.select([*keys]), right.select([*keys])])
    ids, _ = group_ids(both, keys)
    for key in keys:
        ids[pc.is_null(both[key]).to_numpy()] = -1
    mine, theirs = ids[: left.num_rows], ids[left.num_rows :]
    known = np.flatnonzero(theirs >= 0)
    times, ranks = np.unique(right["t"].to_numpy()[known], return_inverse=True)
    width = len(times) + 1
    codes = theirs[known] * width + ranks
    order = np.argsort(codes, kind="stable")
    codes = codes[order]
    at = left["t"].to_numpy()
    first = np.searchsorted(codes, mine * width + np.searchsorted(times, at + lower, "left"), "left")
    stop = np.searchsorted(codes, mine * width + np.searchsorted(times, at + upper, "right"), "left")
    counts = np.where(mine >= 0, np.maximum(stop - first, 0), 0)
    left_positions = np.repeat(np.arange(left.num_rows), counts)
    offsets = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
    right_positions = known[order[np.repeat(first, counts) + offsets]] if len(left_positions) else left_positions
    return left_positions.astype(np.int64), right_positions.astype(np.int64)
