"""Upgrade of a stream to the definition that the code now has: in place if its state stays valid, by a rebuild beside the stream otherwise."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from floodmark.core.errors import LifecycleError, PlanError
from floodmark.core.time import Interval
from floodmark.lake.folder.copies import remove
from floodmark.lake.folder.paths import Lake
from floodmark.lake.logs.log import check_required
from floodmark.lake.restore import differences, savepoints
from floodmark.lake.restore.cuts import create_coordinated_savepoints, readers
from floodmark.lake.restore.savepoints import Savepoint
from floodmark.lake.restore.switch import (
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
from floodmark.lake.restore.switch import steps as switch_steps
from floodmark.lake.results import frozen, tables
from floodmark.lake.stream.timeline import Timeline, streams
from floodmark.lifecycle.plan import Plan, plan
from floodmark.lifecycle.steps import Compute, Define, Save, Step, Widen, take
from floodmark.lifecycle.switch import Followed, Switchover
from floodmark.lifecycle.switch import steps as turn_steps
from floodmark.spec.graph.operator import Operator, Output
from floodmark.spec.values.run import BatchInfo, RunResult

IN_PLACE = ("no-op", "stateless change", "compatible state")
"""Verdicts after which a stream resumes from its own state without ``forward_only``."""
ON_REQUEST = ("forward-only", "not comparable")
"""Verdicts after which a stream resumes from its own state with ``forward_only``."""


class Run(Protocol):
    """``run_unbounded`` of an engine, with its session."""

    def __call__(self, operator: Operator, lake: Lake, **options: Any) -> RunResult:
        """Run an operator as a stream."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Upgraded:
    """What an upgrade did.

    Args:
        plan: the changes of the definition.
        savepoint: id of the savepoint to roll back to; None if nothing was done.
        readers: streams that have read tables which were replaced: they have to be computed anew, and refuse to resume until then.
        because: why these cannot follow as a difference, for people; empty where none reads.
        followers: streams that have read tables which were replaced, and follow the difference when they resume.
    """

    plan: Plan
    savepoint: str | None = None
    readers: tuple[str, ...] = ()
    because: str = ""
    followers: tuple[str, ...] = ()

    @property
    def reading(self) -> dict[str, Any]:
        """The streams that read what is replaced, as JSON."""
        return {"readers": list(self.readers), "because": self.because, "followers": list(self.followers)}


def check(operator: Operator, lake: Lake, *, forward_only: bool = False) -> Plan:
    """Plan an upgrade in place: the changes since the stream of an operator was started. The stream may run.

    Args:
        operator: as the code defines it.
        lake: in which its stream runs.
        forward_only: accept that open windows hold rows as the old definition computed them.

    Raises:
        LifecycleError: LIFECYCLE-034, a rollback of the stream is not finished.
        PlanError: PLAN-010 landed rows lack a field that a contract requires, PLAN-011 the stream's state is not valid under the new
            definition, or only with ``forward_only``.
    """
    refuse_while_pending(lake, operator.name)
    refuse_moved(lake, operator.name)
    planned = plan(Timeline.current(lake, operator.name).deployed, operator)
    check_required(operator, lake)
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
    """Give the stopped stream of an operator the code's definition; its next start resumes from its own state.

    Args:
        operator: as the code defines it.
        lake: in which its stream runs.
        forward_only: accept that open windows hold rows as the old definition computed them.
        why: a note for the savepoint that is made first.
        savepoint: to use instead of making one.

    Raises:
        LifecycleError: LIFECYCLE-003 the stream runs, LIFECYCLE-034 a rollback of the stream is not finished,
            LIFECYCLE-044 some of its tables have rows of a micro-batch that others lack.
        PlanError: PLAN-011, the stream's state is not valid under the new definition, or only with ``forward_only``.
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
                apply_step(operator, lake, step)

        take(upgrade_steps(operator, why)[len(made) :], each)
    return Upgraded(plan=planned, savepoint=made[0].manifest.id)


def upgrade_steps(operator: Operator, why: str = "") -> tuple[Step, ...]:
    """The steps of an upgrade of a stopped stream.

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
    """The savepoint step before a change of an operator's stream; its note names the new version by default."""
    return Save(operator=operator.name, why=why or f"before {operator.version}")


