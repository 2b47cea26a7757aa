"""Three sites that show advertisements: each has state of its own, all read one shared stream of what was spent, and a core sees everything."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from floodmark import (
    BoundedOutOfOrderness,
    Context,
    Contract,
    EventTime,
    Files,
    Operator,
    ProcessFunction,
    Settings,
    Source,
    Stream,
    Tumbling,
    ValueState,
    Workspace,
    count,
    operator,
    sum,
)

SITES = ("berlin", "lima", "osaka")
BUDGET = 2_000
"""Cents that a campaign may spend, at all sites together."""


class Spend(Contract):
    """An advertisement was shown at a site, for a price."""

    at: EventTime
    campaign: str
    cents: int


class UsedUp(Contract):
    """What a campaign had spent when its budget was used up."""

    spent: int


class Budget(ProcessFunction):
    """Adds up what a campaign spends, in order of event time, and says once that nothing is left."""

    spent = ValueState(int)

    def on_element(self, row: Mapping[str, Any], ctx: Context) -> Iterator[dict[str, Any]]:  # noqa: ARG002 - the protocol's
        """A spend: the one that reaches the budget ends the campaign."""
        before = self.spent.get(0)
        self.spent.update(before + row["cents"])
        if before < BUDGET <= before + row["cents"]:
            yield {"spent": before + row["cents"]}


def spent_at(site: str) -> Source:
    """What a site lands: its home is the site's lake, and the others have replicas."""
    files = Files(f"inbox/{site}", format="csv", min_age="0 s")
    return Source(f"{site}_spent", contract=Spend, connector=files, watermark=BoundedOutOfOrderness("5 minutes"))


def hourly_at(source: Source) -> Operator:
    """The sums of one site: state that never leaves it."""

    @operator(name=source.name.replace("_spent", "_hourly"), inputs={"spent": source})
    def hourly(spent: Stream) -> Stream:
        return spent.key_by("campaign").window(Tumbling("1 hour")).aggregate(shown=count(), cents=sum("cents"))

    return hourly


@operator
def used_up(berlin_spent: Stream[Spend], lima_spent: Stream[Spend], osaka_spent: Stream[Spend]) -> Stream:
    """The shared inventory: each site computes it from the same three logs, and so each has the same rows."""
    everything = berlin_spent.union(lima_spent, osaka_spent)
    return everything.key_by("campaign").process(Budget(), schema=UsedUp, order="event_time")


@operator
def everywhere(berlin_spent: Stream[Spend], lima_spent: Stream[Spend], osaka_spent: Stream[Spend]) -> Stream:
    """What the core analyses: hourly sums over all sites."""
    everything = berlin_spent.union(lima_spent, osaka_spent)
    return everything.key_by("campaign").window(Tumbling("1 hour")).aggregate(shown=count(), cents=sum("cents"))


sources = [spent_at(site) for site in SITES]
local = [hourly_at(source) for source in sources]


def workspace(environment: str = "dev") -> Workspace:
    """The same program at each site and in the core; `--lake` says where."""
    engine = "embedded" if environment == "dev" else "spark"
    return Workspace(sources=sources, operators=[*local, used_up, everywhere], settings=Settings(engine=engine))
