"""The same orders and the same hours in floodmark. ``AGGREGATE=max`` stands for an edit of the operator."""

from __future__ import annotations

import os

import floodmark as fm

AGGREGATES = {"sum": fm.sum, "max": fm.max}
AGGREGATE = os.environ.get("AGGREGATE", "sum")


class Order(fm.Contract):
    """An order, in cents."""

    at: fm.EventTime
    cents: int


orders = fm.Source(
    "orders",
    contract=Order,
    connector=fm.Files("inbox", format="csv", min_age="0 s"),
    watermark=fm.BoundedOutOfOrderness("10 minutes"),
)


@fm.operator
def hourly(orders: fm.Stream[Order]) -> fm.Stream:
    """One value per hour; an order more than ten minutes behind the newest is late, and kept beside."""
    return orders.window(fm.Tumbling("1 hour"), late="side_output").aggregate(cents=AGGREGATES[AGGREGATE]("cents"))


def workspace(environment: str = "dev") -> fm.Workspace:
    """One source, one operator."""
    engine = "embedded" if environment == "dev" else "spark"
    return fm.Workspace(sources=[orders], operators=[hourly], settings=fm.Settings(engine=engine))
