"""Keys that a sink holds: those that are not among all results are to be taken back."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Generic, TypeVar

Batch = TypeVar("Batch")


@dataclass(slots=True)
class Leftover(Generic[Batch]):
    """Keys of a sink, in a table that leaves the memory when there are many.

    Args:
        keys: the keys in the sink of a batch of changes.
    """

    keys: Callable[[Batch], Iterable[bytes]]
    _table: sqlite3.Connection = field(init=False)

    def __post_init__(self) -> None:
        self._table = sqlite3.connect("", isolation_level=None)
        self._table.execute("CREATE TABLE keys (key BLOB PRIMARY KEY) WITHOUT ROWID")

    def put(self, key: bytes | None, *, alive: bool = True) -> None:
        """The sink has a value of a key, or has none any more."""
        if key is not None:
            query = "INSERT OR IGNORE INTO keys VALUES (?)" if alive else "DELETE FROM keys WHERE key = ?"
            self._table.execute(query, (key,))

    def without(self, batches: Iterator[Batch]) -> Iterator[Batch]:
        """The batches, whose keys are left out."""
        for batch in batches:
            self._table.executemany("DELETE FROM keys WHERE key = ?", [(key,) for key in self.keys(batch)])
            yield batch

    def left(self) -> Iterator[bytes]:
        """The other keys."""
        return (key for (key,) in self._table.execute("SELECT key FROM keys"))
