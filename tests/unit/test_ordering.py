"""The order of rows by time that columns show against the one that values have one by one."""

from __future__ import annotations

import random

import numpy as np
import pyarrow as pa
import pytest
from kernel_pairs import Event, advanced, cut, rows_of, stored

import floodmark as fm
from floodmark.core.time import END
from floodmark.semantics.encoding.order import order_key
from floodmark.semantics.kernels.elements import ProcessStage
from floodmark.semantics.kernels.functions.first_rows import FirstRowsKernel
from floodmark.semantics.kernels.functions.top import TopKernel
from floodmark.semantics.kernels.stage import kernel_of, stage_of
from floodmark.semantics.state.store import MemoryStore
from floodmark.semantics.time.ordering import in_order, spans_of


@fm.operator(name="first")
def first(events: fm.Stream[Event]) -> fm.Stream:
    return events.key_by("text").top(2, "share DESC")


STAGE = ProcessStage(stage_of(first).step, by_time=True)


def crowded(rng: random.Random) -> pa.Table:
    """Rows of which many share their instant, and some are equal."""
    table = pa.Table.from_batches([rows_of(STAGE, rng, 3)])
    times = pa.array([rng.randrange(3) for _ in range(table.num_rows)])
    table = table.set_column(table.column_names.index("t"), "t", times)
    return pa.concat_tables([table, table.slice(0, table.num_rows // 3)]).combine_chunks()


@pytest.mark.feature("Q1")
@pytest.mark.parametrize("seed", range(12))
def test_rows_of_one_instant_are_sorted_as_their_values_are(seed):
    rng = random.Random(seed)
    rows = crowded(rng)
    groups, times = rows["group"].to_numpy().astype(np.int64), rows["t"].to_numpy()
    sequences = [rng.randrange(2) for _ in range(rows.num_rows)]
    order = in_order(rows.drop_columns(["group"]), [groups, times], sequences)
    whole = [{n: v for n, v in row.items() if n not in {"s", "w", "group"}} for row in rows.to_pylist()]
    expected = sorted(range(rows.num_rows), key=lambda at: (groups[at], times[at], sequences[at], order_key(whole[at])))
    assert order.tolist() == expected
    bounds = spans_of(groups[order])
    assert {g: stop - start for g, (start, stop) in bounds.items()} == dict(zip(*np.unique(groups, return_counts=True), strict=True))  # fmt: skip


def test_rows_that_columns_cannot_sort_are_sorted_one_by_one():
    instants = [np.zeros(2, np.int64)]
    plain = pa.table({"kind": pa.array([0, 0], pa.int32())})
    assert in_order(plain.append_column("v", pa.array([[1], [0]])), instants, [0, 0]) is None
    assert in_order(pa.table({"kind": pa.array([0, -1], pa.int32())}), instants, [0, 0]) is None
    assert in_order(plain, instants, [1, 0]).tolist() == [1, 0]


@pytest.mark.feature("Q1")
@pytest.mark.parametrize("kernel_type", [TopKernel, FirstRowsKernel])
def test_groups_by_time_in_one_call_give_what_one_gives_alone(kernel_type):
    for seed in range(6):
        rng = random.Random(seed)
        parts = list(cut(rows_of(STAGE, rng), rng))
        store, emitted = MemoryStore(), []
        for part, progress in parts:
            packed = STAGE.pack([part]) if part.num_rows else {}
            rows = packed[0]["rows"] if packed else None
            numbered = rows and rows.append_column("group", pa.array([0] * rows.num_rows, pa.int32()))
            turns = kernel_type(STAGE, store).advance_all({0: store}, numbered, progress)
            made = turns.emission
            counts = made.late, *turns.waits[0], made.dropped
            emitted.append((repr(made.results.to_pylist()), made.results.schema, counts, stored(store)))
        assert emitted == advanced([TopKernel], STAGE, parts)


def joined(kind: str):
    """The first row of each key of a regular join."""

    @fm.operator(name="joined")
    def build(lefts: fm.Stream[Event], rights: fm.Stream[Event]) -> fm.Stream:
        other = rights.select("text", "amount").key_by("text")
        both = lefts.select("text", "value").key_by("text").regular_join(other, kind=kind)
        return both.key_by("text").top(1, "value DESC")

    return build


@pytest.mark.feature("Q1", "J6")
def test_behind_an_inner_join_of_final_rows_only_the_first_rows_are_held():
    kernels = {kind: type(kernel_of(stage_of(joined(kind).links[1]), MemoryStore())) for kind in ("inner", "left")}
    assert kernels == {"inner": FirstRowsKernel, "left": TopKernel}


@pytest.mark.feature("Q1", "J6")
def test_all_rows_that_an_older_release_held_are_read_as_the_first_ones():
    whole, stage = ProcessStage(STAGE.step, by_time=False, revised=True), ProcessStage(STAGE.step, by_time=False)
    for seed in range(6):
        rng = random.Random(seed)
        (part, progress), *others = cut(rows_of(stage, rng), rng)
        before, after = MemoryStore(), MemoryStore()
        TopKernel(whole, before).advance(list(whole.pack([part]).values()), progress)
        TopKernel(stage, after).advance(list(stage.pack([part]).values()), progress)
        for later, reached in [*others, (part, END)]:
            packed = list(stage.pack([later]).values()) if later.num_rows else []
            made = [FirstRowsKernel(stage, store).advance(packed, reached) for store in (before, after)]
            assert repr(made[0].results.to_pylist()) == repr(made[1].results.to_pylist())
