"""Asset partitions that are complete: written by a stream whose watermark has passed their end, or computed by bounded runs."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from floodmark.core.errors import LifecycleError
from floodmark.core.time import NEVER, Interval, Intervals
from floodmark.lake.folder.paths import Lake
from floodmark.lake.results.parts import parts, streamed
from floodmark.lake.results.readiness import coverage, shortfalls
from floodmark.lake.table import entries
from floodmark.spec.assets.asset import OperatorAsset
from floodmark.spec.windowing.partitions import Partitions, end, first, split


@dataclass(frozen=True, slots=True, kw_only=True)
class Complete:
    """A complete asset partition.

    Args:
        key: its name, which sorts like time.
        interval: its event time.
        by: whether a stream has passed its end, or bounded runs have computed all of it.
    """

    key: str
    interval: Interval
    by: Literal["stream", "bounded"]


def partitions_of(asset: OperatorAsset) -> Partitions:
    """The asset partitions of an operator.

    Raises:
        LifecycleError: LIFECYCLE-189, its asset has none.
    """
    if asset.partitions is not None:
        return asset.partitions
    name = asset.operator.name
    fix = f"Give it some: operator_asset({name}, partitions=Daily(...)); without them, floodmark run {name} --from ... --to ..."
    raise LifecycleError(f"operator '{name}'", "asset partitions", "none", fix, code="LIFECYCLE-189")


def passed(partitions: Partitions, since: int, progress: int) -> Iterator[tuple[str, Interval]]:
    """(name, interval) of each asset partition from ``since`` on that a stream's progress has passed, in order.

    Args:
        partitions: how event time is cut.
        since: first instant of a partition, ms; ``NEVER``: from the first partition on.
        progress: ms; a partition is passed if no row of it can be on time any more.
    """
    start, limit = max(first(partitions), since), min(progress + 1, ending(partitions))
    if start < limit:
        yield from (part for part in split(partitions, Interval(start=start, end=limit)) if part[1].end <= limit)


def complete(asset: OperatorAsset, lake: Lake, since: int = NEVER) -> Iterator[Complete]:
    """The complete asset partitions of an operator, in order.

    A partition that bounded runs have computed counts if the inputs were complete up to its end, and while neither they nor the operator's code
    have changed since. One that a stream has passed counts from then on, though rows within the allowed lateness may still revise it.

    Args:
        asset: the operator with its asset partitions.
        lake: the lake of its tables.
        since: first instant of a partition, ms; only those from it on.

    Raises:
        LifecycleError: LIFECYCLE-189, the asset has no partitions.
        ExecutionError: EXECUTION-002, the output has a table, and an input has none.
    """
    partitions, operator = partitions_of(asset), asset.operator
    progress = streamed(operator, lake)
    start = max(first(partitions), since)
    asked = Interval(start=start, end=max(ending(partitions), start + 1))
    computed = Intervals()
    if entries.is_table(lake.output(operator.outputs[0].table)):
        for segment in coverage(operator, lake, asked):
            if not segment.stale:
                computed.add(segment.interval)
    missing = shortfalls(operator, lake, asked)
    for key, part in split(partitions, asked):
        if part.start < asked.start or part.end > asked.end:
            continue
        if part.end <= progress + 1:
            yield Complete(key=key, interval=part, by="stream")
        elif computed.contains(part) and not any(one.touches(operator, part) for one in missing):
            yield Complete(key=key, interval=part, by="bounded")


def computable(asset: OperatorAsset, lake: Lake, since: Mapping[str, int]) -> Iterator[Interval]:
    """The event time of the asset partitions that are over, that nothing has computed and that a bounded run can: inputs complete and their gates open, not frozen, not left to the stream.

    One that was computed and is stale since does not count: whether history is computed anew is for a person to say.

    Args:
        asset: the operator with its asset partitions.
        lake: the lake of its tables. None counts while an input has no table.
        since: input table -> event time, ms, before which the table is never computed.

    Raises:
        LifecycleError: LIFECYCLE-189, the asset has no partitions.
    """
    partitions, operator = partitions_of(asset), asset.operator
    over = Interval(start=first(partitions), end=max(ending(partitions), first(partitions) + 1))
    if not all(entries.is_table(lake.input(operator_input)) for operator_input in operator.inputs):
        return
    for part in parts(operator, partitions, lake, over, since=since):
        whole = partitions.around(part.interval.start).end == part.interval.end
        if whole and part.computable:
            yield part.interval


def ending(partitions: Partitions) -> int:
    """The first instant after the last partition; now if the partitions have no end."""
    return end(partitions) if partitions.end is not None else int(time.time() * 1000)
