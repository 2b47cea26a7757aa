"""Experiments: versions of one stream side by side, each a fork of one savepoint that a supervisor runs; one of them may become the stream."""

from __future__ import annotations

import getpass
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from deltalake import DeltaTable

from floodmark.control import actions
from floodmark.control.fleet import Fleet, never
from floodmark.control.rollout import Rollouts
from floodmark.control.store import Action, Desired
from floodmark.control.supervisor import told
from floodmark.control.verification import Verification
from floodmark.core import crash
from floodmark.core.errors import FloodmarkError, LifecycleError
from floodmark.core.time import END, describe
from floodmark.lake import cuts, experiments, history, savepoints, switch
from floodmark.lake.fork import fork
from floodmark.lake.locks import exclusive
from floodmark.lake.outputs import input_path
from floodmark.lake.paths import Lake
from floodmark.lake.timeline import CHECKPOINT, Timeline, inputs_at, streams
from floodmark.lifecycle.cutover import CLOSED, Cut, chosen, final, numbered, parse
from floodmark.lifecycle.experiment import Arm, Experiment, Operations, State
from floodmark.lifecycle.pairing import Results, check_paired
from floodmark.lifecycle.report import Report
from floodmark.lifecycle.steps import Follow, Step, take
from floodmark.lifecycle.switch import steps
from floodmark.lifecycle.usage import Usage
from floodmark.observe.comparison.arms import compare_arms
from floodmark.observe.comparison.compare import How
from floodmark.spec.rollout import PromoteWhen, Rollout
from floodmark.spec.schema import first_sequence

_NAME = re.compile(r"[a-z][a-z0-9_]{0,39}")
_CURRENT, _HERE = "@current", "."
_FEWEST = 2
"""Arms."""
CRASHED = "a crash"
"""What is found, LIFECYCLE-096, of an arm whose driver has crashed; a supervisor may start it again."""
_POLL_SECONDS = 0.2
_DESIRED: dict[State, Desired] = {"running": "running", "paused": "stopped", "stopped": "stopped"}


def start(  # noqa: PLR0913 - settings by name
    fleet: Fleet,
    name: str,
    operator: str,
    codes: Mapping[str, str],
    *,
    savepoint: str = "",
    forward_only: bool = False,
    rebuild: bool = False,
    promote: PromoteWhen | None = None,
    candidate: str = "",
    why: str = "",
) -> Experiment:
    """Let several versions of a stream run side by side, beside the stream itself. Done again after a crash, it goes on.

    Args:
        fleet: of the stream, which goes on and notices nothing.
        name: of the experiment.
        operator: whose stream it is.
        codes: arm -> ``@current`` for what the stream runs, ``.`` for the code as it is now, or the name of a package. The first is what the
            others are compared with.
        savepoint: id of the one all begin with; by default one is made.
        forward_only: accept that open windows of an arm hold what the stream's definition let through.
        rebuild: an arm whose code cannot go on from the savepoint computes all input, from the first row.
        promote: when an arm becomes the stream by itself.
        candidate: name of that arm; by default the only one besides the first.
        why: a note.

    Raises:
        LifecycleError: LIFECYCLE-030 no such stream has begun, LIFECYCLE-050 none runs whose code ``@current`` could be,
            LIFECYCLE-091 the name is taken or the operator has an experiment, LIFECYCLE-093 the arms are not what an experiment
            is made of, LIFECYCLE-092 the candidate is none of them or the first, LIFECYCLE-094 the code of one cannot go on from the
            savepoint, LIFECYCLE-100 a rollout of the operator goes on, LIFECYCLE-112 the rule can never hold. Nothing runs then.
    """
    if promote is not None:
        candidate = _candidate(name, list(codes), candidate)
    with _alone(fleet.lake):
        known = experiments.known(fleet.lake)
        made = next((one for one in known if one.name == name), None)
        same = made is not None and (made.operator, [(one.name, one.code) for one in made.arms]) == (
            operator,
            list(codes.items()),
        )
        if made is None or not same or made.state != "starting":
            _check(known, name, operator, codes)
            made = replace(_begun(fleet, name, operator, codes, savepoint, why), promote=promote, candidate=candidate)
            experiments.keep(fleet.lake, made)
        crash.point("experiment.after_record")
        try:
            return _set_up(fleet, made, forward_only=forward_only, rebuild=rebuild)
        except FloodmarkError:
            _forget(fleet, made)
            raise


