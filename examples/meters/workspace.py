"""Meters: what is lost between a feeder and its meters may be stolen; a meter that repeats itself, or says nothing, is defect."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from floodmark import (
    BoundedOutOfOrderness,
    Contract,
    EventTime,
    Files,
    Pane,
    Settings,
    Source,
    Stream,
    Tumbling,
    Workspace,
    begin,
    operator,
)

SUSPICIOUS_SHARE = 0.1


class Reading(Contract):
    """What a meter has counted in a quarter of an hour."""

    at: EventTime
    meter: str
    feeder: str
    watt_hours: int


class Supply(Contract):
    """What a feeder has delivered in a quarter of an hour."""

    at: EventTime
    feeder: str
    watt_hours: int


class Loss(Contract):
    """An hour in which more than a tenth of what a feeder delivers reaches no meter."""

    delivered: int
    counted: int


def loss(
    pane: Pane,  # noqa: ARG001 - floodmark's
    readings: Sequence[Mapping[str, Any]],
    supplies: Sequence[Mapping[str, Any]],
) -> Iterator[dict[str, Any]]:
    """An hour of a feeder. Of an hour without a supply nothing is known."""
    delivered, counted = (sum(row["watt_hours"] for row in rows) for rows in (supplies, readings))
    if counted < (1 - SUSPICIOUS_SHARE) * delivered:
        yield {"delivered": delivered, "counted": counted}


def _source(name: str, contract: type[Contract]) -> Source:
    files = Files(name, format="json", min_age="0 s")
    return Source(name, contract=contract, connector=files, watermark=BoundedOutOfOrderness("10 minutes"))


readings, supplies = _source("readings", Reading), _source("supplies", Supply)


@operator
def losses(readings: Stream[Reading], supplies: Stream[Supply]) -> Stream:
    """Feeders and hours in which something is lost."""
    return readings.key_by("feeder").co_group(supplies.key_by("feeder"), Tumbling("1 hour"), loss, schema=Loss)


@operator
def stuck(readings: Stream[Reading]) -> Stream:
    """Meters that count the same four times or more, and not nothing: the run of equal readings, once it is over."""
    return readings.match_recognize(
        partition_by="meter",
        pattern="FIRST_ONE SAME{3,}",
        define={"FIRST_ONE": "watt_hours > 0", "SAME": "watt_hours = PREV(watt_hours)"},
        measures={
            "since": "FIRST_ONE.at",
            "until": "LAST(SAME.at)",
            "readings": "COUNT(*)",
            "watt_hours": "FIRST_ONE.watt_hours",
        },
        within="1 day",
    )


@operator
def silent(readings: Stream[Reading]) -> Stream:
    """Meters without a reading for an hour."""
    quiet = begin("last").not_followed_by("another").where("true").within("1 hour")
    return readings.key_by("meter").pattern(quiet).select(feeder="last.feeder", heard_at="last.at")


def workspace(environment: str = "dev") -> Workspace:
    """Two sources, three operators."""
    engine = "embedded" if environment == "dev" else "spark"
    operators = [losses, stuck, silent]
    return Workspace(sources=[readings, supplies], operators=operators, settings=Settings(engine=engine))
