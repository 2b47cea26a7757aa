"""Departures from New York's three airports in 2013."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any

from pydantic import Field

from floodmark import (
    AfterCount,
    AfterWatermark,
    Calendar,
    Contract,
    Daily,
    EventTime,
    Global,
    KeepLast,
    LocalTime,
    Outputs,
    Pane,
    Session,
    Sliding,
    Stream,
    Tumbling,
    count,
    count_distinct,
    distinct,
    max,
    mean,
    operator,
)

NEW_YORK = "America/New_York"
DAYS = Daily("2013-01-01", timezone=NEW_YORK, end="2014-01-01")
"""The asset partitions of what is computed by day."""


class Flight(Contract, key=("scheduled", "carrier", "flight", "origin")):
    """One flight, known when it has landed, or at its scheduled departure when it was cancelled."""

    scheduled: Annotated[EventTime, LocalTime(NEW_YORK)] = Field(
        description="scheduled departure, local time in the file"
    )
    origin: str = Field(description="airport of departure: EWR, JFK or LGA")
    dest: str = Field(description="airport of arrival")
    carrier: str = Field(description="two-letter airline code")
    flight: int = Field(description="flight number")
    tailnum: str | None = Field(default=None, description="aircraft; missing for some cancelled flights")
    dep_delay: int | None = Field(default=None, description="minutes, negative when early; missing when cancelled")
    arr_delay: int | None = Field(default=None, description="minutes, negative when early")
    air_time: int | None = Field(default=None, description="minutes", ge=0)
    distance: int = Field(description="miles", gt=0)


@operator
def hourly_departures(flights: Stream[Flight]) -> Stream:
    """Departures and mean delay per airport and hour."""
    return (
        flights.filter("dep_delay IS NOT NULL")
        .key_by("origin")
        .window(Tumbling("1 hour"), allowed_lateness="2 hours", late="side_output")
        .aggregate(departures=count(), mean_delay=mean("dep_delay"))
    )


@operator
def rolling_departures(flights: Stream[Flight]) -> Stream:
    """Departures and worst delay per airport in the last hour, every quarter of an hour."""
    return (
        flights.filter("dep_delay IS NOT NULL")
        .key_by("origin")
        .window(Sliding("1 hour", "15 minutes"))
        .aggregate(departures=count(), max_delay=max("dep_delay"))
    )


@operator
def daily_carriers(flights: Stream[Flight]) -> Stream:
    """Per carrier and asset partition, a New York day of 23, 24 or 25 hours: flights, mean delay, share cancelled, aircraft."""
    return (
        flights.with_columns(cancelled="CASE WHEN dep_delay IS NULL THEN 1.0 ELSE 0.0 END")
        .key_by("carrier")
        .window(Global.per(DAYS), allowed_lateness="6 hours")
        .aggregate(
            flights=count(),
            mean_delay=mean("dep_delay"),
            share_cancelled=mean("cancelled"),
            tails=count_distinct("tailnum"),
        )
    )


@operator(inputs={"departures": hourly_departures})
def busiest_hour(departures: Stream) -> Stream:
    """Per airport and New York day: the busiest hour's departures, and how many hours had any. A chain on hourly_departures."""
    return (
        departures.key_by("origin")
        .window(Calendar("day", NEW_YORK), allowed_lateness="1 day")
        .aggregate(busiest=max("departures"), hours=count())
    )


@operator
def split_delays(flights: Stream[Flight]) -> Outputs:
    """Flights an hour or more behind, and the others that flew."""
    return Outputs(severe=flights.filter("dep_delay >= 60"), normal=flights.filter("dep_delay < 60"))


@operator
def delay_sessions(flights: Stream[Flight]) -> Stream:
    """Stretches in which an airport runs late: departures half an hour or more behind, no two hours between them. First told after ten."""
    return (
        flights.filter("dep_delay >= 30")
        .key_by("origin")
        .window(Session("2 hours"), trigger=AfterWatermark().early(AfterCount(10)), allowed_lateness="3 hours")
        .aggregate(delayed=count(), worst=max("dep_delay"), carriers=distinct("carrier"))
    )


class MedianDelay(Contract):
    """The middle of the last departures."""

    median_delay: float = Field(description="minutes")
    departures: int = Field(description="at most 50")


def middle(pane: Pane, rows: Sequence[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:  # noqa: ARG001 - called with both
    """The median delay of a window's flights."""
    delays = [row["dep_delay"] for row in rows]
    yield {"median_delay": float(statistics.median(delays)), "departures": len(delays)}


@operator
def moving_median(flights: Stream[Flight]) -> Stream:
    """Median delay of an airport's last 50 departures to become known, anew at every tenth."""
    return (
        flights.filter("dep_delay IS NOT NULL")
        .key_by("origin")
        .window(Global(), trigger=AfterCount(10), evictor=KeepLast(50), accumulation="accumulating")
        .process(middle, MedianDelay)
    )
