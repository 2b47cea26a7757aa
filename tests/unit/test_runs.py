"""Helpers for users' tests: tables of rows, streams out of order, every engine and mode."""

from __future__ import annotations

import math
from datetime import datetime, timedelta

import pyarrow as pa
import pytest
from hourly_sums import ROWS, Reading, sums
from hypothesis import given, settings
from hypothesis import strategies as st

import floodmark as fm
from floodmark.core.errors import DefinitionError, LifecycleError
from floodmark.spec.values.schema import RETRACTION, ROW
from floodmark.testing import IN_MEMORY, Case, table
from floodmark.testing.runs import final
from floodmark.testing.strategies import cuts, streams


@fm.operator
def visits(readings: fm.Stream[Reading]) -> fm.Stream:
    """Sessions."""
    return readings.key_by("sensor").window(fm.Session("10 minutes")).aggregate(n=fm.count(), total=fm.sum("value"))


def test_a_table_is_rows():
    assert table(ROWS)[0] == {"at": datetime(2013, 1, 1, 9, 5), "sensor": "a", "value": 2}
    assert table(ROWS)[1]["value"] is None
    assert table('| a | b |\n| [1, 2] | "3" |\n| true | two words |') == [
        {"a": [1, 2], "b": "3"},
        {"a": True, "b": "two words"},
    ]
    assert table("") == []
    with pytest.raises(DefinitionError, match=r"DEFINITION-112 row 1 of a table: expected 2 cells: a, b"):
        table("| a | b |\n| 1 |")


def test_a_case_takes_tables():
    run = Case(sums).feed("readings", ROWS).watermark(datetime(2013, 1, 1, 10))
    run.expect("| sensor | n | total |\n| a | 1 | 100 |\n| a | 2 | 5 |")


@pytest.mark.feature("B1")
@pytest.mark.parametrize("run", IN_MEMORY, ids=str)
def test_both_modes_give_the_same(run):
    found = run(sums, {"readings": ROWS}, delay="30 minutes")[""]
    assert [(row["window_start"].hour, row["n"], row["total"]) for row in found] == [(9, 2, 5), (10, 1, None)]


def test_unknown_inputs_are_told():
    with pytest.raises(
        DefinitionError, match="DEFINITION-111 rows for operator 'sums': expected inputs among readings"
    ):
        IN_MEMORY[0](sums, {"reading": ROWS})


def test_times_may_be_texts_and_a_value_that_does_not_fit_is_named() -> None:
    rows = [
        {"at": "2013-01-01 09:05", "sensor": "a", "value": 2},
        {"at": "2013-01-01T10:05:00Z", "sensor": "a", "value": 3},
    ]
    (first, second) = IN_MEMORY[0](sums, {"readings": rows})[""]
    assert (first["total"], second["total"]) == (2, 3)
    for name, value in (("value", 1 << 63), ("value", "x"), ("value", 1.5), ("value", math.inf), ("at", None)):
        with pytest.raises(DefinitionError, match=f"DEFINITION-113 row 3, column '{name}': expected a"):
            IN_MEMORY[1](sums, {"readings": [*rows, {**rows[1], name: value}]})
    with pytest.raises(LifecycleError, match="LIFECYCLE-002 row 1, column 'at'"):
        IN_MEMORY[0](sums, {"readings": [{**rows[0], "at": "noon"}]})


@settings(max_examples=40)
@given(
    streams({"sensor": st.sampled_from("ab"), "value": st.integers(-9, 9)}, delay=timedelta(minutes=20)),
    cuts(),
    st.data(),
)
def test_streams_are_out_of_order_and_cuts_lose_nothing(rows, cut, data):
    assert [row for piece in cut(rows) for row in piece] == rows
    operator = data.draw(st.sampled_from([sums, visits]))
    bounded, unbounded = (run(operator, {"readings": rows}, delay="20 minutes") for run in IN_MEMORY)
    assert bounded == unbounded


def test_a_row_with_nan_can_be_taken_back() -> None:
    rows = [{"x": math.nan, "_kind": ROW}, {"x": 1.0, "_kind": ROW}, {"x": float("nan"), "_kind": RETRACTION}]
    assert final([pa.Table.from_pylist(rows)]) == [{"x": 1.0}]
