"""Expectations as Dagster asset checks: Great Expectations over the rows of each asset partition, on the engine of the workspace."""

# no `from __future__ import annotations` here: Dagster reads the annotations of a step itself

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import dagster as dg

from floodmark.core.errors import FloodmarkError
from floodmark.core.time import Interval, describe
from floodmark.engines.outcome import described
from floodmark.lake.results import gates, verdicts
from floodmark.lake.results.parts import complete
from floodmark.observe.data_docs import rows_of
from floodmark.observe.drift import drifts, longest, split_off
from floodmark.observe.expectations import evaluate, plain
from floodmark.orchestration import partitions
from floodmark.orchestration.assets import landed_last, output_key, source_key
from floodmark.orchestration.jobs import Streams
from floodmark.orchestration.session import StepWorkspace
from floodmark.orchestration.work import failing, interruptible
from floodmark.spec.assets.asset import OperatorAsset, SourceAsset
from floodmark.spec.rows.criterion import Judged
from floodmark.spec.rows.expectation import Expectation
from floodmark.spec.values.schema import ROW
from floodmark.spec.windowing.partitions import Partitions, first
from floodmark.spec.workspace import Workspace

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_APART = 31
"""Most asset partitions of one run that are checked one by one. More partitions are checked together, as one set of rows."""

Rows = Callable[["SparkSession", Interval], "DataFrame"]
"""(session, interval of event time) -> the rows to check, without stamps."""


def _never(_: Interval) -> bool:
    return False


@dataclass(frozen=True, slots=True)
class Divided:
    """Rows of an asset with partitions, for expectations of drift.

    Args:
        rows: (session, interval of event time) -> the rows, with the partition column.
        by: how they are divided.
    """

    rows: Rows
    by: Partitions


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """One asset and its expectations.

    Args:
        key: the asset key.
        rows: (session, interval of event time) -> rows of the asset.
        expectations: expectations of the rows.
        stream: name of the source or operator.
        table: path of the output's table, whose gates blocking expectations close; None for a source.
        divided: rows with their partition, and how they are divided; None for a source and an asset that is not divided.
        complete: (interval of event time) -> whether all of its asset partitions are complete.
    """

    key: dg.AssetKey
    rows: Rows
    expectations: tuple[Expectation, ...]
    stream: str
    table: str | None = None
    divided: Divided | None = None
    complete: Callable[[Interval], bool] = _never


def source_checks(asset: SourceAsset, streams: Streams) -> dg.AssetChecksDefinition | None:
    """Checks of the rows of the newest landing; None if the asset has no expectations."""
    if not asset.expectations:
        return None
    name, location = asset.source.name, streams.location

    def rows(session: "SparkSession", _: Interval) -> "DataFrame":
        low, high = landed_last(location, name)
        log = session.read.format("delta").load(location.lake.log(name))
        return plain(log.filter(f"_kind = {ROW} AND _sequence BETWEEN {low} AND {high}"))

    checked = Checked(key=source_key(asset), rows=rows, expectations=asset.expectations, stream=name)
    return _definition(f"check_{name}", [checked], None, streams, f"source_{name}")


def operator_checks(asset: OperatorAsset, streams: Streams) -> dg.AssetChecksDefinition | None:
    """Checks of an operator's outputs, per asset partition; None if the asset has no expectations."""
    if not asset.expectations:
        return None
    operator, location = asset.operator, streams.location
    checked = [
        Checked(
            key=output_key(operator.output(name)),
            rows=_output_rows(asset, name, location),
            expectations=some,
            stream=operator.name,
            table=location.lake.output(operator.output(name).table),
            divided=Divided(rows_of(asset, name, location.lake), asset.partitions) if asset.partitions else None,
            complete=partial(complete, operator, asset.partitions, location.lake) if asset.partitions else _never,
        )
        for name, some in asset.expectations.items()
    ]
    divided_by = partitions.definition(asset.partitions) if asset.partitions else None
    return _definition(f"check_{operator.name}", checked, divided_by, streams, f"operator_{operator.name}")


def check_jobs(workspace: Workspace) -> dict[str, Any]:
    """Operator -> the asset job that checks its outputs alone, of each operator with expectations; the sensor ``streams`` launches it."""
    return {
        asset.operator.name: dg.define_asset_job(
            f"checks_{asset.operator.name}",
            selection=dg.AssetSelection.checks(*check_keys(asset)),
            description=f"Check what {asset.operator.name} has written. Started by the sensor streams for asset partitions that a stream has completed.",
            tags={"floodmark/operator": asset.operator.name},
        )
        for asset in workspace.operator_assets
        if asset.expectations
    }


def check_keys(asset: OperatorAsset) -> list[dg.AssetCheckKey]:
    """The keys of the checks of an operator's outputs."""
    return [
        dg.AssetCheckKey(output_key(asset.operator.output(name)), expectation.name)
        for name, expectations in asset.expectations.items()
        for expectation in expectations
    ]


def _output_rows(asset: OperatorAsset, name: str, location: StepWorkspace) -> Rows:
    whole = rows_of(asset, name, location.lake)
    return lambda session, interval: plain(whole(session, interval))


