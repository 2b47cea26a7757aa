"""Schedules of upgrades and savepoints, and the sensor that reports the progress of streams and updates the list of savepoints."""

# no `from __future__ import annotations` here: Dagster reads the annotations of a sensor itself

import json
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any

import dagster as dg

from floodmark.core.time import END, NEVER, describe, span
from floodmark.lake.restore import savepoints
from floodmark.lake.stream.delivered import delivered
from floodmark.lake.stream.timeline import Timeline
from floodmark.lake.table import history
from floodmark.lake.table.commits import Landing, MicroBatch, Restored
from floodmark.observe.partitions import passed
from floodmark.orchestration import partitions
from floodmark.orchestration.advice import repository_of_sensor
from floodmark.orchestration.assets import delivery_key, output_key, source_key
from floodmark.orchestration.checks import check_jobs
from floodmark.orchestration.experiments import experiment_definitions, experiments_listed
from floodmark.orchestration.health import UNREADABLE, reports
from floodmark.orchestration.jobs import Streams, jobs, operator_names
from floodmark.orchestration.listing import KEY, materializations, update_list
from floodmark.orchestration.listing import reports as savepoint_reports
from floodmark.orchestration.metadata import reported_seconds
from floodmark.orchestration.session import StepWorkspace
from floodmark.orchestration.versions import planning
from floodmark.spec.assets.asset import OperatorAsset, Savepoints, SourceAsset, Upgrades
from floodmark.spec.assets.delivery import Route
from floodmark.spec.workspace import Workspace

if TYPE_CHECKING:
    from floodmark.control.streams.fleet import Fleet

_UNCHECKED, _HEALTH = " unchecked", " health"
"""Keys of the sensor's cursor under which operators with asset partitions to check are, and what was reported of each stream; no table has such names."""
_SAVEPOINTS = " savepoints"
"""Key of the sensor's cursor under which the newest event of a savepoint is that was looked at."""
_EXPERIMENTS = " experiments"
"""Key of the sensor's cursor under which the lists of experiments and arms are, as they were compared last."""
_LAKE = " lake"
"""Key of the sensor's cursor under which the root of the lake is that it looked at."""
_NEWEST = 10
"""Materializations that are read of an asset without partitions."""
_GROUP = "streams"
"""Of the asset of savepoints."""
_PACE = " pace"
"""Key of the sensor's cursor under which the most materializations of operators of a look are; and, of a look that had so many, when it was and the asset of the last one."""
_LEAST, _FIRST, _MOST = 10, 50, 200
"""Of these materializations: the least and the most that a look may have, and what the first one may."""
_WRITING_SECONDS = 5
"""How long Dagster's daemon may write down what a look has found; no other sensor has its turn meanwhile."""
_STEPS_SECONDS = 3600
"""Time for an upgrade in place, without its patience and soak. An older run has no process any more; Dagster's monitoring ends such a run."""
_Made = tuple[OperatorAsset, Iterator[dg.AssetMaterialization]]
_FINISHED = {dg.DagsterRunStatus.SUCCESS, dg.DagsterRunStatus.FAILURE, dg.DagsterRunStatus.CANCELED}


def stream_definitions(workspace: Workspace, streams: Streams) -> dg.Definitions:
    """The jobs of streams, the list of savepoints, experiments, the sensor ``streams``, and schedules; empty for a workspace without operators."""
    if not workspace.operators:
        return dg.Definitions()
    names = operator_names(workspace)
    built = jobs(streams, names)
    plans = planning(streams, names)
    built[plans.name] = plans
    what = (
        "Savepoints of streams: a materialization for each savepoint, and for each deletion. Never materialized while there is no savepoint. "
        "The job rollback restores a savepoint, and lists the savepoints as its partitions."
    )
    # without partitions: Dagster shows an asset that has none of its partitions missing as materialized, even if there are no partitions
    spec = dg.AssetSpec(KEY, group_name=_GROUP, kinds={"deltalake"}, description=what)
    schedules = [
        _schedule(asset.operator.name, asset.upgrades, built["upgrade"])
        for asset in workspace.operator_assets
        if asset.upgrades is not None
    ]
    schedules += [
        _saving(asset.operator.name, asset.savepoints, streams, built["savepoint"])
        for asset in workspace.operator_assets
        if asset.savepoints is not None
    ]
    checking = check_jobs(workspace)
    sensors = [_sensor(workspace, streams, checking)]
    every_job = [*built.values(), *checking.values()]
    own = dg.Definitions(assets=[spec], jobs=every_job, schedules=schedules, sensors=sensors)
    return dg.Definitions.merge(own, experiment_definitions(workspace, streams, names))


