"""A dry run of an upgrade or a rebuild: what changes, and the steps that it would take. Changes nothing."""

from __future__ import annotations

from floodmark.control.streams import actions
from floodmark.control.streams.fleet import Fleet
from floodmark.control.streams.verification import Verification
from floodmark.engines import upgrading
from floodmark.engines.upgrading import Upgraded
from floodmark.lake.folder.paths import Lake
from floodmark.lifecycle.requests import UpgradeRequest
from floodmark.lifecycle.steps import Step
from floodmark.spec.graph.operator import Operator


def planned_upgrade(
    fleet: Fleet | None, operator: Operator, lake: Lake, request: UpgradeRequest
) -> tuple[Upgraded, list[Step]]:
    """(what would be upgraded, the steps in order; none if nothing has changed or there is no stream).

    Args:
        fleet: the fleet of the stream; None for a stream without a supervisor.
        operator: the operator as the code defines it.
        lake: the lake of the stream.
        request: the options of the upgrade.

    Raises:
        FloodmarkError: what the upgrade would be refused for.
    """
    if request.rebuild:
        would = upgrading.check_rebuild(operator, lake)
    else:
        would = Upgraded(plan=upgrading.check(operator, lake, forward_only=request.forward_only))
    if would.plan.deployed is None or not would.plan.changes:
        return would, []
    if fleet is None:
        steps = upgrading.rebuild_steps(operator, lake, request.note) if request.rebuild else None
        return would, list(upgrading.upgrade_steps(operator, request.note) if steps is None else steps)
    steps_of = actions.rebuild_steps if request.rebuild else actions.upgrade_steps
    return would, steps_of(fleet, operator, request.note, Verification.of(request))
