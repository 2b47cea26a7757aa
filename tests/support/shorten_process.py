"""A stream on Spark goes on with files, before Java is needed, in a process of its own that a test may kill."""

from __future__ import annotations

import sys
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

from streams import PLAIN

from floodmark.engines.spark.state.checkpoint import Checkpoint
from floodmark.engines.spark.unbounded import inputs
from floodmark.lake.folder.paths import Lake
from floodmark.lifecycle.savepoint import TableVersion

FAR_BEHIND = 5
READER: Any = SimpleNamespace(inputs=(replace(PLAIN.inputs[0], name="s", table="s"),), stateful=None)


def timeline(lake: str, checkpoint: str) -> Any:
    """Of the stream that reads the log ``s``."""
    deployed = SimpleNamespace(graph={"inputs": [["s"]], "outputs": []})
    identity = SimpleNamespace(deployed=lambda: deployed)
    return SimpleNamespace(lake=Lake(lake), checkpoint=Checkpoint(checkpoint), identity=identity, newest_written=4)


if __name__ == "__main__":
    lake, checkpoint, table, version, file = sys.argv[1:]
    known: Any = inputs
    known.FAR_BEHIND = FAR_BEHIND
    known.positions_at = lambda one, batch: {"s": one.checkpoint.positions(batch)[0]}
    reading = TableVersion(table="s", id=table, version=int(version), file=int(file))
    inputs.shorten(READER, timeline(lake, checkpoint), 4, {"s": reading})
