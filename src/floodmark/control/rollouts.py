"""Rollouts: a changed version runs beside its stream as an arm of an experiment, is judged, promoted, watched, and taken back where it fails.

A look does what is due and returns: ``python -m floodmark.control.rollouts ID``. It may be killed anywhere; the next look goes on.
"""

from __future__ import annotations

import getpass
import os
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path

from floodmark.control import actions, experiments, promotion
from floodmark.control.fleet import Fleet, never
from floodmark.control.package import load
from floodmark.control.rollout import Record, Rollouts, State
from floodmark.control.standing import judged, now, share_aside, superseded, watch
from floodmark.control.store import CONTROL, Store
from floodmark.control.turns import taking_turn
from floodmark.core import crash
from floodmark.core.errors import FloodmarkError, LifecycleError
from floodmark.core.machine import refused
from floodmark.core.time import describe, describe_span, iso, span
from floodmark.lake import experiments as lake_experiments
from floodmark.lake import savepoints
from floodmark.lake.locks import exclusive
from floodmark.lake.timeline import Timeline
from floodmark.lifecycle.experiment import CURRENT, Experiment
from floodmark.lifecycle.gates import describe_unmet
from floodmark.lifecycle.pairing import Results, check_paired, check_sampled
from floodmark.lifecycle.plan import plan
from floodmark.lifecycle.requests import ExperimentRequest, PromotionRequest
from floodmark.lifecycle.watch import GATES, Memory
from floodmark.spec.asset import OperatorAsset

_OLD, _NEW = "old", "new"
"""Arms of a rollout's experiment."""
_RETRY_SECONDS = 10.0
_LATER = (
    *(
        "LIFECYCLE-003",
        "LIFECYCLE-053",
        "LIFECYCLE-054",
        "LIFECYCLE-055",
        "LIFECYCLE-088",
        "LIFECYCLE-091",
        "LIFECYCLE-111",
        "SETUP-040",
    ),
    *("SETUP-051", "SETUP-052", "SETUP-053", "SETUP-056", "SETUP-057", "SETUP-058", "EXECUTION-003", "EXECUTION-009"),
)
"""Refusals that go away: another action at work, another savepoint just made, no supervisor, another experiment, an instant that is not
final yet; a full disk, short memory, a store that does not answer."""
_CRASHED = "LIFECYCLE-115"
"""The driver of an arm has crashed; a supervisor may start it again."""
_GONE = "LIFECYCLE-031"
"""There is no such savepoint."""
BEFORE: tuple[State, ...] = ("waiting", "shadowing", "judging", "awaiting approval")
"""States in which the stream itself has not been touched."""


def start(fleet: Fleet, asset: OperatorAsset, *, why: str = "") -> Record | None:
    """Let a rollout of an operator begin, with the code as it is now; None where nothing has changed.

    Args:
        fleet: of the stream.
        asset: declares how.
        why: a note.

    Raises:
        DefinitionError: DEFINITION-162, the rule names a column its outputs lack.
        LifecycleError: LIFECYCLE-030 no such stream has begun, LIFECYCLE-050 it was never started, LIFECYCLE-100 there is one already,
            LIFECYCLE-101 none is declared, LIFECYCLE-112 its results can never be those of the stream,
            LIFECYCLE-116 its ramp needs one and the same key.
    """
    operator, declared = asset.operator, asset.rollout
    where = f"rollout of '{operator.name}'"
    if declared is None:
        fix = f"Declare it: operator_asset({operator.name}, rollout=Rollout(promote=PromoteWhen(match=0.999)))."
        raise LifecycleError(where, "an operator asset that says how", "none", fix, code="LIFECYCLE-101")
    declared.promote.check(operator)
    fleet.check_engine(operator)
    if fleet.deployments([operator.name]).get(operator.name) is None:
        raise never(operator.name, fleet.elsewhere(operator.name))
    timeline = Timeline.current(fleet.lake, operator.name)
    deployed = timeline.identity.deployed()
    if deployed is None or timeline.checkpoint.last_committed() < 0:
        fix = "Wait until it has: floodmark status. A supervisor must be at work: floodmark supervise."
        raise LifecycleError(where, "a stream that has committed a micro-batch", "none yet", fix, code="LIFECYCLE-030")
    if not plan(deployed, operator).changes:
        return None
    runs = Results.deployed(deployed, timeline.identity.result_keys())
    check_paired(where, operator.name, runs, Results.of(operator), declared.promote)
    if declared.ramp:
        check_sampled(where, {_OLD: runs, _NEW: Results.of(operator)})
    settings = fleet.workspace.settings
    return Rollouts(fleet.store).begin(
        fleet.stream(operator.name),
        declared=declared,
        state="waiting",
        root=str(fleet.root),
        environment=settings.environment,
        kind="rollout",
        experiment="",
        arm=_NEW,
        package=fleet.pack(),
        version=operator.version,
        who=getpass.getuser(),
        why=why,
    )


