"""Answers of other systems to the calls of a step, in files beside the tables of a lake: what was answered once is not asked again.

A folder per hour of event time is a log: files numbered from 0, each created only if nobody else has created one of its number. A writer that
loses reads the winner's file first, so the first answer to a question is the answer to it in every process. Files of an hour are merged into
one after a while. Answers become durable before the micro-batch whose rows they are, and belong to no timeline: a rollback, a rebuild and a
bounded run find them. They go with a stream that moves, and answers about rows that are forgotten go with these.
"""

from __future__ import annotations

import io
import threading
import uuid
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache

import pyarrow as pa
import pyarrow.compute as pc

from floodmark.core.time import iso, parse_instant
from floodmark.lake.folder.copies import copy, files_of, size_of
from floodmark.lake.folder.copies import remove as remove_folder
from floodmark.lake.folder.paths import Lake
from floodmark.lake.folder.storage import create, exists, files, read, remove, write
from floodmark.lake.folder.storage import folders as subfolders
from floodmark.spec.graph.operator import Operator

_HOUR = 3_600_000
_ANSWERS, _BEFORE = "answers", "answers_before"
"""Folders of a lake: of answers, and of those from before a forgetting that is not finished."""
_WHOLE, _DONE = "whole", "done"
"""Names of the files that say that all answers have been copied aside, and that they are in no other folder any more."""
_KEEP = "keep"
"""Name of the file with the time for which answers of a step are kept, ms."""
_MERGED, _ENTRY, _SUFFIX = "merged-", "answers-", ".arrow"
"""How names of files of answers begin and end; the draft of a killed writer ends otherwise."""
_MERGED_AT = 32
"""Files of an hour from which on they are merged, once they have a quarter of the answers of the hour."""
_MOST_FILES = 512
"""Files of an hour that are merged in any case."""
_CACHED_BYTES = 64_000_000
"""Answers of hours that a process keeps in memory for its next questions."""


def recorded(lake: Lake, operator: Operator) -> Operator:
    """An operator whose calls record their answers in a lake: a rebuild in the lake of its stream. A fork also reads those of its original."""
    if not operator.calls:
        return operator
    home = _home(lake)
    folders = [home.internal(name, operator.name) for name in (_ANSWERS, _BEFORE)]
    if lake.upstream not in (None, home.root):
        folders.append(Lake(lake.upstream).internal(_ANSWERS, operator.name))
    return operator.recording(tuple(folder for n, folder in enumerate(folders) if not n or subfolders(folder)))


def _home(lake: Lake) -> Lake:
    """The lake that keeps the answers of a run: of a rebuild or an arm of an experiment, whose folder goes, that of the stream."""
    upstream = None if lake.upstream is None else Lake(lake.upstream)
    return upstream if upstream is not None and lake.root.startswith(upstream.internal("")) else lake


def carry(lake: Lake, target: Lake, operator: str) -> None:
    """Copy the answers of a stopped stream into the lake that it moves to. Repeatable until the stream has begun there."""
    _copy(lake.internal(_ANSWERS, operator), target.internal(_ANSWERS, operator))


def set_aside(lake: Lake, operator: str) -> None:
    """Begin to forget answers: those that the next runs read stay, by ``drop_unread`` all others go. Repeatable; nothing of the operator runs."""
    now, before = (lake.internal(name, operator) for name in (_ANSWERS, _BEFORE))
    if exists(f"{before}/{_DONE}"):
        return
    if not exists(f"{before}/{_WHOLE}"):
        _copy(now, before)
        write(f"{before}/{_WHOLE}", b"")
    remove_folder(now)
    for step in subfolders(before):
        if (keep := read(f"{before}/{step}/{_KEEP}")) is not None:
            write(f"{now}/{step}/{_KEEP}", keep)
    write(f"{before}/{_DONE}", b"")


def drop_unread(lake: Lake, operator: str) -> None:
    """End ``set_aside``: remove the answers that no run has read since. Repeatable."""
    remove_folder(lake.internal(_BEFORE, operator))


def _copy(source: str, target: str) -> None:
    for name in files_of(source):
        copy(f"{source}/{name}", f"{target}/{name}")


@dataclass(frozen=True, slots=True)
class Tidied:
    """What upkeep has made of the answers of an operator.

    Args:
        files: removed, with hours that are older than answers are kept, or merged into another one.
        size: of the hours, bytes.
    """

    files: int = 0
    size: int = 0


