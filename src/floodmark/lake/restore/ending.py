"""The end of input of a log, and its removal while no stream has read it.

The end of input is a marker, the last row of the log. Its file is removed with ``dataChange=false``, as in a compaction, so a new stream does not read
the marker. The commit that added the marker stays in the table's log, so a stream that stopped before that commit resumes with the current files
(``reopened_since``) instead of commit by commit.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from itertools import takewhile

import pyarrow.compute as pc
from deltalake import DeltaTable
from deltalake.transaction import AddAction, RemoveAction

from floodmark.core.errors import LifecycleError
from floodmark.lake.folder.paths import Lake
from floodmark.lake.logs import log
from floodmark.lake.restore import savepoints
from floodmark.lake.restore.readers import places
from floodmark.lake.restore.switch import stopped
from floodmark.lake.stream.checkpoint import Position, engine_of
from floodmark.lake.stream.timeline import TICKS, Timeline, positions_at, streams
from floodmark.lake.table import entries, history
from floodmark.lake.table.commits import Landing
from floodmark.lake.table.outputs import input_path
from floodmark.lake.table.sequences import in_order
from floodmark.lake.writing import compaction
from floodmark.lake.writing.writer import Writer


@dataclass(frozen=True, slots=True)
class End:
    """An end of input.

    Args:
        path: path of the log.
        version: table version of the commit that added the end.
        landing: record of that landing commit.
        before: record of the landing commit before; its ordinal is -1 if there is none.
    """

    path: str
    version: int
    landing: Landing
    before: Landing

    @property
    def sequence(self) -> int:
        """``_sequence`` of the end's marker."""
        return self.landing.next_sequence - 1

    def read_at(self, at: Position) -> bool:
        """True if a reader at a position has read the end, or is reading a set of files that includes the end."""
        return max(at.version, -1 if at.snapshot is None else at.snapshot) >= self.version


def end_of(path: str, source: str) -> End | None:
    """The end of input of a log; None if the input has not ended.

    Raises:
        StateError: STATE-010, the landing commit before the end is no longer retained.
    """
    last = log.newest(path)
    if last is None or not last.ended:
        return None
    landings = log.landings(path)
    next(landings, None)
    before = next(landings, None) or Landing(source=source)
    version = next(commit.version for commit in history.every(path) if isinstance(commit.record, Landing))
    return End(path, version, last, before)


def reopened_since(path: str, version: int) -> bool:
    """True if a commit after a version of a log removed an end of input. Reads the log entries after the version."""
    commits = takewhile(lambda commit: commit.version > version, history.every(path))
    return any(isinstance(commit.record, Landing) and commit.record.reopens for commit in commits)


@contextmanager
def unread(lake: Lake, source: str, end: End) -> Iterator[None]:
    """Hold the locks of all streams that read a log, in its lake and in forks, after checking that none has read the end.

    Args:
        lake: the lake of the log.
        source: name of the log's source.
        end: the end of input.

    Raises:
        LifecycleError: LIFECYCLE-003 a stream is running; LIFECYCLE-013 a stream or a savepoint has read the end of input, a stream will read it when it
            repeats its current micro-batch, or the order of the log's files is unknown.
    """
    with ExitStack() as stack:
        for reading_lake in places(lake):
            reading = [
                name
                for name, deployed in streams(reading_lake).items()
                if end.path in {input_path(reading_lake, table) for table in deployed.reads}
                and Timeline.current(reading_lake, name).moved is None
            ]
            stack.enter_context(stopped(reading_lake, reading))
            for name in reading:
                _check_stream(reading_lake, name, source, end)
            _check_savepoints(reading_lake, source, end)
        if in_order(DeltaTable(end.path)) is None:
            fix = "Land what is to come under a new source name, or into a new lake."
            expected, got = "files in the order of their rows", "files of which the order is not known"
            raise LifecycleError(f"log {end.path}", expected, got, fix, code="LIFECYCLE-013")
        yield


def _check_stream(lake: Lake, name: str, source: str, end: End) -> None:
    timeline = Timeline.current(lake, name)
    last = timeline.checkpoint.last_committed()
    committed, planned = (_positions(timeline, batch, source) for batch in (last, last + 1))
    if any(end.read_at(at) for at in (*committed, *planned)):
        got = (
            f"stream '{name}' in {lake.root} has read it, in micro-batch {last + 1 if planned else last} at the latest"
        )
    elif planned and engine_of(timeline.checkpoint.path) == "spark" and _repeats_planned_batch(timeline, last):
        got = f"stream '{name}' in {lake.root} was killed in micro-batch {last + 1}, and reads the end when it resumes"
    else:
        return
    fix = (
        f"Roll the stream back to a savepoint from before: floodmark savepoint list {name}, floodmark rollback {name} --to SAVEPOINT, then "
        f"floodmark land {source} --reopen. Without such a savepoint: land what is to come under a new source name, or into a new lake."
    )
    raise LifecycleError(
        f"source '{source}'", "an end of input that no stream has read", got, fix, code="LIFECYCLE-013"
    )


def _positions(timeline: Timeline, batch: int, source: str) -> list[Position]:
    """Positions in the log of a source at the end of a micro-batch; empty if the micro-batch is not planned."""
    deployed = timeline.identity.deployed()
    if deployed is None or batch < 0 or not timeline.checkpoint.positions(batch):
        return []
    names = {name for name, table, *_ in deployed.graph["inputs"] if table == source}
    return [at for name, at in positions_at(timeline, batch).items() if name in names]


def _repeats_planned_batch(timeline: Timeline, last: int) -> bool:
    """True if Spark repeats the micro-batch after ``last`` as planned, and then reads commit by commit (``shorten``)."""
    return last < 0 or entries.is_table(timeline.folder(TICKS)) or timeline.newest_written > last


def _check_savepoints(lake: Lake, source: str, end: End) -> None:
    for savepoint in savepoints.all_readable(lake):
        inputs = savepoint.manifest.inputs.values()
        if any(input_path(lake, given.table) == end.path and given.version >= end.version for given in inputs):
            fix = (
                f"A rollback to it would take the end with it. Delete it: floodmark savepoint delete {savepoint.id}, then "
                f"floodmark land {source} --reopen. To keep it: land what is to come under a new source name, or into a new lake."
            )
            got = f"savepoint '{savepoint.id}' in {lake.root} has read it"
            expected = "an end of input that no savepoint has read"
            raise LifecycleError(f"source '{source}'", expected, got, fix, code="LIFECYCLE-013")


def reopen(end: End, landing: Landing) -> None:
    """Commit a landing that removes the end's marker from the log.

    Raises:
        LifecycleError: LIFECYCLE-004, every attempt conflicted with another writer.
    """

    def changed(table: DeltaTable) -> tuple[list[RemoveAction], list[AddAction]]:
        ends = next(file for file in compaction.files_of(table) if file.last == end.sequence)
        empty = ends.first == ends.last == end.sequence
        return compaction.without(
            end.path, table, ends, lambda rows: pc.equal(rows["_sequence"], end.sequence), empty=empty
        )

    Writer(end.path).take_out(
        changed, replace(landing, reopens=True), (log.application(landing.source), landing.ordinal)
    )
