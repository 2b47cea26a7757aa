"""Data files of a Delta table: files written by an engine, files inside an interval, files changed between versions, and their statistics."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake import DeltaTable
from deltalake.transaction import AddAction, RemoveAction

from floodmark.lake.folder import bucket, staging
from floodmark.lake.folder.copies import copy
from floodmark.lake.folder.storage import file_system
from floodmark.lake.table import entries
from floodmark.lake.table.rows import plain_type

if TYPE_CHECKING:
    from pyarrow import dataset

_LONGEST = 32
"""Most characters of a text in statistics. A column with a longer bound gets no range."""
_TO_NEXT = timedelta(microseconds=999)
"""Added before truncating to milliseconds, to round up."""
_REST = "rest-"
"""Name prefix of files with the remaining rows of split files."""
NO_PARTITION = "__HIVE_DEFAULT_PARTITION__"
"""In a path, the value of a partition column that is null."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Uploaded:
    """A data file that a worker has put into the bucket of its table.

    Args:
        path: path in the table's folder.
        size: bytes.
        stats: statistics as JSON (``statistics``).
        kinds: ``_kind`` -> number of rows; empty for rows without kinds.
        partition: partition column -> value.
    """

    path: str
    size: int
    stats: str
    kinds: Mapping[int, int]
    partition: Mapping[str, str | None]

    @staticmethod
    def of(file: Path, path: str, partition: Mapping[str, str | None]) -> Uploaded:
        """The facts of a local Parquet file that is put under a path."""
        footer = pq.read_metadata(file)
        kinds = _kinds([file]) if "_kind" in footer.schema.names else {}
        return Uploaded(path=path, size=file.stat().st_size, stats=statistics(footer), kinds=kinds, partition=partition)

    def to_json(self) -> str:
        """As JSON, for the way from the worker."""
        return json.dumps({**asdict(self), "kinds": list(self.kinds.items())})

    @staticmethod
    def from_json(text: str) -> Uploaded:
        """From ``to_json``."""
        values = json.loads(text)
        return Uploaded(**{**values, "kinds": dict(values["kinds"])})


def rows_of(table: DeltaTable, wanted: Callable[[str], bool], schema: pa.Schema | None = None) -> dataset.Dataset:
    """The rows of the files of a table that ``wanted`` (path in the table's folder -> bool) selects."""
    from pyarrow import dataset  # noqa: PLC0415 - with pandas

    whole = table.to_pyarrow_dataset(schema=schema)
    fragments = [one for one in whole.get_fragments() if wanted(unquote(one.path).lstrip("/"))]
    return dataset.FileSystemDataset(fragments, schema or whole.schema, whole.format, whole.filesystem)


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """Files that an engine wrote into a folder of a table. They become part of the table once a commit names them.

    Args:
        folder: new folder in the table's folder; for a table in a bucket a local folder of that name, whose files are sent before the commit.
        partition_by: the table's partition columns.
        sent: True if the files are in the bucket already.
        uploaded: further files, which workers have put into the bucket themselves.
    """

    folder: Path
    partition_by: tuple[str, ...] = ()
    sent: bool = False
    uploaded: tuple[Uploaded, ...] = ()

    def send(self, path: str) -> Written:
        """Send the files to a table in a bucket; nothing on a local disk, where they were written into the table's folder."""
        if self.sent or not bucket.is_bucket(path):
            return self
        bucket.send((file, f"{path}/{file.relative_to(self.folder.parent).as_posix()}") for file in self.files)
        return replace(self, sent=True)

    def copied(self, path: str) -> Written:
        """Copies of the files on this machine, or links to them, in a new folder of another table."""
        copies = Written(folder=staging.new_folder(path, make=False), partition_by=self.partition_by)
        for file in self.files:
            copy(str(file), str(copies.folder / file.relative_to(self.folder)))
        return copies

    @property
    def files(self) -> list[Path]:
        """The data files on this machine, in order."""
        return [file for file in sorted(self.folder.rglob("*.parquet")) if not file.name.startswith((".", "_"))]

    def kinds(self) -> Counter[int]:
        """Number of rows per ``_kind``. Reads the column only if a file's statistics do not show a single kind."""
        return sum((Counter(file.kinds) for file in self.uploaded), _kinds(self.files))

    def actions(self, modified: int | None = None) -> list[AddAction]:
        """The add actions of the files that have rows.

        Args:
            modified: modification time of the first file, ms; each further file is 1 ms later. By default all have the current time.
        """
        footers = {file: footer for file in self.files if (footer := pq.read_metadata(file)).num_rows}
        now, count = time.time_ns() // 1_000_000, len(self.uploaded) + len(footers)
        times = iter([now] * count if modified is None else range(modified, modified + count))
        actions = [
            AddAction(file.path, file.size, dict(file.partition), next(times), True, file.stats)
            for file in self.uploaded
        ]
        return actions + [_added(self, file, footer, next(times)) for file, footer in footers.items()]


