"""Promotions: replace a stream by an arm of an experiment; roll back if the verification fails."""

from __future__ import annotations

import time
from collections.abc import Callable

from floodmark.control.delivery.cutover import check_cutover, cutover_between
from floodmark.control.delivery.experiments import check_running, check_whole, of, promoted
from floodmark.control.state.records import Action
from floodmark.control.streams import actions, supervised
from floodmark.control.streams.fleet import Fleet
from floodmark.control.streams.turns import taking_turn
from floodmark.control.streams.verification import Verification
from floodmark.core.errors import FloodmarkError, LifecycleError
from floodmark.core.time import describe, iso
from floodmark.lake.folder.paths import Lake
from floodmark.lake.restore import cuts, experiments, savepoints, switch
from floodmark.lake.stream.timeline import Timeline, inputs_at, streams
from floodmark.lake.table.outputs import input_path
from floodmark.lifecycle.experiment import Arm, Experiment
from floodmark.lifecycle.requests import PromotionRequest
from floodmark.lifecycle.steps import Follow, Step, take
from floodmark.lifecycle.switch import steps

_POLL_SECONDS = 0.2


def promote(fleet: Fleet, name: str, request: PromotionRequest) -> tuple[Experiment, Action]:
    """Replace a stream's state, code and tables by those of an arm, with one commit per table. On failure the stream stays as it was.

    The stream and its downstream streams stop; the arm reads all that the stream has read, and stops; the stream's tables are replaced by the arm's; the
    stream starts with the arm's code and is verified. Downstream streams have read replaced rows, and must be computed from scratch. Repeating the call
    after a crash completes the promotion. ``floodmark rollback`` to the savepoint that is created first undoes the promotion.

    Args:
        fleet: fleet of the stream.
        name: name of the experiment.
        request: the arm and options.

    Returns:
        The experiment, and the action that was done, ended as ``done`` or ``rolled back``.

    Raises:
        LifecycleError: LIFECYCLE-090 no such experiment, LIFECYCLE-092 no such arm, LIFECYCLE-095 the experiment is not running, LIFECYCLE-096 the
            arm does not catch up with the stream in time, LIFECYCLE-110 a cut-over by event time is impossible, LIFECYCLE-111 results before the
            instant are not final, LIFECYCLE-117 the arms run over a sample of the keys, LIFECYCLE-115 the arm has crashed; else as an upgrade.
    """
    made = experiments.find(fleet.lake, name)
    chosen, again = made.arm(request.arm), _command(name, request.arm)
    check_whole(made)
    left = switch.pending(fleet.lake)
    if left is None:
        check_running(made)
    operator, there = made.operator, of(fleet, chosen)
    with taking_turn(fleet, operator) as turn:
        before = attempt(fleet, made, request.arm)
        killed = before if before is not None and before.ended_at is None else None
        if killed is not None and _has_switched(fleet, killed):
            _delete_transfer(fleet.lake, made, chosen)
            return _started(fleet, made, chosen, killed, request, turn)
        old = actions.before_switch(fleet, operator)
        actions.recover(fleet, operator, turn)
        over = before and fleet.store.action(before.id)
        if over is not None and over.step == "done":
            return promoted(fleet, made, request.arm), over
        if over is not None and over.step == "rolled back" and killed is not None:
            return made, over
        old = old or supervised.wanted(fleet, [operator])
        supervised.check_supervised(fleet, old | {operator: old[operator] | {"desired": "running"}})
        switch.refuse_another(fleet.lake, operator, again)
        _check_runs(there, made, chosen)
        if left is None:
            check_cutover(fleet.lake, made, chosen, request.cutover)
        old |= {operator: old[operator] | {"next": chosen.package}}
        action = actions.begin(
            fleet, "upgrade", operator, chosen.version, old, step="rebuilding", why=_action_note(made, request.arm)
        )
        try:
            back = _become(fleet, made, chosen, action, request, again)
        except FloodmarkError as error:
            actions.abandon(fleet, fleet.store.action(action.id), str(error))
            raise
        turn()
        fleet.store.record_step(action.id, "verifying", savepoint=back)
        return _started(fleet, made, chosen, fleet.store.action(action.id), request, turn)


