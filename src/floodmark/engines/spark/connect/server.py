"""A server of Spark Connect as the engine of a workspace: it lands and runs bounded; what needs a JVM beside the driver is refused in words."""

# ruff: noqa: PLC0415 - definitions, drivers and verbs load without an engine, which is slow to import

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar, Unpack

from floodmark.core.errors import CapabilityError, ExecutionError
from floodmark.lake.folder.paths import Lake, is_reached
from floodmark.lake.restore.savepoints import Savepoint
from floodmark.spec.graph.operator import Operator
from floodmark.spec.rows.source import Source
from floodmark.spec.values.budget import Budget
from floodmark.spec.values.run import RunResult
from floodmark.spec.workspace import Engine, Settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from floodmark.core.time import Interval
    from floodmark.engines.landing.quarantine import Again, Replayed
    from floodmark.engines.landing.run import How
    from floodmark.engines.landing.session import LandingResult

Made = TypeVar("Made")
"""Result of a piece of work with a session."""
Step = Callable[[str], AbstractContextManager[None]]
"""Description -> context manager entered for the duration of a slow step."""
Pack = Callable[[Path, Path], str]
"""(folder of code, folder of packages) -> the name of the package there that is a copy of the code."""


@dataclass(slots=True)
class OnConnect:
    """A server of Spark Connect as the engine of a workspace; as ``Computing``.

    Args:
        settings: settings of the workspace.
        step: entered while a session is made.
        pack: makes the package that travels to a session.
        session: on the server, once there is one; None before.
    """

    settings: Settings
    step: Step
    pack: Pack
    session: SparkSession | None = None
    name: Engine = field(default="spark", init=False)

    @staticmethod
    def of(settings: Settings, step: Step, pack: Pack, budget: Budget | None) -> OnConnect:
        """The engine, within a budget.

        Raises:
            CapabilityError: CAPABILITY-069, a budget of cores or memory, which are the server's.
        """
        if budget is not None and (budget.cores is not None or budget.memory is not None):
            fix = "Leave them out: --budget 'lag=...' alone works; or compute here: --engine embedded."
            where, expected = "--budget", "no cores and no memory for a server of Spark Connect, which has its own"
            raise CapabilityError(where, expected, "a budget with them", fix, code="CAPABILITY-069")
        return OnConnect(settings, step, pack)

    @property
    def spark(self) -> SparkSession:
        """The session; made by the first access.

        Raises:
            SetupError: SETUP-120 to 123, the server does not answer or lacks something; SETUP-080 and SETUP-081, its workers do.
        """
        if self.session is None:
            from floodmark.engines.spark.connect import session as connect
            from floodmark.engines.spark.session import cluster

            with self.step(f"connecting to {connect.bare(self.settings.master)}"):
                partitions = {"spark.sql.shuffle.partitions": str(self.settings.shuffle_partitions)}
                settings, secrets = partitions | self.settings.spark_settings(), self.settings.spark_secrets()
                self.session = connect.connected_session(self.settings.master, settings, secrets)
                self._send_code(self.session)
                cluster.check(self.session)
        return self.session

    def _send_code(self, session: SparkSession) -> None:
        if self.settings.code is None:
            return
        from floodmark.core.scratch import Scratch
        from floodmark.engines.spark.session import shipping

        scratch, code = Scratch(), Path(self.settings.code)
        packages = scratch.path / "packages"
        try:
            shipping.send_to_server(session, packages / self.pack(code, packages), code)
        finally:
            scratch.remove()

    @property
    def ended(self) -> bool:
        """As ``Computing``: never, as a session that is lost is replaced."""
        return False

    def start(self, *operators: Operator) -> None:  # noqa: ARG002 - a session runs every operator
        """As ``Computing``."""
        _ = self.spark

    def _shared(self, lake: Lake, source: Source | None = None) -> SparkSession:
        """The session, whose workers see the folders of a lake and of a source.

        Raises:
            CapabilityError: CAPABILITY-067, a lake that is neither a folder nor a bucket.
            ConnectorError: CONNECTOR-210, they do not see the source's files.
            SetupError: SETUP-085 and SETUP-091, they do not see the lake.
        """
        from floodmark.engines.spark.session import cluster

        roots = list(dict.fromkeys(filter(None, (lake.root, lake.logs, lake.upstream))))
        for root in roots:
            if not is_reached(root):
                expected = "a folder or a bucket for Spark Connect: this process commits, and has no JVM"
                fix = "Use a Spark whose driver runs here: FLOODMARK_MASTER='spark://HOST:PORT' or 'local[2]'."
                raise CapabilityError(f"lake {root}", expected, "another URI", fix, code="CAPABILITY-067")
        spark = self.spark
        for root in roots:
            cluster.check_lake(spark, root)
        if source is not None:
            cluster.check_source(spark, source, Path(self.settings.folder))
        return spark

    def _answered(self, work: Callable[[], Made], again: str) -> Made:
        """The result of a piece of work on the server.

        Raises:
            ExecutionError: EXECUTION-125, the server is gone.
        """
        from pyspark.errors import PySparkException

        from floodmark.engines.spark.connect import session as connect

        try:
            return work()
        except (ExecutionError, PySparkException) as error:
            lost = connect.loss(error, self.settings.master)
            if lost is None:
                raise
            lost_session, self.session = self.session, None
            if lost_session is not None:
                connect.stop(lost_session)
            where = f"Spark master {connect.bare(self.settings.master)}"
            fix = f"Nothing is lost or there twice. When the server is there again: {again}"
            raise ExecutionError(where, "a server that answers", lost, fix, code="EXECUTION-125") from error

    def land(self, source: Source, lake: Lake, **how: Unpack[How]) -> LandingResult:
        """As ``Computing``."""

        def work() -> LandingResult:
            spark = self._shared(lake, source)
            from floodmark.engines.spark.landing.run import land

            return land(spark, source, lake, **how)

        return self._answered(work, f"floodmark land {source.name}")

    def check_landing(self, source: Source, lake: Lake) -> None:
        """As ``Computing``."""
        from floodmark.engines.landing.run import check_start

        check_start(source, lake, Path(self.settings.folder))

    def replay(self, source: Source, lake: Lake, **how: Unpack[Again]) -> Replayed:
        """As ``Computing``."""

        def work() -> Replayed:
            spark = self._shared(lake)
            from floodmark.engines.spark.landing.run import replay

            return replay(spark, source, lake, **how)

        return self._answered(work, f"floodmark quarantine replay {source.name}")

    def run_bounded(self, operator: Operator, lake: Lake, interval: Interval, **options: Any) -> RunResult:
        """As ``Computing``."""

        def work() -> RunResult:
            spark = self._shared(lake)
            from floodmark.engines.spark.bounded.run import run_bounded

            return run_bounded(spark, operator, lake, interval, **options)

        return self._answered(work, f"floodmark run {operator.name}")

    def check_stream(self, operator: Operator, lake: Lake, **options: Any) -> None:  # noqa: ARG002 - as ``Computing``
        """As ``Computing``.

        Raises:
            CapabilityError: CAPABILITY-066.
        """
        self._refuse_stream(operator)

    def check_deployed(self, operator: Operator, lake: Lake) -> None:  # noqa: ARG002 - as ``Computing``
        """As ``Computing``.

        Raises:
            CapabilityError: CAPABILITY-066.
        """
        self._refuse_stream(operator)

    def take_over(self, operator: Operator, lake: Lake) -> Savepoint | None:  # noqa: ARG002 - as ``Computing``
        """As ``Computing``.

        Raises:
            CapabilityError: CAPABILITY-066.
        """
        self._refuse_stream(operator)

    def regroup(self, operator: Operator, lake: Lake, groups: int) -> Savepoint | None:  # noqa: ARG002 - as ``Computing``
        """As ``Computing``.

        Raises:
            CapabilityError: CAPABILITY-066.
        """
        self._refuse_stream(operator)

    def run_unbounded(self, operator: Operator, lake: Lake, **options: Any) -> RunResult:  # noqa: ARG002 - as ``Computing``
        """As ``Computing``.

        Raises:
            CapabilityError: CAPABILITY-066.
        """
        self._refuse_stream(operator)

    def _refuse_stream(self, operator: Operator) -> NoReturn:
        """Raise CapabilityError CAPABILITY-066.

        Spark Connect runs Python state, but also the function of each micro-batch on the server: timeline, fence and commits would be those of a copy
        of this process there, which nothing here stops or hears of.
        """
        fix = (
            f"Run it here: floodmark run {operator.name} --unbounded --engine embedded; or with a Spark whose driver runs here: "
            "FLOODMARK_MASTER='spark://HOST:PORT' or 'local[2]'. Bounded runs and landing work on this server."
        )
        expected = "a driver in this process, which commits each micro-batch"
        got = f"{self.settings.master.partition(';')[0]}, where the server would run the commits"
        raise CapabilityError(f"stream '{operator.name}'", expected, got, fix, code="CAPABILITY-066")

    def with_session(self, work: Callable[[SparkSession], Made]) -> Made:
        """As ``Computing``."""
        return work(self.spark)

    def cancel(self) -> None:
        """As ``Computing``."""
        from pyspark.errors import PySparkException

        if self.session is not None:
            with suppress(PySparkException):  # the server may be gone
                self.session.interruptAll()
