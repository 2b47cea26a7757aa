"""Fences: what ends a timeline in its tables, so that a driver nobody knows of any more can do no harm: on another machine, or stopped for hours.

Delta lets a transaction pass only with a higher version than the last of its application id, and fails one that is on its way when another of that id
commits first. A fence is the highest version there is.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import get_args

from deltalake import DeltaTable, Transaction

from floodmark.core.errors import LifecycleError
from floodmark.lake.batch_state import check_read
from floodmark.lake.commits import Fenced
from floodmark.lake.timeline import Beside, Timeline
from floodmark.lake.writer import FENCE, Writer
from floodmark.spec.operator import Operator


def transactions(timeline: Timeline, table: str) -> list[Transaction]:
    """What ends the commits of a timeline to an output, for the commit that begins the next one."""
    return [Transaction(timeline.app(table, beside), FENCE) for beside in (None, *get_args(Beside))]


def end(timeline: Timeline, table: str) -> None:
    """End the commits of a timeline to an output in a commit of its own, once."""
    _commit(timeline.lake.output(table), timeline, transactions(timeline, table))


def follower(timeline: Timeline, table: str) -> Transaction:
    """What ends the commits of a timeline's follower to ``<table>__current``, for the commit that replaces that table."""
    return Transaction(timeline.app(f"current/{table}"), FENCE)


def end_follower(timeline: Timeline, table: str) -> None:
    """Let nothing that followed a timeline change ``<table>__current`` any more, once."""
    path = timeline.lake.output(f"{table}__current")
    _commit(path, timeline, [follower(timeline, table)])


def end_all(timeline: Timeline, outputs: Iterable[str]) -> None:
    """End the commits of a timeline to outputs, and to their tables of last values, each once."""
    for output in outputs:
        end(timeline, output)
        end_follower(timeline, output)


def settle(timeline: Timeline) -> None:
    """End the commits of the timeline before the current one of a stopped stream, where that is still to be done."""
    ended = timeline.unfenced
    if ended is not None:
        deployed = ended.identity.deployed()
        end_all(ended, deployed.tables if deployed is not None else ())
        timeline.make_current()


def resumed(timeline: Timeline, operator: Operator) -> Timeline:
    """The timeline that a start of an operator goes on with, settled.

    The current one; or the next one where nothing of the current one is needed: it has no micro-batch, and was begun under another definition,
    or would read in its first one what was replaced since.
    """
    settle(timeline)
    begun = timeline.identity.deployed()
    if begun is None or timeline.deployed is not None:
        return timeline
    if begun.version == operator.version and not _was_replaced(timeline):
        return timeline
    new = timeline.next()
    new.make_current(ends=timeline)
    settle(new)
    return new


def _was_replaced(timeline: Timeline) -> bool:
    """Whether what a stream has read of its inputs is no longer what is there."""
    try:
        check_read(timeline)
    except LifecycleError as error:
        if error.code != "LIFECYCLE-038":
            raise
        return True
    return False


def _commit(path: str, timeline: Timeline, fences: list[Transaction]) -> None:
    if not DeltaTable.is_deltatable(path):
        return
    writer = Writer(path)
    if any(writer.committed(fence.app_id) != FENCE for fence in fences):
        writer.note(Fenced(operator=timeline.operator, timeline=timeline.number), fences=fences)
