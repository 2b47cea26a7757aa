"""Divides the asset partitions of a run by whether their inputs are complete. Only partitions with complete inputs are computed."""

# no `from __future__ import annotations` here: Dagster reads the annotations of what steps call, too

import time
from collections.abc import Mapping
from dataclasses import dataclass, field

import dagster as dg

from floodmark.core.errors import LifecycleError
from floodmark.core.time import Interval, Intervals
from floodmark.lake.folder.paths import Lake
from floodmark.lake.results import gates
from floodmark.lake.results.frozen import frozen
from floodmark.lake.results.own_stream import Shortfall, left_to_stream
from floodmark.lake.results.readiness import readiness, shortfalls
from floodmark.orchestration.config import OperatorConfig
from floodmark.orchestration.partitions import named
from floodmark.spec.assets.asset import OperatorAsset
from floodmark.spec.values.run import RunResult
from floodmark.spec.windowing.partitions import Partitions, first

_POLL_SECONDS = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Division:
    """The partitions of a run, divided by whether their inputs are complete.

    Args:
        complete: stretches of event time to compute, in order; adjacent partitions form one stretch.
        incomplete: partition -> the shortfall of its inputs, as text. These partitions are not computed.
    """

    complete: tuple[Interval, ...]
    incomplete: Mapping[str, str] = field(default_factory=dict)


def await_inputs(
    context: dg.AssetExecutionContext,
    asset: OperatorAsset,
    lake: Lake,
    interval: Interval,
    config: OperatorConfig,
    partitions: Mapping[str, Partitions | None],
) -> Division:
    """Divide the partitions of a run by whether their inputs are complete.

    With ``behind: wait``, wait first until all inputs are complete and the operator's own stream has written the interval, for at most
    ``wait_seconds``.

    Args:
        context: context of the step.
        asset: the asset to compute.
        lake: the lake of the inputs.
        interval: event time of all partitions of the run.
        config: config of the step.
        partitions: input table -> asset partitions of the table; None if it is not divided.

    Raises:
        LifecycleError: LIFECYCLE-006, no partition of the run has complete inputs.
    """
    deadline = time.monotonic() + (config.wait_seconds if config.behind == "wait" else 0)
    since = {table: first(divided_by) for table, divided_by in partitions.items() if divided_by}
    while missing := _missing(asset, lake, interval, config, since):
        if time.monotonic() >= deadline:
            return without_frozen(asset, lake, divide(asset, interval, missing), config)
        context.log.info(f"waiting: {_text(missing)}")
        time.sleep(min(_POLL_SECONDS, max(0.0, deadline - time.monotonic())))
    return without_frozen(asset, lake, Division(complete=(interval,)), config)


def without_frozen(asset: OperatorAsset, lake: Lake, division: Division, config: OperatorConfig) -> Division:
    """A division without the partitions that are frozen and would be computed; those count as incomplete.

    If that leaves none, the stretches stay, and the bounded run is refused with LIFECYCLE-201.

    Args:
        asset: the operator and its partitions.
        lake: the lake of its tables.
        division: the partitions of a run.
        config: config of the step.
    """
    frozen_range = frozen(lake, asset.operator.name)
    if frozen_range is None or asset.partitions is None:
        return division
    complete, incomplete = Intervals(), dict(division.incomplete)
    for stretch in division.complete:
        ready = readiness(
            asset.operator, lake, stretch, late_rows=config.late_rows, force=config.force, frozen_too=True
        )
        for key, part in named(asset.partitions, stretch):
            rewritten = any(map(part.meets, ready.todo.missing))
            if frozen_range.meets(part) and rewritten:
                incomplete[key] = f"its results {frozen_range}"
            else:
                complete.add(part)
    return Division(complete=tuple(complete.ranges()), incomplete=incomplete) if complete.ranges() else division


def _missing(
    asset: OperatorAsset, lake: Lake, interval: Interval, config: OperatorConfig, since: Mapping[str, int]
) -> list[Shortfall]:
    """Shortfalls of the inputs, with ``behind: run`` only their closed gates; and of the operator's own stream if it has yet to write part of the interval."""
    inputs = (
        []
        if config.behind == "run"
        else shortfalls(asset.operator, lake, interval, late_rows=config.late_rows, since=since)
    )
    inputs += gates.shortfalls(asset.operator, lake, interval)  # also with ``behind: run``
    own = left_to_stream(asset.operator, lake)
    return [*inputs, own] if own is not None and own.touches(asset.operator, interval) else inputs


def divide(asset: OperatorAsset, interval: Interval, missing: list[Shortfall]) -> Division:
    """Divide the partitions of an interval by the shortfalls that affect each of them.

    If the operator's own stream has yet to write all partitions, and no input lacks anything, the interval counts as complete: the bounded run
    then refuses it with LIFECYCLE-005.

    Args:
        asset: the operator and its partitions.
        interval: the interval to divide.
        missing: the shortfalls.

    Raises:
        LifecycleError: LIFECYCLE-006, no partition has complete inputs.
    """
    complete, incomplete = list[Interval](), dict[str, str]()
    for key, piece in named(asset.partitions, interval) if asset.partitions else ():
        lacks = [one for one in missing if one.touches(asset.operator, piece)]
        if lacks:
            incomplete[key] = _text(lacks)
        elif complete and complete[-1].end == piece.start:
            complete[-1] = Interval(start=complete[-1].start, end=piece.end)
        else:
            complete.append(piece)
    if not complete and all(one.own for one in missing):
        return Division(complete=(interval,))
    if not complete:
        where = f"asset '{asset.operator.name}', partitions {interval}"
        fix = (
            "Land or compute the inputs up to there first (materialize them), launch it again when they are, or launch it with "
            "the config behind: wait (or run, to compute with what there is). A closed gate is released by a check that passes, or by the job release_gate."
        )
        raise LifecycleError(where, "inputs complete up to its end", _text(missing), fix, code="LIFECYCLE-006")
    return Division(complete=tuple(complete), incomplete=incomplete)


def merge_results(results: list[RunResult], interval: Interval) -> RunResult:
    """(results of a run's stretches, interval of the run) -> one result: counts and seconds summed up, the greatest watermark."""
    if len(results) == 1:
        return results[0]
    rows: dict[str, int] = {}
    for result in results:
        for table, count in result.rows.items():
            rows[table] = rows.get(table, 0) + count
    return RunResult(
        operator=results[0].operator,
        version=results[0].version,
        mode="bounded",
        interval=interval,
        rows=rows,
        retractions=sum(result.retractions for result in results),
        late=sum(result.late for result in results),
        dropped=sum(result.dropped for result in results),
        seconds=sum(result.seconds for result in results),
        watermark=max(result.watermark for result in results),
        skipped=tuple(piece for result in results for piece in result.skipped),
        reasons=tuple(text for result in results for text in result.reasons),
        warnings=tuple(text for result in results for text in result.warnings),
    )


def _text(missing: list[Shortfall]) -> str:
    return "; ".join(one.text for one in missing)
