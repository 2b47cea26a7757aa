"""Sessions whose panes are final, in one loop over rows, against the general kernel: equal rows in equal order, state equal byte for byte."""

from __future__ import annotations

import itertools
import random
from datetime import UTC, datetime
from decimal import Decimal

import pyarrow as pa
import pytest
from pydantic import Field

import floodmark as fm
from floodmark.core.errors import ExecutionError
from floodmark.core.time import END
from floodmark.semantics.encoding.columns import arrow_type
from floodmark.semantics.kernels.elements import ElementStage
from floodmark.semantics.kernels.panes import RecordWindowKernel
from floodmark.semantics.kernels.sessions import SessionKernel, has_final_sessions
from floodmark.semantics.kernels.stage import kernel_of, stage_of
from floodmark.semantics.state.store import MemoryStore

GAP = 10


class Event(fm.Contract):
    """Keys of four types, and values."""

    at: fm.EventTime
    number: int | None
    text: str | None
    share: float | None
    price: Decimal = Field(max_digits=10, decimal_places=2)
    moment: datetime
    value: int | None
    weight: float | None


AGGREGATES = {
    "rows": fm.count(),
    "values": fm.count("value"),
    "total": fm.sum("value"),
    "average": fm.mean("weight"),
    "spread": fm.stddev("weight"),
    "least": fm.min("text"),
    "greatest": fm.max("value"),
    "kinds": fm.count_distinct("text"),
    "middle": fm.median("value"),
}


def build(keys, names=tuple(AGGREGATES), **settings):
    @fm.operator(name="sessions")
    def sessions(events: fm.Stream[Event]) -> fm.Stream:
        keyed = events.key_by(*keys) if keys else events
        windowed = keyed.window(fm.Session(f"{GAP} ms"), **settings)
        return windowed.aggregate(**{name: AGGREGATES[name] for name in names})

    return sessions


POOLS = {
    "number": [None, 0, 1, 2**40],
    "text": [None, "", "a", "straße"],
    "share": [None, 0.0, -0.0, float("nan"), 1.5],
    "price": [Decimal("1.00"), Decimal("0.00"), Decimal("-3.25")],
    "moment": [datetime(2024, 1, 1, tzinfo=UTC), datetime(1969, 12, 31, 23, tzinfo=UTC)],
    "value": [None, -1, 3, 10**12],
    "weight": [None, -0.0, 0.1, 7.25, float("nan")],
}


def rows_of(stage, rng, *, orderly):
    """Rows of one key group with stamps that mostly rise, some rows behind them."""
    count, now, stamp = rng.randrange(5, 60), 1000, 900
    columns = {name: [] for name in ("t", "w", "s", "kind")}
    for place in range(count):
        now += rng.choice([0, 1, 3, 5, GAP, 4 * GAP])
        time = now - rng.choice([0, 0, 2, GAP - 1, GAP, 3 * GAP])
        for name, value in (("t", time), ("w", stamp), ("s", place), ("kind", 0)):
            columns[name].append(value)
        behind = now - rng.choice([0, 5, 2 * GAP])
        stamp = max(stamp, behind) if orderly else behind
    whole = {name: [rng.choice(pool) for _ in range(count)] for name, pool in POOLS.items()}
    schema, types = stage.step.parent.schema, {"kind": pa.int32()}
    tables = {name: pa.array(values, types.get(name, pa.int64())) for name, values in columns.items()}
    kinds = {column.name: arrow_type(column.type) for column in schema.columns}
    tables |= {f"k{i}": pa.array(whole[name], kinds[name]) for i, name in enumerate(stage.step.keys)}
    tables |= {f"v{i}": pa.array(whole[v.sql], kinds[v.sql]) for i, v in enumerate(stage.values)}
    batch = pa.RecordBatch.from_pydict({"group": pa.array([0] * count, pa.int32())} | tables)
    return stage.pack([batch])[0]["rows"]


