"""The bounded runs of an output, retained without limit in a small file.

The commits of a table record which bounded runs wrote it, but Delta removes old commits, and a stream adds one a second. So bounded runs, and the
restores that revoked some of them, are copied into a file; commits after those in the file are read from the table's log and added. The log is
authoritative: a file that is lost, or belongs to another table of that name, is rebuilt from the retained commits.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import NamedTuple

from deltalake.exceptions import TableNotFoundError

from floodmark.core.errors import FloodmarkError
from floodmark.core.time import Interval, Intervals, describe
from floodmark.lake.folder.paths import Lake
from floodmark.lake.folder.storage import read, write
from floodmark.lake.table import entries, history
from floodmark.lake.table.commits import BoundedRun, Restored
from floodmark.lake.table.history import Commit
from floodmark.lifecycle.coverage import Entry

_FAR = 100
"""Commits after the file that are read again at each call, before a call adds them to the file."""
_MANY = 10_000
"""Most events in the file. Above that, runs whose interval newer runs recomputed are dropped. If the newer runs are revoked later, their interval
counts as missing and is computed again, which costs time but is correct."""


class _Event(NamedTuple):
    """A commit that adds a bounded run, or a restore that revokes runs."""

    version: int
    """Table version of the commit."""
    what: Entry | int
    """The bounded run, or the table version that was restored."""


@dataclass(frozen=True, slots=True)
class _StoredRuns:
    """The content of the file.

    Args:
        table: id of the table.
        version: the last table version whose commit is included; -1 for none.
        events: events, newest first.
    """

    table: str
    version: int = -1
    events: tuple[_Event, ...] = ()

    def as_json(self) -> str:
        """JSON form. Fields that runs have in common are stored once, in ``runs``."""
        runs: dict[str, int] = {}
        events: list[list[object]] = []
        for version, what in self.events:
            if isinstance(what, Entry):
                common = json.dumps([what.version, what.fingerprint, what.late_rows, what.inputs], sort_keys=True)
                number = runs.setdefault(common, len(runs))
                events.append([version, what.interval.start, what.interval.end, what.at, number])
            else:
                events.append([version, what])
        return json.dumps(
            {
                "table": self.table,
                "version": self.version,
                "runs": [json.loads(text) for text in runs],
                "events": events,
            }
        )

    @staticmethod
    def parse(content: bytes) -> _StoredRuns:
        """The inverse of ``as_json``.

        Raises:
            ValueError, KeyError, TypeError, IndexError: the content is malformed.
        """
        value = json.loads(content)
        runs, events = value["runs"], []
        for version, *fields in value["events"]:
            match fields:
                case [int(restored)]:
                    events.append(_Event(version, restored))
                case [start, end, at, number]:
                    by, fingerprint, late_rows, inputs = runs[number]
                    interval = Interval(start=start, end=end)
                    entry = Entry(
                        interval=interval,
                        version=by,
                        fingerprint=fingerprint,
                        late_rows=late_rows,
                        inputs=inputs,
                        at=at,
                    )
                    events.append(_Event(version, entry))
                case _:
                    raise ValueError(fields)
        return _StoredRuns(str(value["table"]), int(value["version"]), tuple(events))


def bounded_runs(lake: Lake, table: str) -> Iterator[Entry]:
    """The bounded runs of an output that no restore has revoked, newest first; none without a table.

    Args:
        lake: the lake of the output.
        table: name of the output.
    """
    return _in_force(_load_runs(lake, table, keep=False).events)


def disjoint(lake: Lake, table: str) -> Iterator[Entry]:
    """As ``bounded_runs``, without runs that a newer run overlaps: where an interval has one result, overlapping intervals replace each other."""
    newer = Intervals()
    for entry in bounded_runs(lake, table):
        if not newer.overlap(entry.interval):
            yield entry
        newer.add(entry.interval)


def read_by(lake: Lake, table: str) -> Iterator[tuple[str, int]]:
    """(input table, version) pairs that the bounded runs of an output have read. Includes revoked runs, which a later restore may reinstate."""
    for _, what in _load_runs(lake, table, keep=False).events:
        if isinstance(what, Entry):
            yield from ((name, int(said.get("version", -1))) for name, said in what.inputs.items())


def keep(lake: Lake, table: str) -> None:
    """Add the bounded runs in an output's log to the file, before old commits are removed from the log."""
    _load_runs(lake, table, keep=True)


def _load_runs(lake: Lake, table: str, *, keep: bool) -> _StoredRuns:
    """The bounded runs of an output, from the file and newer commits. Writes the file if ``keep`` is set or if it lags by over ``_FAR`` commits."""
    path, file = lake.output(table), lake.internal("coverage", f"{table}.json")
    try:
        id_, newest = entries.id_of(path), entries.version_of(path)
    except TableNotFoundError:
        return _StoredRuns("")
    cached = _read(file, id_, newest)
    behind = map(_event, history.every(path, newest - cached.version, upto=newest))
    events = [*(event for event in behind if event is not None), *cached.events]
    now = _StoredRuns(id_, newest, tuple(_without_recomputed(events) if len(events) > _MANY else events))
    if keep:
        write(file, now.as_json().encode())
    elif newest - cached.version > _FAR:
        with suppress(OSError):  # the file is a cache: a reader without write access reads the same commits again
            write(file, now.as_json().encode())
    return now


def _read(file: str, table: str, newest: int) -> _StoredRuns:
    content = read(file)
    if content is not None:
        with suppress(
            ValueError, LookupError, TypeError, FloodmarkError
        ):  # malformed, for example half written: rebuilt from the log
            cached = _StoredRuns.parse(content)
            if cached.table == table and cached.version <= newest:
                return cached
    return _StoredRuns(table)


def _event(commit: Commit) -> _Event | None:
    match commit.record:
        case Restored(restored=restored):
            return _Event(commit.version, restored)
        case BoundedRun() as run:
            entry = Entry(
                interval=run.interval,
                version=run.version,
                fingerprint=run.fingerprint,
                late_rows=run.late_rows,
                inputs=run.inputs,
                at=describe(commit.at),
            )
            return _Event(commit.version, entry)
        case _:
            return None


def _in_force(events: Iterable[_Event]) -> Iterator[Entry]:
    """The runs among events that no later restore has revoked. Events are ordered newest first."""
    undone = None
    for version, what in events:
        if undone is not None and version > undone:
            continue
        if isinstance(what, Entry):
            yield what
        else:
            undone = what


def _without_recomputed(events: Iterable[_Event]) -> Iterator[_Event]:
    """The events without runs whose whole interval was recomputed by newer runs that are not revoked."""
    computed, undone = Intervals(), None
    for event in events:
        stands = undone is None or event.version <= undone
        if stands and not isinstance(event.what, Entry):
            undone = event.what
        if not (stands and isinstance(event.what, Entry)) or computed.add(event.what.interval):
            yield event