def going(fleet: Fleet, operator: str) -> Record:
    """The rollout of an operator that goes on.

    Raises:
        LifecycleError: LIFECYCLE-102, there is none.
    """
    record = Rollouts(fleet.store).open(fleet.stream(operator))
    if record is None:
        fix = f"Start one: floodmark rollout start {operator}. Those there were: floodmark rollout history {operator}"
        where = f"rollout of '{operator}'"
        raise LifecycleError(where, "one that goes on", "none", fix, code="LIFECYCLE-102")
    return record


def approve(fleet: Fleet, record: Record, version: str = "") -> Record:
    """Let a rollout whose other gates hold go on.

    Args:
        fleet: of the stream.
        record: as it was seen.
        version: what is approved; by default the version of the rollout.

    Raises:
        LifecycleError: LIFECYCLE-103, it is another version, or nothing waits for approval.
    """
    where, fix = (
        f"approval of {record.name}",
        f"See what it is and waits for: floodmark rollout status {record.operator}",
    )
    if version and version != record.version:
        raise LifecycleError(where, f"version {record.version}", version, fix, code="LIFECYCLE-103")
    approved = f"{getpass.getuser()}, {iso(now())}"
    if not Rollouts(fleet.store).ask(record, ["awaiting approval"], approved=approved):
        got = f"one that is {Rollouts(fleet.store).find(record.id).state}"
        raise LifecycleError(where, "a rollout that awaits approval", got, fix, code="LIFECYCLE-103")
    return _reported(fleet, Rollouts(fleet.store).find(record.id), "approve")


def abort(fleet: Fleet, record: Record, why: str = "") -> Record:
    """Let a rollout end: the arm stops, or, after its promotion, the stream goes back to what it was.

    Raises:
        LifecycleError: LIFECYCLE-104, it is being promoted or taken back, or is over.
    """
    words = f"aborted by {getpass.getuser()}" + (f": {why}" if why else "")
    if not Rollouts(fleet.store).ask(record, [*BEFORE, "watching"], aborted=words):
        fix = (
            f"Wait until it is done: floodmark rollout status {record.operator}. Then take it back: floodmark rollback"
        )
        got = f"one that is {Rollouts(fleet.store).find(record.id).state}"
        raise LifecycleError(record.name, "a rollout that can be aborted now", got, fix, code="LIFECYCLE-104")
    return _reported(fleet, Rollouts(fleet.store).find(record.id), "abort")


def _reported(fleet: Fleet, record: Record, action: str) -> Record:
    fleet.store.note(getpass.getuser(), action, record.operator, rollout=record.id, version=record.version)
    return record


# ---- one look


