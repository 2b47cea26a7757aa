"""Status: the progress of every source and output, from the tables' own commits. No JVM, no scan of rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from types import MappingProxyType
from typing import Any

from deltalake import DeltaTable
from deltalake.exceptions import TableNotFoundError

from floodmark.core.errors import FloodmarkError, StateError
from floodmark.core.time import NEVER, describe, describe_span
from floodmark.lake.folder.paths import Lake
from floodmark.lake.logs import log
from floodmark.lake.logs.far import far_rows
from floodmark.lake.results.frozen import frozen
from floodmark.lake.stream.batch_state import check_read
from floodmark.lake.stream.checkpoint import remedy
from floodmark.lake.stream.delivered import delivered
from floodmark.lake.stream.timeline import CHECKPOINT, Timeline
from floodmark.lake.table import entries, history
from floodmark.lake.table.commits import BoundedRun, Landing, MicroBatch, Restored
from floodmark.lake.table.lost import known_lost
from floodmark.observe.skew import skew_of
from floodmark.spec.assets.delivery import Route
from floodmark.spec.graph.operator import Operator, Output
from floodmark.spec.rows.source import Source
from floodmark.spec.workspace import Workspace

LOOK_BACK = 50
"""Commits read per table, newest first, in search of the table's progress."""


def status(workspace: Workspace, lake: Lake, awaits: Mapping[str, str] = MappingProxyType({})) -> list[dict[str, Any]]:
    """One entry per source, per output table and per delivery, sources first, upstream before downstream.

    Args:
        workspace: the sources and operators.
        lake: the lake with their tables.
        awaits: operator or source whose stream should run -> text of ``state`` for its tables without any commit.

    Shape: each entry has ``kind``, ``name``, ``table`` and ``state`` in words. Once the table has a commit, a source also has ``progress``
    (ISO 8601 or words), ``commits``, ``rows`` and ``quarantined`` (totals), ``ended``, ``last_run`` (if the log still has the commit),
    ``warnings`` (only if few rows hold the watermark far ahead of all others) and ``lost`` (only if files of the table are gone), ``behind``, source partition -> rows still to
    land by the last look at it (only of connectors that tell it, such as Kafka's); an output
    also has ``version``, ``mode``, ``last_run``, ``engine`` if recorded, ``progress``, and ``lag`` behind its inputs if a stream writes it;
    ``unmet``, expectation -> rows that do not meet it, of the newest commits, if there are any; ``skew``, the key group with the most rows of
    the stream's newest micro-batches, its share of them and their number. A delivery has ``version``, that of its output's table that is delivered,
    ``waiting``, the commits behind it, ``progress`` and ``deliveries``, their number.
    """
    reached: dict[str, int] = {}
    entries = []
    for source in workspace.sources:
        entry, progress = _source(source, lake, awaits.get(source.name))
        reached[source.name] = progress
        entries.append(entry)
    for operator in workspace.operators:
        for output in operator.outputs:
            entry, progress = _output(operator, output, lake, reached, awaits.get(operator.name))
            reached[output.table] = progress
            entries.append(entry)
    entries += [_delivery(route, lake, awaits.get(route.name)) for route in workspace.deliveries]
    return entries


def _source(source: Source, lake: Lake, awaits: str | None) -> tuple[dict[str, Any], int]:
    base = {"kind": "source", "name": source.name, "table": lake.log(source.name)}
    path = lake.log(source.name)
    commit, last = next(history.standing_of(path, Landing, LOOK_BACK), (None, None))
    if last is None and entries.is_table(path):
        last = log.remembered(path)
    if last is None:
        return base | {"state": awaits or f"nothing landed yet: floodmark land {source.name}"}, NEVER
    quarantined = last.set_aside if last.set_aside >= 0 else _count(lake.quarantine(source.name))
    entry: dict[str, Any] = {
        "state": "ended" if last.ended else "open",
        "progress": describe(last.progress),
        "commits": last.ordinal + 1,
        "rows": last.next_sequence - last.ordinal - 1,  # each commit ends with a marker
        "quarantined": quarantined,
        "ended": last.ended,
    }
    if commit is not None:
        entry["last_run"] = describe(commit.at)
    if last.behind:
        entry["behind"] = dict(last.behind)
    unmet = Counter[str]()
    for _, landing in history.standing_of(path, Landing, LOOK_BACK):
        unmet.update(landing.unmet)
    if unmet:
        entry["unmet"] = dict(unmet)
    if far := [some for some in far_rows(source, last) if some.side == "ahead" and some.holds]:
        entry["warnings"] = [some.describe() for some in far]
    if gone := known_lost(path):
        rows = sum(file.rows or 0 for file in gone)
        entry["state"] = f"{len(gone)} of its files gone, {rows:,} rows: {gone[0].describe()}"
        entry["lost"] = [asdict(file) for file in gone]
    return base | entry, last.progress


