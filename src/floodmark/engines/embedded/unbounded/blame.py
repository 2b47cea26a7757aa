"""Search for the row whose failing expression has stopped a micro-batch: by computing halves of the rows, then the steps one by one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

from floodmark.core.errors import ExecutionError
from floodmark.core.time import to_ms
from floodmark.engines.embedded.retries.attempts import Marking, behind
from floodmark.engines.embedded.retries.reasons import reason
from floodmark.engines.embedded.sail.prepared import frame_of
from floodmark.engines.embedded.sail.session import Connection, Sail
from floodmark.engines.frames.compile import compiled, without_failures
from floodmark.engines.frames.expressions import Rendering, value
from floodmark.semantics.kernels.attempts import Attempt, attempts, stage_attempts, stopped
from floodmark.semantics.kernels.failures import Failure, expression_failure
from floodmark.semantics.kernels.stage import AnyStage
from floodmark.spec.graph import steps
from floodmark.spec.graph.operator import Operator
from floodmark.spec.values.schema import ROW


@dataclass(frozen=True, slots=True)
class Blame:
    """Searches for the first row for which an expression fails.

    Args:
        operator: that runs.
        stage: of its stateful step; None without one.
        rendering: of expressions.
        connection: to the server.
        sail: that computes pieces of rows.
    """

    operator: Operator
    stage: AnyStage | None
    rendering: Rendering
    connection: Connection
    sail: Sail

    def error(
        self,
        tables: Mapping[str, pa.Table],
        compute: Callable[[Mapping[str, DataFrame], dict[steps.Step, DataFrame]], object],
        last: Sequence[steps.Step],
    ) -> ExecutionError | None:
        """The error EXECUTION-050 with the first row of an input that fails; None if no row fails by itself.

        Args:
            tables: input name -> rows of the micro-batch; ``""`` -> rows of the stateful step.
            compute: (frames, known steps) -> computes them; raises PySparkException if an expression fails.
            last: the steps up to which ``compute`` computes; the stateful step for its values.
        """
        for name, table in tables.items():
            others = {other: rows_of_input.slice(0, 0) for other, rows_of_input in tables.items()}

            def fails(rows: pa.Table, name: str = name, others: Mapping[str, pa.Table] = others) -> bool:
                try:
                    with self._known({**others, name: rows}, last) as (frames, known):
                        compute(frames, known)
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

    @contextmanager
    def _known(
        self, tables: Mapping[str, pa.Table], last: Sequence[steps.Step]
    ) -> Iterator[tuple[dict[str, DataFrame], dict[steps.Step, DataFrame]]]:
        """Tables as frames, and the known steps: the stateful step if its rows are given, and quarantining steps."""
        marking = Marking(self.operator, self.stage, self.rendering, self.sail)
        try:
            frames = {name: frame_of(self.connection, table) for name, table in tables.items()}
            known: dict[steps.Step, DataFrame] = {}
            known |= {self.stage.step: frames[""]} if self.stage is not None and "" in frames else {}
            yield frames, marking.known(self.connection, last, frames, known)
        finally:
            marking.remove()

    def _failure(self, tables: Mapping[str, pa.Table], last: Sequence[steps.Step]) -> Failure | None:
        """The failure of the only row in the tables, as the quarantine would have it; None if no expression fails for the row."""
        stateful = (self.stage.step,) if self.stage is not None and "" in tables else ()
        for step in dict.fromkeys(step for one in last for step in behind(one, stateful)):
            for attempt in self._attempts(step):
                failure = self._of_attempt(tables, step.parents[0], attempt)
                if failure is not None:
                    return failure
        return None

    def _of_attempt(self, tables: Mapping[str, pa.Table], parent: steps.Step, attempt: Attempt) -> Failure | None:
        """The failure of one expression for the only row; None if the expression has a value."""
        with self._known(tables, [parent]) as (frames, known):
            rows: Any = without_failures(compiled(parent, frames, known, self.rendering)).filter(f"`_kind` <= {ROW}")
            try:
                values = rows.toArrow().select(attempt.schema.names).to_pylist()
            except PySparkException:  # a function of the user has failed, whose error names the row
                return None
            text = value(attempt.text, attempt.type, attempt.schema, self.rendering)
            try:
                rows.selectExpr(f"{text} AS v").toArrow()
            except PySparkException as error:
                return expression_failure(
                    attempt.step, attempt.explained(reason(attempt, str(error))), values[0] if values else {}
                )
        return None

    def _attempts(self, step: steps.Step) -> tuple[Attempt, ...]:
        """The expressions of a step that stop a run if they fail."""
        if steps.quarantines(step):
            return ()
        if self.stage is not None and step is self.stage.step:
            return tuple(attempt for _, attempt in stage_attempts(self.stage))
        return attempts(step)


def _first(table: pa.Table, fails: Callable[[pa.Table], bool]) -> pa.Table | None:
    """The first row that fails; None if no row fails."""
    if not table.num_rows or not fails(table):
        return None
    while table.num_rows > 1:
        half = table.slice(0, table.num_rows // 2)
        table = half if fails(half) else table.slice(half.num_rows)
    return table
