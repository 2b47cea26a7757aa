"""Two swipes of a card that nobody can have made: farther apart than a plane flies in the time between them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from floodmark import (
    BoundedOutOfOrderness,
    Contract,
    EventTime,
    Files,
    Settings,
    Source,
    Stream,
    Workspace,
    begin,
    operator,
)

FASTEST_KMH = 900


class Swipe(Contract):
    """A swipe of a card at a terminal."""

    at: EventTime
    card: str
    latitude: float
    longitude: float


def kilometres(a: Mapping[str, Any], b: Mapping[str, Any]) -> float:
    """Along the great circle between two terminals."""
    north, south = math.radians(a["latitude"]), math.radians(b["latitude"])
    half = math.radians(a["longitude"] - b["longitude"]) / 2
    chord = math.sin((north - south) / 2) ** 2 + math.cos(north) * math.cos(south) * math.sin(half) ** 2
    return 2 * 6_371 * math.asin(math.sqrt(chord))


def too_fast(row: Mapping[str, Any], match: Mapping[str, Sequence[Mapping[str, Any]]]) -> bool:
    """Whether the card would have travelled faster than a plane since the swipe before."""
    before = match["first"][-1]
    hours = (row["at"] - before["at"]).total_seconds() / 3600
    return kilometres(before, row) > max(FASTEST_KMH * hours, 1)


swipes = Source(
    "swipes",
    contract=Swipe,
    connector=Files("inbox", format="json", min_age="0 s"),
    watermark=BoundedOutOfOrderness("10 minutes"),
)


@operator
def refused(swipes: Stream[Swipe]) -> Stream:
    """The second of two swipes that follow each other, if it is too far from the first one."""
    distant = begin("first").next("second").where(too_fast).within("1 day")
    return swipes.key_by("card").pattern(distant).select(before="first.at", at="second.at")


def workspace(environment: str = "dev") -> Workspace:
    """One source, one operator."""
    engine = "embedded" if environment == "dev" else "spark"
    return Workspace(sources=[swipes], operators=[refused], settings=Settings(engine=engine))
