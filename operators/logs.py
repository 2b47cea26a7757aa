"""Lines of a service's log."""

from __future__ import annotations

from floodmark import Contract, EventTime, Stream, Tumbling, count, operator


class LogLine(Contract):
    """One line."""

    at: EventTime
    level: str
    text: str | None = None


@operator
def hourly_levels(lines: Stream[LogLine]) -> Stream:
    """Lines per level and hour, whatever file they came in."""
    return (
        lines.key_by("level")
        .window(Tumbling("1 hour"), allowed_lateness="10 minutes", late="side_output")
        .aggregate(lines=count())
    )