def _check(known: Iterable[Experiment], name: str, operator: str, codes: Mapping[str, str]) -> None:
    for one in known:
        if one.name == name:
            fix = f"Choose another name; or remove that one: floodmark experiment clean {name}"
            where, got = f"experiment '{name}'", f"one of '{one.operator}' that is {one.state}"
            raise LifecycleError(where, "a name that is not taken", got, fix, code="LIFECYCLE-091")
        if one.operator == operator and not one.over:
            fix = f"End that one first: floodmark experiment stop {one.name}"
            where, got = f"experiment '{name}' of '{operator}'", f"'{one.name}', which is {one.state}"
            raise LifecycleError(where, "no other experiment of the operator", got, fix, code="LIFECYCLE-091")
    wrong = [one for one in (name, *codes) if not _NAME.fullmatch(one)]
    got = f"the name {wrong[0]!r}" if wrong else f"{len(codes)} of them" if len(codes) < _FEWEST else ""
    if got:
        fix = "For example: --arm a=@current --arm b=. Names are lower-case letters, digits and underscores."
        raise LifecycleError(f"experiment '{name}'", "two arms or more", got, fix, code="LIFECYCLE-093")


def _begun(fleet: Fleet, name: str, operator: str, codes: Mapping[str, str], savepoint: str, why: str) -> Experiment:
    lake = fleet.lake
    packages = {arm: _package(fleet, name, operator, code) for arm, code in codes.items()}
    origin = (
        savepoints.of(lake, operator, savepoint)
        if savepoint
        else savepoints.create(operator, lake, why=f"experiment {name}", code=fleet.codes().get(operator))
    )
    arms = [
        Arm(name=arm, code=code, package=packages[arm], version="", root=experiments.root_of(lake, name, arm))
        for arm, code in codes.items()
    ]
    return Experiment(
        name=name,
        operator=operator,
        savepoint=origin.manifest.id,
        arms=tuple(arms),
        state="starting",
        who=getpass.getuser(),
        why=why,
        began_at=time.time_ns() // 1_000_000,
        since=origin.manifest.watermark,
    )


def _candidate(name: str, arms: list[str], given: str) -> str:
    """The arm a rule is about."""
    if given in arms[1:]:
        return given
    if given or len(arms) != _FEWEST:
        got = f"'{given}'" if given else f"{len(arms) - 1} that it could be"
        fix = f"Name one of {', '.join(arms[1:])}; the first arm is what the others are compared with."
        raise LifecycleError(f"experiment '{name}'", "the arm that is to be promoted", got, fix, code="LIFECYCLE-092")
    return arms[1]


def _package(fleet: Fleet, name: str, operator: str, code: str) -> str:
    """The package that an arm's code is kept in."""
    if code == _HERE:
        return fleet.pack()
    if code == _CURRENT:
        running = fleet.deployments([operator]).get(operator)
        if running is None:
            raise never(operator, fleet.elsewhere(operator))
        return running.package
    if not code or "/" in code or not (fleet.home / "packages" / code).is_dir():
        fix = f"{_CURRENT} is what runs, {_HERE} is the code as it is now; packages are the folders in {fleet.home / 'packages'}."
        raise LifecycleError(f"experiment '{name}'", "code that is kept", f"'{code}'", fix, code="LIFECYCLE-093")
    return code


