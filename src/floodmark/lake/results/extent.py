"""How much of a table lies in an interval of event time: files, rows and bytes, from the statistics in its log.

Only files that cross an end of the interval are read, and of these one column.
"""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake import DeltaTable
from deltalake.exceptions import TableNotFoundError

from floodmark.core.time import END, NEVER, Interval, from_ms, to_ms
from floodmark.lake.folder.storage import file_system
from floodmark.lake.table.rows import INSTANT

_TIME = "_event_time"


@dataclass(frozen=True, slots=True, kw_only=True)
class Extent:
    """Files of a table that hold rows of an interval, by their ranges of event time.

    Args:
        files: number of files.
        rows: rows of the interval in these files, retractions among them, without markers.
        size: bytes of the files.
    """

    files: int = 0
    rows: int = 0
    size: int = 0

    def __add__(self, other: Extent) -> Extent:
        """Both together."""
        return Extent(files=self.files + other.files, rows=self.rows + other.rows, size=self.size + other.size)


def extent(path: str, interval: Interval, version: int | None = None, *, opened: bool = True) -> Extent:
    """The extent of an interval in a table; nothing without a table.

    Args:
        path: path of the table.
        interval: of event time.
        version: version of the table; by default the newest.
        opened: count all files that a scan of the interval opens, by their ranges of event time; else those that hold a row of the interval.

    Raises:
        FileNotFoundError: a file that crosses an end of the interval is gone.
    """
    try:
        actions = pa.table(DeltaTable(path, version=version).get_add_actions(flatten=True))
    except TableNotFoundError:
        return Extent()
    unknown = pa.nulls(len(actions))
    low, high, nulls = (
        actions[f"{side}.{_TIME}"] if f"{side}.{_TIME}" in actions.column_names else unknown
        for side in ("min", "max", "null_count")
    )
    start = None if interval.start <= NEVER else from_ms(interval.start)
    end = None if interval.end > END else from_ms(interval.end)
    total = Extent()
    for name, size, rows, first_time, last_time, without in zip(
        actions["path"].to_pylist(),
        actions["size_bytes"].to_pylist(),
        actions["num_records"].to_pylist(),
        low.to_pylist(),
        high.to_pylist(),
        nulls.to_pylist(),
        strict=True,
    ):
        if rows is not None and rows == (without or 0):
            continue  # markers alone
        if first_time is None or last_time is None or without is None or rows is None:
            held = counted(path, name, interval)
        elif (start is None or last_time >= start) and (end is None or first_time < end):
            whole = (start is None or first_time >= start) and (end is None or last_time < end)
            held = rows - without if whole else counted(path, name, interval)
        else:
            continue
        if held or opened:
            total += Extent(files=1, rows=held, size=size)
    return total


def span(path: str) -> tuple[int, int] | None:
    """The first and the last event time of the rows of a table, ms, at the latest; all of time if a file does not say; None without rows."""
    try:
        actions = pa.table(DeltaTable(path).get_add_actions(flatten=True))
    except TableNotFoundError:
        return None
    names = [f"min.{_TIME}", f"max.{_TIME}", f"null_count.{_TIME}", "num_records"]
    if not set(names) <= set(actions.column_names):
        return (NEVER, END) if len(actions) else None
    first, last = END, NEVER
    for low, high, without, rows in zip(*(actions[name].to_pylist() for name in names), strict=True):
        if rows is not None and rows == without:
            continue  # markers alone
        known = low is not None and high is not None
        first, last = (min(first, to_ms(low)), max(last, to_ms(high))) if known else (NEVER, END)
    return (first, last) if first <= last else None


def counted(path: str, name: str, interval: Interval) -> int:
    """Rows of an interval in a file of a table, which is read.

    Args:
        path: path of the table.
        name: URL-encoded path of the file, as in commits.
        interval: of event time.
    """
    files, folder = file_system(path)
    with files.open_input_file(f"{folder}/{unquote(name)}") as file:
        times = pq.ParquetFile(file).read(columns=[_TIME])[_TIME].cast(INSTANT).drop_null()
    inside = pc.greater_equal(times, pa.scalar(from_ms(interval.start), INSTANT))
    if interval.end <= END:
        inside = pc.and_(inside, pc.less(times, pa.scalar(from_ms(interval.end), INSTANT)))
    return int(pc.sum(inside).as_py() or 0)
