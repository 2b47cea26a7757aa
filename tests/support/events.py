"""Keyed numbers, one every minute: the rows of tests on a real engine."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta

from floodmark import BoundedOutOfOrderness, Contract, EventTime, Operator, Rows, Source
from floodmark.testing.log import Log

START = datetime(2020, 1, 1, tzinfo=UTC)


class Event(Contract):
    """A keyed number."""

    at: EventTime
    key: str
    value: int


def row(minute: int) -> dict[str, object]:
    """The event of a minute."""
    return {"at": (START + timedelta(minutes=minute)).isoformat(), "key": "ab"[minute % 2], "value": minute}


def source(rows: list[dict[str, object]], name: str = "events") -> Source:
    """They arrive; nothing is late that comes at most a minute behind."""
    return Source(name, contract=Event, connector=Rows(rows), watermark=BoundedOutOfOrderness("1 minute"))


def disorder(code: Operator, seed: int, rows: int) -> Log:
    """The ended log of an operator's input: an event of one of four keys each minute, up to 24 minutes late."""
    rng, log = random.Random(seed), Log(code.inputs[0].schema)
    late = [
        {"at": START + timedelta(minutes=n - rng.randrange(25)), "key": rng.choice("abcd"), "value": n}
        for n in range(rows)
    ]
    log.rows(late, "at", 60_000)
    log.end()
    return log