def _definition(
    name: str, checked: Sequence[Checked], divided_by: partitions.Definition | None, streams: Streams, pool: str
) -> dg.AssetChecksDefinition:
    specs = {
        (checked_asset.key, expectation.name): dg.AssetCheckSpec(
            expectation.name,
            asset=checked_asset.key,
            description=expectation.describe(),
            blocking=expectation.blocking,
            partitions_def=divided_by,
        )
        for checked_asset in checked
        for expectation in checked_asset.expectations
    }

    @dg.multi_asset_check(specs=list(specs.values()), name=name, pool=pool)
    def check_step(context: dg.AssetCheckExecutionContext) -> Iterator[Any]:
        computing = streams.location.computing
        for checked_asset in checked:
            for key, interval in _pieces(context, checked_asset.key, divided_by):
                context.log.info(f"{checked_asset.key.to_user_string()}, {key or interval}")
                with failing():
                    work = partial(computing.with_session, partial(_evaluated, checked_asset, interval))
                    results = interruptible(work, computing.cancel)
                for expectation, passed, numbers in results:
                    whole = divided_by is not None and interval.everything  # of no asset partition in particular
                    if expectation.blocking and checked_asset.table is not None and (passed or not whole):
                        with failing():
                            numbers |= _gated(checked_asset, expectation, key, interval, passed=passed, numbers=numbers)  # noqa: PLW2901 - and its gate
                    _tell_alerts(streams, checked_asset, expectation, key, interval, passed=passed, numbers=numbers)
                    yield dg.AssetCheckEvaluation(
                        asset_key=checked_asset.key,
                        check_name=expectation.name,
                        passed=passed,
                        metadata=numbers,
                        severity=dg.AssetCheckSeverity.ERROR if expectation.blocking else dg.AssetCheckSeverity.WARN,
                        blocking=expectation.blocking,
                        partition=key,
                    )
        for spec in specs.values():
            yield dg.Output(None, output_name=spec.get_python_identifier())

    return check_step


def _pieces(
    context: dg.AssetCheckExecutionContext, asset: dg.AssetKey, divided_by: partitions.Definition | None
) -> list[tuple[str | None, Interval]]:
    """(partition, event time) to check one by one: the computed partitions of the run; the partition is None if several are checked together.

    A run without partitions checks all of time.
    """
    tags = context.run.tags
    low = tags.get("dagster/asset_partition_range_start", tags.get("dagster/partition"))
    high = tags.get("dagster/asset_partition_range_end", low)
    if divided_by is None or low is None or high is None:
        return [(None, Interval())]
    keys = divided_by.get_partition_keys_in_range(dg.PartitionKeyRange(low, high))
    computed = context.instance.get_materialized_partitions(asset)
    keys = [key for key in keys if key in computed] or list(
        keys
    )  # no partition is reported: the command line may have computed them
    pieces: list[tuple[str | None, Interval]] = [
        (key, partitions.interval_of(divided_by.time_window_for_partition_key(key))) for key in keys
    ]
    if len(pieces) <= _APART:
        return pieces
    return [(None, Interval(start=pieces[0][1].start, end=pieces[-1][1].end))]


def _tell_alerts(
    streams: Streams,
    checked: Checked,
    expectation: Expectation,
    key: str | None,
    interval: Interval,
    *,
    passed: bool,
    numbers: dict[str, Any],
) -> None:
    """Tell the alerts of the stream; a store that is unreachable is no reason for a check to fail."""
    if not streams.any:
        return
    from floodmark.control.health.expecting import tell  # noqa: PLC0415 - definitions load without Spark

    asset = checked.key.to_user_string() if checked.table is None else checked.table.rsplit("/", 1)[-1]
    with suppress(FloodmarkError):
        fleet = streams.fleet(print)
        tell(
            fleet.store,
            fleet.stream(checked.stream),
            expectation,
            asset=asset,
            partition=_name(key, interval),
            interval=interval,
            passed=passed,
            numbers=numbers,
        )


def _name(key: str | None, interval: Interval) -> str:
    return key or ("all" if interval.everything else f"{describe(interval.start)}...{describe(interval.end)}")


def _gated(
    checked: Checked,
    expectation: Expectation,
    key: str | None,
    interval: Interval,
    *,
    passed: bool,
    numbers: dict[str, Any],
) -> dict[str, str]:
    """Close the gate of asset partitions that do not meet a blocking expectation, release it if they do. Returns what was done, as metadata."""
    assert checked.table is not None
    if passed:
        if expectation.strict and checked.complete(interval):
            verdicts.record(checked.table, expectation.name, interval)
        released = gates.passed(checked.table, expectation.name, interval)
        return {"gate": f"released: {', '.join(one.partition for one in released)}"} if released else {}
    name = _name(key, interval)
    table = checked.table.rsplit("/", 1)[-1]
    closing = gates.gate(table, name, interval, expectation.name, described(numbers))
    gates.close(checked.table, closing)
    return {"gate": f"closed. {gates.release_fix(closing)}"}


def _evaluated(checked: Checked, interval: Interval, session: "SparkSession") -> list[Judged]:
    of_drift, others = split_off(checked.expectations)
    results = evaluate(checked.rows(session, interval), others) if others else []
    return results + (_drifted(checked, of_drift, interval, session) if of_drift else [])


def _drifted(
    checked: Checked, expectations: list[Expectation], interval: Interval, session: "SparkSession"
) -> list[Judged]:
    """Expectations of drift, of one asset partition; of several together nothing is judged."""
    assert checked.divided is not None
    by = checked.divided.by
    if interval.everything or by.around(interval.start) != interval:
        return [
            (expectation, True, {"judged": False, "why": "several partitions together"}) for expectation in expectations
        ]
    start = interval.start
    for _ in range(longest(expectations)):
        start = by.around(start - 1).start if start > first(by) else start
    rows = checked.divided.rows(session, Interval(start=start, end=interval.end))
    return drifts(rows, expectations, by.key(interval.start))
