"""Upgrades and rollbacks of streams that run by themselves, each from stopping them to having seen them run again.

Every step is written down before it is done. Whoever asks next, after one was killed, finishes the rollback or undoes the upgrade first; an
upgrade that is asked for again once its version has started is verified instead.
"""

from __future__ import annotations

import getpass
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import asdict
from typing import Any

from floodmark.control.fleet import Fleet
from floodmark.control.records import Action
from floodmark.control.supervised import Old, check_supervised, desired_of, pausing, running, starting, stopping, wanted
from floodmark.control.turns import LEASE_SECONDS, LOST, taking_turn
from floodmark.control.verification import Verification, verify
from floodmark.core.errors import FloodmarkError, LifecycleError
from floodmark.engines import upgrading
from floodmark.engines.upgrading import Run, Upgraded, check
from floodmark.engines.upgrading import rebuild as rebuild_beside
from floodmark.lake import cuts, rollback, savepoints, switch
from floodmark.lake.savepoints import Savepoint
from floodmark.lake.timeline import Timeline, streams
from floodmark.lifecycle.plan import Plan
from floodmark.lifecycle.requests import RollbackRequest
from floodmark.lifecycle.steps import Deploy, Save, Step, Stop, take
from floodmark.spec.operator import Operator

_POLL_SECONDS = 0.2
_CATCH_UP_SECONDS = 30.0
"""For readers of a stopped stream to reach what it has written, so that there is one cut through all."""

_READERS_SECONDS = {"upgrade": 300.0, "rollback": LEASE_SECONDS + 5}
"""Kind of action -> for how long it waits for actions on readers of a stream that it takes back; at least until a killed one is over."""
_RUNS_SECONDS = 60.0
"""After which a version that runs, and gets on, is not taken back because whoever watched it was killed."""
_LATER = (LOST, "LIFECYCLE-053", "SETUP-040")
"""Why an upgrade may not be taken back now, and may be later."""
_FORWARD = ("stopping", "upgrading", "verifying")
"""Steps of an upgrade in place, or of any that is done but for its verification."""


def upgrade(
    fleet: Fleet,
    operator: Operator,
    *,
    forward_only: bool = False,
    why: str = "",
    verification: Verification | None = None,
) -> tuple[Plan, Action | None]:
    """Let a stream go on under the code's definition: stop with a savepoint, start the new version, verify it, else roll back.

    Args:
        fleet: it runs in.
        operator: as the code defines it.
        forward_only: accept that open windows hold what the old definition let through.
        why: a note.
        verification: of the new version.

    Returns:
        What has changed, and what was done: an action that ended as ``done`` or ``rolled back``; None where nothing had changed.
        The code is what should run then, too.

    Raises:
        LifecycleError: LIFECYCLE-050 the stream was never started, 053 it cannot be stopped, 054 another action on it is at work,
            055 this one has lost its turn.
        PlanError: PLAN-011, its state cannot go on, or only if that is accepted; nothing was stopped.
        CapabilityError: CAPABILITY-031 or 035, the workspace's engine cannot run the code's definition; nothing was stopped.
    """
    name, verification = operator.name, verification or Verification()
    with taking_turn(fleet, name) as turn:
        if again := _verified(fleet, operator, verification, turn):
            return again
        settle(fleet, name, turn)
        old = wanted(fleet, [name])
        plan = check(operator, fleet.lake, forward_only=forward_only)
        if not plan.changes:
            if old[name]["version"] != operator.version:  # a rollback has led to it, whose code was not kept then
                desired = desired_of(old[name])
                fleet.check_engine(operator)
                if plan.deployed is None:  # before its first micro-batch: it may be at work under the old code
                    fleet.stop([name])
                fleet.deploy(name, fleet.pack(), operator.version, desired)
            return plan, None
        fleet.check_engine(operator)
        check_supervised(fleet, old)
        package = fleet.pack()
        action = begin(fleet, "upgrade", name, operator.version, old, step="stopping", why=why)
        try:
            savepoint = _upgraded(fleet, operator, action, why, turn)
        except FloodmarkError as error:
            _restored(fleet, old)
            fleet.store.close(action.id, "refused", str(error))
            raise
        turn()
        return plan, go_over(fleet, package, savepoint, action, verification, turn)


