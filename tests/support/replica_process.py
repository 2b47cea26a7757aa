"""A replication, the carrying of a savepoint or an adoption in a process of its own, which a test may kill: replica_process.py LAKE TARGET NAME [SAVEPOINT]."""

from __future__ import annotations

import sys
import threading
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from events import source
from streams import STREAMS

from floodmark import Operator, Source
from floodmark.lake.folder.paths import Lake
from floodmark.lake.replicas.adoption import adopt_stream
from floodmark.lake.replicas.carrying import carry
from floodmark.lake.replicas.replication import Replication, reaching, replicate
from floodmark.lake.restore import savepoints

EVENTS: Source = source([])


def ship(stream: Source | Operator, lake: Lake, target: Lake, rename: str = "") -> int:
    """Replicate a source or an operator; returns the number of commits."""
    replication, shipped = Replication.of(stream, lake, target, rename), list[int]()
    with reaching(replication):
        if not replication.begin():
            return 0
    replicate(
        [replication],
        until_caught_up=True,
        stop=threading.Event(),
        on_shipment=lambda _, one: shipped.append(one.version - one.first + 1),
    )
    return sum(shipped)


def carried(lake: Lake, target: Lake, name: str) -> savepoints.Savepoint:
    """Carry a savepoint with its tables."""
    savepoint = savepoints.find(lake, name)
    tables = [Replication.of(one, lake, target) for one in (EVENTS, STREAMS[savepoint.manifest.operator])]
    return carry(savepoint, lake, target, tables)


def main(root: str, other: str, name: str, savepoint: str = "") -> None:
    """Replicate NAME; with a savepoint carry that. Without another lake, adopt."""
    lake = Lake(root)
    if not other:
        adopt_stream(lake, savepoints.find(lake, savepoint))
    elif savepoint:
        carried(lake, Lake(other), savepoint)
    else:
        ship({**STREAMS, EVENTS.name: EVENTS}[name], lake, Lake(other))


if __name__ == "__main__":
    main(*sys.argv[1:])