def _output(
    operator: Operator, output: Output, lake: Lake, reached: dict[str, int], awaits: str | None
) -> tuple[dict[str, Any], int]:
    base: dict[str, Any] = {"kind": "output", "name": operator.name, "table": lake.output(output.table)}
    base |= _frozen(operator, output, lake)
    looked_at = history.standing(lake.output(output.table), LOOK_BACK)
    seen = [(c, c.record) for c in looked_at if isinstance(c.record, MicroBatch | BoundedRun | Restored)]
    if not seen:
        return base | {"state": awaits or f"not run yet: floodmark run {operator.name}"}, NEVER
    commit, last = seen[0]
    streams = (record.progress for _, record in seen if not isinstance(record, BoundedRun))
    stream = next(streams, None)  # the record of a rebuild or rollback has the stream's progress, too
    entry: dict[str, Any] = {
        "state": "up to date"
        if last.version == operator.version
        else f"computed by {last.version}, now {operator.version}",
        "version": last.version,
        "mode": last.mode,
        "last_run": describe(commit.at),
    }
    if isinstance(last, MicroBatch | BoundedRun) and last.engine:
        entry["engine"] = last.engine
    unmet = Counter[str]()
    for _, record in seen:
        if isinstance(record, MicroBatch | BoundedRun):
            unmet.update(record.unmet)
    if unmet:
        entry["unmet"] = dict(unmet)
    entry |= _skew(operator, [record for _, record in seen])
    if stream is not None:
        behind = min(reached.get(given.table, NEVER) for given in operator.inputs)
        lag = max(0, behind - stream)
        entry |= {"progress": describe(stream), "lag": describe_span(lag) if stream > NEVER else "all of it"}
        if lag and last.version == operator.version:
            entry["state"] = "behind its input"
        if stale := _stale(operator, lake):
            entry["state"] = stale
    elif isinstance(last, BoundedRun):
        entry["progress"] = f"computed {describe(last.interval.start)} to {describe(last.interval.end)}"
    return base | entry, stream if stream is not None else NEVER


def _delivery(route: Route, lake: Lake, awaits: str | None) -> dict[str, Any]:
    """How far a delivery has got, as the lake was told last."""
    table = lake.written(route.operator, route.output.table)
    base: dict[str, Any] = {"kind": "delivery", "name": route.name, "table": table}
    position = delivered(lake, route.name)
    if position is None:
        return base | {"state": awaits or f"nothing delivered yet: floodmark deliver {route.name}"}
    newest = entries.newest(table) if entries.is_table(table) else None
    waiting = max(0, (newest or 0) - position.version)
    state = "up to date" if not waiting else "behind its output"
    if newest is not None and entries.id_of(table) != position.table:
        state = "its output was made anew, and all of it is still to be delivered"
    return base | {
        "state": state,
        "progress": describe(position.progress),
        "version": position.version,
        "waiting": waiting,
        "deliveries": position.number + 1,
    }


def _skew(operator: Operator, records: Sequence[object]) -> dict[str, Any]:
    """The skew of the newest micro-batches, if there is anything to divide."""
    skew = skew_of(operator, (record for record in records if isinstance(record, MicroBatch)))
    return {} if skew is None else {"skew": skew._asdict()}


def _frozen(operator: Operator, output: Output, lake: Lake) -> dict[str, Any]:
    """What is frozen of an operator, beside its first output."""
    frozen_range = frozen(lake, operator.name) if output is operator.outputs[0] else None
    return {} if frozen_range is None else {"frozen": frozen_range.as_json()}


def _stale(operator: Operator, lake: Lake) -> str | None:
    """Why a stream cannot resume (its checkpoint is damaged, or an input it has read is gone), in one line that ends with the command; None if it can."""
    try:
        timeline = Timeline.current(lake, operator.name)
        if damaged := _damaged(timeline):
            return f"cannot resume, {damaged} is damaged: {remedy(timeline.folder(CHECKPOINT))}"
        if timeline.deployed is not None:
            check_read(timeline)
    except FloodmarkError as error:
        where = f"{error.where}: " if isinstance(error, StateError) else ""
        return f"{where}{error.got}: {error.fix}"
    return None


def _damaged(timeline: Timeline) -> str:
    """The damaged file of the newest micro-batch, relative to the checkpoint's folder; empty if every file can be read."""
    try:
        timeline.checkpoint.check_newest()
        timeline.identity.deployed()
    except StateError as error:
        if error.code != "STATE-036":
            raise
        return error.where.removeprefix(f"file {timeline.folder(CHECKPOINT)}/")
    return ""


def _rows(path: str) -> int:
    """Rows of a table from the counts in its log."""
    actions = DeltaTable(path).get_add_actions(flatten=True)
    return sum(int(n or 0) for n in actions.column("num_records").to_pylist())


def _count(path: str) -> int:
    """Rows of a table from the counts in its log; 0 if the table does not exist."""
    try:
        return _rows(path)
    except TableNotFoundError:
        return 0
