"""Unbounded runs: an operator as a stream over Delta logs, until it is stopped or has caught up."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Collection
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from typing import Any

from delta.tables import DeltaTable
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from floodmark.core.errors import ExecutionError, FloodmarkError, SetupError, StateError
from floodmark.engines.outcome import explained
from floodmark.engines.pacing import Pace, Within
from floodmark.engines.spark.delta import current, tables
from floodmark.engines.spark.delta.ticks import Ticks
from floodmark.engines.spark.session import local_files, workers
from floodmark.engines.spark.state.checkpoint import checkpoint_of
from floodmark.engines.spark.unbounded import inputs
from floodmark.engines.spark.unbounded import starts as markers
from floodmark.engines.spark.unbounded.chain import Chain, stages_of
from floodmark.engines.spark.unbounded.holding import Holding
from floodmark.engines.spark.unbounded.progress import checkpointed
from floodmark.engines.spark.unbounded.restating import restate
from floodmark.engines.spark.unbounded.sink import Sink
from floodmark.engines.starting import check_engine, check_outputs, check_tables, open_timeline, take_for_spark
from floodmark.lake.folder.bucket import is_bucket
from floodmark.lake.folder.checksums import checksum_of
from floodmark.lake.folder.locks import BOUNDED, exclusive, stream_role
from floodmark.lake.folder.paths import Lake
from floodmark.lake.results.tables import empty, forget
from floodmark.lake.results.verdicts import Waiting
from floodmark.lake.stream import plans
from floodmark.lake.stream.sample import in_effect
from floodmark.lake.stream.timeline import FOLLOWERS, Timeline, inputs_at
from floodmark.lake.table.lost import lost
from floodmark.spec.graph.operator import Operator
from floodmark.spec.values.run import BatchInfo, RunResult

_POLL_SECONDS, _IDLE_SECONDS = 0.2, 0.8
"""Time between two looks at a query; and longest time added while a query has nothing to do: ten such queries of one process cost 2 % of a core less."""
_CHECKS_EMPTY = "spark.sql.streaming.verifyCheckpointDirectoryEmptyOnStart"
_NO_WORKER = "Python worker failed to connect back"
"""Part of Spark's error if the Python process that plans a stateful query has not started within ten seconds, as on a busy machine."""
_TRIES = 3