def _set_up(fleet: Fleet, made: Experiment, *, forward_only: bool, rebuild: bool) -> Experiment:
    lake, ready, results = fleet.lake, list[Arm](), dict[str, Results]()
    savepoint = savepoints.find(lake, made.savepoint)
    for arm in made.arms:
        if Timeline.current(Lake(arm.root), made.operator).identity.deployed() is None:
            fork(lake, savepoint, arm.root)
        crash.point("experiment.after_fork")
        prepared, results[arm.name] = _prepared(fleet, made, arm, forward_only=forward_only, rebuild=rebuild)
        ready.append(prepared)
        crash.point("experiment.after_arm")
    made = made.having(ready)
    if made.promote is not None:
        where = f"experiment '{made.name}', arm '{made.candidate}'"
        check_paired(where, made.operator, results[made.arms[0].name], results[made.candidate], made.promote)
        _latest(fleet, made, made.arm(made.candidate), made.promote.cutover and CLOSED, lake)
        _follow(fleet, made, made.arm(made.candidate), made.promote)
        crash.point("experiment.after_rule")
    made = experiments.keep(lake, replace(made, state="running"))
    crash.point("experiment.after_arms")
    _want(fleet, made)
    return made


def _follow(fleet: Fleet, made: Experiment, arm: Arm, rule: PromoteWhen) -> None:
    """Let supervisors see to the rule of an experiment, unless it is a rollout's."""
    known, stream = Rollouts(fleet.store), fleet.stream(made.operator)
    there = known.open(stream)
    if there is None or there.named != made.name:
        known.begin(
            stream,
            declared=Rollout(shadow="0 s", watch="0 s", promote=rule),
            state="judging",
            root=str(fleet.root),
            environment=fleet.workspace.settings.environment,
            kind="experiment",
            experiment=made.name,
            arm=arm.name,
            package=arm.package,
            version=arm.version,
            who=made.who,
            why=made.why,
        )


def _prepared(fleet: Fleet, made: Experiment, arm: Arm, *, forward_only: bool, rebuild: bool) -> tuple[Arm, Results]:
    """Its stream goes on under its own code, which a process of its own loads; and what it writes."""
    folder = fleet.home / "packages" / arm.package
    given = {
        "package": str(folder),
        "environment": fleet.workspace.settings.environment,
        "root": str(fleet.root),
        "lake": arm.root,
        "operator": made.operator,
        "forward_only": forward_only,
        "rebuild": rebuild,
        "original": fleet.lake.root,
        "savepoint": made.savepoint,
    }
    command = [sys.executable, "-m", "floodmark.control.arm", json.dumps(given)]
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(filter(None, [str(folder), os.environ.get("PYTHONPATH")])),
    }
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    answer: dict[str, Any] = (
        json.loads(done.stdout.splitlines()[-1]) if done.returncode == 0 else {"refused": done.stderr[-2000:]}
    )
    if "refused" in answer:
        fix = "Nothing runs of it. Let open windows go on as they are: --forward-only. Let it compute all input anew: --rebuild. Or change its code."
        where = f"experiment '{made.name}', arm '{arm.name}'"
        expected = f"code that goes on from {made.savepoint}"
        raise LifecycleError(where, expected, answer["refused"], fix, code="LIFECYCLE-094")
    ready = replace(arm, version=answer["version"], differs=tuple(answer["differs"]), anew=bool(answer["anew"]))
    return ready, Results(**answer["results"])


def _want(fleet: Fleet, made: Experiment) -> None:
    """Let the supervisor know what its arms should do."""
    for arm in made.arms:
        of(fleet, arm).deploy(made.operator, arm.package, arm.version, _DESIRED[made.state])


def _stop(fleet: Fleet, made: Experiment) -> None:
    """Wait until no arm runs."""
    for arm in made.arms:
        of(fleet, arm).stop([made.operator])


def of(fleet: Fleet, arm: Arm) -> Fleet:
    """The stream of an arm, in the store of the fleet."""
    return replace(fleet, workspace=fleet.workspace.at(str(fleet.root), lake=arm.root))


