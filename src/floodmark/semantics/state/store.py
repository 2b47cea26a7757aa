"""The store of a key group's state: the interface between kernels and engines."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol


class Store(Protocol):
    """The state of one key group: an index and numbered chunks."""

    def index(self) -> bytes | None:
        """The index as it was last put."""

    def put_index(self, index: bytes | None) -> None:
        """Replace the index; None: the key group has no state and no timers."""

    def expect(self, numbers: Sequence[int]) -> None:
        """Announce chunks that are about to be read, once each; a store may read them all at once."""

    def get(self, number: int) -> bytes:
        """A chunk."""

    def put(self, number: int, chunk: bytes) -> None:
        """Write a chunk; replaces a chunk of the same number."""

    def remove(self, number: int) -> None:
        """Remove a chunk."""


@dataclass(slots=True)
class MemoryStore:
    """A store in memory: bounded runs, runs in memory and tests."""

    chunks: dict[int, bytes] = field(default_factory=dict)
    head: bytes | None = None

    def index(self) -> bytes | None:
        """The index as it was last put."""
        return self.head

    def put_index(self, index: bytes | None) -> None:
        """Replace the index."""
        self.head = index

    def expect(self, numbers: Sequence[int]) -> None:
        """Nothing: all chunks are in memory."""

    def get(self, number: int) -> bytes:
        """A chunk."""
        return self.chunks[number]

    def put(self, number: int, chunk: bytes) -> None:
        """Write a chunk."""
        self.chunks[number] = chunk

    def remove(self, number: int) -> None:
        """Remove a chunk."""
        del self.chunks[number]
