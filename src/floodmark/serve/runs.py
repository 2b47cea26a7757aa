"""Runs: results in a file that is written once, in the order of their keys. The file is mapped into memory, so the system keeps what is read.

Of each run only the first key of every batch is in memory. A key is looked up among those, then in the rows of its batch: little is done
when a run is opened, as questions wait meanwhile.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa

from floodmark.deliveries.results import HAS
from floodmark.serve.values import Ordered, ordered, stored

_BATCH = 8_192
"""Most rows of a batch."""

Key = tuple[Ordered, ...]
"""The values of the key columns as they are compared; a shorter key comes before every key that it begins."""


@dataclass(slots=True)
class _Part:
    """One batch of a run: its rows, its key columns, and whether a row is a result."""

    rows: pa.RecordBatch
    keys: tuple[pa.Array, ...]
    has: pa.Array

    def key(self, number: int) -> Key:
        return tuple(ordered(column[number].as_py()) for column in self.keys)


@dataclass(slots=True)
class Run:
    """Results of a file, at most one of a key.

    Args:
        file: of the results.
        keys: names of the key columns, in order.
        goes: whether the file goes with the run; otherwise another process removes it.
    """

    file: Path
    keys: Sequence[str]
    goes: bool = True
    rows: int = field(init=False, default=0)
    _parts: list[_Part] = field(init=False, default_factory=list)
    _firsts: list[Key] = field(init=False, default_factory=list)
    """The first key of each part."""

    def __post_init__(self) -> None:
        with pa.memory_map(str(self.file)) as mapped, pa.ipc.open_file(mapped) as reader:
            batches = [reader.get_batch(number) for number in range(reader.num_record_batches)]
        for batch in batches:
            if batch.num_rows:
                self._add(batch)

    def __del__(self) -> None:
        if self.goes:
            self.file.unlink(missing_ok=True)  # what is mapped stays until nothing refers to it

    def _add(self, batch: pa.RecordBatch) -> None:
        part = _Part(batch, tuple(stored(batch.column(name)) for name in self.keys), batch.column(HAS))
        self._firsts.append(part.key(0))
        self._parts.append(part)
        self.rows += batch.num_rows

    @property
    def table(self) -> pa.Table:
        """All rows."""
        return pa.Table.from_batches([part.rows for part in self._parts])

    @property
    def bytes(self) -> int:
        """Bytes of the rows."""
        return sum(part.rows.nbytes for part in self._parts)

    def find(self, key: Key) -> tuple[pa.RecordBatch, int, bool] | None:
        """(batch, row in it, whether it is a result) of a key; None if the run has none."""
        at = bisect_right(self._firsts, key) - 1
        if at < 0:
            return None
        part = self._parts[at]
        rows = part.rows.num_rows
        number = bisect_left(range(rows), key, key=part.key)
        if number == rows or part.key(number) != key:
            return None
        return part.rows, number, part.has[number].as_py()

    def between(self, lower: Key, upper: Key) -> Iterator[tuple[Key, pa.RecordBatch, int, bool]]:
        """(key, batch, row in it, whether it is a result) of each row with lower <= key < upper, in order."""
        for part, first, last in self._slices(lower, upper):
            for number in range(first, last):
                yield part.key(number), part.rows, number, part.has[number].as_py()

    def sliced(self, lower: Key, upper: Key) -> pa.Table | None:
        """The rows with lower <= key < upper; None for none."""
        some = [part.rows.slice(first, last - first) for part, first, last in self._slices(lower, upper)]
        return pa.Table.from_batches(some) if some else None

    def _slices(self, lower: Key, upper: Key) -> Iterator[tuple[_Part, int, int]]:
        if not self._parts:
            return
        for part in self._parts[max(bisect_left(self._firsts, lower) - 1, 0) :]:
            first = bisect_left(range(part.rows.num_rows), lower, key=part.key)
            last = bisect_left(range(part.rows.num_rows), upper, key=part.key)
            if first < last:
                yield part, first, last
            if last < part.rows.num_rows:
                return


def write(file: Path, schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> int:
    """Write rows in the order in which they come; returns their number.

    Args:
        file: to be written.
        schema: of the rows; batches are cast to it.
        batches: the rows.
    """
    rows = 0
    with pa.OSFile(str(file), "wb") as sink, pa.ipc.new_file(sink, schema) as writer:
        for batch in batches:
            table = pa.Table.from_batches([batch]).cast(schema)
            rows += table.num_rows
            writer.write_table(table.combine_chunks(), max_chunksize=_BATCH)
    return rows