def rebuild(
    fleet: Fleet,
    run: Run,
    operator: Operator,
    *,
    why: str = "",
    stop: threading.Event | None = None,
    verification: Verification | None = None,
) -> tuple[Upgraded, Action]:
    """Compute all of a stream's input with the code's definition beside it, stop it for the switch, start and verify; else roll back.

    Args:
        fleet: it runs in; those that read it stay stopped, as they have to be computed anew.
        run: ``run_unbounded`` of an engine, with its session.
        operator: as the code defines it.
        why: a note.
        stop: when set, it ends at the next micro-batch boundary, and nothing is switched.
        verification: of the new version.

    Raises:
        LifecycleError: as ``upgrade``.
        CapabilityError: as ``upgrade``.
    """
    name, stop, verification = operator.name, stop or threading.Event(), verification or Verification()
    with taking_turn(fleet, name) as turn:
        if again := _verified(fleet, operator, verification, turn):
            return Upgraded(plan=again[0], savepoint=again[1].savepoint), again[1]
        old = before_switch(fleet, name)
        settle(fleet, name, turn)
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
        fleet.store.go_on(action.id, "verifying", savepoint=upgraded.savepoint)
        savepoint = savepoints.find(fleet.lake, upgraded.savepoint)
        return upgraded, go_over(fleet, package, savepoint, action, verification, turn)


def roll_back(
    fleet: Fleet, savepoint: Savepoint, *, backfills: bool = False, alone: bool = False
) -> tuple[rollback.Prepared, Action]:
    """Take a stream back to a savepoint, with those that read it; streams that ran do so again, in the code of their savepoints.

    Args:
        fleet: they run in.
        savepoint: to go back to.
        backfills: bounded runs since may be undone too.
        alone: leave the streams that read it; they stay stopped, as they would refuse to go on.

    Raises:
        LifecycleError: as ``upgrade``, and whatever a rollback raises; then what ran runs on.
    """
    manifest = savepoint.manifest
    name = manifest.operator
    with taking_turn(fleet, name) as turn:
        left = fleet.store.unfinished(fleet.stream(name))
        names = [name, *cuts.begun(fleet.lake, cuts.readers(name, streams(fleet.lake)))]
        old = wanted(fleet, names, need=False)
        if left is not None and left.step in _FORWARD:
            fleet.store.close(left.id, "refused", f"it was killed in '{left.step}'; {manifest.id} is gone back to")
            old |= {one: was for one, was in left.old.items() if one in old}
        else:
            settle(fleet, name, turn)
            old = wanted(fleet, names, need=False)
        check_supervised(fleet, old)
        if switch.pending(fleet.lake) is None:  # what would be refused is refused before anything is stopped
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


# ---- what they would do


def upgrade_steps(fleet: Fleet, operator: Operator, why: str, verification: Verification) -> list[Step]:
    """The steps of an upgrade that would succeed.

    Args:
        fleet: the stream runs in.
        operator: as the code defines it.
        why: a note for the savepoint.
        verification: of the new version.
    """
    name = operator.name
    old = wanted(fleet, [name])
    begun = [Stop(operators=(name,)), *upgrading.upgrade_steps(operator, why)]
    return [*begun, *starting(name, operator.version, old[name], verification)]


def rebuild_steps(fleet: Fleet, operator: Operator, why: str, verification: Verification) -> list[Step]:
    """The steps of a rebuild that would succeed. As ``upgrade_steps``."""
    name, lake = operator.name, fleet.lake
    names = [name, *cuts.readers(name, streams(lake))]
    old = wanted(fleet, names, need=False)
    begun = upgrading.rebuild_steps(operator, lake, between=[*pausing(names, old, why or f"before {operator.version}")])
    return [*begun, *(starting(name, operator.version, old[name], verification) if begun else ())]


