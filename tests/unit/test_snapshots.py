"""The examples by which snapshots are explained, with their numbers: positions and state are one."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pytest

import floodmark as fm
from floodmark.core.time import from_ms
from floodmark.engines.embedded.memory.run import MemoryRun
from floodmark.spec.values.schema import ROW
from floodmark.testing.log import Log


class Number(fm.Contract):
    """A number."""

    at: fm.EventTime
    value: int


PARITY = "CASE WHEN value % 2 = 1 THEN 'odd' ELSE 'even' END"


@fm.operator
def one(numbers: fm.Stream[Number]) -> fm.Stream:
    """Odd and even sums."""
    return numbers.with_columns(parity=PARITY).key_by("parity").rolling(total=fm.sum("value"))


@fm.operator
def two(left: fm.Stream[Number], right: fm.Stream[Number]) -> fm.Stream:
    """Odd and even sums of two sources."""
    both = left.union(right).with_columns(parity=PARITY).key_by("parity")
    return both.window(fm.Global(), trigger=fm.AfterCount(1), order="arrival").aggregate(total=fm.sum("value"))


def log_of(numbers: Sequence[int]) -> Log:
    log = Log(one.inputs[0].schema)
    for place, number in enumerate(numbers):
        log.row({"at": from_ms(place), "value": number}, place)
    return log


def sums(found: pa.Table) -> dict[str, int]:
    """The last value of each."""
    return {row["parity"]: row["total"] for row in found.to_pylist() if row["_kind"] == ROW}


@pytest.mark.feature("F1")
def test_at_offset_five_the_sums_are_nine_and_six_and_the_sixth_is_read_again():
    log, run = log_of([1, 2, 3, 4, 5, 6, 7]), MemoryRun(one)
    assert sums(run.batch({"numbers": log.table(0, 5)})[""]) == {"odd": 9, "even": 6}
    snapshot = run.savepoint()
    assert sums(run.batch({"numbers": log.table(5, 7)})[""]) == {"odd": 16, "even": 12}
    restored = MemoryRun(one, snapshot)
    assert sums(restored.batch({"numbers": log.table(5, 6)})[""]) == {"even": 12}
    assert sums(restored.batch({"numbers": log.table(6, 7)})[""]) == {"odd": 16}


@pytest.mark.feature("F2")
def test_with_offsets_three_and_four_of_two_sources_both_sums_are_eight():
    left, right, run = log_of([1, 2, 3, 5]), log_of([1, 2, 3, 4, 6]), MemoryRun(two)
    assert sums(run.batch({"left": left.table(0, 3), "right": right.table(0, 4)})[""]) == {"odd": 8, "even": 8}
    snapshot = run.savepoint()
    behind = {"left": left.table(3), "right": right.table(4)}
    assert sums(run.batch(behind)[""]) == {"odd": 13, "even": 14}
    assert sums(MemoryRun(two, snapshot).batch(behind)[""]) == {"odd": 13, "even": 14}
