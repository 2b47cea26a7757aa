"""Sources of the reference workspace: departures, and the weather they happened in."""

from __future__ import annotations

from floodmark import BoundedOutOfOrderness, Files, Source
from operators.flights import Flight
from operators.weather import Weather

flights = Source(
    "flights",
    contract=Flight,
    connector=Files("inbox/flights"),
    # a flight becomes known when it lands; 0.9 % of 2013 became known later than this (with 3 hours it is 22 %)
    watermark=BoundedOutOfOrderness("6 hours"),
    granularity="row",
    files_per_commit=7,
)

weather = Source(
    "weather",
    contract=Weather,
    connector=Files("inbox/weather"),
    watermark=BoundedOutOfOrderness("1 hour"),
)