def look(fleet: Fleet, number: int) -> Record:
    """Do what is due of a rollout; how it is then.

    Args:
        fleet: of the stream, with the code of the arm.
        number: of the rollout.

    Raises:
        LifecycleError: LIFECYCLE-003, another process looks at it.
    """
    known = Rollouts(fleet.store)
    with exclusive(fleet.lake, "actions", f"rollout-{known.find(number).operator}", "look at a rollout"):
        record = known.find(number)
        if record.ended_at is not None:
            return record
        try:
            if record.aborted and record.state in BEFORE:
                return _stop(known, record, record.aborted)
            return _STATES[record.state](fleet, known, record)
        except FloodmarkError as error:
            return _refused(known, record, error)
        except Exception as error:
            if (machine := refused(error, record.name)) is None:
                raise
            return _refused(known, record, machine)


def _refused(known: Rollouts, record: Record, error: FloodmarkError) -> Record:
    """A step could not be taken: later, or never."""
    if record.state == "taking back" and error.code == _GONE:
        return known.end(record, "stopped", f"its promotion stays, as it cannot be taken back: {error}")
    if error.code in _LATER or record.kind == "experiment" or record.state not in {*BEFORE, "promoting"}:
        return _later(known, record, str(error))
    return _stop(known, record, str(error))


def _later(known: Rollouts, record: Record, waits: str, seconds: float = _RETRY_SECONDS) -> Record:
    return known.note(record, waits=waits, due=time.time() + seconds)


def _begin(fleet: Fleet, known: Rollouts, record: Record) -> Record:
    """Its arms begin, unless they have."""
    name, made = record.named, _experiment(fleet, record)
    if made is None or made.state == "starting":
        _clean_earlier(fleet, known, record)
        whole = record.share == 1
        request = ExperimentRequest(
            arms={_OLD: CURRENT, _NEW: record.package},
            sample=record.share,
            promote=_NEW if whole else "",
            forward_only=record.declared.forward_only,
            rebuild=record.declared.rebuild,
            note=record.why,
        )
        experiments.start(fleet, name, record.operator, request, record.declared.promote if whole else None)
    crash.point("rollout.begun")
    return known.come_to(record, "shadowing")


def _clean_earlier(fleet: Fleet, known: Rollouts, record: Record) -> None:
    """Remove the arms of the stage before, and of the rollout before, which stayed to be looked at."""
    earlier = {
        name for one in known.of(record.stream) if one.id != record.id and one.kind == "rollout" for name in one.stages
    }
    behind = record.stages[: record.stage]
    for made in lake_experiments.known(fleet.lake):
        if made.name in behind and not made.over:
            experiments.set_state(fleet, made.name, "stopped")
        if made.name in behind or (made.over and made.name in earlier):
            experiments.clean(fleet, made.name)


def _shadow(fleet: Fleet, known: Rollouts, record: Record) -> Record:
    """Until the time is over; the gates are told, and do not count yet."""
    made = _experiment(fleet, record)
    if made is None or made.over:
        return _ended(fleet, known, record, made)
    if why := superseded(fleet, made):
        return _apart(known, record, why)
    judgement = judged(fleet, record, made)
    record = known.note(record, gates=judgement.gates, held_since=judgement.held_since, judged_at=time.time())
    arm = judgement.gates[0]
    if arm.verdict == "fails":
        return _stop(known, record, describe_unmet([arm]))
    until = record.since + span(record.declared.shadow) / 1000
    if time.time() >= until:
        crash.point("rollout.shadowed")
        return known.come_to(record, "judging")
    wait = min(until - time.time(), record.declared.promote.every_ms / 1000)
    return _later(known, record, f"until {describe(int(until * 1000))}: it runs beside the stream", wait)


