"""Replays: runs changed code on the embedded engine over recent input of production, and compares the results. Production is only read."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

from deltalake import DeltaTable

from floodmark.control.processes.engine import Computing
from floodmark.core.errors import CapabilityError, FloodmarkError, LifecycleError
from floodmark.core.scratch import Scratch
from floodmark.core.time import END
from floodmark.engines.upgrading import upgrade
from floodmark.lake.folder.paths import Lake
from floodmark.lake.restore import savepoints
from floodmark.lake.restore.fork import look_on
from floodmark.lake.restore.savepoints import Savepoint
from floodmark.lake.stream.timeline import Timeline
from floodmark.lifecycle.comparison import Comparison
from floodmark.lifecycle.plan import Deployed, plan
from floodmark.lifecycle.replay import Replay
from floodmark.observe.comparison.arms import final, lateness
from floodmark.observe.comparison.closed import advance, read_comparison
from floodmark.observe.comparison.compare import How
from floodmark.observe.comparison.sides import Side
from floodmark.spec.graph.operator import Operator


def replay(
    operator: Operator, production: Lake, computing: Computing, how: How, *, span: int, forward_only: bool = False
) -> Replay:
    """Run changed code from a savepoint of production, and compare its results with those of production since.

    Args:
        operator: the operator as the code defines it.
        production: lake of production; nothing is written there.
        computing: the engine that runs the code.
        how: how outputs are compared.
        span: event time to replay, ms: starts at the newest savepoint at least this far back, or at the oldest one.
        forward_only: accept that open windows contain rows admitted by the old definition; refused by default.

    Returns:
        The comparison of each output in ``found``, empty if the definition has not changed; with ``refused`` if there is no savepoint or the code
        cannot resume from it.
    """
    began = time.monotonic()
    deployed = Timeline.current(production, operator.name).identity.deployed()
    change = plan(deployed, operator)
    if deployed is None or not change.changes:
        return Replay(plan=change, found={})
    try:
        savepoint = _savepoint(operator.name, production, span)
        with Scratch() as folder:
            lake = look_on(production, savepoint, f"{folder}/lake")
            computing.check_deployed(operator, lake)
            computing.take_over(operator, lake)
            upgrade(operator, lake, forward_only=forward_only, savepoint=savepoint)
            computing.run_unbounded(operator, lake, until_caught_up=True)
            compared = {
                output.table: comparison
                for output in operator.outputs
                if not output.side
                and (comparison := _compared(operator, output.table, production, lake, savepoint, how, folder))
            }
            checkpoint = Timeline.current(lake, operator.name).checkpoint
            until = checkpoint.final_progress(checkpoint.last_committed())
            until -= lateness(_definitions(operator.name, production, lake)) if until < END else 0
    except FloodmarkError as error:
        return Replay(plan=change, found={}, refused=str(error), seconds=time.monotonic() - began)
    return Replay(
        plan=change,
        savepoint=savepoint.manifest.id,
        since=savepoint.manifest.watermark,
        until=until,
        found=compared,
        seconds=time.monotonic() - began,
    )


def _savepoint(operator: str, production: Lake, span: int) -> Savepoint:
    """The newest savepoint at least ``span`` ms of event time back, or the oldest one."""
    known = savepoints.savepoints(production, operator)
    if not known:
        fix = (
            f"Make them by a schedule: operator_asset(..., savepoints=Savepoints('0 * * * *')); or one now, and replay what comes after it: "
            f"floodmark savepoint create {operator}"
        )
        where = f"replay of '{operator}' from {production.root}"
        raise LifecycleError(where, "a savepoint to begin with", "none", fix, code="LIFECYCLE-106")
    checkpoint = Timeline.current(production, operator).checkpoint
    last = checkpoint.last_committed()
    before = (checkpoint.final_progress(last) if last >= 0 else known[-1].manifest.watermark) - span
    behind = [one for one in known if one.manifest.watermark <= before]
    return max(reversed(behind), key=lambda one: one.manifest.watermark) if behind else known[0]


def _definitions(operator: str, *lakes: Lake) -> list[Deployed | None]:
    return [Timeline.current(lake, operator).identity.deployed() for lake in lakes]


def _compared(
    operator: Operator, table: str, production: Lake, lake: Lake, savepoint: Savepoint, how: How, folder: Path
) -> Comparison | str | None:
    paths = [production.output(table), lake.output(table)]
    if not all(DeltaTable.is_deltatable(path) for path in paths):
        return None
    output = next(one for one in operator.outputs if one.table == table)
    left, right = (Side.of(path, output, operator) for path in paths)
    how = replace(how, tolerances={name: one for name, one in how.tolerances.items() if name in left.types})
    comparison_folder = Path(folder, "compared", table)
    comparison_folder.parent.mkdir(exist_ok=True)
    known = _definitions(operator.name, production, lake)
    try:
        advance(
            str(comparison_folder),
            left,
            right,
            how,
            until=final(left, right, known),
            since=savepoint.manifest.watermark,
        )
    except CapabilityError as error:
        return str(error)
    return read_comparison(str(comparison_folder))
