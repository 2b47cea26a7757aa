"""Rolling aggregates in columns against the kernel that goes row by row: equal rows, equal state, and either reads what the other kept."""

from __future__ import annotations

import itertools
import random
from datetime import datetime
from decimal import Decimal

import pyarrow as pa
import pytest
from pydantic import Field

import floodmark as fm
from floodmark.core.errors import FloodmarkError
from floodmark.core.time import END, Interval
from floodmark.semantics.encoding.columns import arrow_schema
from floodmark.semantics.kernels.elements import Clip, ElementStage
from floodmark.semantics.kernels.functions import growing
from floodmark.semantics.kernels.functions.growing import GrowingKernel
from floodmark.semantics.kernels.panes import RecordWindowKernel
from floodmark.semantics.kernels.stage import kernel_of, stage_of
from floodmark.semantics.state.directory import NONE
from floodmark.semantics.state.entries import KeyGroup
from floodmark.semantics.state.store import MemoryStore

POOLS = {
    "text": (None, "a", "", "\u00e4", "\U0001f600", "\uffff"),
    "share": (None, -0.0, 0.0, float("nan"), 1.5, -2.25, float("inf")),
    "value": (None, 0, 1, -3, 7),
    "large": (None, 2**63 - 1, -(2**63), 5),
    "amount": (None, Decimal("1.10"), Decimal("-2.25"), Decimal("99999999.99")),
    "since": (None, 0, 1_000, 86_400_000_000),
    "right": (None, True, False),
}


class Event(fm.Contract):
    """Values of many types."""

    at: fm.EventTime
    text: str | None
    share: float | None
    value: int | None
    large: int | None
    amount: Decimal | None = Field(default=None, max_digits=10, decimal_places=2)
    since: datetime | None
    right: bool | None


COLUMNS = {
    "rows": fm.count(),
    "values": fm.count("value"),
    "sum": fm.sum("value"),
    "mean": fm.mean("value"),
    "least": fm.min("large"),
    "most": fm.max("large"),
    "least_text": fm.min("text"),
    "most_share": fm.max("share"),
    "least_share": fm.min("share"),
    "latest": fm.max("since"),
    "first": fm.first("share"),
    "last": fm.last("amount"),
    "best": fm.max_by("text", "share"),
    "worst": fm.min_by("share", "large"),
    "different": fm.count_distinct("share"),
    "texts": fm.count_distinct("text"),
    "large": fm.count_distinct("large"),
}
BY_ROW = {
    "shares": fm.sum("share"),
    "amounts": fm.sum("amount"),
    "mean_amount": fm.mean("amount"),
    "least_amount": fm.min("amount"),
    "spread": fm.stddev("share"),
    "middle": fm.median("value"),
    "about": fm.approx_count_distinct("text"),
    "truths": fm.count_distinct("right"),
    "listed": fm.collect("value"),
}


def build(aggregates, *keys):
    @fm.operator(name="sums")
    def sums(events: fm.Stream[Event]) -> fm.Stream:
        return events.key_by(*keys).rolling(**aggregates)

    return sums


