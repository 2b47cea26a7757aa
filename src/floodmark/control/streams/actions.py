"""Upgrades, rebuilds and rollbacks of supervised streams, from the stop to the verified restart.

Every step is recorded in the control store before it is done. If an action was killed, the next action on the stream completes a rollback or undoes an
upgrade first. An upgrade that is repeated after its version has started is verified instead.
"""

from __future__ import annotations

import getpass
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import asdict
from typing import Any

from floodmark.control.state.records import Action
from floodmark.control.streams.fleet import Fleet
from floodmark.control.streams.supervised import (
    Old,
    check_supervised,
    desired_of,
    pausing,
    running,
    starting,
    stopping,
    wanted,
)
from floodmark.control.streams.turns import LEASE_SECONDS, LOST, taking_turn
from floodmark.control.streams.verification import Verification, verify
from floodmark.core.errors import FloodmarkError, LifecycleError
from floodmark.engines import upgrading
from floodmark.engines.upgrading import Run, Upgraded, check
from floodmark.engines.upgrading import rebuild as rebuild_beside
from floodmark.lake.restore import cuts, rollback, savepoints, switch
from floodmark.lake.restore.savepoints import Savepoint
from floodmark.lake.stream.batch_state import check_read
from floodmark.lake.stream.timeline import Timeline, streams
from floodmark.lifecycle.plan import Plan
from floodmark.lifecycle.requests import RollbackRequest
from floodmark.lifecycle.steps import Deploy, Save, Step, Stop, take
from floodmark.spec.graph.operator import Operator

_POLL_SECONDS = 0.2
_CATCH_UP_SECONDS = 30.0
"""Longest wait for the readers of a stopped stream to read all its results, so that there is a consistent cut."""

_READERS_SECONDS = {"upgrade": 300.0, "rollback": LEASE_SECONDS + 5}
"""Kind of action -> longest wait for actions on downstream streams that it rolls back; at least until the lease of a killed action expires."""
_RUNS_SECONDS = 60.0
"""Running time after which a version counts as verified although its verification was killed."""
_LATER = (LOST, "LIFECYCLE-053", "SETUP-040")
"""Codes of errors after which an upgrade cannot be rolled back now, but perhaps later."""
_FIRST = "it had no micro-batch yet: nothing to convert or verify"
"""Reason of an upgrade that is done without a savepoint."""
_FORWARD = ("stopping", "upgrading", "verifying")
"""Steps of an in-place upgrade, and of any upgrade that is done except for its verification."""


def upgrade(
    fleet: Fleet,
    operator: Operator,
    *,
    forward_only: bool = False,
    why: str = "",
    verification: Verification | None = None,
) -> tuple[Plan, Action | None]:
    """Upgrade a stream to the code's definition: stop it with a savepoint, start the new version, verify it; roll back if that fails.

    Args:
        fleet: the fleet of the stream.
        operator: the operator as the code defines it.
        forward_only: accept that open windows contain rows admitted by the old definition; refused by default.
        why: note stored with the action and its savepoint.
        verification: the checks of the new version.

    Returns:
        The plan, and the action that was done, ended as ``done`` or ``rolled back``; None instead of an action if the definition has not changed or
        the stream had no micro-batch. In these cases too, the deployment is updated to the code.

    Raises:
        LifecycleError: LIFECYCLE-050 the stream was never started, 053 the stream cannot be stopped, 054 another action on it is running,
            055 another process has taken this action over.
        PlanError: PLAN-011, the state does not fit the definition, or only with ``forward_only``; the stream was not stopped.
        CapabilityError: CAPABILITY-031 or 035, the workspace's engine cannot run the code's definition; nothing was stopped.
    """
    name, verification = operator.name, verification or Verification()
    with taking_turn(fleet, name) as turn:
        if again := _verified(fleet, operator, verification, turn):
            return again
        recover(fleet, name, turn)
        old = wanted(fleet, [name])
        plan = check(operator, fleet.lake, forward_only=forward_only)
        if not plan.changes and old[name]["version"] == operator.version:
            return plan, None
        fleet.check_engine(operator)
        if not plan.changes and plan.deployed is not None:  # a rollback has led to it without its code
            fleet.deploy(name, fleet.pack(), operator.version, desired_of(old[name]))
            return plan, None
        if plan.changes:
            check_supervised(fleet, old)
        package = fleet.pack()
        action = begin(fleet, "upgrade", name, operator.version, old, step="stopping", why=why)
        try:
            if not plan.changes:  # no micro-batch yet; the old code may commit its first one while it stops
                fleet.stop([name])
                turn()
                plan = check(operator, fleet.lake, forward_only=forward_only)
                if plan.changes:
                    check_supervised(fleet, old)
            savepoint = _upgraded(fleet, operator, action, why, turn) if plan.changes else None
        except FloodmarkError as error:
            _restore_deployments(fleet, old)
            fleet.store.close(action.id, "refused", str(error))
            raise
        turn()
        if savepoint is None:
            fleet.deploy(name, package, operator.version, desired_of(old[name]))
            fleet.store.close(action.id, "done", _FIRST)
            return plan, None
        return plan, resume_unfinished(fleet, package, savepoint, action, verification, turn)


