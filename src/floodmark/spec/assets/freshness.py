"""Freshness: how far the watermark of a stream may be behind the clock."""

from __future__ import annotations

from collections.abc import Iterable

from floodmark.core.errors import DefinitionError
from floodmark.core.time import describe_span, span
from floodmark.spec.rows.source import Source

_SHORTEST = 60_000
"""Shortest freshness, ms: it is looked at every quarter of a minute, and reported once a minute."""


def check_freshness(freshness: str | None, sources: Iterable[Source], where: str) -> int | None:
    """(freshness as declared) -> in ms; None for none.

    Args:
        freshness: a duration.
        sources: whose rows it is about, as far as they are known.
        where: the asset, for errors.

    Raises:
        DefinitionError: DEFINITION-001, no duration; 296, shorter than a minute; 297, a source whose rows have no event time of their own.
    """
    if freshness is None:
        return None
    length = span(freshness, f"{where}, freshness")
    if length < _SHORTEST:
        got, fix = describe_span(length), 'For example freshness="5 minutes".'
        raise DefinitionError(f"{where}, freshness", "1 minute or more", got, fix, code="DEFINITION-296")
    check_event_time(sources, where)
    return length


def check_event_time(sources: Iterable[Source], where: str) -> None:
    """Refuse a freshness of rows whose event time is the time of their landing: such rows are never old.

    Raises:
        DefinitionError: DEFINITION-297.
    """
    for source in sources:
        if source.contract.floodmark_ingestion_time:
            fix = f"Type the field of {source.contract.__name__} that says when a row happened EventTime, or leave freshness out."
            got = f"source '{source.name}', whose rows have event_time=\"ingestion\", the time at which they land"
            expected = "rows with an event time of their own"
            raise DefinitionError(f"{where}, freshness", expected, got, fix, code="DEFINITION-297")