def tidy(lake: Lake, operator: str, *, dry_run: bool = False) -> Tidied:
    """Remove the answers of hours that are older than they are kept, as of the newest hour of the operator, and merge the files of others.

    Streams may be running: their last hours are left as they are.
    """
    home = lake.internal(_ANSWERS, operator)
    steps = {step: sorted(subfolders(f"{home}/{step}")) for step in subfolders(home)}
    newest = max((hours[-1] for hours in steps.values() if hours), default="")
    gone = size = 0
    for step, hours in steps.items():
        keep = read(f"{home}/{step}/{_KEEP}")
        first = "" if keep is None or not newest else _hour(_began(newest) - int(keep))
        for hour in hours:
            folder = f"{home}/{step}/{hour}"
            if hour < first:
                gone, size = gone + len(files(folder)), size + (size_of(folder) or 0)
                if not dry_run:
                    remove_folder(folder)
            elif hour < newest and len(names := files(folder)) > 1:
                gone += len(names) - 1
                if not dry_run:
                    RecordedAnswers((f"{home}/{step}",), pa.schema([])).merge(folder)
    return Tidied(gone, size)


@cache
def at(folders: tuple[str, ...], schema: pa.Schema, keep: int = 0) -> RecordedAnswers:
    """The answers in some folders, once in a process.

    Args:
        folders: as ``RecordedAnswers``.
        schema: as ``RecordedAnswers``.
        keep: event time for which upkeep leaves answers, ms; 0 for ever.
    """
    return RecordedAnswers(folders, schema, keep)


@dataclass(slots=True)
class _Hour:
    """The answers of an hour that this process has read.

    Args:
        upto: number of the last file read; -1 for none.
        table: its answers and those before.
        merged: number of the last file in the merged one.
    """

    upto: int = -1
    table: pa.Table | None = None
    merged: int = -1
    entries: list[int] = field(default_factory=list)
    """Numbers of the files that are not merged, in the last look."""


