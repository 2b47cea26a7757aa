"""A bounded run, whatever computes it: what is left to do, one stretch after the other, and what the run has come to."""

from __future__ import annotations

import dataclasses
import time
import uuid
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass

from floodmark.core.time import END, NEVER, Interval
from floodmark.lake import coverage, history
from floodmark.lake.commits import BoundedRun, progress_of
from floodmark.lake.locks import exclusive
from floodmark.lake.lost import found_lost
from floodmark.lake.outputs import set_aside
from floodmark.lake.paths import Lake
from floodmark.lake.readiness import covered, readiness, shortfalls
from floodmark.spec.operator import Operator
from floodmark.spec.run import LateRows, RunResult
from floodmark.spec.workspace import Engine

Step = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """What computing and writing one stretch has come to.

    Args:
        counts: output table -> rows and retractions written.
        late: rows taken in although they were late.
        dropped: (row, window) pairs dropped.
    """

    counts: dict[str, tuple[int, int]]
    late: int
    dropped: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A bounded run as it was asked for.

    Args:
        operator: any.
        lake: read and written.
        engine: that computes it.
        interval: of event time; all of it by default.
        late_rows: ``"as_landed"``: late rows are treated as the stream treated them; ``"all"``: every row counts as on time.
        force: compute again what is covered.
        on_step: told what is going on.
        wait_seconds: for another run of this operator to end.
    """

    operator: Operator
    lake: Lake
    engine: Engine
    interval: Interval = dataclasses.field(default_factory=Interval)
    late_rows: LateRows = "as_landed"
    force: bool = False
    on_step: Step | None = None
    wait_seconds: float = 0

    @property
    def again(self) -> str:
        """The command that does it once more."""
        return f"floodmark run {self.operator.name}"

    def record(self, interval: Interval, versions: dict[str, int]) -> BoundedRun:
        """The record of the commits of one stretch; the table of each is added."""
        return BoundedRun(
            operator=self.operator.name,
            version=self.operator.version,
            fingerprint=self.operator.fingerprint,
            table="",
            interval=interval,
            late_rows=self.late_rows,
            inputs={table: {"version": version} for table, version in versions.items()},
            run=uuid.uuid4().hex,
            engine=self.engine,
        )

    def reached(self, versions: dict[str, int]) -> int:
        """How far the inputs had come before they ended; NEVER where that is not known."""
        lake, inputs = self.lake, self.operator.inputs
        return min((_reached(lake.input(given), versions[given.table]) for given in inputs), default=NEVER)


def run(
    asked: Asked,
    prepared: Callable[[dict[str, int]], Callable[[Interval], Done]],
    boundary: Callable[[], AbstractContextManager[None]],
) -> RunResult:
    """Compute what is not covered yet.

    Args:
        asked: what.
        prepared: input table -> version, and gives what computes and writes one stretch.
        boundary: makes errors of the engine such for people.

    Raises:
        CapabilityError: CAPABILITY-002 part of a ``Global`` or ``Count`` window, CAPABILITY-004 no processing time is recorded.
        ExecutionError: EXECUTION-002 an input has no table, EXECUTION-060 a file of an input is gone.
        LifecycleError: LIFECYCLE-003, another run of this operator is at work.
    """
    operator, lake, interval, began = asked.operator, asked.lake, asked.interval, time.monotonic()
    say = asked.on_step or (lambda _: None)
    with exclusive(lake, "operators", operator.name, "run", asked.wait_seconds, role="bounded run", on_wait=say):
        ready = readiness(operator, lake, interval, late_rows=asked.late_rows, force=asked.force)
        plan = ready.todo
        if not plan.missing:
            return covered(operator, interval, plan)
        work = prepared(ready.versions)
        rows: dict[str, int] = {}
        late = dropped = retractions = 0
        for piece in plan.missing:
            say(f"computing {operator.version} over {piece}")
            with found_lost(operator, lake, asked.again), boundary():
                done = work(piece)
            for table, (written, taken) in done.counts.items():
                rows[table] = rows.get(table, 0) + written
                retractions += taken
            late, dropped = late + done.late, dropped + done.dropped
        with boundary():
            coverage.keep(lake, operator.outputs[0].table)
    return RunResult(
        operator=operator.name,
        version=operator.version,
        mode="bounded",
        interval=interval,
        rows=rows,
        retractions=retractions,
        late=late,
        dropped=dropped,
        seconds=time.monotonic() - began,
        watermark=min(interval.end - 1, END),
        skipped=plan.covered,
        reasons=plan.reasons,
        warnings=(*(one.text for one in shortfalls(operator, lake, interval)), *set_aside(operator, rows)),
    )


def _reached(path: str, version: int) -> int:
    """How far an input had come before it ended; NEVER where that is not known."""
    for commit in history.standing(path, limit=None):
        progress = progress_of(commit.record)
        if commit.version <= version and progress is not None and NEVER < progress < END:
            return progress
    return NEVER
