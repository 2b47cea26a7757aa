"""``deduplicate`` in columns against the general kernel of process functions: equal rows, equal marks, and either reads what the other kept."""

from __future__ import annotations

import itertools
import random
from collections import defaultdict

import pyarrow as pa
import pytest

import floodmark as fm
from floodmark.core.errors import FloodmarkError
from floodmark.core.time import END, Interval
from floodmark.semantics.encoding.columns import arrow_schema
from floodmark.semantics.kernels.elements import Clip, ProcessStage
from floodmark.semantics.kernels.functions.duplicates import DeduplicateKernel
from floodmark.semantics.kernels.process import ProcessKernel
from floodmark.semantics.kernels.stage import kernel_of, stage_of
from floodmark.semantics.state.directory import NONE
from floodmark.semantics.state.entries import KeyGroup
from floodmark.semantics.state.store import MemoryStore

WITHIN = 10


class Event(fm.Contract):
    """Keys of two types, and values."""

    at: fm.EventTime
    text: str | None
    share: float | None
    value: int
    note: str | None


def build(*keys, **settings):
    @fm.operator(name="once")
    def once(events: fm.Stream[Event]) -> fm.Stream:
        return events.key_by(*keys).deduplicate(f"{WITHIN} ms", **settings)

    return once


def rows_of(stage, rng, *, values=(1, 2, 3)):
    """Rows of one key group, out of order, some behind their stamps."""
    count, now, stamp, rows = rng.randrange(5, 60), 1000, 900, []
    pools = {"text": (None, "a", ""), "share": (None, -0.0, 0.0, float("nan"), 1.5), "note": (None, "n")}
    for place in range(count):
        now += rng.choice([0, 1, WITHIN // 2, WITHIN, 3 * WITHIN])
        time = now - rng.choice([0, 0, 2, WITHIN, 2 * WITHIN, 5 * WITHIN])
        row = {name: rng.choice(pool) for name, pool in pools.items()} | {
            "value": rng.choice(values),
            "at": time * 1000,
        }
        rows.append({"group": 0, "t": time, "w": stamp, "s": place, "kind": 0, "row": row})
        stamp = max(stamp, now - rng.choice([0, WITHIN, 4 * WITHIN]))
    schema = arrow_schema(stage.step.parent.schema)
    whole = pa.array([row.pop("row") for row in rows], pa.struct(list(schema)))
    columns = {name: pa.array([row[name] for row in rows], pa.int64()) for name in ("t", "w", "s")}
    columns |= {name: pa.array([row[name] for row in rows], pa.int32()) for name in ("group", "kind")}
    columns |= {f"k{i}": whole.field(name) for i, name in enumerate(stage.step.keys)}
    batch = pa.RecordBatch.from_pydict(columns | {"row": whole})
    return stage.pack([batch])[0]["rows"]


def boundaries(rows, rng, *, ended):
    """(rows of each micro-batch, progress behind it)."""
    places, progress = sorted(rng.sample(range(rows.num_rows + 1), rng.randrange(4))), 0
    for start, stop in itertools.pairwise([0, *places, rows.num_rows]):
        part = rows.slice(start, stop - start)
        progress = max([progress, *part["w"].to_pylist()])
        yield part, progress
    yield rows.slice(0, 0), END if ended else progress + WITHIN


def advanced(kernel_types, stage, batches):
    """What comes out of each micro-batch, and the marks of each key behind it; the kernels take turns."""
    store, emitted = MemoryStore(), []
    for (part, progress), kernel_type in zip(batches, itertools.cycle(kernel_types), strict=False):
        emission = kernel_type(stage, store).advance([{"rows": part}] if part.num_rows else [], progress)
        counts = emission.late, emission.deadline, emission.tick, emission.dropped
        results = emission.results
        emitted.append((repr(results.to_pylist()), results.schema, counts, marks_in(store)))
    return emitted


def marks_in(store):
    entries = KeyGroup.open(MemoryStore(dict(store.chunks), store.head))
    return {entry.name: entry.value[3]["over"] for entry in entries.due(NONE, NONE)}


@pytest.mark.parametrize(
    "clip", [None, Clip(interval=Interval(start=1050, end=1300), read=Interval(start=0, end=10_000))]
)
@pytest.mark.parametrize("by_time", [False, True])
@pytest.mark.parametrize("keys", [("text",), ("share", "text"), ("share",), ("at",)])
@pytest.mark.few(4)
def test_rows_and_state_are_those_of_the_general_kernel(keys, by_time, clip):
    stage = ProcessStage(stage_of(build(*keys)).step, by_time, clip)
    assert type(kernel_of(stage, MemoryStore())) is DeduplicateKernel
    for seed in range(6):
        rng = random.Random(f"{keys} {by_time} {seed}")
        batches = list(boundaries(rows_of(stage, rng), rng, ended=seed % 2))
        general = advanced([ProcessKernel], stage, batches)
        assert advanced([DeduplicateKernel], stage, batches) == general
        assert advanced([DeduplicateKernel, ProcessKernel], stage, batches) == general
        assert advanced([ProcessKernel, DeduplicateKernel], stage, batches) == general


def test_of_many_keys_each_comes_out_once_while_its_mark_lasts():
    """Thousands of keys in many buckets, of which each micro-batch brings old and new ones; marks run out on the way."""
    stage, store, rng = stage_of(build("value")), MemoryStore(), random.Random(1)
    last, emitted, wanted = {}, [], []
    for batch in range(12):
        values = [rng.randrange(20_000) for _ in range(1500)]
        times = [1000 + 5 * batch + rng.randrange(3) for _ in values]
        whole = pa.array([{"at": t * 1000, "value": v} for v, t in zip(values, times, strict=True)])
        schema = pa.struct(list(arrow_schema(stage.step.parent.schema)))
        columns = {"k0": pa.array(values), "t": pa.array(times), "w": pa.array([990 + 5 * batch] * len(values))}
        columns |= {"s": pa.array(range(len(values))), "kind": pa.array([0] * len(values), pa.int32())}
        columns |= {"row": pa.array(whole.to_pylist(), schema)}
        results = DeduplicateKernel(stage, store).advance([{"rows": pa.table(columns)}], 990 + 5 * batch).results
        emitted += list(zip(results["value"].to_pylist(), results["_event_time"].to_pylist(), strict=True))
        for value, time in zip(values, times, strict=True):
            if value not in last or last[value] + WITHIN < time:
                last[value] = time
                wanted.append((value, time))
    assert emitted == wanted
    assert 0 < len(marks_in(store)) < len(set(last))
    assert max(map(len, store.chunks.values())) < 10_000
    DeduplicateKernel(stage, store).advance([], END)
    assert not store.chunks


def test_the_rows_of_a_key_that_come_out_are_more_than_the_distance_apart_and_cover_the_others():
    """Brute force: in order of arrival, a row comes out unless one that came out is at most the distance before or after it."""
    stage = stage_of(build("text"))
    for seed in range(15):
        rng = random.Random(seed)
        rows = rows_of(stage, rng)
        rows = rows.set_column(rows.column_names.index("w"), "w", pa.array([0] * rows.num_rows))  # no mark is freed
        emission = DeduplicateKernel(stage, MemoryStore()).advance([{"rows": rows}], 0)
        wanted, seen = [], defaultdict(list)
        for row in rows.to_pylist():
            if all(abs(row["t"] - time) > WITHIN for time in seen[row["k0"]]):
                seen[row["k0"]].append(row["t"])
                wanted.append((row["k0"], row["t"], row["row"]["value"], row["row"]["note"]))
        results = emission.results.to_pylist()
        assert [(row["text"], row["_event_time"], row["value"], row["note"]) for row in results] == wanted


def test_a_missing_value_is_refused_as_by_the_general_kernel():
    stage, texts = stage_of(build("text")), []
    rows = rows_of(stage, random.Random(3), values=(1, None))
    for kind in (DeduplicateKernel, ProcessKernel):
        with pytest.raises(FloodmarkError) as caught:
            advanced([kind], stage, [(rows, END)])
        texts.append(str(caught.value))
    assert texts[0] == texts[1]
