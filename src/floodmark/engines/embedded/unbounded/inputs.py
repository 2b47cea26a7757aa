"""Inputs of a stream on the embedded engine: the files of each input that a micro-batch reads, and their rows in Arrow.

A table whose files are in the order of their sequences is read file by file, from its newest version on, then commit by commit. A table without
this order is read commit by commit from the first, or in its newest version if rows of its first versions were removed. If the next commit or one
of its files is gone, or a start is far behind, the stream resumes from the files of the newest version.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import takewhile
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake import DeltaTable

from floodmark.core.errors import ExecutionError
from floodmark.core.time import NEVER, Interval
from floodmark.engines.embedded.unbounded.columns import columns_read
from floodmark.engines.frames.inputs import check_columns
from floodmark.lake.folder.bucket import is_bucket
from floodmark.lake.folder.paths import Lake
from floodmark.lake.folder.storage import file_system
from floodmark.lake.restore.ending import reopened_since
from floodmark.lake.results.tables import sql_type
from floodmark.lake.results.verdicts import Hold, times_in, times_of
from floodmark.lake.stream.batch_state import check_inputs
from floodmark.lake.stream.checkpoint import Position
from floodmark.lake.stream.timeline import REACHED, Timeline
from floodmark.lake.table import entries, history
from floodmark.lake.table.rows import row_schema
from floodmark.lake.table.sequences import (
    FAR_BEHIND,
    SequencedFile,
    begins_in_order,
    files_behind,
    files_of,
    last_read,
    noted,
)
from floodmark.lifecycle.savepoint import TableVersion
from floodmark.spec.graph.operator import Input, Operator

_FILES, _BYTES = 10_000, 1 << 28
"""Most files of an input in a micro-batch; and the bytes after which a micro-batch gets no further file."""
_GONE_SECONDS = 1.0
"""Least time between two looks whether commits after a position are gone, which costs ten times as much as the look for the next commit."""


class File(NamedTuple):
    """A file to read."""

    path: str
    """Of the file, in the table's folder."""
    size: int
    """Bytes of the file."""
    values: Mapping[str, str | None]
    """Partition column -> value."""
    times: Interval | None = None
    """Event time of its rows, if somebody waits for verdicts; None for no rows."""


@dataclass(frozen=True, slots=True)
class Take:
    """The files of an input that a micro-batch reads.

    Args:
        files: in order.
        position: after these files.
        restated: whether rows of bounded runs count too.
        behind: only rows with a larger ``_sequence`` count.
    """

    files: tuple[File, ...]
    position: Position
    restated: bool = False
    behind: int = -1


