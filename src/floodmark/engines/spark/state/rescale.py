"""Rescaling of a stream's state to another number of partitions. Key groups stay whole, so that no result changes."""

from __future__ import annotations

from typing import Any

from pyspark.sql import SparkSession

from floodmark.core.errors import CapabilityError
from floodmark.engines.spark.state.checkpoint import checkpoint_of
from floodmark.engines.starting import check_engine
from floodmark.lake.folder.copies import copy, files_of
from floodmark.lake.folder.paths import Lake
from floodmark.lake.restore import savepoints
from floodmark.lake.restore.savepoints import Savepoint
from floodmark.lake.restore.switch import refuse_half_written, refuse_moved, refuse_while_pending, stopped
from floodmark.lake.stream import fence
from floodmark.lake.stream.timeline import FOLLOWERS, Timeline
from floodmark.lifecycle.steps import Fence, MakeCurrent, Repartition, RestoreState, Save, Step, take


def rescale(spark: SparkSession, lake: Lake, operator: str, partitions: int) -> Savepoint | None:
    """Give the stopped stream of an operator another number of state partitions; the stream resumes on a new timeline.

    Source: ``streamingCheckpointManager.repartition`` of Spark 4.2, which rewrites the state of the last micro-batch as a further micro-batch.

    Args:
        spark: session.
        lake: in which the stream runs.
        operator: name of the operator.
        partitions: 1 or more.

    Returns:
        The savepoint that was made first; None if the stream has that many partitions already.

    Raises:
        LifecycleError: LIFECYCLE-003 the stream runs, LIFECYCLE-030 there is no stream, LIFECYCLE-034 a rollback of the stream is not finished,
            LIFECYCLE-044 its tables have rows of a micro-batch that is not committed.
        CapabilityError: CAPABILITY-006, the stream has no state.
        StateError: STATE-041, the state is another engine's.
    """
    with stopped(lake, [operator]):
        steps, timeline = rescale_steps(lake, operator, partitions), Timeline.current(lake, operator)
        if not steps:
            return None
        new, made = timeline.next(), list[Savepoint]()
        take(steps, lambda step: _take(step, timeline, new, made, spark))
    return made[0]


def rescale_steps(lake: Lake, operator: str, partitions: int) -> tuple[Step, ...]:
    """The steps of a rescaling; none if the stream has that many partitions already. No session is needed. Raises as ``rescale``."""
    refuse_while_pending(lake, operator)
    refuse_moved(lake, operator)
    timeline = Timeline.current(lake, operator)
    last, new = timeline.checkpoint.last_committed(), timeline.next().number
    if last < 0:
        raise savepoints.error_not_started(operator, lake)
    check_engine(timeline, "spark")
    if not checkpoint_of(timeline).stateful(last):
        fix = "Its rows are cut into tasks as they come; there is nothing to divide."
        where = f"rescale of '{operator}'"
        raise CapabilityError(where, "a stream with state", "one without", fix, code="CAPABILITY-006")
    if checkpoint_of(timeline).partitions(last) == partitions:
        return ()
    refuse_half_written(timeline, whole=False)
    return (
        Save(operator=operator, why=f"before {partitions} state partitions"),
        RestoreState(operator=operator, timeline=new, origin=f"micro-batch {last}"),
        Repartition(operator=operator, partitions=partitions),
        MakeCurrent(operator=operator, timeline=new),
        Fence(operator=operator, timeline=timeline.number),
    )


def _take(step: Step, timeline: Timeline, new: Timeline, made: list[Savepoint], spark: SparkSession) -> None:
    match step:
        case Save(why=why):
            made.append(savepoints.create(timeline.operator, timeline.lake, why=why))
        case RestoreState():
            savepoints.restore(made[0], new.folder())
            for path in files_of(timeline.folder(FOLLOWERS)):
                copy(timeline.folder(FOLLOWERS, path), new.folder("current", path))
        case Repartition(partitions=partitions):
            manager: Any = spark._streamingCheckpointManager  # noqa: SLF001 - Spark has no other way in yet
            manager.repartition(new.checkpoint.path, partitions)
        case MakeCurrent():
            new.make_current(ends=timeline)
        case Fence():
            fence.end_predecessor(new)
        case _:
            raise AssertionError(step)
