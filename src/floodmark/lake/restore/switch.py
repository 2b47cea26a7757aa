"""Switches of streams to savepoints, for rollbacks and rebuilds: one journalled action that can be repeated after a crash. No JVM is needed."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace

from deltalake import DeltaTable

from floodmark.core import crash
from floodmark.core.errors import LifecycleError
from floodmark.core.time import NEVER, Interval, describe
from floodmark.lake.folder.copies import remove
from floodmark.lake.folder.locks import BOUNDED, data_files, exclusive
from floodmark.lake.folder.paths import Lake
from floodmark.lake.folder.storage import file_system, read, write
from floodmark.lake.restore import differences, savepoints
from floodmark.lake.results import frozen, verdicts
from floodmark.lake.stream import fence, last_values, positions
from floodmark.lake.stream.checkpoint import checkpoint_at
from floodmark.lake.stream.identity import Identity
from floodmark.lake.stream.timeline import CHECKPOINT, Timeline
from floodmark.lake.table import entries, history
from floodmark.lake.table.commits import Restored
from floodmark.lake.writing import derived
from floodmark.lake.writing.cutover import Cutover, Part
from floodmark.lake.writing.graft import graft
from floodmark.lake.writing.writer import Writer, committed
from floodmark.lifecycle.cutover import CutoverPlan
from floodmark.lifecycle.savepoint import TableVersion
from floodmark.lifecycle.steps import (
    AppendDifference,
    Empty,
    MakeCurrent,
    NoteRevision,
    RestoreState,
    RestoreTable,
    RestoreValues,
    Seek,
    Switching,
    take,
)
from floodmark.lifecycle.switch import Followed, Switchover, Target, Turn
from floodmark.lifecycle.switch import steps as turn_steps

_PATIENCE_SECONDS = 60
"""Longest wait for another switch in the lake, which takes seconds."""
_UPKEEP_SECONDS = 600
"""Longest wait for upkeep of the lake, which takes minutes."""
_CUTOVER = "cutover"
"""Folder of a timeline with the mixed tables of a cut-over."""


def pending(lake: Lake) -> Switchover | None:
    """The unfinished switch in a lake's journal; None if there is none."""
    content = read(_journal(lake))
    return None if content is None else Switchover.parse(content)


def refuse_moved(lake: Lake, operator: str) -> None:
    """Raise LifecycleError LIFECYCLE-042 if the stream of an operator has moved to another lake."""
    moved = Timeline.current(lake, operator).moved
    if moved is not None:
        where, got = f"operator '{operator}' in {lake.root}", f"one that has moved to {moved.root}"
        fix = (
            f"Run it there: floodmark run {operator} --unbounded --lake {moved.root}. "
            f"Or resume it here too, from where it left: floodmark rollback {operator} --to {moved.savepoint}"
        )
        raise LifecycleError(where, "a stream that is here", got, fix, code="LIFECYCLE-042")


def refuse_while_pending(lake: Lake, operator: str) -> None:
    """Raise LifecycleError LIFECYCLE-034 if a switch of an operator is unfinished."""
    begun = pending(lake)
    if begun is not None and operator in begun.operators:
        raise _unfinished(lake, operator, begun)


def refuse_another(lake: Lake, operator: str, again: str = "") -> None:
    """Raise LifecycleError LIFECYCLE-034 if any other switch in the lake is unfinished: the journal holds one switch.

    Args:
        lake: the lake of the streams.
        operator: the operator to switch.
        again: the command of the operator's own switch, which may be the unfinished one.
    """
    begun = pending(lake)
    if begun is not None and begun.again != again:
        raise _unfinished(lake, operator, begun)


def _unfinished(lake: Lake, operator: str, begun: Switchover) -> LifecycleError:
    where = f"operator '{operator}' in {lake.root}"
    got = f"a rollback or rebuild of {', '.join(begun.operators)} that was begun and stopped on the way"
    return LifecycleError(where, "streams that are whole", got, f"Finish it: {begun.again}", code="LIFECYCLE-034")


def refuse_half_written(timeline: Timeline, *, whole: bool) -> None:
    """Raise LifecycleError LIFECYCLE-044 if a stopped stream's tables have rows of an uncommitted micro-batch.

    Args:
        timeline: timeline of the stopped stream.
        whole: True to accept a micro-batch that all tables have: a stream that resumes on the same timeline skips its writes.
    """
    deployed, last = timeline.identity.deployed(), timeline.checkpoint.last_committed()
    written = {name: timeline.written(name) for name in deployed.tables} if deployed is not None else {}
    ahead = [name for name, batch in written.items() if batch > last]
    if not ahead or (whole and next(iter(written)) in ahead):  # the main table is written last
        return
    name = timeline.operator
    fix = (
        f"Start it, so that it ends its micro-batch: floodmark start {name}, or floodmark run {name} --unbounded --until-caught-up. "
        f"If it cannot: floodmark stop {name}, then floodmark savepoint create {name}, and floodmark rollback {name} --to that one."
    )
    got = f"micro-batch {last + 1} half written: its rows are in {', '.join(ahead)}"
    raise LifecycleError(f"operator '{name}'", "a stream between two micro-batches", got, fix, code="LIFECYCLE-044")


