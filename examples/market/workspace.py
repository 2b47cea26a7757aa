"""Recommendations on the busiest day: what others have bought today beside a product, by the purchases up to this moment."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import date
from typing import Any

from floodmark import (
    BoundedOutOfOrderness,
    Context,
    Contract,
    EventTime,
    Files,
    ListState,
    MapState,
    ProcessFunction,
    Settings,
    Source,
    Stream,
    Workspace,
    operator,
)

SHOWN = 3


class Purchase(Contract):
    """A product that a customer buys."""

    at: EventTime
    customer: str
    product: str


class Together(Contract):
    """A product that a customer has bought on the day on which the customer bought another one."""

    product: str
    other: str
    day: date


class Recommended(Contract):
    """What to show a customer beside a product: the products that most customers of today have bought with it, the most frequent first."""

    customer: str
    others: list[str]


class Baskets(ProcessFunction):
    """The products of a customer, today."""

    day, products = ListState(date), ListState(str)

    def on_element(self, row: Mapping[str, Any], ctx: Context) -> Iterator[dict[str, Any]]:  # noqa: ARG002 - the protocol's
        """Pairs of the new product with each of today."""
        today = row["at"].date()
        if self.day.get() != [today]:
            self.day.update([today])
            self.products.clear()
        for other in self.products.get():
            if row["product"] not in self.products.get():
                yield {"product": row["product"], "other": other, "day": today}
                yield {"product": other, "other": row["product"], "day": today}
        if row["product"] not in self.products.get():
            self.products.append(row["product"])


class Beside(ProcessFunction):
    """How many customers have bought another product with this one, today."""

    day, customers = ListState(date), MapState(str, int)

    def on_element(self, row: Mapping[str, Any], ctx: Context) -> Iterator[dict[str, Any]]:  # noqa: ARG002 - the protocol's
        """Count the pair, and show the customer of the pair what goes with the product."""
        if self.day.get() != [row["day"]]:
            self.day.update([row["day"]])
            self.customers.clear()
        self.customers.put(row["other"], self.customers.get(row["other"], 0) + 1)
        ranked = sorted(self.customers.items(), key=lambda item: (-item[1], item[0]))
        yield {"customer": row["customer"], "others": [other for other, _ in ranked[:SHOWN]]}


purchases = Source(
    "purchases",
    contract=Purchase,
    connector=Files("inbox", format="json", min_age="0 s"),
    watermark=BoundedOutOfOrderness("10 minutes"),
)


@operator
def together(purchases: Stream[Purchase]) -> Stream:
    """Pairs of products in the baskets of a day."""
    return purchases.key_by("customer").process(Baskets(), schema=Together, order="event_time")


@operator(inputs={"pairs": together})
def recommended(pairs: Stream) -> Stream:
    """Recommendations beside a product, whenever somebody buys it with another."""
    return pairs.key_by("product").process(Beside(), schema=Recommended)


def workspace(environment: str = "dev") -> Workspace:
    """One source, two operators."""
    engine = "embedded" if environment == "dev" else "spark"
    return Workspace(sources=[purchases], operators=[together, recommended], settings=Settings(engine=engine))
