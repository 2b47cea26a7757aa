"""Consistent cuts through streams that read one another: each stream has read exactly what its upstream streams have written."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any

from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from floodmark.core.errors import LifecycleError
from floodmark.lake.folder.paths import Lake
from floodmark.lake.restore import savepoints, versions
from floodmark.lake.restore.savepoints import Savepoint
from floodmark.lake.stream.batch_state import BatchState, check_read, state_at
from floodmark.lake.stream.timeline import Timeline, streams
from floodmark.lake.table import entries, history, sequences
from floodmark.lake.table.commits import MicroBatch, Restored
from floodmark.lake.table.history import Commit
from floodmark.lake.table.outputs import input_path
from floodmark.lifecycle.plan import Deployed
from floodmark.lifecycle.rollback import Agrees, cut
from floodmark.lifecycle.savepoint import TableVersion

_SEARCHED = 50
"""Micro-batches per stream that are searched. Spark cleans up batches older than about a hundred, even while a savepoint is created."""


def readers(operator: str, known: dict[str, Deployed]) -> list[str]:
    """Names of the streams that read a stream's outputs, directly or through other streams; upstream first.

    Args:
        operator: the stream whose readers are searched.
        known: operator -> deployed definition, upstream first.
    """
    names, written = [], set(known[operator].tables) if operator in known else set()
    for name, deployed in known.items():
        if name != operator and written & set(deployed.reads):
            names.append(name)
            written |= set(deployed.tables)
    return names


def agreeing(lake: Lake) -> Agrees:
    """Build the check used by ``cut``: (read, restored, columns) -> True if a reader can resume on the restored version.

    A reader can resume if no row changed between the version it has read and the restored version, and the restored version has every column.
    """

    @cache
    def lacks(table: str, version: int, needs: frozenset[str]) -> bool:
        try:
            schema = DeltaTable(lake.output(table), version=version).schema()
        except DeltaError:  # its log entries were removed; a restore of that version is refused later
            return False
        return not needs <= {field.name for field in schema.fields}

    def agrees(read: TableVersion, back: TableVersion, needs: frozenset[str]) -> bool:
        low, high = sorted((read.version, back.version))
        path = lake.output(back.table)
        return (
            unchanged(path, low, high)
            and history.row_changes_known(path, low, high)
            and not lacks(back.table, back.version, needs)
        )

    return agrees


def commits(path: str, since: int, upto: int | None = None) -> Iterator[Commit]:
    """Commits after a version that change rows, newest first, without commits that a restore has revoked.

    Args:
        path: path of the table.
        since: the version after which commits count.
        upto: the last version that counts; by default the newest.
    """
    undone: int | None = None
    for commit in history.every(path):
        if commit.version <= since:
            return
        if (upto is not None and commit.version > upto) or (undone is not None and commit.version > undone):
            continue
        if isinstance(commit.record, Restored):
            if 0 <= commit.record.difference <= since:  # what it puts in place is read already
                continue
            undone = commit.record.restored
            if undone >= since:
                continue
        if commit.changes_rows:
            yield commit


def unchanged(path: str, since: int, upto: int | None = None) -> bool:
    """True if no commit after ``since`` changed the rows of a table; compaction may have moved rows to other files. Arguments as for ``commits``."""
    return next(commits(path, since, upto), None) is None


def started_streams(lake: Lake, names: Iterable[str]) -> list[str]:
    """The streams that have written or committed a micro-batch. The others have no results of rows they may have read."""
    return [name for name in names if Timeline.current(lake, name).deployed is not None]


def _is_restorable(lake: Lake, state: BatchState) -> bool:
    """True if a stream can be restored to a micro-batch: its outputs exist at their versions, and its inputs retain all later commits."""
    whole = all(versions.there(lake.output(output.table), output.version) for output in state.outputs)
    return whole and all(_retains_unread(lake, given) for given in state.inputs.values())


def _retains_unread(lake: Lake, table_version: TableVersion) -> bool:
    """True if the commits after the position of an input can be read. For a log with ordered files, merged files serve as well."""
    path = input_path(lake, table_version.table)
    known = (
        path == lake.log(table_version.table)
        and sequences.last_read(path, table_version.version, table_version.file) is not None
    )
    if known and sequences.in_order(DeltaTable(path)) is not None:
        return True
    return entries.readable(path, table_version.version + 1, entries.version_of(path))


def _restorable_batches(timeline: Timeline, batches: Sequence[int]) -> Sequence[int]:
    """The micro-batches a stream can be restored to under its deployed definition: those of the definition, and the last one before it.

    Results of earlier micro-batches are not restated: the first start after an upgrade restates those of the last micro-batch.

    Args:
        timeline: timeline of the stream.
        batches: micro-batches of its checkpoint, newest first.
    """
    deployed = timeline.identity.deployed()
    if deployed is None or not batches:
        return batches
    for commit in history.every(timeline.lake.output(next(iter(deployed.tables)))):
        record = commit.record
        if not isinstance(record, MicroBatch | Restored):
            continue
        if record.timeline != timeline.number or record.batch < batches[-1]:
            break
        if record.version != deployed.version:
            return [batch for batch in batches if batch >= record.batch]
    return batches


def _resume_errors(lake: Lake, names: Sequence[str]) -> Iterator[LifecycleError]:
    """The errors of streams that cannot resume, because an input was created again or restored after the version they have read."""
    for name in names:
        try:
            check_read(Timeline.current(lake, name))
        except LifecycleError as error:
            yield error


def create_coordinated_savepoints(
    operator: str, lake: Lake, *, why: str = "", codes: Mapping[str, Mapping[str, Any]] | None = None
) -> list[Savepoint]:
    """Create savepoints of a stream and of all its downstream streams at one consistent cut. The streams may be running.

    Args:
        operator: name of the upstream stream's operator.
        lake: the lake the streams run in.
        why: note stored in each savepoint.
        codes: operator -> description of the code its stream runs, stored in its savepoint.

    Returns:
        The savepoints, the upstream stream's first.

    Raises:
        LifecycleError: LIFECYCLE-030 the stream never started, LIFECYCLE-040 the streams share no consistent cut right now.
    """
    candidates = []
    if Timeline.current(lake, operator).checkpoint.last_committed() < 0:
        raise savepoints.error_not_started(operator, lake)
    for name in [operator, *started_streams(lake, readers(operator, streams(lake)))]:
        timeline = Timeline.current(lake, name)
        batches = _restorable_batches(timeline, timeline.checkpoint.restorable()[:-_SEARCHED:-1])
        candidates.append((name, [state_at(timeline, batch) for batch in batches]))
    chosen = cut(candidates, agreeing(lake))
    if chosen is None or not all(_is_restorable(lake, state) for state in chosen.values()):
        fix = f"Let the readers catch up and try again, or stop {operator} first: they then reach what it has written."
        got = "a reader that is further behind than its upstream remembers"
        stuck = next(_resume_errors(lake, [name for name, _ in candidates[1:]]), None)
        if stuck is not None:
            got, fix = f"{stuck.where} with {stuck.got}", f"{stuck.fix}. Then try again."
        elif chosen is not None:
            got = "one from which upkeep, which knew of no savepoint, has removed files since"
        where = f"savepoint of '{operator}' with its downstream"
        raise LifecycleError(where, "micro-batches at one cut", got, fix, code="LIFECYCLE-040")
    return [
        savepoints.create(name, lake, why=why, code=(codes or {}).get(name), batch=state.batch)
        for name, state in chosen.items()
    ]
