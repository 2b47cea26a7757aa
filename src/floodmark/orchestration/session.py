"""The workspace that the steps of a Dagster run act on: its lake, and its engine, which starts with the first step that computes.

Definitions have it as the resource ``floodmark``, for assets of users: ``def report(floodmark: dg.ResourceParam[StepWorkspace])``.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable

from floodmark.control.processes.engine import Computing, computing
from floodmark.core.errors import DefinitionError, LifecycleError, closest
from floodmark.core.time import from_ms
from floodmark.lake.folder.paths import Lake
from floodmark.spec.values.budget import Budget
from floodmark.spec.values.schema import PARTITION, ROW, STAMPS
from floodmark.spec.windowing.partitions import named
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

    def rows(self, table: str, partition: str | None = None) -> pa.Table:
        """The rows of a source's log or of an output as people see them, without stamps; of results that are revised the last values.

        Args:
            table: name of the source, or of the output's table.
            partition: name of an asset partition, or ``FIRST...LAST``; None for all rows.

        Raises:
            DefinitionError: DEFINITION-071, no such table.
            LifecycleError: LIFECYCLE-190 and others as of ``named``, no such partition, or a table that has none.
        """
        outputs = {one.table: one for asset in self.workspace.operator_assets for one in asset.operator.outputs}
        if table not in outputs and table not in {one.name for one in self.workspace.sources}:
            every = [*(one.name for one in self.workspace.sources), *outputs]
            fix = f"{closest(table, every)}Tables: {', '.join(every)}."
            raise DefinitionError(
                "resource floodmark", "a source or an output", repr(table), fix, code="DEFINITION-071"
            )
        output = outputs.get(table)
        path = self.lake.log(table) if output is None else self.lake.output((output.current or output).table)
        condition = pc.field("_kind") == ROW
        if partition is not None:
            if output is None or output.partitions is None:
                fix = "Leave the partition out."
                where, got = f"rows of '{table}'", f"partition {partition}"
                raise LifecycleError(where, "all rows of a table that is not divided", got, fix, code="LIFECYCLE-190")
            interval = named(output.partitions, partition, "partition")
            at = pc.field("_event_time")
            condition &= (at >= _moment(interval.start)) & (at < _moment(interval.end))
        rows = DeltaTable(path).to_pyarrow_dataset().to_table(filter=condition)
        return rows.drop_columns([name for name in (*STAMPS, PARTITION) if name in rows.column_names])

    @property
    def computing(self) -> Computing:
        """The engine named in the settings."""
        return computing(self.workspace.settings, app="floodmark in Dagster")


def _moment(milliseconds: int) -> pa.Scalar:
    return pa.scalar(from_ms(milliseconds), pa.timestamp("us", "UTC"))