def run_unbounded(  # noqa: PLR0913 - settings by name
    spark: SparkSession,
    operator: Operator,
    lake: Lake,
    *,
    until_caught_up: bool = False,
    stop: threading.Event | None = None,
    files_per_batch: int | None = None,
    interval_seconds: float = 1.0,
    pause_seconds: float = 0.0,
    from_scratch: bool = False,
    on_batch: Callable[[BatchInfo], None] | None = None,
    on_wait: Callable[[str], None] | None = None,
    clock: int | None = None,
    within: Within = nullcontext,
) -> RunResult:
    """Run an operator as a stream. A restart resumes where the last run ended, however it ended.

    Args:
        spark: session; its ``spark.sql.shuffle.partitions`` is the number of state partitions of a new run.
        operator: any.
        lake: read and written; holds the checkpoint too.
        until_caught_up: end once all rows landed so far are processed.
        stop: when set, the run ends at the next micro-batch boundary.
        files_per_batch: most files per input and micro-batch.
        interval_seconds: micro-batches start at multiples of this time, counted from 1970. A run until it has caught up does not wait.
        pause_seconds: least time from the end of a micro-batch to the start of the next.
        from_scratch: delete checkpoint and output rows, and compute all of the input again.
        on_batch: called after each committed micro-batch.
        on_wait: called with the verdict that the run waits for, and with an empty text once it no longer does.
        clock: processing time to run at, ms UTC, for tests; by default the machine's clock, read once per micro-batch.
        within: context in which each micro-batch is computed and committed, from the moment at which Spark has planned what it reads.

    Raises:
        ExecutionError: EXECUTION-002 a table is missing, EXECUTION-004 Spark failed, EXECUTION-060 a file of an input is gone.
        LifecycleError: LIFECYCLE-003 another run of this operator has not ended, LIFECYCLE-034 a rollback of the stream is not finished.
        StateError: STATE-002, STATE-003, the checkpoint is another operator's; STATE-036, the checkpoint is damaged.
    """
    began, stop, tell = time.monotonic(), stop or threading.Event(), on_batch or (lambda _: None)
    role = stream_role(until_caught_up=until_caught_up)
    with exclusive(lake, "operators", operator.name, "run", role=role):
        check_start(operator, lake, from_scratch=from_scratch)
        if from_scratch:
            with exclusive(lake, "operators", operator.name, "bounded run", file=BOUNDED):
                forget(operator, lake)
            spark.catalog.clearCache()
        operator = in_effect(lake, operator, int(spark.conf.get("spark.sql.shuffle.partitions") or 1))
        ready = workers.started(spark) if operator.stateful is not None else None
        sink = _prepare(spark, operator, lake, stop, tell)
        if sink.timeline.identity.restates():
            _restate(spark, operator, sink, files_per_batch)
        if operator.stateful is not None and operator.stateful.clocked:
            sink.ticks = Ticks.open(spark, sink.timeline, clock)
        sink.pace, sink.within = Pace(pause=0.0 if until_caught_up else pause_seconds), within
        waiting, tries = Waiting(on_wait or (lambda _: None)), _TRIES
        if operator.audits:
            sink.holding = Holding(operator, sink.timeline, waiting, waits=not until_caught_up)
        while tries:
            markers.begin(spark, operator, sink.timeline)
            try:
                _run(
                    spark,
                    operator,
                    sink,
                    until_caught_up=until_caught_up,
                    files=files_per_batch,
                    interval=interval_seconds,
                )
            except ExecutionError as error:
                tries -= 1
                if _NO_WORKER not in error.got or not tries:
                    raise
                continue
            if sink.holding is None or stop.is_set() or not sink.holding.again():
                break
        watermark = sink.timeline.checkpoint.final_progress(sink.timeline.checkpoint.last_committed())
        if ready is not None:
            ready.result()
    return waiting.noted(sink.done.result(operator, watermark=watermark, seconds=time.monotonic() - began))


def check_start(
    operator: Operator, lake: Lake, *, from_scratch: bool = False, filled: Collection[str] = frozenset()
) -> None:
    """The checks of a start that need no Spark.

    Args:
        operator: that shall run.
        lake: in which the stream runs.
        from_scratch: whether the start deletes the checkpoint.
        filled: names of operators that run first, so that their outputs need not exist yet.

    Raises:
        ExecutionError: EXECUTION-002, a table is missing.
        LifecycleError: LIFECYCLE-034 a rollback of the stream is not finished, LIFECYCLE-042 the stream has moved to another lake.
        StateError: STATE-002, STATE-003, STATE-041, the checkpoint is another operator's or engine's; STATE-036, the checkpoint is damaged.
    """
    check_tables(operator, lake, filled)
    timeline = Timeline.current(lake, operator.name)
    if not from_scratch:
        check_engine(timeline, "spark")
        check_outputs(timeline)
        if timeline.deployed is not None or timeline.identity.deployed() is None:
            timeline.identity.check_owner(operator)
        check_logs(timeline, clocked=operator.stateful is not None and operator.stateful.clocked)


