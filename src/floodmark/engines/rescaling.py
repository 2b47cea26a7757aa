"""Another number of key groups, or of bundles of them, for a stopped stream: its state is divided anew in the canonical format of savepoints, onto a new timeline.

Nothing is computed again. If the process is killed on the way, the stream has either the old number or the new one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, cast

import pyarrow as pa

from floodmark.core import crash
from floodmark.core.errors import CapabilityError, LifecycleError
from floodmark.engines.transfer import Session, convert, end_on_embedded, end_on_spark, save_once, succeed
from floodmark.lake.folder.copies import remove
from floodmark.lake.folder.paths import Lake
from floodmark.lake.restore import savepoints
from floodmark.lake.restore.canonical import BatchMetadata, Unfold
from floodmark.lake.restore.savepoints import Savepoint
from floodmark.lake.restore.switch import refuse_half_written, refuse_moved, refuse_while_pending, stopped
from floodmark.lake.stream import sample
from floodmark.lake.stream.checkpoint import engine_of
from floodmark.lake.stream.identity import Divided
from floodmark.lake.stream.timeline import CHECKPOINT, Timeline
from floodmark.lifecycle.steps import Fence, MakeCurrent, Regroup, Save, Step, take
from floodmark.semantics.kernels.stage import AnyStage, stage_of
from floodmark.spec.graph.bundles import bundles
from floodmark.spec.graph.operator import Operator
from floodmark.spec.workspace import Engine

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Reading = Callable[[Callable[["SparkSession"], pa.Table]], pa.Table]
"""Runs a function that only reads with a session of the stream's engine."""


def regroup(operator: Operator, lake: Lake, groups: int, reading: Reading, spark: Session) -> Savepoint | None:
    """Divide the state of the stopped stream of an operator among another number of key groups.

    They lie in as many bundles as a stream of now as many tasks begins with.

    Args:
        operator: as its stream was started.
        lake: in which the stream runs.
        groups: the number.
        reading: computes the key groups of keys, on the stream's engine.
        spark: starts Spark; called for a stream of Spark only.

    Returns:
        The savepoint that was made first; None if the stream has that many key groups, and bundles of them, already.

    Raises:
        CapabilityError: CAPABILITY-006 the stream has no state, CAPABILITY-054 it computes a sample of its key groups.
        LifecycleError: LIFECYCLE-003 the stream runs, LIFECYCLE-030 there is no stream, LIFECYCLE-034 a rollback of the stream is not finished,
            LIFECYCLE-230 the operator declares another number.
        StateError: STATE-002, STATE-003, the checkpoint is another operator's.
    """
    if not regroup_steps(operator, lake, groups):
        return None
    if engine_of(Timeline.current(lake, operator.name).folder(CHECKPOINT)) == "spark":
        end_on_spark(replace(operator, key_groups=None), lake, spark)
    with stopped(lake, [operator.name]):
        steps, timeline = regroup_steps(operator, lake, groups), Timeline.current(lake, operator.name)
        if not steps:
            return None
        if engine_of(timeline.folder(CHECKPOINT)) != "spark":
            end_on_embedded(operator, timeline)
        refuse_half_written(timeline, whole=False)
        new, made = timeline.next(), list[Savepoint]()
        regrouping = _Regrouping(operator.grouped(_bundles(timeline, groups), groups), groups, reading, spark)
        take(steps, lambda step: regrouping.take(step, timeline, new, made))
    return made[0]


def regroup_steps(operator: Operator, lake: Lake, groups: int) -> tuple[Step, ...]:
    """The steps of ``regroup``; none if the stream has that many key groups, and bundles of them, already. Raises as ``regroup``."""
    refuse_while_pending(lake, operator.name)
    refuse_moved(lake, operator.name)
    name, timeline = operator.name, Timeline.current(lake, operator.name)
    if timeline.checkpoint.last_committed() < 0:
        raise savepoints.error_not_started(name, lake)
    where, divided = f"rescale of '{name}'", timeline.identity.divided()
    if divided is None:
        fix = "Its rows are cut into tasks as they come; there is nothing to divide."
        raise CapabilityError(where, "a stream with state", "one without", fix, code="CAPABILITY-006")
    if sample.of(lake, name) is not None:
        fix = "An arm of an experiment keeps the key groups that were drawn for it. End the experiment, or rescale the stream that it was forked from."
        raise CapabilityError(where, "a stream that computes all keys", "a sample", fix, code="CAPABILITY-054")
    if operator.key_groups not in {None, groups}:
        fix = f"Write key_groups={groups} in the operator, or leave it out; else its next start is refused."
        expected = f"{operator.key_groups} key groups, as the operator declares"
        raise LifecycleError(where, expected, f"--key-groups {groups}", fix, code="LIFECYCLE-230")
    if divided == Divided(groups, _bundles(timeline, groups)):
        return ()
    timeline.identity.check_owner(replace(operator, key_groups=None))
    return _steps(name, groups, timeline.number, timeline.next().number)


