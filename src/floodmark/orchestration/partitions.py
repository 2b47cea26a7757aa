"""Asset partitions in Dagster's terms, and Dagster's partitions as event time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import assert_never

import dagster as dg

from floodmark.core.time import Interval, to_ms
from floodmark.semantics.time.assignment import first_needed
from floodmark.spec.graph.steps import IntervalJoin, Stateful, WindowAggregate
from floodmark.spec.windowing.partitions import Daily, Hourly, Partitions, first, split
from floodmark.spec.windowing.windows import Session

Definition = dg.DailyPartitionsDefinition | dg.HourlyPartitionsDefinition

_YEAR = 366 * 86_400_000


def definition(partitions: Partitions) -> Definition:
    """(partitions) -> Dagster's definition of the same partitions."""
    match partitions:
        case Daily(start, timezone, end):
            return dg.DailyPartitionsDefinition(start_date=start[:10], end_date=end and end[:10], timezone=timezone)
        case Hourly(start, timezone, end):
            first, last = (text and f"{text[:10]}-{text[11:16] or '00:00'}" for text in (start, end))
            return dg.HourlyPartitionsDefinition(start_date=str(first), end_date=last, timezone=timezone)
        case _:
            assert_never(partitions)


def named(partitions: Partitions, interval: Interval) -> Iterator[tuple[str, Interval]]:
    """(name as Dagster writes it, event time) of each partition that overlaps an interval."""
    known = definition(partitions)
    for _, piece in split(partitions, interval):
        yield known.get_partition_key_for_timestamp(piece.start / 1000), piece


def interval_of(window: dg.TimeWindow) -> Interval:
    """(time window of one partition, or of adjacent ones) -> the interval of event time."""
    return Interval(start=to_ms(window.start), end=to_ms(window.end))


def mapping(stages: Sequence[Stateful], partitions: Partitions) -> dg.PartitionMapping:
    """The mapping from a partition to the upstream partitions it needs: that of the same time, and those that its windows or joins reach into."""
    back = max((_back(stages, partitions, moment) for moment in _starts(partitions)), default=0) if stages else 0
    around = any(
        isinstance(step, IntervalJoin) or (isinstance(step, WindowAggregate) and isinstance(step.window, Session))
        for step in stages
    )
    ahead = back if around else 0
    return dg.TimeWindowPartitionMapping(
        start_offset=-back, end_offset=ahead, allow_nonexistent_upstream_partitions=back > 0
    )


def describe(partitions: Partitions | None) -> str:
    """Partitions in words: ``by day in UTC``; ``all of time`` for None."""
    if partitions is None:
        return "all of time"
    return f"by {'day' if isinstance(partitions, Daily) else 'hour'} in {partitions.timezone}"


def _back(stages: Sequence[Stateful], partitions: Partitions, moment: int) -> int:
    """The number of partitions from the one with the first row needed to the partition that begins at ``moment``, ms."""
    needed, count = moment, 0
    for step in reversed(stages):
        if isinstance(step, IntervalJoin):
            needed -= step.margin
        elif isinstance(step, WindowAggregate):
            needed = first_needed(step.window, needed)
    while partitions.around(moment).start > needed:
        moment, count = partitions.around(moment).start - 1, count + 1
    return count


def _starts(partitions: Partitions) -> Iterator[int]:
    """Starts of partitions over a year, ms: every day, or every seventh hour. A year has both changes of the clock."""
    step = 1 if isinstance(partitions, Daily) else 7
    pieces = split(partitions, Interval(start=first(partitions), end=first(partitions) + _YEAR))
    return (interval.start for _, interval in islice(pieces, 0, None, step))