def set_state(fleet: Fleet, name: str, state: State) -> Experiment:
    """Let all arms run, pause, or stop for good.

    Raises:
        LifecycleError: LIFECYCLE-090 no such experiment, LIFECYCLE-095 it is over, or has not started, LIFECYCLE-053 an arm does not stop.
    """
    with _alone(fleet.lake):
        made = experiments.find(fleet.lake, name)
        if made.over or made.state == "starting":
            raise _not(made, "one that goes on")
        ended = time.time_ns() // 1_000_000 if state == "stopped" else None
        made = experiments.keep(fleet.lake, replace(made, state=state, ended_at=ended))
        crash.point("experiment.after_state")
        _want(fleet, made)
        if state != "running":
            _stop(fleet, made)
        return made


def clean(fleet: Fleet, name: str) -> Experiment:
    """Remove the tables of all arms, what was found, and the record of an experiment that is over; the stream itself is not touched.

    Raises:
        LifecycleError: LIFECYCLE-090 no such experiment, LIFECYCLE-095 it goes on.
    """
    with _alone(fleet.lake):
        made = experiments.find(fleet.lake, name)
        if not made.over:
            raise _not(made, "one that is over", f"End it first: floodmark experiment stop {name}")
        _forget(fleet, made)
        return made


def give_up(fleet: Fleet, made: Experiment) -> None:
    """Remove what there is of an experiment whose start was killed."""
    with _alone(fleet.lake):
        _forget(fleet, made)


def _forget(fleet: Fleet, made: Experiment) -> None:
    _withdraw(fleet, made)
    crash.point("experiment.after_withdrawal")
    experiments.forget(fleet.lake, made)


def _withdraw(fleet: Fleet, made: Experiment) -> None:
    for arm in made.arms:
        there = of(fleet, arm)
        if there.deployments([made.operator]):
            there.stop([made.operator])
            there.store.withdraw(there.stream(made.operator))


def _not(made: Experiment, expected: str, fix: str = "") -> LifecycleError:
    fix = fix or f"See how it is: floodmark experiment show {made.name}"
    return LifecycleError(f"experiment '{made.name}'", expected, f"one that is {made.state}", fix, code="LIFECYCLE-095")


def _alone(lake: Lake) -> AbstractContextManager[None]:
    """The only change of an experiment of a lake."""
    return exclusive(lake, "actions", "experiment", "change of an experiment")


# ---- how they are


def operations(fleet: Fleet, made: Experiment) -> list[Operations]:
    """How the arms run, in their order."""
    arms = [_operations(of(fleet, arm), made.operator, arm) for arm in made.arms]
    foremost = max((one.progress for one in arms if one.progress is not None), default=None)
    if foremost is None:
        return arms
    return [replace(one, behind=None if one.progress is None else (foremost - one.progress) / 1000) for one in arms]


def _operations(there: Fleet, operator: str, arm: Arm) -> Operations:
    timeline, drivers = Timeline.current(Lake(arm.root), operator), there.store.drivers(there.stream(operator))
    last, usage = timeline.checkpoint.last_committed(), Usage()
    for one in drivers:
        usage = usage.plus(Usage.parse(one.usage))
    progress = timeline.checkpoint.settled(last) if last >= 0 else None
    behind = lag(there.lake, timeline)
    return Operations(
        arm=arm,
        driver=told(drivers[0]) if drivers else "not started yet",
        progress=progress,
        lag=None if behind is None else behind / 1000,
        usage=usage,
        state=_size(timeline.folder(CHECKPOINT)),
    )


def lag(lake: Lake, timeline: Timeline) -> int | None:
    """How far a stream is behind the slowest of its inputs, ms of event time; None where an input does not say, or has ended."""
    deployed, last = timeline.identity.deployed(), timeline.checkpoint.last_committed()
    if deployed is None or last < 0:
        return None
    found = [history.progress(input_path(lake, table)) for _, table, *_ in deployed.graph["inputs"]]
    known = [one for one in found if one is not None]
    if len(known) < len(found) or not known or min(known) >= END:
        return None
    return max(0, min(known) - timeline.checkpoint.settled(last))


