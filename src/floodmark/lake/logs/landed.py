"""Catalog of a source's landed units: a small table that caches the log's metadata. It lags by at most about 100 landing commits. No JVM."""

from __future__ import annotations

import json
import math
import sys
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import asdict, dataclass, fields, replace
from itertools import repeat
from typing import cast
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake import CommitProperties, DeltaTable, Schema, Transaction, WriterProperties, write_deltalake
from deltalake.exceptions import CommitFailedError
from deltalake.transaction import AddAction

from floodmark.core import crash
from floodmark.lake.folder.bucket import is_bucket
from floodmark.lake.folder.paths import Lake
from floodmark.lake.folder.storage import file_system
from floodmark.lake.logs import log
from floodmark.lake.table import entries
from floodmark.lake.table.commits import Landed, Landing, Status
from floodmark.lake.writing.confirmed import confirmed, create_table
from floodmark.lake.writing.conflicts import interrupted

_NUMBERS = ("size", "modified", "ordinal")
_SCHEMA = pa.schema([(f.name, pa.int64() if f.name in _NUMBERS else pa.string()) for f in fields(Landed)])
_GROUP = 4096
"""Rows per row group; a look-up of a name reads whole row groups."""
_MANY = 1000
"""Look-ups after which all rows are read: a scan of a folder with so many files looks up nearly all names."""
_FLUSH_AFTER = 20
"""Calls of ``add`` after which a flush is due."""
_MOST_BEHIND = 100
"""Calls of ``add`` after which ``add`` itself flushes, as a landing under load never comes to a pause."""
_MOST_FILES = 20
"""Data files of the table above which all of them are rewritten as one file."""
_REPLACED_HOURS = 1
"""Hours for which replaced data files stay: a reader that has opened an older version of the table needs them."""
_APP = "landed"
"""Application id of the transactions whose version is the last landing commit in the table."""
_PROPERTIES = {"delta.logRetentionDuration": "interval 1 day", "delta.deletedFileRetentionDuration": "interval 1 hour"}
"""Short retention, as no reader needs older versions of the table."""


