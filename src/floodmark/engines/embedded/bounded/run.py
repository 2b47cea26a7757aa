"""Bounded runs on the embedded engine: an operator over an interval of event time, closed by the end of input."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from uuid import uuid4

from deltalake.exceptions import DeltaError
from grpc import RpcError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

from floodmark.core import cores, machine
from floodmark.core.scratch import Scratch
from floodmark.core.time import Interval
from floodmark.engines.embedded.bounded import files, pool, tables
from floodmark.engines.embedded.bounded.final import final_of
from floodmark.engines.embedded.bounded.groups import RESULTS, Work
from floodmark.engines.embedded.parity.aggregates import KEY, agrees, sail_aggregate
from floodmark.engines.embedded.parity.check import check_operator, sail_sql
from floodmark.engines.embedded.retries.attempts import Marking
from floodmark.engines.embedded.sail import stored
from floodmark.engines.embedded.sail.server import default_memory
from floodmark.engines.embedded.sail.session import Connection, Sail, ServerLost
from floodmark.engines.embedded.state.checkpoint import NAME
from floodmark.engines.frames.compile import compiled, filtered, stage_rows
from floodmark.engines.frames.expressions import Rendering, with_columns
from floodmark.engines.frames.fast import joins, lateness, sessions, window_joins, windows
from floodmark.engines.frames.inputs import require_columns
from floodmark.engines.frames.messages import text_of
from floodmark.engines.frames.narrowing import without_unread_aggregates
from floodmark.engines.frames.packing import output_ddl
from floodmark.engines.frames.portions import AT, is_stamped, order
from floodmark.engines.frames.results import Computed, Ready, bounds, ended, linked, stateless, whole, with_results
from floodmark.lake.folder.paths import Lake, check_reached
from floodmark.lake.restore.switch import refuse_while_pending
from floodmark.lake.results import bounded
from floodmark.lake.results.bounded import Asked, Done, Step
from floodmark.lake.results.extent import extent, span
from floodmark.lake.results.needs import scans
from floodmark.lake.stream import ticks
from floodmark.lake.stream.answers import recorded
from floodmark.lake.table.commits import BoundedRun
from floodmark.semantics.kernels.columnar import Stage
from floodmark.semantics.kernels.elements import Clip, ElementStage, ProcessStage
from floodmark.semantics.kernels.kernel import Tick
from floodmark.semantics.kernels.stage import AnyStage, stage_of
from floodmark.spec.graph import steps
from floodmark.spec.graph.operator import Operator
from floodmark.spec.values.budget import Budget
from floodmark.spec.values.run import LateRows, RunResult
from floodmark.spec.values.schema import MARKER, Schema

_ATTEMPTS = 3
"""Servers that may die, one after the other, before the run of a stretch fails."""
_SMALL_BYTES = 16_000_000
"""Most bytes of files whose rows Sail joins by intervals or windows."""
_HELD = 32
"""Bytes of memory per byte of files that a join holds, at most: rows in memory are some ten times as large, and their keys beside them."""
_BYTES_OF_A_WINDOW = 1 << 10
"""Of memory for the one row of a window that a join holds, at most."""
_BUCKETS = 16
_WIDE = 1 << 14
"""Bytes of a row that is wide."""
_FEWEST, _MOST = 1 << 8, 1 << 17
"""Rows of a bucket that are written together."""
_SCRATCH = {"compression": "lz4_raw", "statistics_enabled": "none"}
"""How Sail writes files that are read once."""


def run_bounded(  # noqa: PLR0913 - settings by name
    sail: Sail,
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

    The rows, and the records of the commits, are those of a bounded run on Spark.

    Args:
        sail: lends the session.
        operator: that ``check`` does not refuse.
        lake: read and written, on a local disk or in a bucket.
        interval: of event time; all of it by default.
        late_rows: ``"as_landed"``: late rows are treated as the stream treated them; ``"all"``: every row counts as on time.
        force: compute covered stretches again.
        on_step: called at each step of the run.
        wait_seconds: to wait for another run of this operator to end.
        budget: limits of the run; its cores and memory are those of the session.
        stop: when set, a wait for streams ends with an error.

    Raises:
        CapabilityError: as ``check``; CAPABILITY-002 an interval whose results cannot be told from others, CAPABILITY-004 no processing time is recorded.
        ExecutionError: EXECUTION-002 an input has no table, EXECUTION-003 Sail failed, EXECUTION-060 a file of an input is gone,
            EXECUTION-070 and 071 processes of the engine died again and again.
        LifecycleError: LIFECYCLE-003, another run of this operator has not ended.
    """
    check(operator, lake)
    say = on_step or (lambda _: None)
    operator = recorded(lake, operator)
    asked = Asked(
        operator=operator,
        lake=lake,
        engine=NAME,
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
        clock, reached = ticks.recorded(operator, lake), asked.reached(versions)
        memory = sail.memory * 1_000_000 // cores.available()

        def computed(piece: Interval) -> Done:
            for attempt in range(1, _ATTEMPTS + 1):
                scratch = Scratch()
                try:
                    with sail.lent() as connection:
                        run = _Run(
                            connection, operator, lake, piece, late_rows, tuple(clock), reached, scratch.path, memory
                        )
                        return _done(run, sail, versions, asked.record(piece, versions), asked.replaced(piece))
                except ServerLost as error:
                    if attempt == _ATTEMPTS:
                        raise
                    say(f"once more: {error.got}")
                finally:
                    scratch.remove()
            raise AssertionError

        return computed

    where, kinds = f"bounded run of {operator.version}", (PySparkException, RpcError, DeltaError, OSError)
    return bounded.run(asked, prepared, partial(machine.boundary, where, asked.again, kinds, text_of))


def _done(run: _Run, sail: Sail, versions: dict[str, int], record: BoundedRun, replaced: Interval) -> Done:
    """Compute and write a stretch; a second time, with marked rows, if an expression of a quarantining step fails for a row."""
    links = run.operator.links
    markings = tuple(Marking(link, stage_of(link), run.rendering, sail) for link in links)
    try:
        return run.done(versions, record, replaced)
    except PySparkException:
        if not any(marking.marks(_last(link)) for link, marking in zip(links, markings, strict=True)):
            raise
        return replace(run, markings=markings).done(versions, record, replaced)
    finally:
        for marking in markings:
            marking.remove()


def _last(operator: Operator) -> tuple[steps.Step, ...]:
    """The steps of a link up to which rows are computed."""
    return (*operator.stages, *(step for _, step in operator.results))


def planned(operator: Operator, lake: Lake, inputs: dict[str, DataFrame]) -> tuple[list[tuple[str, DataFrame]], str]:
    """The frames of a bounded run over all of time, which Sail computes, by table, or by step where a kernel follows; and what the kernel does.

    Args:
        operator: that ``check`` does not refuse.
        lake: of the operator.
        inputs: input name -> its rows.
    """
    check(operator, lake)
    known, frames, then = dict(inputs), list[tuple[str, DataFrame]](), ""
    for link in operator.links:
        own, by_kernel = _planned_link(link, {given.name: known[given.name] for given in link.inputs}, lake)
        then = by_kernel or then
        if link is operator.links[-1]:
            return [*frames, *own], then
        if by_kernel:
            frames += own
        output, session = link.outputs[0], next(iter(inputs.values())).sparkSession
        known[output.name] = session.createDataFrame([], output_ddl(output.schema)) if by_kernel else whole(own[0][1])
    raise AssertionError


def _planned_link(
    operator: Operator, inputs: dict[str, DataFrame], lake: Lake
) -> tuple[list[tuple[str, DataFrame]], str]:
    """As ``planned``, for one link."""
    rendering, step = partial(_rendered, operator), operator.stateful
    if step is None:
        return [(output.table, rows) for output, rows in stateless(operator, inputs, rendering)], ""
    parent = compiled(step.parent, inputs, {}, rendering)
    if isinstance(step, steps.WindowAggregate) and _plain(operator, step, Interval(), "as_landed"):
        return [
            (output.table, rows) for output, rows in _in_sql(operator, step, parent, Interval(), rendering).outputs
        ], ""
    if isinstance(step, steps.WindowAggregate) and _are_sessions(operator, step, Interval(), "as_landed"):
        made = sessions.grouped(step, parent, rendering, sail_aggregate)
        outputs = with_results(operator, step, sessions.results(step, made, Interval()), {}, rendering)
        return [(output.table, rows) for output, rows in outputs], ""
    if _joins(operator, step, Interval(), lake):
        joined = _joined(operator, step, inputs, Interval(), rendering, late=False)
        return [(output.table, rows) for output, rows in joined.outputs], ""
    if _joins_windows(operator, step, Interval(), "as_landed", lake, default_memory() * 1_000_000):
        joined = _with_windows_joined(operator, step, inputs, Interval(), rendering)
        return [(output.table, rows) for output, rows in joined.outputs], ""
    stage, processes = stage_of(operator), min(cores.available(), _BUCKETS)
    assert stage is not None
    then = (
        f"{step.groups} key groups in {_BUCKETS} files; {pool.IN_DRIVER:,} rows and fewer in this process, more in {processes}; "
        "the steps behind it by Sail again"
    )
    return [(f"step '{step.uid}'", stage_rows(stage, parent, rendering))], then


def _rendered(operator: Operator, text: str, schema: Schema) -> str:
    """The SQL of an expression for Sail."""
    return sail_sql(text, schema, f"operator '{operator.name}'")


def _plain(operator: Operator, step: steps.WindowAggregate, interval: Interval, late_rows: LateRows) -> bool:
    """Whether plain SQL on Sail gives the same results as the kernel."""
    same = windows.possible(operator, interval, late_rows, sail_aggregate)
    return same and all(agrees(KEY, step.parent.schema.types[key]) for key in step.keys)


def _are_sessions(operator: Operator, step: steps.WindowAggregate, interval: Interval, late_rows: LateRows) -> bool:
    """Whether SQL on Sail may have the sessions of the kernel."""
    same = sessions.possible(operator, interval, late_rows, sail_aggregate)
    return same and all(agrees(KEY, step.parent.schema.types[key]) for key in step.keys)


def _in_sql(
    operator: Operator, step: steps.WindowAggregate, parent: DataFrame, interval: Interval, rendering: Rendering
) -> Computed:
    """All outputs, by SQL alone."""
    on_time = lateness.reads_only(step.parent, lateness.on_time(operator))
    rows, side, dropped = windows.compute(step, parent, interval, rendering, sail_aggregate, on_time=on_time)
    return Computed(outputs=with_results(operator, step, rows, {"late": side}, rendering), dropped=dropped)


def _joins(operator: Operator, step: steps.Stateful, interval: Interval, lake: Lake) -> bool:
    """Whether a join of Sail has the rows of the kernel, and of an interval join also memory for them."""
    if not joins.possible(operator, step, interval):
        return False
    if isinstance(step, steps.IntervalJoin) and not _are_small(operator, interval, lake):
        return False
    return all(agrees(KEY, step.parent.schema.types[key]) for key in step.keys)


def _joins_windows(
    operator: Operator, step: steps.Stateful, interval: Interval, late_rows: LateRows, lake: Lake, memory: int
) -> bool:
    """Whether a join of Sail has the rows of the kernel of a window join, and ``memory`` for them, bytes of all queries."""
    if not window_joins.possible(operator, step, interval, late_rows):
        return False
    whole, overlaps = operator.whole or operator, 1
    for stage in (link.stateful for link in whole.links):
        if not isinstance(stage, steps.WindowAggregate) or not (stage is step or stage.columnar):
            return False  # there may be far more rows than the operator reads
        if any(isinstance(each, steps.FlatMap) for each in steps.walk(stage)):
            return False
        overlaps *= windows.most_of_a_row(stage)
    if not all(agrees(KEY, step.parent.schema.types[key]) for key in step.keys):
        return False
    if _are_small(whole, interval, lake, min(_SMALL_BYTES, memory // _HELD) // overlaps):
        return True
    most = min(_SMALL_BYTES * _HELD, memory) // _BYTES_OF_A_WINDOW
    return window_joins.a_window_each(operator, step) is not None and _most_windows(whole, lake) <= most


def _most_windows(whole: Operator, lake: Lake) -> int:
    """The most windows of any stage in which the rows of the inputs can be, by their event times."""
    spans = [each for each in (span(lake.input(given)) for given in whole.inputs) if each is not None]
    if not spans:
        return 0
    first, last = min(start for start, _ in spans), max(end for _, end in spans)
    return max(windows.most_windows(link.stateful, first, last) for link in whole.links)


def _with_windows_joined(
    operator: Operator, step: steps.Stateful, inputs: dict[str, DataFrame], interval: Interval, rendering: Rendering
) -> Computed:
    """The outputs of a window join, by Sail alone."""
    assert isinstance(step, steps.WindowAggregate)
    small = window_joins.a_window_each(operator, step) or 0
    on_time = lateness.on_time(operator)
    rows, dropped = window_joins.compute(step, inputs, interval, rendering, small, on_time)
    return Computed(outputs=with_results(operator, step, rows, {}, rendering), dropped=dropped)


def _are_small(operator: Operator, interval: Interval, lake: Lake, most: int = _SMALL_BYTES) -> bool:
    """Whether what an interval reads of the inputs fits into memory several times over: Sail holds a side of a join, a kernel spills its rows."""
    if any(given.inner for given in operator.inputs):
        return False
    needed = scans(operator, interval)
    return sum(extent(lake.input(given), needed).size for given in operator.inputs) <= most


def _joined(
    operator: Operator,
    step: steps.Stateful,
    inputs: dict[str, DataFrame],
    interval: Interval,
    rendering: Rendering,
    *,
    late: bool,
) -> Computed:
    """The outputs of a join, by Sail alone; ``late``: late rows are counted."""
    rows, count = joins.compute(step, inputs, interval, rendering)
    return joins.with_late(step, with_results(operator, step, rows, {}, rendering), count if late else lambda: 0)


def check(operator: Operator, lake: Lake) -> None:
    """Refuse an operator for which the embedded engine would not give Spark's answer.

    Raises:
        CapabilityError: CAPABILITY-031 an expression that Sail computes otherwise, CAPABILITY-033 a lake that is neither on a local disk nor in a bucket.
    """
    roots = filter(None, (lake.root, lake.logs, lake.upstream))
    check_reached(roots, f"floodmark run {operator.name} --engine spark")
    check_operator(operator)


@dataclass(frozen=True, slots=True)
class _Run:
    """The run of one stretch on one server."""

    connection: Connection
    operator: Operator
    lake: Lake
    interval: Interval
    late_rows: LateRows
    clock: tuple[Tick, ...]
    reached: int
    scratch: Path
    memory: int
    """Bytes that each process of kernels may use."""
    markings: tuple[Marking, ...] = ()
    """Per link, what marks the rows to be quarantined; none for the first try, in which no row is expected to fail."""
    last: bool = True
    """Whether the operator is the last of its links, which writes outputs."""

    def done(self, versions: dict[str, int], record: BoundedRun, replaced: Interval) -> Done:
        """Compute all outputs and write them."""
        results = linked(self.operator, self.inputs(versions), self.interval, self._linked)
        counts = tables.write(self.connection.spark, self.operator, self.lake, results, record, replaced)
        return Done(counts=counts, late=results.late(), dropped=results.dropped())

    def known(
        self, last: Sequence[steps.Step], inputs: dict[str, DataFrame], known: dict[steps.Step, DataFrame]
    ) -> dict[steps.Step, DataFrame]:
        """Step -> frame, of the known steps and, with marking, of quarantining steps."""
        return self.markings[0].known(self.connection, last, inputs, known) if self.markings else known

    def rendering(self, text: str, schema: Schema) -> str:
        """The SQL of an expression for Sail."""
        return _rendered(self.operator, text, schema)

    def inputs(self, versions: dict[str, int]) -> dict[str, DataFrame]:
        """Input name -> rows of its table at a version, without markers."""
        frames = {}
        for input_ in self.operator.inputs:
            path, version = self.lake.input(input_), versions[input_.table]
            rows = stored.table(self.connection.spark, path, version, self.scratch)
            rows = require_columns(rows, self.operator, input_)
            frames[input_.name] = rows.filter(f"`_kind` <> {MARKER}")
        return frames

    def _linked(self, number: int, link: Operator, inputs: dict[str, DataFrame], interval: Interval) -> Computed:
        """The outputs of a link for an interval of its own; rows that it does not need are marked as filtered."""
        needed = scans(link, interval)
        if not needed.everything:
            inputs = {name: filtered(rows.filter(bounds(needed)), bounds(needed)) for name, rows in inputs.items()}
        if self.late_rows == "all":
            landed = {given.name: inputs[given.name] for given in link.inputs if not given.inner}
            stamp = {"_watermark": lateness.watermark_on_time(link)}
            inputs |= {name: with_columns(rows, stamp) for name, rows in landed.items()}
        last = link is self.operator.links[-1]
        run = replace(self, operator=link, interval=interval, markings=self.markings[number : number + 1], last=last)
        return run.computed(inputs)

    def computed(self, inputs: dict[str, DataFrame]) -> Computed:
        """All outputs for the interval."""
        step, operator = self.operator.stateful, self.operator
        if operator.spans_interval and not self.interval.everything:
            return ended(replace(self, interval=Interval()).computed(inputs), self.interval)
        if step is None:
            known = self.known(_last(operator), inputs, {})
            return Computed(outputs=stateless(operator, inputs, self.rendering, known))
        if _joins(operator, step, self.interval, self.lake):
            return _joined(operator, step, inputs, self.interval, self.rendering, late=True)
        if _joins_windows(operator, step, self.interval, self.late_rows, self.lake, self.memory * cores.available()):
            return _with_windows_joined(operator, step, inputs, self.interval, self.rendering)
        parent = compiled(step.parent, inputs, self.known([step], inputs, {}), self.rendering)
        if isinstance(step, steps.WindowAggregate) and _plain(operator, step, self.interval, self.late_rows):
            return _in_sql(operator, step, parent, self.interval, self.rendering)
        if isinstance(step, steps.WindowAggregate) and _are_sessions(operator, step, self.interval, self.late_rows):
            by_sail = self._sessions(step, parent)
            if by_sail is not None:
                return by_sail
        run = self if self.markings else replace(self, operator=without_unread_aggregates(operator))
        stage = stage_of(run.operator)
        assert stage is not None
        if isinstance(stage, (ElementStage, ProcessStage)):
            needed = scans(operator, self.interval)
            stage = replace(stage, clip=None if self.interval.everything else Clip(interval=self.interval, read=needed))
        return run._by_kernels(stage, parent)  # noqa: SLF001 - of a run that differs in its operator

    def _sessions(self, step: steps.WindowAggregate, parent: DataFrame) -> Computed | None:
        """The outputs of sessions, by SQL alone; None if it may have others than the kernel."""
        folder = self.scratch / uuid4().hex
        try:
            sessions.grouped(step, parent, self.rendering, sail_aggregate).write.parquet(str(folder))
        except PySparkException as error:
            if not sessions.overflows(error):
                raise
            return None
        if not any(folder.glob("*.parquet")):
            return None
        made = self._read(folder)
        doubtful, dropped = sessions.judged(step, made)
        if doubtful:
            return None
        outputs = with_results(self.operator, step, sessions.results(step, made, self.interval), {}, self.rendering)
        return Computed(outputs=outputs, dropped=lambda: dropped)

    def _by_kernels(self, stage: AnyStage, parent: DataFrame) -> Computed:
        source, target = self.scratch / uuid4().hex, str(self.scratch / uuid4().hex)
        placed = {files.BUCKET: f"`group` % {_BUCKETS}"} | ({} if isinstance(stage, Stage) else {AT: order(stage)})
        rows = with_columns(stage_rows(stage, parent, self.rendering), placed)
        together = min(
            max(self.memory // (_BUCKETS * _WIDE), _FEWEST), _MOST
        )  # each bucket's are in memory until they are written
        writer = rows.write.partitionBy(files.BUCKET).option("max_row_group_size", str(together))
        writer.options(**_SCRATCH).parquet(str(source))
        work = Work(
            stage=stage,
            interval=self.interval,
            clock=self.clock,
            reached=self.reached,
            stamped=is_stamped(self.operator, self.late_rows),
            sides={o.name: (o.side, o.schema) for o in self.operator.outputs if o.side},
            ingested=time.time_ns() // 1_000_000,
            memory=self.memory,
            final=final_of(self.operator, stage.step) if self.last and not self.markings else None,
        )
        files.write_empty(work, target)
        folders = sorted(path for path in source.glob(f"{files.BUCKET}=*") if path.is_dir())
        buckets = [files.Bucket(number=n, source=str(path), target=target) for n, path in enumerate(folders)]
        late, dropped = pool.computed(work, buckets, files.counted(str(source)))
        read = {name: self._read(files.folder_of(work, target, name)) for name in files.outputs(work)}
        results, _ = read.pop(RESULTS), read.pop(files.LAST, None)
        if work.final is not None:
            result, *sides = self.operator.outputs
            outputs = ((result, results), *((side, read[side.name]) for side in sides))
            folder = files.folder_of(work, target, RESULTS)
            ready = {result.table: Ready(rows=folder, last=files.last_of(work, target))}
            return Computed(outputs=outputs, late=lambda: late, dropped=lambda: dropped, ready=ready)
        behind = partial(self.known, [step for _, step in self.operator.results], {})
        outputs = with_results(self.operator, stage.step, results, read, self.rendering, behind)
        return Computed(outputs=outputs, late=lambda: late, dropped=lambda: dropped)

    def _read(self, folder: Path) -> DataFrame:
        return self.connection.spark.read.parquet(str(folder))
