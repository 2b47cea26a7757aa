"""The start of a stream on the embedded engine: refusals, tables, owner of the checkpoint."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from deltalake import DeltaTable

from floodmark.core.errors import CapabilityError
from floodmark.engines.embedded.parity.check import check_operator
from floodmark.engines.embedded.state.checkpoint import NAME, Checkpoint
from floodmark.engines.embedded.unbounded.current import app_of
from floodmark.engines.starting import check_engine, check_outputs, check_tables, open_timeline
from floodmark.lake.folder.copies import remove
from floodmark.lake.folder.paths import Lake, is_local, is_reached
from floodmark.lake.results import tables
from floodmark.lake.stream import last_values, ticks
from floodmark.lake.stream.timeline import CHECKPOINT, TICKS, Timeline
from floodmark.lake.writing import copies
from floodmark.lake.writing.confirmed import create_table
from floodmark.spec.graph.operator import Operator, Output


def check_start(
    operator: Operator, lake: Lake, *, from_scratch: bool = False, filled: Collection[str] = frozenset()
) -> None:
    """The checks of a start that need no server.

    Args:
        operator: that shall run.
        lake: in which the stream runs.
        from_scratch: whether the start deletes the checkpoint.
        filled: names of operators that run first, so that their outputs need not exist yet.

    Raises:
        CapabilityError: CAPABILITY-031 or CAPABILITY-035, only Spark can run the operator.
        ExecutionError: EXECUTION-002, a table is missing.
        LifecycleError: LIFECYCLE-034 a rollback of the stream is not finished, LIFECYCLE-042 the stream has moved to another lake.
        StateError: STATE-002, STATE-003, STATE-041, the checkpoint is another operator's or engine's; STATE-036, the checkpoint is damaged.
    """
    check_supported(operator, lake)
    check_tables(operator, lake, filled)
    timeline = Timeline.current(lake, operator.name)
    if not from_scratch:
        check_engine(timeline, NAME)
        check_outputs(timeline)
        if timeline.deployed is not None:
            timeline.identity.check_owner(operator)
            timeline.checkpoint.check_newest()


def begin(operator: Operator, lake: Lake) -> Timeline:
    """The timeline on which a stream resumes; a new stream gets a timeline with its tables and its checkpoint."""
    timeline = open_timeline(
        operator,
        lake,
        ensure=lambda output: tables.ensure(lake, operator, output),
        reopen=lambda timeline: Checkpoint(timeline.folder(CHECKPOINT)).begin(),
        create=_create_checkpoint,
        clear=tables.empty,
    )
    if operator.stateful is not None and operator.stateful.clocked:
        create_table(timeline.folder(TICKS), ticks.schema())
    for output in operator.outputs:
        if output.current is not None:
            _ensure_current(operator, timeline, output, output.current)
    return timeline


def _create_checkpoint(timeline: Timeline) -> None:
    remove(timeline.folder(CHECKPOINT))
    Checkpoint(timeline.folder(CHECKPOINT)).begin()


def check_supported(operator: Operator, lake: Lake) -> None:
    """Refuse an operator that only Spark can run as a stream.

    Raises:
        CapabilityError: CAPABILITY-031 or CAPABILITY-035.
    """
    check_operator(operator)
    if not all(map(is_reached, (lake.root, *map(lake.input, operator.inputs)))):
        fix = f"Run it on Spark: floodmark run {operator.name} --unbounded --engine spark"
        where = f"unbounded run of '{operator.name}'"
        raise CapabilityError(
            where,
            "an operator the embedded engine can run",
            "one whose lake is neither on a local disk nor in a bucket",
            fix,
            code="CAPABILITY-035",
        )


def _ensure_current(operator: Operator, timeline: Timeline, output: Output, current: Output) -> None:
    """Make sure that a table of last values exists; a missing table is made from its changelog."""
    lake = timeline.lake
    path = lake.output(current.table)
    if is_local(path) and not DeltaTable.is_deltatable(path) and Path(path).exists():
        remove(path)
    if not DeltaTable.is_deltatable(path) and timeline.checkpoint.last_committed() >= 0:
        changelog = lake.output(output.table)
        source = DeltaTable(changelog)
        last_values.write(changelog, source.version(), output.keys, path)
        number = source.transaction_version(timeline.app(output.table))
        if number is not None and not output.keys:
            copies.note(path, (app_of(timeline, output), number))
    tables.ensure(lake, operator, current)