def promote_steps(fleet: Fleet, name: str, request: PromotionRequest) -> list[Step]:
    """The steps of a promotion, if all succeed. Changes nothing. Arguments and errors as for ``promote``."""
    made, lake = experiments.find(fleet.lake, name), fleet.lake
    chosen, operator = made.arm(request.arm), made.operator
    check_whole(made)
    begun = switch.pending(lake)
    if begun is None:
        check_running(made)
    old = supervised.wanted(fleet, [operator])
    started = supervised.starting(operator, chosen.version, old[operator], Verification.of(request))
    if begun is not None:
        switch.refuse_another(lake, operator, _command(name, request.arm))
        return [*switch.steps(lake, begun), *started]
    _check_runs(of(fleet, chosen), made, chosen)
    names = [operator, *cuts.readers(operator, streams(lake))]
    arms = Timeline.current(Lake(chosen.root), operator).identity
    deployed = arms.deployed()
    tables = deployed.tables if deployed is not None else ()
    cutover = cutover_between(lake, made, chosen, request.cutover)
    turn = switch.beside_turn(lake, operator, chosen.root, tables, arms.result_keys(), cutover)
    old = supervised.wanted(fleet, names, need=False)
    before = supervised.pausing(names, old, _rollback_note(made, chosen))
    return [*before, Follow(operator=operator, arm=request.arm), *steps([turn]), *started]


def _command(name: str, arm: str) -> str:
    """The command that performs or completes a promotion."""
    return f"floodmark experiment promote {name} --arm {arm}"


def _rollback_note(made: Experiment, arm: Arm) -> str:
    """Note of the savepoint created before a promotion."""
    return f"before the {_transfer_note(made, arm)}"


def _transfer_note(made: Experiment, arm: Arm) -> str:
    """Note of the savepoint that transfers an arm's state."""
    return f"promotion of arm {arm.name} of experiment {made.name}"


def _action_note(made: Experiment, arm: str) -> str:
    """Note of the action of a promotion in the control store; of each of several experiments with one name it is another one."""
    return f"arm {arm} of experiment {made.name}, begun {iso(made.began_at)}"


def attempts(fleet: Fleet, made: Experiment, arm: str) -> list[Action]:
    """The recent actions that promote an arm, newest first."""
    return [one for one in fleet.store.actions(fleet.stream(made.operator)) if _is_of(one, made, arm)]


def _is_of(action: Action, made: Experiment, arm: str) -> bool:
    """True if an action promotes an arm of this experiment, and not of an earlier experiment with the same name."""
    written_before = f"arm {arm} of experiment {made.name}"  # by earlier versions of floodmark
    return action.why == _action_note(made, arm) or (
        action.why == written_before and action.began_at * 1000 >= made.began_at
    )


def attempt(fleet: Fleet, made: Experiment, arm: str) -> Action | None:
    """The newest action on the stream if it promotes the arm; None otherwise."""
    newest = fleet.action(made.operator)
    return newest if newest is not None and _is_of(newest, made, arm) else None


def _become(fleet: Fleet, made: Experiment, arm: Arm, action: Action, request: PromotionRequest, again: str) -> str:
    """Stop the stream and replace it by the arm. Returns the id of the savepoint for a rollback."""
    lake, operator, there = fleet.lake, made.operator, of(fleet, arm)
    begun, why = switch.pending(lake), _transfer_note(made, arm)
    if begun is not None:
        taken, back = begun.targets[0].savepoint, begun.back
        with switch.stopped(lake, begun.operators):
            switch.perform(lake, begun)
    else:
        reading = cuts.readers(operator, streams(lake))
        back = actions.pause(fleet, [operator, *reading], action.id, _rollback_note(made, arm)).manifest.id
        follow = Follow(operator=operator, arm=arm.name)
        take([follow], lambda _: _brought_up(fleet, made, arm, request.patience))
        with switch.stopped(lake, [operator, *reading]), switch.stopped(there.lake, [operator]):
            _delete_transfer(lake, made, arm)
            cutover = cutover_between(lake, made, arm, request.cutover)
            taken = switch.become(lake, operator, there.lake, again=again, back=back, why=why, cutover=cutover)
    savepoints.delete(savepoints.find(lake, taken))
    return back