def _size(folder: str) -> int | None:
    """Bytes of the files of a folder of this machine."""
    if not Path(folder).is_dir():
        return None
    size = 0
    for place, _, names in os.walk(folder):
        for name in names:
            with suppress(FileNotFoundError):  # the stream has removed it meanwhile
                size += Path(place, name).stat().st_size
    return size


def report(fleet: Fleet, name: str, how: How, *, match: float = 1.0) -> Report:
    """Compare what the arms have found, in all that has closed in both since the last look, and say how they run.

    Args:
        fleet: of the stream.
        name: of the experiment.
        how: the arms are compared; that of the first look stays.
        match: least share of rows that must be the same, 0 to 1.

    Raises:
        LifecycleError: LIFECYCLE-090 no such experiment; as ``advance``.
    """
    made = experiments.find(fleet.lake, name)
    operator = next((one for one in fleet.workspace.operators if one.name == made.operator), None)
    found = compare_arms(fleet.lake, made, operator, how)
    of_rule = (one for one in Rollouts(fleet.store).of(fleet.stream(made.operator)) if one.named == name)
    gates = next((one.gates for one in of_rule), ())
    return Report(experiment=made, match=match, found=found, operations=tuple(operations(fleet, made)), gates=gates)


# ---- one becomes the stream


def promote(
    fleet: Fleet, name: str, arm: str, verification: Verification, cutover: str = ""
) -> tuple[Experiment, Action]:
    """Let the stream be what an arm is: its state, its code, and its tables in one commit each; else all stays as it was.

    The stream and those that read it stop; the arm reads what they have read, and stops; the tables of the stream become the arm's; the
    stream starts in the arm's code and is verified. Readers have read what was replaced, and have to be computed anew. Done again after a
    crash, it is finished. ``floodmark rollback`` to the savepoint that is made first takes it back.

    Args:
        fleet: of the stream.
        name: of the experiment.
        arm: which.
        verification: of the new version.
        cutover: the event time from which results are the arm's: an instant, ISO 8601, at which results are final, or ``closed`` for the
            latest of these. By default all results since the versions parted are.

    Returns:
        The experiment, and what was done, which ended as ``done`` or ``rolled back``.

    Raises:
        LifecycleError: LIFECYCLE-090 no such experiment, LIFECYCLE-092 no such arm, LIFECYCLE-095 it is not running, LIFECYCLE-096 the
            arm does not run or does not come to where the stream is, LIFECYCLE-110 its results cannot be cut over by
            event time, LIFECYCLE-111 they are not final then; else as an upgrade.
    """
    made, why = experiments.find(fleet.lake, name), why_of(name, arm)
    chosen, again = made.arm(arm), _again(name, arm)
    left = switch.pending(fleet.lake)
    if made.state != "running" and left is None:
        raise _not(made, "one whose arms run")
    operator, there = made.operator, of(fleet, chosen)
    with actions.taking_turn(fleet, operator) as turn:
        killed = fleet.store.unfinished(fleet.stream(operator))
        actions.settle(fleet, operator, turn)
        if killed is not None and killed.why == why and (done := fleet.store.action(killed.id)).step == "done":
            return _promoted(fleet, made, arm), done
        old = killed.old if killed is not None and killed.why == why else actions.wanted(fleet, [operator])
        actions.check_supervised(fleet, old | {operator: old[operator] | {"desired": "running"}})
        switch.refuse_another(fleet.lake, operator, again)
        _check_runs(there, made, chosen)
        if left is None:
            _latest(fleet, made, chosen, cutover, fleet.lake)
        old |= {operator: old[operator] | {"next": chosen.package}}
        action = actions.begin(fleet, "upgrade", operator, chosen.version, old, step="rebuilding", why=why)
        try:
            back = _become(fleet, made, chosen, action, verification, cutover, again)
        except FloodmarkError as error:
            actions.abandon(fleet, fleet.store.action(action.id), str(error))
            raise
        turn()
        fleet.store.go_on(action.id, "verifying", savepoint=back)
        done = actions.go_over(
            fleet,
            chosen.package,
            savepoints.find(fleet.lake, back),
            fleet.store.action(action.id),
            verification,
            turn,
        )
        return (_promoted(fleet, made, arm) if done.step == "done" else made), done


