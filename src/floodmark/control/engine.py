"""The engine of a workspace, which lands, runs and stops for callers that do not know which one it is."""

# ruff: noqa: PLC0415 - definitions, drivers and verbs load without an engine, which is slow to import

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, Unpack, cast

from floodmark.engines.embedded.server import check_installed
from floodmark.lake.paths import Lake
from floodmark.lake.savepoints import Savepoint
from floodmark.spec import steps
from floodmark.spec.operator import Operator
from floodmark.spec.run import RunResult
from floodmark.spec.source import Source
from floodmark.spec.workspace import Engine, Settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from floodmark.core.time import Interval
    from floodmark.engines.embedded.session import Sail
    from floodmark.engines.landing.quarantine import Again, Replayed
    from floodmark.engines.landing.run import How, LandingResult

Made = TypeVar("Made")
"""Result of a piece of work with a session."""
Step = Callable[[str], AbstractContextManager[None]]
"""Told that something that may take a while begins, and when it is over."""


class Computing(Protocol):
    """An engine; a session of it starts when it is needed."""

    @property
    def name(self) -> Engine:
        """Of the engine."""
        ...

    def start(self, *operators: Operator) -> None:
        """Start the session now.

        Args:
            operators: that will run on it.
        """
        ...

    def land(self, source: Source, lake: Lake, **how: Unpack[How]) -> LandingResult:
        """As ``engines.landing.run.land``."""
        ...

    def replay(self, source: Source, lake: Lake, **how: Unpack[Again]) -> Replayed:
        """As ``engines.landing.quarantine.replay``."""
        ...

    def run_bounded(self, operator: Operator, lake: Lake, interval: Interval, **options: Any) -> RunResult:
        """As ``run_bounded`` of both engines."""
        ...

    def check_stream(self, operator: Operator, lake: Lake, **options: Any) -> None:
        """What can be said of the start of a stream before a session is needed; as ``check_start`` of both engines."""
        ...

    def check_deployed(self, operator: Operator, lake: Lake) -> None:
        """What can be said of a stream before its inputs are there: that this engine can run it.

        Raises:
            CapabilityError: CAPABILITY-031 or CAPABILITY-035, only Spark can run it.
        """
        ...

    def take_over(self, operator: Operator, lake: Lake) -> Savepoint | None:
        """Let a stopped stream that another engine has begun go on with this one; as ``engines.transfer.transfer``."""
        ...

    def run_unbounded(self, operator: Operator, lake: Lake, **options: Any) -> RunResult:
        """As ``run_unbounded`` of both engines."""
        ...

    def with_session(self, work: Callable[[SparkSession], Made]) -> Made:
        """Result of a piece of work with the session: Spark's, or a Spark Connect session of Sail.

        Args:
            work: only reads; the embedded engine calls it again where its server dies meanwhile.

        Raises:
            ServerLost: EXECUTION-070, the server of the embedded engine has died each time.
        """
        ...

    def cancel(self) -> None:
        """Let what runs end soon, with an error; nothing where nothing runs. It may be called again and again."""
        ...


@dataclass(slots=True)
class OnSpark:
    """Spark.

    Args:
        settings: of the workspace.
        app: name of the session.
        step: told that Spark starts.
        session: one that has started.
    """

    settings: Settings
    app: str
    step: Step
    session: SparkSession | None = None
    name: Engine = field(default="spark", init=False)

    @property
    def spark(self) -> SparkSession:
        """The session.

        Raises:
            SetupError: SETUP-001 no Java, SETUP-003 Delta's jars cannot be fetched, SETUP-004 no Spark, SETUP-054 no such master.
        """
        if self.session is None:
            from floodmark.engines.spark.setup import jars
            from floodmark.engines.spark.setup.master import check_master

            check_master(self.settings.master)
            with nullcontext() if jars.fetched() else self.step("fetching Delta's jars, once"):
                jars.fetch()
            with self.step("starting Spark"):
                from floodmark.engines.spark.session.builder import spark_session

                self.session = spark_session(
                    app=self.app,
                    cores=self.settings.master,
                    shuffle_partitions=self.settings.shuffle_partitions,
                    extra=dict(self.settings.spark),
                )
        return self.session

    def start(self, *operators: Operator) -> None:
        """As ``Computing``."""
        del operators
        _ = self.spark

    def land(self, source: Source, lake: Lake, **how: Unpack[How]) -> LandingResult:
        """As ``Computing``."""
        spark = self.spark
        from floodmark.engines.spark.landing.run import land

        return land(spark, source, lake, **how)

    def replay(self, source: Source, lake: Lake, **how: Unpack[Again]) -> Replayed:
        """As ``Computing``."""
        spark = self.spark
        from floodmark.engines.spark.landing.run import replay

        return replay(spark, source, lake, **how)

    def run_bounded(self, operator: Operator, lake: Lake, interval: Interval, **options: Any) -> RunResult:
        """As ``Computing``."""
        spark = self.spark
        from floodmark.engines.spark.bounded.run import run_bounded

        return run_bounded(spark, operator, lake, interval, **options)

    def check_stream(self, operator: Operator, lake: Lake, **options: Any) -> None:
        """As ``Computing``."""
        from floodmark.engines.spark.unbounded.run import check_start

        check_start(operator, lake, **options)

    def check_deployed(self, operator: Operator, lake: Lake) -> None:
        """As ``Computing``: Spark runs them all."""

    def take_over(self, operator: Operator, lake: Lake) -> Savepoint | None:
        """As ``Computing``."""
        from floodmark.engines.transfer import transfer

        return transfer(operator, lake, self.name, lambda: self.spark)

    def run_unbounded(self, operator: Operator, lake: Lake, **options: Any) -> RunResult:
        """As ``Computing``."""
        spark = self.spark
        from floodmark.engines.spark.unbounded.run import run_unbounded

        return run_unbounded(spark, operator, lake, **options)

    def with_session(self, work: Callable[[SparkSession], Made]) -> Made:
        """As ``Computing``."""
        return work(self.spark)

    def cancel(self) -> None:
        """As ``Computing``."""
        from py4j.protocol import Py4JError
        from pyspark import SparkContext

        context = SparkContext._active_spark_context  # noqa: SLF001 - there is no public question for it
        if context is not None:
            with suppress(Py4JError, OSError):  # it may be stopping already
                context.cancelAllJobs()