def _prepare(
    spark: SparkSession, operator: Operator, lake: Lake, stop: threading.Event, tell: Callable[[BatchInfo], None]
) -> Sink:
    opened = open_timeline(
        operator,
        lake,
        ensure=partial(tables.ensure, spark, lake, operator),
        reopen=lambda timeline: checkpoint_of(timeline).relocate(),
        create=take_for_spark,
        clear=partial(_cleared, spark),
    )
    timeline = replace(opened, engine="spark")
    # an object for each folder stays where Hadoop has put it, whoever removes the files
    spark.conf.set(_CHECKS_EMPTY, "false" if is_bucket(timeline.checkpoint.path) else "true")
    plans.resume(timeline.checkpoint.path)
    last = timeline.checkpoint.last_committed()
    if last >= 0:
        inputs.shorten(operator, timeline, last, inputs_at(timeline, last))
    sink = Sink(
        operator,
        lake,
        timeline,
        stages_of(operator),
        lambda batch: inputs.untagged(operator, batch),
        partial(inputs.rows_read, spark, operator.name),
        partial(inputs.arrived, operator=operator, timeline=timeline),
        uuid.uuid4().hex,
        stop,
        tell,
        checkpointed=partial(checkpointed, spark, operator.name),
    )
    sink.publish_progress(spark)
    return sink


def _restate(spark: SparkSession, operator: Operator, sink: Sink, files: int | None) -> None:
    """Restate the outputs that an upgrade has marked. A micro-batch that tables have and the checkpoint lacks is finished first."""
    if sink.timeline.newest_written > sink.timeline.checkpoint.last_committed():
        stop = threading.Event()

        def ended(info: BatchInfo) -> None:
            sink.on_batch(info)
            stop.set()

        markers.begin(spark, operator, sink.timeline)
        _run(spark, operator, replace(sink, stop=stop, on_batch=ended), until_caught_up=True, files=files, interval=0)
    try:
        restate(spark, operator, sink.timeline, sink.run)
    except PySparkException as error:
        raise _explained(operator, sink, error) from error


def check_logs(timeline: Timeline, *, clocked: bool) -> None:
    """Make sure that Spark can read the newest files of its checkpoint.

    Args:
        timeline: of the stream.
        clocked: whether the operator waits for processing time, which is recorded before its micro-batch is written.

    Raises:
        StateError: STATE-036, a file is damaged; its fix removes the file if that plans a micro-batch without rows in any table.
    """
    try:
        timeline.checkpoint.check_newest()
    except StateError as error:
        last, planned = (
            timeline.checkpoint.last_committed(),
            max(checkpoint_of(timeline).batches("offsets"), default=-1),
        )
        if planned <= last or clocked or timeline.newest_written > last or not error.where.endswith(f"/{planned}"):
            raise
        file = error.where.removeprefix("file ")
        checksum = checksum_of(file)  # Spark writes no file whose checksum is there
        fix = (
            f"No table has rows of micro-batch {planned}, so the stream can plan it again. Remove the file and its checksum: "
            f"rm -f '{file}' '{checksum}'"
        )
        raise StateError(error.where, error.expected, error.got, fix, code=error.code) from error


def _cleared(spark: SparkSession, path: str) -> None:
    """Delete the rows of a table except its markers, also of one that only Spark reaches."""
    if is_bucket(path):
        empty(path)
        return
    table = DeltaTable.forPath(spark, path)
    if not table.toDF().filter("_kind <> 1").isEmpty():
        table.delete("_kind <> 1")


def _run(
    spark: SparkSession,
    operator: Operator,
    sink: Sink,
    *,
    until_caught_up: bool,
    files: int | None,
    interval: float,
) -> None:
    revised = [(output, table) for output in operator.outputs if (table := output.current)]
    followers: list[StreamingQuery] = []
    ended = threading.Event()

    def follow(*, until_caught_up: bool) -> None:
        for output, table in revised:
            writer = current.follow(spark, operator, sink.timeline, output, table, ended)
            trigger: dict[str, Any] = (
                {"availableNow": True} if until_caught_up else {"processingTime": f"{interval} seconds"}
            )
            with local_files.checkpointing(spark, sink.timeline.folder(FOLLOWERS)):
                followers.append(writer.trigger(**trigger).start())
        for follower in followers if until_caught_up else ():
            follower.awaitTermination()

    early = operator.isolation == "read_uncommitted"
    if early:  # merge first the rows that an earlier run has written and no follower has merged
        follow(until_caught_up=True)
        followers.clear()
        sink.early = {o.table: current.merging(operator, sink.timeline.lake, o, table) for o, table in revised}
    rows = _streaming(spark, operator, sink, files)
    with local_files.checkpointing(spark, sink.timeline.checkpoint.path):
        query = _start(rows, sink, until_caught_up=until_caught_up, interval=interval, name=operator.name)
    if not until_caught_up and not early:
        follow(until_caught_up=False)
    try:
        _wait(spark, query, sink, followers, waits=not until_caught_up)
        sink.publish_progress(spark)
        if until_caught_up and not early:
            follow(until_caught_up=True)
    except PySparkException as error:
        raise _explained(operator, sink, error) from error
    finally:
        ended.set()
        for follower in followers:
            _finish(follower)
        if query.isActive:
            query.stop()