def promote_steps(fleet: Fleet, name: str, arm: str, verification: Verification, cutover: str = "") -> list[Step]:
    """The steps of a promotion that would succeed. As ``promote``."""
    made, lake = experiments.find(fleet.lake, name), fleet.lake
    chosen, operator = made.arm(arm), made.operator
    begun = switch.pending(lake)
    if made.state != "running" and begun is None:
        raise _not(made, "one whose arms run")
    old = actions.wanted(fleet, [operator])
    started = actions.starting(operator, chosen.version, old[operator], verification)
    if begun is not None:
        switch.refuse_another(lake, operator, _again(name, arm))
        return [*switch.steps(lake, begun), *started]
    _check_runs(of(fleet, chosen), made, chosen)
    names = [operator, *cuts.readers(operator, streams(lake))]
    arms = Timeline.current(Lake(chosen.root), operator).identity
    deployed = arms.deployed()
    tables = deployed.tables if deployed is not None else ()
    cut = _cut(fleet, made, chosen, cutover)
    turn = switch.beside_turn(lake, operator, chosen.root, tables, arms.result_keys(), cut)
    old = actions.wanted(fleet, names, need=False)
    before = actions.pausing(names, old, _before(made, chosen))
    return [*before, Follow(operator=operator, arm=arm), *steps([turn]), *started]


def _again(name: str, arm: str) -> str:
    """The command of a promotion."""
    return f"floodmark experiment promote {name} --arm {arm}"


def _before(made: Experiment, arm: Arm) -> str:
    """What the savepoint says that is made before a promotion."""
    return f"before the {_why(made, arm)}"


def _why(made: Experiment, arm: Arm) -> str:
    """What the savepoint says by which an arm's state goes over."""
    return f"promotion of arm {arm.name} of experiment {made.name}"


def why_of(name: str, arm: str) -> str:
    """What the control store says of the promotion of an arm."""
    return f"arm {arm} of experiment {name}"


def _promoted(fleet: Fleet, made: Experiment, arm: str) -> Experiment:
    with _alone(fleet.lake):
        ended = time.time_ns() // 1_000_000
        made = experiments.keep(fleet.lake, replace(made, state="promoted", promoted=arm, ended_at=ended))
    _stop(fleet, made)
    return made


def _become(
    fleet: Fleet, made: Experiment, arm: Arm, action: Action, verification: Verification, cutover: str, again: str
) -> str:
    """The stream stopped, and what the arm is; the savepoint to go back to."""
    lake, operator, there = fleet.lake, made.operator, of(fleet, arm)
    begun, why = switch.pending(lake), _why(made, arm)
    if begun is not None:
        taken, back = begun.targets[0].savepoint, begun.back
        with switch.stopped(lake, begun.operators):
            switch.perform(lake, begun)
    else:
        reading = cuts.readers(operator, streams(lake))
        back = actions.pause(fleet, [operator, *reading], action.id, _before(made, arm)).manifest.id
        follow = Follow(operator=operator, arm=arm.name)
        take([follow], lambda _: _brought_up(fleet, made, arm, verification.patience))
        with switch.stopped(lake, [operator, *reading]), switch.stopped(there.lake, [operator]):
            for one in savepoints.savepoints(lake, operator):  # of a promotion that was killed before its switch
                if one.manifest.why == why:
                    savepoints.delete(one)
            cut = _cut(fleet, made, arm, cutover)
            taken = switch.become(lake, operator, there.lake, again=again, back=back, why=why, cut=cut)
    savepoints.delete(savepoints.find(lake, taken))
    return back


