"""A sales screen: what was sold today, by category, as of the last order."""

from __future__ import annotations

from floodmark import (
    AfterCount,
    AfterWatermark,
    BoundedOutOfOrderness,
    Contract,
    EventTime,
    Files,
    Settings,
    Source,
    Stream,
    Tumbling,
    Workspace,
    count,
    operator,
    sum,
)


class Order(Contract):
    """An order, as a shop writes it into a file."""

    at: EventTime
    category: str
    cents: int


orders = Source(
    "orders",
    contract=Order,
    connector=Files("inbox", format="csv", min_age="0 s"),
    watermark=BoundedOutOfOrderness("1 minute"),
)


@operator
def sales(orders: Stream[Order]) -> Stream:
    """The day so far: each order changes the sums of its category at once, and the day's last result is final."""
    day = orders.key_by("category").window(Tumbling("1 day"), trigger=AfterWatermark().early(AfterCount(1)))
    return day.aggregate(orders=count(), cents=sum("cents"))


def workspace(environment: str = "dev") -> Workspace:
    """One log and the screen's numbers."""
    engine = "embedded" if environment == "dev" else "spark"
    return Workspace(sources=[orders], operators=[sales], settings=Settings(engine=engine))
