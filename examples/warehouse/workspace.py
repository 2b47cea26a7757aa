"""A warehouse that is loaded all the time: orders are checked, cleaned, joined with the customer as of the order, and kept in tables of a database."""

from __future__ import annotations

from pydantic import Field

from floodmark import (
    BoundedOutOfOrderness,
    Contract,
    EventTime,
    Files,
    Settings,
    Source,
    Stream,
    ToSql,
    Tumbling,
    Workspace,
    count,
    operator,
    operator_asset,
    sum,
)


class Order(Contract, key="number"):
    """An order as the shop writes it. One without a price goes to the quarantine."""

    at: EventTime
    number: int
    customer: str
    cents: int = Field(gt=0)


class Customer(Contract):
    """A customer from a moment on: the next line about the customer replaces it."""

    since: EventTime
    customer: str
    segment: str


def _source(name: str, contract: type[Contract]) -> Source:
    files = Files(f"inbox/{name}", format="csv", min_age="0 s")
    return Source(name, contract=contract, connector=files, watermark=BoundedOutOfOrderness("10 minutes"))


orders, customers = _source("orders", Order), _source("customers", Customer)


@operator
def facts(orders: Stream[Order], customers: Stream[Customer]) -> Stream:
    """The table of facts: a row per order, with the segment that the customer was in at the time of the order."""
    cleaned = orders.with_columns(customer="lower(trim(customer))")
    known = customers.with_columns(customer="lower(trim(customer))")
    joined = cleaned.key_by("customer").temporal_join(known.key_by("customer"))
    return joined.with_columns(day="date_trunc('day', at)").select("number", "customer", "segment", "cents", "day")


@operator(inputs={"facts": facts})
def daily(facts: Stream) -> Stream:
    """The mart: orders and revenue of a day and a segment."""
    windows = facts.key_by("segment").window(Tumbling("1 day"))
    return windows.aggregate(orders=count(), cents=sum("cents"))


def workspace(environment: str = "dev") -> Workspace:
    """Two sources, two tables of the warehouse."""
    engine = "embedded" if environment == "dev" else "spark"
    tables = [operator_asset(code, deliver=[ToSql("sqlite:///warehouse.db")]) for code in (facts, daily)]
    return Workspace(sources=[orders, customers], operators=tables, settings=Settings(engine=engine))
