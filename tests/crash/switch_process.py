"""A switch of a small lake without Spark, in a process that a test may kill: python switch_process.py rebuild|rollback|delete|import LAKE ARGUMENT."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "support"))

from floodmark.lake.folder.paths import Lake
from floodmark.lake.restore import savepoints
from floodmark.lake.restore.rollback import roll_back
from floodmark.lake.restore.switch import pending, perform, stopped
from floodmark.lake.stream.timeline import Timeline
from floodmark.lifecycle.switch import Switchover, Target


def rebuild(lake: Lake, beside: Lake) -> None:
    """Switch to what was computed in a lake beside, as ``apply --rebuild`` does."""
    begun = pending(lake)
    if begun is None:
        timeline = Timeline.current(lake, "totals")
        taken = savepoints.import_savepoint(lake, savepoints.create("totals", beside).path).manifest
        target = Target.onto(taken, timeline=timeline.next().number, ends=timeline.number, source=beside.root)
        begun = Switchover(again="floodmark apply totals --rebuild", targets=(target,))
    with stopped(lake, begun.operators):
        perform(lake, begun)


def main(action: str, root: str, argument: str) -> None:
    """Do it."""
    lake = Lake(root)
    match action:
        case "rebuild":
            rebuild(lake, Lake(argument))
        case "rollback":
            roll_back(lake, savepoints.find(lake, argument))
        case "delete":
            savepoints.delete(savepoints.find(lake, argument))
        case "import":
            savepoints.import_savepoint(lake, argument)


if __name__ == "__main__":
    main(*sys.argv[1:])