def rollback_steps(fleet: Fleet, prepared: rollback.Prepared) -> list[Step]:
    """The steps of a rollback with streams that a supervisor runs.

    Args:
        fleet: they run in.
        prepared: what it would do to tables and state.
    """
    name, lake = prepared.switch.operators[0], fleet.lake
    names = [name, *cuts.begun(lake, cuts.readers(name, streams(lake)))]
    old = wanted(fleet, names, need=False)
    return [*stopping(names, old), *switch.steps(lake, prepared.switch), *running(prepared, old)]


# ---- what was killed


def settle(fleet: Fleet, name: str, turn: Callable[[], None]) -> None:
    """Finish or undo what was killed."""
    left = fleet.store.unfinished(fleet.stream(name))
    if left is None:
        return
    fleet.say(_killed(left))
    if left.step == "rebuilding":
        _settle_rebuild(fleet, left)
    elif left.kind == "rollback":
        _settle_rollback(fleet, left, turn)
    elif left.step == "verifying" and _runs(fleet, left):
        fleet.store.close(left.id, "done", "whoever watched it was killed; it runs")
    else:
        _undo(fleet, left, left.reason or "whoever did it was killed", turn)


def _verified(
    fleet: Fleet, operator: Operator, verification: Verification, turn: Callable[[], None]
) -> tuple[Plan, Action] | None:
    """The same action, killed while its version was verified, verified to its end; None where there is none, or it cannot be taken back."""
    left = fleet.store.unfinished(fleet.stream(operator.name))
    if left is None or (left.kind, left.step, left.version) != ("upgrade", "verifying", operator.version):
        return None
    back = {one.manifest.id: one for one in savepoints.savepoints(fleet.lake, operator.name)}.get(left.savepoint or "")
    if back is None or not has_switched(fleet, left) or _runs(fleet, left):
        return None
    fleet.say(f"{_killed(left)}: it is verified")
    package = left.old[operator.name].get("next") or fleet.pack()
    return check(operator, fleet.lake), go_over(fleet, package, back, left, verification, turn)


def _killed(left: Action) -> str:
    return f"the {left.kind} of '{left.operator}' to {left.version}, begun by {left.who}, was killed in '{left.step}'"


def _settle_rollback(fleet: Fleet, left: Action, turn: Callable[[], None]) -> None:
    """Finish a killed rollback; one that has switched nothing, and is refused by now, is over: whoever wants it asks again."""
    try:
        _rolled_back(fleet, left, turn)
    except FloodmarkError as error:
        if error.code in _LATER or switch.pending(fleet.lake) is not None:
            raise
        fleet.say(f"that rollback is given up: {error}")
        fleet.store.close(left.id, "refused", str(error))
    else:
        fleet.store.close(left.id, "done", left.reason or "finished later")


def _settle_rebuild(fleet: Fleet, left: Action) -> None:
    """Let what a killed rebuild has switched to run, or what there was before."""
    name = left.operator
    if has_switched(fleet, left):
        package = left.old[name].get("next") or fleet.pack()
        fleet.deploy(name, package, left.version, desired_of(left.old[name]))
        fleet.store.close(left.id, "done", "whoever did it was killed once it was done")
    else:
        abandon(fleet, left, "whoever did it was killed")


def _runs(fleet: Fleet, action: Action) -> bool:
    """Whether the new version of an upgrade has run for a while, and never crashed."""
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
        and time.time() - drivers[0].started_at > _RUNS_SECONDS
    )


def has_switched(fleet: Fleet, action: Action) -> bool:
    """Whether a stream is what a killed rebuild or promotion was to make of it, whole."""
    deployed = Timeline.current(fleet.lake, action.operator).identity.deployed()
    return switch.pending(fleet.lake) is None and deployed is not None and deployed.version == action.version


