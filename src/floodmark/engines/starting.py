"""Checks before the start of a stream that both engines make. No session is needed."""

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
    """Make sure that a stream may run, and that its inputs exist.

    Args:
        operator: of the stream.
        lake: in which the stream runs.
        filled: names of operators that run first, so that their outputs need not exist yet.

    Raises:
        ExecutionError: EXECUTION-002, a table is missing.
        LifecycleError: LIFECYCLE-034 a rollback of the stream is not finished, LIFECYCLE-042 the stream has moved to another lake.
    """
    refuse_while_pending(lake, operator.name)
    refuse_moved(lake, operator.name)
    for input_ in operator.inputs:
        if input_.upstream is None or input_.upstream.operator.name not in filled:
            verb = "run" if input_.upstream else "land"
            target = input_.upstream.operator.name if input_.upstream else input_.table
            fix = f"Fill it first: floodmark {verb} {target}"
            check_there(lake.input(input_), f"input '{input_.name}' of '{operator.name}'", fix)


def check_outputs(timeline: Timeline) -> None:
    """Make sure that the tables which a stream has written still exist: a new table would lack the rows written so far.

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
    """Make sure that an engine can read the checkpoint of a stream. A stream without a deployed definition passes.

    Args:
        timeline: of the stream.
        engine: that shall run the stream.

    Raises:
        StateError: STATE-041, another engine has written the checkpoint.
    """
    written_by = engine_of(timeline.folder(CHECKPOINT))
    if written_by == engine:
        return
    if timeline.identity.deployed() is None:
        return
    name = timeline.operator
    fix = (
        f"Resume it with that one: floodmark run {name} --unbounded --engine {written_by}. "
        f"Or compute it anew with this one: floodmark run {name} --unbounded --from-scratch --engine {engine}."
    )
    where = f"checkpoint {timeline.folder(CHECKPOINT)}"
    raise StateError(where, f"one of engine '{engine}'", f"one of '{written_by}'", fix, code="STATE-041")


def check_savepoint(savepoint: Savepoint, engine: str) -> None:
    """Make sure that an engine can read the state of a savepoint.

    Args:
        savepoint: any.
        engine: that shall read the savepoint.

    Raises:
        StateError: STATE-041, another engine has made the savepoint.
    """
    made_by = engine_of(f"{savepoint.path}/{CHECKPOINT}")
    if made_by != engine:
        fix = (
            f"Take it over: floodmark savepoint export {savepoint.manifest.id} FOLDER --canonical; "
            f"floodmark savepoint import FOLDER --engine {engine}"
        )
        where = f"savepoint {savepoint.manifest.id}"
        raise StateError(where, f"one of engine '{engine}'", f"one of '{made_by}'", fix, code="STATE-041")


def take_for_spark(timeline: Timeline) -> None:
    """Delete the note that another engine owns a checkpoint: that engine was killed before it started the stream."""
    uri = f"{timeline.folder(CHECKPOINT)}/{ENGINE}"
    if read(uri) is not None:
        files, path = file_system(uri)
        files.delete_file(path)
