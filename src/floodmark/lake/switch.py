"""Switches of streams to savepoints, as one journalled action. No JVM is needed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress

from deltalake import DeltaTable

from floodmark.core import crash
from floodmark.core.errors import LifecycleError
from floodmark.lake import fence, history, last_values, savepoints
from floodmark.lake.commits import Restored
from floodmark.lake.copies import remove
from floodmark.lake.graft import graft
from floodmark.lake.locks import data_files, exclusive
from floodmark.lake.paths import Lake
from floodmark.lake.storage import file_system, read, write
from floodmark.lake.timeline import Timeline
from floodmark.lake.writer import Writer, committed
from floodmark.lifecycle.savepoint import TableVersion
from floodmark.lifecycle.switch import Step, Switch

_PATIENCE_SECONDS = 60
"""For another switch in the lake, which takes seconds."""
_UPKEEP_SECONDS = 600
"""For upkeep of the lake, which takes minutes."""


def pending(lake: Lake) -> Switch | None:
    """The switch that was begun in a lake and not finished."""
    found = read(_journal(lake))
    return None if found is None else Switch.parse(found)


def refuse_moved(lake: Lake, operator: str) -> None:
    """Raise LifecycleError LIFECYCLE-042 when the stream of an operator has moved to another lake."""
    moved = Timeline.current(lake, operator).moved
    if moved is not None:
        where, got = f"operator '{operator}' in {lake.root}", f"one that has moved to {moved.root}"
        fix = (
            f"Run it there: floodmark run {operator} --unbounded --lake {moved.root}. "
            f"Or let it go on here too, from where it left: floodmark rollback {operator} --to {moved.savepoint}"
        )
        raise LifecycleError(where, "a stream that is here", got, fix, code="LIFECYCLE-042")


def refuse_while_pending(lake: Lake, operator: str) -> None:
    """Raise LifecycleError LIFECYCLE-034 when a switch of an operator has begun and not ended."""
    begun = pending(lake)
    if begun is not None and operator in begun.operators:
        raise _unfinished(lake, operator, begun)


def refuse_another(lake: Lake, operator: str, again: str = "") -> None:
    """Raise LifecycleError LIFECYCLE-034 when a switch of any streams has begun and not ended: a lake remembers one.

    Args:
        lake: they run in.
        operator: that shall switch.
        again: the command of its own switch, which may have begun.
    """
    begun = pending(lake)
    if begun is not None and begun.again != again:
        raise _unfinished(lake, operator, begun)


def _unfinished(lake: Lake, operator: str, begun: Switch) -> LifecycleError:
    where = f"operator '{operator}' in {lake.root}"
    got = f"a rollback or rebuild of {', '.join(begun.operators)} that was begun and stopped on the way"
    return LifecycleError(where, "streams that are whole", got, f"Finish it: {begun.again}", code="LIFECYCLE-034")


def refuse_half_written(timeline: Timeline, *, whole: bool) -> None:
    """Raise LifecycleError LIFECYCLE-044 when a stream has ended in the middle of a micro-batch that its tables have rows of.

    Args:
        timeline: of the stopped stream.
        whole: one that all tables have may be left: who goes on takes it up on the same timeline, and finds it there.
    """
    deployed, last = timeline.identity.deployed(), timeline.checkpoint.last_committed()
    found = {name: _written(timeline, name) for name in deployed.tables} if deployed is not None else {}
    ahead = [name for name, batch in found.items() if batch > last]
    if not ahead or (whole and next(iter(found)) in ahead):  # the main table is written last
        return
    name = timeline.operator
    fix = (
        f"Start it, so that it ends its micro-batch: floodmark start {name}, or floodmark run {name} --unbounded --until-caught-up. "
        f"If it cannot: floodmark stop {name}, then floodmark savepoint create {name}, and floodmark rollback {name} --to that one."
    )
    got = f"micro-batch {last + 1} half written: its rows are in {', '.join(ahead)}"
    raise LifecycleError(f"operator '{name}'", "a stream between two micro-batches", got, fix, code="LIFECYCLE-044")


def newest_written(timeline: Timeline) -> int:
    """The last micro-batch that any table of a stream has rows of; -1 for none."""
    deployed = timeline.identity.deployed()
    return max((_written(timeline, name) for name in deployed.tables), default=-1) if deployed is not None else -1


def _written(timeline: Timeline, table: str) -> int:
    """The last micro-batch a table has rows of."""
    batch = committed(timeline.lake.output(table), timeline.app(table))
    return -1 if batch is None else batch


@contextmanager
def stopped(lake: Lake, operators: Sequence[str]) -> Iterator[None]:
    """Hold the locks of operators, so that no run of theirs is at work.

    Raises:
        LifecycleError: LIFECYCLE-003, one is.
    """
    with ExitStack() as stack:
        for name in operators:
            stack.enter_context(exclusive(lake, "operators", name, "run"))
        yield


def perform(lake: Lake, switch: Switch) -> None:
    """Write a switch down and do it; or do again one that is written down. The streams are stopped.

    Raises:
        LifecycleError: LIFECYCLE-034, another switch in the lake was begun and is not finished.
    """
    with (
        exclusive(lake, "actions", "switch", "rollback or rebuild", _PATIENCE_SECONDS),
        data_files(lake, "upkeep", _UPKEEP_SECONDS),
    ):
        refuse_another(lake, switch.operators[0], switch.again)
        _perform(lake, switch)


def _perform(lake: Lake, switch: Switch) -> None:
    crash.point("switch.before_journal")
    write(_journal(lake), switch.as_json().encode())
    crash.point("switch.before_state")
    timelines = [Timeline(lake, step.operator, step.timeline) for step in switch.steps]
    for step, timeline in zip(switch.steps, timelines, strict=True):
        savepoint = savepoints.find(lake, step.savepoint)
        savepoint.put_back(Lake(step.source) if step.source else lake)
        savepoints.restore(savepoint, timeline.folder())
    crash.point("switch.before_tables")
    ends, ids = {}, {table.table: table.id for step in switch.steps for table in step.tables}
    for step, timeline in zip(switch.steps, timelines, strict=True):
        _retire(timeline, step)
        for table in reversed(step.tables):  # as a micro-batch commits: the main output last, its last values before it
            _switch_values(timeline, step, table)
            crash.point("switch.after_values")
            ends[table.table] = _switched(timeline, step, table)
            crash.point("switch.after_table")
            if table.table in timeline.identity.result_keys():
                last_values.followed(timeline, table.table, ends[table.table] + 1)
    for step, timeline in zip(switch.steps, timelines, strict=True):
        sources = len(timeline.checkpoint.positions(step.batch)) // step.inputs
        for place, name in step.moves.items():
            timeline.checkpoint.move(step.batch, place * sources, ends[name], ids[name])
    crash.point("switch.before_current")
    for timeline in timelines:
        timeline.make_current()
        crash.point("switch.after_current")
    files, path = file_system(_journal(lake))
    with suppress(FileNotFoundError):
        files.delete_file(path)
    crash.point("switch.after_journal")


def _ended(timeline: Timeline, step: Step) -> Timeline:
    return Timeline(timeline.lake, step.operator, step.ends)


def _record(step: Step, table: str, restored: int) -> Restored:
    """Of a commit of a switch; ``restored`` is the version that comes back, -1 for none."""
    return Restored(
        mode="rebuild" if step.source else "rollback",
        operator=step.operator,
        version=step.version,
        timeline=step.timeline,
        table=table,
        restored=restored,
        savepoint=step.savepoint,
        batch=step.batch,
        progress=step.watermark,
    )


def _switch_values(timeline: Timeline, step: Step, wanted: TableVersion) -> None:
    """Make ``<table>__current`` what the changelog is about to say, once: in one commit, after which the old follower can write nothing."""
    lake, table = timeline.lake, f"{wanted.table}__current"
    keys = timeline.identity.result_keys().get(wanted.table)
    app = f"{timeline.app(f'current/{wanted.table}')}/switch"
    if keys is None or committed(lake.output(table), app) is not None:
        return
    origin, scratch = Lake(step.source) if step.source else lake, timeline.folder("switching", table)
    last_values.write(origin.output(wanted.table), wanted.version, keys, scratch)
    fences = [fence.follower(_ended(timeline, step), wanted.table)]
    graft(scratch, lake.output(table), app, _record(step, table, -1), fences=fences)
    remove(timeline.folder("switching"))


def _retire(timeline: Timeline, step: Step) -> None:
    """Empty, once, what the ended definition wrote and the new one does not write: tables of last values and, of a rebuild, outputs."""
    ended = _ended(timeline, step)
    old, new = ended.identity.deployed(), timeline.identity.deployed()
    retired = {
        f"{table}__current": table
        for table in ended.identity.result_keys().keys() - timeline.identity.result_keys().keys()
    }
    if step.source and old is not None and new is not None:
        retired |= {table: table for table in old.tables.keys() - new.tables.keys()}
    for name, table in sorted(retired.items()):
        path, app = timeline.lake.output(name), f"{timeline.app(name)}/retired"
        if not DeltaTable.is_deltatable(path) or (writer := Writer(path)).committed(app) is not None:
            continue
        fences = [*fence.transactions(ended, table), fence.follower(ended, table)]
        writer.become((), _record(step, name, -1), (app, 1), fences)


def _switched(timeline: Timeline, step: Step, wanted: TableVersion) -> int:
    """Make a table what it should be, once; the version that says so."""
    path, app = timeline.lake.output(wanted.table), f"{timeline.app(wanted.table)}/switch"
    record = _record(step, wanted.table, -1 if step.source else wanted.version)
    fences = fence.transactions(_ended(timeline, step), wanted.table)
    if step.source:
        graft(Lake(step.source).output(wanted.table), path, app, record, wanted.version, fences)
    elif (writer := Writer(path)).committed(app) is None:
        writer.restore(wanted.version, record, (app, 1), fences)
    return next(
        commit.version
        for commit in history.every(path)
        if isinstance(commit.record, Restored) and commit.record.timeline == step.timeline
    )


def _journal(lake: Lake) -> str:
    return lake.internal("switch.json")
