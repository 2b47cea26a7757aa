"""The session of a Dagster run's process: started by the first step that computes something."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from floodmark.core.time import Interval
from floodmark.lake.paths import Lake
from floodmark.spec.operator import Operator
from floodmark.spec.run import RunResult
from floodmark.spec.workspace import Workspace

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True, slots=True)
class Place:
    """Where the steps of a workspace act: its lake, and Spark when it is needed.

    Args:
        workspace: with absolute paths.
    """

    workspace: Workspace

    @property
    def lake(self) -> Lake:
        """Where tables lie."""
        return Lake.of(self.workspace.settings)

    def spark(self) -> SparkSession:
        """The session of this process."""
        from floodmark.engines.spark.session.builder import spark_session  # noqa: PLC0415 - definitions load without it

        settings = self.workspace.settings
        return spark_session(
            app="floodmark in Dagster",
            cores=settings.master,
            shuffle_partitions=settings.shuffle_partitions,
            extra=dict(settings.spark),
        )

    def run_bounded(self, operator: Operator, lake: Lake, interval: Interval, **options: Any) -> RunResult:
        """A bounded run on the engine of the settings; options are those of its ``run_bounded``."""
        if self.workspace.settings.engine == "embedded":
            from floodmark.engines.embedded.bounded.run import run_bounded as run_embedded  # noqa: PLC0415 - the same
            from floodmark.engines.embedded.session import shared  # noqa: PLC0415 - the same

            return run_embedded(shared(self.workspace.settings.memory), operator, lake, interval, **options)
        from floodmark.engines.spark.bounded.run import run_bounded  # noqa: PLC0415 - the same

        return run_bounded(self.spark(), operator, lake, interval, **options)

    def cancel(self) -> None:
        """Cancel every job of this process's session; nothing where there is none."""
        from py4j.protocol import Py4JError  # noqa: PLC0415 - the same
        from pyspark import SparkContext  # noqa: PLC0415 - the same

        context = SparkContext._active_spark_context  # noqa: SLF001 - there is no public question for it
        if context is not None:
            with suppress(Py4JError, OSError):  # it may be stopping already
                context.cancelAllJobs()
