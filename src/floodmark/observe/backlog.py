"""What waits for a stream: commits of its inputs that it has not read, with their rows and bytes, from the logs of the inputs' tables."""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from floodmark.lake.table import entries
from floodmark.spec.values.run import ReadTo

MOST = 1_000
"""Most commits of an input whose rows and bytes are counted."""
_CACHED = 20_000
"""Most commits of all tables that are kept in memory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Backlog:
    """What waits for a stream.

    Args:
        commits: of its inputs.
        rows: in them, markers included.
        bytes: of their files.
        whole: False if ``rows`` and ``bytes`` leave out commits, as more than ``MOST`` of an input wait, or as a commit's entry is gone.
        since: time of the oldest waiting commit, s since 1970; None if nothing waits.
    """

    commits: int = 0
    rows: int = 0
    bytes: int = 0
    whole: bool = True
    since: float | None = None

    def plus(self, other: Backlog) -> Backlog:
        """What waits of two inputs."""
        return Backlog(
            commits=self.commits + other.commits,
            rows=self.rows + other.rows,
            bytes=self.bytes + other.bytes,
            whole=self.whole and other.whole,
            since=min((one for one in (self.since, other.since) if one is not None), default=None),
        )


class _Added(NamedTuple):
    """What a commit adds: rows, bytes, and its time, s since 1970."""

    rows: int
    bytes: int
    at: float


@dataclass(slots=True)
class Backlogs:
    """Computes backlogs, and remembers the commits that were read for it, which never change."""

    _commits: OrderedDict[tuple[str, str, int], _Added] = field(default_factory=OrderedDict)

    def of(self, read: Mapping[str, ReadTo]) -> Backlog | None:
        """What waits of some inputs; None if a table cannot be read now.

        Args:
            read: path of an input table -> how far the table is read.
        """
        backlog = Backlog()
        try:
            for path, position in read.items():
                backlog = backlog.plus(self._of(path, position))
        except (DeltaError, OSError, ValueError):  # its stream says what is wrong with the table
            return None
        return backlog

    def _of(self, path: str, position: ReadTo) -> Backlog:
        version, file, table, snapshot = position
        newest = entries.version_of(path)
        unread = Backlog() if snapshot is None else _of_snapshot(path, file, snapshot)
        first = (version if snapshot is None else snapshot) + 1
        counted = range(first, min(newest + 1, first + MOST))
        added = [one for number in counted if (one := self._added(path, table, number)) is not None]
        return unread.plus(
            Backlog(
                commits=max(0, newest + 1 - first),
                rows=sum(one.rows for one in added),
                bytes=sum(one.bytes for one in added),
                whole=len(added) == max(0, newest + 1 - first),
                since=min((one.at for one in added), default=None),
            )
        )

    def _added(self, path: str, table: str, version: int) -> _Added | None:
        key = path, table, version
        if key not in self._commits:
            entry = entries.entry(path, version)
            if entry is None:
                return None
            self._commits[key] = _of_commit(entries.actions(entry))
            while len(self._commits) > _CACHED:
                self._commits.popitem(last=False)
        return self._commits[key]


def _of_commit(actions: Iterable[Mapping[str, dict]]) -> _Added:  # type: ignore[type-arg]  # as JSON has it
    rows, size, at = 0, 0, 0.0
    for action in actions:
        match action:
            case {"add": add} if add.get("dataChange", True):
                rows += int(json.loads(add.get("stats") or "{}").get("numRecords", 0))
                size += int(add["size"])
            case {"commitInfo": info}:
                at = int(info.get("timestamp", 0)) / 1000
    return _Added(rows, size, at)


def _of_snapshot(path: str, file: int, version: int) -> Backlog:
    """The files of a version after a file, in the order in which a stream reads them; as one commit."""
    actions = pa.table(DeltaTable(path, version=version).get_add_actions(flatten=True))
    order = [("modification_time", "ascending"), ("path", "ascending")]
    files = actions.select(["modification_time", "path", "num_records", "size_bytes"]).sort_by(order).to_pylist()
    unread = files[file + 1 :]
    if not unread:
        return Backlog()
    rows, size = sum(one["num_records"] or 0 for one in unread), sum(one["size_bytes"] for one in unread)
    return Backlog(commits=1, rows=rows, bytes=size, since=int(unread[0]["modification_time"]) / 1000)
