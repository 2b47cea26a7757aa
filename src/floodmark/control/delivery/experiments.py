"""Experiments: several versions of one stream run side by side as supervised forks of one savepoint. One of them may be promoted to the stream."""

from __future__ import annotations

import getpass
import json
import re
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any

from floodmark.control.delivery.cutover import check_cutover
from floodmark.control.processes.supervisor import describe_driver
from floodmark.control.state.records import Desired
from floodmark.control.state.rollout import Rollouts
from floodmark.control.streams.fleet import Fleet, error_never_started
from floodmark.core import crash
from floodmark.core.background import with_package
from floodmark.core.errors import FloodmarkError, LifecycleError
from floodmark.core.time import END
from floodmark.lake.folder.copies import size_of
from floodmark.lake.folder.locks import exclusive
from floodmark.lake.folder.paths import Lake
from floodmark.lake.restore import experiments, savepoints
from floodmark.lake.restore.fork import fork
from floodmark.lake.stream import sample
from floodmark.lake.stream.checkpoint import checkpoint_at
from floodmark.lake.stream.identity import Identity
from floodmark.lake.stream.sample import drawn
from floodmark.lake.stream.timeline import CHECKPOINT, Timeline
from floodmark.lake.table import history
from floodmark.lake.table.outputs import input_path
from floodmark.lifecycle.cutover import CLOSED
from floodmark.lifecycle.experiment import CURRENT, Arm, Experiment, Operations, Sample, State
from floodmark.lifecycle.pairing import Results, check_paired, check_sampled
from floodmark.lifecycle.report import Report
from floodmark.lifecycle.requests import ComparisonRequest, ExperimentRequest
from floodmark.lifecycle.usage import Usage
from floodmark.observe.comparison.arms import compare_arms
from floodmark.observe.comparison.compare import How
from floodmark.spec.assets.rollout import PromoteWhen, Rollout
from floodmark.spec.graph.operator import Operator

_NAME = re.compile(r"[a-z][a-z0-9_]{0,39}")
_HERE = "."
_FEWEST = 2
"""Least number of arms."""
_DESIRED: dict[State, Desired] = {"running": "running", "paused": "stopped", "stopped": "stopped"}


def start(
    fleet: Fleet, name: str, operator: str, request: ExperimentRequest, rule: PromoteWhen | None = None
) -> Experiment:
    """Start an experiment: several versions of a stream run beside the stream itself. Repeating the call after a crash completes it.

    Args:
        fleet: fleet of the stream, which keeps running unchanged.
        name: name of the experiment.
        operator: name of the stream's operator.
        request: arms and options.
        rule: the rule that promotes an arm automatically; by default the request's rule.

    Raises:
        DefinitionError: DEFINITION-162, the rule names a column that the current code lacks.
        LifecycleError: LIFECYCLE-030 the stream has no committed micro-batch, LIFECYCLE-050 no deployed stream has code for ``@current``,
            LIFECYCLE-116 the arms cannot run over a sample of the keys, LIFECYCLE-091 the name is taken or the operator has an experiment,
            LIFECYCLE-093 names or number of the arms are invalid, LIFECYCLE-092 the candidate is no arm or the first one, LIFECYCLE-094 the code of an
            arm cannot resume from the savepoint, LIFECYCLE-100 the operator has an open rollout, LIFECYCLE-112 the rule can never hold. No arm runs
            after an error.
    """
    codes, rule = request.arms, rule or request.rule
    if rule is not None:
        rule.check(fleet.workspace.operator(operator))
    candidate = _candidate(name, list(codes), request.promote) if rule is not None else ""
    keys = _sample(_divided(fleet, operator, request), name, request, rule)
    with _change_lock(fleet.lake):
        known = experiments.known(fleet.lake)
        made = next((one for one in known if one.name == name), None)
        same = made is not None and (made.operator, [(one.name, one.code) for one in made.arms]) == (
            operator,
            list(codes.items()),
        )
        if made is not None and same and made.state == "running" and not _all_deployed(fleet, made):
            _deploy_arms(fleet, made)
            return made
        if made is None or not same or made.state != "starting":
            _check(known, name, operator, codes)
            made = replace(
                _new_experiment(fleet, name, operator, request, known), promote=rule, candidate=candidate, sample=keys
            )
            experiments.keep(fleet.lake, made)
        crash.point("experiment.after_record")
        try:
            return _set_up(fleet, made, request)
        except FloodmarkError:
            _forget(fleet, made)
            raise