def _schedule(name: str, wanted: Upgrades, job: dg.JobDefinition) -> dg.ScheduleDefinition:
    config = {
        "operator": name,
        "forward_only": wanted.forward_only,
        "rebuild": wanted.rebuild,
        "note": f"by the schedule upgrade_{name}",
        "patience_seconds": span(wanted.patience, name) / 1000,
        "soak_seconds": span(wanted.soak, name) / 1000,
    }
    longest = int(span(wanted.patience, name) + span(wanted.soak, name)) // 1000 + _STEPS_SECONDS
    tags = {"floodmark/operator": name} | ({} if wanted.rebuild else {"dagster/max_runtime": str(longest)})
    unfinished = dg.RunsFilter(
        job_name=job.name,
        statuses=[one for one in dg.DagsterRunStatus if one not in _FINISHED],
        tags={"dagster/schedule_name": f"upgrade_{name}"},
    )

    def tick(context: dg.ScheduleEvaluationContext) -> dg.RunRequest | dg.SkipReason:
        if before := context.instance.get_run_records(unfinished, limit=1):
            run = before[0].dagster_run.run_id
            ended = "if its process is gone, as after a restart of the machine, terminate it with 'force'"
            return dg.SkipReason(f"the run before is still at work: {run}; {ended}")
        return dg.RunRequest(run_config={"ops": {"upgrade_stream": {"config": config}}}, tags=tags)

    return dg.ScheduleDefinition(
        name=f"upgrade_{name}",
        job=job,
        cron_schedule=wanted.at,
        execution_timezone=wanted.timezone,
        execution_fn=tick,
        description=f"Upgrade the stream of {name} to the current code; roll back to its savepoint if the upgrade fails.",
    )


def _saving(name: str, wanted: Savepoints, streams: Streams, job: dg.JobDefinition) -> dg.ScheduleDefinition:
    config = {"operator": name, "note": f"by the schedule savepoints_{name}", "keep": wanted.keep}

    def tick(_context: dg.ScheduleEvaluationContext) -> dg.RunRequest | dg.SkipReason:
        if Timeline.current(streams.location.lake, name).checkpoint.last_committed() < 0:
            return dg.SkipReason("its stream has not committed a micro-batch yet")
        tags = {"floodmark/operator": name, "dagster/max_runtime": str(_STEPS_SECONDS)}
        return dg.RunRequest(run_config={"ops": {"save_stream": {"config": config}}}, tags=tags)

    return dg.ScheduleDefinition(
        name=f"savepoints_{name}",
        job=job,
        cron_schedule=wanted.at,
        execution_timezone=wanted.timezone,
        execution_fn=tick,
        description=f"Create a savepoint of the stream of {name}; the newest {wanted.keep} of this schedule are retained.",
    )


def _sensor(workspace: Workspace, streams: Streams, checking: dict[str, Any]) -> dg.SensorDefinition:
    """The sensor ``streams``: reports the health of streams and the asset partitions that they have completed, has these checked, and updates the list of savepoints.

    Args:
        workspace: of the operators.
        streams: what acts on them.
        checking: operator -> the job that checks its outputs.
    """

    @dg.sensor(
        name="streams",
        minimum_interval_seconds=15,
        default_status=dg.DefaultSensorStatus.RUNNING,
        jobs=list(checking.values()) or None,
        description="Reports the health of streams, and their progress as materializations, has them checked, and updates the list of savepoints.",
    )
    def look(context: dg.SensorEvaluationContext) -> dg.SensorResult | dg.SkipReason:
        if not streams.any:
            return dg.SkipReason("no stream was started here: launch the job start, or floodmark start --all")
        known, fleet = json.loads(context.cursor or "{}"), streams.fleet(context.log.info)
        events, requests = list[Any](), list[Any]()
        failed: Exception | None = None
        try:
            events, requests, known = _seen(context.instance, workspace, streams.location, fleet, known)
        except UNREADABLE as error:  # a table or the lake: just then streams may be at fault
            failed = error
            context.log.warning(f"what the lake has cannot be reported: {error}")
        health = known.setdefault(_HEALTH, {})
        of_health = list(reports(workspace, streams, health, context.instance, repository_of_sensor(context)))
        if failed is not None and not of_health:
            raise failed
        events += of_health
        runs = _checks(context.instance, known.setdefault(_UNCHECKED, {}), checking)
        return dg.SensorResult(
            cursor=json.dumps(known), dynamic_partitions_requests=requests, asset_events=events, run_requests=runs
        )

    return look


