"""Keyed numbers, one every minute: the rows of tests on a real engine."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from floodmark import BoundedOutOfOrderness, Contract, EventTime, Rows, Source

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
