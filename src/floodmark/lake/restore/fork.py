"""Forks and moves: starts a stream from a savepoint in another lake, which reads the original's inputs and never writes the original's tables."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from deltalake import DeltaTable

from floodmark.core import crash
from floodmark.core.errors import LifecycleError
from floodmark.lake.folder.copies import remove
from floodmark.lake.folder.locks import data_files
from floodmark.lake.folder.paths import Lake
from floodmark.lake.restore import savepoints
from floodmark.lake.restore.cuts import readers, started_streams
from floodmark.lake.restore.readers import forked, passing
from floodmark.lake.restore.savepoints import Savepoint
from floodmark.lake.restore.switch import refuse_moved, refuse_while_pending, stopped
from floodmark.lake.results import frozen, revised
from floodmark.lake.stream import answers, fence, last_values, sample
from floodmark.lake.stream.batch_state import check_inputs, check_output
from floodmark.lake.stream.checkpoint import checkpoint_at
from floodmark.lake.stream.identity import Identity
from floodmark.lake.stream.timeline import CHECKPOINT, Move, Timeline, streams
from floodmark.lake.table import history
from floodmark.lake.table.commits import Restored, Revised
from floodmark.lake.writing.graft import graft
from floodmark.lifecycle.savepoint import TableVersion
from floodmark.lifecycle.steps import Fence, Fork, Leave, Save, Step, take

_PATIENCE_SECONDS = 600
"""Longest wait for upkeep of a lake, which takes minutes."""


def fork(lake: Lake, savepoint: Savepoint, root: str, *, fresh: bool = False) -> Lake:
    """Begin a stream in another lake from a savepoint. Repeating the call after a crash completes it.

    Args:
        lake: lake of the savepoint.
        savepoint: savepoint the stream starts from.
        root: root of the new lake, which may hold forks of other operators.
        fresh: True to start with empty outputs; by default the outputs of the savepoint are linked or copied.

    Returns:
        The new lake.

    Raises:
        ExecutionError: EXECUTION-002, an output does not exist.
        LifecycleError: LIFECYCLE-041 the operator has a stream in the new lake, or ``root`` is the savepoint's lake; LIFECYCLE-038 an input was
            created again or restored; LIFECYCLE-036 an output was created again.
        StateError: STATE-021, the savepoint is damaged.
    """
    manifest, target = savepoint.manifest, Lake(root)
    timeline = Timeline.current(target, manifest.operator)
    refuse_begun(
        lake, manifest.operator, target, f"floodmark fork {manifest.operator} --from {manifest.id} --into elsewhere"
    )
    savepoints.check(savepoint)
    check_inputs(lake, manifest.operator, manifest.inputs, since=savepoint.since)
    outputs = () if fresh else manifest.outputs
    for output in outputs:
        fix = (
            f"Fork a savepoint made since: floodmark savepoint list {manifest.operator}. Or begin with empty outputs: "
            f"floodmark fork {manifest.operator} --from {manifest.id} --into {root} --fresh"
        )
        check_output(lake, output, f"fork of '{manifest.id}', table '{output.table}'", fix)
    target = lake.fork(root)
    forked(lake, target.root)
    crash.point("fork.before_tables")
    with data_files(lake, "fork", _PATIENCE_SECONDS), data_files(target, "fork", _PATIENCE_SECONDS):
        savepoint.put_back(lake)
        _graft_outputs(lake, savepoint, timeline, outputs)
        following = dict(_graft_values(savepoint, timeline, outputs))
    if (
        groups := sample.of(lake, manifest.operator)
    ) is not None:  # the savepoint holds the state of these key groups only
        sample.keep(target, manifest.operator, groups, sample.among(lake, manifest.operator))
    savepoints.restore(savepoint, timeline.folder(), fresh=fresh)
    for table, version in following.items():  # after a crash before this, the stream's start recomputes the values
        last_values.followed(timeline, table, version)
    crash.point("fork.after_state")
    return target


def look_on(lake: Lake, savepoint: Savepoint, root: str) -> Lake:
    """Begin a stream with empty outputs in another lake from a savepoint, and write nothing into the savepoint's lake.

    The savepoint's lake does not record the reader, so its upkeep may remove files the reader needs, hours later. The other lake must be deleted before.

    Args:
        lake: lake of the savepoint; may be read-only.
        savepoint: savepoint the stream starts from.
        root: root of the new lake, an empty folder.

    Returns:
        The new lake.

    Raises:
        LifecycleError: LIFECYCLE-038, an input was created again or restored.
        StateError: STATE-021, the savepoint is damaged.
    """
    manifest = savepoint.manifest
    savepoints.check(savepoint)
    check_inputs(lake, manifest.operator, manifest.inputs, since=savepoint.since)
    target = lake.fork(root)
    passing(target)
    savepoints.restore(savepoint, Timeline.current(target, manifest.operator).folder(), fresh=True)
    return target


def _graft_outputs(lake: Lake, savepoint: Savepoint, timeline: Timeline, outputs: Iterable[TableVersion]) -> None:
    """Link or copy the outputs of a savepoint into the lake of a timeline."""
    for output in outputs:
        app, record = (
            f"{timeline.app(output.table)}/fork/{savepoint.manifest.id}",
            _record(savepoint, timeline, output.table),
        )
        source, target = lake.output(output.table), timeline.lake.output(output.table)
        graft(source, target, app, record, output.version)
        if history.revised(source, output.version):
            revised.note(target, f"{app}/revised", Revised(operator=timeline.operator, version=record.version))
        crash.point("fork.after_table")


def _graft_values(
    savepoint: Savepoint, timeline: Timeline, outputs: Iterable[TableVersion]
) -> Iterator[tuple[str, int]]:
    """Write the last values of the grafted outputs. Yields (output, first version of its changelog that the follower reads)."""
    held = Identity(checkpoint_at(f"{savepoint.path}/{CHECKPOINT}"))
    keys, scratch = held.result_keys(), timeline.folder("forking")
    for table in [output.table for output in outputs if output.table in keys]:
        path, values = timeline.lake.output(table), f"{table}__current"
        version = DeltaTable(path).version()
        last_values.write(path, version, keys[table], scratch)
        app = f"{timeline.app(f'current/{table}')}/fork/{savepoint.manifest.id}"
        graft(scratch, timeline.lake.output(values), app, _record(savepoint, timeline, values))
        remove(scratch)
        yield table, version + 1


def _record(savepoint: Savepoint, timeline: Timeline, table: str) -> Restored:
    """The record of a fork's commit to a table."""
    manifest = savepoint.manifest
    return Restored(
        mode="fork",
        operator=manifest.operator,
        version=manifest.version,
        timeline=timeline.number,
        table=table,
        restored=-1,
        savepoint=manifest.id,
        batch=manifest.batch,
        progress=manifest.watermark,
    )