@dataclass(slots=True)
class Reader:
    """Reads an input of one operator.

    Args:
        operator: of the stream.
        input: to read.
        lake: in which the stream runs.
        most_files: of a micro-batch.
        reached: file that may hold the last row that was read (``sequences.noted``).
        behind: only rows with a larger ``_sequence`` count.
        columns: of the input, that are read; None for all.
    """

    operator: Operator
    input: Input
    lake: Lake
    most_files: int | None
    reached: str
    behind: int = -1
    columns: frozenset[str] | None = None
    last: int | None = None
    """The last version of the table to read; None for no end."""
    hold: Hold | None = None
    """How far the table may be read; None for all of it."""
    settled: int = NEVER
    """Progress up to which the reader has read all there is, though it is held inside of a commit that tells of it."""
    path: str = field(init=False)
    """Folder of the table."""
    _table: str = ""
    _snapshot: tuple[int, list[SequencedFile]] | None = None
    _looked: bool = False
    _fetched: dict[str, pa.NativeFile] = field(init=False, default_factory=dict)
    """Files of a bucket that were found and not read yet."""
    _gone_at: float = field(default=-math.inf, repr=False)
    """When ``_gone`` was last asked, monotonic."""

    def __post_init__(self) -> None:
        """Find the table."""
        self.path = self.lake.input(self.input)

    @property
    def table(self) -> str:
        """Id of the table."""
        if not self._table:
            self._table = entries.id_of(self.path)
        return self._table

    def end_here(self) -> None:
        """Read no version of the table after its newest version now."""
        self.last = entries.version_of(self.path)

    def next(self, at: Position | None) -> Take | None:
        """The files to read after a position (None: the beginning); None if there are none yet.

        Raises:
            ExecutionError: EXECUTION-002 the table no longer exists, EXECUTION-060 the commits after the position are gone.
            LifecycleError: LIFECYCLE-038, the table was made anew.
        """
        if at is None or not at.table:
            take = self._first()
        elif at.snapshot is not None:
            take = self._of_snapshot(at)
        else:
            take = self._of_commits(at)
        waits = take is not None and not take.files and bool(self.waits_for)
        return None if waits else take

    @property
    def waits_for(self) -> str:
        """The verdict that the reader waits for, in words; empty if it does not."""
        return "" if self.hold is None else self.hold.waits_for

    @property
    def left_out(self) -> frozenset[str]:
        """The columns that are not read, as no step names them."""
        return frozenset() if self.columns is None else frozenset(self.input.schema.names) - self.columns

    def rows(self, take: Take, *, whole: bool = False) -> pa.Table:
        """The rows of files: the columns of the input, then the stamps.

        Args:
            take: the files.
            whole: read all columns, also those that no step names; by default these are null.

        Raises:
            ExecutionError: EXECUTION-005 the table lacks a column, EXECUTION-060 a file is gone.
        """
        wanted = row_schema(self.input.schema)
        left_out = frozenset[str]() if whole else self.left_out
        tables = [self._read(file, wanted, left_out) for file in take.files]
        rows = pa.concat_tables([wanted.empty_table(), *tables])
        if take.restated:
            index = rows.schema.get_field_index("_progress")
            rows = rows.set_column(index, wanted.field(index), pc.fill_null(rows["_progress"], NEVER))
        behind = max(take.behind, self.behind)
        if behind >= 0:  # markers of an output have no sequence
            rows = rows.filter(pc.fill_null(pc.greater(rows["_sequence"], behind), True))
        return rows.filter(pc.is_valid(rows["_progress"]))

    def _first(self) -> Take | None:
        listing = begins_in_order(self.path, self.input)
        if listing is not None:
            self._snapshot = version, files = listing
            nothing = Take((), Position(version, -1, self.table))
            return self._taken(files, Position(-1, -1, self.table, version)) if files else nothing
        if history.rewritten(self.path):  # the files have no order: one micro-batch reads them all
            newest = DeltaTable(self.path)
            all_files = tuple(_file_of(action) for action in pa.table(newest.get_add_actions()).to_pylist())
            if self.hold is not None and not all(
                self._admits(times) for times in times_of(newest, self.hold.audit.partitions).values()
            ):
                return None
            return Take(all_files, Position(newest.version(), -1, self.table), restated=True)
        return self._of_commits(Position(-1, -1, self.table))

    def _of_snapshot(self, at: Position) -> Take | None:
        assert at.snapshot is not None
        if self._snapshot is None or self._snapshot[0] != at.snapshot:
            files = files_of(self.path, at.snapshot, self.input)
            if files is None:
                return self._over(at)
            self._snapshot = at.snapshot, files
        files = self._snapshot[1]
        take = self._taken(files, at)
        if self._there(take.files):
            return take
        return self._nearer(at, max(files[at.file].last if at.file >= 0 else -1, self.behind)) or take

    def _taken(self, files: list[SequencedFile], at: Position) -> Take:
        # lazily, as of very many files only the chosen ones are needed
        ahead = takewhile(self._admitted(at), map(files.__getitem__, range(at.file + 1, len(files))))
        chosen = self._chosen(File(unquote(file.path), file.size, {}) for file in ahead)
        last = at.file + len(chosen)
        if last + 1 >= len(files):
            assert at.snapshot is not None
            return Take(tuple(chosen), Position(at.snapshot, -1, at.table))
        return Take(tuple(chosen), at._replace(file=last))

    def _of_commits(self, at: Position) -> Take | None:
        if not self._looked:
            self._looked = True
            if self.input.upstream is None and reopened_since(self.path, at.version):
                return self._over(at)
            far = at.version >= 0 and entries.version_of(self.path) - at.version >= FAR_BEHIND
            if far and (take := self._nearer(at, self._last_read(at))) is not None:
                return take
        files: list[File] = []
        version, done = at.version, at.file
        while (entry := self._entry(version + 1)) is not None:
            added = list(self._added(entry))[done + 1 :]
            chosen = self._chosen(takewhile(self._admits_file, added), before=files)
            files += chosen
            if len(chosen) < len(added):
                done += len(chosen)
                if self.waits_for:
                    self.settled = max(self.settled, self._settled(entry, added[len(chosen) :]))
                break
            version, done = version + 1, -1
        if not files and version == at.version:
            if self.waits_for:
                return None
            return self._over(at) if self._asks_again() and self._gone(at) else None
        take = Take(tuple(files), Position(version, done, at.table))
        return take if self._there(files) else self._nearer(at, self._last_read(at)) or take

    def _settled(self, entry: entries.Entry, unread: Sequence[File]) -> int:
        """Progress that is safe while a commit is held at the first of some files: that of the commit, but not into a partition with unread rows.

        Rows before that in later commits are late, as they are for a reader that is not held.
        """
        assert self.hold is not None
        around = self.hold.audit.partitions.around
        begins = min((around(file.times.start).start for file in unread if file.times is not None), default=NEVER)
        adds = (one["add"] for one in entries.actions(entry) if "add" in one)
        reached = (json.loads(add.get("stats") or "{}").get("maxValues", {}).get("_progress", NEVER) for add in adds)
        return min(begins - 1, max(reached, default=NEVER))

    def _over(self, at: Position) -> Take:
        """The files of the newest version with unread rows, in order; for a next commit that is gone or held an end of input taken back.

        Raises:
            ExecutionError: EXECUTION-060, the files have no order, rows were replaced, or the last row that was read is unknown.
        """
        take = self._nearer(at, self._last_read(at))
        if take is None:
            fix = f"Compute it anew: floodmark run {self.operator.name} --unbounded --from-scratch"
            where = f"input '{self.input.name}' of {self.operator.version}"
            got = f"none of version {(at.version if at.snapshot is None else at.snapshot) + 1}"
            raise ExecutionError(where, "the commits behind what is read", got, fix, code="EXECUTION-060")
        return take

    def _last_read(self, at: Position) -> int | None:
        """The last ``_sequence`` that is read at a position; None if it cannot be derived any more."""
        if at.snapshot is not None:
            return self.behind if at.file < 0 else None
        last = last_read(self.path, at.version, at.file, self.input)
        table_version = TableVersion(table=self.input.table, id=at.table, version=at.version, file=at.file)
        return noted(self.reached, table_version) if last is None else last

    def _nearer(self, at: Position, last: int | None) -> Take | None:
        """The files of the newest version with unread rows, in order; None if these files cannot be derived."""
        listing = None if last is None else files_behind(self.path, at.version, self.input)
        if last is None or listing is None:
            return None
        newest, files = listing
        read = sum(file.last <= last for file in files)
        self._snapshot = newest, files
        take = self._taken(files, Position(at.version, read - 1, at.table, newest))
        return replace(take, behind=last)  # the first of these files may hold rows that are read already

    def _there(self, files: Sequence[File]) -> bool:
        """Whether all of the files exist."""
        if is_bucket(self.path):  # a look is a request, and so is a whole file
            try:
                self._fetched = {file.path: fetched(f"{self.path}/{file.path}") for file in files}
            except FileNotFoundError:
                return False
            return True
        return all(Path(self.path, file.path).is_file() for file in files)

    def _entry(self, version: int) -> entries.Entry | None:
        ended = self.last is not None and version > self.last
        return None if ended else entries.entry(self.path, version)

    def _asks_again(self) -> bool:
        """Whether to ask ``_gone``: each time for a reader with an end, which would otherwise end too early."""
        now = time.monotonic()
        if self.last is None and now - self._gone_at < _GONE_SECONDS:
            return False
        self._gone_at = now
        return True

    def _gone(self, at: Position) -> bool:
        """Whether there are commits after a position; called if the first of these cannot be read."""
        newest = entries.newest(self.path)
        if newest is None or newest < at.version:
            table_version = TableVersion(table=self.input.table, id=at.table, version=at.version, file=at.file)
            check_inputs(self.lake, self.operator.version, {self.input.name: table_version})
        return newest is not None and min(newest, newest if self.last is None else self.last) > at.version

    def _added(self, entry: entries.Entry) -> Iterator[File]:
        """The files by which a commit adds rows; none for a commit that replaces rows."""
        for add in entries.added(entry):
            times = None if self.hold is None else times_in(add, self.hold.audit.partitions)
            yield File(unquote(add["path"]), int(add["size"]), add.get("partitionValues") or {}, times)

    def _admits_file(self, file: File) -> bool:
        return self._admits(file.times)

    def _admits(self, times: Interval | None) -> bool:
        return self.hold is None or self.hold.admits(times)

    def _admitted(self, at: Position) -> Callable[[SequencedFile], bool]:
        """(file of a version) -> whether it may be read."""
        if self.hold is None:
            return lambda _: True
        times = times_of(DeltaTable(self.path, version=at.snapshot), self.hold.audit.partitions)
        return lambda file: self._admits(times[file.path])

    def _chosen(self, files: Iterable[File], before: Sequence[File] = ()) -> list[File]:
        count, size = len(before), sum(file.size for file in before)
        chosen: list[File] = []
        for file in files:
            if count and (count >= (self.most_files or _FILES) or size >= _BYTES):
                break
            chosen.append(file)
            count, size = count + 1, size + file.size
        return chosen

    def _read(self, file: File, wanted: pa.Schema, left_out: frozenset[str]) -> pa.Table:
        path = f"{self.path}/{file.path}"
        try:
            with pq.ParquetFile(self._opened(file)) as opened:
                there = set(opened.schema_arrow.names) - left_out
                table = opened.read(columns=[name for name in wanted.names if name in there])
        except FileNotFoundError:
            fix = f"Put it back, or compute all anew: floodmark run {self.operator.name} --unbounded --from-scratch"
            where = f"input '{self.input.name}' of {self.operator.version}"
            raise ExecutionError(where, f"the file {path}", "none", fix, code="EXECUTION-060") from None
        except pa.ArrowInvalid as error:
            fix = f"Put a copy of it in its place, or compute all anew: floodmark run {self.operator.name} --unbounded --from-scratch"
            where = f"input '{self.input.name}' of {self.operator.version}"
            raise ExecutionError(where, f"a Parquet file at {path}", str(error), fix, code="EXECUTION-060") from error
        columns = [
            pa.nulls(table.num_rows, field.type)
            if field.name in left_out
            else table[field.name].cast(field.type)
            if field.name in there
            else self._absent(file, field, table.num_rows)
            for field in wanted
        ]
        return pa.table(columns, schema=wanted)

    def _opened(self, file: File) -> Path | pa.NativeFile:
        """A file for Parquet's reader."""
        if not is_bucket(self.path):
            return Path(self.path, file.path)
        there = self._fetched.pop(file.path, None)
        return fetched(f"{self.path}/{file.path}") if there is None else there

    def _absent(self, file: File, field: pa.Field, rows: int) -> pa.Array:
        """A column that a file lacks: a partition column, or a column added later, which is null."""
        text = file.values.get(field.name)
        return pa.repeat(pa.scalar(text, pa.string()).cast(field.type), rows)


