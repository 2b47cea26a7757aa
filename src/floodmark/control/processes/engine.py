"""The engine of a workspace behind one protocol, so that callers land, run and stop without depending on the engine."""

# ruff: noqa: PLC0415 - definitions, drivers and verbs load without an engine, which is slow to import

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, Unpack, cast

from floodmark.core.errors import CapabilityError
from floodmark.engines.embedded.sail.server import check_installed
from floodmark.engines.spark.setup.master import is_connect
from floodmark.lake.folder.bucket import is_bucket
from floodmark.lake.folder.paths import Lake
from floodmark.lake.restore.savepoints import Savepoint
from floodmark.spec.graph import steps
from floodmark.spec.graph.operator import Operator
from floodmark.spec.rows.source import Source
from floodmark.spec.values.budget import Budget
from floodmark.spec.values.run import RunResult
from floodmark.spec.workspace import Engine, Settings

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    from floodmark.core.time import Interval
    from floodmark.engines.embedded.sail.session import Sail
    from floodmark.engines.landing.quarantine import Again, Replayed
    from floodmark.engines.landing.run import How
    from floodmark.engines.landing.session import LandingResult

Made = TypeVar("Made")
"""Result of a piece of work with a session."""
Step = Callable[[str], AbstractContextManager[None]]
"""Description -> context manager entered for the duration of a slow step, such as the start of Spark."""


class Computing(Protocol):
    """An engine. Its session starts lazily."""

    @property
    def name(self) -> Engine:
        """Name of the engine."""
        ...

    @property
    def ended(self) -> bool:
        """True if Java of this process has ended: no session of the process works any more."""
        ...

    def start(self, *operators: Operator) -> None:
        """Start the session now.

        Args:
            operators: operators that will run in the session.
        """
        ...

    def land(self, source: Source, lake: Lake, **how: Unpack[How]) -> LandingResult:
        """Land the pending units of a source; as ``engines.landing.run.land``."""
        ...

    def check_landing(self, source: Source, lake: Lake) -> None:
        """Check what the landing of a source requires, without a session; as ``engines.landing.run.check_start``.

        Raises:
            CapabilityError: CAPABILITY-031 or CAPABILITY-033, only Spark can land the source.
        """
        ...

    def replay(self, source: Source, lake: Lake, **how: Unpack[Again]) -> Replayed:
        """Replay quarantined rows of a source; as ``engines.landing.quarantine.replay``."""
        ...

    def run_bounded(self, operator: Operator, lake: Lake, interval: Interval, **options: Any) -> RunResult:
        """Compute an interval of an operator; as ``run_bounded`` of both engines."""
        ...

    def check_stream(self, operator: Operator, lake: Lake, **options: Any) -> None:
        """Check what a stream's start requires, without a session; as ``check_start`` of both engines."""
        ...

    def check_deployed(self, operator: Operator, lake: Lake) -> None:
        """Check that this engine can run a stream. The stream's inputs need not exist.

        Raises:
            CapabilityError: CAPABILITY-031 or CAPABILITY-035, only Spark can run the stream.
        """
        ...

    def take_over(self, operator: Operator, lake: Lake) -> Savepoint | None:
        """Convert the checkpoint of a stopped stream from another engine to this one; as ``engines.transfer.transfer``."""
        ...

    def regroup(self, operator: Operator, lake: Lake, groups: int) -> Savepoint | None:
        """Divide the state of a stopped stream of this engine among another number of key groups; as ``engines.rescaling.regroup``."""
        ...

    def run_unbounded(self, operator: Operator, lake: Lake, **options: Any) -> RunResult:
        """Run the stream of an operator; as ``run_unbounded`` of both engines."""
        ...

    def with_session(self, work: Callable[[SparkSession], Made]) -> Made:
        """Run a function with the session: Spark's, or a Spark Connect session of Sail. Returns its result.

        Args:
            work: session -> result. Must only read: the embedded engine calls the function again if its server dies meanwhile.

        Raises:
            ServerLost: EXECUTION-070, the server of the embedded engine died at each attempt.
        """
        ...

    def cancel(self) -> None:
        """Cancel running work, which then ends with an error. Does nothing if nothing runs. May be called repeatedly."""
        ...


