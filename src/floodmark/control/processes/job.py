"""Jobs: what a driver runs until it is stopped: the stream of an operator, the landing of a source, or a delivery."""

# ruff: noqa: PLC0415 - engines are slow to import

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from floodmark.control.state.records import Deployment
from floodmark.core.errors import ExecutionError, FloodmarkError
from floodmark.core.time import describe
from floodmark.lifecycle.usage import Usage
from floodmark.observe.measure import Committed, Measure
from floodmark.spec.assets.asset import RunWhen, SourceAsset
from floodmark.spec.assets.checkpoints import Checkpoints
from floodmark.spec.graph.operator import Operator
from floodmark.spec.values.run import BatchInfo, ReadTo
from floodmark.spec.workspace import Settings, Workspace

if TYPE_CHECKING:
    from floodmark.control.processes.engine import Computing
    from floodmark.engines.landing.session import Committed as Landed
    from floodmark.engines.pacing import Overdue
    from floodmark.lake.folder.paths import Lake


LINGER_SECONDS = 30.0
"""Time without new data after which a stream that runs while there is data ends: longer than the start of an engine, so that a source that trickles costs no starts."""
_LOOK_SECONDS = 0.5


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

    @property
    def graph(self) -> dict[str, Any]:
        """What the job runs, as nodes and edges (``compiler.program``)."""
        ...

    def missed(self, history: str, number: int) -> list[Measure]:
        """The commits after the last one that was counted, oldest first, from the commits of the job's tables.

        Args:
            history: history of the last counted commit.
            number: number of the last counted commit.
        """
        ...

    def run(
        self, stop: threading.Event, on_commit: Callable[[Committed], None], on_wait: Callable[[str], None]
    ) -> Mapping[str, int] | None:
        """Run until ``stop`` is set. Ends after the commit that is being written then.

        Args:
            stop: set to stop the job.
            on_commit: called after each commit.
            on_wait: called with what a running job waits for, for people; with an empty text once the wait is over.

        Returns:
            None if ``stop`` was set; of a job that ends while there is nothing to read, path of an input table -> version up to which it has read.
        """
        ...


