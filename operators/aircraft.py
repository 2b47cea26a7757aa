"""What aircraft do between flights, and the weather they leave in: process functions and joins over New York's departures."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from typing import Any

from pydantic import Field

from floodmark import Context, Contract, ProcessFunction, Stream, Timer, ValueState, operator
from operators.flights import Flight
from operators.weather import Weather

HOUR = 3_600_000


class Rotation(Contract):
    """Two departures of one aircraft that cannot both be right."""

    first_origin: str
    second_origin: str
    minutes: float = Field(description="between the two")
    needed: float = Field(description="minutes in the air on the first of them")


class Rotations(ProcessFunction):
    """An aircraft that leaves two airports with less time between than its first flight is in the air."""

    origin = ValueState(str, ttl="1 day")
    left = ValueState(datetime, ttl="1 day")
    minutes = ValueState(float, ttl="1 day")

    def on_element(self, row: Mapping[str, Any], ctx: Context) -> Iterator[dict[str, Any]]:  # noqa: ARG002 - the protocol's
        """A departure."""
        leaves = row["scheduled"] + timedelta(minutes=row["dep_delay"])
        before, origin = self.left.get(), self.origin.get()
        if before is not None and origin != row["origin"]:
            apart = abs((leaves - before).total_seconds()) / 60
            if apart < self.minutes.get():
                yield {
                    "first_origin": origin,
                    "second_origin": row["origin"],
                    "minutes": apart,
                    "needed": self.minutes.get(),
                }
        self.left.update(leaves)
        self.origin.update(row["origin"])
        self.minutes.update(float(row["air_time"] or 0))


@operator
def aircraft_rotations(flights: Stream[Flight]) -> Stream:
    """Aircraft that leave two airports with no time between: a tail number read wrong, or a flight that did not happen."""
    flown = flights.filter("tailnum IS NOT NULL AND dep_delay IS NOT NULL")
    return flown.key_by("tailnum").process(Rotations(), schema=Rotation)


class Idle(Contract):
    """An aircraft that was not seen to leave New York for a while."""

    last_origin: str
    last_dest: str
    since: datetime = Field(description="its last departure as scheduled")


class Stranded(ProcessFunction):
    """Says so once when an aircraft has not left again ``hours`` after its last departure."""

    origin = ValueState(str)
    dest = ValueState(str)
    since = ValueState(datetime)
    overdue = Timer()

    def __init__(self, hours: int) -> None:
        self.hours = hours

    def on_element(self, row: Mapping[str, Any], ctx: Context) -> None:
        """A departure: the clock begins anew, unless it is an older one that became known later."""
        since = self.since.get()
        if since is not None and row["scheduled"] < since:
            return
        self.origin.update(row["origin"])
        self.dest.update(row["dest"])
        self.since.update(row["scheduled"])
        self.overdue.delete()
        self.overdue.set(ctx.timestamp + self.hours * HOUR)

    def on_timer(self, timer: str, ctx: Context) -> Iterator[dict[str, Any]]:  # noqa: ARG002 - the protocol's
        """Nothing since."""
        yield {"last_origin": self.origin.get(), "last_dest": self.dest.get(), "since": self.since.get()}
        self.origin.clear()
        self.dest.clear()
        self.since.clear()


@operator
def stranded_aircraft(flights: Stream[Flight]) -> Stream:
    """Aircraft that have not left New York again within twelve hours of their last departure."""
    flown = flights.filter("tailnum IS NOT NULL AND dep_delay IS NOT NULL")
    return flown.key_by("tailnum").process(Stranded(12), schema=Idle)


@operator
def weather_at_departure(flights: Stream[Flight], weather: Stream[Weather]) -> Stream:
    """Every flight with the last weather observed at its airport before its scheduled departure, if there is any."""
    left = flights.select("scheduled", "origin", "dest", "carrier", "flight", "dep_delay").key_by("origin")
    seen = weather.select("origin", "observed", "temp", "wind_speed", "visib").key_by("origin")
    return left.temporal_join(seen, kind="left", allowed_lateness="1 day")


@operator
def connection_pairs(flights: Stream[Flight]) -> Stream:
    """Cancelled flights with those that go to the same place from the same airport within the next four hours."""
    cancelled = flights.filter("dep_delay IS NULL").select("scheduled", "origin", "dest", "carrier", "flight")
    flown = flights.filter("dep_delay IS NOT NULL").select(
        "scheduled", "origin", "dest", "carrier", "flight", "dep_delay"
    )
    return cancelled.key_by("origin", "dest").interval_join(
        flown.key_by("origin", "dest"), "1 ms", "4 hours", kind="left", prefix="next_"
    )