def _check(known: Iterable[Experiment], name: str, operator: str, codes: Mapping[str, str]) -> None:
    for experiment in known:
        if experiment.name == name:
            fix = f"Choose another name; or remove that one: floodmark experiment clean {name}"
            where, got = f"experiment '{name}'", f"one of '{experiment.operator}' that is {experiment.state}"
            raise LifecycleError(where, "a name that is not taken", got, fix, code="LIFECYCLE-091")
        if experiment.operator == operator and not experiment.over:
            fix = f"End that one first: floodmark experiment stop {experiment.name}"
            where, got = f"experiment '{name}' of '{operator}'", f"'{experiment.name}', which is {experiment.state}"
            raise LifecycleError(where, "no other experiment of the operator", got, fix, code="LIFECYCLE-091")
    wrong = [text for text in (name, *codes) if not _NAME.fullmatch(text)]
    where = f"experiment '{name}'"
    if wrong:
        expected = "names of lower-case letters, digits and underscores, at most 40, that begin with a letter"
        raise LifecycleError(where, expected, f"the name {wrong[0]!r}", "Choose another one.", code="LIFECYCLE-093")
    if len(codes) < _FEWEST:
        fix = "For example: --arm a=@current --arm b=. In Dagster, config: arms: {a: '@current', b: '.'}"
        raise LifecycleError(where, "two arms or more", f"{len(codes)} of them", fix, code="LIFECYCLE-093")


def _new_experiment(
    fleet: Fleet, name: str, operator: str, request: ExperimentRequest, known: Iterable[Experiment]
) -> Experiment:
    lake, codes = fleet.lake, request.arms
    packages = {arm: _package(fleet, name, operator, code) for arm, code in codes.items()}
    origin = (
        savepoints.of(lake, operator, request.savepoint)
        if request.savepoint
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
        why=request.note,
        began_at=experiments.next_start(known),
        since=origin.manifest.watermark,
    )


def _candidate(name: str, arms: list[str], candidate: str) -> str:
    """Name of the arm that a rule promotes."""
    if candidate in arms[1:]:
        return candidate
    if candidate or len(arms) != _FEWEST:
        got = f"'{candidate}'" if candidate else f"{len(arms) - 1} that it could be"
        fix = f"Name one of {', '.join(arms[1:])}; the first arm is what the others are compared with."
        raise LifecycleError(f"experiment '{name}'", "the arm that is to be promoted", got, fix, code="LIFECYCLE-092")
    return arms[1]


def _divided(fleet: Fleet, operator: str, request: ExperimentRequest) -> Operator:
    """The operator with the key groups that the arms have: those of the savepoint from which they go on, by default those of the stream."""
    identity = None
    if request.savepoint and request.sample != 1:
        named = savepoints.of(fleet.lake, operator, request.savepoint)
        identity = Identity(checkpoint_at(f"{named.path}/{CHECKPOINT}"))
    return sample.grouped(fleet.lake, fleet.workspace.operator(operator), identity)


def _sample(operator: Operator, name: str, request: ExperimentRequest, rule: PromoteWhen | None) -> Sample | None:
    """The sample of keys that the arms run over; None for all keys."""
    if request.sample == 1:
        return None
    where, share, step = f"experiment '{name}'", request.sample, operator.stateful
    got = "a share of 0" if share == 0 else "a rule by which one of them becomes the stream" if rule is not None else ""
    if not got and len(operator.stages) > 1:
        got = f"'{operator.name}', whose stages have keys of their own"
    if got or step is None:
        fix = "Leave --sample out; or leave the rule out, and let an experiment over all keys follow."
        expected = "arms that run over some of the keys, and are compared"
        got = got or f"'{operator.name}', which has no key"
        raise LifecycleError(where, expected, got, fix, code="LIFECYCLE-116")
    bundled = step.key_groups is not None
    return Sample(groups=drawn(name, share, step.groups), among=step.groups, bundled=bundled)


def _package(fleet: Fleet, name: str, operator: str, code: str) -> str:
    """Name of the package with an arm's code: ``.`` packs the current code, ``@current`` is the deployed package."""
    if code == _HERE:
        return fleet.pack()
    if code == CURRENT:
        running = fleet.deployments([operator]).get(operator)
        if running is None:
            raise error_never_started(operator, fleet.elsewhere(operator))
        return running.package
    if not code or "/" in code or not (fleet.home / "packages" / code).is_dir():
        fix = f"{CURRENT} is what runs, {_HERE} is the code as it is now; packages are the folders in {fleet.home / 'packages'}."
        raise LifecycleError(f"experiment '{name}'", "code that is kept", f"'{code}'", fix, code="LIFECYCLE-093")
    return code