@dataclass(slots=True)
class OperatorStream:
    """The stream of an operator, as a job.

    Args:
        operator: the operator.
        settings: settings of the workspace, with absolute paths.
        run_when: ``"data"``: the job ends once its inputs have brought nothing new for ``LINGER_SECONDS``; a cron expression: once it has read what is there.
        checkpoints: how far its micro-batches are apart, and how long one takes at most.
        overdue: called if a micro-batch takes longer; None: its time is not measured.
    """

    operator: Operator
    settings: Settings
    run_when: RunWhen = "always"
    checkpoints: Checkpoints = field(default_factory=Checkpoints)
    overdue: Overdue | None = None
    _engine: Computing | None = None
    _table: str = ""
    """Id of the main output's table, once it exists."""

    @property
    def version(self) -> str:
        """As ``Job``."""
        return self.operator.version

    @property
    def _lake(self) -> Lake:
        from floodmark.lake.folder.paths import Lake

        return Lake.of(self.settings)

    def awaits(self) -> str:
        """As ``Job``: input tables, as a source may not have landed yet, or an upstream stream not have started; and the end of another run."""
        from deltalake import DeltaTable

        from floodmark.lake.folder.locks import held_by

        tables = {operator_input.table: self._lake.input(operator_input) for operator_input in self.operator.inputs}
        missing = [name for name, path in tables.items() if not DeltaTable.is_deltatable(path)]
        if missing:
            return f"waiting for {', '.join(missing)}: nothing is there yet"
        holder = held_by(self._lake, "operators", self.operator.name)
        return f"waiting for another run of {self.operator.name}: {holder}" if holder else ""

    def start(self) -> None:
        """As ``Job``. Converts the checkpoint of another engine first."""
        from floodmark.control.processes.engine import computing

        self._engine = computing(self.settings, app=f"floodmark {self.operator.version}")
        self._engine.check_deployed(self.operator, self._lake)  # before a checkpoint of the other engine is replaced
        self._engine.take_over(self.operator, self._lake)
        self._engine.start(self.operator)

    def run(
        self, stop: threading.Event, on_commit: Callable[[Committed], None], on_wait: Callable[[str], None]
    ) -> Mapping[str, int] | None:
        """As ``Job``."""
        assert self._engine is not None

        def record_batch(batch: BatchInfo) -> None:
            measure = self._measured(batch)
            aside = measure.quarantined
            usage = Usage(
                rows=batch.rows_in, late=batch.late, dropped=batch.dropped, set_aside=aside, busy=batch.seconds
            )
            on_commit(
                Committed(number=batch.batch_id, progress=batch.progress, usage=usage, text=f"{batch}", measure=measure)
            )

        try:
            if self.run_when != "always":
                return self._drain(self._engine, stop, record_batch, on_wait)
            how = {"stop": stop, "on_batch": record_batch, "on_wait": on_wait, **self._options}
            self._engine.run_unbounded(self.operator, self._lake, **how)
        except ExecutionError as error:
            raise supervised(error, self.operator.name) from error
        return None

    def _drain(
        self,
        engine: Computing,
        stop: threading.Event,
        on_batch: Callable[[BatchInfo], None],
        on_wait: Callable[[str], None],
    ) -> Mapping[str, int] | None:
        """Catch up again and again, until nothing was committed to an input for ``LINGER_SECONDS``. Returns the versions that were read by then.

        A stream that waits for a verdict stays: a verdict is no commit by which a supervisor would wake it. One of a cron expression does not.
        """
        from floodmark.lake.results.verdicts import Waiting

        waiting = Waiting(on_wait)
        while not stop.is_set():
            there, judged = self._versions(), self._judged()  # before the run, which reads at least these
            how = {"stop": stop, "on_batch": on_batch, **self._options, "until_caught_up": True}
            result = engine.run_unbounded(self.operator, self._lake, **how)
            waiting.tell([result.waits_for])
            if self.run_when != "data":  # the next time of its cron expression comes
                return None if stop.is_set() else there
            waited = 0.0
            while not stop.is_set() and (self._versions(), self._judged()) == (there, judged):
                if waited >= LINGER_SECONDS and not result.waits_for:
                    return there
                stop.wait(_LOOK_SECONDS)
                waited += _LOOK_SECONDS
        return None

    @property
    def _options(self) -> dict[str, Any]:
        """Its checkpoints as options of ``run_unbounded``."""
        from floodmark.engines.pacing import within

        options = self.checkpoints.options
        if self.overdue is None:
            return options
        return options | {"within": within(self.checkpoints, self.operator.name, self.overdue)}

    def _judged(self) -> list[str]:
        """Changes with the verdicts about its inputs."""
        from floodmark.lake.results.verdicts import Hold

        return [hold.known for hold in Hold.of(self.operator, self._lake).values()] if self.operator.audits else []

    def missed(self, history: str, number: int) -> list[Measure]:
        """As ``Job``."""
        from floodmark.lake.stream.timeline import Timeline, positions_at
        from floodmark.observe.commits import measures

        timeline = Timeline.current(self._lake, self.operator.name)
        own = self._history(timeline.number)
        commits = measures(self.operator, timeline, own, since=number if own == history else -1) if own else []
        if commits:
            read = self._by_path(positions_at(timeline, commits[-1].number))
            commits[-1] = replace(commits[-1], read=read)
        return commits

    def _by_path(self, read: Mapping[str, ReadTo]) -> dict[str, ReadTo]:
        """(input name -> how far the input is read) -> the same by the path of the input's table."""
        paths = {one.name: self._lake.input(one) for one in self.operator.inputs}
        return {paths[name]: position for name, position in read.items()}

    @property
    def graph(self) -> dict[str, Any]:
        """As ``Job``."""
        from floodmark.compiler.program import program

        return program(self.operator)

    def _history(self, timeline: int) -> str:
        """Id of the sequence of the stream's micro-batches; empty before there is one."""
        from floodmark.lake.table.entries import id_of, is_table

        path = self._lake.output(self.operator.outputs[0].table)
        if not self._table and is_table(path):
            self._table = id_of(path)
        return f"{self._table}/{timeline}" if self._table else ""

    def _measured(self, batch: BatchInfo) -> Measure:
        """What is measured of a micro-batch that was just committed."""
        from deltalake.exceptions import DeltaError

        from floodmark.lake.table.entries import version_of

        quarantines = [output.table for output in self.operator.outputs if output.side == "quarantine"]
        history, at = self._history(batch.timeline), time.time()
        measure = Measure.of(batch, history=history, at=at, quarantines=quarantines)
        read, waiting = self._by_path(batch.read), 0
        for path, (version, *_) in read.items():
            with suppress(DeltaError, OSError):  # the stream itself says what is wrong with its input
                waiting += max(0, version_of(path) - version)
        return replace(measure, read=read, waiting=waiting)

    def _versions(self) -> dict[str, int]:
        from floodmark.lake.table.entries import version_of

        return {path: version_of(path) for path in map(self._lake.input, self.operator.inputs)}


_PASSING = {"LIFECYCLE-003": 1.0, "CONNECTOR-002": 1.0}
"""Code of an error that passes by itself -> seconds until the next try: another landing holds the source; its folder is gone."""