def _decide(fleet: Fleet, known: Rollouts, record: Record) -> Record:
    """Until the gates hold, or one fails."""
    made = _experiment(fleet, record)
    if made is None or made.over:
        return _ended(fleet, known, record, made)
    if why := superseded(fleet, made):
        return _apart(known, record, why)
    judgement = judged(fleet, record, made)
    record = known.note(record, gates=judgement.gates, held_since=judgement.held_since, judged_at=time.time())
    if judgement.holds and made.sample is not None:
        crash.point("rollout.judged")
        why = f"all gates hold over {made.sample}"
        return known.come_to(record, "waiting", why, held_since=None)
    if judgement.holds:
        crash.point("rollout.judged")
        return known.come_to(record, "promoting")
    if judgement.awaits_approval and record.state != "awaiting approval":
        crash.point("rollout.asking")
        return known.come_to(record, "awaiting approval")
    if record.kind == "rollout":
        if judgement.failing:
            return _stop(known, record, describe_unmet(judgement.failing))
        patience = span(record.declared.patience)
        judging = next(one.at for one in reversed(record.steps) if one.state == "judging")
        if not judgement.awaits_approval and time.time() > judging + patience / 1000:
            return _stop(known, record, f"not within {describe_span(patience)}: {describe_unmet(judgement.gates)}")
    if record.state == "awaiting approval" and not judgement.awaits_approval:
        return known.come_to(record, "judging", describe_unmet(judgement.gates))
    return _later(known, record, describe_unmet(judgement.gates), record.declared.promote.every_ms / 1000)


def _ended(fleet: Fleet, known: Rollouts, record: Record, made: Experiment | None) -> Record:
    """Somebody has ended the experiment."""
    if made is None or made.state == "stopped":
        return _stop(known, record, f"its experiment '{record.named}' was stopped")
    if made.promoted == record.arm:
        return _promoted(fleet, known, record)
    return known.end(record, "stopped", f"arm '{made.promoted}' was promoted by hand")


def _stop(known: Rollouts, record: Record, reason: str) -> Record:
    """The rollout is to end; why is written down before its experiment is stopped."""
    return (
        known.end(record, "stopped", reason)
        if record.kind == "experiment"
        else known.come_to(record, "stopping", reason)
    )


def _apart(known: Rollouts, record: Record, why: str) -> Record:
    """The stream has become another version meanwhile: a rollout ends, the rule of an experiment waits until that is taken back."""
    if record.kind == "rollout":
        return _stop(known, record, why)
    if record.state != "judging":
        return known.come_to(record, "judging", why)
    return _later(known, record, why, record.declared.promote.every_ms / 1000)


def _stopping(fleet: Fleet, known: Rollouts, record: Record) -> Record:
    """The arms stop, and stay to be looked at; the stream was not touched."""
    made = _experiment(fleet, record)
    if made is not None and made.state == "starting":
        experiments.give_up(fleet, made)
    elif made is not None and not made.over:
        experiments.set_state(fleet, made.name, "stopped")
    crash.point("rollout.stopping")
    return known.end(record, "stopped", record.steps[-1].why)


def _promote(fleet: Fleet, known: Rollouts, record: Record) -> Record:
    """The arm becomes the stream; else all stays as it was, or is taken back."""
    made = lake_experiments.find(fleet.lake, record.named)
    if made.state == "promoted":
        return _promoted(fleet, known, record)
    action = promotion.attempt(fleet, made, record.arm)
    if action is None and (why := superseded(fleet, made)):
        return _apart(known, record, why)
    if action is None or action.step != "rolled back":
        request = PromotionRequest(arm=record.arm, cutover=record.declared.promote.cutover)
        try:
            _, action = promotion.promote(fleet, made.name, request)
        except LifecycleError as error:
            if error.code == _CRASHED:  # its gates say whether for good
                return known.come_to(record, "judging", str(error))
            raise
    crash.point("rollout.promoted")
    if action.step != "done":
        if record.kind == "rollout":
            experiments.set_state(fleet, made.name, "stopped")
        return known.end(record, "taken back", action.reason or action.step)
    return _promoted(fleet, known, record)