def _seen(
    instance: dg.DagsterInstance,
    workspace: Workspace,
    location: StepWorkspace,
    fleet: "Fleet",
    before: Mapping[str, Any],
) -> tuple[list[Any], list[Any], dict[str, Any]]:
    """(materializations of what streams and savepoints have come to, requests that update lists, the cursor then).

    Args:
        instance: where they are reported.
        workspace: of the streams.
        location: whose lake is looked at.
        fleet: the supervised streams.
        before: the cursor before. Is not changed.
    """
    lake, pause = location.lake, reported_seconds(workspace)
    known = json.loads(json.dumps(before))
    if known.setdefault(_LAKE, lake.root) != lake.root:  # what was seen of its tables is nothing about this one's
        known = {name: known[name] for name in (_HEALTH, _SAVEPOINTS, _EXPERIMENTS) if name in known}
        known[_LAKE] = lake.root
    unchecked, there = known.setdefault(_UNCHECKED, {}), savepoints.names(lake)
    update_list(instance, lake, there)
    events, requests = savepoint_reports(instance, lake, there, known.setdefault(_SAVEPOINTS, {}))
    operators = [one.name for one in workspace.operators]
    requests += experiments_listed(instance, lake, operators, known.setdefault(_EXPERIMENTS, {}), time.time())
    deployed = fleet.deployments(one.name for one in workspace.streams)
    for landed in workspace.source_assets:
        if landed.source.name in deployed:
            events += unreported(instance, _landed(landed, location, known, pause))
    for route in workspace.deliveries:
        if route.name in deployed:
            events += unreported(instance, _delivered(route, location, known, pause))
    now, most = time.time(), _most(instance, known.get(_PACE, {}))
    made = [
        (asset, _progress(asset, location, known, pause))
        for asset in workspace.operator_assets
        if asset.operator.name in deployed
    ]
    progress = list(islice(_in_turn(_behind(made, known.get(_PACE, {}).get("operator"))), most))
    for asset, event in progress:
        _note(unchecked, asset, event)
    known[_PACE] = {"most": most}
    if len(progress) == most:
        asset, event = progress[-1]
        known[_PACE] |= {"at": now, "last": event.asset_key.path, "operator": asset.operator.name}
    events += unreported(instance, (event for _, event in progress))
    return events, requests, known


def unreported(
    instance: dg.DagsterInstance, events: Iterable[dg.AssetMaterialization]
) -> Iterator[dg.AssetMaterialization]:
    """The materializations that Dagster does not have yet. A daemon that is killed behind events that it has written leaves the cursor of the look before.

    Dagster has one of an asset partition if a stream was ever reported to have completed it: that happens once. It has one of an asset
    without partitions if that with the same watermark is among the newest ``_NEWEST`` of the asset.

    Args:
        instance: where they are.
        events: what a look has found; they stay in their order.
    """
    made = list(events)
    parts: dict[dg.AssetKey, list[str]] = {event.asset_key: [] for event in made}
    for event in made:
        if event.partition is not None:
            parts[event.asset_key].append(event.partition)
    written = {key: set(_written(instance, key, named)) for key, named in parts.items()}
    yield from (event for event in made if _identity(event) not in written[event.asset_key])


