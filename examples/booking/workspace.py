"""Four systems tell of one booking; they are reconciled, and each of their messages counts once, however often it is told."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
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
    Timer,
    Tumbling,
    ValueState,
    Workspace,
    count,
    operator,
    sum,
)

DAY = 86_400_000
SYSTEMS = ("reservation", "payment", "ticket", "travel")


class Message(Contract):
    """A message of a system about a booking, which it may repeat."""

    at: EventTime
    booking: str
    message: str
    cents: int


class Reconciled(Contract):
    """A booking that all four systems have told of, or that a day has passed for since its first message."""

    systems: int
    missing: str
    cents: int
    difference: int


class Reconcile(ProcessFunction):
    """The messages of a booking: cents of each, by the system and the number that the system gave the message."""

    messages = MapState(str, "bigint")
    done = ValueState(bool, ttl="30 days")
    overdue = Timer()

    def on_element(self, row: Mapping[str, Any], ctx: Context) -> Iterator[dict[str, Any]]:
        """A message; one that is known already, or that comes after all, changes nothing."""
        if self.done.get():
            self.done.update(True)
            return
        if not len(self.messages):
            self.overdue.set(ctx.timestamp + DAY)
        self.messages.put(f"{row['system']}/{row['message']}", row["cents"])
        if len(self._sums()) == len(SYSTEMS):
            yield self._told()

    def on_timer(self, timer: str, ctx: Context) -> Iterator[dict[str, Any]]:  # noqa: ARG002 - the protocol's
        """A day has passed since the first message."""
        yield self._told()

    def _sums(self) -> dict[str, int]:
        sums: dict[str, int] = {}
        for message, cents in self.messages.items():
            system = message.partition("/")[0]
            sums[system] = sums.get(system, 0) + cents
        return sums

    def _told(self) -> dict[str, Any]:
        sums = self._sums()
        self.messages.clear()
        self.overdue.delete()
        self.done.update(True)
        reserved, paid = sums.get("reservation", 0), sums.get("payment", 0)
        lacking = [system for system in SYSTEMS if system not in sums]
        return {"systems": len(sums), "missing": ",".join(lacking), "cents": reserved, "difference": reserved - paid}


def _source(name: str) -> Source:
    files = Files(name, format="json", min_age="0 s")
    return Source(name, contract=Message, connector=files, watermark=BoundedOutOfOrderness("10 minutes"))


SOURCES = tuple(map(_source, SYSTEMS))


@operator
def reconciled(
    reservation: Stream[Message], payment: Stream[Message], ticket: Stream[Message], travel: Stream[Message]
) -> Stream:
    """Bookings that are complete, and those to which something lacks after a day."""
    streams = zip((reservation, payment, ticket, travel), SYSTEMS, strict=True)
    first, *others = (stream.with_columns(system=f"'{system}'") for stream, system in streams)
    return first.union(*others).key_by("booking").process(Reconcile(), schema=Reconciled)


@operator(inputs={"bookings": reconciled})
def per_day(bookings: Stream) -> Stream:
    """Bookings of a day, what was reserved, and by how much payments differ."""
    days = bookings.window(Tumbling("1 day"))
    return days.aggregate(bookings=count(), cents=sum("cents"), difference=sum("difference"))


def workspace(environment: str = "dev") -> Workspace:
    """Four sources, two operators."""
    engine = "embedded" if environment == "dev" else "spark"
    return Workspace(sources=SOURCES, operators=[reconciled, per_day], settings=Settings(engine=engine))