def rebuild(
    fleet: Fleet,
    run: Run,
    operator: Operator,
    *,
    why: str = "",
    stop: threading.Event | None = None,
    verification: Verification | None = None,
) -> tuple[Upgraded, Action]:
    """Rebuild a stream: compute all its input with the code's definition in a shadow lake, stop the stream, switch, start and verify; else roll back.

    Args:
        fleet: the fleet of the stream. Downstream streams that follow the difference run again; all others stay stopped, as they must be
            computed from scratch.
        run: ``run_unbounded`` of an engine, bound to a session.
        operator: the operator as the code defines it.
        why: note stored with the action and its savepoint.
        stop: when set, the rebuild ends at the next micro-batch boundary without a switch.
        verification: the checks of the new version.

    Raises:
        LifecycleError: as ``upgrade``.
        CapabilityError: as ``upgrade``.
    """
    name, stop, verification = operator.name, stop or threading.Event(), verification or Verification()
    with taking_turn(fleet, name) as turn:
        if again := _verified(fleet, operator, verification, turn):
            return Upgraded(plan=again[0], savepoint=again[1].savepoint), again[1]
        old = before_switch(fleet, name)
        recover(fleet, name, turn)
        old = old or wanted(fleet, [name])
        fleet.check_engine(operator)
        check_supervised(fleet, old)
        package = fleet.pack()
        old |= {name: old[name] | {"next": package}}
        action = begin(fleet, "upgrade", name, operator.version, old, step="rebuilding", why=why)
        try:
            upgraded = rebuild_beside(
                run,
                operator,
                fleet.lake,
                why=why,
                stop=stop,
                pause=lambda names: pause(fleet, names, action.id, why or f"before {operator.version}"),
            )
        except FloodmarkError as error:
            abandon(fleet, fleet.store.action(action.id), str(error))
            raise
        turn()
        if upgraded.savepoint is None:
            return upgraded, fleet.store.close(action.id, "done", "nothing was switched")
        fleet.store.record_step(action.id, "verifying", savepoint=upgraded.savepoint)
        _restart_followers(fleet, fleet.store.action(action.id))
        savepoint = savepoints.find(fleet.lake, upgraded.savepoint)
        return upgraded, resume_unfinished(fleet, package, savepoint, action, verification, turn)


def roll_back(
    fleet: Fleet, savepoint: Savepoint, *, backfills: bool = False, alone: bool = False
) -> tuple[rollback.Prepared, Action]:
    """Roll a stream back to a savepoint, with its downstream streams. Streams that were running restart with the code of their savepoints.

    Args:
        fleet: the fleet of the streams.
        savepoint: the savepoint to restore.
        backfills: True to revoke bounded runs since the savepoint too.
        alone: True to leave downstream streams out. They stay stopped, as they would refuse to start.

    Returns:
        What was done to state and tables, and the finished action.

    Raises:
        LifecycleError: as ``upgrade`` and ``lake.restore.rollback.roll_back``. The streams then keep running as before.
    """
    manifest = savepoint.manifest
    name = manifest.operator
    with taking_turn(fleet, name) as turn:
        left = fleet.store.unfinished(fleet.stream(name))
        names = [name, *cuts.started_streams(fleet.lake, cuts.readers(name, streams(fleet.lake)))]
        old = wanted(fleet, names, need=False)
        if left is not None and left.step in _FORWARD:
            fleet.store.close(left.id, "refused", f"it was killed in '{left.step}'; {manifest.id} is gone back to")
            old |= {one: was for one, was in left.old.items() if one in old}
        else:
            recover(fleet, name, turn)
            old = wanted(fleet, names, need=False)
        check_supervised(fleet, old)
        if switch.pending(fleet.lake) is None:  # refuse before any stream is stopped
            rollback.prepare(fleet.lake, savepoint, backfills=backfills, alone=alone, keep=False)
        request = asdict(RollbackRequest(undo_backfills=backfills, leave_readers=alone))
        about: dict[str, Any] = {"step": "rolling back", "savepoint": manifest.id, "request": request}
        action = begin(fleet, "rollback", name, manifest.version, old, **about)
        try:
            prepared = _rolled_back(fleet, action, turn)
        except FloodmarkError as error:
            fleet.store.close(action.id, "refused", str(error))
            raise
        return prepared, fleet.store.close(action.id, "done")


