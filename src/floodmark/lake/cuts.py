"""Consistent cuts through streams that read one another: each has read exactly what those before it have written."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any

from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from floodmark.core.errors import LifecycleError
from floodmark.lake import entries, history, savepoints, sequences, versions
from floodmark.lake.batch_state import BatchState, check_read, state_at
from floodmark.lake.commits import MicroBatch, Restored
from floodmark.lake.history import Commit
from floodmark.lake.outputs import input_path
from floodmark.lake.paths import Lake
from floodmark.lake.savepoints import Savepoint
from floodmark.lake.timeline import Timeline, streams
from floodmark.lifecycle.plan import Deployed
from floodmark.lifecycle.rollback import Agrees, cut
from floodmark.lifecycle.savepoint import TableVersion

_KEPT = 50
"""Micro-batches that are looked at: Spark cleans up what is older than about a hundred, also while a savepoint is made."""


def readers(operator: str, known: dict[str, Deployed]) -> list[str]:
    """The streams that read what a stream writes, at one remove or more; upstream first."""
    names, written = [], set(known[operator].tables) if operator in known else set()
    for name, deployed in known.items():
        if name != operator and written & set(deployed.reads):
            names.append(name)
            written |= set(deployed.tables)
    return names


def agreeing(lake: Lake) -> Agrees:
    """Whether a reader of a table can go on at a version of it: that has the rows it has read, and the columns its definition reads."""

    @cache
    def lacks(table: str, version: int, needs: frozenset[str]) -> bool:
        try:
            schema = DeltaTable(lake.output(table), version=version).schema()
        except DeltaError:  # its log was cleaned up: nobody can go back to it, and whoever tries is told
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
    """Commits behind a version that change rows, newest first.

    What was taken back again is not among them.

    Args:
        path: of the table.
        since: the version.
        upto: the last version to look at.
    """
    undone: int | None = None
    for commit in history.every(path):
        if commit.version <= since:
            return
        if (upto is not None and commit.version > upto) or (undone is not None and commit.version > undone):
            continue
        if isinstance(commit.record, Restored):
            undone = commit.record.restored
            if undone >= since:
                continue
        if commit.changes_rows:
            yield commit


def unchanged(path: str, since: int, upto: int | None = None) -> bool:
    """Whether the rows of a table are those of a version: upkeep may have put them into other files since. As ``commits``."""
    return next(commits(path, since, upto), None) is None


def begun(lake: Lake, names: Iterable[str]) -> list[str]:
    """Those that have written or ended a micro-batch; the others have nothing of what they may have read."""
    return [name for name in names if Timeline.current(lake, name).deployed is not None]


def _can_go_back(lake: Lake, state: BatchState) -> bool:
    """Whether all is there that a stream needs which goes back to a micro-batch: the tables as they were, and what has come to its inputs since."""
    whole = all(versions.there(lake.output(output.table), output.version) for output in state.outputs)
    return whole and all(_goes_on(lake, given) for given in state.inputs.values())


def _goes_on(lake: Lake, table_version: TableVersion) -> bool:
    """Whether a stream finds what has come behind what it has read of an input; what has come to a log it finds in other files too."""
    path = input_path(lake, table_version.table)
    known = (
        path == lake.log(table_version.table)
        and sequences.last_read(path, table_version.version, table_version.file) is not None
    )
    if known and sequences.in_order(DeltaTable(path)) is not None:
        return True
    return entries.readable(path, table_version.version + 1, entries.version_of(path))


def _of_definition(timeline: Timeline, batches: Sequence[int]) -> Sequence[int]:
    """The micro-batches that a stream can go back to under the definition it has now: those of the definition, and the last one before it.

    Results of earlier micro-batches are not restated: the first start behind an upgrade restates those of the last one.

    Args:
        timeline: of the stream.
        batches: newest first, of the checkpoint.
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


def _stuck(lake: Lake, names: Sequence[str]) -> Iterator[LifecycleError]:
    """Why streams cannot resume: what they have read was made anew, or taken back behind it."""
    for name in names:
        try:
            check_read(Timeline.current(lake, name))
        except LifecycleError as error:
            yield error


def together(
    operator: str, lake: Lake, *, why: str = "", codes: Mapping[str, Mapping[str, Any]] | None = None
) -> list[Savepoint]:
    """Savepoints of a stream and of every stream that reads it, at one cut; they may all be at work.

    Args:
        operator: name of the one.
        lake: they run in.
        why: a note.
        codes: operator -> what is known of the code its stream runs.

    Raises:
        LifecycleError: LIFECYCLE-030 there is no stream, LIFECYCLE-040 they have no cut in common right now.
    """
    candidates = []
    if Timeline.current(lake, operator).checkpoint.last_committed() < 0:
        raise savepoints.not_begun(operator, lake)
    for name in [operator, *begun(lake, readers(operator, streams(lake)))]:
        timeline = Timeline.current(lake, name)
        batches = _of_definition(timeline, timeline.checkpoint.restorable()[:-_KEPT:-1])
        candidates.append((name, [state_at(timeline, batch) for batch in batches]))
    chosen = cut(candidates, agreeing(lake))
    if chosen is None or not all(_can_go_back(lake, state) for state in chosen.values()):
        fix = f"Let the readers catch up and try again, or stop {operator} first: they then reach what it has written."
        got = "a reader that is further behind than its upstream remembers"
        stuck = next(_stuck(lake, [name for name, _ in candidates[1:]]), None)
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