def boundaries(rows, rng, ended):
    """(rows of each micro-batch, progress behind it)."""
    places = sorted(rng.sample(range(rows.num_rows + 1), rng.randrange(4)))
    bounds = [0, *places, rows.num_rows]
    progress = 0
    for start, stop in itertools.pairwise(bounds):
        part = rows.slice(start, stop - start)
        progress = max([progress, *part["w"].to_pylist()])
        yield part, progress
    yield rows.slice(0, 0), progress + rng.choice([0, GAP, 3 * GAP])
    if ended:
        yield rows.slice(0, 0), END


def advanced(kernel_type, stage, batches):
    store, emitted = MemoryStore(), []
    for part, progress in batches:
        emission = kernel_type(stage, store).advance([{"rows": part}] if part.num_rows else [], progress)
        counts = emission.late, emission.deadline, emission.tick, emission.dropped
        emitted.append((repr(emission.results.to_pylist()), counts, emission.side, store.head, dict(store.chunks)))
    return emitted


@pytest.mark.parametrize("by_time", [False, True])
@pytest.mark.parametrize("orderly", [True, False])
@pytest.mark.parametrize("keys", [(), ("number",), ("share", "text"), ("price", "moment")])
def test_one_loop_gives_the_rows_and_the_state_of_the_general_kernel(keys, orderly, by_time):
    stage = stage_of(build(keys))
    assert isinstance(stage, ElementStage)
    stage = ElementStage(stage.step, by_time)
    assert type(kernel_of(stage, MemoryStore())) is SessionKernel
    for seed in range(6):
        rng = random.Random(f"{keys} {orderly} {by_time} {seed}")
        batches = list(boundaries(rows_of(stage, rng, orderly=orderly), rng, ended=seed % 2))
        assert advanced(SessionKernel, stage, batches) == advanced(RecordWindowKernel, stage, batches)


def test_a_state_of_the_general_kernel_is_resumed_and_the_other_way_round():
    stage = stage_of(build(("text",)))
    for seed in range(6):
        rng = random.Random(seed)
        batches = list(boundaries(rows_of(stage, rng, orderly=True), rng, ended=True))
        stores = [MemoryStore(), MemoryStore()]
        for place, (part, progress) in enumerate(batches):
            parts = [{"rows": part}] if part.num_rows else []
            types = (SessionKernel, RecordWindowKernel) if place % 2 else (RecordWindowKernel, SessionKernel)
            several = [kind(stage, store).advance(parts, progress) for kind, store in zip(types, stores, strict=True)]
            assert repr(several[0].results.to_pylist()) == repr(several[1].results.to_pylist())
            assert stores[0] == stores[1]


def test_rows_at_the_end_of_time_are_those_of_the_general_kernel():
    stage = stage_of(build(("number",)))
    rng = random.Random(1)
    rows = rows_of(stage, rng, orderly=True)
    shifted = pa.array([END - 20 + place % 21 for place in range(rows.num_rows)])
    rows = rows.set_column(rows.column_names.index("t"), "t", shifted)
    batches = [(rows, 1000), (rows.slice(0, 0), END - 5), (rows.slice(0, 0), END)]
    assert advanced(SessionKernel, stage, batches) == advanced(RecordWindowKernel, stage, batches)


def test_an_overflow_names_the_key_as_in_the_general_kernel():
    stage, texts = stage_of(build(("number",), ("total",))), []
    rows = rows_of(stage, random.Random(2), orderly=True)
    rows = rows.set_column(rows.column_names.index("v0"), "v0", pa.array([2**63 - 1] * rows.num_rows))
    for kind in (SessionKernel, RecordWindowKernel):
        with pytest.raises(ExecutionError) as caught:
            advanced(kind, stage, [(rows, END)])
        texts.append(str(caught.value))
    assert texts[0] == texts[1]


def test_only_sessions_that_fire_once_over_built_in_aggregates_take_one_loop():
    late = build(("text",), ("rows",), allowed_lateness="1 second")
    early = build(("text",), ("rows",), trigger=fm.AfterWatermark().early(fm.AfterCount(2)))
    careful = build(("text",), ("rows",), on_error="quarantine")
    assert not any(has_final_sessions(stage_of(operator)) for operator in (late, early, careful))
    assert has_final_sessions(stage_of(build(("text",), ("rows",))))
