"""The job of a delivery: the changes of an output leave for a sink, without an engine and without the operator's driver."""

# ruff: noqa: PLC0415 - deliveries need no engine, and drivers of others no deliveries

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from floodmark.lifecycle.usage import Usage
from floodmark.observe.measure import Committed, Measure
from floodmark.spec.assets.delivery import Route
from floodmark.spec.workspace import Settings

if TYPE_CHECKING:
    from floodmark.deliveries.run import Delivery
    from floodmark.lake.folder.paths import Lake


@dataclass(slots=True)
class Delivering:
    """A delivery, as a job.

    Args:
        route: the delivery.
        settings: settings of the workspace, with absolute paths.
        version: version in the deployment.
    """

    route: Route
    settings: Settings
    version: str

    @property
    def _lake(self) -> Lake:
        from floodmark.lake.folder.paths import Lake

        return Lake.of(self.settings)

    @property
    def _path(self) -> str:
        return self._lake.written(self.route.operator, self.route.output.table)

    def awaits(self) -> str:
        """As ``Job``: the output's table, as its operator may not have run yet."""
        from floodmark.lake.table.entries import is_table

        return "" if is_table(self._path) else f"waiting for {self.route.output.table}: nothing is there yet"

    def start(self) -> None:
        """As ``Job``: nothing is started."""

    @property
    def graph(self) -> dict[str, Any]:
        """As ``Job``."""
        table = self.route.output.table
        output = {"id": "input", "kind": "input", "label": table, "table": table}
        sink = {"id": "output", "kind": "output", "label": type(self.route.delivery).__name__, "table": ""}
        return {"nodes": [output, sink], "edges": [["input", "output"]]}

    def missed(self, history: str, number: int) -> list[Measure]:  # noqa: ARG002 - of a job
        """As ``Job``: none, as what a killed driver has delivered is in no table of the lake."""
        return []

    def run(
        self, stop: threading.Event, on_commit: Callable[[Committed], None], on_wait: Callable[[str], None]
    ) -> Mapping[str, int] | None:
        """As ``Job``. Waits while the sink is away."""
        from floodmark.deliveries.run import deliver

        lake, path, name = self._lake, self._path, self.route.output.table

        def record(delivery: Delivery) -> None:
            at = delivery.position
            measure = Measure(
                history=f"{self.route.name}/{lake.root}",
                number=at.number,
                at=time.time(),
                seconds=delivery.seconds,
                phases={"deliver": delivery.seconds},
                rows_in=delivery.rows + delivery.retractions,
                rows={name: delivery.rows},
                retractions=delivery.retractions,
                progress=at.progress,
                read={path: (at.version, -1, at.table, None)},
                waiting=delivery.waiting,
            )
            usage = Usage(rows=delivery.rows + delivery.retractions, busy=delivery.seconds)
            on_commit(
                Committed(number=at.number, progress=at.progress, usage=usage, text=f"{delivery}", measure=measure)
            )

        deliver(self.route, lake, stop=stop, on_delivery=record, on_wait=on_wait)
        return None
