"""Expectations as Dagster asset checks: Great Expectations over the rows of each asset partition, on the engine of the workspace."""

# no `from __future__ import annotations` here: Dagster reads the annotations of a step itself

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import dagster as dg
from dagster._core.definitions.asset_checks.asset_check_evaluation import AssetCheckEvaluationTargetMaterializationData
from dagster._core.storage.asset_check_execution_record import AssetCheckExecutionRecordStatus

from floodmark.core.errors import FloodmarkError
from floodmark.core.time import Interval
from floodmark.observe.checking import Checked, outputs_of
from floodmark.observe.expectations import plain
from floodmark.orchestration import partitions
from floodmark.orchestration.assets import landed_last, output_key, source_key
from floodmark.orchestration.jobs import Streams
from floodmark.orchestration.work import failing, interruptible
from floodmark.spec.assets.asset import OperatorAsset, SourceAsset
from floodmark.spec.rows.criterion import Judged
from floodmark.spec.values.schema import ROW
from floodmark.spec.workspace import Workspace

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_APART = 31
"""Most asset partitions of one run that are checked one by one. More partitions are checked together, as one set of rows."""


def source_checks(asset: SourceAsset, streams: Streams) -> dg.AssetChecksDefinition | None:
    """Checks of the rows of the newest landing; None if the asset has no expectations."""
    if not asset.expectations:
        return None
    name, location = asset.source.name, streams.location

    def rows(session: "SparkSession", _: Interval) -> "DataFrame":
        low, high = landed_last(location, name)
        log = session.read.format("delta").load(location.lake.log(name))
        return plain(log.filter(f"_kind = {ROW} AND _sequence BETWEEN {low} AND {high}"))

    checked = Checked(rows=rows, expectations=asset.expectations, stream=name)
    return _definition(f"check_{name}", {source_key(asset): checked}, None, streams, f"source_{name}")


def operator_checks(asset: OperatorAsset, streams: Streams) -> dg.AssetChecksDefinition | None:
    """Checks of an operator's outputs, per asset partition; None if the asset has no expectations."""
    if not asset.expectations:
        return None
    operator, location = asset.operator, streams.location
    outputs = outputs_of(asset, location.lake)
    checked = {output_key(operator.output(name)): rows for name, rows in outputs.items()}
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


def _definition(
    name: str,
    checked: Mapping[dg.AssetKey, Checked],
    divided_by: partitions.Definition | None,
    streams: Streams,
    pool: str,
) -> dg.AssetChecksDefinition:
    specs = {
        (asset_key, expectation.name): dg.AssetCheckSpec(
            expectation.name,
            asset=asset_key,
            description=expectation.describe(),
            blocking=expectation.blocking,
            partitions_def=divided_by,
        )
        for asset_key, checked_asset in checked.items()
        for expectation in checked_asset.expectations
    }

    @dg.multi_asset_check(specs=list(specs.values()), name=name, pool=pool)
    def check_step(context: dg.AssetCheckExecutionContext) -> Iterator[Any]:
        computing = streams.location.computing
        for asset_key, checked_asset in checked.items():
            failed = dict[str, dict[str, dict[str, Any]]]()
            pieces = _pieces(context, asset_key, divided_by)
            for key, interval in pieces:
                context.log.info(f"{asset_key.to_user_string()}, {key or interval}")
                target = _target(context.instance, asset_key, key)
                with failing():
                    work = partial(computing.with_session, partial(checked_asset.judge, interval))
                    results = interruptible(work, computing.cancel)
                for judged in results:
                    expectation, passed, numbers = judged
                    with failing():
                        done = checked_asset.gate(judged, key, interval)
                    _tell_alerts(streams, checked_asset, judged, key, interval)
                    about = numbers | ({"gate": done} if done else {})
                    if key is not None and not passed:
                        failed.setdefault(expectation.name, {})[key] = about
                    yield dg.AssetCheckEvaluation(
                        asset_key=asset_key,
                        check_name=expectation.name,
                        passed=passed,
                        metadata=about,
                        severity=dg.AssetCheckSeverity.ERROR if expectation.blocking else dg.AssetCheckSeverity.WARN,
                        blocking=expectation.blocking,
                        partition=key,
                        target_materialization_data=target,
                    )
            if pieces[0][0] is not None and _is_range(context.run):
                yield from _summed_up(context.instance, asset_key, checked_asset, failed)
        for spec in specs.values():
            yield dg.Output(None, output_name=spec.get_python_identifier())

    return check_step


def _is_range(run: dg.DagsterRun) -> bool:
    """True if a run is of several asset partitions."""
    low, high = _asked(run)
    return low != high


def _asked(run: dg.DagsterRun) -> tuple[str | None, str | None]:
    """(first, last) of the partitions of a run; None if it has none."""
    low = run.tags.get("dagster/asset_partition_range_start", run.tags.get("dagster/partition"))
    return low, run.tags.get("dagster/asset_partition_range_end", low)


