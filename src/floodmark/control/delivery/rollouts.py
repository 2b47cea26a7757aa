"""Rollouts: a changed version runs beside its stream as an arm of an experiment, is judged, promoted and watched, and is rolled back if it fails.

A look does what is due and returns: ``python -m floodmark.control.delivery.rollouts ID PACKAGE``. A look may be killed at any point; the next look
resumes. With ``--stay``, as the supervisor starts it, the process waits for a next look that is due soon: a start costs more than a look.
"""

from __future__ import annotations

import getpass
import os
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path

from floodmark.control.delivery import experiments, promotion
from floodmark.control.delivery.standing import judged, now, share_aside, superseded, watch
from floodmark.control.processes.package import load
from floodmark.control.state.rollout import Record, Rollouts, State
from floodmark.control.state.store import CONTROL, Store
from floodmark.control.streams import actions
from floodmark.control.streams.fleet import Fleet, error_never_started
from floodmark.control.streams.turns import taking_turn
from floodmark.core import crash
from floodmark.core.errors import FloodmarkError, LifecycleError
from floodmark.core.machine import refused
from floodmark.core.time import describe, describe_span, iso, span
from floodmark.lake.folder.locks import exclusive
from floodmark.lake.restore import experiments as lake_experiments
from floodmark.lake.restore import savepoints
from floodmark.lake.stream.timeline import Timeline
from floodmark.lifecycle.experiment import CURRENT, Experiment
from floodmark.lifecycle.guardrails import Judgement, describe_unmet
from floodmark.lifecycle.pairing import Results, check_paired, check_sampled
from floodmark.lifecycle.plan import plan
from floodmark.lifecycle.requests import ExperimentRequest, PromotionRequest
from floodmark.lifecycle.watch import GUARDRAILS, Memory
from floodmark.spec.assets.asset import OperatorAsset

_OLD, _NEW = "old", "new"
"""Names of the arms of a rollout's experiment."""
_RETRY_SECONDS = 10.0
_STAY_SECONDS = 15.0
"""Longest time for which a process with ``--stay`` waits for its next look."""
_POLL_SECONDS = 0.5
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
"""Codes of temporary errors: another action is running, another savepoint is being made, no supervisor, another experiment, an instant that is not
final yet; a full disk, short memory, an unreachable store."""
_CRASHED = "LIFECYCLE-115"
"""Code of the error that an arm's driver has crashed. A supervisor may restart the driver."""
_GONE = "LIFECYCLE-031"
"""Code of the error that a savepoint does not exist."""
_Look = Callable[[Fleet, Rollouts, Record], Record]
"""What one look does in one state of a rollout."""
BEFORE: tuple[State, ...] = ("waiting", "shadowing", "judging", "awaiting approval")
"""States before the promotion, in which the stream itself is unchanged."""


def start(fleet: Fleet, asset: OperatorAsset, *, why: str = "") -> Record | None:
    """Start a rollout of an operator with the current code. Returns None if the operator's definition has not changed.

    Args:
        fleet: fleet of the stream.
        asset: the asset that declares the rollout.
        why: note stored with the rollout.

    Raises:
        DefinitionError: DEFINITION-162, the rule names a column that the outputs lack.
        LifecycleError: LIFECYCLE-030 the stream has committed no micro-batch, LIFECYCLE-050 the stream was never started, LIFECYCLE-100 the operator
            has an open rollout, LIFECYCLE-101 no rollout is declared, LIFECYCLE-112 the arm's results can never equal the stream's,
            LIFECYCLE-116 the ramp needs the same key in both versions.
    """
    operator, declared = asset.operator, asset.rollout
    where = f"rollout of '{operator.name}'"
    if declared is None:
        fix = f"Declare it: operator_asset({operator.name}, rollout=Rollout(promote=PromoteWhen(match=0.999)))."
        raise LifecycleError(where, "an operator asset that says how", "none", fix, code="LIFECYCLE-101")
    declared.promote.check(operator)
    fleet.check_engine(operator)
    if fleet.deployments([operator.name]).get(operator.name) is None:
        raise error_never_started(operator.name, fleet.elsewhere(operator.name))
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
    """The open rollout of an operator.

    Raises:
        LifecycleError: LIFECYCLE-102, the operator has no open rollout.
    """
    record = Rollouts(fleet.store).open(fleet.stream(operator))
    if record is None:
        fix = f"Start one: floodmark rollout start {operator}. Those there were: floodmark rollout history {operator}"
        where = f"rollout of '{operator}'"
        raise LifecycleError(where, "one that goes on", "none", fix, code="LIFECYCLE-102")
    return record


