"""Units that have landed at a source: a small table beside the log, a few commits behind the log at most. No JVM."""

from __future__ import annotations

import json
import sys
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, fields
from typing import cast
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from deltalake.exceptions import CommitFailedError
from deltalake.transaction import AddAction

from floodmark.core import crash
from floodmark.lake import log
from floodmark.lake.commits import Landed, Landing, Status
from floodmark.lake.conflicts import interrupted
from floodmark.lake.paths import Lake
from floodmark.lake.storage import file_system

_NUMBERS = ("size", "modified", "ordinal")
_SCHEMA = pa.schema([(f.name, pa.int64() if f.name in _NUMBERS else pa.string()) for f in fields(Landed)])
_FLUSH_AFTER = 20
_MOST_FILES = 20
"""Data files of the table above which all of them are rewritten as one file."""
_REPLACED_HOURS = 1
"""Hours for which replaced data files stay: a reader that has opened an older version of the table needs them."""
_APP = "landed"
"""Application id under which the table records the last landing commit whose units it holds."""
_PROPERTIES = {"delta.logRetentionDuration": "interval 1 day", "delta.deletedFileRetentionDuration": "interval 1 hour"}
"""Nobody reads older versions of the table."""


class LandedUnits(Mapping[str, Landed]):
    """Name of a unit -> what became of the unit, for every unit a source has landed.

    Rows stay columns, with a dictionary of names to row numbers: a ``Landed`` is created by each look-up. The metadata of the
    landing commits is the truth; the table saves reading all of it. Only the process that holds the source's lock may flush.
    """

    __slots__ = ("_adds", "_columns", "_new", "_path", "_reached", "_recorded", "_row_of", "_written")

    def __init__(self, path: str) -> None:
        """An empty list, whose table is at ``path``."""
        self._path = path
        self._adds = 0  # since the last flush
        self._reached = self._recorded = -1  # ordinals: of the last landing commit in memory, and in the table
        self._new: list[Landed] = []  # added since the table was read, behind its rows
        self._written = 0  # of the new ones
        self._take(_SCHEMA.empty_table())

    @staticmethod
    def load(lake: Lake, last: Landing) -> LandedUnits:
        """Read the table, then the landing commits that are newer than the table. Writes nothing.

        Args:
            lake: of the source.
            last: the newest landing commit of the log.
        """
        units = LandedUnits(lake.internal("sources", last.source, "files"))
        if DeltaTable.is_deltatable(units._path):
            table = DeltaTable(units._path)
            rows = _read(table, units._path)
            units._take(rows)
            recorded, newest = table.transaction_version(_APP), pc.max(rows["ordinal"]).as_py()
            units._reached = units._recorded = max(-1 if n is None else n for n in (recorded, newest))
        if units._reached < last.ordinal:
            for landing in reversed(list(log.landings(lake.log(last.source), after=units._reached))):
                units._merge(landing.units)
            units._reached = last.ordinal
        return units

    def __getitem__(self, name: str) -> Landed:
        """What became of a unit."""
        row = self._row_of[name]
        if row >= len(self._columns):
            return self._new[row - len(self._columns)]
        return self._columns.unit(name, row)

    def same(self, name: str, size: int, modified: int) -> bool:
        """Whether a unit of that name is known with that size and modification time; cheap, as it is asked of every file at every look."""
        row = self._row_of.get(name)
        if row is None:
            return False
        if row < len(self._columns):
            return self._columns.same(row, size, modified)
        unit = self._new[row - len(self._columns)]
        return unit.size == size and unit.modified == modified

    def __iter__(self) -> Iterator[str]:
        """Names of units."""
        return iter(self._row_of)

    def __len__(self) -> int:
        """How many units there are."""
        return len(self._row_of)

    def add(self, units: Iterable[Landed]) -> None:
        """Record what became of units; every twentieth call flushes."""
        self._merge(units)
        self._adds += 1
        if self._adds >= _FLUSH_AFTER:
            self.flush()

    def flush(self) -> None:
        """Write to the table what is not in it yet, and rewrite the table once its files are many.

        Raises:
            LifecycleError: LIFECYCLE-004, another landing has written the table meanwhile.
        """
        try:
            self._flush()
        except CommitFailedError as error:
            raise interrupted(self._path, f"one: {error}") from error

    def _flush(self) -> None:
        unwritten, behind = self._new[self._written :], self._reached - self._recorded
        record = CommitProperties(app_transactions=[Transaction(_APP, self._reached)])
        if unwritten:
            crash.point("landing.before_files")
            rows = _table(unwritten)
            write_deltalake(self._path, rows, mode="append", configuration=_PROPERTIES, commit_properties=record)
            crash.point("landing.after_files")
            self._written, self._recorded = len(self._new), self._reached
            self._compact()
        elif behind >= _FLUSH_AFTER and DeltaTable.is_deltatable(self._path):
            table = DeltaTable(self._path)  # only markers came: the next opening skips them
            table.create_write_transaction([], "append", table.schema(), [], commit_properties=record)
            self._recorded = self._reached
        self._adds = 0

    def _compact(self) -> None:
        """Replace many files by one that has one row per unit, in one commit.

        The commit removes only the files of the version read here: rows that another process appends meanwhile stay, and the second
        of two rewrites fails.
        """
        table = DeltaTable(self._path)
        if len(table.file_uris()) <= _MOST_FILES:
            return
        every = _read(table, self._path)
        rows = every.take(sorted(_newest_rows(every).values()))
        crash.point("landed.before_file")
        added = _write(rows, self._path)
        crash.point("landed.before_commit")
        table.create_write_transaction([added], "overwrite", table.schema(), [])
        crash.point("landed.after_commit")
        DeltaTable(self._path).vacuum(_REPLACED_HOURS, dry_run=False, enforce_retention_duration=False, full=True)
        self._take(rows)

    def _take(self, rows: pa.Table) -> None:
        """Hold rows of the table, of which the later one counts where two have the same name."""
        self._columns = _Columns(rows)
        self._row_of = _newest_rows(rows)
        self._new.clear()
        self._written = 0

    def _merge(self, units: Iterable[Landed]) -> None:
        for unit in units:
            if unit.status != "changing":
                self._row_of[unit.name] = len(self._columns) + len(self._new)
                self._new.append(unit)
                self._reached = max(self._reached, unit.ordinal)


