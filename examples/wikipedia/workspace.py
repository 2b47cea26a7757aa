"""Edits of an encyclopaedia: how many a wiki gets, and how long people edit at a stretch."""

from __future__ import annotations

import os

from pydantic import AliasPath, BaseModel, Field

from floodmark import (
    BoundedOutOfOrderness,
    Contract,
    EventTime,
    Files,
    Kafka,
    Session,
    Settings,
    Source,
    Stream,
    Tumbling,
    Workspace,
    count,
    operator,
    sum,
)


class Length(BaseModel):
    """Bytes of a page before and after an edit; a new page has none before."""

    old: int | None = None
    new: int | None = None


class Edit(Contract, extra="ignore"):
    """An event of the stream of recent changes; fields that are not named here are left out."""

    at: EventTime = Field(validation_alias=AliasPath("meta", "dt"))
    wiki: str
    type: str
    title: str
    user: str
    bot: bool
    length: Length | None = None


BROKER = os.environ.get("KAFKA", "")
edits = Source(
    "edits",
    contract=Edit,
    connector=Kafka("edits", BROKER) if BROKER else Files("inbox/edits", format="json", min_age="0 s"),
    watermark=BoundedOutOfOrderness("30 seconds"),
)


@operator
def edits_per_wiki(edits: Stream[Edit]) -> Stream:
    """Edits and new pages of a wiki in ten minutes: how many, how many of them by programs, and by how many bytes pages grew."""
    pages = edits.filter("type IN ('edit', 'new')").with_columns(
        grown="coalesce(length.new, 0) - coalesce(length.old, 0)", by_bot="CAST(bot AS INT)"
    )
    windows = pages.key_by("wiki").window(Tumbling("10 minutes"), allowed_lateness="1 hour")
    return windows.aggregate(edits=count(), by_bots=sum("by_bot"), bytes=sum("grown"))


@operator
def stretches(edits: Stream[Edit]) -> Stream:
    """Stretches in which a person edits a wiki: no pause is longer than ten minutes."""
    people = edits.filter("type IN ('edit', 'new') AND NOT bot")
    return people.key_by("wiki", "user").window(Session("10 minutes")).aggregate(edits=count())


def workspace(environment: str = "dev") -> Workspace:
    """One source, two operators."""
    engine = "embedded" if environment == "dev" else "spark"
    return Workspace(sources=[edits], operators=[edits_per_wiki, stretches], settings=Settings(engine=engine))
