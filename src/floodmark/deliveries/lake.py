"""A replica in another lake: its log remembers how far it is."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass, field

from floodmark.core.errors import ConnectorError
from floodmark.deliveries.sink import Away, CommitSink
from floodmark.lake.folder.paths import Lake
from floodmark.lake.replicas.replication import AWAY, Replication, reaching
from floodmark.lake.replicas.shipping import Shipment
from floodmark.spec.assets.delivery import Route
from floodmark.spec.assets.to_lake import ToLake


@dataclass(slots=True)
class LakeSink(CommitSink):
    """Replicates the log of a source, or all outputs of an operator.

    Args:
        settings: of the delivery.
        route: the delivery.
    """

    settings: ToLake
    route: Route
    _replication: Replication | None = field(default=None, init=False)

    def prepare(self) -> None:
        """As ``CommitSink``: the next shipment looks at the other lake again."""
        self._replication = None

    def ship(self, lake: Lake, stop: threading.Event) -> Iterator[Shipment]:
        """As ``CommitSink``. The first shipment has no commit, and says what the other lake has. A lake that is the home of the tables gets nothing."""
        shipments = list[Shipment]()
        try:
            if self._replication is None:
                replication = Replication.of(self.route.operator, lake, Lake(self.settings.lake), self.settings.rename)
                with reaching(replication):
                    if not replication.tables[0].exists or not replication.begin():
                        return
                    there = replication.reached()
                self._replication, shipments = replication, [] if there is None else [there]
            with reaching(self._replication):
                self._replication.ship(shipments.append, stop)
            yield from shipments
        except ConnectorError as error:
            if error.code != AWAY:
                raise
            raise Away(error.where, error.expected, error.got, error.fix, code=AWAY) from error
