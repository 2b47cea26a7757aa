"""The store of a key group in a bounded run: chunks in memory, and in a file once they are many. A key group need not fit into memory."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from typing import IO

from floodmark.semantics.state.store import MemoryStore

_COMPACT_BYTES = 256_000_000
"""Bytes of removed chunks from which the file is written anew, if they are more than half of it."""


class StateTooLarge(Exception):  # noqa: N818 - caught by whoever knows the step
    """A call of a kernel has read more state than fits into memory as objects.

    Args:
        size: bytes read so far.
        number: of the last chunk read.
        chunk: the last chunk read.
    """

    def __init__(self, size: int, number: int, chunk: bytes) -> None:
        super().__init__(f"{size} bytes")
        self.size, self.number, self.chunk = size, number, chunk


class SpilledStore(MemoryStore):
    """A store of one key group; ``close`` it to delete its file.

    Args:
        memory: most bytes of chunks in memory.
        most: most bytes that a call of a kernel may read.
    """

    def __init__(self, memory: int, most: int) -> None:
        super().__init__()
        self.memory, self.most = memory, most
        self.spilled: dict[int, tuple[int, int]] = {}
        self.file: IO[bytes] | None = None
        self.written = self.removed = self.read_bytes = self._held = 0

    @property
    def size(self) -> int:
        """Bytes of all chunks."""
        return self._held + self.written - self.removed

    def begin(self) -> None:
        """A call of a kernel begins."""
        self.read_bytes = 0

    def get(self, number: int) -> bytes:
        """A chunk.

        Raises:
            StateTooLarge: the call reads more than ``most`` bytes.
        """
        chunk = self.chunks.get(number)
        if chunk is None:
            start, size = self.spilled[number]
            assert self.file is not None
            self.file.seek(start)
            chunk = self.file.read(size)
        self.read_bytes += len(chunk)
        if self.read_bytes > self.most:
            raise StateTooLarge(self.read_bytes, number, chunk)
        return chunk

    def put(self, number: int, chunk: bytes) -> None:
        """Write a chunk."""
        self._forget(number)
        self.chunks[number] = chunk
        self._held += len(chunk)
        if self._held > self.memory:
            self._spill()

    def remove(self, number: int) -> None:
        """Remove a chunk."""
        self._forget(number)

    def expect(self, numbers: Sequence[int]) -> None:
        """Nothing: a read of a file costs no more by itself."""

    def close(self) -> None:
        """Delete the file."""
        if self.file is not None:
            self.file.close()

    def _forget(self, number: int) -> None:
        if number in self.chunks:
            self._held -= len(self.chunks.pop(number))
        elif number in self.spilled:
            self.removed += self.spilled.pop(number)[1]

    def _spill(self) -> None:
        """Append all chunks in memory to the file."""
        if self.file is None:
            self.file = _file()
        if self.removed > max(_COMPACT_BYTES, self.written // 2):
            self._compact()
        self.file.seek(self.written)
        for number, chunk in self.chunks.items():
            self.spilled[number] = self.written, len(chunk)
            self.file.write(chunk)
            self.written += len(chunk)
        self.chunks.clear()
        self._held = 0

    def _compact(self) -> None:
        """Copy the chunks in the file to a new file."""
        assert self.file is not None
        old, new, at = self.file, _file(), 0
        for number, (start, size) in sorted(self.spilled.items(), key=lambda item: item[1]):
            old.seek(start)
            new.write(old.read(size))
            self.spilled[number] = at, size
            at += size
        old.close()
        self.file, self.written, self.removed = new, at, 0


def _file() -> IO[bytes]:
    """A file without a name, which is gone once it is closed, however its process ends."""
    return tempfile.TemporaryFile(prefix="floodmark-state-")
