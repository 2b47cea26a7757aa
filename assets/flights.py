"""Assets of the reference workspace: departures, weather observations, and the operators that read them."""

from __future__ import annotations

from floodmark import BoundedOutOfOrderness, Expectation, Files, Source, operator_asset, source_asset
from operators import aircraft
from operators import flights as operators
from operators import weather as storms
from operators.flights import DAYS, Flight
from operators.weather import Weather

flights = source_asset(
    Source(
        "flights",
        contract=Flight,
        connector=Files("inbox/flights", min_age="0 s"),  # files appear whole, by a rename
        # a flight becomes known when it lands; 0.9 % of 2013 became known later than this (with 3 hours it is 22 %)
        watermark=BoundedOutOfOrderness("6 hours"),
        granularity="row",
        files_per_commit=7,
    ),
    owners=["team:flights"],
    ends=True,  # without an end of the source, the last day of 2013 would wait for flights of 2014
)

weather = source_asset(
    Source(
        "weather",
        contract=Weather,
        connector=Files("inbox/weather", min_age="0 s"),
        watermark=BoundedOutOfOrderness("1 hour"),
    ),
    owners=["team:flights"],
    ends=True,
)

hourly_departures = operator_asset(
    operators.hourly_departures,
    partitions=DAYS,
    group="departures",
    owners=["team:flights"],
    expectations=[
        Expectation("column_values_to_be_in_set", column="origin", value_set=["EWR", "JFK", "LGA"], blocking=True),
        Expectation("column_values_to_be_between", column="departures", min_value=1, max_value=60, blocking=True),
        Expectation("column_mean_to_be_between", column="mean_delay", min_value=-30, max_value=240),
    ],
)

rolling_departures = operator_asset(
    operators.rolling_departures, partitions=DAYS, group="departures", owners=["team:flights"]
)

daily_carriers = operator_asset(
    operators.daily_carriers,
    partitions=DAYS,
    group="carriers",
    owners=["team:flights"],
    expectations=[Expectation("column_values_to_be_between", column="share_cancelled", min_value=0, max_value=1)],
)

busiest_hour = operator_asset(operators.busiest_hour, partitions=DAYS, group="departures", owners=["team:flights"])

split_delays = operator_asset(operators.split_delays, partitions=DAYS, group="departures", owners=["team:flights"])

delay_sessions = operator_asset(operators.delay_sessions, partitions=DAYS, group="departures", owners=["team:flights"])

moving_median = operator_asset(operators.moving_median, group="departures", owners=["team:flights"])

storm_alerts = operator_asset(storms.storm_alerts, partitions=DAYS, group="weather", owners=["team:flights"])

aircraft_rotations = operator_asset(aircraft.aircraft_rotations, group="aircraft", owners=["team:flights"])

stranded_aircraft = operator_asset(aircraft.stranded_aircraft, group="aircraft", owners=["team:flights"])

weather_at_departure = operator_asset(aircraft.weather_at_departure, group="weather", owners=["team:flights"])

connection_pairs = operator_asset(
    aircraft.connection_pairs, partitions=DAYS, group="departures", owners=["team:flights"]
)
