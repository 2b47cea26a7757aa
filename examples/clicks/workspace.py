"""The same in floodmark: one operator, as a stream and as a batch."""

from __future__ import annotations

from floodmark import (
    AfterCount,
    AfterWatermark,
    BoundedOutOfOrderness,
    Contract,
    EventTime,
    Files,
    Session,
    Settings,
    Source,
    Stream,
    Tumbling,
    Workspace,
    count,
    operator,
)


class Click(Contract):
    """A click on an advertisement."""

    at: EventTime
    campaign: str
    user: int


clicks = Source(
    "clicks",
    contract=Click,
    connector=Files("inbox", format="json", min_age="0 s"),  # files appear whole, by a rename
    watermark=BoundedOutOfOrderness("1 minute"),
)

PROGRAMS = ("stream",)


@operator
def clicks_per_hour(clicks: Stream[Click]) -> Stream:
    """Clicks per campaign and hour: early after each tenth, and revised by clicks up to an hour late."""
    early = AfterWatermark().early(AfterCount(10))
    hours = clicks.key_by("campaign").window(Tumbling("1 hour"), trigger=early, allowed_lateness="1 hour")
    return hours.aggregate(clicks=count())


@operator
def visits(clicks: Stream[Click]) -> Stream:
    """Visits of users: clicks at most ten minutes apart."""
    return clicks.key_by("user").window(Session("10 minutes"), allowed_lateness="1 hour").aggregate(clicks=count())


def workspace(environment: str = "dev") -> Workspace:
    """One source, two operators."""
    engine = "embedded" if environment == "dev" else "spark"
    return Workspace(sources=[clicks], operators=[clicks_per_hour, visits], settings=Settings(engine=engine))
