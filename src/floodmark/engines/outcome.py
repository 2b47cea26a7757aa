"""What a stream's run comes to, on either engine: its result, or an error for people. No session is needed."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from floodmark.core import machine
from floodmark.core.errors import ExecutionError, FloodmarkError
from floodmark.core.time import Interval
from floodmark.engines.frames.messages import text_of
from floodmark.lake.table.outputs import never_fires, set_aside
from floodmark.spec.graph.operator import Operator, Output
from floodmark.spec.rows.criterion import EXAMPLES, Judged
from floodmark.spec.values.run import BatchInfo, Mode, RunResult


@dataclass(slots=True)
class Tally:
    """Sums over the micro-batches of a run; nothing in it grows with their number."""

    rows: Counter[str] = field(default_factory=Counter)
    """Output table -> rows."""
    micro_batches: int = 0
    retractions: int = 0
    late: int = 0
    dropped: int = 0
    unmet: Counter[tuple[str, str]] = field(default_factory=Counter)
    """(output table, expectation) -> rows that do not meet it."""

    def add(self, info: BatchInfo) -> None:
        """Count a committed micro-batch."""
        self.rows.update(info.rows)
        self.micro_batches += 1
        self.retractions += info.retractions
        self.late += info.late
        self.dropped += info.dropped
        self.unmet.update({(table, name): rows for table, names in info.unmet.items() for name, rows in names.items()})

    def _unmet(self) -> list[str]:
        """Warnings about expectations that rows do not meet."""
        return [
            f"{rows:,} rows of '{table}' do not meet expectation '{name}'" for (table, name), rows in self.unmet.items()
        ]

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
            warnings=(*never_fires(operator, watermark), *set_aside(operator, rows), *self._unmet(), *warnings),
        )


def unmet(operator: Operator, output: Output, mode: Mode, results: Sequence[Judged]) -> dict[str, int]:
    """The expectations that rows do not meet, before they are committed: name -> unexpected rows, 1 for an expectation of one number.

    Args:
        operator: that runs.
        output: of the rows.
        mode: of the run.
        results: of the expectations ``operator.watched`` has for the output.

    Raises:
        ExecutionError: EXECUTION-090, one with ``on_fail="stop"`` is not met.
    """
    failed = [(expectation, numbers) for expectation, met, numbers in results if not met]
    stopping = [(expectation, numbers) for expectation, numbers in failed if expectation.on_fail == "stop"]
    if stopping:
        where = f"{mode} run of {operator.version}, rows for '{output.table}'"
        got = "; ".join(f"{one.name}, {one.describe()}: {described(numbers)}" for one, numbers in stopping)
        again = f"floodmark run {operator.name}" + (" --unbounded" if mode == "unbounded" else "")
        fix = (
            'Nothing of them is committed. Mend the operator or its input; or write on_fail="quarantine" to set such rows aside, '
            f'"warn" to count them; then: floodmark apply, {again}'
        )
        raise ExecutionError(where, "rows that meet its expectations", got, fix, code="EXECUTION-090")
    return {expectation.name: int(numbers.get("unexpected_count", 1)) for expectation, numbers in failed}


def described(numbers: Mapping[str, Any]) -> str:
    """The numbers of a result in words."""
    if "unexpected_count" not in numbers:
        return json.dumps(dict(numbers), default=str)
    example = numbers.get(EXAMPLES)
    share = f"{numbers['unexpected_count']:,} of {numbers['element_count']:,} rows"
    return f"{share}, for example {example}" if example else share


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
