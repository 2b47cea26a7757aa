"""What a start of a stream makes sure of, whichever engine runs it. No session is needed for it."""

from __future__ import annotations

from collections.abc import Collection

from floodmark.core.errors import StateError
from floodmark.lake.checkpoint import ENGINE, engine_of
from floodmark.lake.outputs import check_there
from floodmark.lake.paths import Lake
from floodmark.lake.savepoints import Savepoint
from floodmark.lake.storage import file_system, read
from floodmark.lake.switch import refuse_moved, refuse_while_pending
from floodmark.lake.timeline import CHECKPOINT, Timeline
from floodmark.spec.operator import Operator


def check_tables(operator: Operator, lake: Lake, filled: Collection[str] = frozenset()) -> None:
    """Make sure that a stream may run, and that its inputs are there.

    Args:
        operator: that shall run.
        lake: it runs in.
        filled: names of operators that run before it, so that their outputs need not be there yet.

    Raises:
        ExecutionError: EXECUTION-002, a table is missing.
        LifecycleError: LIFECYCLE-034 a rollback of it is not finished, LIFECYCLE-042 the stream has moved to another lake.
    """
    refuse_while_pending(lake, operator.name)
    refuse_moved(lake, operator.name)
    for given in operator.inputs:
        if given.upstream is None or given.upstream.operator.name not in filled:
            verb = "run" if given.upstream else "land"
            target = given.upstream.operator.name if given.upstream else given.table
            fix = f"Fill it first: floodmark {verb} {target}"
            check_there(lake.input(given), f"input '{given.name}' of '{operator.name}'", fix)


def check_outputs(timeline: Timeline) -> None:
    """Make sure that the tables of a stream are there still: a new table would lack all that was written.

    Raises:
        ExecutionError: EXECUTION-002.
    """
    if timeline.deployed is None:
        return
    for table in timeline.identity.made():
        fix = (
            f"Put its folder back, or compute all of it anew: floodmark run {timeline.operator} --unbounded --from-scratch --until-caught-up. "
            "Streams that read it have to be computed anew then, too."
        )
        check_there(timeline.lake.output(table), f"output '{table}' of '{timeline.operator}'", fix)


def check_engine(timeline: Timeline, engine: str) -> None:
    """Make sure that the checkpoint of a stream that has begun is one this engine can read.

    Args:
        timeline: of the stream.
        engine: that shall run it.

    Raises:
        StateError: STATE-041, another engine has written it.
    """
    found = engine_of(timeline.folder(CHECKPOINT))
    if found == engine:
        return
    if timeline.identity.deployed() is None:
        return
    name = timeline.operator
    fix = (
        f"Resume it with that one: floodmark run {name} --unbounded --engine {found}. "
        f"Or compute it anew with this one: floodmark run {name} --unbounded --from-scratch --engine {engine}."
    )
    where = f"checkpoint {timeline.folder(CHECKPOINT)}"
    raise StateError(where, f"one of engine '{engine}'", f"one of '{found}'", fix, code="STATE-041")


def check_savepoint(savepoint: Savepoint, engine: str) -> None:
    """Make sure that this engine can read the state of a savepoint.

    Args:
        savepoint: any.
        engine: that shall read it.

    Raises:
        StateError: STATE-041, another engine has made it.
    """
    found = engine_of(f"{savepoint.path}/{CHECKPOINT}")
    if found != engine:
        fix = (
            f"Take it over: floodmark savepoint export {savepoint.manifest.id} FOLDER --canonical; "
            f"floodmark savepoint import FOLDER --engine {engine}"
        )
        where = f"savepoint {savepoint.manifest.id}"
        raise StateError(where, f"one of engine '{engine}'", f"one of '{found}'", fix, code="STATE-041")


def take_for_spark(timeline: Timeline) -> None:
    """Forget that another engine was about to begin a stream, and was killed before it did."""
    path = f"{timeline.folder(CHECKPOINT)}/{ENGINE}"
    if read(path) is not None:
        files, place = file_system(path)
        files.delete_file(place)