class LandedUnits(Mapping[str, Landed]):
    """Unit name -> outcome, for every unit of a source.

    The metadata of the landing commits is authoritative; the table avoids reading all of it. A look-up reads only the row groups whose name range contains
    the name. Only the process that holds the source's lock may flush.
    """

    __slots__ = ("_adds", "_new", "_path", "_reached", "_recorded", "_stored", "_unwritten")

    def __init__(self, path: str) -> None:
        """Create an empty catalog whose table is at ``path``."""
        self._path = path
        self._adds = 0  # since the last flush
        self._reached = self._recorded = -1  # ordinals: of the last landing commit in memory, and in the table
        self._stored = _Stored(path, [])
        self._new: dict[str, Landed] = {}  # added since the table was read
        self._unwritten: dict[str, Landed] = {}  # of the new ones

    @staticmethod
    def load(lake: Lake, last: Landing) -> LandedUnits:
        """Open the table, and read the landing commits that are newer than the table. Writes nothing.

        Args:
            lake: lake of the source.
            last: the newest landing commit of the log.
        """
        units = LandedUnits(lake.internal("sources", last.source, "files"))
        if entries.is_table(units._path):
            files = entries.live_files(units._path)
            units._stored = _Stored(units._path, _files(DeltaTable(units._path)) if files is None else files)
            recorded = entries.transaction_of(units._path, _APP)
            units._reached = units._recorded = units._stored.newest() if recorded is None else recorded
        if units._reached < last.ordinal:
            for landing in reversed(list(log.landings(lake.log(last.source), after=units._reached))):
                units._merge(landing.units)
            units._reached = last.ordinal
        return units

    def __getitem__(self, name: str) -> Landed:
        """The outcome of a unit.

        Raises:
            KeyError: the unit never landed.
        """
        return self._new[name] if name in self._new else self._stored.unit(name)

    def same(self, name: str, size: int, modified: int) -> bool:
        """True if the unit is in the catalog with this size (bytes) and modification time (ns). Cheap, as each scan of a folder calls it per file."""
        unit = self._new.get(name)
        if unit is not None:
            return unit.size == size and unit.modified == modified
        return self._stored.same(name, size, modified)

    def refused(self) -> dict[str, Landed]:
        """Unit name -> outcome for the units whose rows are not in the log: unreadable, or replaced after landing. Reads all rows."""
        stored = (name for name in self._stored.refused() if name not in self._new)
        refused = {name: self._stored.unit(name) for name in stored}
        return refused | {name: unit for name, unit in self._new.items() if unit.status != "landed"}

    def newest(self) -> dict[str, Landed]:
        """Unit name -> outcome for the last landing commit that recorded units. Reads only the row groups that may hold these units."""
        last = max((unit.ordinal for unit in self._new.values()), default=-1)
        units = {name: unit for name, unit in self._new.items() if unit.ordinal == last}
        return units or {name: self[name] for name in self._stored.of_last_commit()}

    def __iter__(self) -> Iterator[str]:
        """Iterate over the names of all units."""
        stored = self._stored.names()
        yield from stored
        yield from (name for name in self._new if name not in stored)

    def __len__(self) -> int:
        """Number of units."""
        return len(self._stored.names() | self._new.keys())

    def add(self, units: Iterable[Landed]) -> None:
        """Add outcomes of units. Flushes if that was due long ago."""
        self._merge(units)
        self._adds += 1
        if self._adds >= _MOST_BEHIND:
            self.flush()

    @property
    def due(self) -> bool:
        """Whether to flush in the next pause."""
        return self._adds >= _FLUSH_AFTER

    def flush(self) -> None:
        """Write pending outcomes to the table, and rewrite the table if it has over ``_MOST_FILES`` files.

        Raises:
            LifecycleError: LIFECYCLE-004, another landing has written the table meanwhile.
        """
        try:
            self._flush()
        except CommitFailedError as error:
            raise interrupted(self._path, f"one: {error}") from error

    def _flush(self) -> None:
        behind = self._reached - self._recorded
        if self._unwritten:
            crash.point("landing.before_files")
            rows, groups = (
                _sorted(_table(self._unwritten.values()), "name"),
                WriterProperties(max_row_group_size=_GROUP),
            )
            if is_bucket(self._path):
                self._append_confirmed(rows, groups)
            else:
                write_deltalake(
                    self._path,
                    rows,
                    mode="append",
                    configuration=_PROPERTIES,
                    commit_properties=CommitProperties(app_transactions=[Transaction(_APP, self._reached)]),
                    writer_properties=groups,
                )
            crash.point("landing.after_files")
            self._unwritten.clear()
            self._recorded = self._reached
            self._compact()
        elif behind >= _FLUSH_AFTER and entries.is_table(self._path):
            table = DeltaTable(self._path)  # only markers landed: the next load skips their commits
            confirmed(
                table,
                self._path,
                lambda properties: table.create_write_transaction(
                    [], "append", table.schema(), [], commit_properties=properties
                ),
                transactions=[Transaction(_APP, self._reached)],
            )
            self._recorded = self._reached
        self._adds = 0

    def _append_confirmed(self, rows: pa.Table, groups: WriterProperties) -> None:
        """Append rows in a bucket, once: the commit is looked up if its answer was lost."""
        if not entries.is_table(self._path):
            create_table(self._path, Schema.from_arrow(_SCHEMA), properties=_PROPERTIES)
        table = DeltaTable(self._path)
        confirmed(
            table,
            self._path,
            lambda properties: write_deltalake(
                table, rows, mode="append", commit_properties=properties, writer_properties=groups
            ),
            transactions=[Transaction(_APP, self._reached)],
        )

    def _compact(self) -> None:
        """Replace many files by one file with one row per unit, ordered by name, in one commit.

        The commit removes only the files of the version read here: rows that another process appends meanwhile stay, and the second
        of two rewrites fails.
        """
        table = DeltaTable(self._path)
        if len(table.file_uris()) <= _MOST_FILES:
            return
        rows = _sorted(_newest(_read(table, self._path)), "name")
        crash.point("landed.before_file")
        added = _write(rows, self._path)
        crash.point("landed.before_commit")
        confirmed(
            table,
            self._path,
            lambda properties: table.create_write_transaction(
                [added], "overwrite", table.schema(), [], commit_properties=properties
            ),
        )
        crash.point("landed.after_commit")
        DeltaTable(self._path).vacuum(_REPLACED_HOURS, dry_run=False, enforce_retention_duration=False, full=True)
        newest = DeltaTable(self._path)
        newest.create_checkpoint()  # opening the table then reads only later entries
        self._stored = _Stored(self._path, _files(newest))
        self._new.clear()

    def _merge(self, units: Iterable[Landed]) -> None:
        for unit in units:
            if unit.status != "changing":
                self._new[unit.name] = self._unwritten[unit.name] = unit
                self._reached = max(self._reached, unit.ordinal)