def apply_step(operator: Operator, lake: Lake, step: Step) -> None:
    """Take a step that gives a stopped stream another definition.

    Raises:
        LifecycleError: LIFECYCLE-044, some of its tables have rows of a micro-batch that others lack.
    """
    match step:
        case Define():
            refuse_half_written(Timeline.current(lake, operator.name), whole=True)
            Timeline.current(lake, operator.name).identity.deploy(operator)
        case Widen():
            for table in _written(operator):  # the stream's start widens the tables that a crash leaves out
                tables.widen(lake, table)
        case _:
            raise AssertionError(step)


def _written(operator: Operator) -> list[Output]:
    """Every table that a stream of an operator writes."""
    return [table for output in operator.outputs for table in (output, output.current) if table is not None]


def _refused(planned: Plan) -> PlanError:
    rebuild = f"floodmark apply {planned.operator} --rebuild"
    fix = f"Compute all of it with the new code, beside the stream, and switch: {rebuild}"
    if planned.verdict == "not comparable":
        fix = f"If its code has not changed, say so: floodmark apply {planned.operator} --forward-only. Or compute all of it anew, and switch: {rebuild}"
    if planned.verdict == "rescale":
        others = len(planned.changes) > 1
        first = (
            f"Leave key_groups out, and apply the other changes: floodmark apply {planned.operator}. Then write it, and d"
            if others
            else "D"
        )
        fix = (
            f"{first}ivide the state of the stopped stream anew: floodmark rescale {planned.operator} --key-groups {planned.default_key_groups}. "
            f"Or compute all of it anew, and switch: {rebuild}"
        )
    if planned.verdict == "forward-only":
        fix = f"Accept it: floodmark apply {planned.operator} --forward-only. Or compute all of it anew, and switch: {rebuild}"
    otherwise = "; ".join(change.otherwise for change in planned.changes if change.verdict == planned.verdict)
    where = f"{planned.deployed} -> {planned.defined}"
    return PlanError(
        where, "a change its state can resume under", f"one for '{planned.verdict}': {otherwise}", fix, code="PLAN-011"
    )


def check_rebuild(operator: Operator, lake: Lake) -> Upgraded:
    """Plan a rebuild: the changes, and the streams that have read the tables to be replaced. No JVM is needed.

    A savepoint in the answer is that of an interrupted switch: the rebuild would finish that switch, and do nothing else.

    Args:
        operator: as the code defines it.
        lake: in which its stream runs.

    Raises:
        LifecycleError: LIFECYCLE-034 another rollback or rebuild is not finished, LIFECYCLE-042 the stream has moved to another lake,
            LIFECYCLE-201 results of it are frozen.
    """
    refuse_another(lake, operator.name, _again(operator))
    refuse_moved(lake, operator.name)
    changes = plan(Timeline.current(lake, operator.name).deployed, operator)
    begun = pending(lake)
    if changes.changes and begun is None:
        frozen.check(lake, operator.name, [Interval()], "a rebuild")
    would = Upgraded(plan=changes, savepoint=begun.back if begun else None)
    if begun is not None:
        return _finished(would, lake, begun)
    if not changes.changes:
        return would
    return with_readers(would, operator, lake)


def with_readers(upgraded: Upgraded, operator: Operator, lake: Lake) -> Upgraded:
    """An upgrade with the streams that would follow a rebuild, or would have to be computed anew, as far as it is known while they run.

    Args:
        upgraded: the upgrade.
        operator: as the code defines it.
        lake: in which its stream runs.
    """
    return _read(upgraded, lake, *_would_follow(operator, lake))


def _would_follow(operator: Operator, lake: Lake) -> tuple[Followed | None, str]:
    columns = {output.table: output.schema.types for output in operator.outputs}
    return differences.would_follow(lake, operator.name, columns)


def _read(upgraded: Upgraded, lake: Lake, followed: Followed | None, because: str) -> Upgraded:
    """An upgrade with the streams that have read what it replaces."""
    name = upgraded.plan.operator
    known = streams(lake)
    reading = tuple(readers(name, known))
    if followed is None:
        return replace(upgraded, readers=reading, because=because if reading else "")
    following = tuple(one for one in reading if set(known[one].tables) & set(followed.revises))
    return replace(upgraded, readers=tuple(one for one in reading if one not in following), followers=following)


def _finished(upgraded: Upgraded, lake: Lake, begun: Switchover) -> Upgraded:
    """An upgrade that an unfinished switch will have been, or was."""
    followed = next((target.followed for target in begun.targets), None)
    because = "" if followed is not None else "the rebuild that was begun has decided so"
    return _read(replace(upgraded, savepoint=begun.back), lake, followed, because)


