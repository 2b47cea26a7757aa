"""The reference operators of order and triggers: on real flights and weather, against brute force, and bounded against unbounded at random cuts."""

from __future__ import annotations

import statistics
from collections import defaultdict
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from inbox_rows import CUTS, Timed, flights_of, stamped, weather_of

from demo.inbox import write_inbox
from floodmark.core.time import to_ms
from floodmark.testing import Case
from floodmark.testing.proof import bounded, prove
from operators.flights import delay_sessions, hourly_departures, moving_median
from operators.logs import hourly_levels
from operators.weather import storm_alerts

HOUR = 3_600_000


@pytest.fixture(scope="module")
def inbox(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("inbox")
    write_inbox(folder, days=3)
    return folder


@pytest.fixture(scope="module")
def flights(inbox: Path) -> Timed:
    return flights_of(inbox)[:300]


@pytest.fixture(scope="module")
def weather(inbox: Path) -> Timed:
    return weather_of(inbox)[:360]


@pytest.mark.feature("W7", "W13", "T17")
@CUTS
def test_delay_sessions(flights, cuts):
    assert prove(delay_sessions, stamped("flights", flights, 3 * HOUR), cuts=cuts).differences == ()
    late = sorted((r["origin"], t, r["dep_delay"]) for t, r in flights if (r["dep_delay"] or 0) >= 30)
    expected: list[list[object]] = []
    for origin, time, delay in late:
        last = expected[-1] if expected else None
        if last and last[0] == origin and time <= last[2]:
            last[2], last[3], last[4] = time + 2 * HOUR, last[3] + 1, max(last[4], delay)
        else:
            expected.append([origin, time, time + 2 * HOUR, 1, delay])
    answer = bounded(delay_sessions, stamped("flights", flights, None))
    got = sorted((v[0], to_ms(v[1]), to_ms(v[2]), v[3], v[4]) for (_, v), n in answer.items() if n == 1)
    assert len(got) > 3
    assert got == sorted(tuple(one) for one in expected)


@pytest.mark.feature("W16", "L5")
@CUTS
def test_moving_median(flights, cuts):
    assert prove(moving_median, stamped("flights", flights, 3 * HOUR), cuts=cuts).differences == ()
    known = defaultdict(list)
    for _, row in flights:
        if row["dep_delay"] is not None:
            known[row["origin"]].append(row["dep_delay"])
    answer = bounded(moving_median, stamped("flights", flights, None))
    expected = set()
    for origin, delays in known.items():
        told = delays[: len(delays) // 10 * 10][-50:]
        expected.add((origin, statistics.median(told), len(told)))
    assert {values for (_, values), n in answer.items() if n == 1} == expected
    assert len(expected) == 3


@pytest.mark.feature("L3", "W10")
@CUTS
def test_storm_alerts(weather, cuts):
    assert prove(storm_alerts, stamped("weather", weather, HOUR), cuts=cuts).differences == ()
    answer = bounded(storm_alerts, stamped("weather", weather, None))
    six = defaultdict(list)
    for time, row in weather:
        six[row["origin"], time - time % (6 * HOUR)].append(row)
    expected = {}
    for (origin, start), rows in six.items():
        winds = [row["wind_speed"] for row in rows if row["wind_speed"] is not None]
        expected[origin, start] = (len(rows), pytest.approx(max(winds)) if winds else None)
    assert {(v[0], to_ms(v[1])): v[3:5] for (_, v), n in answer.items() if n == 1} == expected
    assert len(expected) > 20


def test_a_storm_is_told_at_once_and_exactly_at_the_end():
    noon = datetime(2013, 1, 1, 12, tzinfo=UTC)

    def seen(hour: int, wind: float) -> dict[str, object]:
        return {"observed": noon + timedelta(hours=hour), "origin": "JFK", "wind_speed": wind, "visib": 10.0 - hour}

    case = Case(storm_alerts).feed("weather", [seen(0, 5.0)]).expect([])
    case.feed("weather", [seen(1, 30.0)]).expect([{"observations": 2, "strongest": 30.0}])
    case.restart().feed("weather", [seen(2, 40.0)]).expect([])
    case.watermark(noon + timedelta(hours=6)).expect([{"observations": 3, "strongest": 40.0, "worst_sight": 8.0}])


@pytest.mark.feature("L10", "B2")
@CUTS
def test_hourly_levels(cuts):
    ten = datetime(2024, 5, 1, 10, tzinfo=UTC)
    lines = [
        (
            to_ms(ten + timedelta(seconds=s * 97 % 9000)),
            {"at": ten + timedelta(seconds=s * 97 % 9000), "level": level, "text": None},
        )
        for s, level in enumerate(["info", "info", "error", "warn"] * 60)
    ]
    assert prove(hourly_levels, stamped("lines", lines, HOUR // 2), cuts=cuts).differences == ()
    answer = bounded(hourly_levels, stamped("lines", lines, None))
    expected = defaultdict(int)
    for time, row in lines:
        expected[row["level"], time - time % HOUR] += 1
    assert {(v[0], to_ms(v[1])): v[3] for (_, v), n in answer.items() if n == 1} == expected


def test_hourly_departures_too(flights):
    found = prove(hourly_departures, stamped("flights", flights[:300], 3 * HOUR), cuts=4)
    assert found.differences == ()
    assert found.results > 20
