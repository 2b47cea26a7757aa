"""Hourly weather at New York's three airports in 2013."""

from __future__ import annotations

from pydantic import Field

from floodmark import Contract, EventTime


class Weather(Contract, key=("observed", "origin")):
    """One observation."""

    observed: EventTime = Field(description="hour of the observation, UTC")
    origin: str = Field(description="airport: EWR, JFK or LGA")
    temp: float | None = Field(default=None, description="degrees Fahrenheit")
    wind_speed: float | None = Field(default=None, description="miles per hour")
    precip: float | None = Field(default=None, description="inches", ge=0)
    visib: float | None = Field(default=None, description="miles", ge=0)
    pressure: float | None = Field(default=None, description="millibars", gt=0)