def _promoted(fleet: Fleet, known: Rollouts, record: Record) -> Record:
    made = lake_experiments.find(fleet.lake, record.named)
    done = (one for one in promotion.attempts(fleet, made, record.arm) if one.step == "done")
    back = next(one.savepoint or "" for one in done)
    before = savepoints.find(fleet.lake, back).manifest.version
    memory = Memory(
        after=-1 if made.arm(record.arm).anew else savepoints.find(fleet.lake, made.savepoint).manifest.batch,
        share=share_aside(fleet, record, before),
    )
    return known.come_to(record, "watching", savepoint=back, memory=memory)


def _watch(fleet: Fleet, known: Rollouts, record: Record) -> Record:
    """Until the time is over; a version that fails is taken back."""
    deployment = fleet.deployments([record.operator]).get(record.operator)
    if deployment is None or deployment.version != record.version:
        got = "nothing" if deployment is None else deployment.version
        return known.end(record, "stopped", f"the stream runs {got} now, by somebody else's doing")
    until = record.since + span(record.declared.watch) / 1000
    over = time.time() >= until
    if not record.aborted and record.kind == "rollout":
        seen, memory = watch(fleet, record, over=over)
        record = known.note(record, gates=seen, memory=memory, judged_at=time.time())
    gates = [one for one in record.gates if one.name in GATES]
    failing = [one for one in gates if one.verdict == "fails"]
    if record.aborted or failing:
        crash.point("rollout.failed")
        return known.come_to(record, "taking back", record.aborted or describe_unmet(failing))
    if not over:
        wait = min(until - time.time(), record.declared.promote.every_ms / 1000)
        return _later(known, record, f"until {describe(int(until * 1000))}: it is watched", wait)
    if record.kind == "rollout" and _experiment(fleet, record) is not None:
        experiments.clean(fleet, record.named)
    crash.point("rollout.watched")
    return known.end(record, "done", describe_unmet(gates))


def _take_back(fleet: Fleet, known: Rollouts, record: Record) -> Record:
    """The stream goes back to the savepoint of before its promotion."""
    if not _is_back(fleet, record):
        with taking_turn(fleet, record.operator) as turn:
            actions.settle(fleet, record.operator, turn)  # a return that was killed is finished, not done once more
    if not _is_back(fleet, record):
        actions.roll_back(fleet, savepoints.find(fleet.lake, record.savepoint))
    crash.point("rollout.taken_back")
    return known.end(record, "taken back", record.steps[-1].why)


def _is_back(fleet: Fleet, record: Record) -> bool:
    """Whether the newest action on the stream has taken its promotion back."""
    newest = fleet.action(record.operator)
    return newest is not None and (newest.kind, newest.savepoint, newest.step) == (
        "rollback",
        record.savepoint,
        "done",
    )


_STATES: dict[State, Callable[[Fleet, Rollouts, Record], Record]] = {
    "waiting": _begin,
    "shadowing": _shadow,
    "judging": _decide,
    "awaiting approval": _decide,
    "promoting": _promote,
    "watching": _watch,
    "stopping": _stopping,
    "taking back": _take_back,
}


def _experiment(fleet: Fleet, record: Record) -> Experiment | None:
    try:
        return lake_experiments.find(fleet.lake, record.named)
    except LifecycleError as error:
        if error.code != "LIFECYCLE-090":
            raise
        return None


def main(number: str, package: str) -> int:
    """Look at a rollout with the code of its arm, until it has to wait."""
    known = Rollouts(Store(os.environ[CONTROL]))
    record = known.find(int(number))
    try:
        workspace = load(Path(package), record.environment, record.root, record.stream.lake)
        fleet = Fleet(workspace=workspace, root=Path(record.root))
        while (after := look(fleet, record.id)).state != record.state and after.ended_at is None:
            record = after
    except Exception as error:  # noqa: BLE001 - whatever it is, the rollout says so, and is looked at again
        traceback.print_exc()
        if getattr(error, "code", "") != "LIFECYCLE-003":  # another look is at work
            _later(known, record, f"{type(error).__name__}: {error}", 6 * _RETRY_SECONDS)
        return 1
    sys.stdout.write(f"{after.name}: {after.state}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
