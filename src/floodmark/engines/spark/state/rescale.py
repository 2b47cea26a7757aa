"""Rescaling: the state of a stream over another number of partitions. Key groups move whole, so that no result changes."""

from __future__ import annotations

from typing import Any

from pyspark.sql import SparkSession

from floodmark.core import crash
from floodmark.core.errors import CapabilityError
from floodmark.engines.spark.state.checkpoint import checkpoint_of
from floodmark.engines.starting import check_engine
from floodmark.lake import fence, savepoints
from floodmark.lake.copies import copy, files_of
from floodmark.lake.paths import Lake
from floodmark.lake.savepoints import Savepoint
from floodmark.lake.switch import refuse_half_written, refuse_moved, refuse_while_pending, stopped
from floodmark.lake.timeline import Timeline


def rescale(spark: SparkSession, lake: Lake, operator: str, partitions: int) -> Savepoint | None:
    """Give the stopped stream of an operator another number of state partitions; it goes on on a new timeline.

    Source: ``streamingCheckpointManager.repartition`` of Spark 4.2, which rewrites the state of the last micro-batch as one more.

    Args:
        spark: session.
        lake: the stream runs in.
        operator: its name.
        partitions: 1 or more.

    Returns:
        The savepoint that was made first; None where it has as many already.

    Raises:
        LifecycleError: LIFECYCLE-003 the stream is at work, LIFECYCLE-030 there is none, LIFECYCLE-034 a rollback of it is not finished,
            LIFECYCLE-044 its tables have rows of a micro-batch it has not ended.
        CapabilityError: CAPABILITY-006, it has no state.
        StateError: STATE-041, another engine keeps its state.
    """
    with stopped(lake, [operator]):
        refuse_while_pending(lake, operator)
        refuse_moved(lake, operator)
        timeline = Timeline.current(lake, operator)
        last = timeline.checkpoint.last_committed()
        if last < 0:
            raise savepoints.not_begun(operator, lake)
        check_engine(timeline, "spark")
        if not checkpoint_of(timeline).stateful(last):
            fix = "Its rows are cut into tasks as they come; there is nothing to divide."
            where = f"rescale of '{operator}'"
            raise CapabilityError(where, "a stream with state", "one without", fix, code="CAPABILITY-006")
        if checkpoint_of(timeline).partitions(last) == partitions:
            return None
        refuse_half_written(timeline, whole=False)
        made = savepoints.create(operator, lake, why=f"before {partitions} state partitions")
        crash.point("rescale.after_savepoint")
        new = timeline.next()
        savepoints.restore(made, new.folder())
        for path in files_of(timeline.folder("current")):
            copy(timeline.folder("current", path), new.folder("current", path))
        crash.point("rescale.before_state")
        manager: Any = spark._streamingCheckpointManager  # noqa: SLF001 - Spark has no other way in yet
        manager.repartition(new.checkpoint.path, partitions)
        crash.point("rescale.before_current")
        new.make_current()
        for output in made.manifest.outputs:
            fence.end(timeline, output.table)
            fence.end_follower(timeline, output.table)
    return made