# ---- steps for a dry run


def upgrade_steps(fleet: Fleet, operator: Operator, why: str, verification: Verification) -> list[Step]:
    """The steps of an upgrade, if all succeed. Changes nothing.

    Args:
        fleet: the fleet of the stream.
        operator: the operator as the code defines it.
        why: note for the savepoint.
        verification: the checks of the new version.
    """
    name = operator.name
    old = wanted(fleet, [name])
    begun = [Stop(operators=(name,)), *upgrading.upgrade_steps(operator, why)]
    return [*begun, *starting(name, operator.version, old[name], verification)]


def rebuild_steps(fleet: Fleet, operator: Operator, why: str, verification: Verification) -> list[Step]:
    """The steps of a rebuild, if all succeed. Changes nothing. Arguments as for ``upgrade_steps``."""
    name, lake = operator.name, fleet.lake
    names = [name, *cuts.readers(name, streams(lake))]
    old = wanted(fleet, names, need=False)
    begun = upgrading.rebuild_steps(operator, lake, between=[*pausing(names, old, why or f"before {operator.version}")])
    if not begun:
        return []
    followers = upgrading.check_rebuild(operator, lake).followers
    again = (
        Deploy(operator=one, version=old[one]["version"], desired=desired_of(old[one]))
        for one in followers
        if one in old
    )
    return [*begun, *again, *starting(name, operator.version, old[name], verification)]


def rollback_steps(fleet: Fleet, prepared: rollback.Prepared) -> list[Step]:
    """The steps of a rollback of supervised streams, if all succeed. Changes nothing.

    Args:
        fleet: the fleet of the streams.
        prepared: the planned changes of tables and state.
    """
    name, lake = prepared.switch.operators[0], fleet.lake
    names = [name, *cuts.started_streams(lake, cuts.readers(name, streams(lake)))]
    old = wanted(fleet, names, need=False)
    return [*stopping(names, old), *switch.steps(lake, prepared.switch), *running(prepared, old)]


# ---- interrupted actions


def recover(fleet: Fleet, name: str, turn: Callable[[], None]) -> None:
    """Complete or undo an interrupted action on a stream; does nothing if there is none.

    Args:
        fleet: the fleet of the stream.
        name: name of the operator.
        turn: raises if another process has taken the turn over.
    """
    left = fleet.store.unfinished(fleet.stream(name))
    if left is None:
        return
    fleet.say(_describe_interrupted(left))
    if left.step == "rebuilding":
        _recover_rebuild(fleet, left)
    elif left.kind == "rollback":
        _recover_rollback(fleet, left, turn)
    elif left.step == "verifying" and _has_soaked(fleet, left):
        fleet.store.close(left.id, "done", "whoever watched it was killed; it runs")
    else:
        _undo(fleet, left, left.reason or "whoever did it was killed", turn)


def _verified(
    fleet: Fleet, operator: Operator, verification: Verification, turn: Callable[[], None]
) -> tuple[Plan, Action] | None:
    """Verify the version of an interrupted upgrade to the same version; None if there is none, or it has run long enough or cannot be rolled back."""
    left = fleet.store.unfinished(fleet.stream(operator.name))
    if left is None or (left.kind, left.step, left.version) != ("upgrade", "verifying", operator.version):
        return None
    back = {one.manifest.id: one for one in savepoints.savepoints(fleet.lake, operator.name)}.get(left.savepoint or "")
    if back is None or not has_switched(fleet, left) or _has_soaked(fleet, left):
        return None
    fleet.say(f"{_describe_interrupted(left)}: it is verified")
    package = left.old[operator.name].get("next") or fleet.pack()
    return check(operator, fleet.lake), resume_unfinished(fleet, package, back, left, verification, turn)


