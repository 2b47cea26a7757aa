"""A stream without Spark: the host's rules for progress, timers and stamps around the real kernel, so that thousands of cuts can be tried.

What Spark does in a run: micro-batch N sees the progress of all batches before it, W(N). Groups with rows are advanced to W(N), then groups
whose deadline is at or before W(N). Rows of its commit say W(N - 1), and a marker ends the commit. After the last batch one more follows,
as the watermark has moved, then a marker with W of the last one.
"""

from __future__ import annotations

import random
import zlib
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from floodmark.core.time import NEVER
from floodmark.semantics.encoding.columns import arrow_type
from floodmark.semantics.kernels.columnar import Stage, pack
from floodmark.semantics.kernels.kernel import ColumnarWindowKernel
from floodmark.semantics.state.store import MemoryStore
from floodmark.spec.graph.operator import Operator

Row = dict[str, Any]


def marker(progress: int) -> Row:
    """The row that only moves time."""
    return {"_kind": 1, "_watermark": progress, "_progress": progress}


class SimulatedRun:
    """One unbounded run of an operator whose keys and aggregate arguments are plain columns.

    Args:
        operator: with one window.
        groups: key groups.
        inputs: how many; a row of the second has ``_input`` 1. Time is the slowest one's.
    """

    def __init__(self, operator: Operator, groups: int = 3, inputs: int = 1) -> None:
        step = operator.stateful
        assert step is not None
        self.operator, self.step, self.groups = operator, step, groups
        self.stage = Stage.of(step, revisable=any(i.revisable for i in operator.inputs))
        self.stores: dict[int, MemoryStore] = {}
        self.deadlines: dict[int, int] = {}
        self.before, self.now = NEVER, NEVER
        self.reached = [NEVER] * inputs
        self.batch_number = 0
        self.side: list[str] = []
        self.dropped: Counter[int] = Counter()

    def batch(self, rows: Sequence[Row], rng: random.Random | None = None) -> list[Row]:
        """One micro-batch: the rows of its commit, marker last."""
        packed: dict[int, list[dict[str, pa.Table]]] = {}
        tasks = [list(rows)]
        if rng and len(rows) > 1:
            cut = rng.randrange(1, len(rows))
            tasks = [list(rows[cut:]), list(rows[:cut])]
        for task in tasks:
            for group, tables in pack(self.stage, [self._table(task)]).items():
                packed.setdefault(group, []).append(tables)
        out: list[Row] = []
        for group in [*packed, *(g for g, d in self.deadlines.items() if d <= self.now and g not in packed)]:
            parts = packed.get(group, [])
            for part in parts:
                if "side" in part:
                    self.side += part["side"]["side"].to_pylist()
                if "dropped" in part:
                    self.dropped.update(
                        dict(zip(part["dropped"]["end"].to_pylist(), part["dropped"]["n"].to_pylist(), strict=True))
                    )
            emission = ColumnarWindowKernel(self.stage, self.stores.setdefault(group, MemoryStore())).advance(
                parts, self.now
            )
            self.deadlines.pop(group, None)
            if emission.deadline is not None:
                self.deadlines[group] = emission.deadline
            base = (self.batch_number + 1) * 10**6 + group * 10**4
            out += [self._row(row, base) for row in emission.results.to_pylist()]
        self.batch_number += 1
        for row in rows:
            number = row.get("_input", 0)
            self.reached[number] = max(self.reached[number], row["_progress"])
        self.before, self.now = self.now, max(self.now, min(self.reached))
        return [*(r | {"_progress": self.before_commit} for r in out), marker(self.before_commit)]

    @property
    def before_commit(self) -> int:
        """What the rows of the commit just made may say."""
        return self._said

    def _row(self, row: Row, base: int) -> Row:
        return {k: v for k, v in row.items() if k != "_order"} | {"_sequence": base + row["_order"]}

    def _table(self, rows: Sequence[Row]) -> pa.RecordBatch:
        schema, values = self.step.parent.schema, self.stage.accumulators.values
        columns: dict[str, pa.Array] = {
            "group": pa.array([self._group(r) for r in rows], pa.int32()),
            **{
                f"k{i}": pa.array([r.get(k) for r in rows], arrow_type(schema[k].type))
                for i, k in enumerate(self.step.keys)
            },
            "t": pa.array([r.get("_event_time", 0) for r in rows], pa.int64()),
            "w": pa.array([r["_watermark"] for r in rows], pa.int64()),
            "s": pa.array([r.get("_sequence") for r in rows], pa.int64()),
            "kind": pa.array([r["_kind"] for r in rows], pa.int32()),
            **{f"v{j}": pa.array([r.get(v.sql) for r in rows], arrow_type(v.type)) for j, v in enumerate(values)},
            "side": pa.array(
                [repr(sorted((k, r[k]) for k in r if k not in {"_progress", "_sequence", "_input"})) for r in rows],
                pa.string(),
            ),
        }
        return pa.RecordBatch.from_pydict(columns)

    def _group(self, row: Row) -> int:
        return zlib.crc32(repr([row.get(k) for k in self.step.keys]).encode()) % self.groups

    _said: int = NEVER


def run_batch(run: SimulatedRun, rows: Sequence[Row], rng: random.Random | None = None) -> list[Row]:
    """A micro-batch with the progress of the batch before it in its commit."""
    run._said = run.before
    return run.batch(rows, rng)


def settle(run: SimulatedRun) -> list[Row]:
    """No more input for now: the batch without data, and the marker that says how far it has got."""
    out = run_batch(run, [])
    return [*out, marker(run.now)]


def cuts(rows: Sequence[Row], rng: random.Random | None) -> list[list[Row]]:
    """Rows in random micro-batches; a retraction pair stays together, as it is written together."""
    if rng is None:
        return [list(rows)]
    found: list[list[Row]] = [[]]
    wanted = rng.choice([1, 2, 7, 40, 200])
    for row in rows:
        pair = found[-1] and row.get("_sequence") is not None and row.get("_sequence") == found[-1][-1].get("_sequence")
        if len(found[-1]) >= wanted and not pair:
            found.append([])
            wanted = rng.choice([1, 2, 7, 40, 200])
        found[-1].append(row)
    return found


def final(rows: Sequence[Row], columns: Sequence[str], keys: Sequence[str]) -> dict[tuple[Any, ...], tuple[Any, ...]]:
    """Changelog -> last value per key; checks that every retraction takes back exactly what was there."""
    found: dict[tuple[Any, ...], tuple[Any, ...]] = {}
    for row in rows:
        if row["_kind"] == 1:
            continue
        key, value = tuple(row[k] for k in keys), tuple(row[c] for c in columns)
        if row["_kind"] == -1:
            assert found.pop(key) == value, "a retraction takes back what was said"
        else:
            assert key not in found, f"two values for {key} without a retraction between them"
            found[key] = value
    return found