def rebundle(operator: Operator, lake: Lake, spark: SparkSession) -> Savepoint | None:
    """Divide the state of a stopped stream on Spark, which has another number of state partitions now, among bundles of its key groups for these.

    Returns and raises as ``regroup``.
    """
    number = Timeline.current(lake, operator.name).identity.key_groups()
    assert number is not None, "rebundle_steps has looked"
    return regroup(replace(operator, key_groups=None), lake, number, lambda read: read(spark), lambda: spark)


def rebundle_steps(operator: Operator, lake: Lake, partitions: int) -> tuple[Step, ...]:
    """The steps of ``rebundle`` for a stream that is to have so many state partitions; none if its bundles are as those of a new stream.

    An arm of an experiment keeps its bundles.

    Raises:
        StateError: STATE-002, STATE-003, the checkpoint is another operator's.
    """
    name, timeline = operator.name, Timeline.current(lake, operator.name)
    divided = timeline.identity.divided()
    if divided is None or divided.parts == bundles(divided.key_groups, partitions) or sample.of(lake, name) is not None:
        return ()
    timeline.identity.check_owner(replace(operator, key_groups=None))
    repartitioned = _partitions(timeline) == partitions
    before = timeline if repartitioned else timeline.next()
    return _steps(name, divided.key_groups, before.number, before.next().number)


def _steps(name: str, groups: int, before: int, after: int) -> tuple[Step, ...]:
    """(operator, number of key groups, number of its timeline, and of the one that follows) -> steps."""
    return (
        Save(operator=name, why=f"before {groups} key groups"),
        Regroup(operator=name, groups=groups),
        MakeCurrent(operator=name, timeline=after),
        Fence(operator=name, timeline=before),
    )


def _bundles(timeline: Timeline, groups: int) -> int:
    """The number of bundles of so many key groups, by the tasks that share the state of a stream."""
    return bundles(groups, _partitions(timeline))


def _partitions(timeline: Timeline) -> int:
    """The number of tasks that share the state of a stream: on Spark its state partitions."""
    from floodmark.engines.spark.state.checkpoint import checkpoint_of  # noqa: PLC0415 - as in ``transfer``

    if engine_of(timeline.folder(CHECKPOINT)) != "spark":
        return 1
    return checkpoint_of(timeline).partitions(timeline.checkpoint.last_committed())


class _Regrouping:
    """Takes the steps.

    Args:
        operator: with the other number of key groups, and of bundles.
        groups: the number of key groups.
        reading: as of ``regroup``.
        spark: as of ``regroup``.
    """

    def __init__(self, operator: Operator, groups: int, reading: Reading, spark: Session) -> None:
        assert operator.stateful is not None, "a stream with state"
        self.operator, self.divided = operator, Divided(groups, operator.stateful.groups)
        self.reading, self.spark = reading, spark

    def take(self, step: Step, timeline: Timeline, new: Timeline, made: list[Savepoint]) -> None:
        """Take a step."""
        match step:
            case Save(why=why):
                made.append(save_once(timeline, why))
            case Regroup():
                engine = cast("Engine", engine_of(timeline.folder(CHECKPOINT)))
                scratch = timeline.folder("transfer")
                convert(new, made[0], (engine, engine), scratch, self.spark, self._unfolding)
                new.identity.regroup(self.divided)
            case MakeCurrent() | Fence():
                succeed(step, timeline, new)
            case _:
                raise AssertionError(step)

    def _unfolding(self, unfold: Unfold) -> Unfold:
        """As ``unfold``, with the other number of key groups."""
        from floodmark.engines.frames.compile import group_of  # noqa: PLC0415 - imports pyspark
        from floodmark.engines.frames.regrouped import regroup as regrouped  # noqa: PLC0415 - likewise
        from floodmark.lake.folder.storage import folders  # noqa: PLC0415

        stages = [stage for link in self.operator.links if (stage := stage_of(link)) is not None]

        def groups_of(stage: AnyStage, keys: pa.Table) -> pa.ChunkedArray:
            return self._groups_of(stage, group_of([f"`{key}`" for key in stage.keys], self.divided.parts), keys)

        def unfolded(folder: str, batch: int, target: str) -> BatchMetadata:
            before, name = target.rsplit("/", 1)
            marks = unfold(folder, batch, f"{before}.before/{name}")
            if name in folders(f"{before}.before"):
                crash.point("rescale.before_regroup")
                regrouped(stages, f"{before}.before/{name}", target, self.divided.parts, groups_of)
            remove(f"{before}.before")
            return marks

        return unfolded

    def _groups_of(self, stage: AnyStage, sql: str, keys: pa.Table) -> pa.ChunkedArray:
        if not stage.keys:
            return pa.chunked_array([pa.array([0] * keys.num_rows, pa.int32())])

        def read(session: SparkSession) -> pa.Table:
            return session.createDataFrame(keys).selectExpr(f"{sql} AS `group`", "place").toArrow()

        return self.reading(read).sort_by("place")["group"]
