"""Jobs: what a driver runs until it is stopped. The stream of an operator is a job."""

# ruff: noqa: PLC0415 - engines are slow to import

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from floodmark.core.errors import ExecutionError
from floodmark.lifecycle.usage import Usage
from floodmark.spec.graph.operator import Operator
from floodmark.spec.values.run import BatchInfo
from floodmark.spec.workspace import Settings

if TYPE_CHECKING:
    from floodmark.control.processes.engine import Computing
    from floodmark.lake.folder.paths import Lake


@dataclass(frozen=True, slots=True, kw_only=True)
class Committed:
    """One commit of a job.

    Args:
        number: of the micro-batch.
        progress: of the outputs after the commit, ms UTC.
        usage: what the commit adds to the usage of the driver.
        text: the line of the driver's log.
    """

    number: int
    progress: int
    usage: Usage
    text: str


class Job(Protocol):
    """What a driver runs. A driver calls ``awaits`` until nothing is missing, then ``start``, then ``run``."""

    @property
    def version(self) -> str:
        """Version of the code, as in the deployment."""
        ...

    def awaits(self) -> str:
        """What the job needs and is not there yet, for people; empty if it can start."""
        ...

    def start(self) -> None:
        """Check what the start requires, and start the engine."""
        ...

    def run(self, stop: threading.Event, on_commit: Callable[[Committed], None]) -> None:
        """Run until ``stop`` is set. Ends after the commit that is being written then.

        Args:
            stop: set to stop the job.
            on_commit: called after each commit.
        """
        ...


@dataclass(slots=True)
class OperatorStream:
    """The stream of an operator, as a job.

    Args:
        operator: the operator.
        settings: settings of the workspace, with absolute paths.
    """

    operator: Operator
    settings: Settings
    _engine: Computing | None = None

    @property
    def version(self) -> str:
        """As ``Job``."""
        return self.operator.version

    @property
    def _lake(self) -> Lake:
        from floodmark.lake.folder.paths import Lake

        return Lake.of(self.settings)

    def awaits(self) -> str:
        """As ``Job``: input tables, as a source may not have landed yet, or an upstream stream not have started."""
        from deltalake import DeltaTable

        tables = {operator_input.table: self._lake.input(operator_input) for operator_input in self.operator.inputs}
        missing = [name for name, path in tables.items() if not DeltaTable.is_deltatable(path)]
        return f"waiting for {', '.join(missing)}: nothing is there yet" if missing else ""

    def start(self) -> None:
        """As ``Job``. Converts the checkpoint of another engine first."""
        from floodmark.control.processes.engine import computing

        self._engine = computing(self.settings, app=f"floodmark {self.operator.version}")
        self._engine.check_deployed(self.operator, self._lake)  # before a checkpoint of the other engine is replaced
        self._engine.take_over(self.operator, self._lake)
        self._engine.start(self.operator)

    def run(self, stop: threading.Event, on_commit: Callable[[Committed], None]) -> None:
        """As ``Job``."""
        assert self._engine is not None
        quarantines = {output.table for output in self.operator.outputs if output.side == "quarantine"}

        def record_batch(batch: BatchInfo) -> None:
            aside = sum(rows for table, rows in batch.rows.items() if table in quarantines)
            usage = Usage(
                rows=batch.rows_in, late=batch.late, dropped=batch.dropped, set_aside=aside, busy=batch.seconds
            )
            on_commit(Committed(number=batch.batch_id, progress=batch.progress, usage=usage, text=f"{batch}"))

        try:
            self._engine.run_unbounded(self.operator, self._lake, stop=stop, on_batch=record_batch)
        except ExecutionError as error:
            raise supervised(error, self.operator.name) from error


def supervised(error: ExecutionError, name: str) -> ExecutionError:
    """Replace the advice in a query's failure (EXECUTION-004) by advice for a supervised stream. Returns other errors unchanged."""
    if error.code != "EXECUTION-004":
        return error
    fix = f"Nothing is lost or double. The supervisor starts it again, five times; then mend the cause: floodmark restart {name}"
    return ExecutionError(error.where, error.expected, error.got, fix, code=error.code)