def rebuild_steps(operator: Operator, lake: Lake, why: str = "", between: Sequence[Step] = ()) -> list[Step]:
    """The steps of a rebuild; the remaining steps of a rebuild that was interrupted in its switch; none if nothing has changed.

    Args:
        operator: as the code defines it.
        lake: in which its stream runs.
        why: a note for the savepoint.
        between: steps after the result is computed and before the switch: by default, a savepoint.
    """
    would, begun = check_rebuild(operator, lake), pending(lake)
    if begun is not None:
        return [*switch_steps(lake, begun)]
    if would.plan.deployed is None or not would.plan.changes:
        return []
    outputs = {output.table: output.current is not None for output in operator.outputs}
    values = [table for table, keeps in outputs.items() if keeps]
    beside, (followed, _) = _beside(lake, operator), _would_follow(operator, lake)
    turn = beside_turn(lake, operator.name, beside.root, outputs, values, followed=followed)
    compute = Compute(operator=operator.name, version=operator.version)
    again = replace(compute, again=True)
    before = [compute, *between, again] if between else [compute, again, save(operator, why)]
    return [*before, *turn_steps([turn])]


def _again(operator: Operator) -> str:
    """The command that starts a rebuild, and resumes one that was interrupted."""
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

    The stream may run meanwhile. The stream has to be stopped for the switch, before which the rows that came since are computed. A rebuild that
    was interrupted resumes where it ended.

    Args:
        run: ``run_unbounded`` of an engine, with its session.
        operator: as the code defines it.
        lake: in which its stream runs.
        why: a note for the savepoint that is made first.
        stop: when set, the rebuild ends at the next micro-batch boundary, and nothing is switched.
        on_batch: called after each micro-batch.
        pause: (names of streams, the rebuilt one first) -> stops these streams before the switch; returns the savepoint if it made one.

    Raises:
        LifecycleError: LIFECYCLE-003 the stream runs, LIFECYCLE-034 another rollback or rebuild is not finished.
    """
    stop = stop or threading.Event()
    would = check_rebuild(operator, lake)
    begun = pending(lake)
    if begun is not None and begun.again == _again(operator):
        if pause is not None:
            pause(list(begun.operators))
        reading = readers(operator.name, streams(lake))
        with stopped(lake, [*begun.operators, *(reader for reader in reading if reader not in begun.operators)]):
            perform(lake, begun)
        _tidy(lake, begun.targets[0].savepoint, begun.targets[0].source)
        return _finished(would, lake, begun)
    beside = _beside(lake, operator)
    if would.plan.deployed is None or not would.plan.changes:
        for savepoint in savepoints.savepoints(
            lake, operator.name
        ):  # left by a rebuild that was killed before its last step
            if savepoint.manifest.why == _why(operator):
                savepoints.delete(savepoint)
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
            created = list[Savepoint]()
            take(
                [save(operator, why)],
                lambda step: created.append(_coordinated_savepoint(operator.name, lake, step.why)),
            )
            made = created[0]
        followed, because = _would_follow(operator, lake)
        if followed is not None and (because := differences.follow(lake, operator.name, beside, followed)):
            followed = None
        taken = become(
            lake,
            operator.name,
            beside,
            again=_again(operator),
            back=made.manifest.id,
            why=_why(operator),
            followed=followed,
        )
        upgraded = _read(Upgraded(plan=would.plan, savepoint=made.manifest.id), lake, followed, because)
    _tidy(lake, taken, beside.root)
    return upgraded


def _coordinated_savepoint(name: str, lake: Lake, why: str) -> Savepoint:
    """A savepoint of a stopped stream, coordinated with the streams that read its tables if they share a consistent cut."""
    try:
        return create_coordinated_savepoints(name, lake, why=why)[0]
    except LifecycleError as error:
        if error.code != "LIFECYCLE-040":
            raise
        return savepoints.create(name, lake, why=why)


def _beside(lake: Lake, operator: Operator) -> Lake:
    """The lake in which a version of an operator is computed beside its stream; its inputs are the operator's."""
    root = lake.internal("operators", operator.name, "rebuild", operator.version.rsplit("@", 1)[-1])
    return Lake(root, logs=lake.logs or lake.root, upstream=lake.upstream or lake.root)


def _why(operator: Operator) -> str:
    """The note of the savepoint by which a stream adopts a rebuild."""
    return f"rebuild of {operator.version}"


def _tidy(lake: Lake, taken: str, beside: str) -> None:
    """Delete the savepoint by which the stream adopted a rebuild, and the rebuild's lake, whose tables that savepoint names."""
    savepoints.delete(savepoints.find(lake, taken))
    remove(beside)
