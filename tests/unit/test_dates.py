"""Times that Python has no dates for: as texts, and back."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from floodmark.connectors.entries import Columns
from floodmark.semantics.encoding.dates import day_of, first_beyond, instant_of, row_of, rows_of

FAR, NEAR = 253_402_300_800_000_000, 0
NAMES = {FAR: "+10000-01-01T00:00:00Z", NEAR: datetime(1970, 1, 1, tzinfo=UTC), None: None}


def instants(*values: int | None) -> pa.Array:
    """Microseconds since 1970 as points in time."""
    return pa.array(values, pa.int64()).view(pa.timestamp("us", tz="UTC"))


def nested(kind: str, values: pa.Array) -> pa.Array:
    """Rows each of which has one of the values in it."""
    offsets = pa.array(range(len(values) + 1), pa.int32())
    match kind:
        case "plain":
            return values
        case "array":
            return pa.ListArray.from_arrays(offsets, values)
        case "map":
            return pa.MapArray.from_arrays(offsets, ["k"] * len(values), values)
        case _:
            return pa.StructArray.from_arrays([values], ["part"])


@pytest.mark.parametrize(
    ("kind", "read"),
    [
        ("plain", lambda value: value),
        ("array", lambda value: value[0]),
        ("map", lambda value: value["k"]),
        ("struct", lambda value: value["part"]),
    ],
)
def test_a_time_without_a_date_is_a_text_wherever_it_is(kind: str, read: Any) -> None:
    values = [NEAR, FAR, None]
    batch = pa.RecordBatch.from_arrays([nested(kind, instants(*values)), pa.array([1, 2, 3])], names=["at", "n"])
    rows = rows_of(batch)
    assert [(read(row["at"]), row["n"]) for row in rows] == [(NAMES[v], n) for n, v in enumerate(values, 1)]
    assert [row_of(batch, number) for number in range(3)] == rows
    assert row_of(batch, 1, ("n",)) == {"n": 2}
    assert first_beyond(batch) == (1, "at", NAMES[FAR])
    assert first_beyond(batch.slice(2)) is None
    assert [record.value for record in Columns(1, batch).records()] == rows


def test_a_text_that_is_none_is_bytes_and_a_map_with_a_key_twice_is_pairs() -> None:
    offsets = pa.array([0, 1, 3], pa.int32())
    texts = pa.StringArray.from_buffers(2, offsets.buffers()[1], pa.py_buffer(b"a\xff\xfe"))
    maps = pa.MapArray.from_arrays(offsets, ["a", "b", "b"], [1, 2, 3])
    batch = pa.RecordBatch.from_arrays([texts, maps], names=["text", "map"])
    wanted = [{"text": "a", "map": {"a": 1}}, {"text": b"\xff\xfe", "map": [("b", 2), ("b", 3)]}]
    assert rows_of(batch) == [row_of(batch, number) for number in range(2)] == wanted


@given(st.integers(-(2**62), 2**63 - 1))
def test_a_text_of_an_instant_is_that_instant(number: int) -> None:
    (row,) = rows_of(pa.RecordBatch.from_arrays([instants(number)], names=["at"]))
    if isinstance(row["at"], str) and not row["at"].startswith("-"):
        assert instant_of(row["at"]) == number


@given(st.integers(-719_162 - 366, 2**31 - 1))
def test_a_text_of_a_date_is_that_date(number: int) -> None:
    (row,) = rows_of(pa.RecordBatch.from_arrays([pa.array([number], pa.int32()).view(pa.date32())], names=["on"]))
    if isinstance(row["on"], str):
        assert day_of(row["on"]) == number


@pytest.mark.parametrize(
    "text", ["2020-01-01T00:00:00Z", "+10000-13-01T00:00:00Z", "+10000-02-31T00:00:00Z", "+10000", ""]
)
def test_other_texts_are_no_such_instants(text: str) -> None:
    assert instant_of(text) is None
    assert day_of(text.partition("T")[0]) is None
