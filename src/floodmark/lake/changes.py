"""What has changed in a table since a version: the event times of the rows that came or went. From the table's log, and from what is kept of it.

A bounded run counts as long as the rows it has read are those that are there now. To know that, two versions are compared. The log does not tell
of old versions for ever, so upkeep compares before it removes entries, and keeps the answer in a file beside the table, as stretches of event time.
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
from floodmark.lake import entries
from floodmark.lake.files import changed_files
from floodmark.lake.sequences import in_order
from floodmark.lake.storage import file_system, read, write
from floodmark.spec.schema import MARKER

_GRAIN_MS = 60_000
"""Stretches begin and end with whole minutes."""
_EPOCH, _MS = datetime(1970, 1, 1, tzinfo=UTC), timedelta(milliseconds=1)
_MOST = 200
"""Stretches that are kept of a version; where there are more, those next to each other become one."""

Stretches = list[tuple[int, int]]
"""Event time from the first one up to the second one, ms UTC."""


@dataclass(slots=True)
class Changes:
    """Files that came or went between two versions of a table, and the event times in them.

    Args:
        path: of the table.
        files: name -> first and last event time where known; None when what changed is not known.
        come: only rows that streams read: those that have come, and were not put in place of others.
        behind: only rows with a larger ``_sequence``.
    """

    path: str
    files: dict[str, tuple[Any, Any]] | None
    come: bool = False
    behind: int = -1
    times: dict[str, Any] = field(default_factory=dict)

    def touch(self, interval: Interval) -> bool:
        """Whether a row of the interval came or went; yes when that cannot be known."""
        if self.files is None:
            return True
        first, last = from_ms(interval.start), from_ms(interval.end - 1)
        near = (n for n, (low, high) in self.files.items() if low is None or not (high < first or low > last))
        return any(self._holds(name, first, last) for name in near)

    def stretches(self) -> Stretches | None:
        """All event time that rows came of or went from; None when that is not known."""
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
        """Event times of the rows of a file that count; None where it is gone."""
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
    """Compare two versions of a table; ``before`` may no longer be kept. Files that were merged have not changed.

    Args:
        path: of the table.
        before: version.
        after: version.
        log: the table is one, so that it only grows.
        come: see ``Changes``.
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
    """Every file of a table, and the first and last event time in it where that is known."""
    actions = pa.table(table.get_add_actions(flatten=True))
    unknown = pa.nulls(len(actions))
    low, high = (
        actions[name] if name in actions.column_names else unknown for name in ("min._event_time", "max._event_time")
    )
    return dict(zip(actions["path"].to_pylist(), zip(low.to_pylist(), high.to_pylist(), strict=True), strict=True))


# ---- stretches of event time


def joined(stretches: Iterable[tuple[int, int]]) -> Stretches:
    """Stretches in order, those that meet as one; where they are many, also those with the smallest gaps between them."""
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
    """Stretches with at most so much between them, as one."""
    merged = stretches[:1]
    for start, end in stretches[1:]:
        if start - merged[-1][1] <= gap:
            merged[-1] = (merged[-1][0], end)
        else:
            merged.append((start, end))
    return merged


def _minute(moment: datetime) -> int:
    """The start of the minute of an instant, ms."""
    return _floor(round((moment.replace(tzinfo=moment.tzinfo or UTC) - _EPOCH) / _MS))


def _floor(ms: int) -> int:
    return ms // _GRAIN_MS * _GRAIN_MS


def _runs(times: pa.ChunkedArray) -> Iterator[tuple[int, int]]:
    """The minutes of instants, those that follow each other as one stretch."""
    micros = times.drop_null().cast(pa.timestamp("us", "UTC")).cast(pa.int64()).to_numpy()
    minutes = np.unique(np.floor_divide(micros, _GRAIN_MS * 1000))
    for run in np.split(minutes, np.flatnonzero(np.diff(minutes) > 1) + 1) if len(minutes) else ():
        yield int(run[0]) * _GRAIN_MS, (int(run[-1]) + 1) * _GRAIN_MS


# ---- what is kept


@dataclass(frozen=True, slots=True)
class Since:
    """What has changed since a version.

    Args:
        stretches: event time of what has changed up to a version in between; None when that is not known.
        behind: what has changed since that version.
    """

    stretches: Stretches | None
    behind: Changes | None

    def touch(self, interval: Interval) -> bool:
        """Whether a row of the interval came or went; yes when that cannot be known."""
        if self.stretches is None or any(
            start < interval.end and interval.start < end for start, end in self.stretches
        ):
            return True
        return self.behind is not None and self.behind.touch(interval)


def since(path: str, before: int, after: int, *, log: bool) -> Since:
    """What has changed in a table between two versions, where the log tells or upkeep has kept it; the arguments are those of ``between``."""
    retained = _Kept.read(path)
    if str(before) not in retained.since:
        return Since([], between(path, before, after, log=log))
    behind = between(path, retained.upto, after, log=log) if retained.upto < after else None
    return Since(retained.since[str(before)], behind)


def keep(path: str, versions: Iterable[int], *, log: bool) -> int | None:
    """Keep what has changed since versions of a table, before somebody removes entries and files that tell it.

    Args:
        path: of the table.
        versions: that bounded runs have read; of others nothing is kept.
        log: see ``between``.

    Returns:
        The version up to which it is known now, whose entry has to stay; None without versions.
    """
    newest = entries.version_of(path)
    wanted = sorted(version for version in set(versions) if 0 <= version <= newest)
    if not wanted:
        return None
    retained, since = _Kept.read(path), dict[str, Stretches | None]()
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
class _Kept:
    """The content of the file.

    Args:
        upto: version; -1 without a file.
        since: version -> event time of what has changed between the two; None where that is not known.
    """

    upto: int = -1
    since: dict[str, Stretches | None] = field(default_factory=dict)

    @staticmethod
    def read(path: str) -> _Kept:
        """Of a table; nothing where the file is not what ``keep`` writes."""
        with suppress(ValueError, LookupError, TypeError):
            content = json.loads(read(_file(path)) or b"null")
            since = {
                version: None if known is None else [(int(start), int(end)) for start, end in known]
                for version, known in content["since"].items()
            }
            return _Kept(int(content["upto"]), since)
        return _Kept()


def _file(path: str) -> str:
    return entries.beside(path, "changes.json")