@dataclass(frozen=True, slots=True)
class _Group:
    """A row group of a data file. Its rows are read by the first look-up of a name in its name range.

    Args:
        order: position among all row groups, oldest file first.
        file: path of the file in the table's folder.
        footer: Parquet footer of the file.
        number: index of the row group in the file.
        low: least name; None if unknown.
        high: greatest name; None if unknown.
        last: greatest ordinal of its rows' landing commits; None if unknown.
    """

    order: int
    file: str
    footer: pq.FileMetaData
    number: int
    low: str | None
    high: str | None
    last: int | None

    def may_hold(self, name: str) -> bool:
        return self.low is None or self.high is None or self.low <= name <= self.high


class _Stored:
    """Rows of the table, read lazily by row group."""

    __slots__ = ("_asked", "_columns", "_files", "_last", "_path", "_row_of", "_unread")

    def __init__(self, path: str, files: list[str]) -> None:
        """Create the rows without reading anything.

        Args:
            path: path of the table.
            files: data files of the table, oldest first.
        """
        self._path, self._files = path, files
        self._asked = 0  # look-ups while groups are not read
        self._unread: list[_Group] | None = None if files else []  # None: not even the footers are read
        self._columns: list[_Columns] = []  # of the groups that were read
        self._row_of: dict[str, tuple[int, int]] = {}  # name -> group in ``_columns``, row
        self._last: list[str] | None = None  # of the last landing commit; None: not looked for

    def unit(self, name: str) -> Landed:
        location = self._row(name)
        if location is None:
            raise KeyError(name)
        group, row = location
        return self._columns[group].unit(name, row)

    def same(self, name: str, size: int, modified: int) -> bool:
        location = self._row(name)
        return location is not None and self._columns[location[0]].same(location[1], size, modified)

    def names(self) -> AbstractSet[str]:
        """Names of all units. Reads all row groups."""
        if self._unread != []:
            self._read(self._groups())
        return self._row_of.keys()

    def refused(self) -> list[str]:
        """Names of the units whose status is another one than ``landed``. Reads all row groups."""
        self.names()
        return [name for name, (group, row) in self._row_of.items() if self._columns[group].status(row) != "landed"]

    def newest(self) -> int:
        """Greatest ordinal of all rows; -1 without rows. Reads all row groups."""
        self.names()
        return max((columns.newest() for columns in self._columns), default=-1)

    def of_last_commit(self) -> list[str]:
        """Names of the units with the greatest ordinal. Reads only row groups that may hold that ordinal."""
        if self._last is None:
            groups = [group for file in self._files for group in _groups(self._path, file)]
            newest, self._last = -1, []
            for group in sorted(groups, key=lambda one: math.inf if one.last is None else one.last, reverse=True):
                if group.last is not None and group.last < newest:
                    break
                rows = _rows(self._path, group)
                last = pc.max(rows["ordinal"]).as_py()
                if last is not None and last >= newest:
                    names = rows.filter(pc.equal(rows["ordinal"], last))["name"].to_pylist()
                    newest, self._last = last, names if last > newest else [*self._last, *names]
        return self._last

    def _row(self, name: str) -> tuple[int, int] | None:
        if self._unread != []:
            self._asked += 1
            groups = self._groups()
            self._read([group for group in groups if group.may_hold(name)] if self._asked <= _MANY else groups)
        return self._row_of.get(name)

    def _groups(self) -> list[_Group]:
        """The row groups that are not read yet."""
        if self._unread is None:
            self._unread = [group for file in self._files for group in _groups(self._path, file)]
            self._unread = [replace(group, order=order) for order, group in enumerate(self._unread)]
        return self._unread

    def _read(self, groups: list[_Group]) -> None:
        for group in groups:
            rows = _rows(self._path, group)
            columns, at = _Columns(rows, group.order), len(self._columns)
            self._columns.append(columns)
            names = rows["name"].to_numpy().tolist()
            if self._row_of.keys().isdisjoint(names):
                self._row_of.update(zip(names, zip(repeat(at), range(len(names))), strict=False))
                continue
            for row, name in enumerate(names):
                known = self._row_of.get(name)
                if known is None or self._columns[known[0]].age(known[1]) <= columns.age(row):
                    self._row_of[name] = (at, row)
        if groups:
            self._unread = [group for group in self._groups() if group not in groups]


