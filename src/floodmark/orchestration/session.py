"""The Spark session of a Dagster run's process: started by the first step that computes something."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from floodmark.lake.paths import Lake
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

    def cancel(self) -> None:
        """Cancel every job of this process's session; nothing where there is none."""
        from py4j.protocol import Py4JError  # noqa: PLC0415 - the same
        from pyspark import SparkContext  # noqa: PLC0415 - the same

        context = SparkContext._active_spark_context  # noqa: SLF001 - there is no public question for it
        if context is not None:
            with suppress(Py4JError, OSError):  # it may be stopping already
                context.cancelAllJobs()
