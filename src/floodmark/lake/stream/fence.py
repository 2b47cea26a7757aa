"""Fencing. Ends a timeline in its output tables so that a stale (zombie) driver cannot commit, such as one on another machine or suspended for hours.

Delta accepts a transaction only if its version is higher than the last one of its application id, and fails a concurrent transaction if another one
of that id commits first. A fence is a transaction with the highest possible version.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import get_args

from deltalake import DeltaTable, Transaction

from floodmark.core.errors import LifecycleError
from floodmark.lake.stream.batch_state import check_read
from floodmark.lake.stream.timeline import Beside, Timeline
from floodmark.lake.table.commits import Fenced
from floodmark.lake.writing.writer import FENCE, Writer
from floodmark.spec.graph.operator import Operator


def transactions(timeline: Timeline, table: str) -> list[Transaction]:
    """The fences that end a timeline's commits to an output, to be included in the commit that begins the next timeline."""
    return [Transaction(timeline.app(table, beside), FENCE) for beside in (None, *get_args(Beside))]


def end(timeline: Timeline, table: str) -> None:
    """Fence a timeline's commits to an output, in a separate commit. Does nothing if they are fenced."""
    _commit(timeline.lake.output(table), timeline, transactions(timeline, table))


def follower(timeline: Timeline, table: str) -> Transaction:
    """The fence that ends the commits of a timeline's follower to ``<table>__current``, for the commit that replaces that table."""
    return Transaction(timeline.app(f"current/{table}"), FENCE)


def end_follower(timeline: Timeline, table: str) -> None:
    """Fence the commits of a timeline's follower to ``<table>__current``. Does nothing if they are fenced."""
    path = timeline.lake.output(f"{table}__current")
    _commit(path, timeline, [follower(timeline, table)])


def end_all(timeline: Timeline, outputs: Iterable[str]) -> None:
    """Fence a timeline's commits to outputs and to their tables of last values."""
    for output in outputs:
        end(timeline, output)
        end_follower(timeline, output)


def end_predecessor(timeline: Timeline) -> None:
    """Fence the predecessor of a stopped stream's current timeline if a crash prevented that before."""
    ended = timeline.unfenced
    if ended is not None:
        deployed = ended.identity.deployed()
        end_all(ended, deployed.tables if deployed is not None else ())
        timeline.make_current()


def resumed(timeline: Timeline, operator: Operator) -> Timeline:
    """The timeline on which a start of an operator runs, with its predecessors fenced.

    Returns the current timeline. Creates and returns the next timeline if the current one has no micro-batch and was begun under another definition, or
    with another number of key groups than is declared now, or would read in its first micro-batch inputs that were replaced since.
    """
    end_predecessor(timeline)
    begun = timeline.identity.deployed()
    if begun is None or timeline.deployed is not None:
        return timeline
    declared = operator.key_groups in {None, begun.key_groups}
    if declared and begun.version == operator.version and not _was_replaced(timeline):
        return timeline
    new = timeline.next()
    new.make_current(ends=timeline)
    end_predecessor(new)
    return new


def _was_replaced(timeline: Timeline) -> bool:
    """True if an input was created again or restored after the version that a stream has read."""
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
