"""Forks: a stream of its own from a savepoint, in a lake of its own, which reads what the original reads and never writes what it writes."""

from __future__ import annotations

from floodmark.core import crash
from floodmark.core.errors import LifecycleError
from floodmark.engines.spark import savepoints
from floodmark.engines.spark.graft import graft
from floodmark.engines.spark.lake import Lake
from floodmark.engines.spark.savepoints import Savepoint
from floodmark.engines.spark.timeline import Timeline


def fork(lake: Lake, savepoint: Savepoint, root: str, *, fresh: bool = False) -> Lake:
    """Begin a stream in another lake where a savepoint stands. Doing it again after a crash finishes it.

    Args:
        lake: of the savepoint.
        savepoint: to begin with.
        root: of the new lake; it may hold forks of other operators.
        fresh: begin with empty outputs instead of those of the savepoint.

    Returns:
        The new lake.

    Raises:
        LifecycleError: LIFECYCLE-041 the operator has a stream there already, or it is the same lake; LIFECYCLE-038 an input is
            not the one it was.
        StateError: STATE-021, the savepoint is damaged.
    """
    manifest, target = savepoint.manifest, Lake(root)
    timeline = Timeline.current(target, manifest.operator)
    if target.root == lake.root or timeline.checkpoint.deployed() is not None:
        got = "the lake of the savepoint" if target.root == lake.root else "one where it has begun already"
        fix = f"Name an empty folder: floodmark fork {manifest.operator} --from {manifest.id} --into elsewhere"
        where = f"fork of '{manifest.operator}' into {target.root}"
        raise LifecycleError(where, "a lake without a stream of it", got, fix, code="LIFECYCLE-041")
    savepoints.check(savepoint)
    savepoints.check_inputs(lake, manifest.operator, manifest.inputs)
    target = lake.fork(root)
    crash.point("fork.before_tables")
    for output in () if fresh else manifest.outputs:
        words = {
            "operator": manifest.operator,
            "version": manifest.version,
            "mode": "fork",
            "timeline": timeline.number,
            "table": output.table,
            "restored": -1,
            "savepoint": manifest.id,
            "batch": manifest.batch,
            "progress": manifest.watermark,
            "rows": 0,
        }
        app = f"{timeline.app(output.table)}/fork/{manifest.id}"
        graft(lake.output(output.table), target.output(output.table), app, words, output.version)
        crash.point("fork.after_table")
    savepoints.restore(savepoint, timeline.folder())
    crash.point("fork.after_state")
    return target