def before_switch(fleet: Fleet, name: str) -> Old | None:
    """What should have run before a rebuild or promotion that was killed, also one that was refused in its switch since; None for none."""
    newest = fleet.action(name)
    if newest is None or "next" not in newest.old.get(name, {}):
        return None
    return newest.old if newest.step == "rebuilding" or switch.pending(fleet.lake) is not None else None


# ---- steps


def begin(fleet: Fleet, kind: str, name: str, version: str, old: Old, **values: Any) -> Action:
    """Write an action down, before anything is done; one that finishes a switch goes back to the savepoint that was made before it."""
    who, left = getpass.getuser(), switch.pending(fleet.lake)
    finishes = left is not None and left.operators[:1] == (name,) and left.back
    values = {"savepoint": finishes, **values} if finishes else values
    about = {"kind": kind, "who": who, "version": version, "old": old, "why": ""}
    return fleet.store.act(fleet.stream(name), **(about | values))


def go_over(
    fleet: Fleet,
    package: str,
    savepoint: Savepoint,
    action: Action,
    verification: Verification,
    turn: Callable[[], None],
) -> Action:
    """The version of an action started and verified, or taken back to the savepoint that was made before it."""
    name, version, reasons = action.operator, action.version, list[str | None]()
    fleet.store.go_on(action.id, "verifying")

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
    """Stop those of the streams that run by themselves, and remember which ran; the savepoint to go back to, with those of the readers.

    The first one stops first, so that its readers come to where it is.
    """
    open_action = fleet.store.action(action)
    old, made = wanted(fleet, names, need=False) | open_action.old, list[Savepoint]()
    fleet.store.go_on(action, "rebuilding", old=old)

    def each(step: Step) -> None:
        match step:
            case Stop(operators=some):
                fleet.stop(some)
            case Save(operator=name, why=note):
                made.append(_savepoint(fleet, name, note))
                if open_action.savepoint is None:
                    fleet.store.go_on(action, "rebuilding", savepoint=made[0].manifest.id)
            case _:
                raise AssertionError(step)

    take(pausing(names, old, why), each)
    return made[0]


def abandon(fleet: Fleet, action: Action, reason: str) -> None:
    """A rebuild that has switched nothing: streams it has stopped run on. A switch that was begun only a rebuild can finish."""
    if switch.pending(fleet.lake) is None:
        _restored(fleet, action.old)
    fleet.store.close(action.id, "refused", reason)


def _upgraded(fleet: Fleet, operator: Operator, action: Action, why: str, turn: Callable[[], None]) -> Savepoint:
    """The stream stopped, and its state under the new definition; the savepoint to go back to."""
    made = list[Savepoint]()

    def each(step: Step) -> None:
        match step:
            case Stop(operators=names):
                fleet.stop(names)
                turn()
            case Save(operator=name, why=note):
                made.append(_savepoint(fleet, name, note))
                fleet.store.go_on(action.id, "upgrading", savepoint=made[0].manifest.id)
            case _:
                with switch.stopped(fleet.lake, [operator.name]):
                    upgrading.apply_step(operator, fleet.lake, step)

    take([Stop(operators=(operator.name,)), *upgrading.upgrade_steps(operator, why)], each)
    return made[0]


def _savepoint(fleet: Fleet, name: str, why: str) -> Savepoint:
    """Of a stopped stream, and at one cut of those that read it, so that a rollback can take them along."""
    until = time.monotonic() + _CATCH_UP_SECONDS
    codes = fleet.codes()
    while True:
        try:
            return cuts.together(name, fleet.lake, why=why, codes=codes)[0]
        except LifecycleError as error:
            if error.code != "LIFECYCLE-040":
                raise
            if time.monotonic() > until or not _may_catch_up(fleet, name):
                fleet.say(f"a rollback of '{name}' alone would be refused: {error.got}")
                return savepoints.create(name, fleet.lake, why=why, code=codes.get(name))
        time.sleep(_POLL_SECONDS)


def _may_catch_up(fleet: Fleet, name: str) -> bool:
    """Whether a stream that reads one is at work."""
    reading = fleet.deployments(cuts.readers(name, streams(fleet.lake)))
    return any(one.desired == "running" for one in reading.values())


