"""Unbounded runs on the embedded engine: an operator as a stream over Delta logs, until it is stopped or has caught up."""

from __future__ import annotations

import sys
import threading
import time
import uuid
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc
from deltalake.exceptions import DeltaError
from pyspark.errors import PySparkException

from floodmark.core.errors import ExecutionError
from floodmark.core.patience import patient
from floodmark.core.stopwatch import Stopwatch
from floodmark.core.time import NEVER
from floodmark.engines.embedded.sail.session import Sail
from floodmark.engines.embedded.state.batch import Batch, progress_of
from floodmark.engines.embedded.state.checkpoint import NAME, Checkpoint
from floodmark.engines.embedded.state.segment import INDEX
from floodmark.engines.embedded.state.store import GroupStore, State
from floodmark.engines.embedded.unbounded import begin
from floodmark.engines.embedded.unbounded.begin import check_start
from floodmark.engines.embedded.unbounded.chain import Chain
from floodmark.engines.embedded.unbounded.compute import Evaluated
from floodmark.engines.embedded.unbounded.inputs import Reader, Take, readers
from floodmark.engines.embedded.unbounded.sink import Sink
from floodmark.engines.frames.restating import Restating
from floodmark.engines.outcome import Tally, explained
from floodmark.engines.pacing import Pace, Within
from floodmark.lake.folder.locks import BOUNDED, exclusive, stream_role
from floodmark.lake.folder.paths import Lake
from floodmark.lake.results import tables
from floodmark.lake.results.verdicts import Waiting
from floodmark.lake.stream import ticks
from floodmark.lake.stream.checkpoint import Position
from floodmark.lake.stream.sample import in_effect
from floodmark.lake.stream.timeline import CHECKPOINT, TICKS, Timeline
from floodmark.lake.table.lost import found_lost
from floodmark.lake.table.outputs import PROGRESS_SECONDS
from floodmark.lake.writing.checkpointer import Checkpointer
from floodmark.lifecycle.plan import sources
from floodmark.semantics.state.store import Store
from floodmark.spec.graph.operator import Operator
from floodmark.spec.values.run import BatchInfo, CheckpointInfo, RunResult
from floodmark.spec.values.schema import MARKER

_NOWHERE = Position(-1, -1, "")


def run_unbounded(  # noqa: PLR0913 - settings by name
    sail: Sail,
    operator: Operator,
    lake: Lake,
    *,
    until_caught_up: bool = False,
    stop: threading.Event | None = None,
    files_per_batch: int | None = None,
    trigger_seconds: float | None = None,
    interval_seconds: float = 0.0,
    pause_seconds: float = 0.0,
    from_scratch: bool = False,
    on_batch: Callable[[BatchInfo], None] | None = None,
    on_wait: Callable[[str], None] | None = None,
    clock: int | None = None,
    within: Within = nullcontext,
) -> RunResult:
    """Run an operator as a stream. A restart resumes where the last run ended, however it ended.

    Args:
        sail: computes stateless steps.
        operator: that ``check_start`` does not refuse.
        lake: read and written; holds the checkpoint too.
        until_caught_up: end once all rows landed so far are processed.
        stop: when set, the run ends at the next micro-batch boundary.
        files_per_batch: most files per input and micro-batch.
        trigger_seconds: pause between looks for new rows; by default 0.1 on a local disk, where a look opens a file, and 1 in a bucket; a shorter
            ``interval_seconds`` shortens it.
        interval_seconds: least time from the start of a micro-batch to the start of the next. A run until it has caught up does not wait.
        pause_seconds: least time from the end of a micro-batch to the start of the next.
        from_scratch: delete checkpoint and output rows, and compute all of the input again.
        on_batch: called after each committed micro-batch.
        on_wait: called with the verdict that the run waits for, and with an empty text once it no longer does.
        clock: processing time to run at, ms UTC, for tests; by default the machine's clock, read once per micro-batch.
        within: context in which each micro-batch is computed and committed, from the moment at which it is known what it reads.

    Raises:
        CapabilityError: CAPABILITY-035, only Spark can run the operator.
        ExecutionError: EXECUTION-002 a table is missing, EXECUTION-004 Sail failed, EXECUTION-060 a file of an input is gone,
            EXECUTION-062 Delta's checkpoints of an output fail one after the other.
        LifecycleError: LIFECYCLE-003 another run of this operator has not ended, LIFECYCLE-034 a rollback of the stream is not finished.
        StateError: STATE-002, STATE-003, STATE-041, the checkpoint is another operator's or engine's; STATE-036, the checkpoint is damaged.
    """
    began, stop, tell = time.monotonic(), stop or threading.Event(), on_batch or (lambda _: None)
    look = min(0.1 if lake.is_local else 1.0, interval_seconds or 1.0) if trigger_seconds is None else trigger_seconds
    waiting, pace = Waiting(on_wait or (lambda _: None)), Pace(interval_seconds, pause_seconds)
    role = stream_role(until_caught_up=until_caught_up)
    with exclusive(lake, "operators", operator.name, "run", role=role), Checkpointer() as checkpointer:
        check_start(operator, lake, from_scratch=from_scratch)
        if from_scratch:
            with exclusive(lake, "operators", operator.name, "bounded run", file=BOUNDED):
                tables.forget(operator, lake)
        operator = in_effect(lake, operator)
        timeline = begin.begin(operator, lake)
        state = State(Checkpoint(timeline.folder(CHECKPOINT)))
        sink = Sink(operator, lake, timeline, state, uuid.uuid4().hex, checkpointer)
        sink.pay_last()
        order = sources(operator.canonical())
        stream = _Stream(
            operator,
            Chain(operator, sail, state),
            sink,
            checkpointer,
            readers(operator, timeline, order, files_per_batch),
            tell,
            Clock.of(operator, timeline, clock, state.batch),
            within,
        )
        if until_caught_up:
            for reader in stream.readers.values():
                reader.end_here()
        try:
            with found_lost(operator, lake, _again(operator)), patient(partial(_wait, operator, stop)):
                stream.restate()
                stream.run_timer_batch()
                while not stop.is_set():
                    pace.begin()
                    took = stream.step()
                    if took:
                        pace.end()
                    else:
                        state.settle()
                    waiting.tell(reader.waits_for for reader in stream.readers.values())
                    sink.publish_progress(PROGRESS_SECONDS)
                    if not took and (until_caught_up or stop.wait(look)):
                        break
                    if took and not until_caught_up:
                        stop.wait(pace.left)
                sink.publish_progress(0)
                state.settle()
        except (PySparkException, DeltaError, OSError) as error:
            raise explained(operator, error, _again(operator)) from error
        sink.followed()
    stream.warn()
    return waiting.noted(stream.result(time.monotonic() - began))