def _describe_interrupted(left: Action) -> str:
    return f"the {left.kind} of '{left.operator}' to {left.version}, begun by {left.who}, was killed in '{left.step}'"


def _recover_rollback(fleet: Fleet, left: Action, turn: Callable[[], None]) -> None:
    """Complete an interrupted rollback. If it has switched nothing and is refused now, close it; the user may repeat the command."""
    try:
        _rolled_back(fleet, left, turn)
    except FloodmarkError as error:
        if error.code in _LATER or switch.pending(fleet.lake) is not None:
            raise
        fleet.say(f"that rollback is given up: {error}")
        fleet.store.close(left.id, "refused", str(error))
    else:
        fleet.store.close(left.id, "done", left.reason or "finished later")


def _recover_rebuild(fleet: Fleet, left: Action) -> None:
    """Deploy the version an interrupted rebuild has switched to; if it has not switched, restore the previous deployments."""
    name = left.operator
    if has_switched(fleet, left):
        package = left.old[name].get("next") or fleet.pack()
        fleet.deploy(name, package, left.version, desired_of(left.old[name]))
        _restart_followers(fleet, left)
        fleet.store.close(left.id, "done", "whoever did it was killed once it was done")
    else:
        abandon(fleet, left, "whoever did it was killed")


def _has_soaked(fleet: Fleet, action: Action) -> bool:
    """True if the new version of an upgrade has run for ``_RUNS_SECONDS`` and never crashed."""
    deployed = fleet.deployments([action.operator]).get(action.operator)
    if deployed is None or deployed.version != action.version:
        return False
    drivers = [
        one for one in fleet.store.drivers(fleet.stream(action.operator)) if one.started_at >= deployed.changed_at
    ]
    return (
        bool(drivers)
        and not any(one.state == "crashed" for one in drivers)
        and drivers[0].state == "running"
        and fleet.store.now() - drivers[0].started_at > _RUNS_SECONDS
    )


def has_switched(fleet: Fleet, action: Action) -> bool:
    """True if the switch of an interrupted rebuild or promotion is complete."""
    deployed = Timeline.current(fleet.lake, action.operator).identity.deployed()
    return switch.pending(fleet.lake) is None and deployed is not None and deployed.version == action.version


def before_switch(fleet: Fleet, name: str) -> Old | None:
    """The deployments before an interrupted rebuild or promotion, or before one that failed within its switch; None if there is none."""
    newest = fleet.action(name)
    if newest is None or "next" not in newest.old.get(name, {}):
        return None
    return newest.old if newest.step == "rebuilding" or switch.pending(fleet.lake) is not None else None


# ---- steps


def begin(fleet: Fleet, kind: str, name: str, version: str, old: Old, **values: Any) -> Action:
    """Record an action before its first step. An action that completes an unfinished switch inherits the savepoint made before that switch.

    Args:
        fleet: the fleet of the stream.
        kind: ``upgrade`` or ``rollback``.
        name: name of the operator.
        version: version of the operator after the action.
        old: the deployments before the action.
        values: further fields of the action: ``step``, ``why``, ``savepoint``, ``request``.
    """
    who, left = getpass.getuser(), switch.pending(fleet.lake)
    finishes = left is not None and left.operators[:1] == (name,) and left.back
    values = {"savepoint": finishes, **values} if finishes else values
    about = {"kind": kind, "who": who, "version": version, "old": old, "why": ""}
    return fleet.store.act(fleet.stream(name), **(about | values))


def resume_unfinished(
    fleet: Fleet,
    package: str,
    savepoint: Savepoint,
    action: Action,
    verification: Verification,
    turn: Callable[[], None],
) -> Action:
    """Deploy and verify the version of an action. If the verification fails, undo the action.

    Args:
        fleet: the fleet of the stream.
        package: package with the code of the version.
        savepoint: the savepoint made before the action.
        action: the action.
        verification: the checks of the new version.
        turn: raises if another process has taken the turn over.

    Returns:
        The action, ended as ``done``, ``rolled back`` or ``refused``.
    """
    name, version, reasons = action.operator, action.version, list[str | None]()
    fleet.store.record_step(action.id, "verifying")

    def each(step: Step) -> None:
        match step:
            case Deploy(desired=desired):
                now = fleet.deployments([name]).get(name)
                if now is None or (now.package, now.version, now.desired) != (package, version, desired):
                    fleet.deploy(name, package, version, desired)
            case _:
                reasons.append(verify(fleet, name, version, savepoint, verification, turn))

    take(starting(name, version, action.old[name], verification), each)
    reason = reasons[0] if reasons else None
    if reason is None:
        return fleet.store.close(action.id, "done")
    fleet.say(f"{version} is taken back: {reason}")
    return _undo(fleet, fleet.store.action(action.id), reason, turn)


