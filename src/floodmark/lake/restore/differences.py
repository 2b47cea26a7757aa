"""Rebuilds that the readers of a stream follow as a difference: whether they can, and the commit of each table that they follow. No JVM is needed."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Iterator, Mapping

from deltalake import DeltaTable

from floodmark.compiler.following import obstacle
from floodmark.core import crash
from floodmark.core.errors import LifecycleError
from floodmark.core.time import NEVER, describe
from floodmark.lake.folder.copies import remove
from floodmark.lake.folder.paths import Lake
from floodmark.lake.restore.cuts import readers, started_streams, unchanged
from floodmark.lake.restore.readers import places
from floodmark.lake.results import frozen, revised
from floodmark.lake.stream import fence
from floodmark.lake.stream.checkpoint import engine_of
from floodmark.lake.stream.identity import Identity
from floodmark.lake.stream.timeline import CHECKPOINT, Timeline, inputs_at, streams
from floodmark.lake.table import entries, history
from floodmark.lake.table.commits import BoundedRun, MicroBatch, Restored, Revised
from floodmark.lake.table.outputs import input_path
from floodmark.lake.writing import derived, difference
from floodmark.lake.writing.difference import ROOM, Difference, holds_bounded_runs
from floodmark.lake.writing.writer import committed
from floodmark.lifecycle.plan import Deployed
from floodmark.lifecycle.savepoint import TableVersion
from floodmark.lifecycle.switch import Followed, Target
from floodmark.spec.values.schema import first_sequence

_FOLDER = "difference"
"""Folder of the lake of a rebuild with the differences to be appended. The folder goes with that lake."""
Columns = Mapping[str, object]
"""Column -> type, of a table."""


def would_follow(lake: Lake, operator: str, columns: Mapping[str, Columns]) -> tuple[Followed | None, str]:
    """Whether the streams that read a stream would follow its rebuild, as far as it is known while they run.

    Args:
        lake: the lake of the streams.
        operator: name of the stream that would be rebuilt.
        columns: table of the new definition -> its columns, as a definition names their types.

    Returns:
        How they would follow, and why they cannot, for people: one of them is empty. Both are if there are no such streams.
    """
    known = streams(lake)
    reading = started_streams(lake, readers(operator, known))
    if not reading or operator not in known:
        return None, ""
    old, definitions = known[operator].tables, {name: known[name] for name in reading}
    same = {table for table, fields in old.items() if table in columns and dict(fields) == dict(columns[table])}
    for reason in _obstacles(lake, old, same, definitions):
        return None, reason
    direct = {table: tuple(one.version for one in definitions.values() if table in one.reads) for table in old}
    revises = tuple(table for one in definitions.values() for table in one.tables)
    return Followed(readers={table: some for table, some in direct.items() if some}, revises=revises), ""


def follow(lake: Lake, operator: str, beside: Lake, followed: Followed) -> str:
    """Write the differences that readers would follow into a folder of the lake of the rebuild. All streams are stopped.

    Args:
        lake: the lake of the streams.
        operator: name of the stream that is rebuilt.
        beside: the lake in which all of its input is computed.
        followed: how its readers would follow.

    Returns:
        Why they cannot, for people; empty if they can.
    """
    import duckdb  # noqa: PLC0415 - most commands import this module, and compute no difference

    ended, coming = Timeline.current(lake, operator), Timeline.current(beside, operator)
    remove(beside.internal(_FOLDER))
    for reason in _obstacles_of_stopped(lake, ended, beside, followed):
        return reason
    progress = coming.checkpoint.final_progress(coming.checkpoint.last_committed())
    for table in followed.readers:
        version = entries.version_of(beside.output(table))
        try:
            rows = _write(ended, table, (beside, version), coming.identity, progress)
        except (duckdb.OutOfMemoryException, duckdb.IOException) as error:
            return f"there is no room to compute the difference of '{table}': {error}"
        if rows > ROOM:
            return f"the difference of '{table}' has {rows:,} rows, and a commit numbers at most {ROOM:,}"
    return ""


def note_revision(lake: Lake, target: Target, tables: Iterable[str]) -> None:
    """Record in tables of streams that follow that their rows may take back rows of any event time. Repeatable."""
    for table in tables:
        record = Revised(operator=target.operator, version=target.version)
        revised.note(lake.output(table), f"{target.operator}/{target.timeline}/{table}/revised", record)


def append(timeline: Timeline, target: Target, wanted: TableVersion) -> None:
    """Append the difference to a table, in one commit that also fences the timeline that ends. Repeatable.

    Raises:
        LifecycleError: LIFECYCLE-004, another writer has committed to the table meanwhile.
    """
    lake, table = timeline.lake, wanted.table
    path, app = lake.output(table), f"{timeline.app(table)}/difference"
    if committed(path, app) is not None:
        return
    ended, version = Timeline(lake, target.operator, target.ends), entries.version_of(path)
    beside = Lake(target.source)
    scratch = _scratch(beside, table, version)
    if not derived.whole(scratch):
        _write(ended, table, (beside, wanted.version), timeline.identity, target.watermark)
    deployed = ended.identity.deployed()
    assert deployed is not None
    record = MicroBatch(
        operator=target.operator,
        version=deployed.version,
        fingerprint=deployed.fingerprint,
        timeline=target.ends,
        table=table,
        batch=ended.checkpoint.last_committed(),
        progress=target.watermark,
        rows=difference.rows_that_come(scratch),
        run=f"{target.operator}/{target.timeline}",
        engine=engine_of(ended.folder(CHECKPOINT)),
        restated=True,
    )
    difference.append(scratch, (path, version), app, record, fence.transactions(ended, table))


def _write(ended: Timeline, table: str, coming: tuple[Lake, int], identity: Identity, progress: int) -> int:
    """Write the difference of a table, and return the number of its rows.

    Args:
        ended: the timeline that ends.
        table: name of the table.
        coming: (lake, version) of the table that replaces it.
        identity: of the stream whose table that is.
        progress: of that table, ms.
    """
    crash.point("difference.before_write")
    path, (beside, replacing) = ended.lake.output(table), coming
    version, reached = entries.version_of(path), history.progress(path)
    return Difference(
        standing=(path, version),
        coming=(beside.output(table), replacing),
        first=first_sequence(ended.checkpoint.last_committed() + 1),
        keys=identity.result_keys().get(table, ()),
        reached=NEVER if reached is None else reached,
        progress=progress,
        now=time.time_ns() // 1_000_000,
    ).write(_scratch(beside, table, version))


def _scratch(beside: Lake, table: str, version: int) -> str:
    """The table of a difference to a version of a table."""
    return beside.internal(_FOLDER, f"{table}-{version}")


# ---- obstacles


def _obstacles(
    lake: Lake, old: Collection[str], same: Collection[str], definitions: Mapping[str, Deployed]
) -> Iterator[str]:
    yield from _of_definitions(definitions, old, same)
    for name, definition in definitions.items():
        if not _of_one_version(lake, name, definition):
            yield f"'{name}' has results of more than one version of its code"
        if frozen.frozen(lake, name) is not None:
            yield f"results of '{name}' are frozen"
        if Timeline.current(lake, name).moved is not None:
            yield f"'{name}' has moved to another lake"
    for table in old:
        if any(table in one.reads for one in definitions.values()):
            yield from _of_table(lake, table)
    written = {lake.output(table) for table in [*old, *(t for one in definitions.values() for t in one.tables)]}
    yield from _of_other_lakes(lake, written)


def _of_other_lakes(lake: Lake, written: Collection[str]) -> Iterator[str]:
    try:
        for reader_lake in places(lake):
            for name, deployed in streams(reader_lake).items() if reader_lake.root != lake.root else ():
                if any(input_path(reader_lake, table) in written for table in deployed.reads):
                    yield f"'{name}' in lake {reader_lake.root} reads it too"
    except LifecycleError as error:
        if error.code != "LIFECYCLE-063":
            raise
        yield f"{error.where}, is not there"


def _of_definitions(definitions: Mapping[str, Deployed], old: Collection[str], same: Collection[str]) -> Iterator[str]:
    revised = set(old)
    for name, definition in definitions.items():
        reason = obstacle(definition.graph)
        for _, table, _, revisable in definition.graph["inputs"]:
            if table in old and table not in same:
                reason = reason or f"'{table}' gets other columns"
            elif table in revised and not revisable:
                reason = reason or f"it takes the rows of '{table}' for final"
        if reason:
            yield f"'{name}' cannot: {reason}"
        revised |= set(definition.tables)


def _of_one_version(lake: Lake, name: str, definition: Deployed) -> bool:
    """True if a stream has computed all of its results by its definition: others would not be taken back as they are."""
    if Timeline.current(lake, name).identity.began_as():
        return Timeline.current(lake, name).identity.began_as() == definition.version
    path = lake.output(next(iter(definition.tables)))  # the stream began under a release that did not record it
    batches = (record for commit in history.every(path) if isinstance(record := commit.record, MicroBatch))
    return history.complete(path) and all(record.version == definition.version for record in batches)


def _of_table(lake: Lake, table: str) -> Iterator[str]:
    path = lake.output(table)
    if entries.is_table(path) and DeltaTable(path).metadata().partition_columns:
        yield f"'{table}' is divided by asset partitions"
    if input_path(lake, table) != path:
        yield f"'{table}' is not read from this lake"
    replaced = _replaced_by_others(path)
    if replaced is not None:
        yield f"others than its stream have written '{table}', in version {replaced}"
    if entries.is_table(path) and holds_bounded_runs(DeltaTable(path)):
        # by a cut-over or a fork: who began to read behind them has read them too, who began before has not
        yield f"bounded runs have written rows of '{table}'"


def _replaced_by_others(path: str) -> int | None:
    """The version in which another than its stream has replaced rows of a table that a reader may have read; None for none."""
    replaced = None
    for commit in history.every(path):
        if isinstance(commit.record, Restored) and commit.record.mode == "rebuild" and commit.record.difference < 0:
            break  # who has read what was before it is computed anew
        if isinstance(commit.record, MicroBatch) and replaced is not None:
            break
        if isinstance(commit.record, BoundedRun) or (
            commit.record is None and commit.version and commit.operation not in history.UPKEEP
        ):
            replaced = commit.version
    else:
        return None if history.complete(path) else replaced
    return replaced


def _obstacles_of_stopped(lake: Lake, ended: Timeline, beside: Lake, followed: Followed) -> Iterator[str]:
    coming = Timeline.current(beside, ended.operator)
    progress = coming.checkpoint.final_progress(coming.checkpoint.last_committed())
    for table in followed.readers:
        if _columns(lake.output(table)) != _columns(beside.output(table)):
            yield f"'{table}' gets other columns"
        reached = history.progress(lake.output(table))
        if reached is not None and progress < reached:
            yield f"'{table}' was complete up to {describe(reached)}, and would be up to {describe(progress)}"
    deployed = ended.identity.deployed()
    written = {lake.output(table) for table in [*followed.revises, *(deployed.tables if deployed is not None else ())]}
    for name in started_streams(lake, readers(ended.operator, streams(lake))):
        yield from _of_reader(Timeline.current(lake, name), written)


def _of_reader(timeline: Timeline, written: Collection[str]) -> Iterator[str]:
    name, last = timeline.operator, timeline.checkpoint.last_committed()
    if last < 0 or timeline.newest_written > last:
        yield f"'{name}' was stopped in the middle of a micro-batch"
        return
    skipped = timeline.checkpoint.skipped(last)
    for name_of_input, read in inputs_at(timeline, last).items():
        path = input_path(timeline.lake, read.table)
        if path not in written:
            continue
        if read.file >= 0 or not unchanged(path, read.version):
            yield f"'{name}' has not read all of '{read.table}'"
        if name_of_input in skipped or read.id in skipped:
            yield f"'{name}' knows its place in '{read.table}' by sequences, which begin anew"


def _columns(path: str) -> dict[str, str]:
    return {field.name: field.type.to_json() for field in DeltaTable(path).schema().fields}
