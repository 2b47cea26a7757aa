"""Sensors, cards and business steps: the textbook's process functions, ready to copy."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from typing import Any

from pydantic import Field

from floodmark import (
    Context,
    Contract,
    CoProcessFunction,
    EventTime,
    ListState,
    ProcessFunction,
    Stream,
    Timer,
    ValueState,
    operator,
)

SECOND = 1_000
EARTH_KM = 6_371.0


class Reading(Contract, key=("sensor", "at")):
    """A temperature."""

    at: EventTime
    sensor: str
    celsius: float


class Alert(Contract):
    """Something to look at."""

    text: str


class Rising(ProcessFunction):
    """The temperature has risen for ``seconds`` without a fall."""

    last = ValueState(float)
    alarm = Timer()

    def __init__(self, seconds: int) -> None:
        self.seconds = seconds

    def on_element(self, row: Mapping[str, Any], ctx: Context) -> None:
        """A reading: a rise sets the alarm, a fall takes it back."""
        before = self.last.get()
        self.last.update(row["celsius"])
        if before is None or row["celsius"] < before:
            self.alarm.delete()
        elif row["celsius"] > before and not self.alarm.pending():
            self.alarm.set(ctx.timestamp + self.seconds * SECOND)

    def on_timer(self, timer: str, ctx: Context) -> Iterator[dict[str, Any]]:  # noqa: ARG002 - the protocol's
        """No fall since."""
        yield {"text": f"{self.seconds} s of rising temperature, now {self.last.get():.1f}"}


@operator
def temperature_rises(readings: Stream[Reading]) -> Stream:
    """Sensors whose temperature rises for a minute without a fall. Source: Flink's ``TempIncreaseAlert``, in event time."""
    return readings.key_by("sensor").process(Rising(60), schema=Alert)


class Seen(Contract):
    """A reading that others are compared with."""

    seen: datetime
    celsius: float


class Jumps(ProcessFunction):
    """A reading that differs by more than ``degrees`` from one of the same sensor at most ``seconds`` before it."""

    recent = ListState(Seen)

    def __init__(self, degrees: float, seconds: int) -> None:
        self.degrees, self.seconds = degrees, seconds

    def on_element(self, row: Mapping[str, Any], ctx: Context) -> Iterator[dict[str, Any]]:  # noqa: ARG002 - the protocol's
        """A reading: it is held against those of the time before it."""
        apart = timedelta(seconds=self.seconds)
        recent = [seen for seen in self.recent.get() if abs(row["at"] - seen["seen"]) <= apart]
        furthest = max(recent, key=lambda seen: abs(row["celsius"] - seen["celsius"]), default=None)
        self.recent.update([*recent, {"seen": row["at"], "celsius": row["celsius"]}])
        if furthest is not None and abs(row["celsius"] - furthest["celsius"]) > self.degrees:
            yield {"text": f"from {furthest['celsius']:.1f} to {row['celsius']:.1f} degrees"}


@operator
def temperature_jumps(readings: Stream[Reading]) -> Stream:
    """Readings more than twenty degrees away from one of the same sensor within the minute before them."""
    return readings.key_by("sensor").process(Jumps(20.0, 60), schema=Alert, order="event_time")


class Freezing(ProcessFunction):
    """Readings below zero go to a side output too."""

    def on_element(self, row: Mapping[str, Any], ctx: Context) -> Iterator[Mapping[str, Any]]:
        """A reading."""
        if row["celsius"] < 0:
            ctx.output("freezing", {"text": f"{row['celsius']:.1f} degrees"})
        yield row


@operator
def freezing_monitor(readings: Stream[Reading]) -> Stream:
    """Every reading; those below freezing also in ``freezing_monitor__freezing``. Source: Flink's ``FreezingMonitor``."""
    return readings.key_by("sensor").process(Freezing(), schema=Reading, sides={"freezing": Alert})


class Switch(Contract, key=("sensor", "at")):
    """Let the readings of a sensor pass for so long."""

    at: EventTime
    sensor: str
    seconds: int