def _written(instance: dg.DagsterInstance, key: dg.AssetKey, parts: Sequence[str]) -> Iterator[tuple[str, str]]:
    """What tells apart the materializations by streams that Dagster has: of some partitions, or the newest ones of an asset without partitions."""
    wanted = dg.AssetRecordsFilter(asset_key=key, asset_partitions=parts or None)
    for _, event in materializations(instance, wanted, most=None if parts else _NEWEST):
        if "by" in event.metadata and event.metadata["by"].value == "the stream":
            yield _identity(event)


def _identity(event: dg.AssetMaterialization) -> tuple[str, str]:
    return event.partition or "", "" if event.partition else str(event.metadata["watermark"].value)


def _landed(
    asset: SourceAsset, location: StepWorkspace, known: dict[str, Any], pause: float
) -> Iterator[dg.AssetMaterialization]:
    """A materialization of what the stream of a source has landed, if there is any since the last one, ``pause`` s ago. Updates ``known`` as ``_progress`` does."""
    name = asset.source.name
    _, last = next(history.standing_of(location.lake.log(name), Landing, _MOST), (None, None))
    seen = known.get(name, {"progress": NEVER, "at": 0.0})
    if last is None or last.progress <= seen["progress"] or abs(time.time() - seen["at"]) <= pause:
        return
    known[name] = {"progress": last.progress, "at": time.time()}
    about: dict[str, Any] = {
        "by": "the stream",
        "commits": last.ordinal + 1,
        "dagster/row_count": last.next_sequence - last.ordinal - 1,  # each commit ends with a marker
        "quarantined": max(0, last.set_aside),
        "watermark": describe(last.progress),
    }
    yield dg.AssetMaterialization(asset_key=source_key(asset), metadata=about)


def _delivered(
    route: Route, location: StepWorkspace, known: dict[str, Any], pause: float
) -> Iterator[dg.AssetMaterialization]:
    """A materialization of what a stream has delivered, if there is any since the last one, ``pause`` s ago. Updates ``known``: delivery -> version reported, and when."""
    position = delivered(location.lake, route.name)
    seen = known.get(route.name, {"version": -1, "at": 0.0})
    if position is None or position.version == seen["version"] or abs(time.time() - seen["at"]) <= pause:
        return
    known[route.name] = {"version": position.version, "at": time.time()}
    about: dict[str, Any] = {
        "by": "the stream",
        "deliveries": position.number + 1,
        "version": position.version,
        "watermark": describe(position.progress),
    }
    yield dg.AssetMaterialization(asset_key=delivery_key(route), metadata=about)