@dataclass(slots=True)
class OnEmbedded:
    """The embedded engine.

    Args:
        settings: of the workspace.
        step: told that it starts.
    """

    settings: Settings
    step: Step
    name: Engine = field(default="embedded", init=False)
    _used: list[Sail] = field(default_factory=list, init=False)

    def sail(self, *operators: Operator) -> Sail:
        """Sessions of this process.

        Args:
            operators: that run on it.

        Raises:
            SetupError: SETUP-070 and 071, pysail is missing or of another version.
        """
        check_installed()  # before anything that needs it is imported
        alone = any(_has_functions(operator) for operator in operators)
        with nullcontext() if self._used else self.step("starting the embedded engine"):
            from floodmark.engines.embedded.session import shared

            sail = shared(self.settings.memory, alone=alone)
            sail.begin()
        if sail not in self._used:
            sail.resume()
            self._used.append(sail)
        return sail

    def start(self, *operators: Operator) -> None:
        """As ``Computing``."""
        self.sail(*operators)

    def land(self, source: Source, lake: Lake, **how: Unpack[How]) -> LandingResult:
        """As ``Computing``."""
        from floodmark.engines.embedded.landing.run import land

        return land(self.sail, source, lake, **how)

    def replay(self, source: Source, lake: Lake, **how: Unpack[Again]) -> Replayed:
        """As ``Computing``."""
        from floodmark.engines.embedded.landing.run import replay

        return replay(self.sail, source, lake, **how)

    def run_bounded(self, operator: Operator, lake: Lake, interval: Interval, **options: Any) -> RunResult:
        """As ``Computing``."""
        sail = self.sail(operator)
        from floodmark.engines.embedded.bounded.run import run_bounded

        return run_bounded(sail, operator, lake, interval, **options)

    def check_stream(self, operator: Operator, lake: Lake, **options: Any) -> None:
        """As ``Computing``."""
        from floodmark.engines.embedded.unbounded.begin import check_start

        check_start(operator, lake, **options)

    def check_deployed(self, operator: Operator, lake: Lake) -> None:
        """As ``Computing``."""
        check_installed()
        from floodmark.engines.embedded.unbounded.begin import check_supported

        check_supported(operator, lake)

    def take_over(self, operator: Operator, lake: Lake) -> Savepoint | None:
        """As ``Computing``; Spark is started for it, and stopped behind it."""
        from floodmark.engines.transfer import transfer

        spark = OnSpark(self.settings, f"floodmark {operator.version}", self.step)
        try:
            return transfer(operator, lake, self.name, lambda: spark.spark)
        finally:
            if spark.session is not None:
                from floodmark.engines.spark.session.builder import stop_session

                stop_session(spark.session)

    def run_unbounded(self, operator: Operator, lake: Lake, **options: Any) -> RunResult:
        """As ``Computing``."""
        sail = self.sail(operator)
        from floodmark.engines.embedded.unbounded.run import run_unbounded

        return run_unbounded(sail, operator, lake, **options)

    def with_session(self, work: Callable[[SparkSession], Made]) -> Made:
        """As ``Computing``."""
        sail = self.sail()
        from floodmark.engines.embedded.session import on_sail

        return on_sail(sail, lambda connection: work(cast("SparkSession", connection.spark)))

    def cancel(self) -> None:
        """As ``Computing``."""
        from floodmark.engines.embedded.bounded.pool import cancel

        for sail in self._used:
            sail.cancel()
        cancel()


def _has_functions(operator: Operator) -> bool:
    """Whether functions of the user run in the server; all others run in processes of their own."""
    return any(isinstance(step, steps.FlatMap) for _, result in operator.results for step in steps.walk(result))


def computing(
    settings: Settings, *, engine: Engine | None = None, app: str = "floodmark", step: Step | None = None
) -> Computing:
    """The engine of a workspace.

    Args:
        settings: of the workspace.
        engine: another one than the settings say.
        app: name of a session of Spark.
        step: told that the engine starts.
    """
    step = step or (lambda _: nullcontext())
    return OnEmbedded(settings, step) if (engine or settings.engine) == "embedded" else OnSpark(settings, app, step)
