"""Changes of a table between two versions: the event times of rows that were added or removed, from the table's log and a file beside it.

A bounded run covers its interval as long as its inputs hold the rows it has read. To decide that, two versions are compared. Delta does not retain
old log entries for ever, so upkeep compares before it removes them, and stores the result beside the table as ranges of event time.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from floodmark.core.time import Interval, from_ms
from floodmark.lake.folder.storage import file_system, read, write
from floodmark.lake.table import entries
from floodmark.lake.table.files import changed_files
from floodmark.lake.table.sequences import in_order
from floodmark.spec.values.schema import MARKER

_GRAIN_MS = 60_000
"""Stored ranges begin and end at whole minutes."""
_EPOCH, _MS = datetime(1970, 1, 1, tzinfo=UTC), timedelta(milliseconds=1)
_MOST = 200
"""Most ranges stored per version. If there are more, ranges with the smallest gaps are merged."""

Stretches = list[tuple[int, int]]
"""Half-open ranges (start, end) of event time, ms UTC."""


@dataclass(slots=True)
class Changes:
    """Files added or removed between two versions of a table, and their event times.

    Args:
        path: path of the table.
        files: file name -> (first, last) event time, each None if unknown; None as a whole if the changed files are unknown.
        come: count only rows that streams read: appended rows, neither markers nor rows of a bounded rewrite.
        behind: count only rows with a larger ``_sequence``; -1 for all.
        times: cache of file name -> event times of its rows, None for a removed file.
    """

    path: str
    files: dict[str, tuple[Any, Any]] | None
    come: bool = False
    behind: int = -1
    times: dict[str, Any] = field(default_factory=dict)

    def touch(self, interval: Interval) -> bool:
        """True if a row with an event time in the interval was added or removed, or if the changes are unknown."""
        if self.files is None:
            return True
        first, last = from_ms(interval.start), from_ms(interval.end - 1)
        near = (n for n, (low, high) in self.files.items() if low is None or not (high < first or low > last))
        return any(self._holds(name, first, last) for name in near)

    def stretches(self) -> Stretches | None:
        """The ranges of event time of all added and removed rows; None if they are unknown."""
        if self.files is None:
            return None
        spans: list[tuple[int, int]] = []
        for name, (low, high) in self.files.items():
            times = None if low is not None and _minute(low) == _minute(high) else self._times_of(name)
            if times is not None:
                spans += _runs(times)
            elif low is not None:
                spans.append((_minute(low), _minute(high) + _GRAIN_MS))
            else:
                return None
        return joined(spans)

    def _holds(self, name: str, first: datetime, last: datetime) -> bool:
        times = self._times_of(name)
        if times is None:
            return True
        inside = pc.and_(pc.greater_equal(times, pa.scalar(first)), pc.less_equal(times, pa.scalar(last)))
        return bool(pc.any(inside).as_py())

    def _times_of(self, name: str) -> pa.ChunkedArray | None:
        """Event times of the rows of a file that count; None if the file was removed."""
        if name not in self.times:
            files, file_path = file_system(f"{self.path}/{unquote(name)}")
            try:
                with files.open_input_file(file_path) as file:
                    self.times[name] = self._read(pq.ParquetFile(file))
            except FileNotFoundError:  # vacuumed
                self.times[name] = None
        return self.times[name]

    def _read(self, file: pq.ParquetFile) -> pa.ChunkedArray:
        rows = file.read(columns=["_event_time", "_kind", "_progress", "_sequence"])
        if self.behind >= 0:
            rows = rows.filter(pc.greater(rows["_sequence"], self.behind))
        if self.come:
            rows = rows.filter(pc.and_(pc.not_equal(rows["_kind"], MARKER), rows["_progress"].is_valid()))
        return rows["_event_time"]


def between(path: str, before: int, after: int, *, log: bool, come: bool = False) -> Changes:
    """Compare two versions of a table. Files that compaction merged do not count as changed.

    Args:
        path: path of the table.
        before: the older version; changes are unknown if Delta no longer retains it, or if it is negative.
        after: the newer version.
        log: True for a log, which is append-only.
        come: count only rows that streams read, see ``Changes``.
    """
    if before < 0:
        return Changes(path, None)
    try:
        old, new = (DeltaTable(path, version=version) for version in (before, after))
    except DeltaError:
        return Changes(path, None)
    files = {version: _files(table) for version, table in ((before, old), (after, new))}
    changed = files[after].keys() - files[before].keys() if come else files[after].keys() ^ files[before].keys()
    behind = -1
    if changed and log and (was := in_order(old)) and (now := in_order(new)):
        behind = was[-1].last
        changed &= {file.path for file in now if file.last > behind}
    elif changed and (data := changed_files(path, before, after)) is not None:
        event_times = {name: (one.first, one.last) for name, one in data.items() if one.come or not come}
        return Changes(
            path, {n: files[before].get(n) or files[after].get(n) or times for n, times in event_times.items()}, come
        )
    times = {name: files[before].get(name) or files[after][name] for name in changed}
    return Changes(path, times, come, behind)


def _files(table: DeltaTable) -> dict[str, tuple[Any, Any]]:
    """File name -> (first, last) event time for each file of a table, each None if unknown."""
    actions = pa.table(table.get_add_actions(flatten=True))
    unknown = pa.nulls(len(actions))
    low, high = (
        actions[name] if name in actions.column_names else unknown for name in ("min._event_time", "max._event_time")
    )
    return dict(zip(actions["path"].to_pylist(), zip(low.to_pylist(), high.to_pylist(), strict=True), strict=True))


# ---- ranges of event time


def joined(stretches: Iterable[tuple[int, int]]) -> Stretches:
    """Ranges in order, with overlapping and adjacent ones merged. Above ``_MOST`` ranges, those with the smallest gaps are merged too."""
    merged: list[tuple[int, int]] = []
    for start, end in sorted(stretches):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(merged[-1][1], end))
        else:
            merged.append((start, end))
    if len(merged) > _MOST:
        gaps = sorted((after[0] - before[1] for before, after in pairwise(merged)), reverse=True)
        return _over_gaps(merged, gaps[_MOST - 1])
    return merged


def _over_gaps(stretches: Stretches, gap: int) -> Stretches:
    """Merges neighbouring ranges whose gap is at most ``gap`` ms."""
    merged = stretches[:1]
    for start, end in stretches[1:]:
        if start - merged[-1][1] <= gap:
            merged[-1] = (merged[-1][0], end)
        else:
            merged.append((start, end))
    return merged


def _minute(moment: datetime) -> int:
    """Start of the minute that contains an instant, ms."""
    return _floor(round((moment.replace(tzinfo=moment.tzinfo or UTC) - _EPOCH) / _MS))


def _floor(ms: int) -> int:
    return ms // _GRAIN_MS * _GRAIN_MS


def _runs(times: pa.ChunkedArray) -> Iterator[tuple[int, int]]:
    """Ranges of whole minutes that contain the instants; consecutive minutes form one range."""
    micros = times.drop_null().cast(pa.timestamp("us", "UTC")).cast(pa.int64()).to_numpy()
    minutes = np.unique(np.floor_divide(micros, _GRAIN_MS * 1000))
    for run in np.split(minutes, np.flatnonzero(np.diff(minutes) > 1) + 1) if len(minutes) else ():
        yield int(run[0]) * _GRAIN_MS, (int(run[-1]) + 1) * _GRAIN_MS


# ---- the file beside the table


@dataclass(frozen=True, slots=True)
class Since:
    """Changes since a version, partly from the stored file and partly from the log.

    Args:
        stretches: ranges of changes up to an intermediate version, from the file; None if they are unknown.
        behind: changes after the intermediate version, from the log; None if there are none.
    """

    stretches: Stretches | None
    behind: Changes | None

    def touch(self, interval: Interval) -> bool:
        """True if a row with an event time in the interval was added or removed, or if the changes are unknown."""
        if self.stretches is None or any(
            start < interval.end and interval.start < end for start, end in self.stretches
        ):
            return True
        return self.behind is not None and self.behind.touch(interval)


def since(path: str, before: int, after: int, *, log: bool) -> Since:
    """Changes of a table between two versions, from the stored file if it has ``before``, else from the log. Arguments as for ``between``."""
    retained = _StoredChanges.read(path)
    if str(before) not in retained.since:
        return Since([], between(path, before, after, log=log))
    behind = between(path, retained.upto, after, log=log) if retained.upto < after else None
    return Since(retained.since[str(before)], behind)


def keep(path: str, versions: Iterable[int], *, log: bool) -> int | None:
    """Store the changes since versions of a table, before their log entries and files are removed.

    Args:
        path: path of the table.
        versions: versions that bounded runs have read. Stored changes since other versions are dropped.
        log: True for a log, as for ``between``.

    Returns:
        The version up to which changes are stored, whose log entry must be retained; None if no version applies.
    """
    newest = entries.version_of(path)
    wanted = sorted(version for version in set(versions) if 0 <= version <= newest)
    if not wanted:
        return None
    retained, since = _StoredChanges.read(path), dict[str, Stretches | None]()
    behind = between(path, retained.upto, newest, log=log).stretches() if retained.upto >= 0 else None
    for version in wanted:
        if str(version) in retained.since:
            known = retained.since[str(version)]
            since[str(version)] = None if known is None or behind is None else joined([*known, *behind])
        else:
            since[str(version)] = between(path, version, newest, log=log).stretches()
    content = json.dumps({"upto": newest, "since": since}, separators=(",", ":"))
    write(_file(path), content.encode())
    return newest


@dataclass(frozen=True, slots=True)
class _StoredChanges:
    """The content of the file.

    Args:
        upto: version up to which changes are stored; -1 without a file.
        since: version -> ranges of the changes from it to ``upto``; None if they are unknown.
    """

    upto: int = -1
    since: dict[str, Stretches | None] = field(default_factory=dict)

    @staticmethod
    def read(path: str) -> _StoredChanges:
        """The content for a table; empty if the file is missing or malformed."""
        with suppress(ValueError, LookupError, TypeError):
            content = json.loads(read(_file(path)) or b"null")
            since = {
                version: None if known is None else [(int(start), int(end)) for start, end in known]
                for version, known in content["since"].items()
            }
            return _StoredChanges(int(content["upto"]), since)
        return _StoredChanges()


def _file(path: str) -> str:
    return entries.beside(path, "changes.json")
