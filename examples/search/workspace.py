"""Searches: what kind of program sends them is what most users say of its name, and the searches of a user are divided into sessions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from floodmark import (
    BoundedOutOfOrderness,
    Context,
    Contract,
    CoProcessFunction,
    EventTime,
    Files,
    MapState,
    Session,
    Settings,
    Source,
    Stream,
    Workspace,
    count,
    count_distinct,
    first,
    last,
    operator,
)

ENOUGH_VOTES = 3


class Search(Contract):
    """A search of a user."""

    at: EventTime
    user: str
    agent: str
    query: str


class Vote(Contract):
    """What a user says that the program of an agent's name is."""

    at: EventTime
    agent: str
    device: str


class Identified(Contract):
    """A search with the device that most votes named before it."""

    user: str
    query: str
    device: str


class Identify(CoProcessFunction):
    """The votes on a name, and the searches of programs of that name."""

    votes = MapState(str, int)

    def on_left(self, row: Mapping[str, Any], ctx: Context) -> Iterator[dict[str, Any]]:  # noqa: ARG002 - the protocol's
        """A search: its device is known once enough votes name one, and more than half of all name it."""
        votes = self.votes.items()
        device, most = max(votes, key=lambda vote: (vote[1], vote[0]), default=("", 0))
        known = most >= ENOUGH_VOTES and 2 * most > sum(number for _, number in votes)
        yield {"user": row["user"], "query": row["query"], "device": device if known else "unknown"}

    def on_right(self, row: Mapping[str, Any], ctx: Context) -> None:  # noqa: ARG002 - the protocol's
        """A vote."""
        self.votes.put(row["device"], self.votes.get(row["device"], 0) + 1)


def _source(name: str, contract: type[Contract]) -> Source:
    files = Files(name, format="json", min_age="0 s")
    return Source(name, contract=contract, connector=files, watermark=BoundedOutOfOrderness("10 minutes"))


searches, votes = _source("searches", Search), _source("votes", Vote)


@operator
def identified(searches: Stream[Search], votes: Stream[Vote]) -> Stream:
    """Searches with their device, by the votes before each of them."""
    return searches.key_by("agent").connect(votes.key_by("agent")).process(Identify(), schema=Identified)


@operator(inputs={"known": identified})
def sessions(known: Stream) -> Stream:
    """Searches of a user on a device with less than half an hour between them."""
    visits = known.key_by("user", "device").window(Session("30 minutes"))
    return visits.aggregate(
        searches=count(), queries=count_distinct("query"), began_with=first("query"), ended_with=last("query")
    )


def workspace(environment: str = "dev") -> Workspace:
    """Two sources, two operators."""
    engine = "embedded" if environment == "dev" else "spark"
    return Workspace(sources=[searches, votes], operators=[identified, sessions], settings=Settings(engine=engine))