class _Columns:
    """Rows of the table: numbers as arrays, texts as bytes and offsets, from which a look-up makes its row."""

    __slots__ = ("_digests", "_modified", "_ordinals", "_sizes", "_statuses")

    def __init__(self, rows: pa.Table) -> None:
        self._sizes, self._modified, self._ordinals = (rows[name].to_numpy() for name in _NUMBERS)
        self._digests = _Texts(rows["digest"])
        self._statuses = cast("list[Status]", [sys.intern(status) for status in rows["status"].to_numpy().tolist()])

    def __len__(self) -> int:
        return len(self._sizes)

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
    """A column of texts; Arrow's own scalars take ten times as long."""

    __slots__ = ("_bytes", "_offsets")

    def __init__(self, column: pa.ChunkedArray) -> None:
        texts = pa.concat_arrays([pa.array([], pa.string()), *column.chunks])
        _, offsets, content = texts.buffers()
        self._offsets = np.frombuffer(offsets, dtype=np.int32) if offsets else np.zeros(1, dtype=np.int32)
        self._bytes = memoryview(content or b"")

    def __getitem__(self, row: int) -> str:
        return str(self._bytes[self._offsets.item(row) : self._offsets.item(row + 1)], "utf-8")


def _newest_rows(rows: pa.Table) -> dict[str, int]:
    """Name -> number of its last row."""
    return dict(zip(rows["name"].to_numpy().tolist(), range(len(rows)), strict=True))


def _table(units: Iterable[Landed]) -> pa.Table:
    return pa.Table.from_pylist([asdict(unit) for unit in units], schema=_SCHEMA)


def _read(table: DeltaTable, path: str) -> pa.Table:
    """The rows of a version, oldest first: by landing commit, and of one landing commit in the order in which they were written."""
    files, base = file_system(path)
    added = pa.table(table.get_add_actions()).sort_by("modification_time")["path"].to_pylist()
    if not added:
        return _SCHEMA.empty_table()
    paths = [f"{base}/{unquote(name)}" for name in added]
    rows = pq.read_table(paths, schema=_SCHEMA, filesystem=files, partitioning=None)
    return rows.filter(pc.field("status") != "changing").sort_by("ordinal")


def _write(rows: pa.Table, path: str) -> AddAction:
    """Write a data file that counts once a commit names it."""
    files, base = file_system(path)
    name = f"part-{uuid.uuid4()}.parquet"
    pq.write_table(rows, f"{base}/{name}", filesystem=files, compression="zstd")
    size, at = files.get_file_info(f"{base}/{name}").size, time.time_ns() // 1_000_000
    return AddAction(name, size, {}, at, data_change=True, stats=json.dumps({"numRecords": len(rows)}))