class Passing(CoProcessFunction):
    """Readings pass while their sensor is switched on."""

    until = ValueState("bigint")
    off = Timer()

    def on_left(self, row: Mapping[str, Any], ctx: Context) -> Iterator[Mapping[str, Any]]:  # noqa: ARG002 - the protocol's
        """A reading."""
        if self.until.exists():
            yield row

    def on_right(self, row: Mapping[str, Any], ctx: Context) -> None:
        """A switch: it only ever makes the time longer."""
        until = ctx.timestamp + row["seconds"] * SECOND
        if until > self.until.get(0):
            self.until.update(until)
            self.off.delete()
            self.off.set(until)

    def on_timer(self, timer: str, ctx: Context) -> None:  # noqa: ARG002 - the protocol's
        """It is over."""
        self.until.clear()


@operator
def switched_readings(readings: Stream[Reading], switches: Stream[Switch]) -> Stream:
    """Readings of sensors that are switched on. Source: Flink's ``ReadingFilter``."""
    return readings.key_by("sensor").connect(switches.key_by("sensor")).process(Passing(), schema=Reading)


class Payment(Contract, key=("card", "at")):
    """A card is used somewhere."""

    at: EventTime
    card: str
    latitude: float = Field(ge=-90, le=90)
    longitude: float = Field(ge=-180, le=180)
    cents: int


class TooFast(Contract):
    """A card at two places, with too little time between."""

    km: float
    minutes: float
    km_per_hour: float


class Place(Contract):
    """Where a card was last."""

    latitude: float
    longitude: float
    seen: datetime


class Speed(ProcessFunction):
    """A card that would have had to travel faster than ``km_per_hour``."""

    last = ValueState(Place, ttl="1 day")

    def __init__(self, km_per_hour: float) -> None:
        self.km_per_hour = km_per_hour

    def on_element(self, row: Mapping[str, Any], ctx: Context) -> Iterator[dict[str, Any]]:  # noqa: ARG002 - the protocol's
        """A payment."""
        before = self.last.get()
        self.last.update({"latitude": row["latitude"], "longitude": row["longitude"], "seen": row["at"]})
        if before is None:
            return
        km = kilometres(before, row)
        hours = abs((row["at"] - before["seen"]).total_seconds()) / 3600
        if km > self.km_per_hour * hours and km > 1:
            speed = km / hours if hours else math.inf
            yield {"km": km, "minutes": hours * 60, "km_per_hour": speed}


def kilometres(one: Mapping[str, Any], other: Mapping[str, Any]) -> float:
    """Great circle distance (haversine)."""
    lat, lon, to_lat, to_lon = (math.radians(row[name]) for row in (one, other) for name in ("latitude", "longitude"))
    half = math.sin((to_lat - lat) / 2) ** 2 + math.cos(lat) * math.cos(to_lat) * math.sin((to_lon - lon) / 2) ** 2
    return 2 * EARTH_KM * math.asin(math.sqrt(half))


@operator
def card_fraud(payments: Stream[Payment]) -> Stream:
    """Cards used at two places faster than anybody flies."""
    return payments.key_by("card").process(Speed(900.0), schema=TooFast)


class BusinessStep(Contract, key=("order_id", "step")):
    """An order has come so far."""

    at: EventTime
    order_id: str
    step: str = Field(description="ordered, paid, shipped")


class Missing(Contract):
    """An order whose next step did not come."""

    missing: str


class Steps(ProcessFunction):
    """After each step the next one must follow within ``hours``."""

    order = ("ordered", "paid", "shipped")
    reached = ValueState("bigint")
    overdue = Timer()

    def __init__(self, hours: int) -> None:
        self.hours = hours

    def on_element(self, row: Mapping[str, Any], ctx: Context) -> None:
        """A step; one that was told too late or twice changes nothing."""
        place = self.order.index(row["step"])
        if place < self.reached.get(-1):
            return
        self.reached.update(place)
        self.overdue.delete()
        if place + 1 < len(self.order):
            self.overdue.set(ctx.timestamp + self.hours * 3600 * SECOND)

    def on_timer(self, timer: str, ctx: Context) -> Iterator[dict[str, Any]]:  # noqa: ARG002 - the protocol's
        """It has not come."""
        yield {"missing": self.order[self.reached.get() + 1]}


@operator
def missing_steps(steps: Stream[BusinessStep]) -> Stream:
    """Orders whose payment or shipment did not follow within a day."""
    return steps.key_by("order_id").process(Steps(24), schema=Missing)
