"""Yellow cabs of New York: trips and tips per zone and hour, and what a day has brought."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from typing import Annotated

from pydantic import Field

from floodmark import (
    BoundedOutOfOrderness,
    Calendar,
    Contract,
    Daily,
    EventTime,
    Files,
    Kafka,
    LocalTime,
    Settings,
    Source,
    Stream,
    Tumbling,
    Workspace,
    count,
    mean,
    operator,
    operator_asset,
    sum,
)

NEW_YORK = "America/New_York"


class Trip(Contract, extra="ignore"):
    """A trip, known when it ends; columns that are not named here are left out."""

    ended: Annotated[EventTime, LocalTime(NEW_YORK)] = Field(
        alias="tpep_dropoff_datetime", ge=datetime(2009, 1, 1, tzinfo=UTC)
    )
    zone: int = Field(alias="DOLocationID", ge=1, le=265)
    miles: float = Field(alias="trip_distance", ge=0)
    fare: float = Field(alias="fare_amount")
    tip: float = Field(alias="tip_amount")
    payment: int = Field(alias="payment_type")


BROKER = os.environ.get("KAFKA", "")
trips = Source(
    "trips",
    contract=Trip,
    connector=Kafka("trips", BROKER) if BROKER else Files("inbox/trips", format="parquet", min_age="0 s"),
    watermark=BoundedOutOfOrderness("2 hours"),
)


@operator
def hourly_zones(trips: Stream[Trip]) -> Stream:
    """Trips that end in a zone in an hour, and the mean tip in percent of those paid by card. Trips that were taken back do not count."""
    kept = trips.filter("fare > 0").with_columns(percent="CASE WHEN payment = 1 THEN 100 * tip / fare END")
    return kept.key_by("zone").window(Tumbling("1 hour")).aggregate(trips=count(), tip=mean("percent"))


@operator
def daily(trips: Stream[Trip]) -> Stream:
    """Trips, miles and fares of a day of New York's."""
    days = (
        trips.filter("fare > 0")
        .with_columns(cents="CAST(round(fare * 100) AS BIGINT)")
        .window(Calendar("day", timezone=NEW_YORK))
    )
    return days.aggregate(trips=count(), cents=sum("cents"))


hourly_assets = operator_asset(hourly_zones, partitions=Daily("2025-01-06", timezone=NEW_YORK))


def workspace(environment: str = "dev") -> Workspace:
    """One source, two operators."""
    engine = "embedded" if environment == "dev" else "spark"
    return Workspace(sources=[trips], operators=[hourly_assets, daily], settings=Settings(engine=engine))
