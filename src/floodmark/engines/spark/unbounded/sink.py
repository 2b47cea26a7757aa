"""The sink of unbounded runs: writes every output of a micro-batch exactly once, each with a transaction id of its own.

Spark's own Delta sink behind a stateful step can wedge a query for ever if it is killed between the table's commit and its own.
So every micro-batch is evaluated before anything is written: a repeated micro-batch, whose writes are skipped, still commits its state.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from functools import partial, reduce
from operator import attrgetter
from typing import Any

from pyspark import StorageLevel, inheritable_thread_target
from pyspark.sql import Column, DataFrame, Row, SparkSession
from pyspark.sql import functions as F

from floodmark.core import crash
from floodmark.core.stopwatch import Stopwatch
from floodmark.core.time import NEVER, from_ms
from floodmark.engines.frames import judging
from floodmark.engines.frames.attempts import attempts_of, blaming, explained
from floodmark.engines.frames.compile import compiled, failing, failures, set_aside_before, without_failures
from floodmark.engines.frames.expressions import as_written
from floodmark.engines.frames.judging import ROWS_ONLY, criteria_of, judged
from floodmark.engines.frames.numbering import of_batch
from floodmark.engines.frames.packing import COUNTS, Stamping, output_ddl, unpacking
from floodmark.engines.outcome import Tally, unmet
from floodmark.engines.pacing import Pace, Within
from floodmark.engines.spark.delta import parquet, tables
from floodmark.engines.spark.delta.appender import Appender
from floodmark.engines.spark.delta.current import Stopped
from floodmark.engines.spark.delta.ticks import Ticks
from floodmark.engines.spark.state.checkpoint import checkpoint_of
from floodmark.engines.spark.unbounded import at_once
from floodmark.engines.spark.unbounded.chain import nearest, stages_of
from floodmark.engines.spark.unbounded.holding import Holding
from floodmark.lake.folder.paths import Lake, is_reached
from floodmark.lake.results import frozen
from floodmark.lake.results.own_stream import drops_late
from floodmark.lake.stream import plans
from floodmark.lake.stream.timeline import Timeline, positions_at
from floodmark.lake.table.commits import Hottest, MicroBatch
from floodmark.lake.table.files import Written
from floodmark.lake.table.outputs import PROGRESS_SECONDS, check_there, partition_by
from floodmark.lake.table.rows import row_schema
from floodmark.semantics.kernels.stage import AnyStage
from floodmark.spec.graph.operator import Operator, Output, Side
from floodmark.spec.graph.steps import Step
from floodmark.spec.keyed.metric import merge
from floodmark.spec.values.run import BatchInfo, CheckpointInfo
from floodmark.spec.values.schema import FAILED, MARKER, ROW, Schema


@dataclass(frozen=True, slots=True)
class _Part:
    """What a micro-batch commits to one output: rows with a marker, how to write their files, and the number of rows without retractions."""

    output: Output
    rows: DataFrame
    write: Callable[[], Written]
    count: int
    unmet: Mapping[str, int] = field(default_factory=dict)
    frozen: int = 0


@dataclass(slots=True)
class Sink:
    """Writes the micro-batches of one operator.

    Args:
        operator: of the outputs.
        lake: of the outputs' tables.
        timeline: of the micro-batches.
        stages: of the stateful steps; none without one.
        inputs: (stateless micro-batch) -> input name -> rows.
        read: () -> rows that the micro-batch at work has read, known once the micro-batch is evaluated; called with stages, and for a micro-batch that is
            written at once.
        arrived: (session, number) -> input name -> rows that no micro-batch before that number has read; called only with stages.
        run: id of the process, which tells the commits of two processes apart.
        stop: when set, the next micro-batch is not begun.
        on_batch: called after each micro-batch.
        ticks: recorded clock, for a stage that waits for processing time.
        early: output table -> a repeatable function that is called with its rows, and the micro-batch's number, before they are committed.
        holding: what a micro-batch waits for; None for nothing.
        checkpointed: (number) -> the checkpoint of a micro-batch that has ended; None if Spark has not told of it.
    """

    operator: Operator
    lake: Lake
    timeline: Timeline
    stages: tuple[AnyStage, ...]
    inputs: Callable[[DataFrame], Mapping[str, DataFrame]]
    read: Callable[[], int]
    arrived: Callable[[SparkSession, int], Mapping[str, DataFrame]]
    run: str
    stop: threading.Event
    on_batch: Callable[[BatchInfo], None]
    ticks: Ticks | None = None
    early: Mapping[str, Callable[[DataFrame, int], None]] = field(default_factory=dict)
    checkpointed: Callable[[int], CheckpointInfo | None] = lambda _: None
    holding: Holding | None = None
    done: Tally = field(default_factory=Tally)
    pace: Pace = field(default_factory=Pace)
    """The pause between micro-batches; their interval is the trigger of the query."""
    within: Within = nullcontext
    """Context in which each micro-batch is evaluated and committed."""
    _appenders: dict[str, Appender] = field(default_factory=dict)
    _began: float = field(default_factory=time.monotonic)
    _commits: dict[str, tuple[float, int]] = field(default_factory=dict)
    """Output table -> time of its last commit, on the monotonic clock, and the progress in that commit."""
    failure: BaseException | None = None

    def __call__(self, batch: DataFrame, number: int) -> None:
        """Write one micro-batch; called by ``foreachBatch``."""
        if self.stop.wait(self.pace.left):
            raise Stopped
        checkpoint = self.timeline.checkpoint.path
        if self.holding is not None and plans.plan_of(checkpoint, number) is None:
            self.holding.admit(number, self.stop)
        try:
            with self.within():
                plans.agree(checkpoint, number)
                self._write(batch, number)
        except BaseException as error:
            self.failure = error
            raise
        self.pace.end()

    def progress(self, number: int) -> int:
        """The ``_progress`` of rows of micro-batch ``number``: all on-time rows up to it are in earlier commits.

        With state, that is the progress before micro-batch ``number`` - 1, as timers up to it have fired in that micro-batch at the latest;
        without state, the progress before micro-batch ``number``, as every row read before is written.
        """
        return checkpoint_of(self.timeline).progress_before(number - 1 if self.stages else number)

    def publish_progress(self, spark: SparkSession) -> None:
        """Write one marker per output after the last micro-batch, so that readers need not wait for the next micro-batch."""
        number = self.timeline.checkpoint.last_committed()
        progress = self.timeline.checkpoint.final_progress(number)
        if number < 0 or progress <= NEVER:
            return
        crash.point("micro_batch.before_progress")
        for output in self.operator.outputs:
            app = self.timeline.app(output.table, "settle")
            record = replace(self._record_of(output, number, progress), settled=True)
            appender = self._appender(output)
            if is_reached(appender.path):
                rows = tables.marked(output, progress)
                appender.append_arrow(rows, app, number, record, partition_by=partition_by(output))
            else:
                self._append(tables.marker(spark, output, progress), output, app, number, record)
        crash.point("micro_batch.after_progress")

    def _write(self, batch: DataFrame, number: int) -> None:
        began, main, watch = time.monotonic(), self.operator.outputs[0], Stopwatch()
        crash.point("micro_batch.before_evaluate")
        alone = self._is_at_once(batch)
        if not alone:
            batch.persist(StorageLevel.MEMORY_AND_DISK)
        written: dict[str, int] = {}
        unmet_rows: dict[str, Mapping[str, int]] = {}
        try:
            with blaming(self.operator, "unbounded", partial(self._failing, batch=batch, number=number)):
                progress = self.progress(number)
                main_part: _Part | None = None
                groups: Sequence[Row] = ()
                if alone:
                    main_part, total = self._written_at_once(batch, progress)
                else:
                    total, groups = self._evaluated(batch)
                metrics = merge(_others(row).get("metrics", {}) for row in groups)
                bundled = bool(self.operator.stages) and self.operator.stages[0].key_groups is not None
                hottest = hottest_of([row for row in groups if row["taken"] and not row["stage"]], bundled=bundled)
                watch.lap("compute")
                if self.ticks is not None:
                    self._record(self.ticks, batch.sparkSession, number, groups)
                for part in self._parts(batch, number, progress, total, main_part):
                    output, rows, count = part.output, part.rows, part.count
                    name = "main" if output is main else "side"
                    record = self._record_of(output, number, progress)
                    record = replace(record, rows=count, late=total["late"], dropped=total["dropped"], unmet=part.unmet)
                    record = replace(record, frozen=part.frozen, rows_in=total["rows_in"])
                    record = replace(record, metrics=metrics if output is main else {})
                    record = replace(record, hottest=hottest if output is main else None)
                    if output.table in self.early and count:
                        self.early[output.table](rows, number)
                        crash.point("early.after_merge")
                    crash.point(f"micro_batch.before_{name}")
                    self._append(rows, output, self.timeline.app(output.table), number, record, part.write)
                    crash.point(f"micro_batch.after_{name}")
                    self._commits[output.table] = time.monotonic(), progress
                    if count or not output.side:
                        written[output.table] = count
                    if part.unmet:
                        unmet_rows[output.table] = part.unmet
        finally:
            if not alone:
                batch.unpersist()
        watch.lap("write")
        info = BatchInfo(
            batch_id=number,
            rows_in=total["rows_in"],
            rows=written,
            late=total["late"],
            dropped=total["dropped"],
            retractions=sum(row["retractions"] for row in groups if row["stage"] == len(self.stages) - 1),
            progress=progress,
            seconds=time.monotonic() - began,
            unmet=unmet_rows,
            timeline=self.timeline.number,
            read=positions_at(self.timeline, number),
            phases=watch.phases,
            metrics=metrics,
            checkpoint=self.checkpointed(number - 1),
        )
        self.done.add(info)
        if self.holding is not None:
            self.holding.committed()
        self.on_batch(info)

    def _is_at_once(self, batch: DataFrame) -> bool:
        """Whether the rows of a micro-batch are written before anything else is known of it, in one job: not before this process has committed one."""
        main, *_ = self.operator.outputs
        path = self.lake.output(main.table)
        return (
            self._commits.get(main.table, (0.0, NEVER))[1] > NEVER
            and main.table not in self.early
            and at_once.allows(self.operator, path)
            and judging.conditions(criteria_of(self.operator, main), main.schema, as_written) is not None
            and frozen.frozen(self.lake, self.operator.name) is None
            and at_once.is_small(batch)
        )

    def _written_at_once(self, batch: DataFrame, progress: int) -> tuple[_Part, dict[str, int]]:
        """The main output's part of a micro-batch, whose files are written; and the counts of the micro-batch."""
        main, *sides = self.operator.outputs
        path = self.lake.output(main.table)
        check_there(path, f"output '{main.table}' of the running stream", self._anew)
        computed = compiled(dict(self.operator.results)[main.name], self.inputs(batch), {})
        rows = tables.stamped(computed.filter(F.col("_kind") != MARKER), main, progress)
        criteria = criteria_of(self.operator, main)
        texts = judging.conditions(criteria, main.schema, as_written)
        assert texts is not None
        done = at_once.write(rows, list(texts), tables.marked(main, progress), path)
        total = {"rows_in": self.read(), main.table: done.kinds[ROW]}
        total |= {side.table: sum(count for kind, count in done.kinds.items() if kind >= FAILED) for side in sides}
        numbers = {f"m{number}": count for number, count in enumerate(done.counts)}
        shown = partial(judging.examples, rows, schema=main.schema, rendering=as_written, only=ROWS_ONLY)
        results = judging.verdicts(criteria, texts, numbers, shown) if criteria and done.kinds[ROW] else []
        part = _Part(main, rows, lambda: done.written, done.kinds[ROW])
        part = replace(part, unmet=unmet(self.operator, main, "unbounded", results))
        crash.point("micro_batch.after_files")
        return part, dict.fromkeys(COUNTS, 0) | total

    def _parts(
        self, batch: DataFrame, number: int, progress: int, total: Mapping[str, int], main: _Part | None
    ) -> list[_Part]:
        """The outputs to commit, in order, the main one last; the files of several are written beside each other; ``main`` is the part that is written."""
        part_of = partial(self._part, batch, number, progress, total)
        outputs = self.operator.outputs[::-1]
        if main is not None:
            sides = (part_of(output) for output in outputs if output is not main.output)
            return [part for part in (*sides, main) if part is not None]
        names = {output.table: self._packed(output) for output in outputs if output.side}
        few = [output for output in outputs if (name := names.get(output.table)) is None or total.get(name)]
        if len(few) < 2:  # noqa: PLR2004 - nothing to write beside
            parts = [part_of(output) for output in outputs]
        else:
            with ThreadPoolExecutor(len(few), "outputs") as pool:  # waits for all of them, also if one fails
                starts = [pool.submit(inheritable_thread_target(batch.sparkSession)(part_of), o) for o in outputs]
            parts = [start.result() for start in starts]
        return [part for part in parts if part is not None]

    def _part(
        self, batch: DataFrame, number: int, progress: int, total: Mapping[str, int], output: Output
    ) -> _Part | None:
        """One output's part of a micro-batch; None if there is nothing to commit.

        Its files are written at once, so that several outputs are written beside each other: but not for an output to which this process has
        committed nothing yet, as the micro-batch may be one that an earlier process has committed.
        """
        path = self.lake.output(output.table)
        ahead = (
            self._commits.get(output.table, (0.0, NEVER))[1] > NEVER
            and output.table not in self.early
            and is_reached(path)
        )
        packed = self._packed(output)
        if packed is not None:
            part = self._emitted(batch, output, number, progress, total, packed)
        else:
            rows = self._following(batch, output, number, progress, total)
            count = self._count(rows, output, total, ahead=ahead)
            part = _Part(output, rows, partial(self._appender(output).write, rows, partition_by(output)), count)
        if output.side and not part.count and not self._owes_progress(output, progress):
            return None
        if output.side == "quarantine":
            rows = explained(part.rows, attempts_of(self.operator))
            part = _Part(output, rows, partial(self._appender(output).write, rows, partition_by(output)), part.count)
        check_there(path, f"output '{output.table}' of the running stream", self._anew)
        part = self._thawed(part)
        part = replace(part, unmet=self._unmet(part))
        if not ahead:
            return part
        written = part.write()
        crash.point("micro_batch.after_files")
        count = written.kinds()[ROW] if part.count == _UNKNOWN else part.count
        return replace(part, write=lambda: written, count=count)

    @property
    def _anew(self) -> str:
        """What to do once a table is gone."""
        return f"Begin anew: floodmark run {self.operator.name} --unbounded --from-scratch"

    def _thawed(self, part: _Part) -> _Part:
        """A part without the rows whose event time is frozen. They are looked for only where something is frozen, and late rows are emitted."""
        output = part.output
        frozen_range = None if drops_late(self.operator) else frozen.frozen(self.lake, self.operator.name)
        if frozen_range is None or not frozen.holds(output):
            return part
        later = F.coalesce(F.col("_event_time") >= F.lit(from_ms(frozen_range.before)), F.lit(True))
        left = part.rows.agg(
            F.count_if(~later).alias("frozen"), F.count_if(later & (F.col("_kind") == ROW)).alias("rows")
        )
        counts = left.collect()[0]
        if not counts["frozen"]:
            return part
        rows = part.rows.filter(later)
        write = partial(self._appender(output).write, rows, partition_by(output))
        return replace(part, rows=rows, write=write, count=int(counts["rows"]), frozen=int(counts["frozen"]))

    def _unmet(self, part: _Part) -> dict[str, int]:
        """The expectations that the rows of an output do not meet.

        Raises:
            ExecutionError: EXECUTION-090, one with ``on_fail="stop"`` is not met.
        """
        criteria = criteria_of(self.operator, part.output) if part.count else ()
        results = judged(part.rows, part.output.schema, criteria, only=ROWS_ONLY) if criteria else []
        return unmet(self.operator, part.output, "unbounded", results)

    def _owes_progress(self, output: Output, progress: int) -> bool:
        """Whether a side output without rows needs a marker with the stream's progress, for which its readers wait."""
        at, committed = self._commits.setdefault(output.table, (self._began, NEVER))
        return progress > committed and time.monotonic() - at >= PROGRESS_SECONDS

    def _failing(self, operator: Operator, *, batch: DataFrame, number: int) -> Iterator[DataFrame | None]:
        """Frames in which to look for a row for which an expression fails: rows before the stateful step, then rows after that step."""
        if not self.stages:
            yield failures(operator, self.inputs(batch))
            return
        arrived = self.arrived(batch.sparkSession, number)
        for link, stage in zip(operator.links, stages_of(operator), strict=False):
            if all(given.name in arrived for given in link.inputs):
                yield set_aside_before(stage, arrived)
        total, _ = self._evaluated(batch)
        stamping, tasks = _stamping(number, self.progress(number), total)
        yield failures(operator, {}, _known(operator, batch, stamping, tasks))

    def _record(self, ticks: Ticks, spark: SparkSession, number: int, groups: Sequence[Row]) -> None:
        """Record the clock if it has moved in this micro-batch, and set the clock for which the stage waits next."""
        positions = [row["position"] for row in groups if row["position"] is not None]
        if not positions:
            return
        clock = self.timeline.checkpoint.clock(number) if ticks.clock is None else ticks.clock
        crash.point("tick.before_record")
        ticks.record(spark, number, clock, self.progress(number), positions)
        crash.point("tick.after_record")
        ticks.due = min((row["tick"] for row in groups if row["tick"] is not None), default=None)

    def _evaluated(self, batch: DataFrame) -> tuple[dict[str, int], Sequence[Row]]:
        """Compute the whole micro-batch: totals, and the counts of each key group, which are few rows."""
        if not self.stages:
            return dict.fromkeys(COUNTS, 0) | self._counted(batch), ()
        groups = batch.select(*COUNTS, "position", "tick", "group", "stage", "others").collect()
        total = {name: sum(int(row[name]) for row in groups) for name in COUNTS} | {"rows_in": self.read()}
        for row in groups:
            rows = _of_stage(row["stage"])
            total[rows] = total.get(rows, 0) + row["rows"]
        for row in groups:
            for name, count in _others(row).get("sides", {}).items():
                total[_side(name)] = total.get(_side(name), 0) + count
        return total, groups

    def _counted(self, batch: DataFrame) -> dict[str, int]:
        """Numbers of rows of a stateless micro-batch, in one job: ``rows_in``, and output table -> rows."""
        inputs = self.inputs(batch)
        frames = {"rows_in": batch.select(F.lit(ROW).alias("_kind"))}
        frames |= {output.table: self._computed(output, inputs, {}) for output in self.operator.outputs}
        kinds = [frame.select(F.lit(name).alias("of"), "_kind") for name, frame in frames.items()]
        counts = reduce(DataFrame.union, kinds).groupBy("of").agg(_row_count()).collect()
        return dict.fromkeys(frames, 0) | {row["of"]: row["rows"] for row in counts}

    def _emitted(
        self, batch: DataFrame, output: Output, number: int, progress: int, total: Mapping[str, int], packed: str
    ) -> _Part:
        """The part of an output whose rows the stateful step has emitted, as chunks; its workers write the files too, unless these are divided."""
        count, now = total.get(packed, 0), time.time_ns() // 1_000_000
        numbering, tasks = of_batch(number, _numbered(total), count // tables.ROWS_PER_FILE)
        stamping = Stamping(progress=progress, ingested=now, numbering=numbering, marker=True)
        step = None if output.side else dict(self.operator.results)[output.name]
        chunks = _chunks(batch, tasks, output.side, _number_of(step, self.operator) if len(self.stages) > 1 else None)
        rows_of = unpacking(output.schema, stamping, output.side, output.name)
        rows = tables.divided(chunks.mapInArrow(rows_of, output_ddl(output.schema)), output)
        appender = self._appender(output)
        if output.partitions is None:
            write = partial(parquet.write, chunks, rows_of, row_schema(output.schema), appender.path)
        else:
            write = partial(appender.write, rows, partition_by(output))
        return _Part(output, rows, write, count)

    def _following(
        self, batch: DataFrame, output: Output, number: int, progress: int, total: Mapping[str, int]
    ) -> DataFrame:
        """The rows of an output of stateless steps, or of those that follow the stateful step, with all stamps and a marker."""
        if not self.stages:
            rows = self._computed(output, self.inputs(batch), {}).filter(F.col("_kind") != MARKER)
            tasks = max(1, total[output.table] // tables.ROWS_PER_FILE)
        else:
            stamping, tasks = _stamping(number, progress, total)
            rows = self._computed(output, {}, _known(self.operator, batch, stamping, tasks))
            if output.side:
                chunks = _chunks(batch, tasks, output.side)
                rows = rows.unionByName(_unpacked(chunks, output.schema, stamping, output.side))
        marker = tables.marker(batch.sparkSession, output, progress)
        return tables.stamped(rows, output, progress).coalesce(tasks).unionByName(marker).coalesce(tasks)

    def _count(self, rows: DataFrame, output: Output, total: Mapping[str, int], *, ahead: bool) -> int:
        """The number of rows without retractions; ``_UNKNOWN`` where the files tell it before anything is committed."""
        if not self.stages:
            return total[output.table]
        return _UNKNOWN if ahead and not output.side else int(rows.agg(_row_count()).collect()[0]["rows"])

    def _packed(self, output: Output) -> str | None:
        """The name of the count of an output whose rows are emitted by the stateful step; None if steps follow the stateful step."""
        if not self.stages or (output.side == "quarantine" and failing(self.operator)):
            return None
        if output.side == "side":
            return _side(output.name)
        if output.side:
            return "sides" if output.side == "late" else "failures"
        number = _number_of(dict(self.operator.results)[output.name], self.operator)
        return None if number is None else _of_stage(number)

    def _computed(self, output: Output, inputs: Mapping[str, DataFrame], known: Mapping[Step, DataFrame]) -> DataFrame:
        """The rows of an output, computed by stateless steps from the inputs or from the stateful step."""
        if output.side:
            failed = failures(self.operator, inputs, known)
            assert failed is not None
            return failed
        return without_failures(compiled(dict(self.operator.results)[output.name], inputs, known))

    def _record_of(self, output: Output, number: int, progress: int) -> MicroBatch:
        return MicroBatch.of(
            self.operator,
            output.table,
            timeline=self.timeline.number,
            batch=number,
            progress=progress,
            run=self.run,
            engine="spark",
        )

    def _append(
        self,
        rows: DataFrame,
        output: Output,
        app: str,
        number: int,
        record: MicroBatch,
        write: Callable[[], Written] | None = None,
    ) -> None:
        divided = partition_by(output)
        self._appender(output).append(rows, app, number, record, partition_by=divided, write=write)

    def _appender(self, output: Output) -> Appender:
        return self._appenders.setdefault(output.table, Appender(self.lake.output(output.table)))


def _others(row: Row) -> dict[str, Any]:
    """What a key group tells of side outputs and metrics."""
    return json.loads(row["others"] or "{}")  # type: ignore[no-any-return]


def hottest_of(groups: Sequence[Row], *, bundled: bool) -> Hottest | None:
    """(emissions of the first stage for key groups with rows, or for bundles of them) -> the key group with the most rows; None without rows by key."""
    if not bundled:
        return Hottest.of_rows({row["group"]: int(row["taken"]) for row in groups})
    of_bundles = [Hottest(*fields) for row in groups if (fields := _others(row).get("hottest"))]
    if not of_bundles:  # of rows for all keys
        return None
    hottest = max(of_bundles, key=attrgetter("rows"))
    return hottest._replace(of=sum(bundle.of for bundle in of_bundles))


_UNKNOWN = -1


def _row_count() -> Column:
    """The number of rows that are neither markers nor retractions; by ``count_if``, as a filter ``_kind = 0`` undoes guards (``expressions``)."""
    return F.count_if(F.col("_kind") == ROW).alias("rows")


def _side(name: str) -> str:
    """The name of the count of a side output of a process function."""
    return f"{_SIDE}{name}"


_SIDE = "side "


def _numbered(total: Mapping[str, int]) -> int:
    """Most sequences that a micro-batch needs: results and rows of side outputs of a process function are numbered together."""
    sides = sum(count for name, count in total.items() if name.startswith(_SIDE))
    return max(total["rows"] + total["retractions"] + sides, total["failures"])


def _of_stage(number: int) -> str:
    """The name of the count of the rows that a stage has emitted."""
    return f"stage {number}"


def _number_of(step: Step | None, operator: Operator) -> int | None:
    """The number of the stage that a step is; None for a stateless step."""
    return next((number for number, stage in enumerate(operator.stages) if stage == step), None)


def _stamping(number: int, progress: int, total: Mapping[str, int]) -> tuple[Stamping, int]:
    """The stamps of rows that stateless steps compute from emissions of a micro-batch, and the number of tasks."""
    numbering, tasks = of_batch(number, _numbered(total), total["rows"] // tables.ROWS_PER_FILE)
    return Stamping(progress=progress, ingested=0, numbering=numbering), tasks


def _known(operator: Operator, batch: DataFrame, stamping: Stamping, tasks: int) -> dict[Step, DataFrame]:
    """Stage -> its rows in a micro-batch, of the stages from which the outputs are computed."""
    several = len(operator.stages) > 1
    numbers = {step: _number_of(step, operator) if several else None for step in nearest(operator)}
    return {
        step: _unpacked(_chunks(batch, tasks, stage=number), step.schema, stamping) for step, number in numbers.items()
    }


def _chunks(batch: DataFrame, tasks: int, side: Side | None = None, stage: int | None = None) -> DataFrame:
    """The chunks of a micro-batch in at most ``tasks`` tasks: of one stage, or of all."""
    rows = batch if stage is None else batch.filter(F.col("stage") == stage)
    return rows.select("side" if side and side != "side" else "results").coalesce(tasks)


def _unpacked(chunks: DataFrame, schema: Schema, stamping: Stamping, side: Side | None = None) -> DataFrame:
    """The rows in chunks."""
    return chunks.mapInArrow(unpacking(schema, stamping, side), output_ddl(schema))
