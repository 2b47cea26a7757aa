"""Answers of other systems to the calls of a step, in files beside the tables of a lake: what was answered once is not asked again.

A folder per hour of event time is a log: files numbered from 0, each created only if nobody else has created one of its number. A writer that
loses reads the winner's file first, so the first answer to a question is the answer to it in every process. Files of an hour are merged into
one after a while. Answers become durable before the micro-batch whose rows they are, and belong to no timeline: a rollback, a rebuild and a
bounded run find them.
"""

from __future__ import annotations

import io
import os
import threading
import uuid
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from floodmark.core.time import iso
from floodmark.lake.folder import bucket
from floodmark.lake.folder.paths import Lake
from floodmark.lake.folder.storage import files, read, remove, sync, write
from floodmark.spec.graph.operator import Operator

_HOUR = 3_600_000
_MERGED, _ENTRY = "merged-", "answers-"
_MERGED_AT = 32
"""Files of an hour from which on they are merged, once they have a quarter of the answers of the hour."""
_MOST_FILES = 512
"""Files of an hour that are merged in any case."""
_CACHED_BYTES = 64_000_000
"""Answers of hours that a process keeps in memory for its next questions."""


def recorded(lake: Lake, operator: Operator) -> Operator:
    """An operator whose calls record their answers in a lake. A fork also reads those of its original."""
    if not operator.calls:
        return operator
    roots = [lake.root] if lake.upstream is None else [lake.root, lake.upstream]
    return operator.recording(tuple(Lake(root).internal("answers", operator.name) for root in roots))


@cache
def at(folders: tuple[str, ...], schema: pa.Schema) -> RecordedAnswers:
    """The answers in some folders, once in a process."""
    return RecordedAnswers(folders, schema)


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
    """

    folders: tuple[str, ...]
    schema: pa.Schema
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
            for folder in self.folders:
                table = self._read(f"{folder}/{hour}").table
                if table is not None and table.num_rows:
                    of_hour = wanted.filter(pc.equal(hours, hour))
                    tables.append(table.filter(pc.is_in(table["key"], of_hour)))
        return pa.concat_tables(tables)

    def record(self, answers: pa.Table) -> pa.Table:
        """As ``Answers``."""
        hours = pa.array([_hour(time) for time in answers["time"].to_pylist()])
        parts = [(hour, answers.filter(pc.equal(hours, hour))) for hour in pc.unique(hours).to_pylist()]
        return pa.concat_tables([self._record(f"{self.folders[0]}/{hour}", part) for hour, part in parts])

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
        location = f"{folder}/{_ENTRY}{number:09d}.arrow"
        if not _create(location, _encoded(answers)):
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
        merged, number = hour.merged, hour.upto
        write(f"{folder}/{_MERGED}{number:09d}.arrow", _encoded(hour.table))
        for entry in hour.entries:
            remove(f"{folder}/{_ENTRY}{entry:09d}.arrow")
        if merged >= 0:
            remove(f"{folder}/{_MERGED}{merged:09d}.arrow")
        hour.merged, hour.entries = number, []

    def _read(self, folder: str) -> _Hour:
        """The answers of an hour, with the files that have been written since this process has read it."""
        while True:
            names = files(folder)
            merged = max((_number(name) for name in names if name.startswith(_MERGED)), default=-1)
            entries = sorted(number for name in names if name.startswith(_ENTRY) and (number := _number(name)) > merged)
            hour = self._hours.get(folder, _Hour())
            if hour.upto < merged:
                hour = _Hour()
            new = [f"{_MERGED}{merged:09d}.arrow"] if hour.upto < merged else []
            new += [f"{_ENTRY}{number:09d}.arrow" for number in entries if number > hour.upto]
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


def _create(location: str, content: bytes) -> bool:
    """Create a file with its content unless it exists; a local one is synced first. False if it exists."""
    if bucket.is_bucket(location):
        return bucket.create(location, content)
    target = Path(location)
    target.parent.mkdir(parents=True, exist_ok=True)
    draft = target.with_name(f".{target.name}.{uuid.uuid4().hex}")
    try:
        draft.write_bytes(content)
        sync(draft)
        os.link(draft, target)
    except FileExistsError:
        return False
    finally:
        with suppress(FileNotFoundError):
            draft.unlink()
    return True
