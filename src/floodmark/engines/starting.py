"""The start of a stream on either engine: the checks before it, which need no session, and its timeline."""

from __future__ import annotations

from collections.abc import Callable, Collection

from floodmark.core.errors import StateError
from floodmark.lake.folder.paths import Lake
from floodmark.lake.folder.storage import file_system, read
from floodmark.lake.restore import readers
from floodmark.lake.restore.savepoints import Savepoint
from floodmark.lake.restore.switch import refuse_moved, refuse_while_pending
from floodmark.lake.results import revised
from floodmark.lake.results.tables import take_over
from floodmark.lake.stream import fence
from floodmark.lake.stream.batch_state import check_read
from floodmark.lake.stream.checkpoint import ENGINE, engine_of
from floodmark.lake.stream.timeline import CHECKPOINT, Timeline
from floodmark.lake.table import origin
from floodmark.lake.table.outputs import check_there
from floodmark.spec.graph.operator import Operator, Output


def check_tables(operator: Operator, lake: Lake, filled: Collection[str] = frozenset()) -> None:
    """Make sure that a stream may run, and that its inputs exist.

    Args:
        operator: of the stream.
        lake: in which the stream runs.
        filled: names of operators that run first, so that their outputs need not exist yet.

    Raises:
        ExecutionError: EXECUTION-002, a table is missing.
        LifecycleError: LIFECYCLE-034 a rollback of the stream is not finished, LIFECYCLE-042 the stream has moved to another lake, LIFECYCLE-045 an
            input takes back rows of any event time, LIFECYCLE-270 the outputs are replicas.
    """
    refuse_while_pending(lake, operator.name)
    refuse_moved(lake, operator.name)
    for output in operator.outputs:
        origin.check_home(lake.output(output.table), f"operator '{operator.name}'", f"{operator.name} --from SAVEPOINT")
    for input_ in operator.inputs:
        if input_.upstream is None or input_.upstream.operator.name not in filled:
            verb = "run" if input_.upstream else "land"
            target = input_.upstream.operator.name if input_.upstream else input_.table
            fix = f"Fill it first: floodmark {verb} {target}"
            check_there(lake.input(input_), f"input '{input_.name}' of '{operator.name}'", fix)
    revised.check(operator, lake)


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


def open_timeline(
    operator: Operator,
    lake: Lake,
    *,
    ensure: Callable[[Output], object],
    reopen: Callable[[Timeline], None],
    create: Callable[[Timeline], None],
    clear: Callable[[str], None],
) -> Timeline:
    """The timeline on which a stream resumes. A new stream gets a timeline of its own, with tables and a checkpoint.

    A start that is killed in here is repeated by the next start: a new timeline becomes the current one, and is claimed, last.

    Args:
        operator: operator of the stream.
        lake: lake in which the stream runs.
        ensure: output -> anything; creates the output's table, or checks an existing one.
        reopen: timeline -> None; prepares the checkpoint of a stream that has started before.
        create: timeline -> None; prepares the checkpoint of a new timeline.
        clear: path -> None; deletes all rows of a table except its markers.

    Raises:
        PlanError: PLAN-002 a table has other columns, PLAN-003 a table has other partitions.
        StateError: STATE-002, STATE-003, the checkpoint is another operator's or version's.
    """
    timeline = fence.resumed(Timeline.current(lake, operator.name), operator)
    started = timeline.identity.deployed() is not None
    readers.begins(lake)
    if started:
        timeline.identity.claim(operator)
        reopen(timeline)
    for output in operator.outputs:
        ensure(output)
    if started and timeline.fresh:  # a bounded run may have written since the stream was started first
        take_over(operator, timeline, clear)
    if not started:  # a checkpoint may be lost: a timeline is used under whose ids no table has commits
        timeline = timeline.unused(output.table for output in operator.outputs)
        create(timeline)
        take_over(operator, timeline, clear)
        timeline.make_current()
        timeline.identity.claim(operator)
    revised.inherit(operator, lake, f"{operator.name}/{timeline.number}")
    timeline.identity.keep_made(output.table for output in operator.outputs)
    if check_read(timeline):
        revised.follow(operator, lake, f"{operator.name}/{timeline.number}")
    return timeline


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
