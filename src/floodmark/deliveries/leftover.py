"""Keys that a sink holds: those that are not among all results are to be taken back."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from floodmark.deliveries.sink import Change


@dataclass(slots=True)
class Leftover:
    """Keys of a sink, in a table that leaves the memory when there are many.

    Args:
        key: the key of a change in the sink.
    """

    key: Callable[[Change], bytes]
    _table: sqlite3.Connection = field(init=False)

    def __post_init__(self) -> None:
        self._table = sqlite3.connect("", isolation_level=None)
        self._table.execute("CREATE TABLE keys (key BLOB PRIMARY KEY) WITHOUT ROWID")

    def put(self, key: bytes | None, *, alive: bool = True) -> None:
        """The sink has a value of a key, or has none any more."""
        if key is not None:
            query = "INSERT OR IGNORE INTO keys VALUES (?)" if alive else "DELETE FROM keys WHERE key = ?"
            self._table.execute(query, (key,))

    def without(self, batches: Iterator[list[Change]]) -> Iterator[list[Change]]:
        """The batches, whose keys are left out."""
        for batch in batches:
            self._table.executemany("DELETE FROM keys WHERE key = ?", [(self.key(change),) for change in batch])
            yield batch

    def left(self) -> Iterator[bytes]:
        """The other keys."""
        return (key for (key,) in self._table.execute("SELECT key FROM keys"))
