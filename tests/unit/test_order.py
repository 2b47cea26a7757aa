"""Rows of one event time come in the order of their values, which is the same in every process and every Python."""

from __future__ import annotations

import math
import random
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal

import pytest

import floodmark as fm
from floodmark.core.time import from_ms
from floodmark.engines.embedded.memory.run import MemoryRun
from floodmark.semantics.encoding.order import order_key
from floodmark.spec.values.schema import ROW
from floodmark.testing.log import Log, Logs

ORDERED = [
    [None, -math.inf, -10.5, -1.0, -0.0, 0.0, 2.0, 9.0, 10.0, 1e300, math.inf, math.nan],
    [None, -(2**63), -1, 0, 9, 10, 2**63 - 1],
    [None, False, True],
    [None, Decimal("-10.00"), Decimal("9.00"), Decimal("10.00")],
    [None, "", "10", "9", "a", "ä", "\U0001f600"],
    [None, b"", b"\x00", b"a"],
    [None, date(1, 1, 1), date(2024, 9, 1), date(2024, 10, 1)],
    [None, datetime(1, 1, 1, tzinfo=UTC), datetime(2024, 9, 1, tzinfo=UTC), datetime(2024, 10, 1, tzinfo=UTC)],
    [None, timedelta(-1), timedelta(0), timedelta(1)],
    [None, [], [None], [1], [1, 2], [9], [10]],
    [None, {"a": None, "b": 1}, {"a": 1, "b": 0}, {"a": 1, "b": 9}, {"a": 1, "b": 10}],
]


@pytest.mark.parametrize("values", ORDERED, ids=lambda values: type(values[-1]).__name__)
def test_values_of_a_type_have_one_order(values):
    for seed in range(5):
        shuffled = random.Random(seed).sample(values, len(values))
        assert list(map(repr, sorted(shuffled, key=order_key))) == list(map(repr, values))


def test_values_of_different_types_can_be_compared():
    mixed = [{"a": 1}, [1], "x", 1, None, 1.5, True, b"x", date(2024, 1, 1), datetime(2024, 1, 1, tzinfo=UTC), object]
    assert sorted(mixed, key=order_key) == sorted([*mixed[5:], *mixed[:5]], key=order_key)


def test_rows_are_compared_by_their_first_column_first_whatever_its_name():
    deleted, inserted = {"change": "delete", "cents": 9}, {"change": "insert", "cents": 1}
    assert order_key(deleted) < order_key(inserted)


def test_the_same_instant_in_another_zone_is_the_same():
    zone = datetime(2024, 1, 1, tzinfo=UTC).astimezone()
    assert order_key(zone) == order_key(datetime(2024, 1, 1, tzinfo=UTC))


class Reading(fm.Contract):
    """What a sensor says."""

    at: fm.EventTime
    sensor: str
    value: float


class Note(fm.Contract):
    """A text."""

    text: str


class Told(fm.ProcessFunction):
    """All values so far."""

    values = fm.ListState(float)

    def on_element(self, row, ctx):
        self.values.append(row["value"])
        yield {"text": " ".join(str(value) for value in self.values.get())}


def test_rows_of_one_event_time_are_processed_in_the_order_of_their_values():
    @fm.operator
    def told(readings: fm.Stream[Reading]) -> fm.Stream:
        return readings.key_by("sensor").process(Told(), schema=Note, order="event_time")

    logs = Logs({one.name: Log(one.schema) for one in told.inputs})
    for value in (10.0, 9.0, -1.0, 100.0, -20.0):
        logs.row("readings", {"at": from_ms(5), "sensor": "a", "value": value}, 0)
    logs.end()
    rows = MemoryRun(told).batch(logs.tables(0))[""].to_pylist()
    assert max((r["text"] for r in rows if r["_kind"] == ROW), key=len) == "-20.0 -1.0 9.0 10.0 100.0"
