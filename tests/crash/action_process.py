"""An action on streams that run by themselves, in a process of its own that a test may kill: python action_process.py upgrade|rollback LAKE ROOT [SAVEPOINT]."""

from __future__ import annotations

import sys
from pathlib import Path

from lifecycle_process import LARGEST, TOTALS, WIDER, largest
from operator_process import source

from floodmark import Settings, Workspace, operator
from floodmark.control.streams import turns
from floodmark.control.streams.actions import roll_back, upgrade
from floodmark.control.streams.fleet import Fleet
from floodmark.control.streams.verification import Verification
from floodmark.lake.restore import savepoints
from floodmark.spec.graph.operator import Operator


def fleet(root: Path, lake: str, *operators: Operator) -> Fleet:
    """The streams of a workspace whose code is of no importance here, each in a process of its own, which is no real driver."""
    workspace = Workspace(sources=[source(1)], operators=operators, settings=Settings(lake=lake, streams="isolated"))
    return Fleet(workspace=workspace, root=root)


def main(action: str, lake: str, root: str, *names: str) -> None:
    """Do it; where it is killed, its turns last until the test ends them."""
    turns.LEASE_SECONDS = 3600.0
    if action == "upgrade":
        streams = fleet(Path(root), lake, WIDER, operator(largest, inputs={"totals": WIDER}))
        _, found = upgrade(streams, WIDER, verification=Verification(patience=300, soak=0.5))
    else:
        streams = fleet(Path(root), lake, TOTALS, LARGEST)
        _, found = roll_back(streams, savepoints.find(streams.lake, names[0]))
    sys.stdout.write("nothing\n" if found is None else f"{found.step}: {found.reason}\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
