"""A workspace as Dagster definitions."""

from __future__ import annotations

import warnings
from pathlib import Path

import dagster as dg

from floodmark.orchestration.assets import (
    Upstream,
    delivery_assets,
    operator_assets,
    output_key,
    source_assets,
    source_key,
)
from floodmark.orchestration.automation import stream_definitions
from floodmark.orchestration.checks import operator_checks, source_checks
from floodmark.orchestration.conditions import automation_definitions
from floodmark.orchestration.health import health_checks
from floodmark.orchestration.jobs import Streams
from floodmark.orchestration.rollouts import rollout_definitions
from floodmark.orchestration.session import StepWorkspace
from floodmark.orchestration.versions import version_definitions
from floodmark.spec.assets.asset import OperatorAsset, SourceAsset
from floodmark.spec.rows.contract import event_time_field
from floodmark.spec.workspace import Workspace


def build_definitions(
    workspace: Workspace,
    *,
    root: str | Path,
    executor: dg.ExecutorDefinition | None = None,
    others: str | Path | None = None,
) -> dg.Definitions:
    """Every source, operator and delivery of a workspace as assets, with their checks, and the jobs, schedules and sensors of its streams.

    The result is plain definitions: ``dg.Definitions.merge(build_definitions(...), dg.Definitions(assets=[...]))`` adds any others.
    Building opens no table and starts no Java.

    Args:
        workspace: the workspace.
        root: the folder that relative paths of the settings start from.
        executor: executor of the runs; by default all steps of a run share one process, and so one Spark session.
        others: a folder of further definitions and components, as ``dg scaffold defs`` writes them there; relative to ``root``. It is not looked into while it
            has nothing but an ``__init__.py``, as that takes Dagster a second.
    """
    location = StepWorkspace(workspace.at(str(Path(root).resolve())))
    there = Streams(location, Path(root).resolve())
    tables = {
        asset.source.name: Upstream(source_key(asset), event_time=event_time_field(asset.source.contract))
        for asset in workspace.source_assets
    }
    automatic = [source_key(asset) for asset in workspace.source_assets if asset.automation is not None]
    for asset in workspace.operator_assets:
        for output in asset.operator.outputs:
            ends = "window_end" if "window_end" in output.keys else None
            tables[output.table] = Upstream(output_key(output), asset.partitions, ends)
        if asset.automation is not None:
            automatic += [output_key(output) for output in asset.operator.outputs]
    with warnings.catch_warnings():  # partitions of checks and of upstream assets are marked as preview and beta
        for category in (dg.BetaWarning, dg.PreviewWarning):
            warnings.simplefilter("ignore", category)
        assets = [source_assets(asset, location) for asset in workspace.source_assets]
        assets += [operator_assets(asset, location, tables) for asset in workspace.operator_assets]
        delivering: list[SourceAsset | OperatorAsset] = [*workspace.source_assets, *workspace.operator_assets]
        assets += [
            delivery_assets(asset, location.workspace.delivery(route.name), location)
            for asset in delivering
            for route in asset.deliveries
        ]
        checks = [source_checks(asset, there) for asset in workspace.source_assets]
        checks += [operator_checks(asset, there) for asset in workspace.operator_assets]
        asset_definitions = dg.Definitions(
            assets=assets,
            asset_checks=[*(check for check in checks if check is not None), *health_checks(workspace, there)],
            executor=executor or dg.in_process_executor,
            resources={"floodmark": location},
        )
        streams, rollouts = stream_definitions(workspace, there), rollout_definitions(workspace, there)
        further = [version_definitions(workspace, location), automation_definitions(automatic)]
    if others is not None and _has_definitions(folder := Path(root).resolve() / others):
        further.append(dg.load_from_defs_folder(path_within_project=folder))
    return dg.Definitions.merge(asset_definitions, streams, rollouts, *further)


def _has_definitions(folder: Path) -> bool:
    files = (file for pattern in ("*.py", "*.yaml", "*.yml") for file in folder.rglob(pattern))
    return any(file != folder / "__init__.py" for file in files)
