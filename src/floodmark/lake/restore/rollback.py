"""Rollback of streams to savepoints: state, positions and tables together, downstream included. No JVM is needed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from deltalake import DeltaTable
from deltalake.exceptions import DeltaError
from pyarrow.fs import FileType

from floodmark.core.errors import LifecycleError, StateError
from floodmark.lake.folder.paths import Lake
from floodmark.lake.folder.storage import file_system
from floodmark.lake.restore import savepoints
from floodmark.lake.restore.cuts import agreeing, commits, readers, started_streams
from floodmark.lake.restore.savepoints import Savepoint
from floodmark.lake.restore.switch import check_frozen, pending, perform, refuse_another, stopped
from floodmark.lake.stream.batch_state import BatchState, began_with, check_inputs, check_output, is_there, state_at
from floodmark.lake.stream.checkpoint import checkpoint_at
from floodmark.lake.stream.identity import Identity
from floodmark.lake.stream.timeline import CHECKPOINT, Timeline, positions_at, streams
from floodmark.lake.table import origin
from floodmark.lake.table.commits import BoundedRun, MicroBatch, Restored
from floodmark.lake.table.history import Commit
from floodmark.lifecycle.rollback import cut, moves
from floodmark.lifecycle.savepoint import Manifest, TableVersion
from floodmark.lifecycle.switch import Switchover, Target

Codes = Mapping[str, Mapping[str, Any]]
"""Operator -> description of the code its stream runs, stored in savepoints."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RollbackEffect:
    """The commits that a restore to a version revokes in a table.

    Args:
        table: name of the table.
        commits: number of revoked micro-batches of the stream.
        rows: rows of these micro-batches.
        backfills: intervals of revoked bounded runs, in words.
        foreign: revoked commits of other programs, in words.
        rebuilds: number of revoked rebuilds; the restore brings back the rows before them.
    """

    table: str
    commits: int = 0
    rows: int = 0
    backfills: tuple[str, ...] = ()
    foreign: tuple[str, ...] = ()
    rebuilds: int = 0


def undone(table: str, commits: Iterable[Commit]) -> RollbackEffect:
    """Summarise the commits that a restore revokes in a table.

    Args:
        table: name of the table.
        commits: the table's commits after the restored version.
    """
    batches, rows, rebuilds, backfills, foreign = 0, 0, 0, [], []
    for commit in commits:
        match commit.record:
            case BoundedRun(interval=interval):
                backfills.append(str(interval))
            case MicroBatch() as batch:
                batches, rows = batches + (not batch.settled), rows + batch.rows
            case Restored(mode=mode):
                rebuilds += mode == "rebuild"
            case None:
                foreign.append(f"{commit.operation} at version {commit.version}")
            case _:
                pass
    return RollbackEffect(
        table=table, commits=batches, rows=rows, backfills=tuple(backfills), foreign=tuple(foreign), rebuilds=rebuilds
    )


@dataclass(frozen=True, slots=True)
class Prepared:
    """The plan of a rollback whose checks passed.

    Args:
        switch: the steps of the rollback.
        undone: revoked commits per table.
        left: downstream streams that are not rolled back. Each refuses to start until it is computed from scratch.
        emptied: tables of last values that the rollback empties, because the savepoint does not record their key columns.
    """

    switch: Switchover
    undone: tuple[RollbackEffect, ...]
    left: tuple[str, ...] = ()
    emptied: tuple[str, ...] = ()


def roll_back(
    lake: Lake, savepoint: Savepoint, *, backfills: bool = False, alone: bool = False, codes: Codes | None = None
) -> Prepared:
    """Roll a stream back to a savepoint, together with every downstream stream that has read revoked rows. Repeating the call completes it.

    Args:
        lake: the lake the streams run in.
        savepoint: the savepoint to restore.
        backfills: True to revoke bounded runs since the savepoint too; refused by default.
        alone: True to leave downstream streams out; they refuse to start until they are computed from scratch.
        codes: operator -> description of the code its stream runs.

    Returns:
        The rollback that was done. When it completes an interrupted rollback, only its switch.

    Raises:
        LifecycleError: LIFECYCLE-003, a stream is running; and the errors of ``prepare``.
        StateError: STATE-021, the savepoint is damaged.
    """
    again = _command(savepoint.manifest)
    left = pending(lake)
    if left is not None and left.again == again:
        with stopped(lake, left.operators):
            perform(lake, left)
        return Prepared(left, ())
    with stopped(lake, [savepoint.manifest.operator, *readers(savepoint.manifest.operator, streams(lake))]):
        prepared = prepare(lake, savepoint, backfills=backfills, alone=alone, codes=codes)
        perform(lake, prepared.switch)
    return prepared


