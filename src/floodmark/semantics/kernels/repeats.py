"""Turns of key groups that are the same: a row that is broadcast changes all key groups without keys alike, so one of them is computed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from floodmark.semantics.state.store import Store

_MOST = 64
"""Turns that are remembered in a call: groups without keys differ by when they had their last."""


@dataclass(slots=True)
class Recording:
    """A store that passes everything on, and remembers what was read and what was left.

    Args:
        store: of a key group.
    """

    store: Store
    head: bytes | None = None
    """The index that was read."""
    read: dict[int, bytes] = field(default_factory=dict)
    """Number of a chunk -> as it was read first, before any change."""
    left: dict[int, bytes | None] = field(default_factory=dict)
    """Number of a chunk that was changed -> its content; None for one that was removed."""
    left_head: bytes | None = None
    """The index that was put."""

    def index(self) -> bytes | None:
        """The index as it was last put."""
        self.head = self.store.index()
        return self.head

    def put_index(self, index: bytes | None) -> None:
        """Replace the index."""
        self.left_head = index
        self.store.put_index(index)

    def expect(self, numbers: Sequence[int]) -> None:
        """Announce chunks."""
        self.store.expect(numbers)

    def get(self, number: int) -> bytes:
        """A chunk."""
        chunk = self.store.get(number)
        if number not in self.left:
            self.read.setdefault(number, chunk)
        return chunk

    def put(self, number: int, chunk: bytes) -> None:
        """Write a chunk."""
        self.left[number] = chunk
        self.store.put(number, chunk)

    def remove(self, number: int) -> None:
        """Remove a chunk."""
        self.left[number] = None
        self.store.remove(number)

    def repeated(self, store: Store) -> bool:
        """Leave in the store of another group with the same index what was left in this one; False if the other has other chunks."""
        if any(store.get(number) != chunk for number, chunk in self.read.items()):
            return False
        for number, content in self.left.items():
            if content is not None:
                store.put(number, content)
            elif number in self.read:
                store.remove(number)
        store.put_index(self.left_head)
        return True


@dataclass(slots=True)
class Repeats:
    """The turns of one call that may be repeated: of groups without keys, with the same rows, all broadcast."""

    turns: dict[tuple[bytes | None, tuple[int, ...]], tuple[Recording, tuple[int | None, int | None]]] = field(
        default_factory=dict
    )
    """(index, sequences of the rows) -> what was recorded, and deadline and tick of the group."""

    def repeated(self, store: Store, rows: tuple[int, ...]) -> tuple[int | None, int | None] | None:
        """Deadline and tick of a group that has had the turn of an earlier one; None if it has to be computed."""
        turn = self.turns.get((store.index(), rows))
        return turn[1] if turn is not None and turn[0].repeated(store) else None

    def keep(self, recording: Recording, rows: tuple[int, ...], waits: tuple[int | None, int | None]) -> None:
        """Remember the turn of a group without keys that has emitted nothing."""
        if len(self.turns) < _MOST:
            self.turns[recording.head, rows] = recording, waits
