"""The session of a Dagster run's process: started by the first step that computes something."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING

from floodmark.control.engine import Computing, OnSpark, computing
from floodmark.lake.paths import Lake
from floodmark.spec.workspace import Workspace

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_APP = "floodmark in Dagster"


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
        """The session of Spark of this process: checks read tables through it, whatever the engine is."""
        return OnSpark(self.workspace.settings, _APP, lambda _: nullcontext()).spark

    @property
    def computing(self) -> Computing:
        """The engine of the settings."""
        return computing(self.workspace.settings, app=_APP)

    def cancel(self) -> None:
        """Cancel every job of this process's session of Spark; nothing where there is none."""
        OnSpark(self.workspace.settings, _APP, lambda _: nullcontext()).cancel()
