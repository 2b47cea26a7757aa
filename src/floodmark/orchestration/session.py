"""Where the steps of a Dagster run act: the lake of the workspace, and its engine, which starts with the first step that computes something."""

from __future__ import annotations

from dataclasses import dataclass

from floodmark.control.engine import Computing, computing
from floodmark.lake.paths import Lake
from floodmark.spec.workspace import Workspace


@dataclass(frozen=True, slots=True)
class Place:
    """Where the steps of a workspace act.

    Args:
        workspace: with absolute paths.
    """

    workspace: Workspace

    @property
    def lake(self) -> Lake:
        """Where tables lie."""
        return Lake.of(self.workspace.settings)

    @property
    def computing(self) -> Computing:
        """The engine of the settings."""
        return computing(self.workspace.settings, app="floodmark in Dagster")
