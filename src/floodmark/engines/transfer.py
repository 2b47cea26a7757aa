"""Transfer of a stopped stream to the other engine: its state is converted through the canonical format of savepoints, onto a new timeline.

Nothing is computed again. If the process is killed on the way, the stream belongs either to the old engine or to the new one.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from floodmark.core import crash
from floodmark.lake.folder.copies import remove
from floodmark.lake.folder.paths import Lake
from floodmark.lake.restore import canonical, savepoints
from floodmark.lake.restore.canonical import Unfold
from floodmark.lake.restore.savepoints import Savepoint
from floodmark.lake.restore.switch import refuse_half_written, refuse_moved, refuse_while_pending, stopped
from floodmark.lake.stream import fence, last_values
from floodmark.lake.stream.checkpoint import checkpoint_at, engine_of
from floodmark.lake.stream.timeline import CHECKPOINT, Timeline
from floodmark.lake.table import entries
from floodmark.lifecycle.steps import Convert, Fence, MakeCurrent, Save, Step, take
from floodmark.spec.graph.operator import Operator
from floodmark.spec.workspace import Engine

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Session = Callable[[], "SparkSession"]
"""Starts Spark; called only if Spark is needed."""
_OTHER: Mapping[Engine, Engine] = {"spark": "embedded", "embedded": "spark"}


def is_due(operator: str, lake: Lake, engine: Engine) -> bool:
    """Whether the checkpoint of an operator's stream belongs to another engine."""
    timeline = Timeline.current(lake, operator)
    return timeline.identity.deployed() is not None and engine_of(timeline.folder(CHECKPOINT)) != engine


def transfer(operator: Operator, lake: Lake, engine: Engine, spark: Session) -> Savepoint | None:
    """Convert the stopped stream of an operator, so that an engine can resume it.

    Args:
        operator: as its stream was started.
        lake: in which the stream runs.
        engine: that shall resume the stream.
        spark: starts Spark: to write state for Spark, to read state of Spark's, or to finish a micro-batch that Spark has begun.

    Returns:
        The savepoint that was made first; None if the stream belongs to the engine already, has not begun, or has committed nothing.

    Raises:
        CapabilityError: CAPABILITY-031 or CAPABILITY-035, only Spark can run the operator.
        LifecycleError: LIFECYCLE-003 the stream runs, LIFECYCLE-034 a rollback of the stream is not finished,
            LIFECYCLE-042 the stream has moved to another lake.
        StateError: STATE-002, STATE-003, the checkpoint is another operator's; STATE-036, the checkpoint is damaged.
    """
    if not is_due(operator.name, lake, engine):
        return None
    refuse_while_pending(lake, operator.name)
    refuse_moved(lake, operator.name)
    if engine == "embedded":
        from floodmark.engines.embedded.unbounded.begin import check_supported  # noqa: PLC0415 - Spark alone needs no Sail

        check_supported(operator, lake)
        end_on_spark(operator, lake, spark)
    with stopped(lake, [operator.name]):
        if not is_due(operator.name, lake, engine):
            return None
        timeline = Timeline.current(lake, operator.name)
        if timeline.deployed is not None:
            timeline.identity.check_owner(operator)
        if engine == "spark":
            end_on_embedded(operator, timeline)
        refuse_half_written(timeline, whole=False)
        if timeline.checkpoint.last_committed() < 0:
            timeline.next().make_current()
            return None
        new, made = timeline.next(), list[Savepoint]()
        take(_steps(timeline, new, engine), lambda step: _take(step, timeline, new, made, spark))
    return made[0]


def _steps(timeline: Timeline, new: Timeline, engine: Engine) -> tuple[Step, ...]:
    name = timeline.operator
    return (
        Save(operator=name, why=f"before it goes over to engine {engine}"),
        Convert(operator=name, engine=engine),
        MakeCurrent(operator=name, timeline=new.number),
        Fence(operator=name, timeline=timeline.number),
    )


def _take(step: Step, timeline: Timeline, new: Timeline, made: list[Savepoint], spark: Session) -> None:
    match step:
        case Save(why=why):
            made.append(save_once(timeline, why))
        case Convert():
            engine: Engine = "spark" if step.engine == "spark" else "embedded"
            convert(new, made[0], (_OTHER[engine], engine), timeline.folder("transfer"), spark)
        case MakeCurrent() | Fence():
            succeed(step, timeline, new)
        case _:
            raise AssertionError(step)