@dataclass(slots=True)
class _Stream:
    """One stream, micro-batch by micro-batch."""

    operator: Operator
    compute: Chain
    sink: Sink
    checkpointer: Checkpointer
    readers: Mapping[str, Reader]
    tell: Callable[[BatchInfo], None]
    clock: Clock | None
    within: Within
    done: Tally = field(default_factory=Tally)
    unwritten: list[str] = field(default_factory=list)
    """Failures of Delta's checkpoints of outputs, for people."""
    positions: dict[str, Position] = field(init=False)

    def __post_init__(self) -> None:
        last = self.compute.state.batch
        positions = last.positions if last is not None else [_NOWHERE] * len(self.readers)
        self.positions = dict(zip(self.readers, positions, strict=True))
        for name, sequence in (last.behind if last is not None else {}).items():
            self.readers[name].behind = sequence

    def restate(self) -> None:
        """Restate the outputs that an upgrade has marked."""
        state, sink = self.compute.state, self.sink

        def stores() -> dict[int, Store]:
            keys = state.keys()
            return {group: GroupStore(state, group) for group, number in keys if number == INDEX and group >= 0}

        Restating(
            operator=self.operator,
            timeline=sink.timeline,
            stores=stores,
            behind=self.compute.behind,
            run=sink.run,
            engine=NAME,
            merge=sink.merge,
        ).restate()

    def run_timer_batch(self) -> None:
        """Compute a micro-batch without rows if another engine has read rows whose timers it has not fired."""
        last = self.compute.state.batch
        if last is not None and last.progress < min(last.reached.values()):
            with self.within():
                rows = {name: self._rows(name, None) for name in self.readers}
                self._batch(rows, {}, time.monotonic(), Stopwatch())

    def step(self) -> bool:
        """Compute one micro-batch; returns whether there were files to read."""
        takes = {
            name: take
            for name, reader in self.readers.items()
            if (take := reader.next(self.positions[name])) is not None
        }
        woken = self.clock is not None and self.clock.waits_no_longer()
        settles = self._settles()
        if not takes and not woken and not settles:
            return False
        watch, began = Stopwatch(), time.monotonic()
        self.positions |= {name: take.position for name, take in takes.items()}
        with self.within():
            rows = {name: self._rows(name, takes.get(name)) for name in self.readers}
            watch.lap("read")
            if woken or settles or any(table.num_rows for table in rows.values()):
                self._batch(rows, takes, began, watch)
        return bool(takes)

    def _settles(self) -> bool:
        """Whether an input that is held has settled more than the last micro-batch knew."""
        last = self.compute.state.batch
        known = last.reached if last is not None else {}
        return any(reader.settled > known.get(name, NEVER) for name, reader in self.readers.items())

    def _rows(self, name: str, take: Take | None, *, whole: bool = False) -> pa.Table:
        reader = self.readers[name]
        return reader.rows(Take((), _NOWHERE) if take is None else take, whole=whole)

    def _evaluated(
        self,
        rows: Mapping[str, pa.Table],
        takes: Mapping[str, Take],
        compute: Callable[[Mapping[str, pa.Table]], Evaluated],
    ) -> Evaluated:
        """Compute a micro-batch. One that fails is computed once more over all columns, as the error shows the row that fails."""
        try:
            return compute(rows)
        except BaseException as error:
            self.compute.discard()
            shows_row = isinstance(error, ExecutionError) and error.code == "EXECUTION-050"
            if not shows_row or not any(reader.left_out for reader in self.readers.values()):
                raise
        whole = {name: self._rows(name, takes.get(name), whole=True) for name in self.readers}
        try:
            return compute(whole)
        except BaseException:
            self.compute.discard()
            raise

    def _batch(self, rows: Mapping[str, pa.Table], takes: Mapping[str, Take], began: float, watch: Stopwatch) -> None:
        last = self.compute.state.batch
        number, reached = (0 if last is None else last.number + 1), dict(last.reached if last is not None else {})
        for name, table in rows.items():
            most = pc.max(table["_progress"]).as_py()
            read = NEVER if most is None else most
            reached[name] = max(reached.get(name, NEVER), read, self.readers[name].settled)
        before, progress = progress_of(last), min(reached.values())
        now = time.time_ns() // 1_000_000
        at = now if self.clock is None else self.clock.at(last)
        evaluated = self._evaluated(rows, takes, lambda read: self.compute.batch(number, read, before, progress, at))
        batch = Batch(
            number=number,
            progress=progress,
            reached=reached,
            clock=at,
            positions=tuple(self.positions[name] for name in self.readers),
            owed=(),
            segments=(),
            tick=None if self.clock is None else self.clock.recorded(at, before, evaluated),
            behind={} if last is None else last.behind,
        )
        watch.lap("compute")
        written = self.sink.write(batch, evaluated, now, watch)
        size, held = self.compute.state.sizes
        info = BatchInfo(
            batch_id=number,
            rows_in=evaluated.rows_in,
            rows=written,
            late=evaluated.late,
            dropped=evaluated.dropped,
            retractions=evaluated.retractions,
            progress=progress,
            seconds=time.monotonic() - began,
            unmet=evaluated.unmet,
            warnings=self.warn(),
            timeline=self.sink.timeline.number,
            newest=max(map(_newest, rows.values()), default=NEVER),
            read=dict(self.positions),
            phases=watch.phases,
            metrics=evaluated.metrics,
            checkpoint=CheckpointInfo(batch=number, seconds=watch.phases["checkpoint"], written=size, held=held),
        )
        self.done.add(info)
        self.tell(info)
        self.checkpointer.check()

    def warn(self) -> tuple[str, ...]:
        """New failures of Delta's checkpoints, for people; ``result`` has all of them."""
        failures = self.checkpointer.failures()
        self.unwritten += failures
        return failures

    def result(self, seconds: float) -> RunResult:
        """The result of the run."""
        watermark = progress_of(self.compute.state.batch)
        return self.done.result(self.operator, watermark=watermark, seconds=seconds, warnings=self.unwritten)


