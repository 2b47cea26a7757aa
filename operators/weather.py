"""Hourly weather at New York's three airports in 2013."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import Field

from floodmark import (
    AfterWatermark,
    Contract,
    Decision,
    EventTime,
    Stream,
    Trigger,
    TriggerContext,
    Tumbling,
    count,
    max,
    min,
    operator,
)


class Weather(Contract, key=("observed", "origin")):
    """One observation."""

    observed: EventTime = Field(description="hour of the observation, UTC")
    origin: str = Field(description="airport: EWR, JFK or LGA")
    temp: float | None = Field(default=None, description="degrees Fahrenheit")
    wind_speed: float | None = Field(default=None, description="miles per hour")
    precip: float | None = Field(default=None, description="inches", ge=0)
    visib: float | None = Field(default=None, description="miles", ge=0)
    pressure: float | None = Field(default=None, description="millibars", gt=0)


class FirstStorm(Trigger):
    """Fires at the first observation of a window whose wind reaches ``speed`` miles per hour."""

    def __init__(self, speed: float) -> None:
        self.speed = speed

    def on_element(self, time: int, row: Mapping[str, Any], context: TriggerContext) -> Decision:  # noqa: ARG002 - the protocol's
        """An observation."""
        if context.state.get("told") or (row["wind_speed"] or 0) < self.speed:
            return Decision.CONTINUE
        context.state["told"] = True
        return Decision.FIRE


@operator
def storm_alerts(weather: Stream[Weather]) -> Stream:
    """Per airport and six hours: strongest wind and worst sight; told at once when a storm begins, and exactly when the six hours are over."""
    return (
        weather.key_by("origin")
        .window(Tumbling("6 hours"), trigger=AfterWatermark().early(FirstStorm(25)), allowed_lateness="1 hour")
        .aggregate(observations=count(), strongest=max("wind_speed"), worst_sight=min("visib"))
    )
