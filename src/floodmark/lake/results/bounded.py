"""A bounded run, independent of the engine: which intervals are missing, computing each of them, and the run's result."""

from __future__ import annotations

import dataclasses
import threading
import time
import uuid
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass

from floodmark.core.time import END, Interval
from floodmark.lake.folder.paths import Lake
from floodmark.lake.results import beside, costs, coverage, horizon
from floodmark.lake.results.readiness import covered, readiness, replaced, shortfalls
from floodmark.lake.results.throttle import Throttle
from floodmark.lake.table import origin
from floodmark.lake.table.commits import BoundedRun
from floodmark.lake.table.lost import found_lost
from floodmark.lake.table.outputs import set_aside
from floodmark.spec.graph.operator import Operator
from floodmark.spec.values.budget import Budget
from floodmark.spec.values.run import LateRows, RunResult
from floodmark.spec.workspace import Engine

Step = Callable[[str], None]
_AGAIN = 5
"""Most times that an interval is computed again because late rows of it have come meanwhile. Its coverage then says that an input has changed since."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """Row counts of one computed and written interval.

    Args:
        counts: output table -> rows and retractions written.
        late: late rows that were included in results.
        dropped: (row, window) pairs dropped.
    """

    counts: dict[str, tuple[int, int]]
    late: int
    dropped: int

    def __add__(self, other: Done) -> Done:
        """The counts of both."""
        counts = dict(self.counts)
        for table, (rows, retractions) in other.counts.items():
            before = counts.get(table, (0, 0))
            counts[table] = before[0] + rows, before[1] + retractions
        return Done(counts=counts, late=self.late + other.late, dropped=self.dropped + other.dropped)


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """The settings of one bounded run.

    Args:
        operator: the operator to compute.
        lake: the lake with its inputs and outputs.
        engine: name of the engine that computes the run.
        interval: event time to compute; all event time by default.
        late_rows: ``"as_landed"``: late rows are treated as the stream treated them; ``"all"``: every row counts as on time.
        force: recompute intervals that earlier runs cover.
        on_step: called with a line of progress before each interval, and before a wait.
        wait_seconds: how long to wait for another run of this operator to end; 0 by default.
        budget: limits; with a lag, asset partitions are computed one by one, and the run waits for streams between them.
        stop: when set, a wait for streams ends with an error.
        run: id of the run, in the records of its commits.
    """

    operator: Operator
    lake: Lake
    engine: Engine
    interval: Interval = dataclasses.field(default_factory=Interval)
    late_rows: LateRows = "as_landed"
    force: bool = False
    on_step: Step | None = None
    wait_seconds: float = 0
    budget: Budget | None = None
    stop: threading.Event = dataclasses.field(default_factory=threading.Event)
    run: str = dataclasses.field(default_factory=lambda: uuid.uuid4().hex)

    @property
    def again(self) -> str:
        """The command that repeats the run."""
        return f"floodmark run {self.operator.name}"

    def record(self, interval: Interval, versions: dict[str, int]) -> BoundedRun:
        """The commit record of one interval; each output's commit fills in ``table``.

        If the results depend on history, the record has their horizon: up to there, rows that land later leave the results unchanged.

        Args:
            interval: the computed interval.
            versions: input table -> version that was read.
        """
        about = dict[str, int]()
        if self.operator.reads_history:
            about["horizon"] = horizon.horizon(self.operator, self.lake, versions, interval, self.late_rows)
        return BoundedRun(
            operator=self.operator.name,
            version=self.operator.version,
            fingerprint=self.operator.fingerprint,
            table="",
            interval=interval,
            late_rows=self.late_rows,
            inputs={table: {"version": version, **about} for table, version in versions.items()},
            run=self.run,
            engine=self.engine,
        )

    def replaced(self, interval: Interval) -> Interval:
        """(interval to compute) -> the event time whose rows its results replace."""
        return replaced(self.operator, self.lake, interval)

    def reached(self, versions: dict[str, int]) -> int:
        """The least progress of the inputs before their end of input, ms; NEVER if an input has no known progress."""
        return horizon.reached(self.operator, self.lake, versions)


def run(
    asked: Asked,
    prepared: Callable[[dict[str, int]], Callable[[Interval], Done]],
    boundary: Callable[[], AbstractContextManager[None]],
) -> RunResult:
    """Compute the intervals that are not covered yet.

    Args:
        asked: the settings of the run.
        prepared: (input table -> version) -> function that computes and writes one interval. Not called if all is covered.
        boundary: () -> context manager that turns the engine's exceptions into floodmark's.

    Returns:
        Rows written per output table, counts of late and dropped rows, and warnings.

    Raises:
        CapabilityError: CAPABILITY-002 an interval whose results cannot be told from others, CAPABILITY-004 no processing time is recorded.
        ExecutionError: EXECUTION-002 an input has no table, EXECUTION-060 a file of an input is gone.
        LifecycleError: LIFECYCLE-003 another run of this operator holds its lock, LIFECYCLE-034 a rollback or rebuild of it is not finished, LIFECYCLE-200
            the last values of its stream are behind, LIFECYCLE-206 it was stopped while it waited for a stream, LIFECYCLE-270 the outputs are replicas.
    """
    operator, lake, interval, began = asked.operator, asked.lake, asked.interval, time.monotonic()
    say = asked.on_step or (lambda _: None)
    for output in operator.outputs:
        origin.check_home(lake.output(output.table), f"operator '{operator.name}'", f"{operator.name} --from SAVEPOINT")
    with beside.locked(operator, lake, interval, asked.wait_seconds, say) as with_stream:
        if with_stream:
            beside.await_stream(operator, lake, interval, say)
        before = beside.versions(operator, lake)
        ready = readiness(operator, lake, interval, late_rows=asked.late_rows, force=asked.force)
        plan = ready.todo
        if not plan.missing:
            return covered(operator, interval, plan)
        work = prepared(ready.versions)
        total = Done(counts={}, late=0, dropped=0)
        throttle = Throttle(operator=operator, lake=lake, budget=asked.budget or Budget(), say=say, stop=asked.stop)
        waits = asked.budget is not None and asked.budget.lag is not None
        for piece in throttle.pieces(plan.missing) if waits else plan.missing:
            throttle.wait()
            say(f"computing {operator.version} over {piece}{_read(operator, piece)}")
            done = _computed(asked, work, piece, ready.versions, boundary)
            for _ in range(_AGAIN):
                if not with_stream or not beside.disturbed(operator, lake, piece, before, asked.run):
                    break
                say(f"{piece} is computed again: its stream has written late rows of it meanwhile")
                beside.await_stream(operator, lake, piece, say)
                before = beside.versions(operator, lake)
                ready = readiness(operator, lake, piece, late_rows=asked.late_rows, force=True)
                work = prepared(ready.versions)
                done = _computed(asked, work, piece, ready.versions, boundary)
            total = total + done
        with boundary():
            coverage.keep(lake, operator.outputs[0].table)
    rows = {table: written for table, (written, _) in total.counts.items()}
    return RunResult(
        operator=operator.name,
        version=operator.version,
        mode="bounded",
        interval=interval,
        rows=rows,
        retractions=sum(taken for _, taken in total.counts.values()),
        late=total.late,
        dropped=total.dropped,
        seconds=time.monotonic() - began,
        watermark=min(interval.end - 1, END),
        skipped=plan.covered,
        reasons=plan.reasons,
        warnings=(*(one.text for one in shortfalls(operator, lake, interval)), *set_aside(operator, rows)),
    )


def _computed(
    asked: Asked,
    work: Callable[[Interval], Done],
    piece: Interval,
    versions: dict[str, int],
    boundary: Callable[[], AbstractContextManager[None]],
) -> Done:
    """Compute and write one interval, and note what that has cost."""
    operator, lake = asked.operator, asked.lake
    with (
        found_lost(operator, lake, asked.again),
        costs.measured(operator, lake, asked.engine, piece, versions),
        boundary(),
    ):
        return work(piece)


def _read(operator: Operator, interval: Interval) -> str:
    """For people: that an interval takes as long as all of time where its results depend on history."""
    whole = interval.everything or not operator.reads_history
    return "" if whole else ", from all rows that have landed, as its state depends on them"
