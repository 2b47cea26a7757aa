"""The check `code_version` of each operator: whether the current code has computed all its results.

Dagster itself compares the code versions of a materialization and of its definition only for assets without partitions.
"""

# no `from __future__ import annotations` here: Dagster reads the annotations of a step itself

import json
import time
from collections.abc import Iterator
from typing import Any

import dagster as dg

from floodmark.core.errors import FloodmarkError
from floodmark.core.time import Interval
from floodmark.lake.results.readiness import coverage
from floodmark.lifecycle.coverage import Segment
from floodmark.orchestration.assets import output_key
from floodmark.orchestration.session import StepWorkspace
from floodmark.spec.assets.asset import OperatorAsset
from floodmark.spec.windowing.partitions import end as end_of
from floodmark.spec.windowing.partitions import first, split
from floodmark.spec.workspace import Workspace

NAME = "code_version"
_WHAT = "Whether the current code has computed all results; see `floodmark plan` before computing results again."


def version_definitions(workspace: Workspace, location: StepWorkspace) -> dg.Definitions:
    """The checks, which each run evaluates, and the sensor that evaluates a check when the code of its operator has changed."""
    assets = {output_key(one.operator.outputs[0]): one for one in workspace.operator_assets}
    if not assets:
        return dg.Definitions()
    specs = [dg.AssetCheckSpec(NAME, asset=key, description=_WHAT) for key in assets]

    @dg.multi_asset_check(specs=specs, name="check_code_versions", can_subset=True)
    def check_step(context: dg.AssetCheckExecutionContext) -> Iterator[dg.AssetCheckResult]:
        for chosen in context.selected_asset_check_keys:
            passed, about = compared(assets[chosen.asset_key], location)
            yield dg.AssetCheckResult(
                asset_key=chosen.asset_key,
                check_name=NAME,
                passed=passed,
                severity=dg.AssetCheckSeverity.WARN,
                metadata=about,
            )

    @dg.sensor(
        name="code_versions",
        minimum_interval_seconds=30,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description="Evaluates the checks `code_version` of operators whose code has changed.",
    )
    def look(context: dg.SensorEvaluationContext) -> dg.SensorResult | dg.SkipReason:
        known = json.loads(context.cursor or "{}")
        now = {asset.operator.name: asset.operator.version for asset in assets.values()}
        if now == known:
            return dg.SkipReason("no operator's code has changed")
        events = []
        for key, asset in assets.items():
            if known.get(asset.operator.name, now[asset.operator.name]) == now[asset.operator.name]:
                continue
            passed, about = compared(asset, location)
            events.append(
                dg.AssetCheckEvaluation(
                    asset_key=key,
                    check_name=NAME,
                    passed=passed,
                    severity=dg.AssetCheckSeverity.WARN,
                    metadata={name: dg.MetadataValue.text(str(value)) for name, value in about.items()},
                )
            )
        return dg.SensorResult(cursor=json.dumps(now), asset_events=events)

    return dg.Definitions(asset_checks=[check_step], sensors=[look])


def compared(asset: OperatorAsset, location: StepWorkspace) -> tuple[bool, dict[str, Any]]:
    """(True if the current version has computed every computed stretch of an operator, metadata: what each version has computed)."""
    whole = Interval()
    if asset.partitions is not None:
        whole = Interval(start=first(asset.partitions), end=min(end_of(asset.partitions), time.time_ns() // 1_000_000))
    try:
        segments = coverage(asset.operator, location.lake, whole)
    except FloodmarkError as error:  # an input that was never landed: nothing can have been computed
        return True, {"code": asset.operator.version, "computed": f"nothing yet: {error.got}"}
    by_version = counted(asset, segments)
    passed = set(by_version) <= {asset.operator.version}
    return passed, {"code": asset.operator.version} | {f"computed by {name}": how for name, how in by_version.items()}


def counted(asset: OperatorAsset, segments: list[Segment]) -> dict[str, str]:
    """Version -> the number of asset partitions that it has computed, in words; ``all`` for an asset without partitions."""
    counts: dict[str, int] = {}
    for part in segments:
        pieces = 1 if asset.partitions is None else sum(1 for _ in split(asset.partitions, part.interval))
        counts[part.entry.version] = counts.get(part.entry.version, 0) + pieces
    unit = f"{type(asset.partitions).__name__.lower()} partitions" if asset.partitions else "all"
    return {name: unit if asset.partitions is None else f"{count} {unit}" for name, count in counts.items()}
