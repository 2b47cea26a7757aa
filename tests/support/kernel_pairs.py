"""Two kernels of one step: rows of many types, cut into micro-batches, and what comes out of each and lies in state behind it."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator, Sequence
from datetime import datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
from pydantic import Field

import floodmark as fm
from floodmark.core.time import END
from floodmark.semantics.encoding.columns import arrow_schema
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


def rows_of(stage: Any, rng: random.Random, groups: int = 1, pools: dict[str, Any] = POOLS) -> pa.RecordBatch:
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
    if stage.whole_rows:
        arrays["row"] = pa.StructArray.from_arrays(list(source.values()), names=list(source))
    arrays |= {f"v{i}": source[value.sql] for i, value in enumerate(stage.values)}
    if stage.step.keys:  # a key belongs to one group
        names = list(zip(*(map(repr, source[name].to_pylist()) for name in stage.step.keys), strict=True))
        of_name = {}
        arrays["group"] = pa.array([of_name.setdefault(n, g) for n, g in zip(names, columns["group"], strict=True)], pa.int32())  # fmt: skip
    return pa.RecordBatch.from_pydict(arrays)


def cut(batch: pa.RecordBatch, rng: random.Random) -> Iterator[tuple[pa.RecordBatch, int]]:
    """(rows, progress) of micro-batches; the last one ends the input, or does not."""
    places, progress = sorted(rng.sample(range(batch.num_rows + 1), min(batch.num_rows, rng.randrange(4)))), 0
    for start, stop in itertools.pairwise([0, *places, batch.num_rows]):
        part = batch.slice(start, stop - start)
        progress = max([progress, *part["w"].to_pylist()])
        yield part, progress
    yield batch.slice(0, 0), rng.choice([END, progress + 5])


def advanced(kernel_types: Sequence[Any], stage: Any, parts: Sequence[tuple[pa.RecordBatch, int]]) -> list[Any]:
    """What comes out of each micro-batch, and the state behind it; the kernels take turns."""
    store, emitted = MemoryStore(), []
    for (part, progress), kernel_type in zip(parts, itertools.cycle(kernel_types), strict=False):
        packed = stage.pack([part]) if part.num_rows else {}
        emission = kernel_type(stage, store).advance(list(packed.values()), progress)
        counts = emission.late, emission.deadline, emission.tick, emission.dropped
        emitted.append((repr(emission.results.to_pylist()), emission.results.schema, counts, stored(store)))
    return emitted


def check_turns(kernel_type: Any, by_row: Any, stage: Any, parts: Sequence[tuple[pa.RecordBatch, int]]) -> None:
    """A kernel gives what the one by row does, and either reads what the other has kept."""
    expected = advanced([by_row], stage, parts)
    assert advanced([kernel_type], stage, parts) == expected
    assert advanced([kernel_type, by_row], stage, parts) == expected
    assert advanced([by_row, kernel_type], stage, parts) == expected


def check_whole(kernel_type: Any, by_row: Any, stage: Any, rows: pa.RecordBatch) -> bool:
    """A kernel gives for all rows of a key group at once, without state, what the one by row does; whether it has not left them to state."""
    packed = [tables for _, tables in sorted(stage.pack([rows]).items())]
    emission = kernel_type(stage, MemoryStore()).whole(packed)
    if emission is None:
        return False
    expected = by_row(stage, MemoryStore()).advance(packed, END)
    assert repr(emission.results.to_pylist()) == repr(expected.results.to_pylist())
    assert emission.results.schema == expected.results.schema
    assert (emission.late, emission.dropped) == (expected.late, expected.dropped)
    return True


def stored(store: MemoryStore) -> Any:
    """The entries of a store and what it keeps beside them."""
    entries = KeyGroup.open(MemoryStore(dict(store.chunks), store.head))
    own = {entry.name: repr((entry.key, entry.value, entry.event, entry.tick)) for entry in entries.due(NONE, NONE)}
    return own, entries.extra


def together(kernel_type: Any, stage: Any, parts: Sequence[tuple[pa.RecordBatch, int]], groups: int) -> list[Any]:
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