def _command(manifest: Manifest) -> str:
    return f"floodmark rollback {manifest.operator} --to {manifest.id}"


def prepare(
    lake: Lake,
    savepoint: Savepoint,
    *,
    backfills: bool = False,
    alone: bool = False,
    keep: bool = True,
    codes: Codes | None = None,
) -> Prepared:
    """Plan a rollback. Changes nothing, except that ``keep`` creates savepoints and lost versions are put back into tables' logs.

    Args:
        lake: the lake the streams run in.
        savepoint: the savepoint to restore.
        backfills: True to revoke bounded runs since the savepoint too.
        alone: True to leave downstream streams out.
        keep: True to create savepoints of downstream streams that keep their current state, which the rollback needs; False for a dry run.
        codes: operator -> description of the code its stream runs.

    Raises:
        LifecycleError: LIFECYCLE-034 another rollback is not finished, LIFECYCLE-035 a downstream stream has no state at this cut,
            LIFECYCLE-036 a table was created again or has commits of bounded runs or other programs, LIFECYCLE-037 files of the version were vacuumed,
            LIFECYCLE-038 an input was created again or restored, LIFECYCLE-201 frozen results would change.
        StateError: STATE-021, the savepoint is damaged.
    """
    manifest = savepoint.manifest
    reading = started_streams(lake, readers(manifest.operator, streams(lake)))
    names = [manifest.operator, *([] if alone else reading)]
    refuse_another(lake, manifest.operator)
    for output in manifest.outputs:
        origin.check_home(
            lake.output(output.table), f"rollback of '{manifest.operator}'", f"{manifest.operator} --from {manifest.id}"
        )
    savepoints.check(savepoint)
    candidates: list[tuple[str, Sequence[Manifest | BatchState]]] = [(manifest.operator, [manifest])]
    candidates += [(name, list(_candidate_states(lake, name))) for name in names[1:]]
    chosen = cut(candidates, agreeing(lake))
    if chosen is None:
        raise _no_cut_error(savepoint, names[1:])
    written = {output.id: output.table for state in chosen.values() for output in state.outputs}
    targets, lost, emptied, since = [], [], list[str](), dict[str, dict[str, int]]()
    for name, state in chosen.items():
        if isinstance(state, Manifest):
            held = savepoints.find(lake, state.id)
            held.put_back(lake)
            emptied += _emptied(lake, held)
            since[name] = held.since
        else:
            since[name] = began_with(positions_at(Timeline.current(lake, name), state.batch))
    for name, state in chosen.items():
        check_inputs(lake, state.version, state.inputs, written, since[name])
        lost += [_check_table(lake, name, manifest.id, output, backfills=backfills) for output in state.outputs]
        targets.append(
            Target(
                operator=name,
                savepoint=_savepoint_of(lake, name, state, manifest.id, keep=keep, code=(codes or {}).get(name)),
                version=state.version,
                timeline=Timeline.current(lake, name).next().number,
                ends=Timeline.current(lake, name).number,
                batch=state.batch,
                watermark=state.watermark,
                tables=state.outputs,
                moves=dict(moves(state, written)),
            )
        )
    check_frozen(lake, targets)
    switch = Switchover(again=_command(manifest), targets=tuple(targets))
    return Prepared(switch, tuple(lost), tuple(reading if alone else ()), tuple(emptied))


def _emptied(lake: Lake, savepoint: Savepoint) -> Iterator[str]:
    """Names of the stream's tables of last values that the savepoint does not know."""
    known = Identity(checkpoint_at(f"{savepoint.path}/{CHECKPOINT}")).result_keys()
    now = Timeline.current(lake, savepoint.manifest.operator).identity.result_keys()
    yield from (f"{table}__current" for table in sorted(now.keys() - known.keys()))


