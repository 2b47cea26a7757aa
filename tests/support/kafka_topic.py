"""A source that is a topic, and the process that is killed while it lands: servers, topic, lake."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from pydantic import Field

from floodmark import BoundedOutOfOrderness, Contract, EventTime, Kafka, Source
from floodmark.engines.embedded.landing import run as embedded
from floodmark.engines.landing.session import LandingResult
from floodmark.lake.folder.paths import Lake

BASE, BOUND = 1_700_000_000_000, 5_000
_OF_SOURCE = ("idle_timeout", "watermark", "max_quarantine_share")


class Click(Contract):
    """A message, and where it was."""

    at: EventTime
    number: int
    partition: int = Field(alias="_partition")
    offset: int = Field(alias="_offset")
    key: str | None = Field(alias="_key")
    headers: dict[str, str] = Field(alias="_headers")


class Bare(Contract):
    """A message alone."""

    at: EventTime
    number: int


def source(servers: str, topic: str, contract: type[Contract] = Bare, **settings: Any) -> Source:
    """A source of a topic, with tiny units."""
    own = {name: settings.pop(name) for name in _OF_SOURCE if name in settings}
    return Source(
        "clicks",
        contract=contract,
        connector=Kafka(topic, servers, **{"messages_per_unit": 7, **settings}),
        files_per_commit=5,
        **{"watermark": BoundedOutOfOrderness("5 seconds"), **own},
    )


def message(number: int, at: int = BASE) -> bytes:
    """A message's value."""
    return json.dumps({"at": at, "number": number}).encode()


def land(clicks: Source, lake: Path, **how: Any) -> LandingResult:
    """Land a source that has no predicate."""
    return embedded.land(no_sail, clicks, Lake(str(lake)), **how)


def no_sail() -> Any:
    """Fail: no predicate is to be computed."""
    raise AssertionError("Sail was asked for")


if __name__ == "__main__":
    servers, topic, lake = sys.argv[1:]
    land(source(servers, topic, Click), Path(lake))