def _set_up(fleet: Fleet, made: Experiment, request: ExperimentRequest) -> Experiment:
    lake, ready, results = fleet.lake, list[Arm](), dict[str, Results]()
    savepoint = savepoints.find(lake, made.savepoint)
    for arm in made.arms:
        if Timeline.current(Lake(arm.root), made.operator).identity.deployed() is None:
            fork(lake, savepoint, arm.root)
        if made.sample is not None:
            sample.keep(Lake(arm.root), made.operator, made.sample.groups, made.sample.among)
        crash.point("experiment.after_fork")
        prepared, results[arm.name] = _prepared(fleet, made, arm, request)
        ready.append(prepared)
        crash.point("experiment.after_arm")
    made = made.having(ready)
    if made.sample is not None:
        check_sampled(f"experiment '{made.name}'", results)
    if made.promote is not None:
        where = f"experiment '{made.name}', arm '{made.candidate}'"
        check_paired(where, made.operator, results[made.arms[0].name], results[made.candidate], made.promote)
        check_cutover(lake, made, made.arm(made.candidate), made.promote.cutover and CLOSED)
        _record_rule(fleet, made, made.arm(made.candidate), made.promote)
        crash.point("experiment.after_rule")
    made = experiments.keep(lake, replace(made, state="running"))
    crash.point("experiment.after_arms")
    _deploy_arms(fleet, made)
    return made


def _record_rule(fleet: Fleet, made: Experiment, arm: Arm, rule: PromoteWhen) -> None:
    """Record the rule of an experiment so that supervisors evaluate it, unless the experiment belongs to a rollout."""
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


def _prepared(fleet: Fleet, made: Experiment, arm: Arm, request: ExperimentRequest) -> tuple[Arm, Results]:
    """Prepare an arm's stream for its code, in a process that loads that code. Returns the arm with its version, and its results."""
    folder = fleet.home / "packages" / arm.package
    arm_request = {
        "package": str(folder),
        "environment": fleet.workspace.settings.environment,
        "root": str(fleet.root),
        "lake": arm.root,
        "operator": made.operator,
        "forward_only": request.forward_only,
        "rebuild": request.rebuild,
        "original": fleet.lake.root,
        "savepoint": made.savepoint,
    }
    command = [sys.executable, "-m", "floodmark.control.processes.arm", json.dumps(arm_request)]
    done = subprocess.run(command, cwd=folder, env=with_package(folder), capture_output=True, text=True, check=False)
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


def _deploy_arms(fleet: Fleet, made: Experiment) -> None:
    """Deploy the arms of an experiment with the desired state of the experiment."""
    for arm in made.arms:
        of(fleet, arm).deploy(made.operator, arm.package, arm.version, _DESIRED[made.state])


def _all_deployed(fleet: Fleet, made: Experiment) -> bool:
    """True if every arm is deployed; False if the start was killed before."""
    return all(of(fleet, arm).deployments([made.operator]) for arm in made.arms)


def _stop(fleet: Fleet, made: Experiment) -> None:
    """Stop all arms, and wait until none runs."""
    for arm in made.arms:
        of(fleet, arm).stop([made.operator])


def of(fleet: Fleet, arm: Arm) -> Fleet:
    """The fleet of an arm's lake, with the same control store. Each arm has a process of its own, so that its usage is known."""
    workspace = fleet.workspace.at(str(fleet.root), lake=arm.root)
    return replace(fleet, workspace=workspace.having(replace(workspace.settings, streams="isolated")))


def set_state(fleet: Fleet, name: str, state: State) -> Experiment:
    """Set the state of all arms of an experiment: ``running``, ``paused``, or ``stopped`` for good. Waits until stopped arms have ended.

    Raises:
        LifecycleError: LIFECYCLE-090 no such experiment, LIFECYCLE-095 the experiment is over or has not started, LIFECYCLE-053 an arm does not stop.
    """
    with _change_lock(fleet.lake):
        made = experiments.find(fleet.lake, name)
        if made.over or made.state == "starting":
            raise _wrong_state(made, "one that goes on")
        ended = time.time_ns() // 1_000_000 if state == "stopped" else None
        made = experiments.keep(fleet.lake, replace(made, state=state, ended_at=ended))
        crash.point("experiment.after_state")
        _deploy_arms(fleet, made)
        if state != "running":
            _stop(fleet, made)
        return made


def clean(fleet: Fleet, name: str) -> Experiment:
    """Remove the lakes of all arms, the comparisons and the record of a finished experiment. Does not change the stream itself.

    Raises:
        LifecycleError: LIFECYCLE-090 no such experiment, LIFECYCLE-095 the experiment is not over.
    """
    with _change_lock(fleet.lake):
        made = experiments.find(fleet.lake, name)
        if not made.over:
            raise _wrong_state(made, "one that is over", f"End it first: floodmark experiment stop {name}")
        _forget(fleet, made)
        return made


