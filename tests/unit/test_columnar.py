"""Whole columns are checked as rows are: the same rows come through, and the same are broken, with the same reasons."""

from __future__ import annotations

import datetime as dt
from typing import Annotated, Literal

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import Field, field_validator

from floodmark import BoundedOutOfOrderness, Contract, EventTime, LocalTime, Rows, Source
from floodmark.connectors.entries import Columns
from floodmark.connectors.judging import columnar
from floodmark.connectors.judging.validation import Rules

NOW = 1_700_000_000_000


class Reading(Contract):
    at: EventTime
    sensor: str
    kind: Literal["a", "b"]
    level: Literal[1, 2] | None = None
    value: float = Field(ge=-1.5, lt=100)
    count: int | None = Field(default=None, gt=0, alias="n")
    ok: bool
    day: dt.date | None
    seen: dt.datetime | None = None


def source(contract: type[Contract]) -> Source:
    return Source("readings", contract=contract, connector=Rows([]), watermark=BoundedOutOfOrderness("1 minute"))


TYPES = pa.schema(
    [
        ("at", pa.timestamp("us", tz="UTC")),
        ("sensor", pa.string()),
        ("kind", pa.string()),
        ("level", pa.int32()),
        ("value", pa.float64()),
        ("n", pa.int64()),
        ("ok", pa.bool_()),
        ("day", pa.date32()),
        ("seen", pa.timestamp("ms")),
        ("more", pa.string()),
    ]
)
MOMENTS = st.datetimes(dt.datetime(1960, 1, 1), dt.datetime(2026, 1, 1))
GOOD = st.fixed_dictionaries(
    {
        "at": st.datetimes(dt.datetime(1960, 1, 1), dt.datetime(2023, 11, 1)).map(lambda t: t.replace(tzinfo=dt.UTC)),
        "sensor": st.text(st.characters(codec="utf-8"), max_size=3),
        "kind": st.sampled_from(["a", "b"]),
        "level": st.sampled_from([1, 2, None]),
        "value": st.floats(-1.5, 99, allow_nan=False),
        "n": st.none() | st.integers(1, 2**63 - 1),
        "ok": st.booleans(),
        "day": st.none() | st.dates(),
        "seen": st.none() | MOMENTS.map(lambda t: t.replace(microsecond=t.microsecond // 1000 * 1000)),
    }
)
BAD = st.sampled_from(
    [
        {"at": None},
        {"at": dt.datetime(2099, 1, 1, tzinfo=dt.UTC)},
        {"sensor": None},
        {"kind": "c"},
        {"kind": None},
        {"level": 3},
        {"value": 100.0},
        {"value": float("nan")},
        {"value": None},
        {"n": 0},
        {"ok": None},
    ]
)


def batches(rows: list[dict], size: int, *, columns: bool, refused: dict[int, str] | None = None):
    table = pa.Table.from_pylist(rows, schema=TYPES)
    found, position = [], 1
    for batch in table.to_batches(max_chunksize=size):
        some = Columns(position, batch)
        found += [some] if columns else list(some.records())
        position += len(batch)
    rules = Rules(source(Reading), NOW, {7: refused or {}})
    done = list(rules.batches(found, "python", rules.refusals(7)))
    return pa.Table.from_batches([b.rows for b in done]) if done else None, [
        broken for b in done for broken in b.broken
    ]


@given(st.lists(GOOD | st.tuples(GOOD, BAD).map(lambda both: both[0] | both[1]), max_size=12), st.integers(1, 5))
def test_columns_are_checked_as_rows_are(rows, size):
    fast, fast_broken = batches(rows, size, columns=True)
    slow, slow_broken = batches(rows, size, columns=False)
    assert sorted(fast_broken, key=lambda b: b.position) == sorted(slow_broken, key=lambda b: b.position)
    assert (fast is None) == (slow is None)
    if slow is not None:
        assert fast.combine_chunks().equals(slow.combine_chunks())


@given(st.lists(GOOD | st.tuples(GOOD, BAD).map(lambda both: both[0] | both[1]), max_size=12), st.data())
def test_refused_rows_are_those_of_their_place_among_the_good_ones(rows, data):
    columns = data.draw(st.booleans())
    good, broken = batches(rows, 3, columns=columns)
    size = good.num_rows if good else 0
    refused = data.draw(st.sets(st.integers(0, size - 1))) if size else set()
    rest, aside = batches(rows, 3, columns=columns, refused=dict.fromkeys(refused, "no"))
    assert len(aside) == len(broken) + len(refused)
    assert sum(one.reason == "no" for one in aside) == len(refused)
    if good is not None:
        assert rest.combine_chunks().equals(
            good.filter(pa.array([n not in refused for n in range(size)], pa.bool_())).combine_chunks()
        )


@given(st.lists(GOOD, min_size=1, max_size=6))
def test_good_rows_take_the_fast_way(rows):
    batch = pa.Table.from_pylist(rows, schema=TYPES).to_batches()[0]
    assert columnar.rows_of(Reading, batch) is not None


class Local(Contract):
    at: Annotated[EventTime, LocalTime("America/New_York")]


class Validated(Contract):
    at: EventTime
    name: str

    @field_validator("name")
    @classmethod
    def short(cls, name: str) -> str:
        return name[:1]


class Sized(Contract):
    at: EventTime
    name: str = Field(min_length=2)


@pytest.mark.parametrize("contract", [Local, Validated, Sized])
def test_what_pydantic_alone_can_say_is_left_to_it(contract):
    batch = pa.table({"at": pa.array([dt.datetime(2020, 1, 1)], pa.timestamp("us")), "name": ["x"]}).to_batches()[0]
    assert columnar.rows_of(contract, batch) is None
