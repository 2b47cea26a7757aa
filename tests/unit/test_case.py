"""``floodmark.testing.Case``: the reference operators fed by hand, in milliseconds."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest

import floodmark as fm
from floodmark.core.errors import DefinitionError
from floodmark.testing import Case
from operators.flights import busiest_hour, hourly_departures, split_delays

NINE = datetime(2013, 1, 1, 9)


def flight(minutes: int, **values: object) -> dict[str, object]:
    """A flight from JFK so many minutes past nine."""
    plain = {"origin": "JFK", "dest": "LAX", "carrier": "AA", "flight": minutes, "dep_delay": 10, "distance": 2475}
    return plain | {"scheduled": NINE + timedelta(minutes=minutes)} | values


def hour(departures: int, mean_delay: float, origin: str = "JFK") -> dict[str, object]:
    return {"origin": origin, "departures": departures, "mean_delay": mean_delay}


@pytest.mark.feature("L6", "L7", "L8", "T12")
def test_an_hour_is_told_at_its_end_and_again_for_late_rows():
    run = Case(hourly_departures)
    run.feed("flights", [flight(5), flight(50, dep_delay=20), flight(7, dep_delay=None)]).expect([])
    run.watermark(NINE + timedelta(hours=1)).expect([hour(2, 15.0)])
    run.feed("flights", [flight(30, dep_delay=60)]).restart().expect([hour(3, 30.0)])
    run.watermark(NINE + timedelta(hours=4))
    run.feed("flights", [flight(31)]).expect([])
    run.expect([{"flight": 31}], "late")


def test_several_outputs_and_a_chain():
    Case(split_delays).feed("flights", [flight(1, dep_delay=60), flight(2)]).expect([{"flight": 1}], "severe").expect(
        [{"flight": 2}], "normal"
    )
    chain = Case(busiest_hour)
    rows = [
        {
            "origin": "JFK",
            "window_start": NINE,
            "window_end": NINE + timedelta(hours=1),
            "departures": n,
            "mean_delay": 0.0,
        }
        for n in (3, 7)
    ]
    chain.feed("departures", rows, event_time="window_start").end().expect(
        [{"origin": "JFK", "busiest": 7, "hours": 2}]
    )


def test_a_difference_is_told_row_by_row():
    run = Case(hourly_departures).feed("flights", [flight(5)]).end()
    with pytest.raises(AssertionError) as error:
        run.expect([hour(2, 10.0)])
    assert str(error.value).splitlines() == [
        "'hourly_departures' gave other rows than expected:",
        "  missing    {'origin': 'JFK', 'departures': 2, 'mean_delay': 10.0}",
        "  unexpected {'origin': 'JFK', 'departures': 1, 'mean_delay': 10.0}",
    ]


def test_the_clock_is_moved_by_hand():
    class Reading(fm.Contract):
        """A reading."""

        at: fm.EventTime
        sensor: str

    @fm.operator
    def batches(readings: fm.Stream[Reading]) -> fm.Stream:
        trigger = fm.Purging(fm.AfterCount(3) | fm.AfterDelay("10 seconds"))
        return readings.key_by("sensor").window(fm.Global(), trigger=trigger).aggregate(n=fm.count())

    run = Case(batches).tick(0).feed("readings", [{"at": NINE, "sensor": "a"}] * 4)
    run.expect([{"sensor": "a", "n": 3}])
    run.tick(9_999).expect([]).tick(10_000).expect([{"sensor": "a", "n": 1}])


@pytest.mark.parametrize(
    ("call", "got"),
    [
        (lambda: Case(hourly_departures).feed("flight", []), "got 'flight'. Did you mean 'flights'?"),
        (lambda: Case(busiest_hour).feed("departures", []), "got window_start, window_end."),
    ],
)
def test_wrong_feeds_say_what_to_write(call, got):
    with pytest.raises(DefinitionError) as error:
        call()
    assert error.value.code == "DEFINITION-111"
    assert got in str(error.value)


class Visit(fm.Contract):
    """Somebody came to a page."""

    at: fm.EventTime
    user: str


class Order(fm.Contract):
    """Somebody bought something."""

    at: fm.EventTime
    user: str
    price: int


@pytest.mark.feature("T2", "W4")
def test_hours_of_the_clock_begin_with_the_hour_not_with_the_start():
    @fm.operator
    def arrivals(visits: fm.Stream[Visit]) -> fm.Stream:
        return visits.window(fm.Tumbling("1 hour"), time="processing").aggregate(n=fm.count())

    @fm.operator
    def lately(visits: fm.Stream[Visit]) -> fm.Stream:
        return visits.window(fm.Sliding("1 hour", "30 minutes"), time="processing").aggregate(n=fm.count())

    long_ago = datetime(1999, 1, 1)
    hour, slid = Case(arrivals), Case(lately)
    for run in (hour, slid):
        run.tick(NINE + timedelta(minutes=15)).feed("visits", [{"at": long_ago, "user": "ann"}])
        run.tick(NINE + timedelta(minutes=59)).feed("visits", [{"at": NINE, "user": "bob"}] * 2)
    hour.expect([]).tick(NINE + timedelta(hours=1)).expect([{"window_start": NINE, "n": 3}])
    hour.feed("visits", [{"at": long_ago, "user": "ann"}]).restart()
    hour.tick(NINE + timedelta(hours=5)).expect([{"window_start": NINE + timedelta(hours=1), "n": 1}])
    slid.tick(NINE + timedelta(hours=2))
    half = timedelta(minutes=30)
    slid.expect([{"window_start": NINE + half * k, "n": n} for k, n in ((-1, 1), (0, 3), (1, 2))])


@pytest.mark.feature("W20", "X6")
def test_two_streams_meet_in_one_window():
    @fm.operator
    def bought(visits: fm.Stream[Visit], orders: fm.Stream[Order]) -> fm.Stream:
        seen = visits.select(user="user", price="CAST(NULL AS BIGINT)")
        paid = orders.select(user="user", price="price")
        window = seen.union(paid).key_by("user").window(fm.Tumbling("1 hour"))
        return window.aggregate(all=fm.count(), orders=fm.count("price"), spent=fm.sum("price"))

    run = Case(bought).feed("visits", [{"at": NINE, "user": "ann"}] * 3 + [{"at": NINE, "user": "bob"}])
    run.feed("orders", [{"at": NINE + timedelta(minutes=59), "user": "ann", "price": 7}])
    run.watermark(NINE + timedelta(hours=1), "visits").expect([])
    run.watermark(NINE + timedelta(hours=1), "orders")
    run.expect(
        [{"user": "ann", "all": 4, "orders": 1, "spent": 7}, {"user": "bob", "all": 1, "orders": 0, "spent": None}]
    )