def inside(table: DeltaTable, first: datetime, last: datetime) -> list[RemoveAction] | None:
    """Remove actions for the files whose rows all lie in [first, last]; None if a file lies partly in the range, or its range is unknown.

    Files of markers are skipped.

    Args:
        table: the opened table.
        first: first event time of the range.
        last: last event time of the range, inclusive.
    """
    actions = pa.table(table.get_add_actions())
    removed = []
    now = time.time_ns() // 1_000_000
    for action in actions.to_pylist():
        rows = action["num_records"]
        nulls = (action.get("null_count") or {}).get("_event_time")
        low, high = ((action.get(side) or {}).get("_event_time") for side in ("min", "max"))
        if rows is not None and rows in {nulls, 0}:
            continue  # markers
        if low is None or high is None or nulls is None:
            return None
        if high < first or low > last:
            continue
        if low < first or high > last or nulls:
            return None
        values = action.get("partition") or {}
        removed.append(RemoveAction(unquote(action["path"]), True, now, action["size_bytes"], values))
    return removed


def split(table: DeltaTable, table_path: str, written: Written, first: datetime, last: datetime) -> list[RemoveAction]:
    """Remove actions for the files with rows in [first, last]. Writes their other rows and markers into new files of ``written``.

    Args:
        table: the opened table.
        table_path: path or URI of the table.
        written: the files of the run; the new files go into its folder.
        first: first event time of the range.
        last: last event time of the range, inclusive.
    """
    for stale in written.folder.rglob(f"{_REST}*.parquet"):  # of an earlier attempt
        stale.unlink()
    removed = []
    now = time.time_ns() // 1_000_000
    for number, action in enumerate(pa.table(table.get_add_actions()).to_pylist()):
        low, high = ((action.get(side) or {}).get("_event_time") for side in ("min", "max"))
        if low is not None and high is not None and (high < first or low > last):
            continue
        path = unquote(action["path"])
        files, name = file_system(f"{table_path}/{path}")
        with files.open_input_file(name) as stream:
            rows = pq.ParquetFile(stream).read()
        rows = rows.cast(pa.schema([pa.field(one.name, plain_type(one.type)) for one in rows.schema]))
        moments = rows["_event_time"]
        covered = pc.and_(pc.greater_equal(moments, first), pc.less_equal(moments, last))
        remaining = rows.filter(pc.invert(pc.fill_null(covered, False)))
        if remaining.num_rows == rows.num_rows:
            continue
        removed.append(
            RemoveAction(unquote(action["path"]), True, now, action["size_bytes"], action.get("partition") or {})
        )
        if remaining.num_rows:
            folder = written.folder.joinpath(*(part for part in Path(path).parts[:-1] if "=" in part))
            folder.mkdir(parents=True, exist_ok=True)
            pq.write_table(remaining, folder / f"{_REST}{number}.parquet", compression="zstd")
    return removed


@dataclass(frozen=True, slots=True)
class Changed:
    """A file by which a commit has changed the rows of a table.

    Args:
        come: True if the file was added, False if it was removed.
        first: its first event time; None if unknown.
        last: its last event time; None if unknown.
    """

    come: bool
    first: datetime | None = None
    last: datetime | None = None


def changed_files(path: str, before: int, after: int) -> dict[str, Changed] | None:
    """File name -> change, for the files by which commits after ``before`` up to ``after`` changed a table's rows; None if a log entry was removed.

    Files that compaction merged or created do not count, nor do files that were both added and removed in between. An added file counts even if it was
    merged later, and a merged file counts if its rows were removed.

    Args:
        path: path of the table.
        before: the version after which commits count.
        after: the last version whose commit counts.
    """
    changed = dict[str, Changed]()
    for version in range(before + 1, after + 1):
        entry = entries.entry(path, version)
        if entry is None:
            return None
        for action in entries.actions(entry):
            file = action.get("add") or action.get("remove")
            if file is None or not file["dataChange"]:
                continue
            name, come = file["path"], "add" in action
            known = changed.get(name)
            if known is not None and known.come != come:
                del changed[name]
            else:
                changed[name] = Changed(come, *(_event_times(file.get("stats")) if come else ()))
    return changed


def _event_times(stats: str | None) -> tuple[datetime | None, ...]:
    """(first, last) event time from a file's statistics, each None if absent."""
    bounds = json.loads(stats or "{}")
    texts = [bounds.get(side, {}).get("_event_time") for side in ("minValues", "maxValues")]
    return tuple(None if text is None else datetime.fromisoformat(text) for text in texts)