def pause(fleet: Fleet, names: list[str], action: int, why: str) -> Savepoint:
    """Stop the supervised ones of some streams, and record which were running. Creates a savepoint for a rollback, coordinated with the readers.

    The first stream stops first, so that its readers can read all its results.

    Args:
        fleet: the fleet of the streams.
        names: names of the operators, the upstream one first.
        action: id of the open action.
        why: note for the savepoint.

    Returns:
        The savepoint of the first stream.
    """
    open_action = fleet.store.action(action)
    old, made = wanted(fleet, names, need=False) | open_action.old, list[Savepoint]()
    fleet.store.record_step(action, "rebuilding", old=old)

    def each(step: Step) -> None:
        match step:
            case Stop(operators=some):
                fleet.stop(some)
            case Save(operator=name, why=note):
                made.append(_savepoint(fleet, name, note))
                if open_action.savepoint is None:
                    fleet.store.record_step(action, "rebuilding", savepoint=made[0].manifest.id)
            case _:
                raise AssertionError(step)

    take(pausing(names, old, why), each)
    return made[0]


def abandon(fleet: Fleet, action: Action, reason: str) -> None:
    """Close a failed rebuild or promotion as refused.

    Restarts the streams that the action stopped, unless a switch is unfinished: only a repetition of the action can complete that.

    Args:
        fleet: the fleet of the streams.
        action: the open action.
        reason: the error, recorded with the action.
    """
    if switch.pending(fleet.lake) is None:
        _restore_deployments(fleet, action.old)
    fleet.store.close(action.id, "refused", reason)


def _upgraded(fleet: Fleet, operator: Operator, action: Action, why: str, turn: Callable[[], None]) -> Savepoint:
    """Stop a stream, and convert its state to the new definition. Returns the savepoint for a rollback."""
    made = list[Savepoint]()

    def each(step: Step) -> None:
        match step:
            case Stop(operators=names):
                fleet.stop(names)
                turn()
            case Save(operator=name, why=note):
                made.append(_savepoint(fleet, name, note))
                fleet.store.record_step(action.id, "upgrading", savepoint=made[0].manifest.id)
            case _:
                with switch.stopped(fleet.lake, [operator.name]):
                    upgrading.apply_step(operator, fleet.lake, step)

    take([Stop(operators=(operator.name,)), *upgrading.upgrade_steps(operator, why)], each)
    return made[0]


def _savepoint(fleet: Fleet, name: str, why: str) -> Savepoint:
    """Create a savepoint of a stopped stream, coordinated with its readers if they share a consistent cut, so that a rollback can include them."""
    until = time.monotonic() + _CATCH_UP_SECONDS
    codes = fleet.codes()
    while True:
        try:
            return cuts.create_coordinated_savepoints(name, fleet.lake, why=why, codes=codes)[0]
        except LifecycleError as error:
            if error.code != "LIFECYCLE-040":
                raise
            if time.monotonic() > until or not _may_catch_up(fleet, name):
                fleet.say(f"a rollback of '{name}' alone would be refused: {error.got}")
                return savepoints.create(name, fleet.lake, why=why, code=codes.get(name))
        time.sleep(_POLL_SECONDS)


def _may_catch_up(fleet: Fleet, name: str) -> bool:
    """True if a stream that reads the operator's outputs should be running."""
    reading = fleet.deployments(cuts.readers(name, streams(fleet.lake)))
    return any(one.desired == "running" for one in reading.values())