def give_up(fleet: Fleet, made: Experiment) -> None:
    """Remove the remains of an experiment whose start was killed."""
    with _change_lock(fleet.lake):
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


def promoted(fleet: Fleet, made: Experiment, arm: str) -> Experiment:
    """End an experiment after the promotion of one of its arms. Waits until all arms have stopped."""
    with _change_lock(fleet.lake):
        ended = time.time_ns() // 1_000_000
        made = experiments.keep(fleet.lake, replace(made, state="promoted", promoted=arm, ended_at=ended))
    _stop(fleet, made)
    return made


def check_running(made: Experiment) -> None:
    """Check that an experiment is running.

    Raises:
        LifecycleError: LIFECYCLE-095, the experiment is paused, over, or has not started.
    """
    if made.state != "running":
        raise _wrong_state(made, "one whose arms run")


def check_whole(made: Experiment) -> None:
    """Check that the arms of an experiment run over all keys.

    Raises:
        LifecycleError: LIFECYCLE-117, the arms run over a sample.
    """
    if made.sample is not None:
        fix = (
            f"Let them run over all keys, and promote the arm then: floodmark experiment stop {made.name}; {made.whole}"
        )
        raise LifecycleError(
            f"experiment '{made.name}'", "arms that run over all keys", str(made.sample), fix, code="LIFECYCLE-117"
        )


def _wrong_state(made: Experiment, expected: str, fix: str = "") -> LifecycleError:
    fix = fix or f"See how it is: floodmark experiment show {made.name}"
    return LifecycleError(f"experiment '{made.name}'", expected, f"one that is {made.state}", fix, code="LIFECYCLE-095")


def _change_lock(lake: Lake) -> AbstractContextManager[None]:
    """Lock that admits one change of experiments in a lake at a time."""
    return exclusive(lake, "actions", "experiment", "change of an experiment")


# ---- operations of the arms


def operations(fleet: Fleet, made: Experiment) -> list[Operations]:
    """Progress, lag and resource usage of the arms, in their order."""
    arms = [_operations(of(fleet, arm), made.operator, arm) for arm in made.arms]
    foremost = max((one.progress for one in arms if one.progress is not None), default=None)
    if foremost is None:
        return arms
    return [replace(one, behind=None if one.progress is None else (foremost - one.progress) / 1000) for one in arms]


def _operations(there: Fleet, operator: str, arm: Arm) -> Operations:
    timeline, drivers = Timeline.current(Lake(arm.root), operator), there.store.drivers(there.stream(operator))
    last, usage = timeline.checkpoint.last_committed(), Usage()
    for driver in drivers:
        usage = usage.plus(Usage.parse(driver.usage))
    progress = timeline.checkpoint.final_progress(last) if last >= 0 else None
    behind = lag(there.lake, timeline)
    return Operations(
        arm=arm,
        driver=describe_driver(drivers[0]) if drivers else "not started yet",
        progress=progress,
        lag=None if behind is None else behind / 1000,
        usage=usage,
        state=size_of(timeline.folder(CHECKPOINT)),
    )


def lag(lake: Lake, timeline: Timeline) -> int | None:
    """Lag of a stream behind its slowest input, ms of event time; None before the first micro-batch, if an input has no progress, or if all have ended."""
    deployed, last = timeline.identity.deployed(), timeline.checkpoint.last_committed()
    if deployed is None or last < 0:
        return None
    input_progress = [history.progress(input_path(lake, table)) for _, table, *_ in deployed.graph["inputs"]]
    known = [one for one in input_progress if one is not None]
    if len(known) < len(input_progress) or not known or min(known) >= END:
        return None
    return max(0, min(known) - timeline.checkpoint.final_progress(last))


def report(fleet: Fleet, name: str, request: ComparisonRequest) -> Report:
    """Compare the results of the arms, in all windows that closed in both since the last comparison, and report their operations.

    Args:
        fleet: fleet of the stream.
        name: name of the experiment.
        request: how the arms are compared. The settings of the first comparison stay in force.

    Raises:
        LifecycleError: LIFECYCLE-090, no such experiment; and the errors of ``advance``.
    """
    made = experiments.find(fleet.lake, name)
    operator = next((one for one in fleet.workspace.operators if one.name == made.operator), None)
    how = How(tolerances=request.bounds, without=request.without, memory=request.memory)
    comparisons = compare_arms(fleet.lake, made, operator, how)
    of_rule = (one for one in Rollouts(fleet.store).of(fleet.stream(made.operator)) if one.named == name)
    guardrails = next((one.guardrails for one in of_rule), ())
    return Report(
        experiment=made,
        match=request.match,
        comparisons=comparisons,
        operations=tuple(operations(fleet, made)),
        guardrails=guardrails,
    )