@dataclass(slots=True)
class OnSpark:
    """Spark as the engine of a workspace.

    Args:
        settings: settings of the workspace.
        app: name of the session.
        step: entered while jars are fetched and while Spark starts.
        session: the session, once started; None before.
    """

    settings: Settings
    app: str
    step: Step
    session: SparkSession | None = None
    name: Engine = field(default="spark", init=False)

    @property
    def spark(self) -> SparkSession:
        """The session; started by the first access.

        Raises:
            CapabilityError: CAPABILITY-046, the lake is in a bucket that Spark does not reach; CAPABILITY-070, the master is a server of Spark Connect.
            SetupError: SETUP-001 no Java, SETUP-003 Delta's jars cannot be fetched, SETUP-004 no Spark, SETUP-054 no such master,
                SETUP-090 the jars for buckets were not fetched.
        """
        if self.session is None:
            from floodmark.engines.spark.setup import jars
            from floodmark.engines.spark.setup.master import check_master, is_cluster, reach_master

            check_master(self.settings.master)
            self._check_here()
            jars.check_bucket(self.settings.lake)
            reach_master(self.settings.master, self.settings.spark_settings())
            with nullcontext() if jars.fetched() else self.step("fetching Delta's jars, once"):
                jars.fetch()
            with self.step("starting Spark"):
                from floodmark.engines.spark.session import shipping
                from floodmark.engines.spark.session.builder import spark_session

                self.session = spark_session(
                    app=self.app,
                    cores=self.settings.master,
                    shuffle_partitions=self.settings.shuffle_partitions,
                    extra=self.settings.spark_settings(),
                    secrets=self.settings.spark_secrets(),
                    meet=self._meet_workers,
                )
                if is_cluster(self.settings.master) and self.settings.code is not None:
                    shipping.import_by_name(self.session, Path(self.settings.code))
        return self.session

    def _check_here(self) -> None:
        """Refuse a server of Spark Connect for what reads or converts Spark's state, which needs a JVM in this process.

        Raises:
            CapabilityError: CAPABILITY-070.
        """
        if is_connect(self.settings.master):
            fix = "Run it with a Spark whose driver runs here: FLOODMARK_MASTER='local[2]', or 'spark://HOST:PORT'."
            where, got = "Spark's state", f"{self.settings.master.partition(';')[0]}, a server of Spark Connect"
            raise CapabilityError(where, "a Spark whose driver is this process", got, fix, code="CAPABILITY-070")

    def _meet_workers(self, context: SparkContext) -> None:
        """Send the workspace's code to the workers of a cluster, and check what is installed there; before the session is there.

        Raises:
            SetupError: SETUP-080 and SETUP-081, a worker has another Python, floodmark or pyarrow than this process.
        """
        from floodmark.control.processes.package import pack
        from floodmark.engines.spark.session import cluster, shipping
        from floodmark.engines.spark.session.builder import scratch

        if self.settings.code is not None:
            code, packages = Path(self.settings.code), scratch() / "packages"
            shipping.send(context, packages / pack(code, packages))
        cluster.check(context)

    @property
    def ended(self) -> bool:
        """As ``Computing``."""
        from floodmark.engines.spark.session.builder import has_ended

        return self.session is not None and has_ended()

    def start(self, *operators: Operator) -> None:  # noqa: ARG002 - a session runs every operator
        """As ``Computing``."""
        _ = self.spark

    def _check_shared(self, spark: SparkSession, lake: Lake, source: Source | None = None) -> None:
        """Make sure that the workers of a cluster see the folders of a lake and of a source, which may be this machine's alone.

        Raises:
            ConnectorError: CONNECTOR-210, they do not see the source's files.
            SetupError: SETUP-085, they do not see the lake.
        """
        from floodmark.engines.spark.setup.master import is_cluster

        if not is_cluster(self.settings.master):
            return
        from floodmark.engines.spark.session import cluster

        for root in dict.fromkeys(filter(None, (lake.root, lake.logs, lake.upstream))):
            cluster.check_lake(spark, root)
        if source is not None:
            cluster.check_source(spark, source, Path(self.settings.folder))

    def land(self, source: Source, lake: Lake, **how: Unpack[How]) -> LandingResult:
        """As ``Computing``."""
        spark = self.spark
        _share(spark, source.name)
        self._check_shared(spark, lake, source)
        from floodmark.engines.spark.landing.run import land

        return land(spark, source, lake, **how)

    def check_landing(self, source: Source, lake: Lake) -> None:
        """As ``Computing``."""
        from floodmark.engines.landing.run import check_start

        check_start(source, lake, Path(self.settings.folder))

    def replay(self, source: Source, lake: Lake, **how: Unpack[Again]) -> Replayed:
        """As ``Computing``."""
        spark = self.spark
        self._check_shared(spark, lake)
        from floodmark.engines.spark.landing.run import replay

        return replay(spark, source, lake, **how)

    def run_bounded(self, operator: Operator, lake: Lake, interval: Interval, **options: Any) -> RunResult:
        """As ``Computing``."""
        spark = self.spark
        self._check_shared(spark, lake)
        from floodmark.engines.spark.bounded.run import run_bounded

        return run_bounded(spark, operator, lake, interval, **options)

    def check_stream(self, operator: Operator, lake: Lake, **options: Any) -> None:
        """As ``Computing``."""
        self._require_spark()
        from floodmark.engines.spark.unbounded.run import check_start

        check_start(operator, lake, **options)

    def check_deployed(self, operator: Operator, lake: Lake) -> None:
        """As ``Computing``. Spark can run every stream."""

    def take_over(self, operator: Operator, lake: Lake) -> Savepoint | None:
        """As ``Computing``."""
        from floodmark.engines.transfer import is_due, transfer

        if is_due(operator.name, lake, self.name):
            self._require_spark()
        return transfer(operator, lake, self.name, lambda: self.spark)

    def regroup(self, operator: Operator, lake: Lake, groups: int) -> Savepoint | None:
        """As ``Computing``."""
        from floodmark.engines.rescaling import regroup

        return regroup(operator, lake, groups, self.with_session, lambda: self.spark)

    @staticmethod
    def _require_spark() -> None:
        """Make sure that Spark's jars are installed, before anything of a stream is saved.

        Raises:
            SetupError: SETUP-004.
        """
        from floodmark.engines.spark.setup.home import spark_home

        spark_home()

    def run_unbounded(self, operator: Operator, lake: Lake, **options: Any) -> RunResult:
        """As ``Computing``."""
        spark = self.spark
        _share(spark, operator.name)
        self._check_shared(spark, lake)
        from floodmark.engines.spark.unbounded.run import run_unbounded

        return run_unbounded(spark, operator, lake, **options)

    def with_session(self, work: Callable[[SparkSession], Made]) -> Made:
        """As ``Computing``."""
        return work(self.spark)

    def cancel(self) -> None:
        """As ``Computing``."""
        from py4j.protocol import Py4JError
        from pyspark import SparkContext

        context = SparkContext._active_spark_context  # noqa: SLF001 - there is no public accessor
        if context is not None:
            with suppress(Py4JError, OSError):  # it may be stopping already
                context.cancelAllJobs()


