"""Links between pages: a service is asked about each, and the graph of those that lead somewhere is ranked."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from floodmark import (
    BoundedOutOfOrderness,
    Contract,
    EventTime,
    Files,
    Request,
    Settings,
    Source,
    Stream,
    Workspace,
    operator,
)


class Link(Contract):
    """A link that a crawler has seen."""

    at: EventTime
    page: str
    leads_to: str


class Checked(Contract):
    """A link that leads somewhere."""

    page: str
    target: str


links = Source("links", contract=Link, connector=Files("inbox"), watermark=BoundedOutOfOrderness("1 minute"))

MOVED = {"/old-shop": "/shop"}


async def check(link: Mapping[str, Any], request: Request) -> Checked | None:
    """Ask where a link leads. The service is played here: it answers after 20 ms, fails at times, and knows where pages have moved to."""
    await asyncio.sleep(0.02)
    if int(request.key, 16) % 20 == 0 and request.attempt == 0:
        raise ConnectionError
    target = MOVED.get(link["leads_to"], link["leads_to"])
    return None if target.startswith("/gone") else Checked(page=link["page"], target=target)


@operator
def checked(links: Stream[Link]) -> Stream:
    """Links that lead somewhere, each asked about once."""
    return links.call(check, concurrency=20, timeout="2 seconds", on_error="quarantine")


def workspace(environment: str = "dev") -> Workspace:
    """One source, one operator."""
    engine = "embedded" if environment == "dev" else "spark"
    return Workspace(sources=[links], operators=[checked], settings=Settings(engine=engine))
