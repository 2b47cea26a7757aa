"""Bounded runs: an operator over an interval of event time, closed by the end of input."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from py4j.protocol import Py4JJavaError
from pyspark import StorageLevel
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from floodmark.core import crash
from floodmark.core.time import END, NEVER, Interval
from floodmark.engines.frames.attempts import attempts_of, blaming, explained
from floodmark.engines.frames.client import is_connected
from floodmark.engines.frames.compile import compiled, set_aside_before, stage_rows
from floodmark.engines.frames.expressions import with_columns
from floodmark.engines.frames.fast import joins, lateness, sessions, window_joins, windows
from floodmark.engines.frames.floats import unranged
from floodmark.engines.frames.inputs import require_columns
from floodmark.engines.frames.judging import ROWS_ONLY, criteria_of, judged
from floodmark.engines.frames.narrowing import without_unread_aggregates
from floodmark.engines.frames.numbering import of_bounded_run
from floodmark.engines.frames.packing import EMITTED, PACKED, Stamping, emitted, output_ddl, packing, unpacking
from floodmark.engines.frames.portions import AT, COUNTS, Portions, advanced, is_stamped, order, output_rows
from floodmark.engines.frames.results import Computed, bounds, ended, linked, stateless, with_results
from floodmark.engines.outcome import unmet
from floodmark.engines.spark.delta import current, tables
from floodmark.lake.folder.paths import Lake, is_local
from floodmark.lake.restore.switch import refuse_while_pending
from floodmark.lake.results import bounded
from floodmark.lake.results.bounded import Asked, Done, Step
from floodmark.lake.results.needs import scans, stretches
from floodmark.lake.results.tables import fits
from floodmark.lake.stream import ticks
from floodmark.lake.stream.answers import recorded
from floodmark.lake.table.commits import BoundedRun
from floodmark.semantics.encoding.columns import decode, inside
from floodmark.semantics.kernels.columnar import Stage
from floodmark.semantics.kernels.elements import Clip, ElementStage, ProcessStage
from floodmark.semantics.kernels.kernel import Tick
from floodmark.semantics.kernels.stage import kernel_of, stage_of
from floodmark.semantics.state.store import MemoryStore
from floodmark.spec.graph import steps
from floodmark.spec.graph.operator import Operator, Output
from floodmark.spec.values.budget import Budget
from floodmark.spec.values.run import LateRows, RunResult
from floodmark.spec.values.schema import BOUNDED, MARKER, RETRACTION, ROW


def run_bounded(  # noqa: PLR0913 - settings by name
    spark: SparkSession,
    operator: Operator,
    lake: Lake,
    interval: Interval | None = None,
    *,
    late_rows: LateRows = "as_landed",
    force: bool = False,
    on_step: Step | None = None,
    wait_seconds: float = 0,
    budget: Budget | None = None,
    stop: threading.Event | None = None,
) -> RunResult:
    """Compute the output rows with ``interval.start <= _event_time < interval.end`` and replace the rows of this interval in the outputs.

    A window belongs to its last millisecond. Stretches already computed by this version from the same input are not computed again.

    Args:
        spark: session.
        operator: any.
        lake: read and written.
        interval: of event time; all of it by default.
        late_rows: ``"as_landed"``: late rows are treated as the stream treated them; ``"all"``: every row counts as on time.
        force: compute covered stretches again.
        on_step: called at each step of the run.
        wait_seconds: to wait for another run of this operator to end.
        budget: limits of the run; its cores and memory are those of the session.
        stop: when set, a wait for streams ends with an error.

    Raises:
        CapabilityError: CAPABILITY-002 an interval whose results cannot be told from others, CAPABILITY-004 no processing time is recorded.
        ExecutionError: EXECUTION-002 an input has no table, EXECUTION-003 Spark failed, EXECUTION-060 a file of an input is gone.
        LifecycleError: LIFECYCLE-003, another run of this operator has not ended.
    """
    operator = recorded(lake, operator)
    asked = Asked(
        operator=operator,
        lake=lake,
        engine="spark",
        interval=interval or Interval(),
        late_rows=late_rows,
        force=force,
        on_step=on_step,
        wait_seconds=wait_seconds,
        budget=budget,
        stop=stop or threading.Event(),
    )

    def prepared(versions: dict[str, int]) -> Callable[[Interval], Done]:
        refuse_while_pending(lake, operator.name)
        inputs, clock = read_inputs(spark, operator, lake, versions), ticks.recorded(operator, lake)
        reached = asked.reached(versions)

        def computed(piece: Interval) -> Done:
            where = partial(_failing, inputs=inputs, interval=piece, late_rows=late_rows, clock=clock, reached=reached)
            with blaming(operator, "bounded", where):
                results = compute(operator, inputs, piece, late_rows, clock, reached)
                record = asked.record(piece, versions)
                counts = write(spark, operator, lake, results, record, asked.replaced(piece))
            return Done(counts=counts, late=results.late(), dropped=results.dropped())

        return computed

    boundary = partial(tables.spark_boundary, f"bounded run of {operator.version}", asked.again)
    return bounded.run(asked, prepared, boundary)


def read_inputs(spark: SparkSession, operator: Operator, lake: Lake, versions: dict[str, int]) -> dict[str, DataFrame]:
    """Input name -> rows of its table at a version, without markers."""
    inputs = {}
    for input_ in operator.inputs:
        reader = spark.read.format("delta").option("versionAsOf", versions[input_.table])
        rows = require_columns(reader.load(lake.input(input_)), operator, input_)
        inputs[input_.name] = unranged(rows).filter(F.col("_kind") != MARKER)
    return inputs


def _failing(
    operator: Operator,
    *,
    inputs: dict[str, DataFrame],
    interval: Interval,
    late_rows: LateRows,
    clock: list[Tick],
    reached: int,
) -> Iterator[DataFrame | None]:
    """Frames in which to look for a row for which an expression fails: rows before the stateful step, then rows after that step."""
    for link, own in zip(operator.links, stretches(operator, interval), strict=True):
        stage = stage_of(link)
        if stage is not None and not any(given.inner for given in link.inputs):
            read = {given.name: inputs[given.name] for given in link.inputs}
            yield set_aside_before(stage, _within(read, scans(link, own)))
    results = compute(operator, inputs, interval, late_rows, clock, reached)
    try:
        yield next((rows for output, rows in results.outputs if output.side == "quarantine"), None)
    finally:
        for frame in results.held:
            frame.unpersist()


def _within(inputs: dict[str, DataFrame], needed: Interval) -> dict[str, DataFrame]:
    """The rows of an interval of event time."""
    if needed.everything:
        return inputs
    return {name: rows.filter(bounds(needed)) for name, rows in inputs.items()}


def compute(
    operator: Operator,
    inputs: dict[str, DataFrame],
    interval: Interval,
    late_rows: LateRows,
    clock: list[Tick],
    reached: int = NEVER,
    *,
    plan_only: bool = False,
) -> Computed:
    """All outputs of an operator for an interval.

    Args:
        operator: any.
        inputs: input name -> its rows, stamped, without markers.
        interval: of event time.
        late_rows: as of ``run_bounded``.
        clock: recorded ticks, for operators that wait for processing time.
        reached: progress of the inputs, before the end of an input that has ended.
        plan_only: compute nothing yet, and count nothing.
    """

    def computed(number: int, link: Operator, read: dict[str, DataFrame], own: Interval) -> Computed:
        once = number == len(operator.links) - 1 and _is_computed_once(operator)
        made = _link(link, read, own, late_rows, clock, reached, plan_only=plan_only, once=once)
        return made if plan_only or not _is_read_again(operator, link) else _held_results(made)

    return linked(operator, inputs, interval, computed)


def _link(
    operator: Operator,
    inputs: dict[str, DataFrame],
    interval: Interval,
    late_rows: LateRows,
    clock: list[Tick],
    reached: int,
    *,
    plan_only: bool,
    once: bool,
) -> Computed:
    """As ``compute``, for one link; ``once``: its results are read by one query alone."""
    step = operator.stateful
    needed = scans(operator, interval)
    inputs = _within(inputs, needed)
    if operator.spans_interval and not interval.everything:
        whole = _link(operator, inputs, Interval(), late_rows, clock, reached, plan_only=plan_only, once=once)
        return ended(whole, interval)
    if late_rows == "all":
        landed = {given.name: inputs[given.name] for given in operator.inputs if not given.inner}
        stamp = F.expr(lateness.watermark_on_time(operator))
        inputs |= {name: rows.withColumn("_watermark", stamp) for name, rows in landed.items()}
    if step is None:
        return Computed(outputs=stateless(operator, inputs))
    if joins.possible(operator, step, interval):
        rows, number_of_late = joins.compute(step, inputs, interval)
        return joins.with_late(step, with_results(operator, step, rows, {}), number_of_late)
    on_time = lateness.on_time(operator)
    if window_joins.possible(operator, step, interval, late_rows):
        assert isinstance(step, steps.WindowAggregate)
        rows, dropped = window_joins.compute(step, inputs, interval, on_time=on_time)
        return Computed(outputs=with_results(operator, step, rows, {}), dropped=dropped)
    parent = compiled(step.parent, inputs)
    if isinstance(step, steps.WindowAggregate) and windows.possible(operator, interval, late_rows):
        never = lateness.reads_only(step.parent, on_time)
        rows, side, dropped = windows.compute(step, parent, interval, on_time=never)
        outputs = with_results(operator, step, rows, {"late": side})
        return Computed(outputs=outputs, dropped=dropped)
    if sessions.possible(operator, interval, late_rows):
        assert isinstance(step, steps.WindowAggregate)
        by_sql = _sessions(operator, step, parent, interval, plan_only=plan_only)
        if by_sql is not None:
            return by_sql
    operator = without_unread_aggregates(operator)
    stage = stage_of(operator)
    assert stage is not None
    if not isinstance(stage, Stage):
        clip = None if interval.everything else Clip(interval=interval, read=needed)
        stage = replace(stage, clip=clip) if isinstance(stage, (ElementStage, ProcessStage)) else stage
        stamped = is_stamped(operator, late_rows)
        work = Portions(stage=stage, interval=interval, ticks=tuple(clock), reached=reached, stamped=stamped)
        return _by_portions(operator, work, parent, plan_only=plan_only, once=once)
    packed = stage_rows(stage, parent).mapInArrow(packing(stage, interval), PACKED)
    late, total = (0, 0) if plan_only else _held(packed)
    rows = (
        packed.filter("payload IS NOT NULL")
        .select("group", "payload")
        .groupBy("group")
        .applyInArrow(
            _kernel(stage, interval),
            f"{step.schema.ddl()}, `_event_time` bigint, `_watermark` bigint, `_kind` int, `_sequence` bigint",
        )
    )
    outputs = with_results(operator, step, rows, _sides(operator, packed))
    return Computed(outputs=outputs, late=lambda: late, dropped=lambda: total, held=(packed,))


def _sessions(
    operator: Operator, step: steps.WindowAggregate, parent: DataFrame, interval: Interval, *, plan_only: bool
) -> Computed | None:
    """The outputs of sessions, by SQL alone; None if it may have others than the kernel."""
    forms = [sessions.by_time] if sessions.has_windows_of_spark(step) else []
    for form in (*forms, sessions.grouped):
        made, dropped = form(step, parent), 0
        if plan_only:
            break
        made = made.persist(StorageLevel.MEMORY_AND_DISK)
        try:
            doubtful, dropped = sessions.judged(step, made)
        except BaseException as error:
            made.unpersist()
            if isinstance(error, (PySparkException, Py4JJavaError)) and sessions.overflows(error):
                return None
            raise
        if not doubtful:
            break
        made.unpersist()
    else:
        return None
    outputs = with_results(operator, step, sessions.results(step, made, interval), {})
    return Computed(outputs=outputs, dropped=lambda: dropped, held=(made,))


def _held(chunks: DataFrame) -> tuple[int, int]:
    """Compute chunks and keep them; returns the numbers of late rows and of dropped (row, window) pairs."""
    totals = chunks.persist(StorageLevel.MEMORY_AND_DISK).agg(F.sum("late"), F.sum("dropped")).collect()[0]
    return int(totals[0] or 0), int(totals[1] or 0)


def _is_read_again(operator: Operator, link: Operator) -> bool:
    """Whether more than one step of an operator reads the results of a link: Spark may compute them for each."""
    results = [result for later in operator.links for _, result in later.results]
    reads = [step for result in results for step in steps.walk(result) if isinstance(step, steps.Read)]
    return sum(step.input == link.outputs[0].name for step in reads) > 1


def _held_results(made: Computed) -> Computed:
    """The results of a link, which Spark computes once and keeps until all outputs are written."""
    outputs = tuple((output, rows.persist(StorageLevel.MEMORY_AND_DISK)) for output, rows in made.outputs)
    return replace(made, outputs=outputs, held=(*made.held, *(rows for _, rows in outputs)))


def _is_computed_once(operator: Operator) -> bool:
    """Whether one query alone reads the results of a run: they are of one output, and are judged by no expectation before they are written."""
    return len(operator.outputs) == 1 and not criteria_of(operator, operator.outputs[0])


def _by_portions(operator: Operator, work: Portions, parent: DataFrame, *, plan_only: bool, once: bool) -> Computed:
    """All outputs, of rows that Spark sorts by key group and spills, so that no key group need fit into the memory of a worker."""
    stage, schema = work.stage, work.stage.step.schema
    rows = with_columns(stage_rows(stage, parent), {AT: order(stage)})
    rows = rows.repartition("group").sortWithinPartitions("group", AT)
    if once and not is_connected(rows):
        done = rows.mapInArrow(_computing(work), output_ddl(schema))
        numbers = (f"sum(CASE WHEN `_kind` = {COUNTS} THEN `{name}` END)" for name in ("_watermark", "_progress"))
        observed, counts = lateness.totals(done, *numbers)
        outputs = with_results(operator, stage.step, observed.filter(f"`_kind` <> {COUNTS}"), {})
        return Computed(outputs=outputs, late=lambda: counts()[0], dropped=lambda: counts()[1])
    done = rows.mapInArrow(_advancing(work), EMITTED)
    late, dropped = (0, 0) if plan_only else _held(done)
    rows = done.select("results")
    rows = rows.mapInArrow(unpacking(schema, _stamping()), output_ddl(schema))
    outputs = with_results(operator, stage.step, rows, _sides(operator, done))
    return Computed(outputs=outputs, late=lambda: late, dropped=lambda: dropped, held=(done,))


def _stamping() -> Stamping:
    return Stamping(progress=None, ingested=time.time_ns() // 1_000_000, numbering=of_bounded_run())


def _sides(operator: Operator, chunks: DataFrame) -> dict[str, DataFrame]:
    """Name of a side output -> its rows, unpacked from chunks: late rows, failed rows, rows of side outputs of functions."""
    sides = {}
    for output in operator.outputs:
        if output.side:
            column = "results" if output.side == "side" else "side"
            unpacked = unpacking(output.schema, _stamping(), output.side, output.name)
            rows = chunks.select(column).filter(f"{column} IS NOT NULL")
            sides[output.name] = rows.mapInArrow(unpacked, output_ddl(output.schema))
    return sides


def _computing(work: Portions) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Sorted rows -> rows of the results, and one with counts for each task."""
    stamping = _stamping()
    return lambda batches: output_rows(work, batches, stamping)