def _share(spark: SparkSession, stream: str) -> None:
    """Give the jobs of a stream, which this thread runs, an equal share of the cores beside those of other streams."""
    spark.sparkContext.setLocalProperty("spark.scheduler.pool", stream)


_CONVERTING = threading.Lock()
"""Held while a stream is converted: its Spark is that of the process, in which other streams may wait to be converted too."""


@dataclass(slots=True)
class OnEmbedded:
    """The embedded engine (Sail) as the engine of a workspace.

    Args:
        settings: settings of the workspace.
        step: entered while the engine starts.
        alone: use a server of its own, not the one that processes of the workspace share.
    """

    settings: Settings
    step: Step
    alone: bool = False
    name: Engine = field(default="embedded", init=False)
    _used: list[Sail] = field(default_factory=list, init=False)

    def sail(self, *operators: Operator) -> Sail:
        """The Sail server of this process; started by the first call.

        Args:
            operators: operators that will run on the server. Operators with functions inside the server get a server of their own, as all in a bucket do.

        Raises:
            SetupError: SETUP-070 and 071, pysail is missing or of another version.
        """
        check_installed()  # before modules that need pysail are imported
        # a server reads a bucket with the secrets of the process that has started it
        alone = self.alone or is_bucket(self.settings.lake) or any(_has_functions(operator) for operator in operators)
        with nullcontext() if self._used else self.step("starting the embedded engine"):
            from floodmark.engines.embedded.sail.session import shared

            sail = shared(self.settings.memory, alone=alone)
            sail.begin()
        if sail not in self._used:
            sail.resume()
            self._used.append(sail)
        return sail

    @property
    def ended(self) -> bool:
        """As ``Computing``: never, as a server that has died is replaced."""
        return False

    def start(self, *operators: Operator) -> None:
        """As ``Computing``."""
        self.sail(*operators)

    def land(self, source: Source, lake: Lake, **how: Unpack[How]) -> LandingResult:
        """As ``Computing``."""
        from floodmark.engines.embedded.landing.run import land

        return land(self.sail, source, lake, **how)

    def check_landing(self, source: Source, lake: Lake) -> None:
        """As ``Computing``."""
        from floodmark.engines.embedded.landing.workers import EmbeddedWorkers
        from floodmark.engines.landing.run import check_start

        EmbeddedWorkers(self.sail).check(source, lake)
        check_start(source, lake, Path(self.settings.folder))

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
        """As ``Computing``. Starts Spark if the conversion needs it, and stops Spark afterwards."""
        from floodmark.engines.transfer import transfer

        spark = OnSpark(self.settings, f"floodmark {operator.version}", self.step)
        with _CONVERTING:
            try:
                return transfer(operator, lake, self.name, lambda: spark.spark)
            finally:
                if spark.session is not None:
                    from floodmark.engines.spark.session.builder import stop_session

                    stop_session(spark.session)

    def regroup(self, operator: Operator, lake: Lake, groups: int) -> Savepoint | None:
        """As ``Computing``. Spark is not started."""
        from floodmark.engines.rescaling import regroup

        def none() -> SparkSession:
            raise AssertionError(operator.name)

        return regroup(operator, lake, groups, self.with_session, none)

    def run_unbounded(self, operator: Operator, lake: Lake, **options: Any) -> RunResult:
        """As ``Computing``."""
        sail = self.sail(operator)
        from floodmark.engines.embedded.unbounded.run import run_unbounded

        return run_unbounded(sail, operator, lake, **options)

    def with_session(self, work: Callable[[SparkSession], Made]) -> Made:
        """As ``Computing``."""
        sail = self.sail()
        from floodmark.engines.embedded.sail.session import on_sail

        return on_sail(sail, lambda connection: work(cast("SparkSession", connection.spark)))

    def cancel(self) -> None:
        """As ``Computing``."""
        from floodmark.engines.embedded.bounded.pool import cancel

        for sail in self._used:
            sail.cancel()
        cancel()