class _Columns:
    """Rows of a row group: numbers as arrays, texts as bytes and offsets. A look-up builds its row from them."""

    __slots__ = ("_digests", "_modified", "_order", "_ordinals", "_sizes", "_statuses")

    def __init__(self, rows: pa.Table, order: int) -> None:
        self._sizes, self._modified, self._ordinals = (rows[name].to_numpy() for name in _NUMBERS)
        self._digests = _Texts(rows["digest"])
        self._statuses = cast("list[Status]", [sys.intern(status) for status in rows["status"].to_numpy().tolist()])
        self._order = order

    def age(self, row: int) -> tuple[int, int]:
        """Sort key of a row: among rows of one name the greatest key is valid. Within a row group the later row replaces an equal key."""
        return self._ordinals.item(row), self._order

    def newest(self) -> int:
        return int(self._ordinals.max(initial=-1))

    def status(self, row: int) -> Status:
        return self._statuses[row]

    def same(self, row: int, size: int, modified: int) -> bool:
        return bool(self._modified.item(row) == modified and self._sizes.item(row) == size)

    def unit(self, name: str, row: int) -> Landed:
        return Landed(
            name=name,
            size=self._sizes.item(row),
            modified=self._modified.item(row),
            digest=self._digests[row],
            status=self._statuses[row],
            ordinal=self._ordinals.item(row),
        )


class _Texts:
    """A column of texts with indexed access. Arrow's scalars take ten times as long."""

    __slots__ = ("_bytes", "_offsets")

    def __init__(self, column: pa.ChunkedArray) -> None:
        texts = pa.concat_arrays([pa.array([], pa.string()), *column.chunks])
        _, offsets, content = texts.buffers()
        self._offsets = np.frombuffer(offsets, dtype=np.int32) if offsets else np.zeros(1, dtype=np.int32)
        self._bytes = memoryview(content or b"")

    def __getitem__(self, row: int) -> str:
        return str(self._bytes[self._offsets.item(row) : self._offsets.item(row + 1)], "utf-8")


def _table(units: Iterable[Landed]) -> pa.Table:
    return pa.Table.from_pylist([asdict(unit) for unit in units], schema=_SCHEMA)


def _read(table: DeltaTable, path: str) -> pa.Table:
    """The rows of a version by landing commit, oldest first; within a landing commit in the order written."""
    files, base = file_system(path)
    paths = [f"{base}/{file}" for file in _files(table)]
    if not paths:
        return _SCHEMA.empty_table()
    rows = pq.read_table(paths, schema=_SCHEMA, filesystem=files, partitioning=None)
    return _sorted(_counting(rows), "ordinal")


def _newest(rows: pa.Table) -> pa.Table:
    """The last row of each name."""
    last = dict(zip(rows["name"].to_pylist(), range(len(rows)), strict=True))
    return rows.take(list(last.values()))


def _counting(rows: pa.Table) -> pa.Table:
    """The rows without status ``changing``."""
    return rows.filter(pc.not_equal(rows["status"], "changing"))


def _sorted(rows: pa.Table, column: str) -> pa.Table:
    """Sort rows by a column. ``Table.sort_by`` would import pandas."""
    return rows.take(pc.sort_indices(rows[column]))


def _files(table: DeltaTable) -> list[str]:
    """Paths of a table's data files in its folder, oldest first."""
    added = _sorted(pa.table(table.get_add_actions()), "modification_time")["path"].to_pylist()
    return [unquote(file) for file in added]


def _groups(path: str, file: str) -> list[_Group]:
    """The row groups of a data file."""
    files, base = file_system(f"{path}/{file}")
    footer = pq.read_metadata(base, filesystem=files)
    name, ordinal = (footer.schema.names.index(column) for column in ("name", "ordinal"))
    groups = []
    for number in range(footer.num_row_groups):
        names, ordinals = (footer.row_group(number).column(column).statistics for column in (name, ordinal))
        low, high = (names.min, names.max) if names is not None and names.has_min_max else (None, None)
        last = int(ordinals.max) if ordinals is not None and ordinals.has_min_max else None
        groups.append(_Group(0, file, footer, number, low, high, last))
    return groups


def _rows(path: str, group: _Group) -> pa.Table:
    files, base = file_system(f"{path}/{group.file}")
    with files.open_input_file(base) as content:
        return _counting(pq.ParquetFile(content, metadata=group.footer).read_row_group(group.number).cast(_SCHEMA))


def _write(rows: pa.Table, path: str) -> AddAction:
    """Write a data file that no commit names yet. Returns its add action."""
    files, base = file_system(path)
    name = f"part-{uuid.uuid4()}.parquet"
    pq.write_table(rows, f"{base}/{name}", filesystem=files, compression="zstd", row_group_size=_GROUP)
    size, at = files.get_file_info(f"{base}/{name}").size, time.time_ns() // 1_000_000
    return AddAction(name, size, {}, at, data_change=True, stats=json.dumps({"numRecords": len(rows)}))