def _cut(fleet: Fleet, made: Experiment, arm: Arm, cutover: str) -> Cut | None:
    """Which results of the stream stay; None for those from before the versions parted, which are the arm's too."""
    beside = Lake(arm.root)
    at = _latest(fleet, made, arm, cutover, fleet.lake, beside)
    deployed = Timeline.current(beside, made.operator).identity.deployed()
    if at is None or deployed is None:
        return None
    paths = {table: fleet.lake.output(table) for table in deployed.tables}
    staying = {table: DeltaTable(path).version() for table, path in paths.items() if DeltaTable.is_deltatable(path)}
    parted = savepoints.find(fleet.lake, made.savepoint).manifest.batch
    cut = Cut(at=at, since=first_sequence(parted + 1) if numbered(deployed.graph) else None, staying=staying)
    switch.check_cut(fleet.lake, beside, cut)
    return cut


def _latest(fleet: Fleet, made: Experiment, arm: Arm, cutover: str, *lakes: Lake) -> int | None:
    """The instant of a cut-over, before which results are final in all of some lakes; None for no cut-over."""
    if not cutover:
        return None
    where = f"experiment '{made.name}', cut-over to arm '{arm.name}'"
    timelines = [Timeline.current(lake, made.operator) for lake in lakes]
    parted = savepoints.find(fleet.lake, made.savepoint).manifest
    if arm.anew or timelines[0].number != parted.timeline:
        fix = "Leave the cut-over out: all its results are the new version's then."
        got = "computed all input anew" if arm.anew else f"went back, or another way, since {parted.id}"
        raise LifecycleError(
            where, "versions that went on from one savepoint", f"one that {got}", fix, code="LIFECYCLE-110"
        )
    found = [(one.identity.deployed(), one.checkpoint.settled(one.checkpoint.last_committed())) for one in timelines]
    latest = min(final(deployed.graph, settled, where) for deployed, settled in found if deployed is not None)
    return chosen(parse(cutover, where), latest, where)


def _check_runs(there: Fleet, made: Experiment, arm: Arm) -> None:
    driver = there.driver(made.operator)
    if driver is not None and driver.ended_at is not None and driver.state == "crashed":
        fix = f"See what its driver says: floodmark logs {made.operator} --lake {arm.root}"
        where = f"experiment '{made.name}', arm '{arm.name}'"
        raise LifecycleError(where, "an arm that runs", f"{CRASHED}: {driver.reason}", fix, code="LIFECYCLE-096")


def _brought_up(fleet: Fleet, made: Experiment, arm: Arm, patience: float) -> None:
    """Wait until an arm has read all that the stopped stream has read, and let it stop."""
    there = of(fleet, arm)
    if (
        there.deployments([made.operator])[made.operator].desired == "stopped"
    ):  # by a promotion that was killed, or by hand
        there.want(made.operator, "running")
    _catch_up(fleet, made, arm, patience)
    of(fleet, arm).stop([made.operator])


def _catch_up(fleet: Fleet, made: Experiment, arm: Arm, patience: float) -> None:
    ours, theirs = Timeline.current(fleet.lake, made.operator), Timeline.current(Lake(arm.root), made.operator)
    wanted = inputs_at(ours, ours.checkpoint.last_committed())
    until = time.monotonic() + patience
    while True:
        last = theirs.checkpoint.last_committed()
        read = inputs_at(theirs, last) if last >= 0 else {}
        if all(name in read and read[name].version >= one.version for name, one in wanted.items()):
            return
        _check_runs(of(fleet, arm), made, arm)
        if time.monotonic() > until:
            reached = describe(theirs.checkpoint.settled(last)) if last >= 0 else "no micro-batch"
            fix = "Wait until it has caught up, and ask again; or give it longer: --patience."
            where = f"experiment '{made.name}', arm '{arm.name}'"
            expected = f"an arm that has read what the stream has, within {patience:.0f} s"
            raise LifecycleError(where, expected, f"one at {reached}", fix, code="LIFECYCLE-096")
        time.sleep(_POLL_SECONDS)
