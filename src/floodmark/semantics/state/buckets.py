"""Buckets of a key group over a store, of whatever content: a micro-batch reads and writes those it touches, and no others.

Buckets are split one at a time as content comes (linear hashing, Litwin 1980), so that they stay small whatever the group holds. The directory
knows the weight of each bucket, and the earliest progress and clock for which something in it waits.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sized
from dataclasses import dataclass, field
from typing import Any, ClassVar, Generic, TypeVar

from floodmark.semantics.encoding.plain import pack
from floodmark.semantics.state.directory import NONE, Directory, Item, combined
from floodmark.semantics.state.store import Store

Content = TypeVar("Content", bound=Sized)

_LARGE = 1_000_000
"""Bytes from which a store may keep a chunk in pieces: it is then removed before it is written anew."""


@dataclass(slots=True)
class Bucket(Generic[Content]):
    """An open bucket.

    Args:
        content: what is in it.
        stored: bytes of its chunk in the store; 0 for none.
        changed: whether ``close`` writes it.
    """

    content: Content
    stored: int = 0
    changed: bool = False


@dataclass(slots=True)
class Buckets(ABC, Generic[Content]):
    """The buckets of one key group over a store; open it, work, ``close`` it.

    Args:
        store: of the group.
        extra: plain data the kernel keeps beside the buckets; written with the index.
        directory: of the buckets.
    """

    full: ClassVar[int]
    """Average weight per bucket."""

    store: Store
    extra: dict[str, Any]
    directory: Directory
    _weight: int = 0
    _open: dict[int, Bucket[Content]] = field(default_factory=dict)

    @abstractmethod
    def _unpacked(self, data: bytes) -> Content:
        """The content of a chunk; empty for a bucket without one."""

    @abstractmethod
    def _packed(self, content: Content) -> bytes:
        """The chunk of a content."""

    @abstractmethod
    def _item(self, content: Content) -> Item:
        """Weight, earliest progress and earliest clock of a content."""

    @abstractmethod
    def _divided(self, content: Content) -> Iterable[tuple[int, Content]]:
        """(number of a bucket, what of a content belongs there), each in its order."""

    @abstractmethod
    def _index(self, size: int, top: list[Item]) -> tuple[Any, ...]:
        """The index of the group, for so many buckets and the page at the top of the directory."""

    def close(self) -> tuple[int, int]:
        """Write changed buckets; returns the earliest progress and the earliest clock for which something waits."""
        for number, bucket in self._open.items():
            if bucket.changed:
                self._recount(number, bucket)
        if self._weight > self.full * self.directory.size:
            self._split(-(-self._weight // self.full))
        for number, bucket in self._open.items():
            if not bucket.changed:
                continue
            if bucket.stored and (not bucket.content or bucket.stored > _LARGE):
                self.store.remove(number)
            if bucket.content:
                self.store.put(number, self._packed(bucket.content))
        self._open.clear()
        top = self.directory.close()
        weight, event, tick = combined(top)
        size, top = (self.directory.size, top) if weight else (0, [])
        self.store.put_index(pack(self._index(size, top)) if weight or self.extra else None)
        return event, tick

    def contents(self) -> Iterator[Content]:
        """The content of each stored bucket, one at a time. Nothing may be changed meanwhile."""
        for number in list(self.directory.due(NONE, NONE)):
            yield self._unpacked(self.store.get(number))

    def _bucket(self, number: int) -> Bucket[Content]:
        bucket = self._open.get(number)
        if bucket is None:
            data = self.store.get(number) if self.directory[number][0] else b""
            bucket = self._open[number] = Bucket(self._unpacked(data), len(data))
        return bucket

    def _expect(self, numbers: Iterable[int]) -> None:
        """Open buckets that are about to be read, all at once."""
        closed = [number for number in dict.fromkeys(numbers) if number not in self._open]
        self.directory.expect(closed)
        self.store.expect([number for number in closed if self.directory[number][0]])
        for number in closed:
            self._bucket(number)

    def _grow(self) -> None:
        self._open[self.directory.size] = Bucket(self._unpacked(b""), changed=True)
        self.directory.grow()

    def _split(self, size: int) -> None:
        """Add buckets up to a size. Each takes its share of an earlier bucket, in its order.

        As if they were added one at a time, but all content moves once: what a new bucket takes comes from one bucket that was there.
        """
        roots = dict[int, int]()
        for number in range(self.directory.size, size):
            source = number - level(number)
            roots[number] = roots.get(source, source)
        split = dict.fromkeys(roots.values())
        self._expect(split)
        for _ in roots:
            self._grow()
        for number in split:
            bucket = self._open[number]
            before, bucket.content = bucket.content, self._unpacked(b"")
            for target, part in self._divided(before):
                self._open[target].content = part
            bucket.changed |= len(bucket.content) < len(before)
        for number in (*split, *roots):
            self._recount(number, self._open[number])

    def _recount(self, number: int, bucket: Bucket[Content]) -> None:
        before, after = self.directory[number], self._item(bucket.content)
        if after != before:
            self.directory[number] = after
        self._weight += after[0] - before[0]


def level(number: int) -> int:
    """The greatest power of two that is not above a number of 1 or more: buckets below the split point have one bit more of the hash code."""
    return 1 << (number.bit_length() - 1)
