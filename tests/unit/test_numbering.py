"""``_sequence`` never repeats, whatever the number of rows and tasks; each micro-batch has one marker, whatever Spark divides it into."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from floodmark.core.errors import ExecutionError
from floodmark.engines.frames import packing as preaggregate
from floodmark.engines.frames.numbering import Numbering, of_batch, of_bounded_run
from floodmark.engines.frames.packing import Stamping, unpacking
from floodmark.semantics.encoding.columns import encode
from floodmark.spec.values.schema import BOUNDED, MARKER, SEQUENCES, Column, Schema, first_sequence

SCHEMA = Schema((Column(name="x", type="bigint"),))


@given(st.integers(0, SEQUENCES), st.integers(1, 5_000), st.integers(0, 2**26 - 3))
def test_any_task_has_room_for_all_rows_of_its_micro_batch(rows: int, wanted: int, number: int) -> None:
    numbering, tasks = of_batch(number, rows, wanted)
    assert 1 <= tasks <= wanted
    last = numbering.first(tasks - 1) + max(rows, 1) - 1
    numbering.check(tasks - 1, last)
    assert first_sequence(number) <= numbering.first(0)
    assert last < first_sequence(number + 1) <= BOUNDED
    for task in range(min(tasks, 8) - 1):
        assert numbering.first(task) + max(rows, 1) <= numbering.first(task + 1)


def test_a_later_micro_batch_wins_whatever_number_of_tasks_wrote_the_earlier_one() -> None:
    (before, many), (after, few) = of_batch(7, 2_000_000, 512), of_batch(8, 2_000_000, 16)
    assert (many, few) == (512, 16)
    assert before.first(many - 1) + 2_000_000 < after.first(0)


def test_more_rows_than_a_micro_batch_has_sequences_for_are_refused_before_anything_is_written() -> None:
    with pytest.raises(
        ExecutionError, match=r"EXECUTION-061 results of micro-batch 3: expected at most 1,073,741,824 rows"
    ):
        of_batch(3, SEQUENCES + 1, 1)


def test_a_task_that_would_reach_into_the_next_one_stops() -> None:
    numbering = Numbering(base=100, width=10, end=120)
    numbering.check(1, 119)
    for task, last in ((0, 110), (1, 120)):
        with pytest.raises(ExecutionError, match=f"EXECUTION-061 results of task {task}: .* at least 11 rows"):
            numbering.check(task, last)
    with pytest.raises(ExecutionError, match="EXECUTION-061 results of task 2"):
        numbering.first(2)


def test_a_task_of_a_bounded_run_has_room_for_five_million_rows_and_more() -> None:
    numbering = of_bounded_run()
    numbering.check(0, numbering.first(0) + 5_000_000)
    assert numbering.first(0) == BOUNDED
    assert numbering.first(60_000) * 64 < 2**63


class Context:
    """What Spark says in a task."""

    def __init__(self, task: int) -> None:
        self.task = task

    def get(self) -> Context:
        return self

    def partitionId(self) -> int:  # noqa: N802 - Spark's name
        return self.task


def rows_of(monkeypatch: pytest.MonkeyPatch, task: int, stamping: Stamping, chunks: list[bytes | None]) -> list[dict]:
    monkeypatch.setattr(preaggregate, "TaskContext", Context(task))
    batch = pa.RecordBatch.from_pydict({"results": pa.array(chunks, pa.binary())})
    return [row for found in unpacking(SCHEMA, stamping)([batch]) for row in found.to_pylist()]


@pytest.mark.parametrize("partitions", [1, 2, 3, 8])
def test_a_micro_batch_of_many_rows_has_one_marker_whatever_the_number_of_partitions(
    monkeypatch: pytest.MonkeyPatch, partitions: int
) -> None:
    numbering, tasks = of_batch(0, 3_000_000, 3)
    stamping = Stamping(progress=5, ingested=0, numbering=numbering, marker=True)
    results = pa.table(
        {
            "x": [1, 2],
            "_event_time": [0, 0],
            "_watermark": [0, 0],
            "_kind": pa.array([0, 0], pa.int32()),
            "_order": [0, 1],
        }
    )
    chunk, rows = encode({"results": results}), []
    for task in range(min(tasks, partitions)):  # Spark's coalesce makes no more of them than there are
        rows += rows_of(monkeypatch, task, stamping, [chunk, None, chunk])
    assert [row["_kind"] for row in rows].count(MARKER) == 1
    sequences = [row["_sequence"] for row in rows if row["_kind"] != MARKER]
    assert len(set(sequences)) == len(sequences) == 4 * min(tasks, partitions)
