"""What a stage on Spark hands on: results as rows, and past them what the sink is told, in tasks without Spark."""

from __future__ import annotations

import pyarrow as pa
import pytest
from staged import PEAKS

from floodmark.core.errors import ExecutionError
from floodmark.core.time import Interval
from floodmark.engines.frames.packing import emitted, packing
from floodmark.engines.spark.state import handing as module
from floodmark.engines.spark.state.handing import HANDED, handing
from floodmark.semantics.encoding.columns import decode
from floodmark.semantics.kernels.kernel import Emission
from floodmark.semantics.kernels.stage import stage_of
from floodmark.spec.values.schema import CARRIED, MARKER, SEQUENCES

FIRST, SECOND = (stage_of(link) for link in PEAKS.links)
NOTHING = dict.fromkeys(("late", "dropped", "sides", "failures", "taken"), 0)


def emission(orders: list[int]) -> Emission:
    """Results of the first stage in an order."""
    schema = FIRST.result_schema
    rows = [
        {name: 0 if pa.types.is_integer(kind) else None for name, kind in zip(schema.names, schema.types, strict=True)}
        | {"key": f"k{order}", "_order": order, "_event_time": 1000 + order, "_watermark": 5}
        for order in orders
    ]
    return Emission(pa.Table.from_pylist(rows, schema=schema), 2, None)


def handed(tables: list[pa.Table], carries: set[int] | None, monkeypatch: pytest.MonkeyPatch) -> pa.Table:
    """What the first stage hands on of some emissions in micro-batch 3."""
    monkeypatch.setattr(module, "_micro_batch", lambda: 3)
    batches = [batch for table in tables for batch in table.to_batches()]
    return pa.Table.from_batches(list(handing(FIRST, 0, carries)(batches)))


def of_group(group: int, orders: list[int]) -> pa.Table:
    return emitted(FIRST, emission(orders), NOTHING | {"taken": 7}, group=group)


def test_sequences_of_a_key_group_are_the_same_in_whichever_task_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    one, other = of_group(1, [1, 0]), of_group(5, [0])
    together = handed([one, other], None, monkeypatch)
    alone = [handed([table], None, monkeypatch) for table in (other, one)]
    assert together.num_rows == 3
    assert sorted(together["_sequence"].to_pylist()) == sorted(s for t in alone for s in t["_sequence"].to_pylist())
    assert len(set(together["_sequence"].to_pylist())) == 3
    assert all(4 * SEQUENCES <= sequence < 5 * SEQUENCES for sequence in together["_sequence"].to_pylist())
    assert together[CARRIED].null_count == 3, "nothing is carried past another copy of the stage"


def test_more_results_of_a_key_group_than_it_has_sequences_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ExecutionError, match="EXECUTION-061"):
        handed([of_group(1, [0, SEQUENCES // FIRST.step.groups])], None, monkeypatch)


@pytest.mark.parametrize("carries", [set[int](), {0}])
def test_what_is_carried_passes_the_next_stage_and_none_of_its_rows(
    monkeypatch: pytest.MonkeyPatch, carries: set[int]
) -> None:
    before = of_group(1, [0, 1])
    rows = handed([before], carries, monkeypatch)
    markers = rows.filter(pa.compute.equal(rows["_kind"], MARKER))
    assert markers.num_rows == 1
    names = ("group", "k0", "t", "w", "s", "kind", "v0", CARRIED)
    read = {"group": 0, "k0": None, "t": 0, "w": -1, "s": None, "kind": MARKER, "v0": None}
    batch = pa.RecordBatch.from_pylist([{**read, CARRIED: markers[CARRIED][0].as_py()}])
    assert set(batch.schema.names) == set(names)
    packed = pa.Table.from_batches(list(packing(SECOND, Interval())([batch]))).to_pylist()
    assert [row["group"] for row in packed] == [-1]
    passed = decode(packed[0]["payload"])[HANDED]
    assert passed.drop_columns(["results"]) == before.drop_columns(["results"])
    assert passed["results"] == (before["results"] if carries else pa.chunked_array([pa.nulls(1, pa.binary())]))