def succeed(step: MakeCurrent | Fence, timeline: Timeline, new: Timeline) -> None:
    """Take one of the last steps of a conversion: the new timeline becomes current; the old one is fenced, and its canonical form removed."""
    match step:
        case MakeCurrent():
            new.make_current(ends=timeline)
        case Fence():
            fence.end_predecessor(new)
            remove(timeline.folder("transfer"))


def save_once(timeline: Timeline, why: str) -> Savepoint:
    """A savepoint of the stopped stream; that of a transfer which was killed after making one is used again."""
    lake, name = timeline.lake, timeline.operator
    last = timeline.checkpoint.last_committed()
    for savepoint in reversed(savepoints.savepoints(lake, name)):
        manifest = savepoint.manifest
        if (manifest.timeline, manifest.batch, manifest.why) == (timeline.number, last, why) and not savepoints.verify(
            savepoint
        ):
            return savepoint
    return savepoints.create(name, lake, why=why)


def convert(
    new: Timeline,
    made: Savepoint,
    engines: tuple[Engine, Engine],
    scratch: str,
    spark: Session,
    unfolding: Callable[[Unfold], Unfold] = lambda unfold: unfold,
) -> None:
    """Write the state of a savepoint as the checkpoint of a new timeline.

    Args:
        new: the timeline.
        made: the savepoint.
        engines: that has made the savepoint, and that shall read the checkpoint.
        scratch: folder for the canonical form.
        spark: starts Spark.
        unfolding: what changes the canonical form on the way.
    """
    from floodmark.engines.embedded.state import canonical as of_embedded  # noqa: PLC0415 - as above
    from floodmark.engines.spark.state import canonical as of_spark  # noqa: PLC0415 - likewise

    remove(scratch)
    before, engine = engines
    unfold = of_spark.unfolding(spark, made.manifest.graph) if before == "spark" else of_embedded.unfold
    exported = canonical.export(made, scratch, unfolding(unfold))
    crash.point("transfer.after_export")
    fold = (
        _folding_on_spark(new, made.manifest.batch, engines, spark())
        if engine == "spark"
        else of_embedded.folding(new.lake)
    )
    canonical.fill(exported, new.folder(), engine, fold)
    for table in new.identity.result_keys():
        last_values.followed(new, table, entries.version_of(new.lake.output(table)) + 1)


def _folding_on_spark(new: Timeline, batch: int, engines: tuple[Engine, Engine], spark: SparkSession) -> canonical.Fold:
    """``folding``; a stream that stays on Spark keeps its number of state partitions."""
    from floodmark.engines.spark.state import canonical as of_spark  # noqa: PLC0415 - as above
    from floodmark.engines.spark.state.checkpoint import checkpoint_of  # noqa: PLC0415 - likewise

    if engines[0] != "spark":
        return of_spark.folding(spark)
    partitions = checkpoint_of(Timeline.current(new.lake, new.operator)).partitions(batch)
    return of_spark.folding(of_spark.beside(spark, {"spark.sql.shuffle.partitions": str(partitions)}))


def end_on_embedded(operator: Operator, timeline: Timeline) -> None:
    """Let the embedded engine commit the rows that tables lack of the last micro-batch."""
    from floodmark.engines.embedded.state.checkpoint import Checkpoint  # noqa: PLC0415 - as above
    from floodmark.engines.embedded.state.store import State  # noqa: PLC0415
    from floodmark.engines.embedded.unbounded.sink import Sink  # noqa: PLC0415

    state = State(Checkpoint(timeline.folder(CHECKPOINT)))
    Sink(operator, timeline.lake, timeline, state, uuid.uuid4().hex).pay_last()


def end_on_spark(operator: Operator, lake: Lake, spark: Session) -> None:
    """Let Spark finish the micro-batch that it has begun, and merge all rows of changelogs into the tables of last values."""
    timeline = Timeline.current(lake, operator.name)
    ends = timeline.newest_written > timeline.checkpoint.last_committed()
    if not ends and not any(_lags(timeline, output.table) for output in operator.outputs if output.current is not None):
        return
    from floodmark.engines.spark.unbounded.run import run_unbounded  # noqa: PLC0415 - as above

    stop = threading.Event()
    run_unbounded(spark(), operator, lake, until_caught_up=True, stop=stop, on_batch=lambda _: stop.set())


def _lags(timeline: Timeline, table: str) -> bool:
    """Whether the table of last values lacks rows of its changelog."""
    follower = checkpoint_at(timeline.folder("current", table))
    last = follower.last_committed()
    first = last_values.follows_from(timeline, table)
    read = follower.positions(last)[0].version if last >= 0 else (first or 0) - 1
    return read < entries.version_of(timeline.lake.output(table))