def _undo(fleet: Fleet, action: Action, reason: str, turn: Callable[[], None]) -> Action:
    """Undo an upgrade: restore the stream and its deployment. Closes the action as ``rolled back``, or ``refused`` if that is impossible.

    An upgrade of a stream without micro-batch is ``done`` if the new version has committed one since: no state of the old version exists.
    """
    fleet.store.record_step(action.id, "rolling back", reason=reason)
    deployed = Timeline.current(fleet.lake, action.operator).identity.deployed()
    if action.savepoint is None or deployed is None or deployed.version == action.old[action.operator]["version"]:
        fleet.stop([action.operator])
        if action.savepoint is None and has_switched(fleet, action):  # its first micro-batches are of the new version
            fleet.want(action.operator, desired_of(action.old[action.operator]))
            return fleet.store.close(action.id, "done", _FIRST)
        _restore_deployments(fleet, action.old)  # the state was not changed yet
    else:
        try:
            _rolled_back(fleet, fleet.store.action(action.id), turn)
        except FloodmarkError as error:
            if error.code in _LATER or switch.pending(fleet.lake) is not None:
                raise  # the next action on the stream completes the rollback
            fleet.say(f"{action.version} stays: {error}")
            return fleet.store.close(action.id, "refused", f"{reason}; it cannot be taken back: {error}")
    return fleet.store.close(action.id, "rolled back", reason)


def _rolled_back(fleet: Fleet, action: Action, turn: Callable[[], None]) -> rollback.Prepared:
    """Stop streams, roll them back to the savepoint of an action, and restart those that were running. If the rollback is refused, restore them."""
    assert action.savepoint is not None
    lake, name, request = fleet.lake, action.operator, RollbackRequest(**(action.request or {}))
    reading = cuts.started_streams(lake, cuts.readers(name, streams(lake)))
    with ExitStack() as turns:
        for reader in reading:  # upstream first, to avoid deadlocks
            turns.enter_context(taking_turn(fleet, reader, _READERS_SECONDS[action.kind]))
        old = action.old | {
            n: one for n, one in wanted(fleet, [name, *reading], need=False).items() if n not in action.old
        }
        fleet.store.record_step(action.id, "rolling back", old=old)
        try:
            savepoint = savepoints.find(lake, action.savepoint)
            take(stopping([name, *reading], old), lambda step: fleet.stop(step.operators))
            turn()
            options = {"backfills": request.undo_backfills, "alone": request.leave_readers}
            prepared = rollback.roll_back(lake, savepoint, codes=fleet.codes(), **options)
        except FloodmarkError as error:
            if error.code != LOST and switch.pending(lake) is None:
                _restart(fleet, old)
            raise
        take(running(prepared, old), lambda step: _redeploy(fleet, prepared, old, step))
    return prepared


def _restart(fleet: Fleet, old: Old) -> None:
    """Restart streams that were stopped for a refused rollback, if their deployed code matches their state."""
    for name, deployment in fleet.deployments(old).items():
        deployed = Timeline.current(fleet.lake, name).identity.deployed()
        if deployed is None or deployed.version == deployment.version:
            fleet.want(name, desired_of(old[name]))


def _restart_followers(fleet: Fleet, action: Action) -> None:
    """Restart the streams that were stopped for a rebuild and can resume behind it."""
    resumable: Old = {}
    for name, entry in action.old.items():
        timeline = Timeline.current(fleet.lake, name)
        try:
            if timeline.deployed is not None:
                check_read(timeline)
        except LifecycleError as error:
            if error.code != "LIFECYCLE-038":
                raise
            continue
        resumable |= {name: entry} if name != action.operator else {}
    _restart(fleet, resumable)


def _redeploy(fleet: Fleet, prepared: rollback.Prepared, known: Old, step: Deploy) -> None:
    """Deploy a stream with the code of its savepoint if the package exists; otherwise report that the stream stays stopped."""
    target = next(one for one in prepared.switch.targets if one.operator == step.operator)
    manifest, old = savepoints.find(fleet.lake, target.savepoint).manifest, known[step.operator]
    packages = {o.version: fleet.pack() for o in fleet.workspace.operators if o.name == manifest.operator}
    packages[old["version"]] = old["package"]  # the deployed package takes precedence over the current files
    package = str(manifest.code.get("package") or packages.get(manifest.version, ""))
    if not package or not (fleet.home / "packages" / package).is_dir():
        fleet.say(
            f"{manifest.operator} stays stopped: the code of {manifest.version} is not kept; restore it, then: floodmark start {manifest.operator}"
        )
        return
    fleet.deploy(manifest.operator, package, manifest.version, desired_of(old))


def _restore_deployments(fleet: Fleet, old: Old) -> None:
    """Restore the deployments before an action."""
    for name, entry in old.items():
        fleet.deploy(name, entry["package"], entry["version"], desired_of(entry))
