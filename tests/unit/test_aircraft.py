"""The reference operators of state, timers and joins: against brute force on real flights, and bounded against unbounded at random cuts."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from inbox_rows import CUTS, flights_of, stamped, weather_of

from demo.inbox import write_inbox
from floodmark.core.time import from_ms, to_ms
from floodmark.testing import Case
from floodmark.testing.proof import bounded, prove
from operators.aircraft import aircraft_rotations, connection_pairs, stranded_aircraft, weather_at_departure
from operators.sensors import (
    card_fraud,
    freezing_monitor,
    missing_steps,
    switched_readings,
    temperature_rises,
)

HOUR = 3_600_000


@pytest.fixture(scope="module")
def inbox(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("inbox")
    write_inbox(folder, days=2)
    return folder


@pytest.fixture(scope="module")
def flights(inbox: Path):
    return flights_of(inbox)[:140]


@pytest.fixture(scope="module")
def weather(inbox: Path):
    return weather_of(inbox)[:120]


def answer(operator, entries) -> Counter:
    """(columns) of the result -> how often, of the bounded answer."""
    return Counter({values: n for (output, values), n in bounded(operator, entries).items() if not output and n})


@pytest.mark.feature("K1", "K5")
@CUTS
def test_aircraft_rotations(flights, cuts):
    entries = stamped("flights", flights, 3 * HOUR)
    # two flights of one aircraft, the second read from another airport ten minutes later
    tail = next(row["tailnum"] for _, row in flights if row["dep_delay"] is not None and (row["air_time"] or 0) > 60)
    place = max(i for i, (_, row) in enumerate(flights) if row["tailnum"] == tail)
    time, row = flights[place]
    other = "JFK" if row["origin"] != "JFK" else "EWR"
    wrong = (time + 600_000, {**row, "scheduled": from_ms(time + 600_000), "origin": other})
    changed = [*flights[: place + 1], wrong, *flights[place + 1 :]]
    assert prove(aircraft_rotations, stamped("flights", changed, 3 * HOUR), cuts=cuts).differences == ()
    found = answer(aircraft_rotations, stamped("flights", changed, None)) - answer(aircraft_rotations, entries)
    assert (tail, row["origin"], other, 10.0, float(row["air_time"])) in found


@pytest.mark.feature("P3")
@CUTS
def test_stranded_aircraft(flights, cuts):
    assert prove(stranded_aircraft, stamped("flights", flights, 3 * HOUR), cuts=cuts).differences == ()
    last, expected = {}, Counter()
    for time, row in sorted(flights, key=lambda one: one[0]):
        if row["tailnum"] and row["dep_delay"] is not None:
            before = last.get(row["tailnum"])
            if before and time > before[0] + 12 * HOUR:
                expected[(row["tailnum"], before[1], before[2], from_ms(before[0]))] += 1
            last[row["tailnum"]] = time, row["origin"], row["dest"]
    expected.update((tail, origin, dest, from_ms(time)) for tail, (time, origin, dest) in last.items())
    in_order = sorted(flights, key=lambda one: one[0])
    assert answer(stranded_aircraft, stamped("flights", in_order, 1)) == expected
    assert len(expected) > 50


@pytest.mark.feature("J5")
@CUTS
def test_weather_at_departure(flights, weather, cuts):
    entries = [*stamped("flights", flights[:90], 3 * HOUR), *stamped("weather", weather[:60], HOUR)]
    assert prove(weather_at_departure, entries, cuts=cuts).differences == ()
    got = answer(weather_at_departure, [*stamped("flights", flights, None), *stamped("weather", weather, None)])
    assert sum(got.values()) == len(flights)
    for values in got:
        origin, scheduled, observed, temp = values[0], values[1], values[6], values[7]
        known = [(t, row) for t, row in weather if row["origin"] == origin and t <= to_ms(scheduled)]
        newest = max(known, key=lambda one: one[0], default=None)
        assert (observed, temp) == ((from_ms(newest[0]), newest[1]["temp"]) if newest else (None, None))


@pytest.mark.feature("J1", "J2")
@CUTS
def test_connection_pairs(flights, cuts):
    some = [(t, {**row, "dep_delay": None} if i % 7 == 0 else row) for i, (t, row) in enumerate(flights)]
    assert prove(connection_pairs, stamped("flights", some, 3 * HOUR), cuts=cuts).differences == ()
    expected = Counter()
    for time, row in some:
        if row["dep_delay"] is None:
            later = [
                (t, r)
                for t, r in some
                if r["dep_delay"] is not None
                and all(r[k] == row[k] for k in ("origin", "dest"))
                and 0 < t - time <= 4 * HOUR
            ]
            head = (row["origin"], row["dest"], from_ms(time), row["carrier"], row["flight"])
            expected.update(
                (*head, from_ms(t), r["carrier"], r["flight"], r["dep_delay"]) for t, r in later
            ) if later else expected.update([(*head, None, None, None, None)])
    assert answer(connection_pairs, stamped("flights", some, None)) == expected
    assert any(values[5] is None for values in expected)
    assert any(values[5] is not None for values in expected)


# ---- the textbook's


def at(minutes: float) -> datetime:
    return datetime(2026, 3, 1, tzinfo=UTC) + timedelta(minutes=minutes)


def readings(*given: tuple[float, str, float]) -> list[dict]:
    return [{"at": at(minutes), "sensor": sensor, "celsius": celsius} for minutes, sensor, celsius in given]


@pytest.mark.feature("P4")
def test_temperature_rises():
    case = Case(temperature_rises)
    case.feed(
        "readings",
        readings((0, "a", 20), (0.2, "a", 21), (0.3, "b", 5), (0.5, "b", 6), (0.9, "b", 5.5), (1.0, "a", 22)),
    )
    case.watermark(at(1.1)).expect([])
    case.restart().watermark(at(1.3)).expect([{"sensor": "a", "text": "60 s of rising temperature, now 22.0"}])
    case.end().expect([])


@pytest.mark.feature("P5")
def test_freezing_monitor():
    case = Case(freezing_monitor).feed("readings", readings((0, "a", 1.5), (1, "a", -0.5)))
    case.expect([{"sensor": "a", "celsius": 1.5}, {"sensor": "a", "celsius": -0.5}])
    case.expect([{"sensor": "a", "text": "-0.5 degrees"}], "freezing")


@pytest.mark.feature("P6")
def test_switched_readings():
    case = Case(switched_readings)
    case.feed("switches", [{"at": at(1), "sensor": "a", "seconds": 120}])
    case.feed("readings", readings((0, "a", 1), (2, "a", 2), (2, "b", 3), (4, "a", 4)), event_time="at")
    case.watermark(at(3)).expect([{"sensor": "a", "celsius": 2.0}])
    case.end().expect([])


@pytest.mark.feature("C5", "K5")
def test_card_fraud():
    def paid(minutes, card, place):
        latitude, longitude = {"Berlin": (52.52, 13.40), "Potsdam": (52.39, 13.06), "New York": (40.71, -74.01)}[place]
        return {"at": at(minutes), "card": card, "latitude": latitude, "longitude": longitude, "cents": 100}

    case = Case(card_fraud)
    case.feed(
        "payments",
        [paid(0, "1", "Berlin"), paid(40, "1", "Potsdam"), paid(100, "1", "New York"), paid(0, "2", "Berlin")],
    )
    (found,) = case.results()
    assert found["card"] == "1"
    assert found["minutes"] == 60
    assert 6_350 < found["km"] < 6_450
    case.watermark(at(3 * 24 * 60)).feed("payments", [paid(3 * 24 * 60 + 1, "2", "New York")])
    assert case.results() == [], "forgotten after a day"


@pytest.mark.feature("P3", "Y3")
def test_missing_steps():
    def step(hours, order, name):
        return {"at": at(hours * 60), "order_id": order, "step": name}

    case = Case(missing_steps)
    case.feed(
        "steps", [step(0, "1", "ordered"), step(1, "2", "ordered"), step(3, "1", "paid"), step(20, "1", "shipped")]
    )
    case.watermark(at(26 * 60)).expect([{"order_id": "2", "missing": "paid"}])
    case.end().expect([])
