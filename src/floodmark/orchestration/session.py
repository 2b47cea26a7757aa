"""The workspace that the steps of a Dagster run act on: its lake, and its engine, which starts with the first step that computes."""

from __future__ import annotations

from dataclasses import dataclass

from floodmark.control.processes.engine import Computing, computing
from floodmark.lake.folder.paths import Lake
from floodmark.spec.values.budget import Budget
from floodmark.spec.workspace import Workspace


@dataclass(frozen=True, slots=True)
class StepWorkspace:
    """The workspace that steps act on.

    Args:
        workspace: the workspace, with absolute paths.
    """

    workspace: Workspace

    @property
    def lake(self) -> Lake:
        """The lake of the workspace."""
        return Lake.of(self.workspace.settings)

    def within(self, budget: Budget | None) -> Computing:
        """The engine named in the settings, within a budget.

        Raises:
            LifecycleError: LIFECYCLE-204, the budget is too small.
        """
        return computing(self.workspace.settings, app="floodmark in Dagster", budget=budget)

    @property
    def computing(self) -> Computing:
        """The engine named in the settings."""
        return computing(self.workspace.settings, app="floodmark in Dagster")
