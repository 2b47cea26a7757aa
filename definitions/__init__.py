"""The reference workspace. Composition only."""

from __future__ import annotations

from assets.flights import (
    aircraft_rotations,
    busiest_hour,
    connection_pairs,
    daily_carriers,
    delay_sessions,
    flights,
    hourly_departures,
    moving_median,
    rolling_departures,
    split_delays,
    storm_alerts,
    stranded_aircraft,
    weather,
    weather_at_departure,
)
from floodmark import Workspace
from resources.settings import settings


def workspace(environment: str = "dev") -> Workspace:
    """Every source and operator, with the settings of an environment."""
    return Workspace(
        sources=[flights, weather],
        operators=[
            hourly_departures,
            rolling_departures,
            daily_carriers,
            busiest_hour,
            split_delays,
            delay_sessions,
            moving_median,
            storm_alerts,
            aircraft_rotations,
            stranded_aircraft,
            weather_at_departure,
            connection_pairs,
        ],
        settings=settings(environment),
    )