def _undo(fleet: Fleet, action: Action, reason: str, turn: Callable[[], None]) -> Action:
    """The stream as it was before an upgrade."""
    fleet.store.go_on(action.id, "rolling back", reason=reason)
    deployed = Timeline.current(fleet.lake, action.operator).identity.deployed()
    if action.savepoint is None or deployed is None or deployed.version == action.old[action.operator]["version"]:
        fleet.stop([action.operator])
        _restored(fleet, action.old)  # nothing had been changed
    else:
        try:
            _rolled_back(fleet, fleet.store.action(action.id), turn)
        except FloodmarkError as error:
            if error.code in _LATER or switch.pending(fleet.lake) is not None:
                raise  # whoever asks next finishes it
            fleet.say(f"{action.version} stays: {error}")
            return fleet.store.close(action.id, "refused", f"{reason}; it cannot be taken back: {error}")
    return fleet.store.close(action.id, "rolled back", reason)


def _rolled_back(fleet: Fleet, action: Action, turn: Callable[[], None]) -> rollback.Prepared:
    """Streams stopped, taken back to the savepoint of an action, and those that ran started again; or as they were, where it is refused."""
    assert action.savepoint is not None
    lake, name, request = fleet.lake, action.operator, RollbackRequest(**(action.request or {}))
    reading = cuts.begun(lake, cuts.readers(name, streams(lake)))
    with ExitStack() as turns:
        for reader in reading:  # upstream first: nobody waits for one that waits for it
            turns.enter_context(taking_turn(fleet, reader, _READERS_SECONDS[action.kind]))
        old = action.old | {
            n: one for n, one in wanted(fleet, [name, *reading], need=False).items() if n not in action.old
        }
        fleet.store.go_on(action.id, "rolling back", old=old)
        try:
            savepoint = savepoints.find(lake, action.savepoint)
            take(stopping([name, *reading], old), lambda step: fleet.stop(step.operators))
            turn()
            options = {"backfills": request.undo_backfills, "alone": request.leave_readers}
            prepared = rollback.roll_back(lake, savepoint, codes=fleet.codes(), **options)
        except FloodmarkError as error:
            if error.code != LOST and switch.pending(lake) is None:
                _go_on(fleet, old)
            raise
        take(running(prepared, old), lambda step: _redeploy(fleet, prepared, old, step))
    return prepared


def _go_on(fleet: Fleet, old: Old) -> None:
    """Streams that were stopped for nothing run on, in the code they have now where that is the code of their state."""
    for name, deployment in fleet.deployments(old).items():
        deployed = Timeline.current(fleet.lake, name).identity.deployed()
        if deployed is None or deployed.version == deployment.version:
            fleet.want(name, desired_of(old[name]))


def _redeploy(fleet: Fleet, prepared: rollback.Prepared, known: Old, step: Deploy) -> None:
    """Let a stream run in the code of its savepoint, if it should run and that code is known."""
    target = next(one for one in prepared.switch.targets if one.operator == step.operator)
    manifest, old = savepoints.find(fleet.lake, target.savepoint).manifest, known[step.operator]
    packages = {o.version: fleet.pack() for o in fleet.workspace.operators if o.name == manifest.operator}
    packages[old["version"]] = old["package"]  # what ran, rather than what the files say now
    package = str(manifest.code.get("package") or packages.get(manifest.version, ""))
    if not package or not (fleet.home / "packages" / package).is_dir():
        fleet.say(
            f"{manifest.operator} stays stopped: the code of {manifest.version} is not kept; restore it, then: floodmark start {manifest.operator}"
        )
        return
    fleet.deploy(manifest.operator, package, manifest.version, desired_of(old))


def _restored(fleet: Fleet, old: Old) -> None:
    """What should run is what should have run before."""
    for name, entry in old.items():
        fleet.deploy(name, entry["package"], entry["version"], desired_of(entry))