def _savepoint_of(
    lake: Lake, operator: str, state: Manifest | BatchState, asked: str, *, keep: bool, code: Mapping[str, Any] | None
) -> str:
    """Id of the savepoint of a state. For a stream that keeps its current state, ``keep`` creates a savepoint; without it a placeholder is returned."""
    if isinstance(state, Manifest):
        return state.id
    if not keep:
        return "(one that is made first)"
    return savepoints.create(operator, lake, why=f"before {asked}", code=code).manifest.id


def _candidate_states(lake: Lake, operator: str) -> Iterator[Manifest | BatchState]:
    """The states a downstream stream could be restored to: its current one, then its savepoints, newest first, whose tables still exist."""
    timeline = Timeline.current(lake, operator)
    last = timeline.checkpoint.last_committed()
    with suppress(StateError):  # an unreadable checkpoint is no candidate; savepoints still are
        yield from [state_at(timeline, last)] if last >= 0 else []
    for savepoint in reversed(savepoints.savepoints(lake, operator)):
        if all(is_there(lake, output) for output in savepoint.manifest.outputs):
            yield savepoint.manifest


def _check_table(lake: Lake, operator: str, asked: str, output: TableVersion, *, backfills: bool) -> RollbackEffect:
    path, where = lake.output(output.table), f"rollback to '{asked}', table '{output.table}'"
    anew = f"Compute it anew: floodmark run {operator} --unbounded --from-scratch --until-caught-up, then floodmark start {operator}"
    check_output(lake, output, where, anew)
    loss = undone(output.table, commits(path, output.version))
    if loss.foreign:
        fix = f"Keep what they wrote elsewhere, and take it out of the table; or {anew[0].lower()}{anew[1:]}"
        got = f"writes of others: {', '.join(loss.foreign)}"
        raise LifecycleError(where, "floodmark's own writes since", got, fix, code="LIFECYCLE-036")
    if loss.backfills and not backfills:
        fix = f"Undo them too, and run them again after it: floodmark rollback {asked.rsplit('-', 2)[0]} --to {asked} --undo-backfills"
        got = f"bounded runs of {', '.join(loss.backfills)}"
        raise LifecycleError(where, "no bounded run since", got, fix, code="LIFECYCLE-036")
    _check_files(path, output, where, anew)
    return loss


def _check_files(path: str, output: TableVersion, where: str, anew: str) -> None:
    """Check that all files of the restored version exist. Only files that were removed from the table since are checked."""
    now = _files(DeltaTable(path))
    try:
        then = _files(DeltaTable(path, version=output.version))
    except DeltaError as error:
        raise LifecycleError(
            where, f"version {output.version}", f"a log without it: {error}", anew, code="LIFECYCLE-037"
        ) from error
    files, folder = file_system(path)
    for file in then - now:
        if files.get_file_info(f"{folder}/{file}").type == FileType.NotFound:
            got = f"one without '{file.rsplit('/', 1)[-1]}', which a VACUUM has removed"
            raise LifecycleError(where, f"every file of version {output.version}", got, anew, code="LIFECYCLE-037")


def _files(table: DeltaTable) -> set[str]:
    """Paths of a table's files in its folder. ``file_uris`` of delta-rs escapes the table's path, but not the paths in it."""
    root = table.table_uri.removeprefix("file://").rstrip("/")
    return {file.removeprefix("file://").removeprefix(root).lstrip("/") for file in table.file_uris()}


def _no_cut_error(savepoint: Savepoint, readers: Sequence[str]) -> LifecycleError:
    name, operator = savepoint.manifest.id, savepoint.manifest.operator
    fix = (
        f"Take a savepoint that was made together with theirs (floodmark savepoint create {operator} --with-downstream), or leave them, "
        f"and compute them anew then: floodmark rollback {operator} --to {name} --leave-readers"
    )
    got = "none at that point of one or more of them"
    expected = (
        f"a state of {', '.join(readers)} that has read exactly what it keeps, under a definition for its columns"
    )
    return LifecycleError(f"rollback of '{operator}' to '{name}'", expected, got, fix, code="LIFECYCLE-035")