@dataclass(slots=True)
class Landing:
    """The landing of a source, as a job: lands what comes until it is stopped, and never an end of input.

    Args:
        asset: the source with its settings.
        settings: settings of the workspace, with absolute paths.
        version: version in the deployment.
    """

    asset: SourceAsset
    settings: Settings
    version: str
    _engine: Computing | None = None
    _table: str = ""
    """Id of the log's table, once it exists."""

    def awaits(self) -> str:
        """As ``Job``: nothing. A folder that is missing is waited for while the job runs, as it may go missing then."""
        return ""

    def missed(self, history: str, number: int) -> list[Measure]:
        """As ``Job``."""
        from floodmark.lake.folder.paths import Lake
        from floodmark.observe.commits import landings

        own = self._history()
        name, lake = self.asset.source.name, Lake.of(self.settings)
        return landings(name, lake.log(name), own, since=number if own == history else -1) if own else []

    @property
    def graph(self) -> dict[str, Any]:
        """As ``Job``."""
        name = self.asset.source.name
        files = {"id": "input", "kind": "input", "label": type(self.asset.source.connector).__name__, "table": ""}
        log = {"id": "output", "kind": "output", "label": name, "table": name}
        return {"nodes": [files, log], "edges": [["input", "output"]]}

    def _history(self) -> str:
        """Id of the log, in which the numbers of commits are unique; empty before there is one."""
        from floodmark.lake.folder.paths import Lake
        from floodmark.lake.table.entries import id_of, is_table

        path = Lake.of(self.settings).log(self.asset.source.name)
        if not self._table and is_table(path):
            self._table = id_of(path)
        return self._table

    def start(self) -> None:
        """As ``Job``."""
        from floodmark.control.processes.engine import computing

        self._engine = computing(self.settings, app=f"floodmark {self.version}")
        if self._engine.name == "spark":  # before the driver sets its signal handlers
            self._engine.start()

    def run(
        self, stop: threading.Event, on_commit: Callable[[Committed], None], on_wait: Callable[[str], None]
    ) -> Mapping[str, int] | None:
        """As ``Job``. Waits while another landing of the source runs, and while the folder of its files is missing."""
        waiting = ""

        def begin() -> None:
            nonlocal waiting
            waiting = ""
            on_wait("")

        while not stop.is_set():
            try:
                self._land(stop, on_commit, begin)
            except FloodmarkError as error:
                if error.code not in _PASSING:
                    raise
                text = f"waiting: {error.where}: expected {error.expected}, got {error.got}"
                if text != waiting:
                    on_wait(waiting := text)
                stop.wait(_PASSING[error.code])
        return None

    def _land(
        self, stop: threading.Event, on_commit: Callable[[Committed], None], on_begin: Callable[[], None]
    ) -> None:
        from floodmark.lake.folder.paths import Lake

        def record_commit(commit: Landed) -> None:
            measure = Measure(
                history=self._history(),
                number=commit.ordinal,
                at=time.time(),
                seconds=commit.seconds,
                phases={"land": commit.seconds},
                rows_in=commit.rows + commit.quarantined,
                rows={self.asset.source.name: commit.rows},
                quarantined=commit.quarantined,
                progress=commit.watermark,
                waiting=commit.pending,
                behind=commit.behind,
            )
            usage = Usage(rows=commit.rows, set_aside=commit.quarantined, busy=commit.seconds)
            text = f"commit {commit.ordinal}: {commit.rows:,} rows, {commit.quarantined:,} quarantined, watermark {describe(commit.watermark)}, {commit.pending:,} to go"
            on_commit(
                Committed(number=commit.ordinal, progress=commit.watermark, usage=usage, text=text, measure=measure)
            )

        assert self._engine is not None
        self._engine.land(
            self.asset.source,
            Lake.of(self.settings),
            until_caught_up=False,
            stop=stop,
            poll_seconds=self.asset.poll / 1000,
            on_commit=record_commit,
            on_begin=on_begin,
            workspace=Path(self.settings.folder),
        )


def job_of(workspace: Workspace, deployment: Deployment, overdue: Overdue | None = None) -> Job:
    """The job of a deployment.

    Args:
        workspace: the workspace of the deployed package.
        deployment: deployment of the stream.
        overdue: as of ``OperatorStream``.

    Raises:
        DefinitionError: DEFINITION-074, the package has no such operator, source or delivery.
    """
    if deployment.kind == "delivery":
        from floodmark.control.processes.delivering import Delivering

        return Delivering(workspace.delivery(deployment.operator), workspace.settings, deployment.version)
    if deployment.kind == "source":
        return Landing(workspace.source_asset(deployment.operator), workspace.settings, deployment.version)
    asset = workspace.asset(deployment.operator)
    return OperatorStream(asset.operator, workspace.settings, deployment.run_when, asset.checkpoints, overdue)


def supervised(error: ExecutionError, name: str) -> ExecutionError:
    """Replace the advice in a query's failure (EXECUTION-004) by advice for a supervised stream. Returns other errors unchanged."""
    if error.code != "EXECUTION-004":
        return error
    fix = f"Nothing is lost or double. The supervisor starts it again, as its restart strategy says; then mend the cause: floodmark restart {name}"
    return ExecutionError(error.where, error.expected, error.got, fix, code=error.code)
