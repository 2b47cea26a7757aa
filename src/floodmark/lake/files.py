"""Data files of a Delta table: those an engine has written, those an interval covers, and the statistics a commit tells of them."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake import DeltaTable
from deltalake.transaction import AddAction, RemoveAction

from floodmark.lake import entries
from floodmark.lake.rows import plain_type

_LONGEST = 32
"""Characters of a text that is kept as a statistic; a longer one says nothing about its file."""
_TO_NEXT = timedelta(microseconds=999)
"""Added before cutting to milliseconds, it rounds up; the last instant there is has no microseconds to lose."""
_REST = "rest-"
"""Begins the names of files with what is left of others."""
_NO_PARTITION = "__HIVE_DEFAULT_PARTITION__"


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """Files an engine has put into a folder of a table; they count once a commit names them.

    Args:
        folder: new, in the table's.
        partition_by: the table's partition columns.
    """

    folder: Path
    partition_by: tuple[str, ...] = ()

    @property
    def files(self) -> list[Path]:
        """The data files, in order."""
        return [file for file in sorted(self.folder.rglob("*.parquet")) if not file.name.startswith((".", "_"))]

    def kinds(self) -> Counter[int]:
        """Rows per ``_kind``; read only where a file has several."""
        kinds: Counter[int] = Counter()
        for file in self.files:
            with pq.ParquetFile(file) as parquet:
                only = _only_kind(parquet.metadata)
                if only is None:
                    counts = parquet.read(columns=["_kind"])["_kind"].value_counts().to_pylist()
                    kinds.update({pair["values"]: pair["counts"] for pair in counts})
                else:
                    kinds[only] += parquet.metadata.num_rows
        return kinds

    def actions(self, modified: int | None = None) -> list[AddAction]:
        """The files with rows, as a commit names them.

        Args:
            modified: modification time of the first one, ms; each other one is a millisecond later. By default all have the clock's.
        """
        footers = {file: footer for file in self.files if (footer := pq.read_metadata(file)).num_rows}
        now = time.time_ns() // 1_000_000
        times = [now] * len(footers) if modified is None else range(modified, modified + len(footers))
        return [_added(self, file, footer, at) for (file, footer), at in zip(footers.items(), times, strict=True)]


def inside(table: DeltaTable, first: datetime, last: datetime) -> list[RemoveAction] | None:
    """The files whose rows all lie in [first, last]; None when another one holds such rows too, or that is not known."""
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


def split(table: DeltaTable, written: Written, first: datetime, last: datetime) -> list[RemoveAction]:
    """The files that hold rows with event times in [first, last], as removed; their other rows, and markers, become files of ``written``."""
    for stale in written.folder.rglob(f"{_REST}*.parquet"):  # of an attempt before
        stale.unlink()
    removed = []
    now = time.time_ns() // 1_000_000
    for number, action in enumerate(pa.table(table.get_add_actions()).to_pylist()):
        low, high = ((action.get(side) or {}).get("_event_time") for side in ("min", "max"))
        if low is not None and high is not None and (high < first or low > last):
            continue
        path = unquote(action["path"])
        with (written.folder.parent / path).open("rb") as stream:
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
        come: it was added; otherwise it was taken out.
        first: event time in it, where that is known.
        last: the same.
    """

    come: bool
    first: datetime | None = None
    last: datetime | None = None


def changed_files(path: str, before: int, after: int) -> dict[str, Changed] | None:
    """The files by which the commits behind a version of a table, up to another one, have changed its rows; None where one of them is gone.

    Files that were merged, or that replace them, are none of these, and neither are files that have come and gone. A file that has come counts
    when it was merged since, and one that was merged before it was taken out counts too.
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
    """The first and the last event time that the statistics of a file tell."""
    bounds = json.loads(stats or "{}")
    texts = [bounds.get(side, {}).get("_event_time") for side in ("minValues", "maxValues")]
    return tuple(None if text is None else datetime.fromisoformat(text) for text in texts)


def _only_kind(footer: pq.FileMetaData) -> int | None:
    """The ``_kind`` of all rows of a file, where its statistics say that there is one."""
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
    """A file with its partition values and statistics."""
    path = file.relative_to(written.folder.parent)
    pairs = (part.split("=", 1) for part in path.parts[1:-1])
    values = {name: None if text == _NO_PARTITION else unquote(text) for name, text in pairs}
    return AddAction(path.as_posix(), file.stat().st_size, values, modified, True, statistics(footer))


def statistics(footer: pq.FileMetaData) -> str:
    """Delta's statistics of a Parquet file: rows, nulls, and the range of numbers, instants and short texts.

    Nulls are counted in columns without a range too: a reader takes a column without both for one that has no null.
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
    """Delta's statistics of a file.

    Args:
        rows: in it; None where nobody knows.
        nulls: column -> how many of its values are null.
        ranges: column -> its least and greatest value; those that Delta and Parquet do not agree on, such as floats, are left out.
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
    """Whether a value is a bound Delta and Parquet agree on."""
    return (isinstance(value, str) and len(value) <= _LONGEST) or (
        isinstance(value, int | date | datetime) and not isinstance(value, bool)
    )


def _text(value: Any, to_next: timedelta) -> int | str | None:
    """A bound as Delta writes it; instants in whole milliseconds, rounded outwards; None for one that is then behind the year 9999."""
    if not isinstance(value, datetime):
        return value.isoformat() if isinstance(value, date) else value
    try:
        value = (value.astimezone(UTC) if value.tzinfo else value.replace(tzinfo=UTC)) + to_next
    except OverflowError:
        return None
    return f"{value.year:04d}-{value:%m-%dT%H:%M:%S}.{value.microsecond // 1000:03d}Z"
