"""What ``validate`` says of functions that read more than their arguments."""

from __future__ import annotations

import datetime as clock
import random
import sys
import time
import urllib.parse
from collections.abc import Iterator
from datetime import datetime
from random import random as chance
from time import time as now
from uuid import uuid4

import pytest

import floodmark as fm
from floodmark.spec.values.purity import impurities

this = sys.modules[__name__]


def helper() -> float:
    return time.time()


def indirectly(row):
    yield {"x": helper()}


def inside(row):
    import random  # the import is what is looked for

    yield {"x": random.random()}


def taken_inside(row):
    from time import monotonic  # the import is what is looked for

    yield {"x": monotonic()}


def in_a_comprehension(row):
    return [{"x": datetime.now().hour + n} for n in range(2)]


def by_alias(row):
    yield {"x": now()}


def of_a_module(row):
    yield {"x": clock.datetime.utcnow().hour}


def drawn(row):
    yield {"x": chance(), "y": str(uuid4())}


def seeded(row):
    yield {"x": random.Random(row["x"]).random()}


def pure(row):
    moment = datetime.fromtimestamp(row["x"])
    yield {"x": moment.hour, "y": time.strftime("%H", (2020,) * 9), "z": clock.timedelta(row["x"])}


def of_the_clock(function):
    def wrapper(row):
        return function(row) if datetime.now() else None

    return wrapper


@of_the_clock
def decorated(row):
    yield {"x": 1.0}


def through_a_module(row):
    yield {"x": sys.modules and this.helper()}


def by_default(row, moment=now):
    yield {"x": moment()}


def from_a_file(row):
    with open("x.txt") as file:  # noqa: PTH123 - what is looked for
        yield {"x": float(file.read())}


def parsed(row):
    yield {"x": float(urllib.parse.quote(row["x"]))}


class Stateful:
    def add(self, value: int) -> int:
        return value + int(helper())


@pytest.mark.feature("T20")
@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (indirectly, ["time.time"]),
        (inside, ["random.random"]),
        (taken_inside, ["time.monotonic"]),
        (in_a_comprehension, ["datetime.now"]),
        (by_alias, ["time.time"]),
        (of_a_module, ["datetime.utcnow"]),
        (drawn, ["random.random", "uuid.uuid4"]),
        (seeded, ["random.Random"]),
        (Stateful, ["time.time"]),
        (decorated, ["datetime.now"]),
        (through_a_module, ["time.time"]),
        (by_default, ["time.time"]),
        (from_a_file, ["open"]),
        (parsed, []),
        (pure, []),
        (len, []),
    ],
    ids=lambda v: getattr(v, "__name__", ""),
)
def test_what_a_function_reads_beside_its_arguments_is_found(function, expected):
    assert impurities(function) == expected


class Reading(fm.Contract):
    """A number."""

    at: fm.EventTime
    x: int


class Marked(fm.Contract):
    """What a window function yields."""

    x: float


def stamped(pane: fm.Pane, rows) -> Iterator[dict[str, float]]:
    yield {"x": helper()}


def test_an_operator_says_which_of_its_functions_and_what_to_do():
    @fm.operator
    def clocked(readings: fm.Stream[Reading]) -> fm.Stream:
        return readings.window(fm.Tumbling("1 hour")).process(stamped, Marked)

    (warning,) = clocked.warnings
    assert warning == (
        "operator 'clocked': the window function of 'clocked' uses time.time; a replay will differ. "
        "Take it from the row, or from an input of its own."
    )


def test_a_name_without_a_value_is_no_import():
    secrets = None

    def unfilled(row):
        yield {"x": 1.0 if secrets is None else later(row)}

    assert impurities(unfilled) == []

    def later(row):
        return 2.0

    assert impurities(unfilled) == []


def test_a_window_that_keeps_its_rows_for_ever_is_told():
    def kept(**settings) -> fm.Operator:
        @fm.operator
        def alerts(readings: fm.Stream[Reading]) -> fm.Stream:
            window = readings.key_by("x").window(fm.Global(), trigger=settings.pop("trigger"), **settings)
            return window.process(lengths, Marked)

        return alerts

    (warning,) = kept(trigger=fm.AfterCount(10)).warnings
    assert warning.startswith("operator 'alerts': Global() keeps every row of every key for ever. Give it an evictor")
    assert kept(trigger=fm.Purging(fm.AfterCount(10))).warnings == ()
    assert kept(trigger=fm.AfterCount(10), evictor=fm.KeepLast(5)).warnings == ()
    assert kept(trigger=fm.AfterCount(10), accumulation="discarding").warnings == ()


def lengths(pane: fm.Pane, rows) -> Iterator[dict[str, float]]:
    yield {"x": float(len(rows))}
