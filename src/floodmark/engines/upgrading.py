"""Upgrade of a stream to the definition the code now has: in place where its state goes on, by a rebuild beside it where it cannot."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from floodmark.core.errors import LifecycleError, PlanError
from floodmark.lake import savepoints, tables
from floodmark.lake.copies import remove
from floodmark.lake.cuts import readers, together
from floodmark.lake.paths import Lake
from floodmark.lake.savepoints import Savepoint
from floodmark.lake.switch import (
    become,
    beside_turn,
    pending,
    perform,
    refuse_another,
    refuse_half_written,
    refuse_moved,
    refuse_while_pending,
    stopped,
)
from floodmark.lake.switch import steps as switch_steps
from floodmark.lake.timeline import Timeline, streams
from floodmark.lifecycle.plan import Plan, plan
from floodmark.lifecycle.steps import Compute, Define, Save, Step, Widen, take
from floodmark.lifecycle.switch import steps as turn_steps
from floodmark.spec.operator import Operator, Output
from floodmark.spec.run import BatchInfo, RunResult

IN_PLACE = ("no-op", "stateless change", "compatible state")
"""Verdicts after which a stream goes on from its own state without being asked."""
ON_REQUEST = ("forward-only", "not comparable")
"""Verdicts after which it does so when asked."""


class Run(Protocol):
    """``run_unbounded`` of an engine, with its session."""

    def __call__(self, operator: Operator, lake: Lake, **options: Any) -> RunResult:
        """Run an operator as a stream."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Upgraded:
    """What an upgrade did.

    Args:
        plan: what had changed.
        savepoint: id of the one to go back to; None where nothing was done.
        readers: streams that have read what was replaced: they have to be computed anew, and refuse to go on until then.
    """

    plan: Plan
    savepoint: str | None = None
    readers: tuple[str, ...] = ()


def check(operator: Operator, lake: Lake, *, forward_only: bool = False) -> Plan:
    """What has changed since the stream of an operator was started; it may run.

    Args:
        operator: as the code defines it.
        lake: its stream runs in.
        forward_only: accept that open windows hold what the old definition let through.

    Raises:
        LifecycleError: LIFECYCLE-034, a rollback of it is not finished.
        PlanError: PLAN-011, its state cannot go on, or only if that is accepted.
    """
    refuse_while_pending(lake, operator.name)
    refuse_moved(lake, operator.name)
    planned = plan(Timeline.current(lake, operator.name).deployed, operator)
    if planned.changes and planned.verdict not in IN_PLACE and not (forward_only and planned.verdict in ON_REQUEST):
        raise _refused(planned)
    return planned


def upgrade(
    operator: Operator,
    lake: Lake,
    *,
    forward_only: bool = False,
    why: str = "",
    savepoint: Savepoint | None = None,
) -> Upgraded:
    """Let the stopped stream of an operator go on under the code's definition, from its own state.

    Args:
        operator: as the code defines it.
        lake: its stream runs in.
        forward_only: accept that open windows hold what the old definition let through.
        why: a note for the savepoint that is made first.
        savepoint: that was made already.

    Raises:
        LifecycleError: LIFECYCLE-003 the stream is at work, LIFECYCLE-034 a rollback of it is not finished,
            LIFECYCLE-044 some of its tables have rows of a micro-batch that others lack.
        PlanError: PLAN-011, its state cannot go on, or only if that is accepted.
    """
    with stopped(lake, [operator.name]):
        planned = check(operator, lake, forward_only=forward_only)
        if planned.deployed is None or not planned.changes:
            return Upgraded(plan=planned)
        refuse_half_written(Timeline.current(lake, operator.name), whole=True)
        made = [savepoint] if savepoint is not None else list[Savepoint]()

        def each(step: Step) -> None:
            if isinstance(step, Save):
                made.append(savepoints.create(operator.name, lake, why=step.why))
            else:
                go_on(operator, lake, step)

        take(upgrade_steps(operator, why)[len(made) :], each)
    return Upgraded(plan=planned, savepoint=made[0].manifest.id)