@dataclass(slots=True)
class RecordedAnswers:
    """The answers of one step.

    Args:
        folders: the first is written, all are read.
        schema: of the answers: ``key``, ``time``, ``rows``, ``reason``.
        keep: event time for which upkeep leaves them, ms; 0 for ever.
    """

    folders: tuple[str, ...]
    schema: pa.Schema
    keep: int = 0
    _says: bool = False
    _lock: threading.RLock = field(default_factory=threading.RLock)
    _hours: OrderedDict[str, _Hour] = field(default_factory=OrderedDict)

    @contextmanager
    def held(self) -> Iterator[None]:
        """As ``Answers``."""
        with self._lock:
            yield

    def known(self, keys: Sequence[bytes], times: Sequence[int]) -> pa.Table:
        """As ``Answers``."""
        wanted = pa.array(keys, self.schema.field("key").type)
        tables = [self.schema.empty_table()]
        hours = pa.array([_hour(time) for time in times])
        for hour in pc.unique(hours).to_pylist():
            of_hour = wanted.filter(pc.equal(hours, hour))
            for folder in self.folders:
                table = self._read(f"{folder}/{hour}").table
                if table is None or not len(of_hour):
                    continue
                read_here = table.filter(pc.is_in(table["key"], of_hour))
                of_hour = of_hour.filter(pc.invert(pc.is_in(of_hour, read_here["key"].combine_chunks())))
                if f"/{_BEFORE}/" in folder and read_here.num_rows:
                    read_here = self._record(f"{self.folders[0]}/{hour}", read_here)
                tables.append(read_here)
        return pa.concat_tables(tables)

    def record(self, answers: pa.Table) -> pa.Table:
        """As ``Answers``."""
        self._say()
        hours = pa.array([_hour(time) for time in answers["time"].to_pylist()])
        parts = [(hour, answers.filter(pc.equal(hours, hour))) for hour in pc.unique(hours).to_pylist()]
        return pa.concat_tables([self._record(f"{self.folders[0]}/{hour}", part) for hour, part in parts])

    def merge(self, folder: str) -> None:
        """Merge the files of an hour into one."""
        hour = self._read(folder)
        if hour.table is not None:
            self._merge(folder, hour)

    def _say(self) -> None:
        """Write for how long answers are kept, where it is not written."""
        path = f"{self.folders[0]}/{_KEEP}"
        before, now = (None, None) if self._says else (read(path), str(self.keep).encode() if self.keep else None)
        if before != now:
            remove(path) if now is None else write(path, now)
        self._says = True

    def _record(self, folder: str, answers: pa.Table) -> pa.Table:
        before = [self.schema.empty_table()]
        while answers.num_rows:
            hour = self._read(folder)
            if hour.table is not None:
                earlier = pc.is_in(answers["key"], hour.table["key"].combine_chunks())
                before.append(hour.table.filter(pc.is_in(hour.table["key"], answers["key"].combine_chunks())))
                answers = answers.filter(pc.invert(earlier))
            number = max(hour.upto, hour.merged) + 1
            if not answers.num_rows or self._created(folder, number, answers):
                break
        return pa.concat_tables([*before, answers])

    def _created(self, folder: str, number: int, answers: pa.Table) -> bool:
        """Create a file of a number. False if another process has created that file, or has merged it meanwhile."""
        location = f"{folder}/{_ENTRY}{number:09d}{_SUFFIX}"
        if not create(location, _encoded(answers)):
            return False
        hour = self._read(folder)
        if number <= hour.merged:  # created anew after the merged file's files were removed: nobody reads this one
            return False
        whole = 0 if hour.table is None else hour.table.num_rows
        unmerged = len(hour.entries)
        if unmerged >= _MOST_FILES or (unmerged >= _MERGED_AT and 4 * answers.num_rows * unmerged >= whole):
            self._merge(folder, hour)
        return True

    def _merge(self, folder: str, hour: _Hour) -> None:
        assert hour.table is not None
        number = hour.upto
        if hour.entries:
            write(f"{folder}/{_MERGED}{number:09d}{_SUFFIX}", _encoded(hour.table))
        for name in files(folder):  # those of a merge that was killed before, too
            if name.startswith((_MERGED, _ENTRY)) and _number(name) < number + name.startswith(_ENTRY):
                remove(f"{folder}/{name}")
        hour.merged, hour.entries = number, []

    def _read(self, folder: str) -> _Hour:
        """The answers of an hour, with the files that have been written since this process has read it."""
        while True:
            names = [name for name in files(folder) if name.endswith(_SUFFIX)]
            merged = max((_number(name) for name in names if name.startswith(_MERGED)), default=-1)
            entries = sorted(number for name in names if name.startswith(_ENTRY) and (number := _number(name)) > merged)
            hour = self._hours.get(folder, _Hour())
            if hour.upto < merged or hour.upto > max([merged, *entries]):  # merged since, or removed
                hour = _Hour()
            new = [f"{_MERGED}{merged:09d}{_SUFFIX}"] if hour.upto < merged else []
            new += [f"{_ENTRY}{number:09d}{_SUFFIX}" for number in entries if number > hour.upto]
            contents = [read(f"{folder}/{name}") for name in new]
            if any(content is None for content in contents):  # merged since the look
                continue
            tables = [hour.table] if hour.table is not None else []
            tables += [_decoded(content) for content in contents if content is not None]
            table = pa.concat_tables(tables).combine_chunks() if tables else None
            hour = _Hour(max([hour.upto, merged, *entries]), table, merged, entries)
            self._keep(folder, hour)
            return hour

    def _keep(self, folder: str, hour: _Hour) -> None:
        self._hours[folder] = hour
        self._hours.move_to_end(folder)
        size = sum(0 if one.table is None else one.table.nbytes for one in self._hours.values())
        while size > _CACHED_BYTES and len(self._hours) > 1:
            _, left = self._hours.popitem(last=False)
            size -= 0 if left.table is None else left.table.nbytes


def _hour(time: int) -> str:
    """Name of the hour of an instant: ``2013-01-01T05``."""
    return iso(time // _HOUR * _HOUR)[:13]


def _began(hour: str) -> int:
    """The instant at which an hour begins, ms."""
    return parse_instant(f"{hour}:00:00Z", "hour of answers")


def _number(name: str) -> int:
    return int(name.partition("-")[2].partition(".")[0])


def _encoded(answers: pa.Table) -> bytes:
    """Answers as an Arrow file, with an id of its writer, by which a store tells two writers apart."""
    schema = answers.schema.with_metadata({"writer": uuid.uuid4().hex})
    out = io.BytesIO()
    with pa.ipc.new_file(out, schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as file:
        file.write_table(answers.replace_schema_metadata(schema.metadata))
    return out.getvalue()


def _decoded(content: bytes) -> pa.Table:
    return pa.ipc.open_file(pa.py_buffer(content)).read_all().replace_schema_metadata()