def _has_functions(operator: Operator) -> bool:
    """True if user functions of the operator run inside the server (``FlatMap``); all other user functions run in separate processes."""
    return any(isinstance(step, steps.FlatMap) for _, result in operator.results for step in steps.walk(result))


def computing(
    settings: Settings,
    *,
    engine: Engine | None = None,
    app: str = "floodmark",
    step: Step | None = None,
    budget: Budget | None = None,
) -> Computing:
    """Create the engine of a workspace. Starts no session.

    With a budget, the engine is one of its own, with its memory and cores; a session of Spark that runs in this process already stays as it is.

    Args:
        settings: settings of the workspace.
        engine: engine to use instead of the one in the settings.
        app: name of the Spark session.
        step: entered while the engine starts; by default nothing is reported.
        budget: limits of the engine; None for those of the settings.

    Raises:
        CapabilityError: CAPABILITY-069, a budget of cores or memory for a server of Spark Connect.
        LifecycleError: LIFECYCLE-204, the budget is too small.
    """
    step, name = step or (lambda _: nullcontext()), engine or settings.engine
    if budget is not None:
        budget.check(name)
    if name == "embedded":
        memory = settings.memory if budget is None or budget.memory is None else budget.memory
        return OnEmbedded(replace(settings, memory=memory), step, alone=budget is not None)
    if is_connect(settings.master):
        from floodmark.control.processes.package import pack
        from floodmark.engines.spark.connect.server import OnConnect

        return OnConnect.of(settings, step, pack, budget)
    if budget is not None:
        master = settings.master if budget.cores is None else f"local[{budget.cores}]"
        own = [pair for pair in settings.spark if budget.memory is None or pair[0] != _HEAP]
        memory_of = () if budget.memory is None else ((_HEAP, f"{budget.memory}m"),)
        settings = replace(settings, master=master, spark=(*own, *memory_of))
    return OnSpark(settings, app, step)


_HEAP = "spark.driver.memory"
