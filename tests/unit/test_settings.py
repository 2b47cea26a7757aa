"""Settings of the user's windows, triggers and aggregates are part of the version, whatever they are made of."""

from __future__ import annotations

import re
import threading
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from pathlib import PurePosixPath
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

import floodmark as fm
from floodmark.core.errors import DefinitionError
from floodmark.core.time import describe_span, span


class Colour(Enum):
    RED = 1
    BLUE = 2


class R(fm.Contract):
    at: fm.EventTime
    k: str


class T(fm.Trigger):
    def __init__(self, setting):
        self.setting = setting

    def on_element(self, time, row, context):
        return fm.Decision.FIRE


class W(fm.WindowAssigner):
    def __init__(self, setting):
        self.setting = setting

    def assign(self, time, row):
        return [(time, time + 1)]


class A(fm.Aggregate):
    type = "bigint"

    def __init__(self, setting):
        super().__init__("k")
        self.setting = setting

    def create(self):
        return 0

    def add(self, accumulator, value):
        return accumulator + 1

    def merge(self, left, right):
        return left + right

    def result(self, accumulator):
        return accumulator


def holding(what: str, setting: object) -> fm.Operator:
    @fm.operator(name="o")
    def o(r: fm.Stream[R]) -> fm.Stream:
        keyed = r.key_by("k")
        if what == "trigger":
            return keyed.window(fm.Global(), trigger=fm.any_of(T(setting), fm.AfterCount(3))).aggregate(n=fm.count())
        if what == "assigner":
            return keyed.window(W(setting)).aggregate(n=fm.count())
        return keyed.window(fm.Tumbling("1 hour")).aggregate(n=A(setting))

    return o


PAIRS = [
    (timedelta(minutes=1), timedelta(minutes=2)),
    ({"b", "a"}, {"a"}),
    (frozenset({1, 2}), frozenset({1, 3})),
    (Decimal("1.0"), Decimal("1.1")),
    (datetime(2024, 1, 1, tzinfo=UTC), datetime(2024, 1, 2, tzinfo=UTC)),
    (date(2024, 1, 1), date(2024, 1, 2)),
    (time(1), time(2)),
    (b"a", b"b"),
    (Colour.RED, Colour.BLUE),
    ([{"a": (Colour.RED, {1})}], [{"a": (Colour.RED, {2})}]),
    (re.compile("a"), re.compile("a", re.IGNORECASE)),
    (ZoneInfo("UTC"), ZoneInfo("Europe/Berlin")),
    (PurePosixPath("a"), PurePosixPath("b")),
    (range(3), range(4)),
    (fm.Tumbling("1 hour"), fm.Tumbling("2 hours")),
]


@pytest.mark.parametrize("what", ["trigger", "assigner", "aggregate"])
@pytest.mark.parametrize(("one", "other"), PAIRS, ids=lambda v: type(v).__name__)
def test_a_setting_of_any_plain_kind_is_part_of_the_version(what, one, other):
    assert holding(what, one).version == holding(what, one).version != holding(what, other).version


@pytest.mark.parametrize("what", ["trigger", "assigner", "aggregate"])
def test_a_setting_that_cannot_be_compared_is_refused_when_defined(what):
    with pytest.raises(DefinitionError, match=r"self\.setting = a thread\.lock") as refused:
        holding(what, threading.Lock())
    assert refused.value.code == "DEFINITION-123"


# ---- lengths of time


@given(st.integers(1, 10**10))
def test_every_number_of_milliseconds_can_be_said_in_seconds(n):
    assert span(f"{n // 1000}.{n % 1000:03d} s") == n
    assert span(f"-{n // 1000}.{n % 1000:03d} seconds") == -n
    assert span(describe_span(n)) == n


@given(
    st.integers(1, 10**6),
    st.sampled_from([("h", 3_600_000), ("d", 86_400_000), ("min", 60_000), ("weeks", 604_800_000)]),
)
def test_tenths_of_every_unit_are_whole_milliseconds(n, unit):
    assert span(f"{n // 10}.{n % 10} {unit[0]}") == n * unit[1] // 10


def test_a_length_finer_than_a_millisecond_is_refused():
    with pytest.raises(DefinitionError):
        span("0.0001 s")