@contextmanager
def stopped(lake: Lake, operators: Sequence[str]) -> Iterator[None]:
    """Hold the locks of operators so that none of their runs is active. Completes an interrupted fencing of each.

    Raises:
        LifecycleError: LIFECYCLE-003, a run is active.
    """
    with ExitStack() as stack:
        for name in operators:
            stack.enter_context(exclusive(lake, "operators", name, "run"))
            stack.enter_context(exclusive(lake, "operators", name, "bounded run", file=BOUNDED))
            fence.end_predecessor(Timeline.current(lake, name))
        yield


def perform(lake: Lake, switch: Switchover) -> None:
    """Journal a switch and perform it, or repeat the journalled one. The streams are stopped.

    Raises:
        LifecycleError: LIFECYCLE-003 another switch or upkeep of the lake takes too long, LIFECYCLE-034 another switch in the lake is unfinished,
            LIFECYCLE-201 frozen results would change.
    """
    with (
        exclusive(lake, "actions", "switch", "rollback or rebuild", _PATIENCE_SECONDS),
        data_files(lake, "upkeep", _UPKEEP_SECONDS),
    ):
        refuse_another(lake, switch.operators[0], switch.again)
        check_frozen(lake, switch.targets)
        _perform(lake, switch)


def check_frozen(lake: Lake, targets: Iterable[Target]) -> None:
    """Check that a switch changes no frozen results: a rollback may change later ones, a cut-over those from its instant on, a rebuild none.

    Raises:
        LifecycleError: LIFECYCLE-201, it would.
    """
    for target in targets:
        if target.source:
            replaced = Interval() if target.cutover is None else Interval(start=target.cutover.at)
            frozen.check(lake, target.operator, [replaced], "a rebuild or a promotion")
        for table in () if target.source else target.tables:
            frozen.check_restored(lake, target.operator, table.table, table.version)


def become(
    lake: Lake,
    operator: str,
    beside: Lake,
    *,
    again: str,
    back: str,
    why: str,
    cutover: CutoverPlan | None = None,
    followed: Followed | None = None,
) -> str:
    """Replace a stopped stream's state and tables by those of a stopped stream of the same operator in another lake. One commit per table.

    Args:
        lake: the lake the stream runs in.
        operator: name of the operator.
        beside: the other lake.
        again: the command that completes an interrupted switch.
        back: id of the savepoint that would undo the switch.
        why: note for the savepoint that transfers the state.
        cutover: the cut-over that decides which results stay; by default none stays.
        followed: how readers of the tables, which are stopped, follow the replacement; by default they have to be computed anew.

    Returns:
        Id of the savepoint that transferred the state. It names tables of the other lake, so it is useless afterwards.
    """
    made = savepoints.create(operator, beside, why=why)
    taken, timeline = savepoints.import_savepoint(lake, made.path).manifest, Timeline.current(lake, operator)
    target = Target.onto(
        taken, timeline=timeline.next().number, ends=timeline.number, source=beside.root, cutover=cutover
    )
    target = replace(target, followed=followed)
    perform(lake, Switchover(again=again, targets=(target,), back=back))
    return taken.id


def _perform(lake: Lake, switch: Switchover) -> None:
    crash.point("switch.before_journal")
    write(_journal(lake), switch.as_json().encode())
    by_name = {target.operator: target for target in switch.targets}
    take(steps(lake, switch), lambda step: _perform_step(lake, by_name, step))
    files, path = file_system(_journal(lake))
    with suppress(FileNotFoundError):
        files.delete_file(path)
    crash.point("switch.after_journal")


def steps(lake: Lake, switch: Switchover) -> list[Switching]:
    """The steps of a switch. Changes nothing.

    Args:
        lake: the lake the streams run in.
        switch: the switch. In a dry run its savepoints need not exist yet.
    """
    there = savepoints.names(lake)
    return list(turn_steps([_turn(lake, target, there) for target in switch.targets]))