def _most(instance: dg.DagsterInstance, before: dict[str, Any]) -> int:
    """The most materializations that a look may have: half as many as the last one where the daemon has written these too slowly, twice as many where it was quick.

    Args:
        instance: where they are.
        before: what the cursor has of the last look; empty before the first.
    """
    most = int(before.get("most", _FIRST))
    if "last" not in before:
        return most
    written = instance.get_latest_materialization_event(dg.AssetKey(before["last"]))
    seconds = 0.0 if written is None else written.timestamp - before["at"]
    if seconds > _WRITING_SECONDS:
        return max(_LEAST, most // 2)
    return min(_MOST, most * 2) if seconds < _WRITING_SECONDS / 2 else most


def _behind(made: Sequence[_Made], last: str | None) -> Sequence[_Made]:
    """Operators in the order in which they report: those behind the last one of a look that could not report all."""
    begin = next((number for number, (asset, _) in enumerate(made, 1) if asset.operator.name == last), 0)
    return [*made[begin:], *made[:begin]]


def _in_turn(
    made: Sequence[_Made],
) -> Iterator[tuple[OperatorAsset, dg.AssetMaterialization]]:
    """The materializations of operators, one of each in turn, so that none with many of them holds up the others."""
    while made:
        left = list[_Made]()
        for asset, events in made:
            if (event := next(events, None)) is not None:
                yield asset, event
                left.append((asset, events))
        made = left


def _note(unchecked: dict[str, list[str]], asset: OperatorAsset, event: dg.AssetMaterialization) -> None:
    """Add an asset partition to those that are to be checked: operator -> first and last key; empty keys for an asset that is not divided."""
    if event.asset_key in {output_key(asset.operator.output(name)) for name in asset.expectations}:
        every = sorted([*unchecked.get(asset.operator.name, []), event.partition or ""])
        unchecked[asset.operator.name] = [every[0], every[-1]]


def _checks(
    instance: dg.DagsterInstance, unchecked: dict[str, list[str]], checking: dict[str, Any]
) -> list[dg.RunRequest]:
    """The runs that check what is noted, one per operator; what they check is noted no longer."""
    runs = []
    for name in [name for name in checking if name in unchecked]:
        run = _checked(instance, name, checking[name].name, unchecked[name])
        if run is not None:
            del unchecked[name]
            runs.append(run)
    return runs


def _checked(instance: dg.DagsterInstance, operator: str, job: str, span_of_keys: list[str]) -> dg.RunRequest | None:
    """The run that checks asset partitions; None while one is at work: those that are completed meanwhile are checked together after it."""
    at_work = dg.RunsFilter(job_name=job, statuses=[one for one in dg.DagsterRunStatus if one not in _FINISHED])
    if instance.get_run_records(at_work, limit=1):
        return None
    low, high = span_of_keys
    tags = {"floodmark/operator": operator}
    if low:
        tags |= {"dagster/asset_partition_range_start": low, "dagster/asset_partition_range_end": high}
    return dg.RunRequest(job_name=job, tags=tags)


def _progress(
    asset: OperatorAsset, location: StepWorkspace, known: dict[str, Any], pause: float
) -> Iterator[dg.AssetMaterialization]:
    """Materializations of what a stream has completed since the last tick; without partitions, since one that is ``pause`` s old.

    Updates ``known``: table -> progress reported, when, and the stream's timeline then: one that is rolled back completes partitions again, which are
    checked again.
    """
    for output in asset.operator.outputs:
        newest = next(history.standing(location.lake.output(output.table), _MOST), None)
        record = None if newest is None else newest.record
        if not isinstance(record, MicroBatch) or record.progress <= NEVER:
            continue
        key = output_key(output)
        about = _about(record)
        seen = known.get(output.table, {"progress": NEVER, "at": 0.0})
        if seen.get("timeline") != record.timeline:
            if "timeline" in seen:
                began = _began(location.lake.output(output.table), seen["timeline"])
                seen = seen | {"progress": min(seen["progress"], began)}
            known[output.table] = seen = seen | {"timeline": record.timeline}
        if asset.partitions is None:
            if record.progress > seen["progress"] and abs(time.time() - seen["at"]) > pause:
                known[output.table] = seen | {"progress": record.progress, "at": time.time()}
                yield dg.AssetMaterialization(asset_key=key, metadata=about)
            continue
        for name, end in _complete(asset, seen["progress"], record.progress):
            known[output.table] = seen | {"progress": end - 1, "at": time.time()}
            yield dg.AssetMaterialization(asset_key=key, partition=name, metadata=about)


def _began(path: str, before: int) -> int:
    """The least progress, ms, at which the timelines of a table's stream behind another one have begun by rollbacks; ``NEVER`` if the stream began anew.

    ``END`` if there were only rebuilds and promotions, which bring along what they have completed.
    """
    switches = [one for _, one in history.standing_of(path, Restored) if one.timeline > before]
    return min((one.progress for one in switches if one.mode == "rollback"), default=END if switches else NEVER)


def _complete(asset: OperatorAsset, since: int, progress: int) -> Iterator[tuple[str, int]]:
    """(key, end in ms) of each asset partition that ends after ``since`` and not after ``progress``, both ms; at most ``_MOST``."""
    assert asset.partitions is not None
    definition = partitions.definition(asset.partitions)
    for _, part in islice(passed(asset.partitions, since + 1, progress), _MOST):
        yield definition.get_partition_key_for_timestamp(part.start / 1000), part.end


def _about(record: MicroBatch) -> dict[str, Any]:
    return {
        "by": "the stream",
        "version": record.version,
        "micro-batch": record.batch,
        "engine": record.engine or "not recorded",
        "watermark": describe(record.progress),
        "late": record.late,
        "dropped": record.dropped,
    }
