"""Rolling aggregates over rows that are taken back: all rows of a key group at once, of which those that are taken back are not added up."""

from __future__ import annotations

import random

import pyarrow as pa
import pytest
from kernel_pairs import Event, check_whole, rows_of

import floodmark as fm
from floodmark.core.errors import ExecutionError
from floodmark.core.time import END
from floodmark.semantics.kernels.elements import ElementStage
from floodmark.semantics.kernels.functions.rolling import RollingKernel
from floodmark.semantics.kernels.stage import kernel_of, stage_of
from floodmark.semantics.state.store import MemoryStore
from floodmark.spec.values.schema import RETRACTION

SUMS = {
    "rows": fm.count(),
    "values": fm.count("value"),
    "sum": fm.sum("value"),
    "amounts": fm.sum("amount"),
    "mean": fm.mean("value"),
    "least": fm.min("large"),
    "most_text": fm.max("text"),
    "different": fm.count_distinct("text"),
}


def stage_over(aggregates, *keys, by_time=False) -> ElementStage:
    """A rolling aggregate over rows that may be taken back."""

    @fm.operator(name="sums")
    def sums(events: fm.Stream[Event]) -> fm.Stream:
        return (events.key_by(*keys) if keys else events).rolling(**aggregates)

    return ElementStage(stage_of(sums).step, by_time, revisable=True)


def with_retractions(rows: pa.RecordBatch, rng: random.Random) -> pa.RecordBatch:
    """Rows, and behind them retractions of some."""
    chosen = rows.take(pa.array(sorted(rng.sample(range(rows.num_rows), rows.num_rows // 2)), pa.int64()))
    names = chosen.schema.names
    behind = pa.array(range(1_000_000, 1_000_000 + chosen.num_rows), pa.int64())
    chosen = chosen.set_column(names.index("s"), "s", behind)
    chosen = chosen.set_column(names.index("kind"), "kind", pa.array([RETRACTION] * chosen.num_rows, pa.int32()))
    return pa.concat_batches([rows, chosen])


@pytest.mark.feature("Q1")
@pytest.mark.parametrize("by_time", [False, True])
@pytest.mark.parametrize("keys", [("text",), ("right", "since"), ()])
def test_all_rows_of_a_key_group_at_once_give_the_same_without_state(keys, by_time):
    for seed in range(6):
        rng = random.Random(f"whole {keys} {seed}")
        stage = stage_over({name: SUMS[name] for name in rng.sample(sorted(SUMS), 4)}, *keys, by_time=by_time)
        assert type(kernel_of(stage, MemoryStore())) is RollingKernel
        rows = with_retractions(rows_of(stage, rng), rng)
        assert check_whole(RollingKernel, RollingKernel, stage, rows)


@pytest.mark.parametrize(
    "aggregate", [fm.sum("share"), fm.last("value"), fm.max_by("text", "value"), fm.median("value")]
)
def test_aggregates_that_depend_on_the_order_of_rows_are_computed_row_by_row(aggregate):
    stage = stage_over({"a": aggregate}, "text")
    assert not check_whole(RollingKernel, RollingKernel, stage, rows_of(stage, random.Random(1)))


def test_a_total_that_does_not_fit_is_the_same_error():
    stage, answers = stage_over({"sum": fm.sum("value")}, "text"), []
    source = rows_of(stage, random.Random(1))
    number = source.schema.names.index("v0")
    source = source.set_column(number, "v0", pa.array([2**62] * source.num_rows, pa.int64()))
    packed = list(stage.pack([source]).values())
    for compute in (
        lambda kernel: kernel.whole(packed),
        lambda kernel: kernel.advance(packed, END),
    ):
        with pytest.raises(ExecutionError, match="EXECUTION-001") as raised:
            compute(RollingKernel(stage, MemoryStore()))
        answers.append(str(raised.value).split(" key ")[0])
    assert answers[0] == answers[1]
