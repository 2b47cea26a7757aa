"""When Dagster materializes assets by itself: conditions of operators' assets, and the sensor that judges them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import dagster as dg
from dagster._core.definitions.events import AssetKeyPartitionKey

from floodmark.observe.partitions import computable
from floodmark.orchestration.partitions import named
from floodmark.orchestration.session import StepWorkspace
from floodmark.spec.assets.asset import OperatorAsset, SourceAsset

_MOST_ASSETS = 400
"""Most assets of a sensor. Dagster lets a sensor that is evaluated where the definitions are, as own conditions need it, have 500."""


class InputsComplete(dg.AutomationCondition[dg.AssetKey]):
    """True of the asset partitions whose inputs are complete up to their end, and which neither bounded runs nor the operator's own stream have computed or will.

    Source: Dagster, "Arbitrary Python automation conditions".

    Args:
        asset: the operator and its partitions.
        location: the workspace whose lake is asked.
        since: input table -> event time, ms, before which the table is never computed.
    """

    def __init__(self, asset: OperatorAsset, location: StepWorkspace, since: Mapping[str, int]) -> None:
        self._asset, self._location, self._since = asset, location, since

    @property
    def name(self) -> str:
        """As Dagster shows it."""
        return "inputs_complete"

    @property
    def description(self) -> str:
        """As Dagster shows it."""
        return "Its inputs are complete up to its end, nothing has computed it, and its own stream will not"

    def __eq__(self, other: object) -> bool:
        """Two are equal if they ask the same of the same lake."""
        return isinstance(other, InputsComplete) and (self._asset, self._location) == (other._asset, other._location)

    __hash__ = dg.AutomationCondition.__hash__

    def evaluate(self, context: dg.AutomationContext[dg.AssetKey]) -> dg.AutomationResult[dg.AssetKey]:
        """Ask the logs of the tables; starts no engine."""
        assert self._asset.partitions is not None
        stretches = computable(self._asset, self._location.lake, self._since)
        keys = {key for stretch in stretches for key, _ in named(self._asset.partitions, stretch)}
        view = context.asset_graph_view
        subset = view.get_asset_subset_from_asset_partitions(
            context.key, {AssetKeyPartitionKey(context.key, key) for key in keys}
        )
        return dg.AutomationResult(context=context, true_subset=context.candidate_subset.compute_intersection(subset))


def condition(
    asset: OperatorAsset | SourceAsset, location: StepWorkspace, since: Mapping[str, int]
) -> dg.AutomationCondition[Any] | None:
    """The condition of an asset; None if only a person materializes it. ``"complete"``: a partition whose run failed is not tried again.

    Args:
        asset: what declares it.
        location: the workspace whose lake is asked.
        since: table -> event time, ms, before which it is never computed.
    """
    if asset.automation != "complete":
        return asset.automation  # type: ignore[no-any-return]  # checked where it was declared
    assert isinstance(asset, OperatorAsset)
    unfinished = dg.AutomationCondition.in_progress() | dg.AutomationCondition.execution_failed()
    return InputsComplete(asset, location, since) & ~unfinished


def automation_definitions(keys: Sequence[dg.AssetKey]) -> dg.Definitions:
    """The sensors that judge the conditions of assets, running from the start; empty where no asset has one.

    Args:
        keys: the assets that have a condition.
    """
    sensors = [
        dg.AutomationConditionSensorDefinition(
            name=f"automation_{number}" if number else "automation",
            target=dg.AssetSelection.assets(*some),
            default_status=dg.DefaultSensorStatus.RUNNING,
            use_user_code_server=True,
            description="Materializes the assets that declare when, once their condition is true.",
        )
        for number, some in enumerate(keys[at : at + _MOST_ASSETS] for at in range(0, len(keys), _MOST_ASSETS))
    ]
    return dg.Definitions(sensors=sensors)
