"""Alerts within seconds: cells of a telephone network whose load must shift or that are gone, and accounts that are being emptied."""

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
    ValueState,
    Workspace,
    begin,
    operator,
    skip_past_last_event,
)

MINUTE = 60_000
FULL, FREE = 90, 50
"""Load of a cell that must give calls away, and of one that may take them, in percent."""


class Load(Contract):
    """The load of a cell, which it reports every minute."""

    at: EventTime
    region: str
    cell: str
    percent: int


class Advice(Contract):
    """Where the calls of a full cell should go."""

    cell: str
    shift_to: str


class Outage(Contract):
    """A cell that has reported nothing for three minutes, and its last load; or that is back."""

    state: str
    percent: int


class Entry(Contract):
    """Something that happens to an account: a log-in, a new payee, a payment of so many cents."""

    at: EventTime
    account: str
    what: str
    device: str
    cents: int


class Balance(Contract):
    """A balance that has fallen below what its owner wants to be told of."""

    cents: int


class Shift(ProcessFunction):
    """The loads of a region's cells."""

    loads = MapState(str, int, ttl="3 minutes")

    def on_element(self, row: Mapping[str, Any], ctx: Context) -> Iterator[dict[str, Any]]:  # noqa: ARG002 - the protocol's
        """A full cell gives to the freest one of its region."""
        self.loads.put(row["cell"], row["percent"])
        free = [(percent, cell) for cell, percent in self.loads.items() if percent < FREE]
        if row["percent"] > FULL and free:
            yield {"cell": row["cell"], "shift_to": min(free)[1]}


class Watch(ProcessFunction):
    """Whether a cell still reports."""

    percent, is_out, overdue = ValueState(int), ValueState(bool), Timer()

    def on_element(self, row: Mapping[str, Any], ctx: Context) -> Iterator[dict[str, Any]]:
        """A report."""
        if self.is_out.get():
            self.is_out.clear()
            yield {"state": "back", "percent": row["percent"]}
        self.percent.update(row["percent"])
        self.overdue.delete()
        self.overdue.set(ctx.timestamp + 3 * MINUTE)

    def on_timer(self, timer: str, ctx: Context) -> Iterator[dict[str, Any]]:  # noqa: ARG002 - the protocol's
        """Three minutes without one."""
        self.is_out.update(True)
        yield {"state": "out", "percent": self.percent.get()}


class Push(ProcessFunction):
    """The balance of an account. One message as it falls below the limit, none until it was above again."""

    cents = ValueState("bigint")

    def __init__(self, limit_cents: int) -> None:
        self.limit_cents = limit_cents

    def on_element(self, row: Mapping[str, Any], ctx: Context) -> Iterator[dict[str, Any]]:  # noqa: ARG002 - the protocol's
        """A payment, negative where money leaves."""
        before = self.cents.get(0)
        after = before + row["cents"]
        self.cents.update(after)
        if after < self.limit_cents <= before:
            yield {"cents": after}


def _source(name: str, contract: type[Contract]) -> Source:
    files = Files(name, format="json", min_age="0 s")
    return Source(name, contract=contract, connector=files, watermark=BoundedOutOfOrderness("5 seconds"))


loads, entries = _source("loads", Load), _source("entries", Entry)


@operator
def shifts(loads: Stream[Load]) -> Stream:
    """Full cells, with the cell that should take their calls."""
    return loads.key_by("region").process(Shift(), schema=Advice, order="event_time")


@operator
def outages(loads: Stream[Load]) -> Stream:
    """Cells that are gone, and those that are back."""
    return loads.key_by("region", "cell").process(Watch(), schema=Outage, order="event_time")


@operator
def phished(entries: Stream[Entry]) -> Stream:
    """A log-in, a new payee and a large payment out, all from another device than the log-in before, within ten minutes."""
    stranger = (
        begin("usual")
        .where("what = 'login'")
        .followed_by("login")
        .where("what = 'login' AND device <> usual.device")
        .followed_by("payee")
        .where("what = 'payee' AND device = login.device")
        .followed_by("payment")
        .where("what = 'payment' AND device = login.device AND cents <= -50000")
        .where("instant < login.instant + 600000")
        .within("1 day")
    )
    timed = entries.with_columns(instant="unix_millis(at)")
    matches = timed.key_by("account").pattern(stranger, skip=skip_past_last_event())
    return matches.select(device="login.device", at="payment.at", cents="payment.cents")


@operator
def low_balances(entries: Stream[Entry]) -> Stream:
    """Balances that fall below a hundred euros."""
    paid = entries.filter("what = 'payment'")
    return paid.key_by("account").process(Push(10_000), schema=Balance, order="event_time")


def workspace(environment: str = "dev") -> Workspace:
    """Two sources, four operators."""
    engine = "embedded" if environment == "dev" else "spark"
    operators = [shifts, outages, phished, low_balances]
    return Workspace(sources=[loads, entries], operators=operators, settings=Settings(engine=engine))