def approve(fleet: Fleet, record: Record, version: str = "") -> Record:
    """Approve a rollout whose other guardrails hold.

    Args:
        fleet: fleet of the stream.
        record: the rollout.
        version: the approved version; by default the version of the rollout.

    Raises:
        LifecycleError: LIFECYCLE-103, the rollout has another version, or does not await approval.
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
    """Abort a rollout: its arms stop; after its promotion, the stream is rolled back.

    Args:
        fleet: fleet of the stream.
        record: the rollout.
        why: note stored with the abort.

    Raises:
        LifecycleError: LIFECYCLE-104, the rollout is being promoted or rolled back, or is over.
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
    """Do the next step of a rollout. Returns the new record.

    Args:
        fleet: fleet of the stream, with the arm's code.
        number: id of the rollout.

    Raises:
        LifecycleError: LIFECYCLE-003, another look at a rollout of the operator is running.
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
    """Handle a failed step: retry later if the error is temporary, else stop the rollout."""
    if record.state == "taking back" and error.code == _GONE:
        return known.end(record, "stopped", f"its promotion stays, as it cannot be taken back: {error}")
    if error.code in _LATER or record.kind == "experiment" or record.state not in {*BEFORE, "promoting"}:
        return _postpone(known, record, str(error))
    return _stop(known, record, str(error))


def _postpone(known: Rollouts, record: Record, waits: str, seconds: float = _RETRY_SECONDS) -> Record:
    return known.note(record, waits=waits, due=time.time() + seconds)


def _begin(fleet: Fleet, known: Rollouts, record: Record) -> Record:
    """``waiting``: start the experiment of the current stage, unless it is running."""
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
    return known.transition(record, "shadowing")


def _clean_earlier(fleet: Fleet, known: Rollouts, record: Record) -> None:
    """Remove the experiments of earlier stages and of earlier rollouts, which were retained for inspection."""
    earlier = {
        name for one in known.of(record.stream) if one.id != record.id and one.kind == "rollout" for name in one.stages
    }
    behind = record.stages[: record.stage]
    for made in lake_experiments.known(fleet.lake):
        if made.name in behind and not made.over:
            experiments.set_state(fleet, made.name, "stopped")
        if made.name in behind or (made.over and made.name in earlier):
            experiments.clean(fleet, made.name)


def _beside(decide: Callable[[Rollouts, Record, Judgement, Experiment], Record]) -> _Look:
    """The look at a rollout whose arms run beside its stream: ``decide`` on their judgement, unless the experiment has ended or been superseded."""

    def look(fleet: Fleet, known: Rollouts, record: Record) -> Record:
        made = _experiment(fleet, record)
        if made is None or made.over:
            return _experiment_ended(fleet, known, record, made)
        if why := superseded(fleet, made):
            return _superseded(known, record, why)
        judgement = judged(fleet, record, made)
        noted = known.note(
            record, guardrails=judgement.guardrails, held_since=judgement.held_since, judged_at=time.time()
        )
        return decide(known, noted, judgement, made)

    return look


@_beside
def _shadow(known: Rollouts, record: Record, judgement: Judgement, _made: Experiment) -> Record:
    """``shadowing``: report the guardrails until the declared time is over. Only a failed arm stops the rollout."""
    arm = judgement.guardrails[0]
    if arm.verdict == "fails":
        return _stop(known, record, describe_unmet([arm]))
    until = record.since + span(record.declared.shadow) / 1000
    if time.time() >= until:
        crash.point("rollout.shadowed")
        return known.transition(record, "judging")
    wait = min(until - time.time(), record.declared.promote.every_ms / 1000)
    return _postpone(known, record, f"until {describe(int(until * 1000))}: it runs beside the stream", wait)


@_beside
def _decide(known: Rollouts, record: Record, judgement: Judgement, made: Experiment) -> Record:
    """``judging`` and ``awaiting approval``: promote once all guardrails hold; stop if one fails."""
    if judgement.holds and made.sample is not None:
        crash.point("rollout.judged")
        why = f"all guardrails hold over {made.sample}"
        return known.transition(record, "waiting", why, held_since=None)
    if judgement.holds:
        crash.point("rollout.judged")
        return known.transition(record, "promoting")
    if judgement.awaits_approval and record.state != "awaiting approval":
        crash.point("rollout.asking")
        return known.transition(record, "awaiting approval")
    if record.kind == "rollout":
        if judgement.failing:
            return _stop(known, record, describe_unmet(judgement.failing))
        patience = span(record.declared.patience)
        judging = next(one.at for one in reversed(record.steps) if one.state == "judging")
        if not judgement.awaits_approval and time.time() > judging + patience / 1000:
            return _stop(known, record, f"not within {describe_span(patience)}: {describe_unmet(judgement.guardrails)}")
    if record.state == "awaiting approval" and not judgement.awaits_approval:
        return known.transition(record, "judging", describe_unmet(judgement.guardrails))
    return _postpone(known, record, describe_unmet(judgement.guardrails), record.declared.promote.every_ms / 1000)


def _experiment_ended(fleet: Fleet, known: Rollouts, record: Record, made: Experiment | None) -> Record:
    """Handle an experiment that was ended by other means."""
    if made is None or made.state == "stopped":
        return _stop(known, record, f"its experiment '{record.named}' was stopped")
    if made.promoted == record.arm:
        return _promoted(fleet, known, record)
    return known.end(record, "stopped", f"arm '{made.promoted}' was promoted by hand")


def _stop(known: Rollouts, record: Record, reason: str) -> Record:
    """Begin to stop a rollout. Records the reason before the experiment is stopped."""
    return (
        known.end(record, "stopped", reason)
        if record.kind == "experiment"
        else known.transition(record, "stopping", reason)
    )


def _superseded(known: Rollouts, record: Record, why: str) -> Record:
    """Handle a stream that runs another version meanwhile: a rollout stops; the rule of an experiment waits until the stream is rolled back."""
    if record.kind == "rollout":
        return _stop(known, record, why)
    if record.state != "judging":
        return known.transition(record, "judging", why)
    return _postpone(known, record, why, record.declared.promote.every_ms / 1000)


def _stopping(fleet: Fleet, known: Rollouts, record: Record) -> Record:
    """``stopping``: stop the arms, which are retained for inspection. The stream itself is unchanged."""
    made = _experiment(fleet, record)
    if made is not None and made.state == "starting":
        experiments.give_up(fleet, made)
    elif made is not None and not made.over:
        experiments.set_state(fleet, made.name, "stopped")
    crash.point("rollout.stopping")
    return known.end(record, "stopped", record.steps[-1].why)


def _promote(fleet: Fleet, known: Rollouts, record: Record) -> Record:
    """``promoting``: promote the arm. On failure the stream stays as it was, or is rolled back."""
    made = lake_experiments.find(fleet.lake, record.named)
    if made.state == "promoted":
        return _promoted(fleet, known, record)
    action = promotion.attempt(fleet, made, record.arm)
    if action is None and (why := superseded(fleet, made)):
        return _superseded(known, record, why)
    if action is None or action.step != "rolled back":
        request = PromotionRequest(arm=record.arm, cutover=record.declared.promote.cutover)
        try:
            _, action = promotion.promote(fleet, made.name, request)
        except LifecycleError as error:
            if error.code == _CRASHED:  # judging again decides whether the crash is final
                return known.transition(record, "judging", str(error))
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
    return known.transition(record, "watching", savepoint=back, memory=memory)


def _watch(fleet: Fleet, known: Rollouts, record: Record) -> Record:
    """``watching``: evaluate the guardrails of the promoted stream until the declared time is over. A version that fails is rolled back."""
    deployment = fleet.deployments([record.operator]).get(record.operator)
    if deployment is None or deployment.version != record.version:
        got = "nothing" if deployment is None else deployment.version
        return known.end(record, "stopped", f"the stream runs {got} now, by somebody else's doing")
    until = record.since + span(record.declared.watch) / 1000
    over = time.time() >= until
    if not record.aborted and record.kind == "rollout":
        seen, memory = watch(fleet, record, over=over)
        record = known.note(record, guardrails=seen, memory=memory, judged_at=time.time())
    guardrails = [one for one in record.guardrails if one.name in GUARDRAILS]
    failing = [one for one in guardrails if one.verdict == "fails"]
    if record.aborted or failing:
        crash.point("rollout.failed")
        return known.transition(record, "taking back", record.aborted or describe_unmet(failing))
    if not over:
        wait = min(until - time.time(), record.declared.promote.every_ms / 1000)
        return _postpone(known, record, f"until {describe(int(until * 1000))}: it is watched", wait)
    if record.kind == "rollout" and _experiment(fleet, record) is not None:
        experiments.clean(fleet, record.named)
    crash.point("rollout.watched")
    return known.end(record, "done", describe_unmet(guardrails))


def _take_back(fleet: Fleet, known: Rollouts, record: Record) -> Record:
    """``taking back``: roll the stream back to the savepoint before its promotion."""
    if not _is_back(fleet, record):
        with taking_turn(fleet, record.operator) as turn:
            actions.recover(
                fleet, record.operator, turn
            )  # complete an interrupted rollback instead of doing a second one
    if not _is_back(fleet, record):
        actions.roll_back(fleet, savepoints.find(fleet.lake, record.savepoint))
    crash.point("rollout.taken_back")
    return known.end(record, "taken back", record.steps[-1].why)


def _is_back(fleet: Fleet, record: Record) -> bool:
    """True if the newest action on the stream has rolled its promotion back."""
    newest = fleet.action(record.operator)
    return newest is not None and (newest.kind, newest.savepoint, newest.step) == (
        "rollback",
        record.savepoint,
        "done",
    )


_STATES: dict[State, _Look] = {
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


def await_due(known: Rollouts, number: int, parent: int) -> bool:
    """Wait until a rollout is due. Returns False if that is not soon, if the rollout has ended, or once the process's parent has.

    Args:
        known: the rollouts.
        number: id of the rollout.
        parent: id of the process that has started this one; a killed supervisor's next one starts looks of its own.
    """
    while os.getppid() == parent:
        record = known.find(number)
        seconds = record.due - time.time()
        if record.ended_at is not None or seconds > _STAY_SECONDS:
            return False
        if seconds <= 0:
            return True
        time.sleep(min(seconds, _POLL_SECONDS))
    return False


def main(*arguments: str) -> int:
    """Look at a rollout with its arm's code, until it has to wait. Returns the exit code.

    Args:
        arguments: ``--stay`` to wait for next looks that are due soon; id of the rollout; folder of the package with the arm's code.
    """
    *options, number, package = arguments
    parent = os.getppid()
    known = Rollouts(Store(os.environ[CONTROL]))
    record = known.find(int(number))
    try:
        workspace = load(Path(package), record.environment, record.root, record.stream.lake)
        fleet = Fleet(workspace=workspace, root=Path(record.root))
        while True:
            after = look(fleet, record.id)
            moved, record = after.state != record.state and after.ended_at is None, after
            if not moved and not ("--stay" in options and await_due(known, record.id, parent)):
                break
    except Exception as error:  # noqa: BLE001 - any failure is recorded in the rollout, and the next look retries
        traceback.print_exc()
        if getattr(error, "code", "") != "LIFECYCLE-003":  # another look is running
            _postpone(known, record, f"{type(error).__name__}: {error}", 6 * _RETRY_SECONDS)
        return 1
    sys.stdout.write(f"{after.name}: {after.state}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