def _advancing(work: Portions) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Sorted rows -> EMITTED."""

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for advance in advanced(work, batches):
            sides = [chunk for chunk in (advance.packed.side,) if chunk is not None]
            yield from emitted(work.stage, advance.emission, advance.packed.counts, sides).to_batches()

    return run


def _kernel(stage: Stage, interval: Interval) -> Any:
    def run(key: tuple[Any, ...], table: pa.Table) -> pa.Table:
        packed = [decode(chunk) for chunk in table["payload"].to_pylist()]
        results = kernel_of(stage, MemoryStore()).advance(packed, END).results
        if not interval.everything:
            results = inside(results, results["_event_time"], interval)
        first = BOUNDED + (int(key[0].as_py()) << 40)
        return results.drop_columns(["_order"]).append_column("_sequence", pc.add(results["_order"], first))

    return run


def write(
    spark: SparkSession, operator: Operator, lake: Lake, computed: Computed, run: BoundedRun, replaced: Interval
) -> dict[str, tuple[int, int]]:
    """Replace the rows of an interval in every output, side outputs first: the commit of the first output marks the run's interval as covered.

    Args:
        spark: session.
        operator: of the outputs.
        lake: of the tables.
        computed: rows of the outputs.
        run: record of the commits.
        replaced: event time whose rows are replaced: the run's interval at least.

    Returns:
        Table -> (rows, retractions) written.
    """
    interval = run.interval
    counts: dict[str, tuple[int, int]] = {}
    try:
        unmet_rows = {output.table: _unmet(operator, output, rows) for output, rows in computed.outputs}
        for output, rows in reversed(computed.outputs):
            main = output is computed.outputs[0][0]
            name = "main" if main else "side"
            path = tables.ensure(spark, lake, operator, output, replace=interval.everything)
            aside = attempts_of(operator) if output.side == "quarantine" else ()
            stamped = tables.stamped(explained(rows, aside), output, None)
            changed, files = interval.everything and not fits(path, output), None
            if output.current:  # before the changelog, whose commit marks the interval as covered
                if is_local(path) and not changed:
                    files = tables.written(stamped, path, output)
                    stamped = tables.read_back(stamped, files)
                else:
                    stamped = stamped.persist(StorageLevel.MEMORY_AND_DISK)
                crash.point("bounded.before_current")
                current.replace(spark, operator, lake, output, stamped, run, files)
                crash.point("bounded.after_current")
            crash.point(f"bounded.before_{name}")
            of_output = replace(run, table=output.table, unmet=unmet_rows[output.table])
            record = _recorded(computed, of_output, main=main)
            kinds = tables.replace(stamped, path, output, replaced, record, anew=changed, files=files)
            counts[output.table] = kinds[ROW], kinds[RETRACTION]
            crash.point(f"bounded.after_{name}")
            stamped.unpersist()
    finally:
        for frame in computed.held:
            frame.unpersist()
    return counts


def _unmet(operator: Operator, output: Output, rows: DataFrame) -> dict[str, int]:
    """The expectations that rows do not meet, before they are committed.

    Raises:
        ExecutionError: EXECUTION-090, one with ``on_fail="stop"`` is not met.
    """
    criteria = criteria_of(operator, output)
    results = judged(rows, output.schema, criteria, only=ROWS_ONLY) if criteria else []
    return unmet(operator, output, "bounded", results)


def _recorded(computed: Computed, run: BoundedRun, *, main: bool) -> Callable[[], BoundedRun]:
    """Makes the record of an output's commit. Only the main output's has counts of late rows: all rows are computed by then."""
    return lambda: replace(run, late=computed.late(), dropped=computed.dropped()) if main else run