def _newest(rows: pa.Table) -> int:
    """The greatest event time of some rows, ms; NEVER without rows."""
    newest = pc.max(rows["_event_time"].filter(pc.not_equal(rows["_kind"], MARKER)))
    return NEVER if newest.as_py() is None else int(newest.cast(pa.int64()).as_py()) // 1000


@dataclass(slots=True)
class Clock:
    """The processing time of a stream that waits for it.

    Args:
        reached: the last sequence of all rows before the current micro-batch.
        fixed: time to run at, ms; None for the clock of the machine.
        due: time for which state waits. Unknown at a start, so a stream with state begins with a micro-batch.
    """

    reached: int
    fixed: int | None = None
    due: int | None = None

    @staticmethod
    def of(operator: Operator, timeline: Timeline, fixed: int | None, last: Batch | None) -> Clock | None:
        """The clock of an operator; None if the operator does not wait for processing time."""
        if operator.stateful is None or not operator.stateful.clocked:
            return None
        return Clock(ticks.reached(timeline.folder(TICKS)), fixed, None if last is None else NEVER)

    def at(self, last: Batch | None) -> int:
        """The time of the next micro-batch, which is never before that of the last."""
        now = time.time_ns() // 1_000_000 if self.fixed is None else self.fixed
        return now if last is None else max(now, last.clock)

    def waits_no_longer(self) -> bool:
        """Whether ``due`` has passed; True once per ``due``."""
        if self.due is None or self.due > (time.time_ns() // 1_000_000 if self.fixed is None else self.fixed):
            return False
        self.due = None
        return True

    def recorded(self, at: int, before: int, evaluated: Evaluated) -> ticks.Recorded:
        """The recorded clock of a micro-batch; sets ``reached`` and ``due`` for the next micro-batch."""
        tick = ticks.Recorded(at, before, self.reached, max(self.reached, evaluated.position))
        self.reached, self.due = tick.reached, evaluated.due
        return tick


def _wait(operator: Operator, stop: threading.Event, refusal: str, seconds: float) -> bool:
    """Wait while a store refuses the credentials of a stream, and say so; False once the stream is to stop."""
    sys.stderr.write(
        f"{operator.name}: the store refuses the credentials ({refusal}). The stream waits, and goes on once they are renewed.\n"
    )
    return not stop.wait(seconds)


def _again(operator: Operator) -> str:
    """The command that resumes a stream."""
    return f"floodmark run {operator.name} --unbounded --engine embedded"