def _has_switched(fleet: Fleet, killed: Action) -> bool:
    """True if an interrupted promotion has completed its switch, so that only start and verification remain."""
    begun = killed.savepoint is not None and killed.step in {"rebuilding", "verifying"}
    return begun and actions.has_switched(fleet, killed)


def _started(
    fleet: Fleet, made: Experiment, arm: Arm, action: Action, request: PromotionRequest, turn: Callable[[], None]
) -> tuple[Experiment, Action]:
    """Start and verify the promoted stream; roll back if the verification fails."""
    back = savepoints.find(fleet.lake, str(action.savepoint))
    done = actions.resume_unfinished(fleet, arm.package, back, action, Verification.of(request), turn)
    return (promoted(fleet, made, arm.name) if done.step == "done" else made), done


def _delete_transfer(lake: Lake, made: Experiment, arm: Arm) -> None:
    """Delete the savepoint that transferred the arm's state in an interrupted promotion."""
    for savepoint in savepoints.savepoints(lake, made.operator):
        if savepoint.manifest.why == _transfer_note(made, arm):
            savepoints.delete(savepoint)


def _check_runs(there: Fleet, made: Experiment, arm: Arm) -> None:
    driver = there.driver(made.operator)
    if driver is not None and driver.ended_at is not None and driver.state == "crashed":
        fix = f"See what its driver says: floodmark logs {made.operator} --lake {arm.root}"
        where = f"experiment '{made.name}', arm '{arm.name}'"
        raise LifecycleError(where, "an arm that runs", f"a crash: {driver.reason}", fix, code="LIFECYCLE-115")


def _brought_up(fleet: Fleet, made: Experiment, arm: Arm, patience: float) -> None:
    """Wait until an arm has read all that the stopped stream has read, then stop the arm."""
    there = of(fleet, arm)
    known = there.deployments([made.operator]).get(made.operator)
    if known is None or known.desired == "stopped":  # stopped by an interrupted start or promotion, or by hand
        there.deploy(made.operator, arm.package, arm.version, "running")
    _catch_up(fleet, made, arm, patience)
    there.stop([made.operator])


def _catch_up(fleet: Fleet, made: Experiment, arm: Arm, patience: float) -> None:
    ours, theirs = Timeline.current(fleet.lake, made.operator), Timeline.current(Lake(arm.root), made.operator)
    wanted = inputs_at(ours, ours.checkpoint.last_committed())
    paths = {name: input_path(fleet.lake, one.table) for name, one in wanted.items()}
    until = time.monotonic() + patience
    while True:
        last = theirs.checkpoint.last_committed()
        read = inputs_at(theirs, last) if last >= 0 else {}
        if all(n in read and cuts.unchanged(paths[n], read[n].version, one.version) for n, one in wanted.items()):
            return
        _check_runs(of(fleet, arm), made, arm)
        if time.monotonic() > until:
            reached = describe(theirs.checkpoint.final_progress(last)) if last >= 0 else "no micro-batch"
            fix = "Wait until it has caught up, and ask again; or give it longer: --patience."
            where = f"experiment '{made.name}', arm '{arm.name}'"
            expected = f"an arm that has read what the stream has, within {patience:.0f} s"
            raise LifecycleError(where, expected, f"one at {reached}", fix, code="LIFECYCLE-096")
        time.sleep(_POLL_SECONDS)