def upgrade_steps(operator: Operator, why: str = "") -> tuple[Step, ...]:
    """What an upgrade of a stopped stream does.

    Args:
        operator: as the code defines it.
        why: a note for the savepoint.
    """
    return (
        save(operator, why),
        Define(operator=operator.name, version=operator.version),
        Widen(operator=operator.name, tables=tuple(table.table for table in _written(operator))),
    )


def save(operator: Operator, why: str) -> Save:
    """The step before a change of an operator's stream; by default its note says what comes."""
    return Save(operator=operator.name, why=why or f"before {operator.version}")


def go_on(operator: Operator, lake: Lake, step: Step) -> None:
    """Take a step by which a stopped stream goes on under another definition.

    Raises:
        LifecycleError: LIFECYCLE-044, some of its tables have rows of a micro-batch that others lack.
    """
    match step:
        case Define():
            refuse_half_written(Timeline.current(lake, operator.name), whole=True)
            Timeline.current(lake, operator.name).identity.deploy(operator)
        case Widen():
            for table in _written(operator):  # what a crash leaves out, the stream's start does
                tables.widen(lake, table)
        case _:
            raise AssertionError(step)


def _written(operator: Operator) -> list[Output]:
    """Every table that a stream of an operator writes."""
    return [one for output in operator.outputs for one in (output, output.current) if one is not None]


def _refused(planned: Plan) -> PlanError:
    rebuild = f"floodmark apply {planned.operator} --rebuild"
    fix = f"Compute all of it with the new code, beside the stream, and switch: {rebuild}"
    if planned.verdict == "not comparable":
        fix = f"If its code has not changed, say so: floodmark apply {planned.operator} --forward-only. Or compute all of it anew, and switch: {rebuild}"
    if planned.verdict == "forward-only":
        fix = f"Accept it: floodmark apply {planned.operator} --forward-only. Or compute all of it anew, and switch: {rebuild}"
    otherwise = "; ".join(change.otherwise for change in planned.changes if change.verdict == planned.verdict)
    where = f"{planned.deployed} -> {planned.defined}"
    return PlanError(
        where, "a change its state can resume under", f"one for '{planned.verdict}': {otherwise}", fix, code="PLAN-011"
    )


def check_rebuild(operator: Operator, lake: Lake) -> Upgraded:
    """What a rebuild would do: the changes, and the streams that have read the tables that it replaces. No JVM is needed.

    The savepoint is that of a switch which was begun and not finished: the rebuild would finish it, and do nothing else.

    Args:
        operator: as the code defines it.
        lake: its stream runs in.

    Raises:
        LifecycleError: LIFECYCLE-034 another rollback or rebuild is not finished, LIFECYCLE-042 the stream has moved to another lake.
    """
    refuse_another(lake, operator.name, _again(operator))
    refuse_moved(lake, operator.name)
    changes = plan(Timeline.current(lake, operator.name).deployed, operator)
    begun = pending(lake)
    reading = tuple(readers(operator.name, streams(lake))) if begun or changes.changes else ()
    return Upgraded(plan=changes, savepoint=begun.back if begun else None, readers=reading)


def rebuild_steps(operator: Operator, lake: Lake, why: str = "", between: Sequence[Step] = ()) -> list[Step]:
    """What a rebuild would do; nothing where nothing has changed. Of one that was begun, what is left of it.

    Args:
        operator: as the code defines it.
        lake: its stream runs in.
        why: a note for the savepoint.
        between: what is done once the result is there, and before the switch: by default, a savepoint.
    """
    would, begun = check_rebuild(operator, lake), pending(lake)
    if begun is not None:
        return [*switch_steps(lake, begun)]
    if would.plan.deployed is None or not would.plan.changes:
        return []
    outputs = {output.table: output.current is not None for output in operator.outputs}
    values = [table for table, keeps in outputs.items() if keeps]
    turn = beside_turn(lake, operator.name, _beside(lake, operator).root, outputs, values)
    compute = Compute(operator=operator.name, version=operator.version)
    again = replace(compute, again=True)
    before = [compute, *between, again] if between else [compute, again, save(operator, why)]
    return [*before, *turn_steps([turn])]