def rows_of(stage, rng, groups=1, pools=POOLS):
    """Rows of some key groups, out of order, some behind their stamps."""
    columns: dict[str, list[object]] = {name: [] for name in ("group", "t", "w", "s", "kind")}
    drawn = {name: [] for name in ("at", *pools)}
    for place in range(rng.randrange(1, 90)):
        time = 1000 + place - rng.choice([0, 1, 30])
        stamps = {"group": rng.randrange(groups), "t": time, "w": 990 + place // 2, "s": place, "kind": 0}
        for name, value in stamps.items():
            columns[name].append(value)
        drawn["at"].append(time * 1000)
        for name, pool in pools.items():
            drawn[name].append(rng.choice(pool))
    schema = arrow_schema(stage.step.parent.schema)
    source = {field.name: pa.array(drawn[field.name], field.type) for field in schema}
    arrays = {name: pa.array(v, pa.int32() if name in {"group", "kind"} else pa.int64()) for name, v in columns.items()}
    arrays |= {f"k{i}": source[name] for i, name in enumerate(stage.step.keys)}
    arrays |= {f"v{i}": source[value.sql] for i, value in enumerate(stage.values)}
    if stage.step.keys:  # a key belongs to one group
        names = list(zip(*(map(repr, source[name].to_pylist()) for name in stage.step.keys), strict=True))
        of_name = {}
        arrays["group"] = pa.array([of_name.setdefault(n, g) for n, g in zip(names, columns["group"], strict=True)], pa.int32())  # fmt: skip
    return pa.RecordBatch.from_pydict(arrays)


def cut(batch, rng):
    """(rows, progress) of micro-batches; the last one ends the input, or does not."""
    places, progress = sorted(rng.sample(range(batch.num_rows + 1), min(batch.num_rows, rng.randrange(4)))), 0
    for start, stop in itertools.pairwise([0, *places, batch.num_rows]):
        part = batch.slice(start, stop - start)
        progress = max([progress, *part["w"].to_pylist()])
        yield part, progress
    yield batch.slice(0, 0), rng.choice([END, progress + 5])


def advanced(kernel_types, stage, parts):
    """What comes out of each micro-batch, and the state behind it; the kernels take turns."""
    store, emitted = MemoryStore(), []
    for (part, progress), kernel_type in zip(parts, itertools.cycle(kernel_types), strict=False):
        packed = stage.pack([part]) if part.num_rows else {}
        emission = kernel_type(stage, store).advance(list(packed.values()), progress)
        counts = emission.late, emission.deadline, emission.tick, emission.dropped
        emitted.append((repr(emission.results.to_pylist()), emission.results.schema, counts, stored(store)))
    return emitted


def stored(store):
    """The entries of a store and what it keeps beside them."""
    entries = KeyGroup.open(MemoryStore(dict(store.chunks), store.head))
    own = {entry.name: repr((entry.key, entry.value, entry.event, entry.tick)) for entry in entries.due(NONE, NONE)}
    return own, entries.extra


def together(kernel_type, stage, parts, groups):
    """The same for several key groups in one call."""
    stores, emitted = {group: MemoryStore() for group in range(groups)}, []
    for part, progress in parts:
        rows = None
        if part.num_rows:
            packed = stage.pack([part])
            rows = pa.concat_tables(
                packed[group]["rows"].append_column(
                    "group", pa.array([group] * packed[group]["rows"].num_rows, pa.int32())
                )
                for group in packed
            )
        kernel = kernel_type(stage, next(iter(stores.values())))
        turns = kernel.advance_all(stores, rows, progress)
        results = turns.emission.results.drop_columns(["_order"])
        emitted.append((repr(results.to_pylist()), results.schema, turns.waits, [stored(s) for s in stores.values()]))
    return emitted


@pytest.fixture
def every_size(monkeypatch):
    """No call has too few rows for columns."""
    monkeypatch.setattr(growing, "_FEW", 0)


@pytest.mark.feature("Q1")
@pytest.mark.usefixtures("every_size")
@pytest.mark.parametrize("by_time", [False, True])
@pytest.mark.parametrize(
    "clip", [None, Clip(interval=Interval(start=1010, end=1040), read=Interval(start=0, end=10_000))]
)
@pytest.mark.parametrize("keys", [("text",), ("share", "right")])
def test_rows_and_state_are_those_of_the_kernel_by_row(keys, clip, by_time):
    every = COLUMNS | BY_ROW
    for seed in range(5):
        rng = random.Random(f"{keys} {seed}")
        chosen = {name: every[name] for name in rng.sample(sorted(every), 5)}
        stage = ElementStage(stage_of(build(chosen, *keys)).step, by_time, clip)
        assert type(kernel_of(stage, MemoryStore())) is GrowingKernel
        parts = list(cut(rows_of(stage, rng), rng))
        by_row = advanced([RecordWindowKernel], stage, parts)
        assert advanced([GrowingKernel], stage, parts) == by_row
        assert advanced([GrowingKernel, RecordWindowKernel], stage, parts) == by_row
        assert advanced([RecordWindowKernel, GrowingKernel], stage, parts) == by_row


@pytest.mark.feature("Q1")
def test_key_groups_in_one_call_give_what_they_give_one_by_one():
    for seed in range(5):
        rng = random.Random(seed)
        every = COLUMNS | BY_ROW
        stage = stage_of(build({name: every[name] for name in rng.sample(sorted(every), 4)}, "text", "value"))
        parts = list(cut(rows_of(stage, rng, groups=4), rng))
        assert together(GrowingKernel, stage, parts, 4) == together(RecordWindowKernel, stage, parts, 4)


@pytest.mark.feature("Q1")
@pytest.mark.usefixtures("every_size")
def test_totals_near_the_largest_number_are_those_by_row_or_the_same_error():
    pool = POOLS | {"value": (2**62, -(2**62), 2**63 - 1, 3, None)}
    outcomes = set()
    for seed in range(15):
        rng = random.Random(seed)
        stage = stage_of(build({"sum": fm.sum("value"), "mean": fm.mean("value")}, "right"))
        parts, answers = list(cut(rows_of(stage, rng, pools=pool), rng)), []
        for kernel_type in (RecordWindowKernel, GrowingKernel):
            try:
                answers.append(advanced([kernel_type], stage, parts))
            except FloodmarkError as error:
                answers.append(str(error))
        assert answers[0] == answers[1]
        outcomes.add(type(answers[0]))
    assert outcomes == {str, list}


@pytest.mark.feature("Q1")
@pytest.mark.usefixtures("every_size")
def test_columns_are_what_computes_them(monkeypatch):
    """None of these aggregates calls its fold for a row."""
    stage = stage_of(build(COLUMNS, "right"))
    parts = list(cut(rows_of(stage, random.Random(3)), random.Random(3)))
    monkeypatch.setattr(RecordWindowKernel, "_element", None)
    monkeypatch.setattr(GrowingKernel, "_by_row", None)
    assert any(rows != "[]" for rows, *_ in advanced([GrowingKernel], stage, parts))
