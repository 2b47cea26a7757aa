"""A savepoint carried to another lake, with the tables that it names: the stream can then resume there."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

from floodmark.core import crash
from floodmark.lake.folder.paths import Lake
from floodmark.lake.folder.storage import read
from floodmark.lake.replicas.replication import Replication
from floodmark.lake.replicas.shipping import Shipment
from floodmark.lake.restore import savepoints, versions
from floodmark.lake.restore.savepoints import Savepoint
from floodmark.lake.table import entries
from floodmark.lifecycle.savepoint import MANIFEST


def carry(
    savepoint: Savepoint,
    lake: Lake,
    target: Lake,
    tables: Sequence[Replication],
    on_shipment: Callable[[Shipment], None] = lambda _: None,
) -> Savepoint:
    """Copy a savepoint into another lake, after the tables that it names. Repeating the call after a crash completes it.

    Args:
        savepoint: of an operator's stream.
        lake: its lake.
        target: the other lake.
        tables: the operator's outputs, and the logs and outputs that it reads.
        on_shipment: called after each shipment of rows.

    Returns:
        The savepoint in the other lake.

    Raises:
        LifecycleError: as ``Replication.begin``.
        StateError: STATE-021, the savepoint is damaged.
    """
    savepoints.check(savepoint)
    savepoint.put_back(lake)
    for replication in tables:
        if replication.begin():
            replication.ship(on_shipment, threading.Event())
    for output in savepoint.manifest.outputs:
        folder = savepoint.holds(output.table)
        for replication in tables:
            for table in replication.tables:
                if folder and table.source == lake.output(output.table):
                    table.copy_files(versions.files(folder), entries.beside(table.source, "spared"))
    crash.point("replica.before_savepoint")
    home = target.internal("savepoints", savepoint.manifest.operator, savepoint.manifest.id)
    if read(f"{home}/{MANIFEST}") is None:
        savepoints.import_savepoint(target, savepoint.path)
    return savepoints.find(target, savepoint.manifest.id)
