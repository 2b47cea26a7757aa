"""Adoption: a lake with replicas becomes the home of their tables, and landings and streams resume in it.

The lake that was the home becomes a replica once it is replicated to. Until then it may still take rows, which no other lake gets.
"""

from __future__ import annotations

from collections.abc import Iterable

from floodmark.core import crash
from floodmark.core.errors import LifecycleError
from floodmark.lake.folder.locks import exclusive
from floodmark.lake.folder.paths import Lake
from floodmark.lake.restore import savepoints
from floodmark.lake.restore.savepoints import Savepoint
from floodmark.lake.restore.switch import pending, perform, refuse_another, stopped
from floodmark.lake.stream.batch_state import check_inputs, check_output
from floodmark.lake.stream.timeline import Timeline
from floodmark.lake.table import entries, origin
from floodmark.lake.table.origin import Origin
from floodmark.lifecycle.switch import Switchover, Target


def adopt_source(lake: Lake, name: str) -> int:
    """Make a lake the home of a source's log. A landing resumes behind the rows that the replica has. Repeating the call after a crash completes it.

    Returns:
        Version of the log behind which commits are made here.

    Raises:
        LifecycleError: LIFECYCLE-276, the log is no replica; LIFECYCLE-003, a landing is at work.
    """
    log = lake.log(name)
    with exclusive(lake, "sources", name, "landing", role="adoption"):
        if not origin.is_replica(log):
            raise _no_replica(f"source '{name}' in lake {lake.root}", f"floodmark land {name}")
        _become_home(
            [lake.quarantine(name), lake.internal("sources", name, "files"), log]
        )  # the log decides, and comes last
    return entries.version_of(log)


def adopt_stream(lake: Lake, savepoint: Savepoint) -> Timeline:
    """Make a lake the home of an operator's outputs, and begin its stream there from a savepoint. Repeating the call after a crash completes it.

    The outputs go back to the savepoint: rows that the home has computed behind it are computed again, and are equal.

    Args:
        lake: lake with the replicas and the savepoint.
        savepoint: savepoint from which the stream resumes.

    Returns:
        The timeline on which it resumes.

    Raises:
        ExecutionError: EXECUTION-002, a table is missing.
        LifecycleError: LIFECYCLE-276 the outputs are no replicas and a stream has begun, 036 and 038 an output or an input is another table, 003 a run is
            at work, 034 another rollback is not finished.
        StateError: STATE-021, the savepoint is damaged.
    """
    manifest = savepoint.manifest
    name = manifest.operator
    again = f"floodmark adopt {name} --from {manifest.id}"
    with stopped(lake, [name]):
        begun = pending(lake)
        if begun is not None and begun.again == again:
            perform(lake, begun)
            return Timeline.current(lake, name)
        refuse_another(lake, name, again)
        paths, current = [lake.output(output.table) for output in manifest.outputs], Timeline.current(lake, name)
        if not any(map(origin.is_replica, paths)) and current.identity.deployed() is not None:
            raise _no_replica(f"operator '{name}' in lake {lake.root}", f"floodmark run {name} --unbounded")
        savepoints.check(savepoint)
        check_inputs(lake, manifest.version, manifest.inputs, since=savepoint.since)
        fix = f"Copy the savepoint again, where it was made: floodmark savepoint copy {manifest.id} --to {lake.root}"
        for output in manifest.outputs:
            check_output(lake, output, f"adoption of '{name}', table '{output.table}'", fix)
        number = max(current.next().number, manifest.timeline + 1)
        switch = Switchover(
            again=again, targets=(Target.onto(manifest, timeline=number, ends=manifest.timeline, source=""),)
        )
        crash.point("adoption.before_tables")
        _become_home([*(f"{path}__current" for path in paths if entries.is_table(f"{path}__current")), *paths])
        crash.point("adoption.after_tables")
        perform(lake, switch)
    return Timeline.current(lake, name)


def _become_home(paths: Iterable[str]) -> None:
    for path in paths:
        known = origin.read(path)
        if known is not None and known.is_replica:
            origin.write(path, Origin(table=known.table, term=known.term + 1))
            crash.point("adoption.after_table")


def _no_replica(where: str, use: str) -> LifecycleError:
    fix = f"It can be used as it is: {use}. Replicas come from: floodmark replicate NAME --to LAKE"
    return LifecycleError(where, "a replica", "none", fix, code="LIFECYCLE-276")