def _again(operator: Operator) -> str:
    """The command that begins a rebuild, and finishes one that was interrupted."""
    return f"floodmark apply {operator.name} --rebuild"


def rebuild(
    run: Run,
    operator: Operator,
    lake: Lake,
    *,
    why: str = "",
    stop: threading.Event | None = None,
    on_batch: Callable[[BatchInfo], None] | None = None,
    pause: Callable[[list[str]], Savepoint | None] | None = None,
) -> Upgraded:
    """Compute all of an operator's input with the code's definition, beside its stream, and switch to the result in one commit per table.

    The stream may go on meanwhile; it has to be stopped for the switch, which computes what came since. A rebuild that was interrupted
    goes on where it was.

    Args:
        run: ``run_unbounded`` of an engine, with its session.
        operator: as the code defines it.
        lake: its stream runs in.
        why: a note for the savepoint that is made first.
        stop: when set, it ends at the next micro-batch boundary, and nothing is switched.
        on_batch: told about each micro-batch.
        pause: lets the named streams stop before the switch, the one that is rebuilt first; it may make that savepoint on the way.

    Raises:
        LifecycleError: LIFECYCLE-003 the stream is at work, LIFECYCLE-034 another rollback or rebuild is not finished.
    """
    stop = stop or threading.Event()
    would = check_rebuild(operator, lake)
    begun = pending(lake)
    if begun is not None and begun.again == _again(operator):
        if pause is not None:
            pause(list(begun.operators))
        with stopped(lake, begun.operators):
            perform(lake, begun)
        _tidy(lake, begun.targets[0].savepoint, begun.targets[0].source)
        return replace(would, savepoint=begun.back, readers=tuple(readers(operator.name, streams(lake))))
    beside = _beside(lake, operator)
    if would.plan.deployed is None or not would.plan.changes:
        for one in savepoints.savepoints(lake, operator.name):  # of one that was done but for this
            if one.manifest.why == _why(operator):
                savepoints.delete(one)
        remove(beside.root)
        return would
    compute = Compute(operator=operator.name, version=operator.version)
    take([compute], lambda _: run(operator, beside, until_caught_up=True, stop=stop, on_batch=on_batch))
    if stop.is_set():
        return Upgraded(plan=would.plan)
    reading = readers(operator.name, streams(lake))
    made = pause([operator.name, *reading]) if pause is not None else None
    with stopped(lake, [operator.name, *reading]):
        again = replace(compute, again=True)
        take([again], lambda _: run(operator, beside, until_caught_up=True, on_batch=on_batch))
        if made is None:
            kept = list[Savepoint]()
            take([save(operator, why)], lambda step: kept.append(_with_readers(operator.name, lake, step.why)))
            made = kept[0]
        taken = become(lake, operator.name, beside, again=_again(operator), back=made.manifest.id, why=_why(operator))
    _tidy(lake, taken, beside.root)
    return Upgraded(plan=would.plan, savepoint=made.manifest.id, readers=tuple(reading))


def _with_readers(name: str, lake: Lake, why: str) -> Savepoint:
    """Of a stopped stream, at one cut of those that read it where they have one."""
    try:
        return together(name, lake, why=why)[0]
    except LifecycleError as error:
        if error.code != "LIFECYCLE-040":
            raise
        return savepoints.create(name, lake, why=why)


def _beside(lake: Lake, operator: Operator) -> Lake:
    """A lake of its own for a version of an operator, which reads what the operator reads."""
    root = lake.internal("operators", operator.name, "rebuild", operator.version.rsplit("@", 1)[-1])
    return Lake(root, logs=lake.logs or lake.root, upstream=lake.upstream or lake.root)


def _why(operator: Operator) -> str:
    """What the savepoint says that takes a rebuild over."""
    return f"rebuild of {operator.version}"


def _tidy(lake: Lake, taken: str, beside: str) -> None:
    """Remove the savepoint that took a rebuild over: it knows the tables beside, which go."""
    savepoints.delete(savepoints.find(lake, taken))
    remove(beside)
