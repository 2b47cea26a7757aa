"""A sensor for asset partitions: deferrable, so that waiting for a watermark holds no worker."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseSensorOperator
from airflow.sdk.exceptions import AirflowException
from airflow.triggers.base import BaseTrigger, TriggerEvent

from floodmark_airflow.errors import error_of
from floodmark_airflow.workspace import Workspace

if TYPE_CHECKING:
    from airflow.sdk import Context


class PartitionSensor(BaseSensorOperator):
    """Waits until an asset partition is complete: its stream's watermark has passed its end, or bounded runs have computed it.

    Args:
        workspace: where the operator is; a deferred sensor reads it in the triggerer's process.
        operator: its name. Templated.
        partition: an asset partition, or ``FIRST...LAST``; None: the partition key of the DAG run. Templated.
        deferrable: wait in the triggerer, not in a worker.
    """

    template_fields: Sequence[str] = ("operator", "partition")

    def __init__(
        self,
        *,
        workspace: Workspace,
        operator: str,
        partition: str | None = None,
        deferrable: bool = True,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.workspace = workspace
        self.operator = operator
        self.partition = partition
        self.deferrable = deferrable

    def execute(self, context: Context) -> Any:
        """Wait, in the triggerer if deferrable."""
        if not self.deferrable:
            return super().execute(context)
        if not self.poke(context):
            trigger = PartitionTrigger(
                command=self._command(context), folder=self.workspace.folder, seconds=self.poke_interval
            )
            self.defer(
                trigger=trigger, method_name="resume", timeout=timedelta(seconds=self.timeout) if self.timeout else None
            )
        return None

    def poke(self, context: Context) -> bool:
        """Whether the partition is complete."""
        return bool(self.workspace.ask(*self._words(context))["complete"])

    def resume(self, context: Context, event: dict[str, Any]) -> None:  # noqa: ARG002 - Airflow's signature
        """The end of the wait."""
        if "error" in event:
            raise AirflowException(event["error"])

    def _command(self, context: Context) -> list[str]:
        return self.workspace.command(*self._words(context))

    def _words(self, context: Context) -> list[str]:
        partition = self.partition or context.get("partition_key")
        if not partition:
            msg = "no partition to wait for: the run of the DAG has no partition key, and partition= names none"
            raise AirflowException(msg)
        return ["partitions", self.operator, "--partition", partition]


class PartitionTrigger(BaseTrigger):
    """Asks again and again whether asset partitions are complete.

    Args:
        command: prints a document with ``complete``.
        folder: to run it in.
        seconds: between two questions.
    """

    def __init__(self, *, command: list[str], folder: str, seconds: float) -> None:
        super().__init__()
        self.command = command
        self.folder = folder
        self.seconds = seconds

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """The trigger as the database keeps it."""
        arguments = {"command": self.command, "folder": self.folder, "seconds": self.seconds}
        return f"{__name__}.PartitionTrigger", arguments

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Ask until the partitions are complete, or the question fails."""
        while True:
            process = await asyncio.create_subprocess_exec(
                *self.command, cwd=self.folder, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
            )
            printed, said = (text.decode("utf-8", "replace") for text in await process.communicate())
            if process.returncode:
                yield TriggerEvent({"error": str(error_of(process.returncode, printed, said))})
                return
            if json.loads(printed)["complete"]:
                yield TriggerEvent({"complete": True})
                return
            await asyncio.sleep(self.seconds)
