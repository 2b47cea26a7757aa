"""Dagster runs in this process, and what they left in the event log."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import dagster as dg
from dagster._core.loader import LoadingContextForTest

from definitions import workspace
from floodmark import Settings, Workspace
from floodmark.control.processes.engine import Computing
from floodmark.lake.folder.paths import Lake


@dataclass
class Outcome:
    """What one Dagster run left in the event log."""

    success: bool
    materialized: dict[tuple[str, str | None], dict[str, Any]] = field(default_factory=dict)
    observed: dict[tuple[str, str | None], dict[str, Any]] = field(default_factory=dict)
    checked: dict[tuple[str, str | None], tuple[bool, dict[str, Any]]] = field(default_factory=dict)
    summed_up: dict[str, tuple[bool, str]] = field(default_factory=dict)
    current: dict[str, bool] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)
    skipped: list[str] = field(default_factory=list)


@dataclass
class Dagster:
    """Definitions and an instance to run them on."""

    definitions: dg.Definitions
    instance: dg.DagsterInstance

    def run(self, *assets: str, partitions: str | tuple[str, str] | None = None, config: Any = None) -> Outcome:
        """Materialize assets, ``"split_delays__severe"``, for a partition or a range of them."""
        low, high = (partitions, partitions) if isinstance(partitions, str) else (partitions or (None, None))
        tags = {"dagster/asset_partition_range_start": low, "dagster/asset_partition_range_end": high} if low else {}
        if low == high and low:
            tags = {"dagster/partition": low}
        done = self.definitions.resolve_implicit_global_asset_job_def().execute_in_process(
            instance=self.instance,
            asset_selection=[dg.AssetKey(name.split("/")) for name in assets],
            tags=tags,
            run_config=config or {},
            raise_on_error=False,
        )
        return outcome(done)


def outcome(done: Any) -> Outcome:
    found = Outcome(success=done.success)
    for event in done.all_events:
        match event.event_type_value:
            case "ASSET_MATERIALIZATION":
                one = event.step_materialization_data.materialization
                found.materialized["/".join(one.asset_key.path), one.partition] = _plain(one.metadata)
            case "ASSET_OBSERVATION":
                seen = event.asset_observation_data.asset_observation
                found.observed["/".join(seen.asset_key.path), seen.partition] = _plain(seen.metadata)
            case "ASSET_CHECK_EVALUATION":
                check = event.asset_check_evaluation_data
                if check.check_name == "code_version":  # of every operator
                    found.current["/".join(check.asset_key.path)] = check.passed
                elif "not met in" in check.metadata:  # of a range of partitions
                    found.summed_up[check.check_name] = check.passed, str(check.metadata["not met in"].value)
                elif check.check_name != "stream":  # of every source and operator; none is started here
                    found.checked[check.check_name, check.partition] = check.passed, _plain(check.metadata)
            case "STEP_FAILURE":
                error = event.step_failure_data.error
                causes = [error.message] + ([error.cause.message] if error.cause else [])
                told = event.step_failure_data.user_failure_data
                found.failures[event.step_key] = "\n".join([*causes, told.description if told else ""])
            case "STEP_SKIPPED":
                found.skipped.append(event.step_key)
    return found


def _plain(metadata: Any) -> dict[str, Any]:
    return {name: getattr(value, "value", value) for name, value in metadata.items()}


def looked(
    definitions: dg.Definitions, instance: dg.DagsterInstance, cursor: str | None = None, *, report: bool = False
) -> dg.SensorResult:
    """What the sensor finds, as the daemon would take it; with ``report``, its events are written, too."""
    context = dg.build_sensor_context(instance=instance, cursor=cursor)
    found = definitions.resolve_sensor_def("streams")(context)
    assert isinstance(found, dg.SensorResult | dg.SkipReason)
    for event in found.asset_events if report and isinstance(found, dg.SensorResult) else ():
        instance.report_runless_asset_event(event)
    for request in getattr(found, "dynamic_partitions_requests", None) or ():
        if isinstance(request, dg.AddDynamicPartitionsRequest):
            instance.add_dynamic_partitions(request.partitions_def_name, request.partition_keys)
        else:
            for key in request.partition_keys:
                instance.delete_dynamic_partition(request.partitions_def_name, key)
    return found


def shown(instance: dg.DagsterInstance, key: dg.AssetCheckKey) -> str:
    """What a person sees of a check, by Dagster's own code: ``SUCCEEDED``, ``FAILED`` and others, or ``not evaluated``."""
    loading = LoadingContextForTest(instance)

    async def look() -> str:
        record = instance.event_log_storage.get_latest_asset_check_execution_by_key([key]).get(key)
        if record is None or not await record.targets_latest_materialization(loading):
            return "not evaluated"
        return (await record.resolve_status(loading)).value

    return asyncio.run(look())


def settings(engine: Computing, **other: Any) -> Settings:
    """Of a workspace that computes on an engine; in this process it shares the session of the fixture ``engine``."""
    return Settings(engine=engine.name, memory=300, **other)


def flights_workspace(engine: Computing, inbox: Path, lake: Lake) -> Workspace:
    """The reference workspace on another engine, inbox and lake."""
    return workspace().having(settings(engine, lake=lake.root, folder=str(inbox.parent)))