def _kinds(files: Iterable[Path]) -> Counter[int]:
    """Number of rows per ``_kind`` of local files."""
    kinds: Counter[int] = Counter()
    for file in files:
        with pq.ParquetFile(file) as parquet:
            only = _single_kind(parquet.metadata)
            if only is None:
                counts = parquet.read(columns=["_kind"])["_kind"].value_counts().to_pylist()
                kinds.update({pair["values"]: pair["counts"] for pair in counts})
            else:
                kinds[only] += parquet.metadata.num_rows
    return kinds


def _single_kind(footer: pq.FileMetaData) -> int | None:
    """The ``_kind`` of all rows of a file if its statistics show a single one; else None."""
    index = next(number for number in range(footer.num_columns) if footer.schema.column(number).path == "_kind")
    column_statistics = [footer.row_group(number).column(index).statistics for number in range(footer.num_row_groups)]
    known = [
        one
        for one in column_statistics
        if one is not None and one.has_min_max and one.has_null_count and not one.null_count
    ]
    kinds = {kind for one in known for kind in (one.min, one.max)}
    return kinds.pop() if len(known) == len(column_statistics) and len(kinds) == 1 else None


def _added(written: Written, file: Path, footer: pq.FileMetaData, modified: int) -> AddAction:
    """The add action of a file, with partition values from its path and statistics from its footer."""
    path = file.relative_to(written.folder.parent)
    pairs = (part.split("=", 1) for part in path.parts[1:-1])
    values = {name: None if text == NO_PARTITION else unquote(text) for name, text in pairs}
    return AddAction(path.as_posix(), file.stat().st_size, values, modified, True, statistics(footer))


def statistics(footer: pq.FileMetaData) -> str:
    """Delta's statistics of a Parquet file as JSON: row count, null counts, and ranges of numbers, instants and short texts.

    Null counts are given for columns without a range too: a reader assumes that a column with neither has no nulls.
    """
    nulls: dict[str, int] = {}
    ranges: dict[str, tuple[Any, Any]] = {}
    uncounted: set[str] = set()
    unknown: set[str] = set()
    for group in (footer.row_group(i) for i in range(footer.num_row_groups)):
        for column in (group.column(i) for i in range(group.num_columns)):
            name, bounds = column.path_in_schema, column.statistics
            if "." in name or bounds is None or not bounds.has_null_count:
                uncounted.add(name)
                continue
            nulls[name] = nulls.get(name, 0) + bounds.null_count
            if bounds.null_count == group.num_rows:
                continue
            if not bounds.has_min_max or not _ordered(bounds.min) or not _ordered(bounds.max):
                unknown.add(name)
                continue
            low, high = ranges.get(name, (bounds.min, bounds.max))
            ranges[name] = min(low, bounds.min), max(high, bounds.max)
    known = {name: pair for name, pair in ranges.items() if name not in unknown | uncounted}
    return described(footer.num_rows, {name: count for name, count in nulls.items() if name not in uncounted}, known)


def described(rows: int | None, nulls: Mapping[str, int], ranges: Mapping[str, tuple[Any, Any]]) -> str:
    """Delta's statistics of a file as JSON.

    Args:
        rows: row count; None if unknown.
        nulls: column -> number of nulls.
        ranges: column -> (least, greatest) value. Types whose order differs between Delta and Parquet, such as floats, are left out.
    """
    known = {name: pair for name, pair in ranges.items() if all(map(_ordered, pair))}
    answer = {
        "numRecords": rows,
        "minValues": {name: _text(low, timedelta()) for name, (low, _) in known.items()},
        "maxValues": {n: text for n, (_, high) in known.items() if (text := _text(high, _TO_NEXT)) is not None},
        "nullCount": dict(nulls),
    }
    return json.dumps(answer)


def _ordered(value: object) -> bool:
    """True if Delta and Parquet order values of this type alike and the value is short enough for statistics."""
    return (isinstance(value, str) and len(value) <= _LONGEST) or (
        isinstance(value, int | date | datetime) and not isinstance(value, bool)
    )


def _text(value: Any, to_next: timedelta) -> int | str | None:
    """A bound in Delta's JSON form. Instants are cut to milliseconds after adding ``to_next``; None if the sum is after the year 9999."""
    if not isinstance(value, datetime):
        return value.isoformat() if isinstance(value, date) else value
    try:
        value = (value.astimezone(UTC) if value.tzinfo else value.replace(tzinfo=UTC)) + to_next
    except OverflowError:
        return None
    return f"{value.year:04d}-{value:%m-%dT%H:%M:%S}.{value.microsecond // 1000:03d}Z"