def refuse_begun(lake: Lake, operator: str, target: Lake, again: str) -> None:
    """Check that a stream of an operator can begin in another lake.

    Args:
        lake: the lake of the original stream.
        operator: name of the operator.
        target: the other lake.
        again: the command with another folder, for the error.

    Raises:
        LifecycleError: LIFECYCLE-041, the operator has a stream there, or it is the same lake.
    """
    if target.root == lake.root or Timeline.current(target, operator).identity.deployed() is not None:
        got = "that lake itself" if target.root == lake.root else "one where it has begun already"
        where, fix = f"'{operator}' into {target.root}", f"Name an empty folder: {again}"
        raise LifecycleError(where, "a lake without a stream of it", got, fix, code="LIFECYCLE-041")


def move(lake: Lake, operator: str, root: str) -> tuple[Lake, Move]:
    """Move the stopped stream of an operator to another lake. Repeating the call after a crash completes it.

    The stream's tables are linked or copied, so the originals may be deleted. The moved stream reads the same logs and upstream outputs as before. A
    rollback in the original lake moves the stream back.

    Args:
        lake: the lake the stream runs in.
        operator: name of the operator.
        root: root of the other lake.

    Returns:
        The other lake, and the move with the savepoint from which the stream resumes.

    Raises:
        LifecycleError: LIFECYCLE-003 the stream is running, LIFECYCLE-030 the stream never started, LIFECYCLE-034 a rollback of it is not finished,
            LIFECYCLE-041 the operator has a stream in the other lake, LIFECYCLE-042 the stream has moved to a third lake, LIFECYCLE-043 other streams
            read its outputs here.
    """
    with stopped(lake, [operator]):
        steps, timeline, target = move_steps(lake, operator, root), Timeline.current(lake, operator), Lake(root)
        going = list[Move]() if timeline.moved is None else [timeline.moved]
        take(steps, lambda step: _perform_step(step, timeline, target, going))
    return Lake.forked(root) or target, going[0]


def move_steps(lake: Lake, operator: str, root: str) -> list[Step]:
    """The steps of a move, without those that an interrupted move has done. Changes nothing. Arguments and errors as for ``move``."""
    refuse_while_pending(lake, operator)
    timeline, target = Timeline.current(lake, operator), Lake(root)
    steps = list[Step]()
    if timeline.moved is None:
        reading = started_streams(lake, readers(operator, streams(lake)))
        if reading:
            fix = "Stop them all, and move or copy the whole folder of the lake; they resume there."
            where, got = (
                f"move of '{operator}' to {target.root}",
                f"read by {', '.join(reading)}, which would get nothing more",
            )
            raise LifecycleError(where, "a stream nobody reads here", got, fix, code="LIFECYCLE-043")
        refuse_begun(lake, operator, target, f"floodmark move {operator} --into elsewhere")
        why = f"before the move to {target.root}"
        steps += [Save(operator=operator, why=why), Leave(operator=operator, lake=target.root)]
    elif timeline.moved.root != target.root:
        refuse_moved(lake, operator)
    if Timeline.current(target, operator).identity.deployed() is None:
        steps.append(Fork(operator=operator, lake=target.root))
    return [*steps, Fence(operator=operator, timeline=timeline.number)]


def _perform_step(step: Step, timeline: Timeline, target: Lake, going: list[Move]) -> None:
    lake, operator = timeline.lake, timeline.operator
    match step:
        case Save(why=why):
            made = savepoints.create(operator, lake, why=why)
            going.append(Move(target.root, made.manifest.id))
        case Leave():
            timeline.mark_moved(going[0])
        case Fork():
            frozen.carry(lake, target, operator)
            answers.carry(lake, target, operator)
            fork(lake, savepoints.find(lake, going[0].savepoint), target.root)
        case Fence():
            outputs = savepoints.find(lake, going[0].savepoint).manifest.outputs
            fence.end_all(timeline, (output.table for output in outputs))
        case _:
            raise AssertionError(step)