def _finish(follower: StreamingQuery) -> None:
    """Wait for the current micro-batch, then stop the query. A stop during a write makes Spark log a long stack trace."""
    while follower.isActive and follower.status["isTriggerActive"]:
        time.sleep(_POLL_SECONDS / 10)
    if follower.isActive:
        follower.stop()


def _start(rows: DataFrame, sink: Sink, *, until_caught_up: bool, interval: float, name: str) -> StreamingQuery:
    writer = (
        rows.writeStream.queryName(name).foreachBatch(sink).option("checkpointLocation", sink.timeline.checkpoint.path)
    )
    writer = (
        writer.trigger(availableNow=True) if until_caught_up else writer.trigger(processingTime=f"{interval} seconds")
    )
    return writer.start()


def _wait(
    spark: SparkSession, query: StreamingQuery, sink: Sink, followers: list[StreamingQuery], *, waits: bool
) -> None:
    """Wait until the query ends; stop the query between two micro-batches once ``stop`` is set. Raises the failure of a follower.

    Meanwhile, a query whose clock is due gets a marker that starts a micro-batch, and the progress of an idle query that ``waits`` for more rows is written
    to its tables. A query that ends once it has caught up is idle only for a moment between two micro-batches.
    """
    published, pause = sink.timeline.checkpoint.last_committed(), 0.0
    try:
        while not query.awaitTermination(_POLL_SECONDS):  # type: ignore[arg-type]  # fractions work
            for failed in (follower for follower in followers if not follower.isActive):
                failed.awaitTermination()  # raises what it failed with
            idle = not query.status["isTriggerActive"]
            pause = min(pause + 0.1, _IDLE_SECONDS) if idle and sink.ticks is None else 0.0
            last = sink.timeline.checkpoint.last_committed() if idle else published
            if idle and (sink.stop.is_set() or (sink.holding is not None and sink.holding.lifts)):
                query.stop()
            elif idle and sink.ticks is not None and sink.ticks.waits_no_longer():
                markers.wake(spark, sink.operator, sink.timeline)
            elif (
                waits
                and idle
                and last != published
                and last == max(checkpoint_of(sink.timeline).batches("offsets"), default=-1)
            ):
                sink.publish_progress(spark)
                published = last
            sink.stop.wait(pause)
    except StreamingQueryException:
        held = sink.holding is not None and sink.holding.held
        if isinstance(sink.failure, BaseException) or not (sink.stop.is_set() or held):
            raise


def _explained(operator: Operator, sink: Sink, error: PySparkException) -> FloodmarkError:
    """The failure of a query as an error for people."""
    if isinstance(sink.failure, FloodmarkError):
        return sink.failure
    cause, again = sink.failure or error, f"floodmark run {operator.name} --unbounded"
    described = explained(operator, cause, again)
    return described if isinstance(described, SetupError) else lost(operator, sink.lake, error, again) or described


# ---- the query


def _streaming(spark: SparkSession, operator: Operator, sink: Sink, files: int | None) -> DataFrame:
    fewer = {} if sink.holding is None else sink.holding.files
    streams = {
        input_.name: inputs.read(spark, operator, sink.timeline, input_, fewer.get(input_.name, files))
        for input_ in operator.inputs
    }
    if not sink.stages:
        return inputs.tagged(operator, streams)
    return Chain(operator, streams, sink.ticks).emitted()
