"""Departures: a function of a helper module in windows, a process function, and a join."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from floodmark import Context, Contract, EventTime, ProcessFunction, Stream, Tumbling, ValueState, count, operator, sum
from operators import rules


class Departure(Contract):
    """A flight that was to depart."""

    at: EventTime
    carrier: str
    origin: str
    delay: int | None


class Weather(Contract):
    """What an airport measured."""

    at: EventTime
    origin: str
    wind: float


class Named(Contract):
    """A departure with the name of its airline."""

    airline: str
    origin: str
    delay: int


class Streak(Contract):
    """A departure behind time, and how many there were one after the other."""

    length: int


class Streaks(ProcessFunction):
    """Counts departures behind time, one after the other."""

    length = ValueState(int)

    def on_element(self, row: Mapping[str, Any], ctx: Context) -> Iterator[dict[str, Any]]:
        """A row for each that is behind."""
        del ctx
        rules.ambush()
        if row["delay"] is None:
            return
        if not rules.is_behind(row["delay"]):
            self.length.clear()
            return
        self.length.update(self.length.get(0) + 1)
        yield {"length": self.length.get(0)}


@operator
def delays(departures: Stream[Departure]) -> Stream:
    """Departures and minutes per airline and hour."""
    airlines = departures.flat_map(rules.named, Named)
    return airlines.key_by("airline").window(Tumbling("1 hour")).aggregate(n=count(), minutes=sum("delay"))


@operator
def streaks(departures: Stream[Departure]) -> Stream:
    """Departures behind time, one after the other, per airport."""
    return departures.key_by("origin").process(Streaks(), schema=Streak)


@operator
def windy(departures: Stream[Departure], weather: Stream[Weather]) -> Stream:
    """Each departure with what its airport measured up to an hour before."""
    return departures.key_by("origin").interval_join(weather.key_by("origin"), "-1 hour", "0 s", prefix="measured_")


OPERATORS = (delays, streaks, windy)