def _turn(lake: Lake, target: Target, there: Collection[str]) -> Turn:
    ended = new = Timeline(lake, target.operator, target.ends).identity
    if target.savepoint in there:
        new = Identity(checkpoint_at(f"{savepoints.find(lake, target.savepoint).path}/{CHECKPOINT}"))
    values = new.result_keys().keys()
    return Turn(
        operator=target.operator,
        timeline=target.timeline,
        origin=target.source or f"micro-batch {target.batch}",
        tables={one.table: _origin(target.source, target.cutover) or f"version {one.version}" for one in target.tables},
        values=values,
        retired=_retired(ended, values, _outputs(new) if target.source else None),
        follows=tuple(target.moves.values()),
        followed=target.followed or Followed(),
    )


def _origin(source: str, cutover: CutoverPlan | None) -> str:
    """The origin of a table's rows, in words."""
    return source if cutover is None else f"{source} from {describe(cutover.at)} on, and before that what it is"


def beside_turn(
    lake: Lake,
    operator: str,
    source: str,
    tables: Iterable[str],
    values: Collection[str],
    cutover: CutoverPlan | None = None,
    followed: Followed | None = None,
) -> Turn:
    """The steps by which a stream would be replaced by a stream of the same operator in another lake.

    Args:
        lake: the lake the stream runs in.
        operator: name of the operator.
        source: root of the other lake, which need not exist yet.
        tables: output tables of the other stream, the main output first.
        values: the tables among them with last values.
        cutover: the cut-over that decides which results stay; by default none stays.
        followed: how readers of the tables would follow; by default they would have to be computed anew.
    """
    timeline, origins = Timeline.current(lake, operator), dict.fromkeys(tables, _origin(source, cutover))
    return Turn(
        operator=operator,
        timeline=timeline.next().number,
        origin=source,
        tables=origins,
        values=values,
        retired=_retired(timeline.identity, values, origins),
        followed=followed or Followed(),
    )


def _retired(ended: Identity, values: Collection[str], outputs: Collection[str] | None) -> tuple[str, ...]:
    """Names of the tables that the ended definition wrote and the new one does not write.

    Args:
        ended: identity of the timeline that ends.
        values: outputs with last values in the new definition.
        outputs: outputs of the new definition; None if no outputs are retired.
    """
    old = set() if outputs is None else _outputs(ended) - set(outputs)
    return tuple(sorted([*(f"{table}__current" for table in ended.result_keys().keys() - set(values)), *old]))


def _outputs(identity: Identity) -> set[str]:
    deployed = identity.deployed()
    return set() if deployed is None else set(deployed.tables)


def _perform_step(lake: Lake, targets: Mapping[str, Target], step: Switching) -> None:
    target = targets[step.operator]
    timeline = Timeline(lake, target.operator, target.timeline)
    wanted = {one.table: one for one in target.tables}
    match step:
        case RestoreState():
            savepoint = savepoints.find(lake, target.savepoint)
            savepoint.put_back(Lake(target.source) if target.source else lake)
            savepoints.restore(savepoint, timeline.folder())
        case Empty(table=table):
            _empty_retired(timeline, target, table)
        case RestoreValues(table=table):
            _switch_values(timeline, target, wanted[table.removesuffix("__current")])
        case NoteRevision(tables=tables):
            differences.note_revision(lake, target, tables)
        case AppendDifference(table=table):
            differences.append(timeline, target, wanted[table])
        case RestoreTable(table=table):
            _switch_table(timeline, target, wanted[table])
            history.keep(lake.output(table), entries.version_of(lake.output(table)) + 1)
            if table in timeline.identity.result_keys():
                version = _switched_at(lake.output(table), target.timeline)
                last_values.followed(timeline, table, version + 1)
        case Seek():
            _seek(timeline, target, targets)
        case MakeCurrent():
            remove(timeline.folder(_CUTOVER))
            timeline.make_current()


def _seek(timeline: Timeline, target: Target, targets: Mapping[str, Target]) -> None:
    deployed = timeline.identity.deployed()
    assert deployed is not None
    numbers = list(positions.numbers(deployed.graph, len(timeline.checkpoint.positions(target.batch))).values())
    written = {table.table: (writer, table.id) for writer in targets.values() for table in writer.tables}
    for index, name in target.moves.items():
        writer, table_id = written[name]
        version = _switched_at(timeline.lake.output(name), writer.timeline)
        for source in numbers[index]:
            timeline.checkpoint.move(target.batch, source, version, table_id)


def _ended(timeline: Timeline, target: Target) -> Timeline:
    return Timeline(timeline.lake, target.operator, target.ends)


