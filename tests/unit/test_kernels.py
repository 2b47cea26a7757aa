"""Several key groups computed together: what each computes by itself, row for row and chunk for chunk, whichever groups come together."""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa
import pytest

from floodmark import Sliding, Tumbling
from floodmark.core.time import END
from floodmark.semantics.encoding.columns import decode
from floodmark.semantics.kernels.columnar import Stage, by_group, judged
from floodmark.semantics.kernels.kernel import ColumnarWindowKernel, Kernels
from floodmark.semantics.state.store import MemoryStore
from tests.unit.test_kernel import batch, rows_of, stage_of

GROUPS = 5


def plain(store: MemoryStore) -> list[Any]:
    """What a store holds, whatever the order of rows in a chunk, and without values that were taken back as often as they came."""
    chunks = [{name: t.to_pylist() for name, t in decode(chunk).items()} for chunk in store.chunks.values()]
    for chunk in chunks:
        for bag in (rows for name, rows in chunk.items() if name.startswith("bag")):
            bag[:] = [row for row in bag if row["n"]]
    return sorted(repr(sorted((name, sorted(map(repr, rows))) for name, rows in chunk.items())) for chunk in chunks)


@pytest.mark.parametrize("revisable", [False, True])
@pytest.mark.parametrize("lateness", [0, 7])
@pytest.mark.parametrize("window", [Tumbling("5ms"), Sliding("7ms", "3ms")], ids=repr)
@pytest.mark.parametrize("seeds", [range(2), pytest.param(range(2, 6), marks=pytest.mark.soak)], ids=str)
@pytest.mark.few(2)
def test_groups_together_are_groups_apart(window: Any, lateness: int, revisable: bool, seeds: range) -> None:
    stage = stage_of(window, lateness, revisable=revisable)
    found = sum(compared(stage, rows_of(seed, revisable=revisable), random.Random(seed)) for seed in seeds)
    assert found > 10 * len(seeds)


def compared(stage: Stage, rows: list[dict[str, Any]], rng: random.Random) -> int:
    """Rows in random cuts through both; how many results there were."""
    apart, together = ({g: MemoryStore() for g in range(GROUPS)} for _ in range(2))
    deadlines: dict[int, int | None] = dict.fromkeys(range(GROUPS))
    known, position, sent = -(10**12), 0, 0
    while known < END:
        size = rng.randrange(1, 20)
        chunk, position = rows[position : position + size], position + size
        known = END if not chunk else max([known, *(row["p"] for row in chunk)])
        tables = judged(stage, [grouped(batch(stage, chunk))]) if chunk else {}
        parts = by_group(tables)
        due = {group for group, at in deadlines.items() if at is not None and at <= known}
        groups = sorted({*parts, *due})
        emissions = Kernels(stage, {g: together[g] for g in groups}).advance_all([tables], known)
        alone = [ColumnarWindowKernel(stage, apart[g]).advance([parts[g]] if g in parts else [], known) for g in groups]
        expected = numbered([one.results for one in alone])
        assert repr(emissions.results.to_pylist()) == repr(expected)
        assert emissions.deadlines == {g: one.deadline for g, one in zip(groups, alone, strict=True)}
        assert emissions.late == sum(one.late for one in alone)
        assert [plain(together[g]) for g in range(GROUPS)] == [plain(apart[g]) for g in range(GROUPS)]
        deadlines |= emissions.deadlines
        sent += len(expected)
    assert not any(store.chunks or store.head for store in (*apart.values(), *together.values()))
    return sent


def grouped(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Rows in the group of their key."""
    groups = [sum(map(ord, key or "")) % GROUPS for key in rows.column("k0").to_pylist()]
    return rows.set_column(0, "group", pa.array(groups, pa.int32()))


def numbered(results: list[pa.Table]) -> list[dict[str, Any]]:
    """Rows of one group after the other; the numbers of a group begin behind those of the group before."""
    rows: list[dict[str, Any]] = []
    for table in results:
        first = rows[-1]["_order"] + 1 if rows else 0
        rows += [row | {"_order": first + row["_order"]} for row in table.to_pylist()]
    return rows
