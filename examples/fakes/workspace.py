"""Services around one log of clicks: a screener of fake clicks, a list of visitors to block, and an analyst who comes later and reads the log from its first row."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from typing import Any

from floodmark import (
    BoundedOutOfOrderness,
    Context,
    Contract,
    EventTime,
    Files,
    MapState,
    ProcessFunction,
    Settings,
    Source,
    Stream,
    ValueState,
    Workspace,
    operator,
)

APART = timedelta(seconds=10)
"""Nobody clicks the same advertisement again before this."""
ALLOWED = 2
"""Fake clicks before a visitor is blocked."""


class Click(Contract):
    """A click on an advertisement, and what it costs."""

    at: EventTime
    visitor: str
    ad: str
    cents: int


class Screened(Contract):
    """A click as it was judged."""

    ad: str
    cents: int
    fake: bool


class Blocked(Contract):
    """A visitor with too many fake clicks."""

    fakes: int


class Screener(ProcessFunction):
    """The last click of a visitor on each advertisement is private to this service."""

    last = MapState(str, datetime)

    def on_element(self, row: Mapping[str, Any], ctx: Context) -> Iterator[dict[str, Any]]:  # noqa: ARG002 - the protocol's
        """A click: fake if the visitor has clicked the same advertisement just before."""
        before = self.last.get(row["ad"])
        self.last.put(row["ad"], row["at"])
        fake = before is not None and row["at"] - before < APART
        yield {"ad": row["ad"], "cents": row["cents"], "fake": fake}


class Blocker(ProcessFunction):
    """Counts fake clicks per visitor."""

    fakes = ValueState(int)

    def on_element(self, row: Mapping[str, Any], ctx: Context) -> Iterator[dict[str, Any]]:  # noqa: ARG002 - the protocol's
        """A fake click: the first one too many blocks the visitor, once."""
        fakes = self.fakes.get(0) + 1
        self.fakes.update(fakes)
        if fakes == ALLOWED + 1:
            yield {"fakes": fakes}


clicks = Source(
    "clicks",
    contract=Click,
    connector=Files("inbox", format="csv", min_age="0 s"),
    watermark=BoundedOutOfOrderness("1 minute"),
)


@operator
def screened(clicks: Stream[Click]) -> Stream:
    """Each click with a verdict, in order of time: whoever needs an answer asks by visitor (`floodmark serve screened`)."""
    return clicks.key_by("visitor").process(Screener(), schema=Screened, order="event_time")


@operator(inputs={"judged": screened})
def blocked(judged: Stream) -> Stream:
    """Visitors to block. Reads what the screener has written, and nothing of its state."""
    return judged.filter("fake").key_by("visitor").process(Blocker(), schema=Blocked)


@operator(inputs={"blocked": blocked})
def refunds(clicks: Stream[Click], blocked: Stream) -> Stream:
    """What the analyst asks, months later: all clicks of visitors that were blocked, also those from before they were."""
    return clicks.key_by("visitor").join(blocked.key_by("visitor"), ttl="30 days").select("visitor", "ad", "cents")


def workspace(environment: str = "dev") -> Workspace:
    """One log, three services."""
    engine = "embedded" if environment == "dev" else "spark"
    return Workspace(sources=[clicks], operators=[screened, blocked, refunds], settings=Settings(engine=engine))