def readers(operator: Operator, timeline: Timeline, order: Sequence[str], most_files: int | None) -> dict[str, Reader]:
    """Input name -> reader, in the given order of names.

    Raises:
        ExecutionError: EXECUTION-005, a table lacks columns that the operator reads, or has them in other types.
    """
    by_name = {input_.name: input_ for input_ in operator.inputs}
    lake, reached = timeline.lake, timeline.folder(REACHED)
    needed = columns_read(operator)
    by_input = {
        name: Reader(operator, by_name[name], lake, most_files, reached, columns=needed.get(name, frozenset()))
        for name in order
    }
    for name, hold in Hold.of(operator, lake).items():
        by_input[name].hold = hold
    for name, reader in by_input.items():
        types = {column: sql_type(field["type"]) for column, field in entries.fields_of(reader.path).items()}
        check_columns(types, operator, by_name[name])
    return by_input


def fetched(location: str) -> pa.NativeFile:
    """A file of a bucket, opened.

    Raises:
        FileNotFoundError: the file does not exist.
    """
    files, path = file_system(location)
    return files.open_input_file(path)


def _file_of(action: Mapping[str, Any]) -> File:
    values = {name: None if value is None else str(value) for name, value in (action.get("partition") or {}).items()}
    return File(unquote(action["path"]), int(action["size_bytes"]), values)