def _record(target: Target, table: str, restored: int) -> Restored:
    """The record of a switch's commit to a table.

    Args:
        target: the stream's part of the switch.
        table: name of the table.
        restored: the restored version; -1 if the rows come from another table.
    """
    return Restored(
        mode="rebuild" if target.source else "rollback",
        operator=target.operator,
        version=target.version,
        timeline=target.timeline,
        table=table,
        restored=restored,
        savepoint=target.savepoint,
        batch=target.batch,
        progress=target.watermark,
    )


def _switch_values(timeline: Timeline, target: Target, wanted: TableVersion) -> None:
    """Replace ``<table>__current`` by the last values of the coming changelog, in one commit that also fences the old follower. Repeatable."""
    lake, table = timeline.lake, f"{wanted.table}__current"
    keys = timeline.identity.result_keys().get(wanted.table)
    app = f"{timeline.app(f'current/{wanted.table}')}/switch"
    if keys is None or committed(lake.output(table), app) is not None:
        return
    scratch, (changelog, version, also) = timeline.folder("switching", table), _replacement(timeline, target, wanted)
    last_values.write(changelog, version, keys, scratch, also)
    fences = [fence.follower(_ended(timeline, target), wanted.table)]
    graft(scratch, lake.output(table), app, _record(target, table, -1), fences=fences)
    remove(timeline.folder("switching"))


def check_cutover(lake: Lake, beside: Lake, cutover: CutoverPlan) -> None:
    """Check that each table of a cut-over can hold rows of both versions.

    Args:
        lake: lake of the stream.
        beside: lake of the coming version.
        cutover: the cut-over of all tables.

    Raises:
        LifecycleError: LIFECYCLE-110, the column types or the partitioning of a table differ.
    """
    for table in cutover.staying:
        path = beside.output(table)
        if DeltaTable.is_deltatable(path):
            _cutover(lake, cutover, table, path, DeltaTable(path).version()).check()


def _cutover(lake: Lake, cutover: CutoverPlan, table: str, path: str, version: int) -> Cutover:
    staying = (lake.output(table), cutover.staying[table])
    return Cutover(table=table, staying=staying, coming=(path, version), at=cutover.at, since=cutover.since)


def _replacement(timeline: Timeline, target: Target, wanted: TableVersion) -> tuple[str, int | None, Part | None]:
    """(path, version, further files) of the table that replaces an output. For a cut-over, writes the mixed table first if needed."""
    origin = Lake(target.source) if target.source else timeline.lake
    path, plan = origin.output(wanted.table), target.cutover
    if plan is None or wanted.table not in plan.staying:
        return path, wanted.version, None
    mixed = timeline.folder(_CUTOVER, wanted.table)
    cutover = _cutover(timeline.lake, plan, wanted.table, path, wanted.version)
    if not derived.whole(mixed):  # used twice: for the last values, then for the table
        cutover.write(mixed)
    return mixed, None, cutover.part


def _empty_retired(timeline: Timeline, target: Target, name: str) -> None:
    """Empty a table that the ended definition wrote and the new one does not. Repeatable."""
    path, app = timeline.lake.output(name), f"{timeline.app(name)}/retired"
    if not DeltaTable.is_deltatable(path) or (writer := Writer(path)).committed(app) is not None:
        return
    ended, table = _ended(timeline, target), name.removesuffix("__current")
    fences = [*fence.transactions(ended, table), fence.follower(ended, table)]
    writer.become((), _record(target, name, -1), (app, 1), fences)


def _switch_table(timeline: Timeline, target: Target, wanted: TableVersion) -> None:
    """Restore or replace a table by its target. Repeatable."""
    path, app = timeline.lake.output(wanted.table), f"{timeline.app(wanted.table)}/switch"
    record = _record(target, wanted.table, -1 if target.source else wanted.version)
    if target.followed is not None and (versions := target.followed.readers.get(wanted.table)):
        record = replace(record, difference=entries.version_of(path), followers=versions)
    fences = fence.transactions(_ended(timeline, target), wanted.table)
    if committed(path, app) is not None:
        return
    if not target.source:
        reached = history.progress(path, wanted.version)
        verdicts.cut(path, NEVER if reached is None else reached)
        Writer(path).restore(wanted.version, record, (app, 1), fences)
        return
    origin, version, also = _replacement(timeline, target, wanted)
    graft(origin, path, app, record, version, fences, also)
    remove(timeline.folder(_CUTOVER, wanted.table))


def _switched_at(path: str, timeline: int) -> int:
    """The version of the commit that switched a table to a timeline."""
    return next(
        commit.version
        for commit in history.every(path)
        if isinstance(commit.record, Restored) and commit.record.timeline == timeline
    )


def _journal(lake: Lake) -> str:
    return lake.internal("switch.json")
