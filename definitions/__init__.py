"""The reference workspace. Composition only."""

from __future__ import annotations

from assets.flights import (
    busiest_hour,
    daily_carriers,
    flights,
    hourly_departures,
    rolling_departures,
    split_delays,
    weather,
)
from floodmark import Workspace
from resources.settings import settings


def workspace(environment: str = "dev") -> Workspace:
    """Every source and operator, with the settings of an environment."""
    return Workspace(
        sources=[flights, weather],
        operators=[hourly_departures, rolling_departures, daily_carriers, busiest_hour, split_delays],
        settings=settings(environment),
    )
