"""What a stream's run comes to, on either engine: its result, or an error for people. No session is needed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from floodmark.core import machine
from floodmark.core.errors import ExecutionError, FloodmarkError
from floodmark.core.time import Interval
from floodmark.engines.frames.messages import text_of
from floodmark.lake.table.outputs import never_fires, set_aside
from floodmark.spec.graph.operator import Operator
from floodmark.spec.values.run import BatchInfo, RunResult


@dataclass(slots=True)
class Tally:
    """Sums over the micro-batches of a run; nothing in it grows with their number."""

    rows: Counter[str] = field(default_factory=Counter)
    """Output table -> rows."""
    micro_batches: int = 0
    retractions: int = 0
    late: int = 0
    dropped: int = 0

    def add(self, info: BatchInfo) -> None:
        """Count a committed micro-batch."""
        self.rows.update(info.rows)
        self.micro_batches += 1
        self.retractions += info.retractions
        self.late += info.late
        self.dropped += info.dropped

    def result(self, operator: Operator, *, watermark: int, seconds: float, warnings: Sequence[str] = ()) -> RunResult:
        """The result of an unbounded run.

        Args:
            operator: that ran.
            watermark: progress the outputs reached, ms.
            seconds: wall clock.
            warnings: of the engine, beside those about outputs without rows and about rows that were set aside.
        """
        rows = {output.table: self.rows[output.table] for output in operator.outputs}
        return RunResult(
            operator=operator.name,
            version=operator.version,
            mode="unbounded",
            interval=Interval(),
            rows=rows,
            retractions=self.retractions,
            late=self.late,
            dropped=self.dropped,
            seconds=seconds,
            micro_batches=self.micro_batches,
            watermark=watermark,
            warnings=(*never_fires(operator, watermark), *set_aside(operator, rows), *warnings),
        )


def explained(operator: Operator, error: BaseException, again: str) -> FloodmarkError:
    """The failure of a micro-batch as an error for people.

    Args:
        operator: of the stream.
        error: what the engine raised.
        again: the command that resumes the stream.
    """
    where = f"unbounded run of {operator.version}"
    refusal = machine.refused(error, where, f"Nothing is lost or there twice; run it again: {again}")
    if refusal is not None:
        return refusal
    fix = f"Nothing is lost or double. Mend the cause, then run it again: {again}"
    return ExecutionError(where, "a stream that keeps running", text_of(error), fix, code="EXECUTION-004")