def _summed_up(
    instance: dg.DagsterInstance,
    asset: dg.AssetKey,
    checked: Checked,
    failed: Mapping[str, Mapping[str, dict[str, Any]]],
) -> Iterator[dg.AssetCheckEvaluation]:
    """The result of a run over several asset partitions, which were checked one by one.

    Dagster shows beside an asset the newest record of each check: without this result that of the last partition that was asked for, which may be passed while
    another one has failed, or may not have been computed.

    Args:
        instance: where the materializations are.
        asset: that was checked.
        checked: its expectations.
        failed: name of an expectation -> partition that does not meet it -> metadata of its result. Those of the last one are shown here too.
    """
    for expectation in checked.expectations:
        partitions_failed = failed.get(expectation.name, {})
        last = next(reversed(list(partitions_failed)), None)
        about: dict[str, Any] = {} if last is None else partitions_failed[last] | {"numbers of": last}
        yield dg.AssetCheckEvaluation(
            asset_key=asset,
            check_name=expectation.name,
            passed=last is None,
            metadata=about | {"not met in": ", ".join(partitions_failed) or "none"},
            severity=dg.AssetCheckSeverity.ERROR if expectation.blocking else dg.AssetCheckSeverity.WARN,
            blocking=expectation.blocking,
            target_materialization_data=_target(instance, asset, None),
        )


def _pieces(
    context: dg.AssetCheckExecutionContext, asset: dg.AssetKey, divided_by: partitions.Definition | None
) -> list[tuple[str | None, Interval]]:
    """(partition, event time) to check one by one: the computed partitions of the run; the partition is None if several are checked together.

    A run without partitions checks all of time.
    """
    low, high = _asked(context.run)
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


def _target(
    instance: dg.DagsterInstance, asset: dg.AssetKey, partition: str | None
) -> AssetCheckEvaluationTargetMaterializationData | None:
    """The newest materialization of what is checked, which Dagster shows the result beside; None if nothing is materialized.

    Without it Dagster compares times, and an SQLite keeps those of checks in whole seconds: a result of the second of its materialization counts as older, and a check that has failed as not evaluated.
    """
    of = asset if partition is None else dg.AssetRecordsFilter(asset_key=asset, asset_partitions=[partition])
    newest = next(iter(instance.fetch_materializations(of, limit=1).records), None)
    return None if newest is None else _beside(newest)


def _beside(materialization: dg.EventLogRecord) -> AssetCheckEvaluationTargetMaterializationData:
    return AssetCheckEvaluationTargetMaterializationData(
        storage_id=materialization.storage_id, run_id=materialization.run_id, timestamp=materialization.timestamp
    )


# ---- checks that sensors report, and runs evaluate too


@dataclass(frozen=True, slots=True)
class Result:
    """The newest result of a check without partitions, as Dagster has it.

    Args:
        passed: whether the check is passed; None if a run is yet to evaluate it, or has ended before it did.
        shown: whether Dagster shows it. Not one that a run has not come to, and not one that is older than the newest materialization: Dagster shows these
            checks as not evaluated, or as not executed.
        of_run: whether a run has evaluated it, and no sensor.
        target: the newest materialization of the asset, beside which a result is shown; None without one.
    """

    passed: bool | None
    shown: bool
    of_run: bool
    target: AssetCheckEvaluationTargetMaterializationData | None


def newest_results(instance: dg.DagsterInstance, keys: Iterable[dg.AssetCheckKey]) -> dict[dg.AssetCheckKey, Result]:
    """Check -> its newest result, of those that have any.

    Dagster: ``AssetCheckExecutionRecord.targets_latest_materialization``.

    Args:
        instance: where the results are.
        keys: checks without partitions.
    """
    wanted = list(keys)
    records = instance.event_log_storage.get_latest_asset_check_execution_by_key(wanted)
    assets = instance.get_asset_records(list({key.asset_key for key in records})) if records else []
    materialized = {one.asset_entry.asset_key: one.asset_entry.last_materialization_record for one in assets}
    results = dict[dg.AssetCheckKey, Result]()
    for key, record in records.items():
        newest = materialized.get(key.asset_key)
        target = None if newest is None else _beside(newest)
        if record.status is AssetCheckExecutionRecordStatus.PLANNED:
            run = instance.get_run_by_id(record.run_id)
            at_work = run is not None and not run.is_finished
            results[key] = Result(passed=None, shown=at_work, of_run=True, target=target)
            continue
        of = None if record.evaluation is None else record.evaluation.target_materialization_data
        if target is None or target.run_id == record.run_id:
            shown = True
        else:
            shown = target.timestamp < record.create_timestamp if of is None else of.storage_id == target.storage_id
        passed = record.status is AssetCheckExecutionRecordStatus.SUCCEEDED
        results[key] = Result(passed=passed, shown=shown, of_run=bool(record.run_id), target=target)
    return results


def _tell_alerts(streams: Streams, checked: Checked, judged: Judged, key: str | None, interval: Interval) -> None:
    """Tell the alerts of the stream; a store that is unreachable is no reason for a check to fail."""
    if not streams.any:
        return
    from floodmark.control.health.expecting import tell  # noqa: PLC0415 - definitions load without Spark

    with suppress(FloodmarkError):
        fleet = streams.fleet(print)
        tell(fleet.store, fleet.stream(checked.stream), checked, judged, key, interval)
