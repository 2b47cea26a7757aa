"""The row for which an expression has stopped a micro-batch: found by computing halves of the rows, then its steps one by one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.errors import PySparkException

from floodmark.core.errors import ExecutionError
from floodmark.core.time import to_ms
from floodmark.engines.embedded.session import Connection
from floodmark.engines.frames.compile import compiled, without_failures
from floodmark.engines.frames.expressions import Rendering, value
from floodmark.engines.frames.messages import text_of
from floodmark.semantics.attempts import Attempt, attempts, stage_attempts, stopped
from floodmark.semantics.failures import Failure, expression_failure
from floodmark.semantics.stage import AnyStage
from floodmark.spec import steps
from floodmark.spec.operator import Operator
from floodmark.spec.schema import ROW


@dataclass(frozen=True, slots=True)
class Blame:
    """Looks for the row.

    Args:
        operator: that runs.
        stage: of its stateful step; None without one.
        rendering: of expressions.
        connection: to the server.
    """

    operator: Operator
    stage: AnyStage | None
    rendering: Rendering
    connection: Connection

    def error(
        self, tables: Mapping[str, pa.Table], compute: Callable[[Mapping[str, pa.Table]], object], last: steps.Step
    ) -> ExecutionError | None:
        """EXECUTION-050 with the first row of an input that fails; None where no row fails by itself.

        Args:
            tables: of the micro-batch; one named ``""`` has the rows of the stateful step.
            compute: computes them, or raises what Spark Connect raises.
            last: the step up to which it computes; the stateful step for its values.
        """
        for name, table in tables.items():
            others = {other: one.slice(0, 0) for other, one in tables.items()}

            def fails(rows: pa.Table, name: str = name, others: Mapping[str, pa.Table] = others) -> bool:
                try:
                    compute({**others, name: rows})
                except PySparkException:
                    return True
                return False

            row = _first(table, fails)
            failure = None if row is None else self._failure({**others, name: row}, last)
            if row is not None and failure is not None:
                (stamps,) = row.select(["_event_time", "_sequence"]).to_pylist()
                moment = stamps["_event_time"]
                at = None if moment is None else to_ms(moment)
                return stopped(self.operator, "unbounded", failure, at, stamps["_sequence"])
        return None

    def _failure(self, tables: Mapping[str, pa.Table], last: steps.Step) -> Failure | None:
        """What the quarantine would say of the one row there is."""
        frames = {name: self.connection.spark.createDataFrame(table) for name, table in tables.items()}
        known: dict[steps.Step, Any] = {}
        if self.stage is not None and "" in frames:
            known[self.stage.step] = frames[""]
        for parent, attempt in self._attempts(last, set(known)):
            rows: Any = without_failures(compiled(parent, frames, known, self.rendering)).filter(f"`_kind` <= {ROW}")
            try:
                given = rows.toArrow().select(attempt.schema.names).to_pylist()
            except PySparkException:  # a function of the user's has failed, which says so itself
                return None
            text = value(attempt.text, attempt.type, attempt.schema, self.rendering)
            try:
                rows.selectExpr(f"{text} AS v").toArrow()
            except PySparkException as error:
                return expression_failure(attempt.step, attempt.explained(text_of(error)), given[0] if given else {})
        return None

    def _attempts(self, last: steps.Step, known: set[steps.Step]) -> Iterator[tuple[steps.Step, Attempt]]:
        """Each expression with the step whose rows it is computed over, in the order of the steps."""
        stateful = self.stage is not None and last is self.stage.step
        for step in dict.fromkeys(_behind(last.parents[0] if stateful else last, known)):
            for attempt in attempts(step):
                yield step.parents[0], attempt
        for _, attempt in stage_attempts(self.stage) if stateful and self.stage is not None else ():
            yield last.parents[0], attempt


def _behind(step: steps.Step, known: set[steps.Step]) -> Iterator[steps.Step]:
    """A step and those before it, up to the known ones, parents first."""
    if step in known:
        return
    for parent in step.parents:
        yield from _behind(parent, known)
    yield step


def _first(table: pa.Table, fails: Callable[[pa.Table], bool]) -> pa.Table | None:
    """The first row that fails; None where none does."""
    if not table.num_rows or not fails(table):
        return None
    while table.num_rows > 1:
        half = table.slice(0, table.num_rows // 2)
        table = half if fails(half) else table.slice(half.num_rows)
    return table
